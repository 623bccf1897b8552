//! The life of a cluster: upgrades one by one, back in the middle, back after the end, and k8sd's record of it all.

use super::{Outcome, Rig, request, seconds};
use crate::cluster::UpgradeView;
use crate::wire::{MachineId, Service, SnapEvent};

const TO_1_36: &str = "cluster-upgrade-to-k8s-1.36.0-rev-2002";
const TO_1_35: &str = "cluster-upgrade-to-k8s-1.35.2-rev-1001";

fn upgrades(rig: &Rig) -> Vec<UpgradeView> {
    rig.cluster.upgrades(rig.cluster.clusters()[0].id)
}

/// Name, phase, nodes.
fn records(rig: &Rig) -> Vec<(String, &'static str, Vec<String>)> {
    upgrades(rig).into_iter().map(|upgrade| (upgrade.name, upgrade.phase, upgrade.upgraded_nodes)).collect()
}

fn record(name: &str, phase: &'static str, nodes: &[&str]) -> (String, &'static str, Vec<String>) {
    (name.to_owned(), phase, nodes.iter().map(|node| (*node).to_owned()).collect())
}

fn annotation(rig: &mut Rig, id: u32) -> String {
    let node = rig.kubernetes(0, &format!("/api/v1/nodes/k8s-{id}")).json();
    node["metadata"]["annotations"]["k8sd.io/version"].as_str().unwrap_or_default().to_owned()
}

fn delete_upgrade(rig: &mut Rig, name: &str) -> Outcome {
    let mut request = request("DELETE", &format!("/apis/k8sd.io/v1alpha/upgrades/{name}"), "");
    request.client_certificate = true;
    let reply = rig.ask(0, Service::Kubernetes, &request);
    rig.follow(reply)
}

fn upgrade_all(rig: &mut Rig, version: &str, revision: &str) {
    for id in [2, 1, 0] {
        rig.refresh(id, version, revision);
        rig.wait(seconds(20));
    }
}

#[test]
fn the_record_goes_from_the_first_node_to_the_features() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    assert_eq!(records(&rig), []);
    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(6));
    assert_eq!((records(&rig), rig.has_lock_file(2)), (vec![], true));
    rig.wait(seconds(1));
    assert_eq!(records(&rig), [record(TO_1_36, "NodeUpgrade", &["k8s-2"])]);
    assert!(!rig.has_lock_file(2));
    assert_eq!(annotation(&mut rig, 2), r#"{"revision":"2002","kubernetesVersion":"1.36.0"}"#);
    assert_eq!(annotation(&mut rig, 1), r#"{"revision":"1001","kubernetesVersion":"1.35.2"}"#);

    rig.refresh(1, "1.36.0", "2002");
    rig.wait(seconds(20));
    assert_eq!(records(&rig), [record(TO_1_36, "NodeUpgrade", &["k8s-2", "k8s-1"])]);

    rig.refresh(0, "1.36.0", "2002");
    rig.wait(seconds(7));
    let all = ["k8s-2", "k8s-1", "k8s-0"];
    assert_eq!(records(&rig), [record(TO_1_36, "NodeUpgrade", &all)]);
    rig.wait(seconds(2));
    assert_eq!(records(&rig), [record(TO_1_36, "FeatureUpgrade", &all)]);
    rig.wait(seconds(2));
    assert_eq!(records(&rig), [record(TO_1_36, "Completed", &all)]);
    assert_eq!(upgrades(&rig)[0].strategy, "InPlace");
}

#[test]
fn a_snap_of_1_31_knows_no_records_until_the_first_node_is_newer() {
    let mut rig = Rig::cluster_of(3, "1.31.3", "1001");
    assert_eq!(rig.kubernetes(0, "/apis/k8sd.io/v1alpha/upgrades").body(), "404 page not found\n");
    assert_eq!(annotation(&mut rig, 0), "");
    upgrade_all(&mut rig, "1.32.1", "2002");
    assert_eq!(
        records(&rig),
        [record("cluster-upgrade-to-k8s-1.32.1-rev-2002", "Completed", &["k8s-2", "k8s-1", "k8s-0"])]
    );
    let cluster = rig.k8sd(0, "GET", "/1.0/k8sd/cluster", "").json();
    assert_eq!(cluster["metadata"]["status"]["datastore"]["type"], "k8s-dqlite");
}

#[test]
fn features_wait_for_the_workers() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    let address = ([127, 0, 8, 9], 6443).into();
    let root = rig.root(3);
    rig.cluster.add_machine(MachineId(3), &root, "worker-0", address);
    rig.event(3, SnapEvent::Installed(super::snap("1.35.2", "1001")));
    rig.wait(seconds(2));
    let token = rig.token(0, r#"{"name":"worker-0","worker":true}"#);
    let body = format!(r#"{{"name":"worker-0","address":"10.0.0.21:6400","token":"{token}","config":""}}"#);
    assert_eq!(rig.k8sd(3, "POST", "/1.0/k8sd/cluster/join", &body).status(), 200);
    upgrade_all(&mut rig, "1.36.0", "2002");
    rig.wait(seconds(60));
    assert_eq!(upgrades(&rig)[0].phase, "NodeUpgrade");
    rig.refresh(3, "1.36.0", "2002");
    rig.wait(seconds(20));
    assert_eq!(upgrades(&rig)[0].phase, "Completed");
    assert_eq!(upgrades(&rig)[0].upgraded_nodes.last().unwrap(), "worker-0");
    assert!(!rig.has_lock_file(3));
}

#[test]
fn a_rollback_in_the_middle_leaves_the_record_stuck_and_joins_refused() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(20));
    rig.refresh(2, "1.35.2", "1001");
    rig.wait(seconds(60));
    let stuck = [record(TO_1_36, "NodeUpgrade", &["k8s-2"])];
    assert_eq!(records(&rig), stuck);
    assert_eq!(annotation(&mut rig, 2), r#"{"revision":"1001","kubernetesVersion":"1.35.2"}"#);

    let (address, root) = (([127, 0, 8, 9], 6443).into(), rig.root(3));
    rig.cluster.add_machine(MachineId(3), &root, "k8s-3", address);
    rig.event(3, SnapEvent::Installed(super::snap("1.35.2", "1001")));
    rig.wait(seconds(2));
    let begun = rig.now;
    let refused = rig.join(3);
    assert!(refused.error().ends_with("can not join a new node while an in-place upgrade is in progress"));
    assert!(rig.now >= begun + seconds(44));
    rig.wait(seconds(2));

    assert_eq!(delete_upgrade(&mut rig, TO_1_36).status(), 200);
    assert_eq!(rig.join(3).status(), 200);
}

#[test]
fn a_stuck_record_takes_the_next_upgrade_for_its_own() {
    let mut rig = Rig::cluster_of(2, "1.35.2", "1001");
    rig.refresh(1, "1.36.0", "2002");
    rig.wait(seconds(20));
    rig.refresh(1, "1.35.2", "1001");
    rig.wait(seconds(20));
    rig.refresh(0, "1.36.1", "2003");
    rig.wait(seconds(20));
    assert_eq!(records(&rig)[0].0, TO_1_36);
    assert_eq!(records(&rig)[0].2, ["k8s-1", "k8s-0"]);
}

#[test]
fn up_back_and_up_again_breaks_k8sd_until_the_record_is_deleted_and_k8sd_restarted() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    upgrade_all(&mut rig, "1.36.0", "2002");
    upgrade_all(&mut rig, "1.35.2", "1001");
    let names: Vec<_> = records(&rig).into_iter().map(|(name, phase, _)| (name, phase)).collect();
    assert_eq!(names, [(TO_1_35.to_owned(), "Completed"), (TO_1_36.to_owned(), "Completed")]);

    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(60));
    assert!(rig.has_lock_file(2));
    assert_eq!(annotation(&mut rig, 2), r#"{"revision":"1001","kubernetesVersion":"1.35.2"}"#);
    assert_eq!(rig.k8sd(2, "GET", "/core/1.0/ready", "").status(), 200);
    rig.event(2, SnapEvent::ServiceRestarted("k8sd".to_owned()));
    rig.wait(seconds(20));
    assert!(rig.has_lock_file(2), "a restart alone doesn't help");
    assert_eq!(delete_upgrade(&mut rig, TO_1_36).status(), 200);
    rig.wait(seconds(60));
    assert!(rig.has_lock_file(2), "nor does the record's deletion alone");
    rig.event(2, SnapEvent::ServiceRestarted("k8sd".to_owned()));
    rig.wait(seconds(7));
    assert!(!rig.has_lock_file(2));
    assert_eq!(records(&rig)[1], record(TO_1_36, "NodeUpgrade", &["k8s-2"]));
}

