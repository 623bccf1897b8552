//! The whole charm, its release binary, through deployments and upgrades.

use crate::common::{Stage, unit};
use k8s_sim::engine::Fault;
use k8s_sim::wire::{MachineId, Request, Service};
use serde_json::json;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::test(flavor = "current_thread")]
async fn without_a_check_before_units_go_one_after_another_and_the_leader_last() -> Outcome {
    let mut stage = Stage::deployed(3).await;
    stage.refresh_to_new();
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.refreshed(), ["k8s/2", "k8s/1", "k8s/0"]);
    assert_eq!(stage.violations(), Vec::<String>::new());
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
    let history = &stage.application_bag("upgrade")["upgrade-history"];
    assert!(history.contains("\"from\":\"1.31.3\",\"to\":\"1.32.1\""), "{history}");
    assert!(history.contains("\"outcome\":\"upgraded\""), "{history}");
    Ok(())
}

#[tokio::test(flavor = "current_thread")]
async fn killed_between_bootstrap_and_flush_and_the_leader_elsewhere_there_is_one_cluster() {
    let mut stage = Stage::empty("");
    for _ in 0..3 {
        stage.rehearsal.engine.add_unit("k8s").unwrap();
    }
    let fault = Fault::KillAfterRequest("POST /1.0/k8sd/cluster".to_owned());
    stage.rehearsal.engine.faults.push((unit(0), fault));
    stage.until(10, "the bootstrap's hook is killed", |stage| stage.rehearsal.engine.faults.is_empty()).await;
    stage.rehearsal.engine.model.move_leader(&unit(2));
    stage.settle_at("1.31.3").await;
    let clusters = stage.rehearsal.engine.fleet.cluster.clusters();
    assert_eq!(clusters.len(), 1, "{clusters:?}");
    assert_eq!(clusters[0].members.len(), 3, "{clusters:?}");
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn two_units_refreshed_by_hand_at_once_lose_the_quorum_and_it_is_seen() {
    let mut stage = Stage::deployed(3).await;
    let body = br#"{"action": "refresh", "revision": "2002"}"#.to_vec();
    for machine in [MachineId(1), MachineId(2)] {
        let request = Request {
            method: "POST".to_owned(),
            path: "/v2/snaps/k8s".to_owned(),
            content_type: None,
            headers: Vec::new(),
            body: body.clone(),
            client_certificate: false,
        };
        let now = stage.rehearsal.engine.now;
        let _ = stage.rehearsal.engine.fleet.handle(machine, Service::Snapd, now, &request);
    }
    stage.pass(30).await;
    let violations = stage.violations().join("\n");
    assert!(violations.contains("I1: k8s/1 and k8s/2 are refreshed at once"), "{violations}");
    assert!(violations.contains("I1: k8s/1 is refreshed without the token"), "{violations}");
    assert!(violations.contains("I2: cluster-1 has no quorum while a unit is refreshed"), "{violations}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_minor_that_is_left_out_stands_still_and_is_seen_when_it_is_taken_by_hand() {
    let mut stage = Stage::empty("--from 1.30.1 --to 1.32.1");
    stage.rehearsal.deploy(1, &mut k8s_sim::rehearsal::Show::nothing()).await.unwrap();
    stage.refresh_to_new();
    stage.until(10, "the checks stand against it", |stage| stage.status(0).0 == "blocked").await;
    stage.pass(600).await;
    assert_eq!((stage.refreshed(), stage.violations()), (Vec::new(), Vec::new()));
    let request = Request {
        method: "POST".to_owned(),
        path: "/v2/snaps/k8s".to_owned(),
        content_type: None,
        headers: Vec::new(),
        body: br#"{"action": "refresh", "revision": "2002"}"#.to_vec(),
        client_certificate: false,
    };
    let now = stage.rehearsal.engine.now;
    let _ = stage.rehearsal.engine.fleet.handle(MachineId(0), Service::Snapd, now, &request);
    stage.pass(5).await;
    let violations = stage.violations().join("\n");
    assert!(violations.contains("I2: k8s/0 goes from 1.30.1 to 1.32.1 without the admin's word"), "{violations}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_refresh_that_fails_twice_halts_and_the_admins_word_goes_on() {
    let mut stage = Stage::deployed(3).await;
    let line = "run hook \"post-refresh\": ERROR: no space left";
    for _ in 0..2 {
        let machine = stage.rehearsal.engine.fleet.machines.get_mut(&MachineId(2)).unwrap();
        machine.snapd.fail_next("Run post-refresh hook", line);
    }
    stage.refresh_to_new();
    stage.until(20, "k8s/2 fails", |stage| stage.status(2).0 == "blocked").await;
    let text = "Upgrade failed: run hook \"post-refresh\": ERROR: no space left. Retry: juju run k8s/2 resume-upgrade";
    assert_eq!(stage.message(2), text);
    stage.pass(30).await;
    assert_eq!(stage.message(1), "Upgrade halted: k8s/2 failed");
    assert_eq!(stage.refreshed(), ["k8s/2", "k8s/2"], "nobody else begins");
    let answer = stage.action(0, "upgrade-status", json!({"format": "text"})).await;
    assert!(answer.results["status"].starts_with("The upgrade is halted: k8s/2 failed"), "{answer:?}");
    let answer = stage.action(2, "resume-upgrade", json!({"skip": "", "force": false, "skip-unit": ""})).await;
    assert_eq!(answer.failed, None, "{answer:?}");
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.violations(), Vec::<String>::new());
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn one_failure_is_tried_again_without_a_word() {
    let mut stage = Stage::deployed(3).await;
    let machine = stage.rehearsal.engine.fleet.machines.get_mut(&MachineId(2)).unwrap();
    machine.snapd.fail_next("Download snap", "connection reset");
    stage.refresh_to_new();
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.refreshed(), ["k8s/2", "k8s/2", "k8s/1", "k8s/0"]);
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn in_the_middle_the_way_back_is_free() {
    let mut stage = Stage::deployed(3).await;
    stage.refresh_to_new();
    stage.until(20, "k8s/1 is at work", |stage| stage.refreshed().len() == 2).await;
    stage.refresh_to_old();
    stage.settle_at("1.31.3").await;
    let history = &stage.application_bag("upgrade")["upgrade-history"];
    assert!(history.contains("\"outcome\":\"rolled back\""), "{history}");
    assert_eq!(stage.violations(), Vec::<String>::new());
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn at_the_end_the_way_back_is_a_downgrade_that_the_admin_has_to_force() {
    let mut stage = Stage::deployed(3).await;
    stage.refresh_to_new();
    stage.settle_at("1.32.1").await;
    stage.refresh_to_old();
    stage.until(10, "the leader's checks stand against it", |stage| stage.status(0).0 == "blocked").await;
    let text = "Not ready to upgrade: versions. Go on anyway: juju run k8s/0 pre-upgrade-check skip=versions";
    assert_eq!(stage.message(0), text);
    let refused = stage.action(0, "pre-upgrade-check", json!({"skip": "", "force": false})).await;
    assert!(refused.failed.unwrap().contains("skip=versions"));
    let forced = stage.action(0, "pre-upgrade-check", json!({"skip": "versions", "force": false})).await;
    assert_eq!(forced.failed, None);
    stage.settle_at("1.31.3").await;
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn paused_after_the_first_unit_it_goes_on_by_the_admins_word() {
    let mut stage = Stage::deployed(3).await;
    stage.rehearsal.engine.model.configure("k8s", "pause-after-unit-refresh", json!("first"));
    stage.refresh_to_new();
    stage.until(20, "it pauses", |stage| stage.status(1).0 == "blocked").await;
    assert_eq!(stage.message(1), "Upgrade paused after k8s/2. Check it, then: juju run k8s/1 resume-upgrade");
    stage.pass(600).await;
    assert_eq!(stage.refreshed(), ["k8s/2"]);
    let answer = stage.action(1, "resume-upgrade", json!({"skip": "", "force": false, "skip-unit": ""})).await;
    assert_eq!(answer.failed, None, "{answer:?}");
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn a_charm_only_refresh_restarts_nothing() {
    let mut stage = Stage::deployed(3).await;
    let before = stage.rehearsal.engine.ran.len();
    stage.refresh_to_old();
    stage.pass(400).await;
    let did: Vec<String> = stage
        .rehearsal
        .engine
        .ran
        .iter()
        .skip(before)
        .flat_map(|ran| ran.did.iter().chain(&ran.status))
        .cloned()
        .collect();
    assert_eq!(did, Vec::<String>::new());
    let hooks: Vec<&str> = stage.rehearsal.engine.ran.iter().skip(before).map(|ran| ran.hook.as_str()).collect();
    assert!(hooks.contains(&"upgrade-charm"), "{hooks:?}");
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn a_unit_added_during_an_upgrade_joins_when_it_is_over() {
    let mut stage = Stage::deployed(3).await;
    stage.refresh_to_new();
    stage.until(10, "k8s/2 is at work", |stage| !stage.refreshed().is_empty()).await;
    stage.rehearsal.engine.add_unit("k8s").unwrap();
    stage.until(10, "k8s/3 waits", |stage| stage.message(3) == "Joins when the upgrade to 1.32.1 is over").await;
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.rehearsal.engine.fleet.cluster.clusters()[0].members.len(), 4);
    assert_eq!(stage.violations(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn a_unit_removed_leaves_the_cluster_first() {
    let mut stage = Stage::deployed(3).await;
    stage.rehearsal.engine.model.remove_unit(&unit(2));
    stage.rehearsal.engine.notice_all();
    stage.until(5, "k8s/2 says so", |stage| stage.message(2).starts_with("Being removed")).await;
    stage.until(20, "k8s/2 is gone", |stage| !stage.rehearsal.engine.model.units.contains_key(&unit(2))).await;
    stage.settle_at("1.31.3").await;
    stage.pass(400).await;
    assert_eq!(stage.rehearsal.engine.fleet.cluster.clusters()[0].members.len(), 2);
    assert!(!stage.application_bag("cluster").contains_key("k8s/2"), "{:?}", stage.application_bag("cluster"));
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn actions_answer_where_they_can_and_say_where_they_cannot() {
    let mut stage = Stage::deployed(3).await;
    let kubeconfig = stage.action(1, "get-kubeconfig", json!({})).await;
    assert!(kubeconfig.results["kubeconfig"].contains("client-certificate-data"), "{:?}", kubeconfig.failed);
    let elsewhere = stage.action(1, "pre-upgrade-check", json!({"skip": "", "force": false})).await;
    assert_eq!(elsewhere.failed.unwrap(), "The leader checks: juju run k8s/leader pre-upgrade-check");
    let wrong = stage.action(0, "pre-upgrade-check", json!({"skip": "nodes,weather", "force": false})).await;
    assert!(wrong.failed.unwrap().contains("no check `weather`"));
    let nothing = stage.action(1, "resume-upgrade", json!({"skip": "", "force": false, "skip-unit": ""})).await;
    assert!(nothing.failed.unwrap().starts_with("Nothing to resume"));
    let status = stage.action(2, "upgrade-status", json!({"format": "json"})).await;
    let status: serde_json::Value = serde_json::from_str(&status.results["status"]).unwrap();
    assert_eq!(status["summary"], "Up to date: every unit runs 1.31.3");
    let check = stage.action(0, "pre-upgrade-check", json!({"skip": "", "force": false})).await;
    assert_eq!(check.failed, None, "{check:?}");
    assert_eq!(check.results["result"], "Ready to upgrade. Next: juju refresh k8s");
    assert!(check.results["checks"].contains("- id: quorum\n  verdict: pass"), "{}", check.results["checks"]);
    assert_eq!(check.results["plan"], "k8s/2: from 1.31.3\nk8s/1: from 1.31.3\nk8s/0: from 1.31.3");
}
