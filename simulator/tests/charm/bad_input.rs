//! Whatever comes in, a hook says what is wrong and how it is mended, and ends well; nothing is lost, nothing panics.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::{Stage, unit};
use k8s_sim::juju::Ended;
use k8s_sim::time::SimTime;
use serde_json::json;

fn set(bag: &mut BTreeMap<String, String>, key: &str, value: &str) {
    bag.insert(key.to_owned(), value.to_owned());
}

const BAD_MANIFEST: &str = "amd64: [{name: k8s, install-type: store, revision: soon}]\n\
                            arm64: [{name: k8s, install-type: store, revision: soon}]\n";

impl Stage {
    fn charm(&self) -> std::path::PathBuf {
        self.rehearsal.from.directory.join("dispatch")
    }

    fn upgrade_bags(
        &mut self,
        number: u32,
        change: impl Fn(&mut BTreeMap<String, String>, &mut BTreeMap<String, String>),
    ) {
        let relations = &mut self.rehearsal.engine.model.relations;
        let relation = relations.values_mut().find(|found| found.name == "upgrade").unwrap();
        let application = &mut relation.application_bags.get_mut("k8s").unwrap().content;
        change(&mut relation.scope.get_mut(&unit(number)).unwrap().content, application);
    }

    /// What a script in the context of `k8s/0` did, as by `juju-exec`.
    async fn exec(&mut self, script: &str) -> k8s_sim::engine::Ran {
        self.rehearsal.engine.model.exec(&unit(0), script.to_owned(), None);
        self.rehearsal.engine.notice_all();
        self.pass(5).await;
        self.rehearsal.engine.ran.iter().rev().find(|ran| ran.wake_up).unwrap().clone()
    }

