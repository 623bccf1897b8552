//! One machine: what runs on it, and the files that its k8sd keeps.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::ClusterId;
use super::answers::ErrorEnd;
use super::pki::Certified;
use crate::time::SimTime;
use crate::wire::{InstalledSnap, MachineId};

/// Where k8sd of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Daemon {
    /// Not running: no socket.
    Stopped,
    /// The socket is there, the database isn't open.
    Starting,
    /// The database is open (or there is none to open), the start hook isn't done.
    Open,
    /// The start hook is done.
    Ready,
}

/// Where the API server of a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiServer {
    /// The port is closed.
    Down,
    /// The port is open, the start hooks aren't done.
    Starting,
    /// Up, as far as this machine goes.
    Up,
}

/// Where a process is of which only that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// Not running.
    Down,
    /// Running.
    Up,
}

/// k8sd's controllers (features, configuration, upgrades).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controllers {
    /// Not started: k8sd is stopped, or hasn't come to its post-refresh step, or this step failed.
    Stopped,
    /// Running.
    Running,
}

/// How far a bootstrap or join has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryStage {
    /// Certificates and kubeconfigs aren't written.
    Begun,
    /// They are.
    FilesWritten,
}

/// What a bootstrap or join will come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EntryEnd {
    /// It goes well, as far as is known now.
    Well,
    /// It fails, and is answered with this.
    Fails(u16, String),
    /// It fails, and is never answered.
    Hangup,
}

/// A bootstrap or join under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Who waits for the answer.
    pub(super) ticket: u64,
    /// What is done.
    pub(super) kind: EntryKind,
    /// How far.
    pub(super) stage: EntryStage,
    /// How it ends.
    pub(super) end: EntryEnd,
    /// When its caller's patience ends.
    pub(super) deadline: SimTime,
}

/// How a machine enters a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// As the first of a new one.
    Bootstrap,
    /// As a further control plane.
    ControlPlane,
    /// As a worker.
    Worker,
}

/// A machine's place in a cluster, as its own k8sd knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Membership {
    /// Not initialised.
    None,
    /// A bootstrap or join is under way. The cluster is absent where a bad token leads to none.
    Entering(Option<ClusterId>, Entry),
    /// A control plane.
    ControlPlane(ClusterId),
    /// A worker.
    Worker(ClusterId),
}

/// What a test asked to go wrong the next time.
#[derive(Debug, Clone, Default)]
pub(super) struct NextFailures {
    pub(super) bootstrap: Option<String>,
    pub(super) join: Option<String>,
    pub(super) post_refresh: Option<String>,
}

/// A machine with its k8s snap.
pub(super) struct Machine {
    pub(super) id: MachineId,
    root: PathBuf,
    pub(super) hostname: String,
    pub(super) api_address: SocketAddr,
    pub(super) snap: Option<InstalledSnap>,
    /// Whether snapd has started the snap's services.
    pub(super) services: Running,
    pub(super) daemon: Daemon,
    pub(super) api_server: ApiServer,
    pub(super) datastore: Running,
    pub(super) kubelet: Running,
    pub(super) controllers: Controllers,
    pub(super) membership: Membership,
    /// Its name and address in the cluster, as given to bootstrap or join.
    pub(super) name: String,
    pub(super) address: String,
    pub(super) certificate: Option<Certified>,
    /// Until when a fault keeps the node from being Ready.
    pub(super) not_ready_until: Option<SimTime>,
    pub(super) next_failures: NextFailures,
}

impl Machine {
    pub(super) fn new(id: MachineId, root: &Path, hostname: &str, api_address: SocketAddr) -> Self {
        Self {
            id,
            root: root.to_owned(),
            hostname: hostname.to_owned(),
            api_address,
            snap: None,
            services: Running::Down,
            daemon: Daemon::Stopped,
            api_server: ApiServer::Down,
            datastore: Running::Down,
            kubelet: Running::Down,
            controllers: Controllers::Stopped,
            membership: Membership::None,
            name: hostname.to_owned(),
            address: String::new(),
            certificate: None,
            not_ready_until: None,
            next_failures: NextFailures::default(),
        }
    }

    /// The minor version of the installed snap; 0 without one.
    pub(super) fn minor(&self) -> u64 {
        self.snap.as_ref().map_or(0, |snap| snap.version.minor)
    }

