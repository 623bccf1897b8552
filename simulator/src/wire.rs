//! What passes between a machine's servers and the models behind them.

use std::fmt;

use crate::time::SimTime;

/// A machine of the model, `0`, `1`, …, as in `JUJU_MACHINE_ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(pub u32);

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A server of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// snapd's REST API, `/run/snapd.socket`.
    Snapd,
    /// k8sd's control socket, `/var/snap/k8s/common/var/lib/k8sd/state/control.socket`.
    K8sd,
    /// The Kubernetes API server, HTTPS on the machine's own address.
    Kubernetes,
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub struct Request {
    /// `GET`, `POST`, ….
    pub method: String,
    /// Path and query, `/v2/snaps/k8s?x=y`.
    pub path: String,
    /// The body's type, if given.
    pub content_type: Option<String>,
    /// Other headers that a model may look at (`authorization`), names in lower case.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
    /// For Kubernetes: whether the client showed a certificate of the cluster's CA.
    pub client_certificate: bool,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The body's type.
    pub content_type: &'static str,
    /// The whole body.
    pub body: Vec<u8>,
}

/// What a model makes of a request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Answered at once.
    Now(Response),
    /// The caller is kept waiting: at that time the model is asked again (`resume` with this ticket).
    Wait {
        /// When to ask again.
        until: SimTime,
        /// What to ask for.
        ticket: u64,
    },
    /// The connection is closed without an answer.
    Hangup,
}

/// What happens to a machine's k8s snap, as its snapd tells the cluster's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapEvent {
    /// The snap was installed for the first time, its `k8sd` service runs.
    Installed(InstalledSnap),
    /// All its services were stopped (`stop-snap-services`).
    ServicesStopped,
    /// Its post-refresh hook ran in the new revision (leaves `lock/post-refresh` from 1.32 on).
    PostRefresh(InstalledSnap),
    /// The services that were enabled were started (`start-snap-services`), now of this revision.
    ServicesStarted(InstalledSnap),
    /// One service was restarted, `k8sd`.
    ServiceRestarted(String),
    /// The snap was removed.
    Removed,
}

/// A revision of the snap on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledSnap {
    /// The Kubernetes version in it, `1.32.1`.
    pub version: semver::Version,
    /// Its revision as snapd writes it, `2002` or `x1`.
    pub revision: String,
}
