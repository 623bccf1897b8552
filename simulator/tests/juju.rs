//! Juju's rules, as a probe of a charm meets them: its `dispatch` runs the script that a test puts beside it.
//!
//! Numbers are those of the rules in the contract between Juju and a charm.

#![expect(clippy::unwrap_used, reason = "a test may end at once where its own data is wrong")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_sim::engine::Engine;
use k8s_sim::juju::{Hook, UnitId};
use k8s_sim::process::{AgentPaths, environment};
use k8s_sim::snapd::Store;
use k8s_sim::time::SimTime;
use serde_json::{Map, Value, json};

const DISPATCH: &str =
    "#!/bin/sh\nscript=\"$CHARM_DIR/../on-${JUJU_DISPATCH_PATH#*/}\"\n[ -f \"$script\" ] || exit 0\n. \"$script\"\n";

struct Probe {
    engine: Engine,
    work: tempfile::TempDir,
}

fn unit(number: u32) -> UnitId {
    UnitId::new("probe", number)
}

impl Probe {
    fn new(units: u32) -> Self {
        let work = tempfile::Builder::new().prefix("k8s-sim-").tempdir().unwrap();
        let charm = work.path().join("charm");
        fs::create_dir_all(&charm).unwrap();
        fs::write(charm.join("metadata.yaml"), "name: probe\n").unwrap();
        fs::write(charm.join("dispatch"), DISPATCH).unwrap();
        fs::set_permissions(charm.join("dispatch"), fs::Permissions::from_mode(0o755)).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_k8s-sim"));
        let mut engine = Engine::new(0, Store::default(), work.path(), program).unwrap();
        engine.model.deploy("probe", charm, &["peer".to_owned()], Map::new());
        for _ in 0..units {
            engine.add_unit("probe").unwrap();
        }
        Self { engine, work }
    }

    async fn settled(units: u32) -> Self {
        let mut probe = Self::new(units);
        probe.pass(60).await;
        probe
    }

    async fn pass(&mut self, seconds: u64) {
        let until = SimTime(self.engine.now.0 + seconds * 1000);
        self.engine.run_until(until).await.unwrap();
    }

    fn agent(&self, number: u32) -> PathBuf {
        self.work.path().join(format!("{number}/var/lib/juju/agents/unit-probe-{number}"))
    }

    fn on(&self, number: u32, hook: &str, script: &str) {
        fs::create_dir_all(self.agent(number)).unwrap();
        fs::write(self.agent(number).join(format!("on-{hook}")), script).unwrap();
    }

    fn said(&self, number: u32, file: &str) -> String {
        fs::read_to_string(self.agent(number).join(file)).unwrap_or_default().trim().to_owned()
    }

    fn hooks(&self, number: u32) -> Vec<String> {
        self.engine.ran.iter().filter(|ran| ran.unit == unit(number)).map(|ran| ran.hook.clone()).collect()
    }

    fn bag(&self, number: u32, key: &str) -> Option<String> {
        self.engine.model.relations[&0].scope[&unit(number)].content.get(key).cloned()
    }

