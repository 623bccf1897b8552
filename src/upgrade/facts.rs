//! What the checks look at: plain values, each of them known, or unknown for a reason.

use std::collections::BTreeMap;

use super::constraint::Constraint;
use super::version::Way;
use crate::names::{KubernetesVersion, Timestamp, UnitName};

/// A fact that may not be known; what could not be read is never healthy, and never different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact<T> {
    /// It is.
    Known(T),
    /// It could not be read, and why.
    Unknown(String),
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Whether it is a control plane.
    pub control_plane: bool,
    /// Whether it is Ready.
    pub ready: bool,
    /// The version of its kubelet, if it says one.
    pub kubelet: Option<KubernetesVersion>,
}

/// The datastore's members, as k8sd knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datastore {
    /// The cluster's own: each member's name.
    Own(Vec<String>),
    /// Somewhere else: its quorum isn't ours to keep.
    External,
}

/// Whether snapd keeps the snap from refreshing by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It does.
    Held,
    /// It could, and doesn't.
    NotHeld,
    /// It is too old to hold one snap.
    CannotHold,
}

/// snapd, as the check of it looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapdFacts {
    /// A change in progress for the snap.
    pub change: Option<String>,
    /// Whether the snap is held.
    pub hold: Hold,
}

/// What the gate before a refresh looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateFacts {
    /// This unit.
    pub me: UnitName,
    /// This unit's node.
    pub own_node: String,
    /// Whether the snap goes back to what is older: what is sick is then what is left behind.
    pub going_back: bool,
    /// The nodes of the other members, by unit.
    pub other_nodes: BTreeMap<UnitName, String>,
    /// Whether this node's API server answers.
    pub api: Fact<()>,
    /// All nodes by name.
    pub nodes: Fact<BTreeMap<String, Node>>,
    /// The datastore.
    pub datastore: Fact<Datastore>,
    /// The control plane's step.
    pub versions: VersionFacts,
}

/// What the version table looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionFacts {
    /// What is installed.
    pub from: Option<KubernetesVersion>,
    /// What the pin brings. `None`: a channel's pin, and the store doesn't say what it holds.
    pub to: Option<KubernetesVersion>,
    /// Which way.
    pub way: Way,
    /// From which versions the charm can be upgraded.
    pub supported: Option<Constraint>,
    /// Units of workers and what they publish.
    pub workers: Vec<(UnitName, Option<KubernetesVersion>)>,
    /// Which workers' versions the charm takes.
    pub worker_constraint: Option<Constraint>,
}

/// What the checks before a run look at, besides the gate's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFacts {
    /// What every gate looks at.
    pub gate: GateFacts,
    /// Pods that should run and don't, `NAMESPACE/NAME: why`.
    pub pods: Fact<Vec<String>>,
    /// Features whose last deployment failed: name and message.
    pub features: Fact<Vec<(String, String)>>,
    /// Whether k8sd is ready.
    pub k8sd: Fact<()>,
    /// snapd.
    pub snapd: Fact<SnapdFacts>,
    /// Free bytes where snaps and their data are.
    pub space: Fact<u64>,
    /// When certificates end, by name.
    pub certificates: Fact<Vec<(String, Timestamp)>>,
    /// The unit at work in a run, or the one that failed.
    pub at_work: Option<String>,
    /// The present.
    pub now: Timestamp,
}

/// What the gate after a refresh looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthFacts {
    /// This unit's node.
    pub node_name: String,
    /// Services of the snap that are enabled and not active.
    pub inactive_services: Fact<Vec<String>>,
    /// This unit's node; `None`: there is none.
    pub node: Fact<Option<Node>>,
    /// Whether this node's API server answers.
    pub api: Fact<()>,
    /// Whether k8sd is ready, or waits for other members (which is normal).
    pub k8sd: Fact<()>,
    /// Since when k8sd's own work after the refresh is open.
    pub post_refresh_since: Fact<Option<Timestamp>>,
    /// When k8sd was started last.
    pub k8sd_since: Option<Timestamp>,
    /// The version that the pin brings.
    pub version: KubernetesVersion,
    /// When the change ended.
    pub change_ended: Option<Timestamp>,
    /// The present.
    pub now: Timestamp,
}
