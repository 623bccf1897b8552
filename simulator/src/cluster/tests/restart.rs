//! What a client sees of a machine whose snap is stopped, refreshed, started: the order of the recorded timelines.

use std::time::Duration;

use super::{Rig, recording, seconds, snap};
use crate::cluster::{NodeFault, NodeReady};
use crate::wire::{MachineId, Service, SnapEvent};

const ZERO: MachineId = MachineId(0);
const TWO: MachineId = MachineId(2);

/// What the recorded timelines look at, on machine 2.
fn view(rig: &mut Rig) -> String {
    if !rig.cluster.is_open(TWO, Service::K8sd) {
        return "no socket".to_owned();
    }
    let short = |outcome: super::Outcome| match outcome.status() {
        200 => "200".to_owned(),
        _ => outcome.error(),
    };
    let ready = short(rig.k8sd(2, "GET", "/core/1.0/ready", ""));
    let server = rig.k8sd(2, "GET", "/core/1.0", "").json()["metadata"]["ready"].clone();
    let node = short(rig.node(2));
    let cluster = short(rig.k8sd(2, "GET", "/1.0/k8sd/cluster", ""));
    let cluster = cluster.rsplit(": ").next().unwrap_or_default().to_owned();
    format!("ready {ready} | server {server} | node {node} | cluster {cluster} | lock {}", rig.has_lock_file(2))
}

/// Each change of that view, up to an end.
fn changes(rig: &mut Rig, duration: Duration) -> Vec<String> {
    let end = rig.now + duration;
    let mut seen = vec![view(rig)];
    while rig.now < end {
        rig.wait(Duration::from_millis(100));
        let now = view(rig);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    seen
}

#[test]
fn a_refresh_shows_the_states_of_the_recorded_one_in_their_order() {
    // timelines/upgrade.first.1.35-to-1.36
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    assert_eq!(view(&mut rig), "ready 200 | server true | node 200 | cluster 200 | lock false");
    rig.event(2, SnapEvent::ServicesStopped);
    rig.event(2, SnapEvent::PostRefresh(snap("1.36.0", "2002")));
    rig.event(2, SnapEvent::ServicesStarted(snap("1.36.0", "2002")));
    assert_eq!(
        changes(&mut rig, seconds(10)),
        [
            "no socket",
            "ready Daemon is not ready yet | server false | node Database is still starting | cluster daemon not yet initialized | lock true",
            "ready Daemon is not ready yet | server true | node 200 | cluster connection refused | lock true",
            "ready Daemon is not ready yet | server true | node 200 | cluster 200 | lock true",
            "ready 200 | server true | node 200 | cluster 200 | lock true",
            "ready 200 | server true | node 200 | cluster 200 | lock false",
        ]
    );
}

#[test]
fn texts_of_a_starting_k8sd_are_the_recorded_ones() {
    let mut rig = Rig::cluster_of(3, "1.36.0", "2002");
    rig.event(2, SnapEvent::ServiceRestarted("k8s.k8sd".to_owned()));
    assert!(!rig.cluster.is_open(TWO, Service::K8sd));
    assert!(rig.cluster.is_open(TWO, Service::Kubernetes));
    rig.wait(Duration::from_millis(600));
    assert_eq!(rig.node(2).body(), recording("k8sd/1.36/node.starting.json"));
    assert_eq!(rig.k8sd(2, "GET", "/1.0/k8sd/cluster", "").body(), recording("k8sd/1.36/cluster.starting.json"));
    assert_eq!(rig.k8sd(2, "GET", "/core/1.0/ready", "").body(), recording("k8sd/1.36/ready.not-yet.json"));
    rig.wait(seconds(3));
    assert_eq!(view(&mut rig), "ready 200 | server true | node 200 | cluster 200 | lock false");
}

#[test]
fn a_node_is_unknown_forty_seconds_after_its_kubelet_went_silent() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.event(2, SnapEvent::ServicesStopped);
    rig.wait(seconds(39));
    assert_eq!(rig.cluster.node_ready(TWO), Some(NodeReady::True));
    rig.wait(seconds(1));
    assert_eq!(rig.cluster.node_ready(TWO), Some(NodeReady::Unknown));
    let node = rig.kubernetes(0, "/api/v1/nodes/k8s-2").json();
    let ready = node["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&ready["status"], &ready["reason"]), (&"Unknown".into(), &"NodeStatusUnknown".into()));
    rig.event(2, SnapEvent::ServicesStarted(snap("1.35.2", "1001")));
    rig.wait(seconds(6));
    assert_eq!(rig.cluster.node_ready(TWO), Some(NodeReady::True));
}

#[test]
fn a_short_stop_is_not_seen_by_others_but_in_the_version() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(5));
    assert_eq!(
        (rig.cluster.node_ready(TWO), rig.cluster.kubelet_version(TWO)),
        (Some(NodeReady::True), Some("1.35.2"))
    );
    rig.wait(seconds(1));
    assert_eq!(
        (rig.cluster.node_ready(TWO), rig.cluster.kubelet_version(TWO)),
        (Some(NodeReady::True), Some("1.36.0"))
    );
    rig.wait(seconds(60));
    assert_eq!(rig.cluster.node_ready(TWO), Some(NodeReady::True));
}

