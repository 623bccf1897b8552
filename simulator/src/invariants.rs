//! The upgrade's invariants, checked from outside after each step: what Juju, snapd and the clusters show, and nothing
//! that the charm thinks.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde_json::Value;

use crate::fleet::Fleet;
use crate::juju::{Model, UnitId};
use crate::report::Violation;
use crate::snapd::ChangeView;
use crate::time::SimTime;

/// The words that v0 knows for a unit's state.
const STATES: [&str; 6] = ["idle", "ready", "upgrading", "completed", "failed", "recovery"];

/// What is seen of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitView {
    /// The change in progress of its snap.
    pub change: Option<ChangeView>,
    /// The version of its snap.
    pub version: Option<Version>,
    /// Its bag of `upgrade`.
    pub bag: BTreeMap<String, String>,
    /// Its workload's status and text.
    pub status: (String, String),
    /// Whether its hook is in error.
    pub in_error: bool,
}

/// What is seen at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// When.
    pub now: SimTime,
    /// Control-plane units.
    pub units: BTreeMap<UnitId, UnitView>,
    /// The application's bag of `upgrade`.
    pub application: BTreeMap<String, String>,
    /// Clusters of three or more control planes that have no quorum.
    pub without_quorum: BTreeSet<String>,
    /// How many clusters there are.
    pub clusters: usize,
}

impl Observation {
    /// Looks at everything.
    pub fn of(model: &Model, fleet: &Fleet, now: SimTime) -> Self {
        let upgrade = model.relations.values().find(|relation| relation.name == "upgrade");
        let view = |id: &UnitId| {
            let unit = model.units.get(id)?;
            let machine = fleet.view(unit.machine);
            let bag = upgrade.and_then(|relation| relation.scope.get(id)).map(|bag| bag.content.clone());
            Some(UnitView {
                change: machine.as_ref().and_then(|view| view.change.clone()),
                version: machine.and_then(|view| view.installed).map(|snap| snap.version),
                bag: bag.unwrap_or_default(),
                status: (unit.workload.status.clone(), unit.workload.message.clone()),
                in_error: unit.failed.is_some(),
            })
        };
        let application = upgrade.and_then(|relation| relation.application_bags.values().next());
        let clusters = fleet.cluster.clusters();
        let large = clusters.iter().filter(|cluster| cluster.members.len() > 2);
        Self {
            now,
            units: model.units.keys().filter_map(|id| Some((id.clone(), view(id)?))).collect(),
            application: application.map(|bag| bag.content.clone()).unwrap_or_default(),
            without_quorum: large
                .filter(|cluster| !fleet.cluster.has_quorum(cluster.id))
                .map(|cluster| cluster.id.to_string())
                .collect(),
            clusters: clusters.len(),
        }
    }

    /// Whether every unit is at rest and says so, and no run is on.
    pub fn is_settled(&self) -> bool {
        let at_rest = |view: &UnitView| {
            view.status.0 == "active" && !view.in_error && view.bag.get("state").is_some_and(|state| state == "idle")
        };
        !self.application.contains_key("upgrade-run") && self.units.values().all(at_rest)
    }

    fn refreshing(&self) -> BTreeMap<&UnitId, &ChangeView> {
        self.units
            .iter()
            .filter_map(|(id, view)| Some((id, view.change.as_ref()?)))
            .filter(|(_, change)| change.kind == "refresh-snap")
            .collect()
    }

    fn stack(&self) -> Option<Vec<u64>> {
        let stack: Value = serde_json::from_str(self.application.get("upgrade-stack")?).ok()?;
        stack.as_array()?.iter().map(Value::as_u64).collect()
    }
}

/// A step that the version table fails, where nobody has said that it is to be taken: another major version, more than
/// one minor up, or a minor down that is not back to what the run came from.
fn failing_step(view: &UnitView, application: &BTreeMap<String, String>) -> Option<String> {
    let (from, to) = (view.version.as_ref()?, view.change.as_ref()?.to.as_ref()?);
    let run: Value = application.get("upgrade-run").and_then(|run| serde_json::from_str(run).ok()).unwrap_or_default();
    let is_origin = |origin: &Value| origin["version"].as_str() == Some(to.to_string().as_str());
    let comes_from = run["from"].as_object().is_some_and(|units| units.values().any(is_origin));
    let fails = from.major != to.major || to.minor > from.minor + 1 || (to.minor < from.minor && !comes_from);
    let bag = |key: &str| view.bag.get(key).cloned().unwrap_or_default();
    let words = [run["forced"].to_string(), bag("go"), bag("forced")];
    let forced = words.iter().any(|word| word.contains("versions"));
    (fails && !forced).then(|| format!("{from} to {to}"))
}

/// Watches, and remembers what it has said.
#[derive(Debug, Default)]
pub struct Checker {
    /// What was broken, in order; each once.
    pub violations: Vec<Violation>,
    said: BTreeSet<(String, String)>,
    seen: BTreeSet<(UnitId, String)>,
}

