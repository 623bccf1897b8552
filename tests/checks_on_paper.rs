//! The checks and the gates: each fact alone, known and unknown.

#![expect(clippy::unwrap_used, reason = "a test may end at once where its own data is wrong")]

use std::collections::BTreeMap;

use k8s_charm::names::{Timestamp, UnitName};
use k8s_charm::upgrade::checks::{CheckId, Finding, Verdict, blocking, gate_after, gate_before, pre_upgrade};
use k8s_charm::upgrade::facts::{
    CheckFacts, Datastore, Fact, GateFacts, HealthFacts, Hold, Node, SnapdFacts, VersionFacts,
};
use k8s_charm::upgrade::version::Way;

const NOW: i64 = 1_000_000;

fn unknown<T>() -> Fact<T> {
    Fact::Unknown("no answer".to_owned())
}

fn node(ready: bool, control_plane: bool) -> Node {
    Node { control_plane, ready, kubelet: Some("1.31.3".parse().unwrap()) }
}

/// Three healthy control planes and a worker; this unit is on n0.
fn gate() -> GateFacts {
    let name = |number: u32| format!("n{number}");
    let mut nodes: BTreeMap<String, Node> = (0..3).map(|number| (name(number), node(true, true))).collect();
    nodes.insert("w0".to_owned(), node(true, false));
    GateFacts {
        me: UnitName::new("k8s", 0),
        own_node: name(0),
        going_back: false,
        other_nodes: (1..3).map(|number| (UnitName::new("k8s", number), name(number))).collect(),
        api: Fact::Known(()),
        nodes: Fact::Known(nodes),
        datastore: Fact::Known(Datastore::Own((0..3).map(name).collect())),
        versions: VersionFacts {
            from: Some("1.31.3".parse().unwrap()),
            to: Some("1.32.1".parse().unwrap()),
            way: Way::Forward,
            supported: None,
            workers: Vec::new(),
            worker_constraint: None,
        },
    }
}

fn facts() -> CheckFacts {
    CheckFacts {
        gate: gate(),
        pods: Fact::Known(Vec::new()),
        features: Fact::Known(Vec::new()),
        k8sd: Fact::Known(()),
        snapd: Fact::Known(SnapdFacts { change: None, hold: Hold::Held }),
        space: Fact::Known(10 << 30),
        certificates: Fact::Known(vec![("apiserver".to_owned(), Timestamp(NOW + 40 * 24 * 3600))]),
        at_work: None,
        now: Timestamp(NOW),
    }
}

fn found(findings: &[Finding], id: CheckId) -> (Verdict, String) {
    let finding = findings.iter().find(|finding| finding.id == id).unwrap();
    (finding.verdict, finding.seen.clone())
}

fn without(gate: &mut GateFacts, name: &str) {
    if let Fact::Known(nodes) = &mut gate.nodes {
        nodes.remove(name);
    }
}

fn sicken(gate: &mut GateFacts, name: &str) {
    if let Fact::Known(nodes) = &mut gate.nodes {
        nodes.get_mut(name).unwrap().ready = false;
    }
}

#[test]
fn all_checks_run_in_their_order_and_pass_where_all_is_well() {
    let findings = pre_upgrade(&facts());
    let words: Vec<&str> = findings.iter().map(|finding| finding.id.word()).collect();
    let table =
        ["api", "nodes", "quorum", "pods", "features", "k8sd", "versions", "snapd", "space", "certificates", "run"];
    assert_eq!(words, table);
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Pass), "{findings:?}");
    assert!(blocking(&findings, &[]).is_empty());
}

type Change = fn(&mut CheckFacts);

