//! The wake-up: one repeating transient systemd timer a unit (rule R7).
//!
//! It runs `juju-exec`, which runs the charm between two of Juju's own hooks; so no hook ever has to sleep.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::machine::Root;
use crate::names::UnitName;

/// How long `juju-exec` may take, from its queue to its end: one that arrives during a code swap never ends.
const LONGEST: Duration = Duration::from_mins(15);

/// The wake-up of a unit.
#[derive(Debug, Clone)]
pub struct WakeUp {
    unit: UnitName,
    transient: PathBuf,
}

/// Why the wake-up could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum WakeUpError {
    /// A program could not be run.
    #[error("cannot run {program}")]
    Run {
        /// Which.
        program: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// systemd said no.
    #[error("{program} ended with {status}: {stderr}")]
    Refused {
        /// Which program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
}

impl WakeUp {
    /// The wake-up of this unit on the machine with this root.
    pub fn new(root: &Root, unit: &UnitName) -> Self {
        Self { unit: unit.clone(), transient: root.path("/run/systemd/transient") }
    }

    fn name(&self) -> String {
        format!("k8s-charm-wake-up-{}-{}", self.unit.application(), self.unit.number())
    }

    /// How often it wakes the unit, if it is armed: read where systemd keeps its transient units, not asked by a
    /// process.
    pub fn armed(&self) -> Option<Duration> {
        let timer = std::fs::read_to_string(self.transient.join(format!("{}.timer", self.name()))).ok()?;
        timer.lines().find_map(|line| span(line.strip_prefix("OnUnitInactiveSec=")?))
    }

    /// Wakes the unit that often from now on; nothing is done if it is woken that often already.
    ///
    /// One armed otherwise is stopped before, which ends a `juju-exec` that hangs in it too.
    pub async fn arm(&self, every: Duration) -> Result<(), WakeUpError> {
        match self.armed() {
            Some(armed) if armed == every => return Ok(()),
            Some(_) => self.disarm().await?,
            None => {}
        }
        run("systemd-run", &self.arming(every)).await
    }

    /// Lets the unit sleep.
    pub async fn disarm(&self) -> Result<(), WakeUpError> {
        if self.armed().is_none() {
            return Ok(());
        }
        let name = self.name();
        // A wake-up that disarms itself runs in that very service: it must not be stopped with its timer.
        run("systemctl", &["--no-block".to_owned(), "stop".to_owned(), format!("{name}.timer")]).await
    }

    /// Arms it anew in the first hook of new code: a `juju-exec` that arrived during the code swap hangs, and the timer
    /// with it.
    pub async fn arm_anew(&self, every: Duration) -> Result<(), WakeUpError> {
        if self.armed().is_some() {
            let name = self.name();
            let stop = ["stop".to_owned(), format!("{name}.timer"), format!("{name}.service")];
            run("systemctl", &stop).await?;
        }
        run("systemd-run", &self.arming(every)).await
    }

    /// The arguments that arm it.
    ///
    /// `exec`: a `dispatch` that is killed discards its writes only where it took bash's place. Both outputs are
    /// redirected: `juju-exec` waits for whoever holds them.
    fn arming(&self, every: Duration) -> Vec<String> {
        let seconds = every.as_secs();
        let limit = LONGEST.as_secs();
        [
            "--quiet".to_owned(),
            "--collect".to_owned(),
            format!("--unit={}", self.name()),
            format!("--description=Wakes the charm of {}", self.unit),
            format!("--on-active={seconds}s"),
            format!("--on-unit-inactive={seconds}s"),
            "--timer-property=AccuracySec=100ms".to_owned(),
            "--property=StandardOutput=null".to_owned(),
            "--property=StandardError=null".to_owned(),
            "timeout".to_owned(),
            limit.to_string(),
            "juju-exec".to_owned(),
            self.unit.to_string(),
            "exec env JUJU_DISPATCH_PATH=hooks/upgrade_granted ./dispatch".to_owned(),
        ]
        .to_vec()
    }
}

/// A span as systemd writes it into a transient unit: `3s`, `1min 30s`, `5min`.
fn span(text: &str) -> Option<Duration> {
    text.split_whitespace().try_fold(Duration::ZERO, |sum, part| {
        let digits = part.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = part.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        let seconds = match unit {
            "s" => number,
            "min" => number * 60,
            "h" => number * 3600,
            _ => return None,
        };
        Some(sum + Duration::from_secs(seconds))
    })
}

async fn run(program: &'static str, arguments: &[String]) -> Result<(), WakeUpError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().await.map_err(|source| WakeUpError::Run { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(WakeUpError::Refused { program, status: output.status, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake_up(root: &std::path::Path) -> WakeUp {
        let root = Root::of_charm_dir(&root.join("var/lib/juju/agents/unit-k8s-0/charm"));
        WakeUp::new(&root, &UnitName::new("k8s", 0))
    }

    #[test]
    fn it_runs_the_charm_through_juju_exec_and_in_bashs_place() {
        let arming = wake_up(std::path::Path::new("/nowhere")).arming(Duration::from_secs(3));
        assert!(arming.contains(&"--unit=k8s-charm-wake-up-k8s-0".to_owned()));
        assert!(arming.contains(&"--on-unit-inactive=3s".to_owned()));
        let command = ["juju-exec", "k8s/0", "exec env JUJU_DISPATCH_PATH=hooks/upgrade_granted ./dispatch"];
        assert_eq!(arming[arming.len() - 3..], command);
    }

    #[test]
    fn whether_it_is_armed_is_read_from_systemds_files() {
        let root = tempfile::tempdir().unwrap();
        let wake_up = wake_up(root.path());
        assert_eq!(wake_up.armed(), None);
        let directory = root.path().join("run/systemd/transient");
        std::fs::create_dir_all(&directory).unwrap();
        let timer = directory.join("k8s-charm-wake-up-k8s-0.timer");
        for (text, seconds) in [("3s", 3), ("30s", 30), ("1min 30s", 90), ("5min", 300), ("1h", 3600)] {
            // As systemd 252 and 257 write it: `systemd-run --on-active=… --on-unit-inactive=…`.
            let unit = format!(
                "# This is a transient unit file\n[Unit]\nDescription=x\n\n[Timer]\nOnActiveSec={text}\nOnUnitInactiveSec={text}\n"
            );
            std::fs::write(&timer, unit).unwrap();
            assert_eq!(wake_up.armed(), Some(Duration::from_secs(seconds)));
        }
        std::fs::write(&timer, "[Timer]\n").unwrap();
        assert_eq!(wake_up.armed(), None);
    }
}
