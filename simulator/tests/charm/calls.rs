//! Which hook tools each event calls, by name and exactly: a hook's cost is the number of its calls.

use crate::common::{Stage, unit};
use k8s_sim::engine::Ran;

/// What every pass asks: who leads, what exists, the options, both relations, and four bags.
const PASS: [&str; 8] = [
    "is-leader",
    "config-get",
    "relation-ids",
    "relation-ids",
    "relation-get",
    "relation-get",
    "relation-get",
    "goal-state",
];

fn calls(pass: &[&str], more: &[&str]) -> Vec<String> {
    pass.iter().chain(more).map(|call| (*call).to_owned()).collect()
}

async fn last(stage: &mut Stage, number: u32, event: &str) -> Ran {
    stage.rehearsal.engine.repeat(&unit(number), event, 1).await.unwrap().pop().unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn a_settled_units_events_ask_for_this_and_write_nothing() {
    let mut stage = Stage::deployed(3).await;
    let peers = ["relation-get", "relation-get"];
    // The leader knows every unit's bag; now and then a unit reads its own of `cluster`, and whether there is another
    // resource.
    let leader = calls(&PASS, &["resource-get", "relation-get"]);
    let leader = [leader, calls(&peers, &["status-get"])].concat();
    assert_eq!(last(&mut stage, 0, "update-status").await.calls, leader);
    let other = calls(&PASS, &["resource-get", "relation-get", "status-get"]);
    assert_eq!(last(&mut stage, 1, "update-status").await.calls, other);

    let leader = [calls(&PASS, &["resource-get"]), calls(&peers, &["status-get"])].concat();
    assert_eq!(last(&mut stage, 0, "config-changed").await.calls, leader);
    assert_eq!(last(&mut stage, 1, "config-changed").await.calls, calls(&PASS, &["resource-get", "status-get"]));

    // The hook's own relation needs no asking.
    let pass: Vec<&str> = PASS.iter().copied().enumerate().filter(|(n, _)| *n != 2).map(|(_, call)| call).collect();
    let leader = [calls(&pass, &peers), calls(&["status-get"], &[])].concat();
    assert_eq!(last(&mut stage, 0, "upgrade-relation-changed").await.calls, leader);
    assert_eq!(last(&mut stage, 1, "upgrade-relation-changed").await.calls, calls(&pass, &["status-get"]));

    assert_eq!(last(&mut stage, 1, "cluster-relation-changed").await.calls, calls(&pass, &["status-get"]));

    for event in ["start", "upgrade-charm"] {
        let fetches = calls(&PASS, &["resource-get", "status-get"]);
        assert_eq!(last(&mut stage, 1, event).await.calls, fetches, "{event}");
    }
    let leader = [calls(&PASS, &peers), calls(&["status-get"], &[])].concat();
    assert_eq!(last(&mut stage, 0, "leader-elected").await.calls, leader);
    // Endpoints that this charm does nothing for: one line in the log.
    assert_eq!(last(&mut stage, 1, "cos-tokens-relation-changed").await.calls, ["juju-log"]);

    let settled = ["GET /v2/changes?select=in-progress&for=k8s", "GET /v2/snaps/k8s", "GET /core/1.0/ready"];
    assert_eq!(last(&mut stage, 0, "upgrade-relation-changed").await.requests, settled);
}

/// The calls of a unit's hook of that name: its first, or its last.
fn of(stage: &Stage, number: u32, hook: &str, first: bool) -> Vec<String> {
    let mut ran = stage.rehearsal.engine.ran.iter().filter(|ran| ran.unit == unit(number) && ran.hook == hook);
    let found = if first { ran.next() } else { ran.next_back() };
    found.unwrap().calls.clone()
}

#[tokio::test(flavor = "current_thread")]
async fn the_hooks_of_a_units_beginning_and_of_its_end_ask_for_this() {
    let mut stage = Stage::deployed(3).await;
    let install = ["is-leader", "config-get", "relation-ids", "relation-ids", "goal-state", "resource-get"];
    assert_eq!(of(&stage, 1, "install", true), calls(&install, &["status-get", "status-set", "juju-log", "juju-log"]));
    // In a hook of a relation its id needs no asking.
    let pass =
        ["is-leader", "config-get", "relation-ids", "relation-get", "relation-get", "relation-get", "goal-state"];
    // Its own bag of `cluster` too; what it writes into both first, and what it shows.
    let created = ["relation-get", "relation-set", "relation-set", "status-get", "status-set", "juju-log"];
    let peers = ["cluster-relation-created", "upgrade-relation-created"];
    let first = stage.rehearsal.engine.ran.iter().find(|ran| ran.unit == unit(1) && peers.contains(&ran.hook.as_str()));
    assert_eq!(first.unwrap().calls, calls(&pass, &created));
    for event in [peers[0], peers[1], "cluster-relation-joined", "upgrade-relation-joined"] {
        assert_eq!(last(&mut stage, 1, event).await.calls, calls(&pass, &["status-get"]), "{event}");
    }
    assert_eq!(last(&mut stage, 1, "secret-changed").await.calls, calls(&PASS, &["status-get"]));
    stage.rehearsal.engine.model.remove_unit(&unit(2));
    stage.rehearsal.engine.notice_all();
    stage.until(20, "k8s/2 is gone", |stage| !stage.rehearsal.engine.model.units.contains_key(&unit(2))).await;
    assert_eq!(of(&stage, 2, "upgrade-relation-departed", false), calls(&pass, &["status-get"]));
    let says = ["status-get", "status-set", "juju-log"];
    assert_eq!(of(&stage, 2, "stop", false), calls(&PASS, &says));
    assert_eq!(of(&stage, 2, "remove", false), calls(&says, &[]));
}

#[tokio::test(flavor = "current_thread")]
async fn actions_ask_for_this() {
    let mut stage = Stage::deployed(3).await;
    let looks = calls(&["action-get"], &PASS);
    let peers = ["relation-get", "relation-get"];
    for (number, action, expected) in [
        (0, "upgrade-status", [looks.clone(), calls(&peers, &["action-set"])].concat()),
        (1, "upgrade-status", [looks.clone(), calls(&peers, &["action-set"])].concat()),
        (1, "resume-upgrade", calls(&["action-get"], &[&PASS[..], &["action-fail"]].concat())),
        (1, "pre-upgrade-check", calls(&["action-get"], &[&PASS[..], &["action-fail"]].concat())),
        (0, "pre-upgrade-check", [looks, calls(&peers, &["action-set", "relation-set", "juju-log"])].concat()),
        (1, "get-kubeconfig", calls(&["action-get", "unit-get", "action-set"], &[])),
    ] {
        stage.action(number, action, serde_json::json!({})).await;
        assert_eq!(of(&stage, number, action, false), expected, "{action} on {number}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_wake_up_that_finds_its_change_under_way_asks_for_next_to_nothing() {
    let mut stage = Stage::deployed(1).await;
    stage.refresh_to_new();
    let follows = |ran: &Ran| ran.wake_up && ran.requests.len() == 1;
    stage.until(10, "a change is followed", |stage| stage.rehearsal.engine.ran.last().is_some_and(follows)).await;
    let ran = stage.rehearsal.engine.ran.last().unwrap().clone();
    assert_eq!(ran.calls, ["relation-ids", "relation-get", "status-get", "status-set"]);
    assert!(ran.requests[0].starts_with("GET /v2/changes/"), "{:?}", ran.requests);
}