#[test]
fn each_check_says_what_it_sees() {
    let table: [(CheckId, Verdict, &str, Change); 24] = [
        (CheckId::Api, Verdict::Fail, "no answer", |facts| facts.gate.api = unknown()),
        (CheckId::Nodes, Verdict::Fail, "no answer", |facts| facts.gate.nodes = unknown()),
        (CheckId::Nodes, Verdict::Fail, "n2 NotReady", |facts| sicken(&mut facts.gate, "n2")),
        (CheckId::Nodes, Verdict::Fail, "n2 absent", |facts| without(&mut facts.gate, "n2")),
        (CheckId::Nodes, Verdict::Fail, "n0 NotReady", |facts| sicken(&mut facts.gate, "n0")),
        (CheckId::Nodes, Verdict::Warn, "worker w0 NotReady", |facts| sicken(&mut facts.gate, "w0")),
        (CheckId::Nodes, Verdict::Warn, "n2 belongs to no unit", |facts| {
            facts.gate.other_nodes.remove(&UnitName::new("k8s", 2));
        }),
        (CheckId::Quorum, Verdict::Fail, "no answer", |facts| facts.gate.datastore = unknown()),
        (CheckId::Quorum, Verdict::Fail, "only 1 of 3", |facts| sicken(&mut facts.gate, "n2")),
        (CheckId::Quorum, Verdict::Warn, "two control-plane nodes", |facts| {
            facts.gate.datastore = Fact::Known(Datastore::Own(vec!["n0".to_owned(), "n1".to_owned()]));
        }),
        (CheckId::Quorum, Verdict::Warn, "one control-plane node", |facts| {
            facts.gate.datastore = Fact::Known(Datastore::Own(vec!["n0".to_owned()]));
        }),
        (CheckId::Quorum, Verdict::Pass, "external", |facts| {
            facts.gate.datastore = Fact::Known(Datastore::External);
        }),
        (CheckId::Pods, Verdict::Fail, "kube-system/cilium", |facts| {
            facts.pods = Fact::Known(vec!["kube-system/cilium: CrashLoopBackOff".to_owned()]);
        }),
        (CheckId::Pods, Verdict::Fail, "no answer", |facts| facts.pods = unknown()),
        (CheckId::Features, Verdict::Fail, "dns: Failed to", |facts| {
            facts.features = Fact::Known(vec![("dns".to_owned(), "Failed to deploy".to_owned())]);
        }),
        (CheckId::K8sd, Verdict::Fail, "no answer", |facts| facts.k8sd = unknown()),
        (CheckId::Versions, Verdict::Warn, "not known", |facts| facts.gate.versions.from = None),
        (CheckId::Snapd, Verdict::Fail, "change 7", |facts| {
            facts.snapd = Fact::Known(SnapdFacts { change: Some("7".to_owned()), hold: Hold::Held });
        }),
        (CheckId::Snapd, Verdict::Warn, "may refresh by itself", |facts| {
            facts.snapd = Fact::Known(SnapdFacts { change: None, hold: Hold::CannotHold });
        }),
        (CheckId::Space, Verdict::Warn, "3.0 GiB", |facts| facts.space = Fact::Known(3 << 30)),
        (CheckId::Space, Verdict::Fail, "0.9 GiB", |facts| facts.space = Fact::Known((1 << 30) - 1)),
        (CheckId::Certificates, Verdict::Warn, "within 30 days: apiserver", |facts| {
            facts.certificates = Fact::Known(vec![("apiserver".to_owned(), Timestamp(NOW + 24 * 3600))]);
        }),
        (CheckId::Certificates, Verdict::Fail, "expired: apiserver", |facts| {
            facts.certificates = Fact::Known(vec![("apiserver".to_owned(), Timestamp(NOW - 1))]);
        }),
        (CheckId::Run, Verdict::Fail, "k8s/2 is at work", |facts| facts.at_work = Some("k8s/2 is at work".to_owned())),
    ];
    for (id, verdict, seen, change) in table {
        let mut facts = facts();
        change(&mut facts);
        let (was, said) = found(&pre_upgrade(&facts), id);
        assert_eq!(was, verdict, "{id}: {said}");
        assert!(said.contains(seen), "{id}: {said}, not {seen}");
    }
}