#[test]
fn a_failed_step_after_a_refresh_is_taken_again_at_the_next_start() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.cluster.fail_next_post_refresh(MachineId(2), "API server timed out");
    rig.refresh(2, "1.36.0", "2002");
    rig.wait(seconds(60));
    assert!(rig.has_lock_file(2));
    rig.event(2, SnapEvent::ServiceRestarted("k8sd".to_owned()));
    rig.wait(seconds(10));
    assert!(!rig.has_lock_file(2));
}

#[test]
fn features_report_the_new_version_only_when_the_upgrade_is_completed() {
    let mut rig = Rig::cluster_of(3, "1.35.2", "1001");
    rig.k8sd(0, "PUT", "/1.0/k8sd/cluster/config", r#"{"config":{"network":{"enabled":true},"dns":{"enabled":true}}}"#);
    rig.wait(seconds(6));
    let feature = |rig: &mut Rig, name: &str| {
        let status = rig.k8sd(0, "GET", "/1.0/k8sd/cluster", "").json()["metadata"]["status"][name].clone();
        (status["message"].as_str().unwrap().to_owned(), status["version"].as_str().unwrap().to_owned())
    };
    assert_eq!(feature(&mut rig, "network"), ("enabled".to_owned(), "1.18.4-ck0".to_owned()));
    assert_eq!(feature(&mut rig, "dns").0, "enabled at 10.152.183.10");
    for id in [2, 1] {
        rig.refresh(id, "1.36.0", "2002");
        rig.wait(seconds(20));
    }
    assert_eq!(feature(&mut rig, "network").1, "1.18.4-ck0");
    rig.refresh(0, "1.36.0", "2002");
    rig.wait(seconds(20));
    assert_eq!(feature(&mut rig, "network").1, "1.19.4-ck0");
    let cluster = rig.cluster.clusters()[0].id;
    rig.cluster.set_feature_failure(
        cluster,
        crate::cluster::Feature::Dns,
        Some("Failed to deploy CoreDNS, the error was: x"),
    );
    assert!(feature(&mut rig, "dns").0.starts_with("Failed to deploy"));
}

#[test]
fn the_same_seed_gives_the_same_tokens() {
    let token = || Rig::cluster_of(1, "1.35.2", "1001").token(0, r#"{"name":"k8s-1"}"#);
    assert_eq!(token(), token());
}