impl Checker {
    /// Looks at a moment.
    pub fn check(&mut self, seen: &Observation) {
        self.one_at_a_time(seen);
        self.begins_well(seen);
        self.readable_for_v0(seen);
        self.blocked_says_what_ends_it(seen);
        if seen.clusters > 1 {
            self.say(seen.now, "R13", format!("there are {} clusters", seen.clusters));
        }
    }

    fn say(&mut self, time: SimTime, invariant: &str, text: String) {
        if self.said.insert((invariant.to_owned(), text.clone())) {
            self.violations.push(Violation { time, invariant: invariant.to_owned(), text });
        }
    }

    /// I1: at most one unit's snap is refreshed at any moment.
    fn one_at_a_time(&mut self, seen: &Observation) {
        let refreshing: Vec<String> = seen.refreshing().keys().map(ToString::to_string).collect();
        if refreshing.len() > 1 {
            self.say(seen.now, "I1", format!("{} are refreshed at once", refreshing.join(" and ")));
        }
    }

    /// I1 and I2, when a refresh begins: only the holder's, beside no failed unit, and the quorum stays.
    fn begins_well(&mut self, seen: &Observation) {
        let begun: Vec<(UnitId, String)> = seen
            .refreshing()
            .into_iter()
            .map(|(id, change)| (id.clone(), change.id.clone()))
            .filter(|key| !self.seen.contains(key))
            .collect();
        for (unit, change) in begun {
            self.seen.insert((unit.clone(), change));
            let holder = seen.stack().and_then(|stack| stack.last().copied());
            if holder != Some(u64::from(unit.number)) {
                self.say(seen.now, "I1", format!("{unit} is refreshed without the token"));
            }
            let failed = |view: &UnitView| view.bag.get("state").is_some_and(|state| state == "failed");
            let others = seen.units.iter().filter(|(id, view)| **id != unit && failed(view));
            for (other, _) in others {
                self.say(seen.now, "I2", format!("{unit} begins while {other} has failed"));
            }
            if let Some(step) = seen.units.get(&unit).and_then(|view| failing_step(view, &seen.application)) {
                self.say(seen.now, "I2", format!("{unit} goes from {step} without the admin's word"));
            }
        }
        if !seen.refreshing().is_empty() {
            for cluster in &seen.without_quorum {
                self.say(seen.now, "I2", format!("{cluster} has no quorum while a unit is refreshed"));
            }
        }
    }

    /// I6: v0 can read what stands under its keys.
    fn readable_for_v0(&mut self, seen: &Observation) {
        for (unit, view) in &seen.units {
            if let Some(state) = view.bag.get("state").filter(|state| !STATES.contains(&state.as_str())) {
                self.say(seen.now, "I6", format!("{unit} has the state {state}"));
            }
        }
        if seen.application.contains_key("upgrade-stack") && seen.stack().is_none() {
            self.say(seen.now, "I6", format!("upgrade-stack is {}", seen.application["upgrade-stack"]));
        }
        if let Some(dependencies) = seen.application.get("dependencies") {
            let value: Value = serde_json::from_str(dependencies).unwrap_or_default();
            let whole = |member: &str| {
                ["dependencies", "name", "upgrade_supported", "version"]
                    .iter()
                    .all(|key| value[member].get(key).is_some())
            };
            if !whole("k8s_charm") || !whole("k8s_service") {
                self.say(seen.now, "I6", format!("dependencies are {dependencies}"));
            }
        }
    }

    /// I7: a Blocked message contains the command that ends it.
    fn blocked_says_what_ends_it(&mut self, seen: &Observation) {
        for (unit, view) in &seen.units {
            let (status, message) = &view.status;
            if status == "blocked" && !message.contains("juju ") {
                self.say(seen.now, "I7", format!("{unit} is blocked without a way out: {message}"));
            }
        }
    }

    /// I7, when nothing moves: if not all is well, some unit says what is awaited.
    pub fn at_rest(&mut self, seen: &Observation) {
        let unwell = |view: &UnitView| view.bag.get("state").is_some_and(|state| state != "idle");
        let says = |view: &UnitView| view.status.0 != "active" && !view.status.1.is_empty();
        if seen.units.values().any(unwell) && !seen.units.values().any(says) {
            self.say(seen.now, "I7", "nothing moves, and no unit says what is awaited".to_owned());
        }
    }

    /// I4: a settled hook writes nothing and sets no status.
    pub fn settled_hook(&mut self, time: SimTime, unit: &UnitId, hook: &str, did: &[String], status: Option<&str>) {
        if !did.is_empty() || status.is_some() {
            let did: Vec<&str> = did.iter().map(String::as_str).chain(status).collect();
            self.say(time, "I4", format!("{hook} of {unit}, with nothing to do, did: {}", did.join("; ")));
        }
    }
}