#[test]
fn what_fails_says_what_to_do() {
    let mut facts = facts();
    facts.gate.api = unknown();
    facts.gate.nodes = unknown();
    facts.gate.datastore = unknown();
    facts.pods = unknown();
    facts.features = unknown();
    facts.k8sd = unknown();
    facts.snapd = unknown();
    facts.space = unknown();
    facts.certificates = unknown();
    facts.at_work = Some("k8s/2 is at work".to_owned());
    for finding in pre_upgrade(&facts).iter().filter(|finding| finding.verdict == Verdict::Fail) {
        assert!(!finding.remedy.is_empty(), "{finding:?}");
    }
}

#[test]
fn the_admins_word_goes_past_every_check_but_exclusivity() {
    let mut facts = facts();
    facts.gate.api = unknown();
    facts.at_work = Some("k8s/2 is at work".to_owned());
    let findings = pre_upgrade(&facts);
    let all: Vec<CheckId> = CheckId::all_that_can_be_skipped().collect();
    let left: Vec<String> = blocking(&findings, &all).into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, ["run"]);
    let left = blocking(&findings, &[CheckId::Run, CheckId::Api]);
    assert_eq!(left.len(), 1, "run can't be skipped: {left:?}");
    assert_eq!(CheckId::parse_list("nodes, api", &CheckId::GATE).unwrap(), [CheckId::Nodes, CheckId::Api]);
    let refusal = CheckId::parse_list("nodes,run", &CheckId::GATE).unwrap_err();
    assert_eq!(refusal, "skip: there is no check `run` to pass over here; there are: api, nodes, quorum, versions");
}

fn verdicts(gate: &GateFacts) -> BTreeMap<&'static str, Verdict> {
    gate_before(gate).into_iter().map(|finding| (finding.id.word(), finding.verdict)).collect()
}

#[test]
fn the_gate_before_looks_at_the_others() {
    assert!(verdicts(&gate()).values().all(|verdict| *verdict == Verdict::Pass));
    let mut other = gate();
    sicken(&mut other, "n1");
    assert_eq!(verdicts(&other)["nodes"], Verdict::Fail);
    assert_eq!(verdicts(&other)["quorum"], Verdict::Fail);
    let mut own = gate();
    sicken(&mut own, "n0");
    assert_eq!(verdicts(&own)["nodes"], Verdict::Pass, "its own node is what is mended");
    let mut alone = gate();
    alone.other_nodes.clear();
    alone.datastore = Fact::Known(Datastore::Own(vec!["n0".to_owned()]));
    assert_eq!(verdicts(&alone)["quorum"], Verdict::Warn, "with one node there is no quorum to keep");
}

#[test]
fn remedies_name_this_unit_and_what_is_not_known_of_the_target_is_said() {
    let mut checks = facts();
    checks.gate.me = UnitName::new("control-plane", 3);
    checks.gate.versions.to = None;
    (checks.k8sd, checks.space) = (unknown(), unknown());
    let findings = pre_upgrade(&checks);
    assert_eq!(found(&findings, CheckId::Versions).0, Verdict::Warn);
    for finding in findings.iter().filter(|finding| finding.verdict != Verdict::Pass) {
        assert!(finding.remedy.contains("juju exec --unit control-plane/3 -- "), "{finding:?}");
    }
}

