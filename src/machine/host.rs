//! What the machine itself says: its name, room on its disk, and files that the snap keeps.

use std::io;
use std::path::PathBuf;

use crate::machine::Root;
use crate::names::Timestamp;

/// k8sd's mark that its own work after a refresh isn't done (from 1.32 on; k8s-snap `k8s/hooks/post-refresh`).
const POST_REFRESH_LOCK: &str = "/var/snap/k8s/common/lock/post-refresh";

/// k8sd's control socket, which is made anew at each start.
const K8SD_SOCKET: &str = "/var/snap/k8s/common/var/lib/k8sd/state/control.socket";

/// The machine's host name, in lower case: what its node is called.
pub fn host_name(root: &Root) -> io::Result<String> {
    let name = std::fs::read_to_string(root.path("/proc/sys/kernel/hostname"))?;
    Ok(name.trim().to_ascii_lowercase())
}

/// When k8sd's own work after a refresh began, if it isn't done.
pub fn post_refresh_since(root: &Root) -> io::Result<Option<Timestamp>> {
    modified(root.path(POST_REFRESH_LOCK))
}

/// When k8sd was started last, if it runs.
pub fn k8sd_since(root: &Root) -> io::Result<Option<Timestamp>> {
    modified(root.path(K8SD_SOCKET))
}

fn modified(path: PathBuf) -> io::Result<Option<Timestamp>> {
    use std::os::unix::fs::MetadataExt as _;
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(Timestamp(metadata.mtime()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Bytes that are free where snapd keeps snaps and their data.
pub fn free_space(root: &Root) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(root.path("/var/lib/snapd"))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_below_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::of_charm_dir(&directory.path().join("var/lib/juju/agents/unit-k8s-0/charm"));
        assert!(host_name(&root).is_err());
        assert_eq!(post_refresh_since(&root).unwrap(), None);
        for file in ["proc/sys/kernel/hostname", "var/snap/k8s/common/lock/post-refresh", "var/lib/snapd/x"] {
            let path = directory.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "Juju-1\n").unwrap();
        }
        assert_eq!(host_name(&root).unwrap(), "juju-1");
        assert!(post_refresh_since(&root).unwrap().is_some());
        assert!(free_space(&root).unwrap() > 0);
    }
}
