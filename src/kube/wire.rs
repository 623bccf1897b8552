//! Objects of Kubernetes, as far as the charm looks at them.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A list of objects.
#[derive(Debug, Deserialize)]
pub(super) struct List<T> {
    /// Go writes an empty list as `null` where nobody took care.
    items: Option<Vec<T>>,
}

impl<T> List<T> {
    pub(super) fn items(self) -> Vec<T> {
        self.items.unwrap_or_default()
    }
}

/// So much of a refusal is told, in characters.
const TOLD: usize = 200;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refusal {
    message: String,
}

/// What the API server says when it says no, in one line: the message of a `Status`, the checks of `/readyz` that fail,
/// or a short text as it is.
pub(super) fn refusal(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failing: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("[-]")?.split(' ').next()).collect();
    let text = match serde_json::from_slice::<Refusal>(body) {
        Ok(status) => status.message,
        Err(_) if failing.is_empty() => text.into_owned(),
        Err(_) => format!("{} failed", failing.join(", ")),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TOLD).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    name: String,
    labels: BTreeMap<String, String>,
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
            control_plane: is_control_plane(&raw.metadata.labels),
            name: raw.metadata.name,
            ready: if ready { NodeReady::Ready } else { NodeReady::NotReady },
            kubelet_version: raw.status.node_info.kubelet_version,
        }
    }
}

/// By k8sd's own label, which every node of its has; by the label that everybody knows where that one isn't.
fn is_control_plane(labels: &BTreeMap<String, String>) -> bool {
    match labels.get("k8sd.io/role") {
        Some(role) => role == "control-plane",
        None => labels.contains_key("node-role.kubernetes.io/control-plane"),
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn recorded<Raw: serde::de::DeserializeOwned, T: From<Raw>>(name: &str) -> Vec<T> {
        let path = format!("{}/simulator/recorded/kubernetes/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let list: List<Raw> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        list.items().into_iter().map(T::from).collect()
    }

    #[test]
    fn nodes_are_read_as_recorded() {
        let nodes = recorded::<RawNode, Node>("nodes");
        let node = |name: &str, control_plane, version: &str| Node {
            name: name.to_owned(),
            control_plane,
            ready: NodeReady::Ready,
            kubelet_version: version.to_owned(),
        };
        let control_planes = [("k8s-0", "v1.35.2"), ("k8s-1", "v1.35.2"), ("k8s-2", "v1.36.0")];
        let expected = control_planes.map(|(name, version)| node(name, true, version));
        assert_eq!(nodes, [&expected[..], &[node("worker-0", false, "v1.35.2")]].concat());
        let labels = |text: Value| -> BTreeMap<String, String> { serde_json::from_value(text).unwrap() };
        assert!(is_control_plane(&labels(json!({"node-role.kubernetes.io/control-plane": ""}))));
        assert!(!is_control_plane(&labels(json!({"node-role.kubernetes.io/worker": ""}))));
    }

    #[test]
    fn a_node_is_ready_only_where_its_kubelet_says_so() {
        for (conditions, ready) in [
            (json!([{"type": "Ready", "status": "True"}]), NodeReady::Ready),
            (json!([{"type": "Ready", "status": "False"}]), NodeReady::NotReady),
            (json!([{"type": "Ready", "status": "Unknown"}]), NodeReady::NotReady),
            (json!([{"type": "DiskPressure", "status": "True"}]), NodeReady::NotReady),
            (json!([]), NodeReady::NotReady),
        ] {
            let raw: RawNode = serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap();
            assert_eq!(Node::from(raw).ready, ready);
        }
    }

    #[test]
    fn pods_that_should_run_and_dont_say_why() {
        let running = recorded::<RawPod, Pod>("pods.on-node");
        assert!(running.len() > 1 && running.iter().all(|pod| pod.trouble.is_none()), "{running:?}");
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        let waiting = json!([{"ready": true, "state": {}}, {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        for (status, trouble) in [
            (json!({"phase": "Running", "conditions": ready("True")}), None),
            (json!({"phase": "Succeeded"}), None),
            (json!({"phase": "Failed", "reason": "Evicted"}), None),
            (json!({"phase": "Running", "conditions": ready("False")}), Some("not ready")),
            (
                json!({"phase": "Running", "conditions": ready("False"), "containerStatuses": waiting}),
                Some("CrashLoopBackOff"),
            ),
            (json!({"phase": "Pending"}), Some("Pending")),
            (json!({"phase": "Failed"}), Some("Failed")),
            (json!({"phase": "Unknown"}), Some("Unknown")),
        ] {
            let raw: RawPod = serde_json::from_value(json!({"metadata": {"name": "x"}, "status": status})).unwrap();
            assert_eq!(Pod::from(raw).trouble.as_deref(), trouble, "{status}");
        }
    }

    #[test]
    fn records_of_upgrades_are_read_as_recorded() {
        let [open] = &recorded::<RawUpgrade, Upgrade>("upgrades.waiting-for-workers")[..] else { panic!("one record") };
        assert_eq!((open.phase.as_str(), open.is_over()), ("NodeUpgrade", false));
        assert!(open.upgraded_nodes.contains(&"k8s-0".to_owned()), "{open:?}");
        assert!(recorded::<RawUpgrade, Upgrade>("upgrades.completed").iter().all(Upgrade::is_over));
        assert_eq!(recorded::<RawUpgrade, Upgrade>("upgrades.none"), []);
        let empty: List<RawUpgrade> = serde_json::from_value(json!({"items": null})).unwrap();
        assert!(empty.items().is_empty());
    }

    #[test]
    fn a_refusal_is_one_short_line() {
        let status = br#"{"kind":"Status","message":"nodes is\nforbidden","code":403}"#;
        let long = "x".repeat(1000);
        for (body, told) in [
            (&status[..], "nodes is forbidden"),
            (b"", ""),
            (b"404 page not found\n", "404 page not found"),
            (
                b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]x/y failed: z\nreadyz check failed\n",
                "etcd, x/y failed",
            ),
            (b"\xff", "\u{fffd}"),
            (long.as_bytes(), &long[..TOLD]),
        ] {
            assert_eq!(refusal(body), told);
        }
    }
}
