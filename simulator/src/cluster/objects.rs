//! Kubernetes' objects as JSON: what clients read of a Node, a Pod, an Upgrade (bookkeeping of field managers left out).

use std::collections::BTreeMap;

use semver::Version;
use serde_json::{Value, json};

use super::config::Feature;
use super::delays;
use super::state::{ClusterState, Node, NodeReady, Upgrade, timestamp};
use crate::time::SimTime;

/// An object with its kind, as a read of it alone gives it; in a list items have none.
pub(super) fn whole(mut object: Value, kind: &str, api_version: &str) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.insert("kind".to_owned(), kind.into());
        object.insert("apiVersion".to_owned(), api_version.into());
    }
    object
}

/// A list of built-in objects.
pub(super) fn list(kind: &str, api_version: &str, resource_version: u64, items: &[Value]) -> Value {
    json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {"resourceVersion": resource_version.to_string()},
        "items": items,
    })
}

/// A list of Upgrades.
pub(super) fn upgrade_list(resource_version: u64, items: &[Value]) -> Value {
    json!({
        "apiVersion": "k8sd.io/v1alpha",
        "kind": "UpgradeList",
        "metadata": {"continue": "", "resourceVersion": resource_version.to_string()},
        "items": items,
    })
}

/// An Upgrade.
pub(super) fn upgrade(name: &str, upgrade: &Upgrade) -> Value {
    json!({
        "apiVersion": "k8sd.io/v1alpha",
        "kind": "Upgrade",
        "metadata": {
            "creationTimestamp": timestamp(upgrade.created),
            "generation": 1,
            "name": name,
            "resourceVersion": upgrade.resource_version.to_string(),
            "uid": upgrade.uid,
        },
        "status": {
            "phase": upgrade.phase.name(),
            "strategy": upgrade.strategy.name(),
            "upgradedNodes": upgrade.upgraded_nodes,
        },
    })
}

/// A Node.
pub(super) fn node(name: &str, node: &Node, now: SimTime) -> Value {
    let capacity = json!({"cpu": "2", "ephemeral-storage": "20Gi", "memory": "8Gi", "pods": "110"});
    json!({
        "metadata": {
            "name": name,
            "uid": node.uid,
            "resourceVersion": node.resource_version.to_string(),
            "creationTimestamp": timestamp(node.created),
            "labels": node.labels,
            "annotations": node.annotations,
        },
        "spec": spec(node),
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": conditions(node, now),
            "addresses": [{"type": "InternalIP", "address": node.host}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": node.uid.replace('-', ""),
                "systemUUID": node.uid,
                "bootID": node.uid,
                "kernelVersion": "6.8.0-60-generic",
                "osImage": "Ubuntu 24.04.3 LTS",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kubeletVersion": format!("v{}", node.kubelet_version),
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    })
}

fn spec(node: &Node) -> Value {
    let mut spec = serde_json::Map::new();
    if let Some(unschedulable) = node.unschedulable {
        spec.insert("unschedulable".to_owned(), unschedulable.into());
    }
    let own = node.taints.iter().filter_map(|taint| taint.rsplit_once(':'));
    let own = own.map(|(key, effect)| match key.split_once('=') {
        Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
        None => json!({"key": key, "effect": effect}),
    });
    let condition: &[(&str, &str)] = match node.ready {
        NodeReady::True => &[],
        NodeReady::False => &[("node.kubernetes.io/not-ready", "NoSchedule")],
        NodeReady::Unknown => {
            &[("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")]
        }
    };
    let since = timestamp(node.ready_since);
    let condition = condition.iter().map(|(key, effect)| json!({"key": key, "effect": effect, "timeAdded": since}));
    let cordon = (node.unschedulable == Some(true))
        .then(|| json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": since}));
    let taints: Vec<Value> = own.chain(condition).chain(cordon).collect();
    if !taints.is_empty() {
        spec.insert("taints".to_owned(), taints.into());
    }
    spec.into()
}

fn conditions(node: &Node, now: SimTime) -> Value {
    let pressures = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let (ready, reason, message) = match node.ready {
        NodeReady::True => ("True", "KubeletReady", "kubelet is posting ready status"),
        NodeReady::False => ("False", "KubeletNotReady", "container runtime network not ready: NetworkReady=false"),
        NodeReady::Unknown => ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."),
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "lastHeartbeatTime": timestamp(heartbeat(node, now)),
            "lastTransitionTime": timestamp(node.ready_since),
            "reason": reason,
            "message": message,
        })
    };
    let mut conditions: Vec<Value> = pressures
        .iter()
        .map(|(kind, reason, message)| match node.ready {
            NodeReady::Unknown => {
                condition(kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
            }
            _ => condition(kind, "False", reason, message),
        })
        .collect();
    conditions.push(condition("Ready", ready, reason, message));
    conditions.into()
}

/// When the kubelet posted last: every ten seconds while it isn't silent.
fn heartbeat(node: &Node, now: SimTime) -> SimTime {
    let until = node.silent_since.unwrap_or(now);
    let period = u64::try_from(delays::HEARTBEAT.as_millis()).unwrap_or(1);
    SimTime((until.0 - until.0 % period).max(node.created.0))
}

/// The pods of the features that are deployed, in `kube-system`.
pub(super) fn pods(state: &ClusterState) -> Vec<Value> {
    if state.features.is_none() {
        return Vec::new();
    }
    let mut pods = Vec::new();
    let first = state.nodes.keys().next();
    for (feature, enabled) in state.config.features() {
        match feature {
            Feature::Network if enabled => {
                pods.extend(state.nodes.keys().map(|node| pod(&format!("cilium-{node}"), "cilium", node)));
            }
            Feature::Dns if enabled => pods.extend(first.map(|node| pod("coredns-0", "coredns", node))),
            Feature::MetricsServer if enabled => {
                pods.extend(first.map(|node| pod("metrics-server-0", "metrics-server", node)));
            }
            _ => {}
        }
    }
    pods
}

fn pod(name: &str, app: &str, node: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {"app.kubernetes.io/name": app},
        },
        "spec": {
            "containers": [{"name": app, "image": app}],
            "nodeName": node,
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}],
            "qosClass": "BestEffort",
        },
    })
}

