//! Objects of Kubernetes, as far as the charm looks at them.

use serde::Deserialize;

/// A list of objects.
#[derive(Debug, Deserialize)]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    name: String,
    labels: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

/// Whether a node is Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReady {
    /// Its kubelet says so.
    Ready,
    /// Its kubelet says no, or says nothing any more.
    NotReady,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it is a control plane.
    pub control_plane: bool,
    /// Whether it is Ready.
    pub ready: NodeReady,
    /// The version of its kubelet, `v1.32.1`.
    pub kubelet_version: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawNode {
    metadata: Metadata,
    status: RawNodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawNodeStatus {
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    kubelet_version: String,
}

impl From<RawNode> for Node {
    fn from(raw: RawNode) -> Self {
        let ready = is_true(&raw.status.conditions, "Ready");
        Self {
            control_plane: raw.metadata.labels.contains_key("node-role.kubernetes.io/control-plane"),
            name: raw.metadata.name,
            ready: if ready { NodeReady::Ready } else { NodeReady::NotReady },
            kubelet_version: raw.status.node_info.kubelet_version,
        }
    }
}

fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|condition| condition.r#type == kind && condition.status == "True")
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Why it doesn't run, if it should and doesn't: `Pending`, `CrashLoopBackOff`, ….
    pub trouble: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawPod {
    metadata: Metadata,
    status: RawPodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawPodStatus {
    phase: String,
    reason: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    ready: bool,
    state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

impl From<RawPod> for Pod {
    /// Completed and evicted pods don't count.
    fn from(raw: RawPod) -> Self {
        let status = &raw.status;
        let waiting = status.container_statuses.iter().filter(|container| !container.ready);
        let waiting = waiting.filter_map(|container| container.state.waiting.as_ref()).map(|waiting| &waiting.reason);
        let cause = waiting.clone().next().cloned();
        let trouble = match status.phase.as_str() {
            "Succeeded" => None,
            _ if status.reason == "Evicted" => None,
            "Running" if is_true(&status.conditions, "Ready") => None,
            "Running" => Some(cause.unwrap_or_else(|| "not ready".to_owned())),
            phase => Some(cause.unwrap_or_else(|| phase.to_owned())),
        };
        Self { name: raw.metadata.name, trouble }
    }
}

/// k8sd's record of an upgrade (`upgrades.k8sd.io`, k8s-snap `src/k8s/pkg/upgrade/api/v1alpha/`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// `cluster-upgrade-to-k8s-VERSION-rev-REVISION`.
    pub name: String,
    /// `NodeUpgrade`, `FeatureUpgrade`, `Completed`, `Failed`; empty at its very beginning.
    pub phase: String,
    /// Nodes that were upgraded.
    pub upgraded_nodes: Vec<String>,
}

impl Upgrade {
    /// Whether it is over, whatever came of it.
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Completed" | "Failed")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawUpgrade {
    metadata: Metadata,
    status: RawUpgradeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawUpgradeStatus {
    phase: String,
    upgraded_nodes: Vec<String>,
}

impl From<RawUpgrade> for Upgrade {
    fn from(raw: RawUpgrade) -> Self {
        Self { name: raw.metadata.name, phase: raw.status.phase, upgraded_nodes: raw.status.upgraded_nodes }
    }
}
