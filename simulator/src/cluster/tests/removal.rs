//! Taking nodes out.

use super::{Rig, recording, seconds};
use crate::cluster::NodeReady;
use crate::wire::{MachineId, Service, SnapEvent};

const REMOVE: &str = "/1.0/k8sd/cluster/remove";

#[test]
fn a_removed_control_plane_is_out_reset_and_may_come_back() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    let begun = rig.now;
    let answer = rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1","force":false,"timeout":300000000000}"#);
    assert_eq!(answer.body(), recording("k8sd/1.35/remove.json"));
    assert!(rig.now >= begun + seconds(2));
    assert!(!rig.cluster.is_open(MachineId(1), Service::K8sd));
    assert!(!rig.cluster.is_open(MachineId(1), Service::Kubernetes));
    assert!(!rig.root(1).join("etc/kubernetes/admin.conf").exists());
    assert_eq!(rig.cluster.node_ready(MachineId(1)), None);
    rig.wait(seconds(2));
    assert_eq!(rig.node(1).body(), recording("k8sd/1.35/node.not-initialised.json"));
    assert_eq!(rig.k8sd(1, "GET", "/core/1.0/ready", "").status(), 200);

    assert_eq!(rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1"}"#).status(), 200, "a repeat is fine");
    assert_eq!(rig.join(1).status(), 200);
    assert_eq!(rig.cluster.node_ready(MachineId(1)), Some(NodeReady::True));
}

#[test]
fn a_control_plane_removes_itself_but_not_the_last() {
    for (version, track) in [("1.35.2", "1.35"), ("1.36.0", "1.36")] {
        let mut rig = Rig::cluster_of(2, version, "1001");
        assert_eq!(rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-0"}"#).status(), 200);
        rig.wait(seconds(2));
        assert_eq!(rig.node(0).status(), 503);
        let last = rig.k8sd(1, "POST", REMOVE, r#"{"name":"k8s-1","force":false,"timeout":60000000000}"#);
        assert_eq!(last.body(), recording(&format!("k8sd/{track}/remove.last.json")));
        assert_eq!(rig.cluster.node_ready(MachineId(1)), None, "the Node is gone all the same");
    }
}

#[test]
fn an_unreachable_member_goes_only_by_force() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.event(1, SnapEvent::ServicesStopped);
    let first = rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1"}"#);
    assert!(first.error().contains("/core/internal/hooks/pre-remove?target=k8s-1\": context deadline exceeded"));
    let again = rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1"}"#);
    assert_eq!(again.body(), recording("k8sd/1.35/remove.half-removed-again.json"));
    assert_eq!(rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1","force":true}"#).status(), 200);
    assert_eq!(rig.cluster.clusters()[0].members.len(), 2);
}

#[test]
fn a_removed_worker_is_not_told() {
    let mut rig = Rig::installed(2, "1.36.0", "2002");
    rig.k8sd(0, "POST", "/1.0/k8sd/cluster", super::BOOTSTRAP);
    let token = rig.token(0, r#"{"name":"k8s-1","worker":true}"#);
    let body = format!(r#"{{"name":"k8s-1","address":"10.0.0.12:6400","token":"{token}"}}"#);
    assert_eq!(rig.k8sd(1, "POST", "/1.0/k8sd/cluster/join", &body).status(), 200);
    rig.wait(seconds(2));
    let removed = rig.k8sd(0, "POST", REMOVE, r#"{"name":"k8s-1"}"#);
    assert_eq!(removed.body(), recording("k8sd/1.36/remove.worker.json"));
    assert_eq!(rig.node(1).json()["metadata"]["status"]["cluster-role"], "worker");
}

#[test]
fn what_needs_the_api_server_says_so() {
    let mut rig = Rig::cluster_of(1, "1.36.0", "2002");
    let refused = rig.k8sd(0, "POST", "/1.0/k8sd/cluster/tokens", r#"{"name":"k8s-0"}"#);
    assert_eq!(refused.body(), recording("k8sd/1.36/token.name-taken.json").replace("k8s-1", "k8s-0"));
    rig.event(0, SnapEvent::ServiceRestarted("kube-apiserver".to_owned()));
    let token = rig.k8sd(0, "POST", "/1.0/k8sd/cluster/tokens", r#"{"name":"k8s-8"}"#);
    assert_eq!(token.body(), recording("k8sd/1.36/token.no-api-server.json"));
    rig.wait(seconds(3));

    let mut rig = Rig::cluster_of(1, "1.35.2", "1001");
    rig.event(0, SnapEvent::ServiceRestarted("kube-apiserver".to_owned()));
    let removed = rig.k8sd(0, "POST", REMOVE, r#"{"name":"nobody"}"#);
    assert_eq!(removed.body(), recording("k8sd/1.35/remove.not-there.no-api-server.json"));
    let status = rig.k8sd(0, "GET", "/1.0/k8sd/cluster", "");
    assert_eq!(status.body(), recording("k8sd/1.35/cluster.no-api-server.json"));
    assert_eq!(rig.node(0).status(), 200);
}

#[test]
fn before_october_2025_an_unknown_name_is_not_part_of_the_cluster() {
    let mut rig = Rig::cluster_of(1, "1.31.3", "1001");
    let answer = rig.k8sd(0, "POST", REMOVE, r#"{"name":"worker-9","force":false}"#);
    assert_eq!(
        (answer.status(), answer.error().as_str()),
        (520, r#"node "worker-9" is not part of the cluster: nodes "worker-9" not found"#)
    );
}
