//! The only `now`.
//!
//! In a rehearsal, where the root isn't `/`, the time is asked of `ROOT/run/clock.sock`, which answers each connection
//! with the milliseconds since the Unix epoch in decimal digits; in production that path can't be taken.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::machine::Root;
use crate::names::Timestamp;
use crate::unix_http::ReachableSocket;

/// How long a rehearsal's clock may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The machine's clock.
#[derive(Debug, Clone)]
pub struct Clock {
    rehearsal: Option<PathBuf>,
}

impl Clock {
    /// The clock of the machine with this root.
    pub fn new(root: &Root) -> Self {
        Self { rehearsal: (!root.is_production()).then(|| root.path("/run/clock.sock")) }
    }

    /// The present.
    pub fn now(&self) -> Timestamp {
        Timestamp(i64::try_from(self.since_epoch().as_secs()).unwrap_or(i64::MAX))
    }

    /// The time since the Unix epoch.
    pub fn since_epoch(&self) -> Duration {
        self.rehearsal.as_ref().and_then(|socket| ask(socket)).unwrap_or_else(system)
    }
}

fn ask(socket: &Path) -> Option<Duration> {
    let reachable = ReachableSocket::new(socket).ok()?;
    let mut stream = UnixStream::connect(reachable.path()).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.trim().parse().ok().map(Duration::from_millis)
}

#[expect(clippy::disallowed_methods, reason = "this is the only place that asks the system for the time")]
fn system() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_rehearsals_time_is_asked_each_time_and_a_real_machines_is_the_systems() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::of_charm_dir(&directory.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
        std::fs::create_dir(directory.path().join("run")).unwrap();
        let listener = UnixListener::bind(directory.path().join("run/clock.sock")).unwrap();
        let server = std::thread::spawn(move || {
            for answer in ["1767225600000", "1767225601999\n"] {
                listener.accept().unwrap().0.write_all(answer.as_bytes()).unwrap();
            }
        });
        let clock = Clock::new(&root);
        assert_eq!([clock.now(), clock.now()], [Timestamp(1_767_225_600), Timestamp(1_767_225_601)]);
        server.join().unwrap();
        let real = Clock::new(&Root::of_charm_dir(std::path::Path::new("/")));
        assert!(real.now() > Timestamp(1_767_225_600));
    }
}
