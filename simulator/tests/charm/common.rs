//! What the tests of the whole charm share: a rehearsal of the release binary, and questions about it.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_sim::cli::{self, Settings, UpgradeSettings};
use k8s_sim::engine::Ran;
use k8s_sim::juju::{ActionResult, UnitId};
use k8s_sim::rehearsal::{APPLICATION, Rehearsal, Show};
use k8s_sim::time::SimTime;
use serde_json::Value;
use tempfile::TempDir;

/// A rehearsal that is under way.
pub(crate) struct Stage {
    pub(crate) rehearsal: Rehearsal,
    _work: TempDir,
}

pub(crate) fn unit(number: u32) -> UnitId {
    UnitId::new(APPLICATION, number)
}

fn settings(arguments: &str) -> UpgradeSettings {
    let Settings::Upgrade(settings) = cli::parse(format!("k8s-sim upgrade {arguments}").split_whitespace()).unwrap();
    settings
}

impl Stage {
    /// An empty stage, with both charms laid out.
    pub(crate) fn empty(arguments: &str) -> Self {
        let work = tempfile::Builder::new().prefix("k8s-sim-").tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_k8s-sim"));
        let rehearsal = Rehearsal::new(&settings(arguments), work.path(), program).unwrap();
        Self { rehearsal, _work: work }
    }

    /// So many units, deployed and settled.
    pub(crate) async fn deployed(units: u32) -> Self {
        let mut stage = Self::empty("");
        assert!(stage.rehearsal.deploy(units, &mut Show::nothing()).await.unwrap(), "{}", stage.shown());
        stage
    }

    pub(crate) fn shown(&self) -> String {
        let units = self.rehearsal.engine.model.units.values();
        let lines = units.map(|unit| format!("{} {}: {}", unit.id, unit.workload.status, unit.workload.message));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn status(&self, number: u32) -> (String, String) {
        let status = &self.rehearsal.engine.model.units[&unit(number)].workload;
        (status.status.clone(), status.message.clone())
    }

    pub(crate) fn message(&self, number: u32) -> String {
        self.status(number).1
    }

    /// Runs until something is so; fails the test when it isn't within so many simulated minutes.
    pub(crate) async fn until(&mut self, minutes: u64, what: &str, is_so: impl Fn(&Self) -> bool) {
        let limit = SimTime(self.rehearsal.engine.now.0 + minutes * 60_000);
        while !is_so(self) {
            let now = self.rehearsal.engine.now;
            assert!(now < limit, "{what}: not within {minutes} minutes\n{}", self.shown());
            assert!(self.rehearsal.engine.step().await.unwrap(), "{what}: nothing happens any more\n{}", self.shown());
        }
    }

    /// Runs for so long, in simulated seconds.
    pub(crate) async fn pass(&mut self, seconds: u64) {
        let limit = SimTime(self.rehearsal.engine.now.0 + seconds * 1000);
        while self.rehearsal.engine.now < limit && self.rehearsal.engine.step().await.unwrap() {}
    }

    /// Runs until every unit is at that version and at rest.
    pub(crate) async fn settle_at(&mut self, version: &str) {
        let version = version.parse().unwrap();
        let settled = self.rehearsal.settle("settling", &version, &mut Show::nothing()).await.unwrap();
        assert!(settled, "{}", self.shown());
    }

    pub(crate) fn refresh_to_new(&mut self) {
        self.rehearsal.refresh();
    }

    pub(crate) fn refresh_to_old(&mut self) {
        let directory = self.rehearsal.from.directory.clone();
        self.rehearsal.engine.model.refresh(APPLICATION, directory);
        self.rehearsal.engine.notice_all();
    }

    pub(crate) async fn action(&mut self, number: u32, name: &str, parameters: Value) -> ActionResult {
        let parameters = parameters.as_object().unwrap().clone();
        let id = self.rehearsal.engine.run_action(&unit(number), name, parameters).await.unwrap();
        self.rehearsal.engine.model.actions[&id].result.clone().expect("the action ends")
    }

    /// The broken invariants, as text.
    pub(crate) fn violations(&self) -> Vec<String> {
        let violations = &self.rehearsal.engine.checker.violations;
        violations.iter().map(|broken| format!("{}: {}", broken.invariant, broken.text)).collect()
    }

    /// The units whose snap was refreshed, in order.
    pub(crate) fn refreshed(&self) -> Vec<String> {
        let refreshes = |ran: &&Ran| ran.did.iter().any(|deed| deed.starts_with("snapd: refresh"));
        self.rehearsal.engine.ran.iter().filter(refreshes).map(|ran| ran.unit.to_string()).collect()
    }

    pub(crate) fn application_bag(&self, relation: &str) -> BTreeMap<String, String> {
        let relations = &self.rehearsal.engine.model.relations;
        relations.values().find(|found| found.name == relation).unwrap().application_bags[APPLICATION].content.clone()
    }

    /// Hooks whose process did not end with 0.
    pub(crate) fn failed_hooks(&self) -> Vec<String> {
        let failed = |ran: &&Ran| ran.ended != k8s_sim::juju::Ended::Exit(0);
        let told = |ran: &Ran| format!("{} of {}: {:?} {}", ran.hook, ran.unit, ran.ended, ran.output);
        self.rehearsal.engine.ran.iter().filter(failed).map(told).collect()
    }
}