    async fn event(&mut self, number: u32, event: &str) -> k8s_sim::engine::Ran {
        self.rehearsal.engine.repeat(&unit(number), event, 1).await.unwrap().pop().unwrap()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn by_hand_it_says_how_it_is_used_and_ends_with_64() {
    let stage = Stage::empty("");
    let by_hand = |arguments: &[&str]| Command::new(stage.charm()).args(arguments).env_clear().output().unwrap();
    let output = by_hand(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(said.contains("JUJU_UNIT_NAME is not set") && said.contains("Usage:"), "{said}");
    assert_eq!(by_hand(&["--weather"]).status.code(), Some(64));
    assert_eq!(by_hand(&["--help"]).status.code(), Some(0));
    // Half an environment, and no Juju that could be told.
    let half = Command::new(stage.charm()).env_clear().env("JUJU_UNIT_NAME", "k8s/0").output().unwrap();
    let said = String::from_utf8(half.stderr).unwrap();
    assert_eq!(half.status.code(), Some(64));
    assert!(said.contains("JUJU_CHARM_DIR is not set"), "{said}");
}

#[tokio::test(flavor = "current_thread")]
async fn an_environment_of_jujus_that_lacks_a_variable_is_a_status_that_names_it() {
    let mut stage = Stage::deployed(1).await;
    for (change, says) in [
        ("-u JUJU_CHARM_DIR", "JUJU_CHARM_DIR is not set: this needs Juju 3.3 or later"),
        ("JUJU_UNIT_NAME=k8s-0", "JUJU_UNIT_NAME is `k8s-0`, not a unit's name such as `k8s/0`"),
    ] {
        let ran = stage.exec(&format!("exec env {change} JUJU_DISPATCH_PATH=hooks/start ./dispatch")).await;
        assert_eq!(
            (ran.ended, ran.calls.as_slice()),
            (Ended::Exit(0), &["status-set".to_owned()][..]),
            "{}",
            ran.output
        );
        let message = ran.status.unwrap();
        assert!(message.starts_with(&format!("blocked: {says}")), "{message}");
        assert!(message.ends_with("Restart the agent: systemctl restart jujud-machine-*"), "{message}");
    }
    let odd = "JUJU_REMOTE_UNIT=? JUJU_PRINCIPAL_UNIT=? JUJU_VERSION=? JUJU_SECRET_ID=x JUJU_SECRET_REVISION=?";
    let ran = stage.exec(&format!("exec env {odd} JUJU_DISPATCH_PATH=hooks/update-status ./dispatch")).await;
    assert_eq!((ran.ended, stage.message(0).as_str()), (Ended::Exit(0), "Ready"), "what no hook depends on");
}

#[tokio::test(flavor = "current_thread")]
async fn events_and_actions_that_nobody_knows_end_well() {
    let mut stage = Stage::deployed(1).await;
    let ran = stage.exec("exec env JUJU_DISPATCH_PATH=hooks/fnord_storage_attached ./dispatch").await;
    assert_eq!((ran.ended, ran.calls.as_slice()), (Ended::Exit(0), &["juju-log".to_owned()][..]));
    assert_eq!(ran.log[0].0, "DEBUG");
    let unknown = stage.action(0, "dance", json!({})).await;
    assert_eq!(unknown.failed.unwrap(), "This charm has no action dance: see `juju actions k8s`");
}

#[tokio::test(flavor = "current_thread")]
async fn garbage_in_databags_is_absent_named_and_mended() {
    let mut stage = Stage::deployed(3).await;
    stage.upgrade_bags(1, |unit, application| {
        set(unit, "state", "hovering");
        set(unit, "since", "yesterday");
        set(application, "upgrade-stack", "{\"not\": \"a list\"}");
        set(application, "upgrade-run", "[[");
        set(application, "from-the-future", "kept");
    });
    let ran = stage.event(1, "upgrade-relation-changed").await;
    let log: Vec<&str> = ran.log.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(ran.ended, Ended::Exit(0));
    for key in ["state: `hovering`", "since: `yesterday`", "upgrade-stack", "upgrade-run"] {
        assert!(log.join("\n").contains(&format!("databag key {key}")), "{key}: {log:?}");
    }
    stage.settle_at("1.31.3").await;
    let application = stage.application_bag("upgrade");
    assert_eq!(application.get("from-the-future").map(String::as_str), Some("kept"));
    assert!(!application.contains_key("upgrade-run"), "{application:?}");
    stage.refresh_to_new();
    stage.settle_at("1.32.1").await;
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn a_word_that_is_none_of_the_options_is_blocked_with_the_command() {
    let mut stage = Stage::deployed(1).await;
    stage.rehearsal.engine.model.configure("k8s", "pause-after-unit-refresh", json!("sometimes"));
    stage.event(0, "config-changed").await;
    let text = "Config pause-after-unit-refresh: none, first or all. \
                Set it: juju config k8s pause-after-unit-refresh=none";
    assert_eq!(stage.status(0), ("blocked".to_owned(), text.to_owned()));
    stage.rehearsal.engine.model.configure("k8s", "pause-after-unit-refresh", json!("none"));
    stage.event(0, "config-changed").await;
    assert_eq!(stage.message(0), "Ready");
}

#[tokio::test(flavor = "current_thread")]
async fn snapd_away_or_k8sd_away_is_a_status_and_passes_by_itself() {
    let mut stage = Stage::deployed(3).await;
    let now = stage.rehearsal.engine.now;
    let machine = stage.rehearsal.engine.fleet.machines.values_mut().nth(1).unwrap();
    machine.snapd.restart(SimTime(now.0 + 60_000));
    let ran = stage.event(1, "update-status").await;
    assert_eq!(ran.ended, Ended::Exit(0), "{}", ran.output);
    assert!(stage.message(1).starts_with("Waiting for snapd:"), "{}", stage.message(1));
    stage.until(5, "it passes", |stage| stage.message(1) == "Ready").await;

    let (machine, now) = (k8s_sim::wire::MachineId(2), stage.rehearsal.engine.now);
    let cluster = &mut stage.rehearsal.engine.fleet.cluster;
    cluster.snap_event(machine, now, k8s_sim::wire::SnapEvent::ServicesStopped);
    let ran = stage.event(2, "update-status").await;
    assert_eq!(ran.ended, Ended::Exit(0), "{}", ran.output);
    assert!(stage.message(2).starts_with("Waiting for k8sd:"), "{}", stage.message(2));
}

#[tokio::test(flavor = "current_thread")]
async fn a_broken_kubeconfig_stands_against_an_upgrade_and_is_named() {
    let mut stage = Stage::deployed(1).await;
    let root = stage.rehearsal.engine.fleet.machines.values().next().unwrap().root.clone();
    let kubeconfig = root.join("etc/kubernetes/admin.conf");
    let good = std::fs::read(&kubeconfig).unwrap();
    for (bad, says) in [
        (&b""[..], "the kubeconfig is empty"),
        (b"\xff\xfe{", "the kubeconfig can't be read"),
        (b"clusters: {", "the kubeconfig is not YAML (line 2)"),
        (b"current-context: k8s", "the kubeconfig's `contexts` is missing"),
    ] {
        std::fs::write(&kubeconfig, bad).unwrap();
        let check = stage.action(0, "pre-upgrade-check", json!({"skip": "", "force": false})).await;
        let why = check.failed.unwrap();
        assert!(why.contains("Not ready to upgrade") && why.contains(says), "{why}");
        assert!(check.results["checks"].contains("id: api\n  verdict: fail"), "{:?}", check.results);
    }
    std::fs::write(&kubeconfig, good).unwrap();
    let check = stage.action(0, "pre-upgrade-check", json!({"skip": "", "force": false})).await;
    assert_eq!(check.failed, None);
    assert_eq!(stage.failed_hooks(), Vec::<String>::new());
}

#[tokio::test(flavor = "current_thread")]
async fn a_charm_without_its_templates_is_blocked_and_says_so() {
    let mut stage = Stage::deployed(1).await;
    let root = stage.rehearsal.engine.fleet.machines.values().next().unwrap().root.clone();
    let manifest = root.join("var/lib/juju/agents/unit-k8s-0/charm/templates/snap_installation.yaml");
    std::fs::write(&manifest, BAD_MANIFEST).unwrap();
    let ran = stage.event(0, "update-status").await;
    assert_eq!(ran.ended, Ended::Exit(0), "{}", ran.output);
    let (status, message) = stage.status(0);
    assert_eq!(status, "blocked");
    assert!(message.contains("`revision`") && message.ends_with(". Mend it: juju refresh k8s"), "{message}");
    assert_eq!(ran.did, Vec::<String>::new(), "nothing is done about a pin that can't be read");
}