#[test]
fn going_back_a_node_that_is_itself_down_may_leave() {
    let mut back = gate();
    back.going_back = true;
    back.versions.way = Way::Back;
    (back.versions.from, back.versions.to) = (Some("1.32.1".parse().unwrap()), Some("1.31.3".parse().unwrap()));
    back.api = unknown();
    sicken(&mut back, "n0");
    assert!(blocking(&gate_before(&back), &[]).is_empty(), "{:?}", gate_before(&back));
    // Its own API server tells of the others too.
    back.nodes = unknown();
    let blind = gate_before(&back);
    assert!(blocking(&blind, &[]).is_empty(), "{blind:?}");
    assert_eq!(found(&blind, CheckId::Nodes).1, "the other nodes can't be seen from here: no answer");
    back.datastore = unknown();
    assert!(blocking(&gate_before(&back), &[]).is_empty(), "{:?}", gate_before(&back));
    back.other_nodes.clear();
    assert_eq!(found(&gate_before(&back), CheckId::Nodes).1, "this is the only control-plane node");
    let mut second = gate();
    second.going_back = true;
    sicken(&mut second, "n2");
    assert_eq!(verdicts(&second)["nodes"], Verdict::Fail, "another node down still counts");
    let mut checks = facts();
    checks.gate = back;
    let ids: Vec<&str> = pre_upgrade(&checks).iter().map(|finding| finding.id.word()).collect();
    assert_eq!(ids, ["versions", "run"], "what is sick is what is left behind");
}

fn health() -> HealthFacts {
    HealthFacts {
        node_name: "n0".to_owned(),
        inactive_services: Fact::Known(Vec::new()),
        node: Fact::Known(Some(Node { kubelet: Some("1.32.1".parse().unwrap()), ..node(true, true) })),
        api: Fact::Known(()),
        k8sd: Fact::Known(()),
        post_refresh_since: Fact::Known(None),
        k8sd_since: Some(Timestamp(NOW - 100)),
        version: "1.32.1".parse().unwrap(),
        change_ended: Some(Timestamp(NOW - 15)),
        now: Timestamp(NOW),
    }
}

type HealthChange = fn(&mut HealthFacts);

#[test]
fn the_gate_after_waits_for_each_of_its_facts() {
    assert!(gate_after(&health()).awaited.is_empty());
    let table: [(&str, HealthChange); 10] = [
        ("services: kubelet", |facts| facts.inactive_services = Fact::Known(vec!["kubelet".to_owned()])),
        ("snapd (no answer)", |facts| facts.inactive_services = unknown()),
        ("the API server to be ready", |facts| facts.api = unknown()),
        ("the API server to show node n0", |facts| facts.node = unknown()),
        ("node n0 to appear", |facts| facts.node = Fact::Known(None)),
        ("node n0 to be Ready", |facts| {
            facts.node = Fact::Known(Some(Node { kubelet: Some("1.32.1".parse().unwrap()), ..node(false, true) }));
        }),
        ("the kubelet of n0 to report 1.32.1", |facts| facts.node = Fact::Known(Some(node(true, true)))),
        ("no answer", |facts| facts.k8sd = unknown()),
        ("k8sd to finish its own work after the refresh", |facts| {
            facts.post_refresh_since = Fact::Known(Some(Timestamp(NOW - 20)));
        }),
        ("its services to have settled", |facts| facts.change_ended = Some(Timestamp(NOW - 14))),
    ];
    for (awaited, change) in table {
        let mut facts = health();
        change(&mut facts);
        assert_eq!(gate_after(&facts).awaited, [awaited]);
    }
}

#[test]
fn k8sd_is_mended_once_when_its_own_work_is_stuck() {
    let stuck = |age: i64, restarted_after: i64, k8sd: Fact<()>| {
        let since = NOW - age;
        let post_refresh_since = Fact::Known(Some(Timestamp(since)));
        let k8sd_since = Some(Timestamp(since + restarted_after));
        gate_after(&HealthFacts { post_refresh_since, k8sd_since, k8sd, ..health() }).repair
    };
    assert!(!stuck(299, 5, Fact::Known(())), "it has five minutes");
    assert!(stuck(300, 5, Fact::Known(())));
    assert!(!stuck(400, 301, Fact::Known(())), "it was restarted already");
    assert!(!stuck(400, 5, unknown()), "it doesn't even answer");
}