    fn application_bag(&self, key: &str) -> Option<String> {
        self.engine.model.relations[&0].application_bags["probe"].content.get(key).cloned()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn s21_the_hooks_of_a_deploy_come_in_juju_s_order() {
    let probe = Probe::settled(2).await;
    let first = [
        "install",
        "peer-relation-created",
        "leader-elected",
        "config-changed",
        "start",
        "peer-relation-joined",
        "peer-relation-changed",
    ];
    assert_eq!(probe.hooks(0), first);
    let second: Vec<&str> = first.into_iter().filter(|hook| *hook != "leader-elected").collect();
    assert_eq!(probe.hooks(1), second);
}

#[tokio::test(flavor = "current_thread")]
async fn s5_s17_install_knows_no_relations_and_start_no_peers() {
    let mut probe = Probe::new(2);
    probe.on(
        1,
        "install",
        "relation-ids --format=json peer > ../ids; relation-get --format=json -r peer:0 - probe/0 2> ../no; exit 0\n",
    );
    probe.on(
        1,
        "start",
        "relation-ids --format=json peer > ../ids2; relation-list --format=json -r peer:0 > ../peers\n",
    );
    probe.pass(60).await;
    assert_eq!(probe.said(1, "ids"), "[]");
    assert_eq!(probe.said(1, "no"), "ERROR invalid value \"peer:0\" for option -r: relation not found");
    assert_eq!((probe.said(1, "ids2"), probe.said(1, "peers")), ("[\"peer:0\"]".to_owned(), "[]".to_owned()));
}

#[tokio::test(flavor = "current_thread")]
async fn s8_s32_a_failed_hook_keeps_nothing_and_is_tried_again_after_5_10_20_seconds() {
    let mut probe = Probe::new(1);
    probe.on(0, "config-changed", "relation-set -r peer:0 a=b\nstatus-set waiting -- trouble\nexit 1\n");
    probe.pass(60).await;
    let tries: Vec<u64> =
        probe.engine.ran.iter().filter(|ran| ran.hook == "config-changed").map(|ran| ran.at.0).collect();
    let pauses: Vec<u64> = tries.windows(2).map(|pair| (pair[1] - pair[0]) / 1000).collect();
    for (pause, expected) in pauses.iter().zip([5, 10, 20]) {
        assert!((expected..expected + 4).contains(pause), "{pauses:?}");
    }
    assert!(pauses.len() >= 3, "{pauses:?}");
    assert_eq!(probe.bag(0, "a"), None);
    assert_eq!(probe.engine.model.units[&unit(0)].workload.message, "trouble", "a status is not taken back");
    probe.on(0, "config-changed", "relation-set -r peer:0 a=c\n");
    probe.pass(60).await;
    assert_eq!(probe.bag(0, "a").as_deref(), Some("c"));
}

#[tokio::test(flavor = "current_thread")]
async fn s10_who_lost_the_lead_by_the_flush_keeps_nothing_of_its_hook() {
    let mut probe = Probe::settled(2).await;
    probe.on(0, "config-changed", "relation-set -r peer:0 mine=1\nrelation-set -r peer:0 --app ours=1\n");
    probe.engine.model.configure("probe", "x", json!(1));
    probe.engine.notice_all();
    let before = probe.engine.ran.len();
    while !probe.engine.ran.iter().skip(before).any(|ran| ran.unit == unit(0)) {
        probe.engine.step().await.unwrap();
    }
    probe.engine.model.move_leader(&unit(1));
    probe.pass(3).await;
    assert_eq!((probe.bag(0, "mine"), probe.application_bag("ours")), (None, None));
    assert!(probe.engine.model.units[&unit(0)].failed.is_some());
    probe.on(0, "config-changed", "relation-set -r peer:0 --app ours=1 2> ../no\n");
    probe.pass(20).await;
    assert_eq!(probe.said(0, "no"), "ERROR cannot write relation settings", "S16");
}

#[tokio::test(flavor = "current_thread")]
async fn s18_a_members_bag_is_as_old_as_its_last_hook_here() {
    let mut probe = Probe::settled(2).await;
    probe.on(1, "update-status", "relation-get --format=json -r peer:0 v probe/0 > ../v\n");
    probe.on(0, "config-changed", "relation-set -r peer:0 v=2\n");
    probe.engine.repeat(&unit(1), "update-status", 1).await.unwrap();
    assert_eq!(probe.said(1, "v"), "null");
    probe.engine.repeat(&unit(0), "config-changed", 1).await.unwrap();
    assert_eq!(probe.bag(0, "v").as_deref(), Some("2"));
    let told = |probe: &Probe| probe.hooks(1).iter().filter(|hook| *hook == "peer-relation-changed").count();
    let before = told(&probe);
    probe.engine.repeat(&unit(1), "update-status", 1).await.unwrap();
    if told(&probe) == before {
        assert_eq!(probe.said(1, "v"), "null", "it was read before, and no hook has told of the change");
    }
    probe.pass(30).await;
    assert_eq!(told(&probe), before + 1);
    probe.engine.repeat(&unit(1), "update-status", 1).await.unwrap();
    assert_eq!(probe.said(1, "v"), "\"2\"");
}

#[tokio::test(flavor = "current_thread")]
async fn s24_an_applications_bag_wakes_all_units_the_writer_too_and_a_units_bag_only_others() {
    let mut probe = Probe::settled(2).await;
    let changed = |probe: &Probe, number| probe.hooks(number).iter().filter(|hook| hook.ends_with("-changed")).count();
    let counts = |probe: &Probe| (changed(probe, 0), changed(probe, 1));
    probe.on(0, "update-status", "relation-set -r peer:0 --app ours=1\n");
    let before = counts(&probe);
    probe.engine.repeat(&unit(0), "update-status", 1).await.unwrap();
    probe.pass(20).await;
    assert_eq!(counts(&probe), (before.0 + 1, before.1 + 1));
    probe.on(0, "update-status", "relation-set -r peer:0 mine=1\n");
    probe.engine.repeat(&unit(0), "update-status", 2).await.unwrap();
    probe.pass(20).await;
    assert_eq!(counts(&probe), (before.0 + 1, before.1 + 2), "S14: the same value again is no change");
}

#[tokio::test(flavor = "current_thread")]
async fn s34_a_killed_hook_runs_again_at_once_and_without_an_error() {
    let mut probe = Probe::new(1);
    probe.on(0, "start", "[ -f ../killed ] && exit 0\ntouch ../killed\nkill -9 $$\n");
    probe.pass(60).await;
    let starts: Vec<u64> = probe.engine.ran.iter().filter(|ran| ran.hook == "start").map(|ran| ran.at.0).collect();
    assert_eq!(starts.len(), 2);
    assert!(starts[1] - starts[0] < 5_000, "{starts:?}");
    assert!(probe.engine.model.units[&unit(0)].failed.is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn s11_s12_an_exec_is_kept_whatever_its_exit_code_and_a_failed_action_too() {
    let mut probe = Probe::settled(1).await;
    probe.engine.model.exec(&unit(0), "relation-set -r peer:0 e=1; exit 3".to_owned(), None);
    probe.on(0, "act", "relation-set -r peer:0 f=1\naction-set r.x=1\naction-fail -- no luck\n");
    let id = probe.engine.run_action(&unit(0), "act", Map::new()).await.unwrap();
    probe.pass(10).await;
    assert_eq!((probe.bag(0, "e").as_deref(), probe.bag(0, "f").as_deref()), (Some("1"), Some("1")));
    let result = probe.engine.model.actions[&id].result.clone().unwrap();
    assert_eq!((result.failed.as_deref(), result.results["r.x"].as_str()), (Some("no luck"), "1"));
    probe.on(0, "act", "relation-set -r peer:0 g=1\nexit 2\n");
    let id = probe.engine.run_action(&unit(0), "act", Map::new()).await.unwrap();
    assert_eq!(probe.engine.model.actions[&id].result.clone().unwrap().failed.as_deref(), Some("exit status 2"));
    assert_eq!(probe.bag(0, "g"), None);
}

#[tokio::test(flavor = "current_thread")]
async fn s42_a_refresh_swaps_the_code_then_upgrade_charm_then_config_changed() {
    let mut probe = Probe::settled(2).await;
    let charm = probe.work.path().join("charm2");
    xtask::copy_tree(&probe.work.path().join("charm"), &charm).unwrap();
    fs::write(charm.join("dispatch"), format!("{DISPATCH}# second\n")).unwrap();
    let before = [probe.hooks(0).len(), probe.hooks(1).len()];
    probe.engine.model.refresh("probe", charm);
    probe.engine.notice_all();
    probe.pass(30).await;
    for number in [0, 1] {
        let index = usize::try_from(number).unwrap();
        assert_eq!(probe.hooks(number)[before[index]..], ["upgrade-charm", "config-changed"]);
        assert!(fs::read_to_string(probe.agent(number).join("charm/dispatch")).unwrap().ends_with("# second\n"));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn s56_a_removed_unit_departs_stops_and_goes_and_the_others_hear_of_it_then() {
    let mut probe = Probe::settled(2).await;
    let before = probe.hooks(1).len();
    probe.engine.model.remove_unit(&unit(1));
    probe.engine.notice_all();
    probe.pass(60).await;
    assert_eq!(probe.hooks(1)[before..], ["peer-relation-departed", "stop", "remove"]);
    assert_eq!(probe.hooks(0).last().map(String::as_str), Some("peer-relation-departed"));
    let removed = probe.engine.ran.iter().rposition(|ran| ran.hook == "remove").unwrap();
    let heard = probe.engine.ran.iter().rposition(|ran| ran.unit == unit(0)).unwrap();
    assert!(heard > removed, "the leaver is gone by then");
}

#[test]
fn s2_a_hooks_environment_has_juju_s_variables_and_no_others() {
    let recorded: Value = serde_json::from_str(include_str!(
        "../../tests/recorded/juju/3.6/hook-env/hooks_cluster-relation-departed.json"
    ))
    .unwrap();
    let recorded: BTreeSet<String> = recorded["env"].as_object().unwrap().keys().cloned().collect();
    let mut model = k8s_sim::juju::Model::new(0);
    model.deploy("k8s", PathBuf::from("/charm"), &["cluster".to_owned()], Map::new());
    let me = model.add_unit("k8s", k8s_sim::wire::MachineId(0)).unwrap();
    let paths = AgentPaths::new(Path::new("/"), &me);
    let hook = Hook::Relation(0, "departed", Some(UnitId::new("k8s", 1)));
    let made: BTreeSet<String> = environment(&model, &me, &hook, "id", &paths, Path::new("/bin")).into_keys().collect();
    // The recording machine was no Ubuntu, where Juju sets these too.
    let ubuntu = ["APT_LISTCHANGES_FRONTEND", "DEBIAN_FRONTEND"].map(str::to_owned);
    assert_eq!(made, recorded.into_iter().chain(ubuntu).collect());
}
