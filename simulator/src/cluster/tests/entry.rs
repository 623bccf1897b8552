//! Bootstraps and joins: how they look meanwhile, how they fail, what they leave.

use super::{BOOTSTRAP, Outcome, Rig, join_body, recording, request, seconds};
use crate::cluster::NodeReady;
use crate::time::SimTime;
use crate::wire::{MachineId, Reply, Service, SnapEvent};

const CLUSTER: &str = "/1.0/k8sd/cluster";
const JOIN: &str = "/1.0/k8sd/cluster/join";

fn bootstrap(rig: &mut Rig, body: &str) -> Outcome {
    rig.k8sd(0, "POST", CLUSTER, body)
}

/// Begins a call and leaves it to itself.
fn begin(rig: &mut Rig, id: u32, path: &str, body: &str) -> (SimTime, u64) {
    match rig.ask(id, Service::K8sd, &request("POST", path, body)) {
        Reply::Wait { until, ticket } => (until, ticket),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bootstrap_looks_done_before_it_is() {
    let mut rig = Rig::installed(1, "1.35.2", "1001");
    let begun = rig.now;
    let (until, ticket) = begin(&mut rig, 0, CLUSTER, BOOTSTRAP);
    assert_eq!(until, begun + seconds(9));

    let node = rig.node(0).json()["metadata"].clone();
    assert_eq!(node["status"]["cluster-role"], "control-plane");
    assert_eq!(node["status"]["datastore-role"], "PENDING");
    assert_eq!(node.get("taints"), None);
    assert_eq!(bootstrap(&mut rig, BOOTSTRAP).body(), recording("k8sd/1.35/bootstrap.again.json"));
    assert_eq!(rig.k8sd(0, "POST", JOIN, &join_body(0, "bm9uc2Vuc2U=")).status(), 521);
    assert!(rig.k8sd(0, "GET", CLUSTER, "").error().contains("stat /etc/kubernetes/admin.conf: no such file"));
    assert!(!rig.cluster.is_open(MachineId(0), Service::Kubernetes));

    rig.wait(seconds(4));
    assert!(rig.root(0).join("etc/kubernetes/admin.conf").exists());
    assert!(rig.k8sd(0, "GET", CLUSTER, "").error().contains("connect: connection refused"));

    rig.wait(seconds(3));
    assert_eq!(rig.k8sd(0, "GET", CLUSTER, "").status(), 200);
    assert!(matches!(rig.cluster.resume(ticket, rig.now), Reply::Wait { until: later, .. } if later == until));

    rig.wait(seconds(2));
    assert!(matches!(rig.cluster.resume(ticket, rig.now), Reply::Now(response) if response.status == 200));
    rig.wait(seconds(1));
    assert_eq!(rig.node(0).body(), recording("k8sd/1.35/node.json"));
}

#[test]
fn a_bootstrap_whose_caller_died_completes() {
    let mut rig = Rig::installed(1, "1.32.1", "2002");
    begin(&mut rig, 0, CLUSTER, BOOTSTRAP);
    rig.wait(seconds(30));
    assert_eq!(rig.node(0).body(), recording("k8sd/1.32/node.json"));
    assert_eq!(rig.cluster.clusters().len(), 1);
    assert_eq!(rig.cluster.node_ready(MachineId(0)), Some(NodeReady::True));
}

#[test]
fn nothing_keeps_two_machines_from_making_a_cluster_each() {
    let mut rig = Rig::installed(2, "1.32.1", "2002");
    assert_eq!(bootstrap(&mut rig, BOOTSTRAP).status(), 200);
    let other = BOOTSTRAP.replace("k8s-0", "k8s-1").replace("10.0.0.11:", "10.0.0.12:");
    assert_eq!(rig.k8sd(1, "POST", CLUSTER, &other).status(), 200);
    let clusters = rig.cluster.clusters();
    let members: Vec<Vec<&str>> =
        clusters.iter().map(|cluster| cluster.members.iter().map(|member| member.name.as_str()).collect()).collect();
    assert_eq!(members, [["k8s-0"], ["k8s-1"]]);
}

#[test]
fn a_failed_bootstrap_is_answered_late_and_undone() {
    let cases = [
        ("bootstrap.bad-datastore", r#"{"datastore-type":"mysql"}"#, ""),
        ("bootstrap.bad-config", r#"{"cluster-config":{"ingress":{"enabled":true}}}"#, ""),
        ("bootstrap.timeout", "{}", r#","timeout":8000000000"#),
    ];
    for (name, config, timeout) in cases {
        let mut rig = Rig::installed(1, "1.35.2", "1001");
        let begun = rig.now;
        let body = format!(r#"{{"name":"k8s-0","address":"10.0.0.11:6400","config":{config}{timeout}}}"#);
        assert_eq!(bootstrap(&mut rig, &body).body(), recording(&format!("k8sd/1.35/{name}.json")));
        assert!(rig.now >= begun + seconds(10), "{name} took until {}", rig.now);
        assert_eq!(rig.node(0).status(), 200, "who asks at once sees the old daemon");
        rig.wait(seconds(2));
        assert_eq!(rig.k8sd(0, "GET", "/core/1.0/ready", "").status(), 200);
        assert_eq!(rig.node(0).body(), recording("k8sd/1.35/node.not-initialised.json"));
        assert_eq!(rig.cluster.clusters(), []);
        assert_eq!(bootstrap(&mut rig, BOOTSTRAP).status(), 200);
    }
}

#[test]
fn a_token_is_for_one_name_and_lasts() {
    let mut rig = Rig::installed(2, "1.35.2", "1001");
    bootstrap(&mut rig, BOOTSTRAP);
    let token = rig.token(0, r#"{"name":"k8s-1"}"#);
    assert_eq!(rig.token(0, r#"{"name":"k8s-1"}"#), token);
    assert_ne!(rig.token(0, r#"{"name":"k8s-2"}"#), token);
    let worker = rig.token(0, r#"{"name":"k8s-1","worker":true}"#);
    assert_ne!(rig.token(0, r#"{"name":"k8s-1","worker":true}"#), worker);

    let begun = rig.now;
    assert_eq!(rig.join_with(1, &token).json()["metadata"], serde_json::json!({}));
    assert_eq!(rig.now, begun + seconds(18));
    assert_eq!(rig.node(1).json()["metadata"]["status"]["datastore-role"], "spare");
    assert_eq!(rig.node(0).json()["metadata"]["status"]["datastore-role"], "voter");
    assert_eq!(rig.join_with(1, &token).status(), 521);
}

#[test]
fn a_bad_token_is_told_up_to_1_35_and_never_answered_after() {
    for (version, track) in [("1.35.2", Some("1.35")), ("1.36.0", None)] {
        let mut rig = Rig::installed(2, version, "1001");
        bootstrap(&mut rig, BOOTSTRAP);
        let expired = rig.token(0, r#"{"name":"k8s-1","ttl":1000000000}"#);
        rig.wait(seconds(2));
        let other = rig.token(0, r#"{"name":"k8s-9"}"#);
        let cases = [
            ("join.expired", expired.as_str()),
            ("join.wrong-name", &other),
            ("join.garbage-token", "bm9uc2Vuc2U="),
            ("join.not-base64", "%%%"),
        ];
        for (name, token) in cases {
            let begun = rig.now;
            let outcome = rig.join_with(1, token);
            match track {
                Some(track) => assert_eq!(outcome.body(), recording(&format!("k8sd/{track}/{name}.json"))),
                None => assert_eq!(outcome, Outcome::Hangup, "{name}"),
            }
            assert_eq!(rig.now, begun + seconds(10));
            rig.wait(seconds(2));
            assert_eq!(rig.node(1).status(), 503);
        }
        assert_eq!(rig.join(1).status(), 200);
    }
}

#[test]
fn an_unknown_key_in_the_config_of_a_join_fails_at_once() {
    for (version, track) in [("1.35.2", "1.35"), ("1.36.0", "1.36")] {
        let mut rig = Rig::installed(2, version, "1001");
        bootstrap(&mut rig, BOOTSTRAP);
        let token = rig.token(0, r#"{"name":"k8s-1"}"#);
        let (begun, body) = (rig.now, join_body(1, &token).replace("extra-sans: []\\n", "nonsense: true"));
        let outcome = rig.k8sd(1, "POST", JOIN, &body);
        assert_eq!(outcome.body(), recording(&format!("k8sd/{track}/join.unknown-key.json")));
        assert_eq!(rig.now, begun);
    }
}

#[test]
fn another_patch_may_not_join_another_minor_may() {
    let mut rig = Rig::installed(1, "1.36.0", "2002");
    bootstrap(&mut rig, BOOTSTRAP);
    for (id, version) in [(1, "1.36.1"), (2, "1.37.0")] {
        let address = ([127, 0, 8, 10], 6443).into();
        let root = rig.root(id);
        rig.cluster.add_machine(MachineId(id), &root, &format!("k8s-{id}"), address);
        rig.event(id, SnapEvent::Installed(super::snap(version, "3000")));
    }
    rig.wait(seconds(2));
    let begun = rig.now;
    assert_eq!(rig.join(1).body(), recording("k8sd/1.36/join.other-patch.json"));
    assert!(rig.now >= begun + seconds(21));
    rig.wait(seconds(2));
    assert_eq!(rig.node(1).status(), 503);

    assert_eq!(rig.join(2).status(), 200);
    let upgrades = rig.cluster.upgrades(rig.cluster.cluster_of(MachineId(0)).unwrap());
    assert_eq!(upgrades[0].name, "cluster-upgrade-to-k8s-1.37.0-rev-3000");
    assert_eq!(
        (upgrades[0].strategy, upgrades[0].upgraded_nodes.as_slice()),
        ("RollingUpgrade", &["k8s-2".to_owned()][..])
    );
}

#[test]
fn a_worker_joins_and_is_restricted() {
    let mut rig = Rig::installed(2, "1.35.2", "1001");
    bootstrap(&mut rig, BOOTSTRAP);
    let token = rig.token(0, r#"{"name":"worker-0","worker":true}"#);
    let body = format!(r#"{{"name":"worker-0","address":"10.0.0.21:6400","token":"{token}","config":""}}"#);
    assert_eq!(rig.k8sd(1, "POST", JOIN, &body).body(), recording("k8sd/1.35/join.worker.json"));
    rig.wait(seconds(1));
    assert_eq!(rig.node(1).body(), recording("k8sd/1.35/node.worker.json"));
    assert_eq!(rig.k8sd(1, "GET", CLUSTER, "").body(), recording("k8sd/1.35/cluster.worker.json"));
    let tokens = rig.k8sd(1, "POST", "/1.0/k8sd/cluster/tokens", r#"{"name":"x"}"#);
    assert_eq!(tokens.body(), recording("k8sd/1.35/token.on-worker.json"));
    assert_eq!(rig.cluster.node_ready(MachineId(1)), Some(NodeReady::True));
    assert!(rig.root(1).join("var/snap/k8s/common/lock/worker").exists());
    assert!(!rig.cluster.is_open(MachineId(1), Service::Kubernetes));
}

#[test]
fn the_next_entry_fails_when_asked_to() {
    let mut rig = Rig::installed(2, "1.35.2", "1001");
    rig.cluster.fail_next_bootstrap(MachineId(0), "out of luck");
    assert!(bootstrap(&mut rig, BOOTSTRAP).error().ends_with("out of luck"));
    rig.wait(seconds(2));
    assert_eq!(bootstrap(&mut rig, BOOTSTRAP).status(), 200);
    rig.cluster.fail_next_join(MachineId(1), "no luck either");
    assert!(rig.join(1).error().ends_with("no luck either"));
    rig.wait(seconds(2));
    assert_eq!(rig.join(1).status(), 200);
    assert_eq!(rig.cluster.clusters().len(), 1);
}

#[test]
fn a_daemon_that_ends_in_the_middle_of_a_join_leaves_nothing() {
    let mut rig = Rig::installed(2, "1.35.2", "1001");
    bootstrap(&mut rig, BOOTSTRAP);
    let token = rig.token(0, r#"{"name":"k8s-1"}"#);
    let (_, ticket) = begin(&mut rig, 1, JOIN, &join_body(1, &token));
    rig.wait(seconds(5));
    rig.event(1, SnapEvent::ServiceRestarted("k8sd".to_owned()));
    assert!(matches!(rig.cluster.resume(ticket, rig.now), Reply::Hangup));
    rig.wait(seconds(5));
    assert_eq!(rig.node(1).body(), recording("k8sd/1.35/node.not-initialised.json"));
    assert_eq!(rig.cluster.clusters()[0].members.len(), 1);
}
