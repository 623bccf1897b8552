//! The one root that every file and socket path hangs off.

use std::path::{Path, PathBuf};

/// The machine's root: `/` in production, a machine's directory in a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// What stands before `var/lib/juju/agents/` in the charm directory; `/` where the path has another shape.
    pub fn of_charm_dir(charm_dir: &Path) -> Self {
        let agents = Path::new("var/lib/juju/agents");
        let root = charm_dir.ancestors().find(|ancestor| {
            ancestor.is_absolute()
                && charm_dir.strip_prefix(ancestor).is_ok_and(|rest| rest.starts_with(agents) && rest != agents)
        });
        Self(root.unwrap_or(Path::new("/")).to_owned())
    }

    /// Whether this is a real machine's `/`.
    pub fn is_production(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Where an absolute path of the machine lies: `/run/snapd.socket` under this root.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let path = absolute.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_stands_before_the_agents_directory() {
        for (charm_dir, root) in [
            ("/var/lib/juju/agents/unit-k8s-0/charm", "/"),
            ("/tmp/sim/machine-0/var/lib/juju/agents/unit-k8s-0/charm", "/tmp/sim/machine-0"),
            ("/home/me/charm", "/"),
            ("charm", "/"),
            ("/tmp/var/lib/juju/agents", "/"),
        ] {
            assert_eq!(Root::of_charm_dir(Path::new(charm_dir)), Root(PathBuf::from(root)), "{charm_dir}");
        }
        let root = Root::of_charm_dir(Path::new("/tmp/m/var/lib/juju/agents/unit-k8s-0/charm"));
        assert_eq!(root.path("/run/snapd.socket"), Path::new("/tmp/m/run/snapd.socket"));
    }
}