#[test]
fn one_of_three_keeps_the_quorum_two_lose_it_everywhere() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    let cluster = rig.cluster.cluster_of(ZERO).unwrap();
    rig.event(2, SnapEvent::ServicesStopped);
    assert!(rig.cluster.has_quorum(cluster));
    assert_eq!(rig.kubernetes(0, "/readyz").body(), "ok");
    rig.wait(seconds(5));
    let lost = rig.now;
    rig.event(1, SnapEvent::ServicesStopped);
    rig.wait(seconds(1));
    assert_eq!(rig.cluster.quorum_lost_since(cluster), Some(lost));
    let readyz = rig.kubernetes(0, "/readyz");
    assert_eq!(readyz.status(), 500);
    assert!(readyz.body().contains("[-]etcd failed: reason withheld\n"), "{}", readyz.body());
    assert_eq!(rig.kubernetes(0, "/api/v1/nodes").status(), 500);
    assert_eq!(rig.kubernetes(0, "/livez").status(), 200);
    assert_eq!(rig.k8sd(0, "GET", "/1.0/k8sd/cluster", "").status(), 500);

    rig.event(1, SnapEvent::ServicesStarted(snap("1.35.2", "1001")));
    rig.wait(seconds(3));
    assert_eq!(rig.cluster.quorum_lost_since(cluster), None);
    assert_eq!(rig.kubernetes(0, "/readyz").body(), "ok");
}

#[test]
fn of_two_members_both_are_needed() {
    let mut rig = Rig::cluster_of(2, "1.32.1", "2002");
    let cluster = rig.cluster.cluster_of(ZERO).unwrap();
    rig.event(1, SnapEvent::ServicesStopped);
    assert!(!rig.cluster.has_quorum(cluster));
}

#[test]
fn a_node_fault_ends_by_itself_or_never() {
    let mut rig = Rig::cluster_of(1, "1.32.1", "2002");
    rig.cluster.set_node_fault(ZERO, rig.now, NodeFault::NotReadyFor(seconds(20)));
    assert_eq!(rig.cluster.node_ready(ZERO), Some(NodeReady::False));
    rig.wait(seconds(20));
    assert_eq!(rig.cluster.node_ready(ZERO), Some(NodeReady::True));
    rig.cluster.set_node_fault(ZERO, rig.now, NodeFault::NotReady);
    rig.refresh(0, "1.32.2", "2003");
    rig.wait(seconds(100));
    assert_eq!(rig.cluster.node_ready(ZERO), Some(NodeReady::False));
    rig.cluster.set_node_fault(ZERO, rig.now, NodeFault::None);
    assert_eq!(rig.cluster.node_ready(ZERO), Some(NodeReady::True));
}

#[test]
fn a_quiet_cluster_has_nothing_to_wait_for() {
    let mut rig = Rig::cluster_of(3, "1.31.3", "1001");
    rig.wait(seconds(60));
    assert_eq!(rig.cluster.next_event(), None);
    rig.event(2, SnapEvent::ServicesStopped);
    assert_eq!(rig.cluster.next_event(), Some(rig.now + seconds(40)));
}

#[test]
fn a_removed_snap_takes_its_files_along_but_its_member_stays() {
    let mut rig = Rig::cluster_of(3, "1.32.1", "2002");
    rig.event(2, SnapEvent::Removed);
    rig.wait(seconds(41));
    assert!(!rig.root(2).join("etc/kubernetes/admin.conf").exists());
    assert_eq!(rig.cluster.node_ready(TWO), Some(NodeReady::Unknown));
    assert_eq!(rig.cluster.clusters()[0].members.len(), 3);
    rig.cluster.remove_machine(TWO);
    assert_eq!(rig.cluster.clusters()[0].members.len(), 3);
    rig.event(1, SnapEvent::ServicesStopped);
    assert!(!rig.cluster.has_quorum(rig.cluster.cluster_of(ZERO).unwrap()));
}