/// Whether labels fit a selector of the forms `key`, `!key`, `key=value`, `key!=value`, joined by commas.
pub(super) fn selected(selector: &str, labels: &BTreeMap<String, String>) -> bool {
    selector.split(',').filter(|term| !term.is_empty()).all(|term| {
        if let Some((key, value)) = term.split_once("!=") {
            return labels.get(key).is_none_or(|actual| actual != value);
        }
        match (term.split_once('='), term.strip_prefix('!')) {
            (Some((key, value)), _) => labels.get(key).is_some_and(|actual| actual == value.trim_start_matches('=')),
            (None, Some(key)) => !labels.contains_key(key),
            (None, None) => labels.contains_key(term),
        }
    })
}

/// `GET /version`, in the form that kube-apiserver gives it.
pub(super) fn version(version: &Version) -> String {
    let (major, minor) = (version.major, version.minor);
    format!(
        "{{\n  \"major\": \"{major}\",\n  \"minor\": \"{minor}\",\n  \"gitVersion\": \"v{version}\",\n  \"gitCommit\": \
         \"$Format:%H$\",\n  \"gitTreeState\": \"clean\",\n  \"buildDate\": \"1970-01-01T00:00:00Z\",\n  \"goVersion\": \
         \"go1.26.8\",\n  \"compiler\": \"gc\",\n  \"platform\": \"linux/amd64\"\n}}"
    )
}

/// The checks of `/readyz`, in its order (recorded: `readyz.verbose`).
const CHECKS: [&str; 35] = [
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "informer-sync",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/aggregator-reload-proxy-client-cert",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "shutdown",
];

/// The list that `/readyz` shows when asked, or when a check fails.
pub(super) fn readyz(failing: &[&str]) -> String {
    let mut lines = String::new();
    for check in CHECKS {
        let line = if failing.contains(&check) {
            format!("[-]{check} failed: reason withheld\n")
        } else {
            format!("[+]{check} ok\n")
        };
        lines.push_str(&line);
    }
    let verdict = if failing.is_empty() { "passed" } else { "failed" };
    format!("{lines}readyz check {verdict}\n")
}