    /// How this machine's k8sd ends an error.
    pub(super) fn error_end(&self) -> ErrorEnd {
        if self.minor() >= 36 { ErrorEnd::OneNewline } else { ErrorEnd::TwoNewlines }
    }

    /// The cluster that it's in, or enters.
    pub(super) fn cluster(&self) -> Option<ClusterId> {
        match &self.membership {
            Membership::None => None,
            Membership::Entering(cluster, _) => *cluster,
            Membership::ControlPlane(cluster) | Membership::Worker(cluster) => Some(*cluster),
        }
    }

    /// Whether kubeconfigs are there, so that k8sd can speak to the API server.
    pub(super) fn has_kubeconfigs(&self) -> bool {
        match &self.membership {
            Membership::None => false,
            Membership::Entering(_, entry) => entry.stage == EntryStage::FilesWritten,
            Membership::ControlPlane(_) | Membership::Worker(_) => true,
        }
    }

    /// The host part of the address.
    pub(super) fn host(&self) -> &str {
        self.address.rsplit_once(':').map_or(self.address.as_str(), |(host, _)| host)
    }

    /// The value of the Node's annotation, as k8sd writes it since 1.32.
    pub(super) fn version_annotation(&self) -> Option<String> {
        let snap = self.snap.as_ref().filter(|snap| snap.version.minor >= 32)?;
        let (revision, version) = (&snap.revision, &snap.version);
        Some(format!(r#"{{"revision":"{revision}","kubernetesVersion":"{version}"}}"#))
    }

    /// What k8sd calls the upgrade to this machine's snap.
    pub(super) fn upgrade_name(&self) -> Option<String> {
        let snap = self.snap.as_ref()?;
        Some(format!("cluster-upgrade-to-k8s-{}-rev-{}", snap.version, snap.revision))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn lock_file(&self) -> PathBuf {
        self.path("var/snap/k8s/common/lock/post-refresh")
    }

    /// Leaves the file by which k8sd knows that a refresh isn't over.
    pub(super) fn make_lock_file(&self) -> io::Result<()> {
        write(&self.lock_file(), "")
    }

    /// Whether that file is there.
    pub(super) fn has_lock_file(&self) -> bool {
        self.lock_file().exists()
    }

    /// Removes it.
    pub(super) fn remove_lock_file(&self) -> io::Result<()> {
        remove(&self.lock_file())
    }

    /// Writes what tells an initialised k8sd on disk.
    pub(super) fn write_state_files(&self) -> io::Result<()> {
        let daemon = format!("name: {}\naddress: {}\n", self.name, self.address);
        write(&self.path("var/snap/k8s/common/var/lib/k8sd/state/daemon.yaml"), &daemon)?;
        let info = format!("- ID: 1\n  Address: {}\n  Role: 0\n", self.address);
        write(&self.path("var/snap/k8s/common/var/lib/k8sd/state/database/info.yaml"), &info)
    }

    /// Writes the admin's kubeconfig.
    pub(super) fn write_admin_conf(&self, kubeconfig: &str) -> io::Result<()> {
        write(&self.path("etc/kubernetes/admin.conf"), kubeconfig)
    }

    /// Writes the mark of a worker.
    pub(super) fn write_worker_mark(&self) -> io::Result<()> {
        write(&self.path("var/snap/k8s/common/lock/worker"), "")
    }

    /// Removes all that a cluster left on the machine.
    pub(super) fn remove_cluster_files(&self) -> io::Result<()> {
        for path in [
            "etc/kubernetes/admin.conf",
            "var/snap/k8s/common/lock/worker",
            "var/snap/k8s/common/var/lib/k8sd/state/daemon.yaml",
            "var/snap/k8s/common/var/lib/k8sd/state/database/info.yaml",
        ] {
            remove(&self.path(path))?;
        }
        Ok(())
    }

    /// All its processes end.
    pub(super) fn stop(&mut self) {
        self.daemon = Daemon::Stopped;
        self.controllers = Controllers::Stopped;
        self.stop_services();
    }

    /// All its processes but k8sd end.
    pub(super) fn stop_services(&mut self) {
        self.api_server = ApiServer::Down;
        self.datastore = Running::Down;
        self.kubelet = Running::Down;
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
