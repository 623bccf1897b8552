//! The rehearsal of an upgrade: deploy, settle, check, refresh, settle again, and tell what happened.

mod workers;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::{fs, io};

use serde_json::{Map, Value};

use crate::cli::{Format, PreUpgradeCheck, UpgradeSettings};
use crate::engine::{Engine, EngineError, Ran};
use crate::invariants::Observation;
use crate::juju::UnitId;
use crate::layout::{self, LayoutError, Pin, PreparedCharm};
use crate::report::{Costs, Line, Live, Progress, RunReport, Screen, UnitRow, Verdict};
use crate::snapd::Store;
use crate::time::SimTime;

/// The application.
pub const APPLICATION: &str = "k8s";

/// The workers' application, and the endpoint that it is related on.
const WORKERS: &str = "k8s-worker";
const WORKERS_ENDPOINT: &str = "k8s-cluster";

/// The revisions that the store has of a charm's snaps where the charm is built here.
const REVISIONS: [u32; 2] = [2001, 2002];

/// How long a deployment or an upgrade may take, in simulated time.
const LIMIT: u64 = 4 * 3600 * 1000;

/// How long a settled application is watched: every unit has an `update-status` in it.
const WATCHED: u64 = 7 * 60 * 1000;

/// Why there is no rehearsal.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// No charm.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The engine stopped.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A file or a directory.
    #[error("cannot {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The charm's own files.
    #[error("the charm's {file} is not what it should be: {problem}")]
    Charm {
        /// Which file.
        file: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

/// Where what happens is shown while it happens.
pub struct Show {
    live: Option<Live>,
}

impl Show {
    /// Shows it on standard output if the report is for people.
    pub fn new(format: Format) -> Self {
        let screen = if io::stdout().is_terminal() { Screen::Terminal } else { Screen::Plain };
        Self { live: (format == Format::Text).then(|| Live::new(screen)) }
    }

    /// Shows nothing.
    pub fn nothing() -> Self {
        Self { live: None }
    }

    fn frame(&mut self, engine: &Engine, progress: &Progress) {
        if let Some(live) = &mut self.live {
            let frame = live.frame(engine.now, &rows(engine), progress);
            let _ = io::stdout().write_all(frame.as_bytes());
        }
    }
}

/// A rehearsal: an engine, and both ends of the upgrade.
#[derive(Debug)]
pub struct Rehearsal {
    /// The engine.
    pub engine: Engine,
    /// The charm that is deployed.
    pub from: PreparedCharm,
    /// The charm that it is refreshed to.
    pub to: PreparedCharm,
    reasons: Vec<String>,
}

impl Rehearsal {
    /// Lays out both charms below a directory, and starts an engine; `program` is this program's own file.
    ///
    /// # Errors
    ///
    /// A charm can't be had, or the machines' directories can't be made.
    pub fn new(settings: &UpgradeSettings, work: &Path, program: &Path) -> Result<Self, RehearsalError> {
        let [first, second] = REVISIONS;
        let from = layout::prepare(&settings.from.source, &settings.from.version, first, &work.join("charm-from"))?;
        let to = layout::prepare(&settings.to.source, &settings.to.version, second, &work.join("charm-to"))?;
        let store = store(&from, &to);
        let mut engine = Engine::new(settings.seed, store, work, program)?;
        let peers = peers(&from.directory)?;
        let defaults = defaults(&from.directory)?;
        engine.model.deploy(APPLICATION, from.directory.clone(), &peers, defaults);
        Ok(Self { engine, from, to, reasons: Vec::new() })
    }

    /// Deploys so many units, and lets them settle.
    ///
    /// # Errors
    ///
    /// The engine stops.
    pub async fn deploy(&mut self, units: u32, show: &mut Show) -> Result<bool, RehearsalError> {
        for _ in 0..units {
            self.engine.add_unit(APPLICATION)?;
        }
        let version = self.from.version.clone();
        self.settle("deploying", &version, show).await
    }

    /// Joins so many workers to the settled cluster. They run no charm: the rehearsal plays their part, as far as the
    /// control plane sees it.
    ///
    /// # Errors
    ///
    /// The engine stops, or a worker can't join.
    pub async fn add_workers(&mut self, workers: u32) -> Result<(), RehearsalError> {
        if workers == 0 {
            return Ok(());
        }
        self.engine.model.relate(WORKERS_ENDPOINT, &[APPLICATION, WORKERS]);
        for number in 0..workers {
            workers::join(&mut self.engine, &UnitId::new(WORKERS, number), &self.from).await?;
        }
        let version = self.from.version.clone();
        self.settle("joining workers", &version, &mut Show::nothing()).await.map(drop)
    }

    /// Runs until every unit is at a version and at rest, or for four simulated hours. Whether it came to rest.
    ///
    /// # Errors
    ///
    /// The engine stops.
    pub async fn settle(
        &mut self,
        doing: &str,
        version: &semver::Version,
        show: &mut Show,
    ) -> Result<bool, RehearsalError> {
        let limit = SimTime(self.engine.now.0 + LIMIT);
        loop {
            let done = at_version(&self.engine, version);
            let total = self.engine.model.units.len();
            show.frame(&self.engine, &Progress { done, total, doing: doing.to_owned() });
            if done == total && is_settled(&self.engine) {
                return Ok(true);
            }
            if self.engine.now >= limit || !self.engine.step().await? {
                let seen = Observation::of(&self.engine.model, &self.engine.fleet, self.engine.now);
                self.engine.checker.at_rest(&seen);
                self.reasons.push(format!("{doing} did not end: {}", what_is_shown(&self.engine)));
                return Ok(false);
            }
        }
    }

    /// Runs `pre-upgrade-check` on the leader.
    ///
    /// # Errors
    ///
    /// The engine stops.
    pub async fn check(&mut self) -> Result<(), RehearsalError> {
        let leader = self.engine.model.applications.get(APPLICATION).and_then(|found| found.leader.clone());
        let Some(leader) = leader else { return Ok(()) };
        let parameters = serde_json::json!({"skip": "", "force": false});
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let id = self.engine.run_action(&leader, "pre-upgrade-check", parameters).await?;
        let result = self.engine.model.actions.get(&id).and_then(|action| action.result.clone()).unwrap_or_default();
        if let Some(why) = result.failed {
            self.reasons.push(format!("pre-upgrade-check: {why}"));
        }
        Ok(())
    }

    /// `juju refresh` to the other charm.
    pub fn refresh(&mut self) {
        self.engine.model.refresh(APPLICATION, self.to.directory.clone());
        self.engine.notice_all();
    }

    /// Watches a settled application: nothing may be written, and no status set.
    ///
    /// # Errors
    ///
    /// The engine stops.
    pub async fn watch(&mut self) -> Result<(), RehearsalError> {
        let until = SimTime(self.engine.now.0 + WATCHED);
        let before = self.engine.ran.len();
        while (self.engine.now < until || self.engine.has_busy_units()) && self.engine.step().await? {}
        let ran: Vec<Ran> = self.engine.ran.iter().skip(before).cloned().collect();
        for hook in ran {
            let status = hook.status.as_deref();
            self.engine.checker.settled_hook(hook.at, &hook.unit, &hook.hook, &hook.did, status);
        }
        Ok(())
    }

    /// What was found since a hook.
    pub fn report(&self, since: usize) -> RunReport {
        let ran = self.engine.ran.iter().skip(since);
        let violations = self.engine.checker.violations.clone();
        let mut reasons = self.reasons.clone();
        reasons.extend(violations.iter().map(|broken| format!("{}: {}", broken.invariant, broken.text)));
        RunReport {
            verdict: if reasons.is_empty() { Verdict::Passed } else { Verdict::Failed { reasons } },
            units: rows(&self.engine),
            timeline: ran.clone().map(line).collect(),
            violations,
            costs: costs(ran),
        }
    }
}

/// Rehearses an upgrade from its beginning to its end.
///
/// # Errors
///
/// There is no charm, or the engine stops.
pub async fn upgrade(settings: &UpgradeSettings, program: &Path, show: &mut Show) -> Result<RunReport, RehearsalError> {
    let work = tempfile::Builder::new().prefix("k8s-sim-").tempdir();
    let work = work.map_err(|source| RehearsalError::Io { doing: "make a directory", source })?;
    let mut rehearsal = Rehearsal::new(settings, work.path(), program)?;
    if rehearsal.deploy(settings.units, show).await? {
        rehearsal.add_workers(settings.workers).await?;
        if settings.check == PreUpgradeCheck::Run {
            rehearsal.check().await?;
        }
        rehearsal.refresh();
        let version = rehearsal.to.version.clone();
        if rehearsal.settle("upgrading", &version, show).await? {
            rehearsal.watch().await?;
        }
    }
    Ok(rehearsal.report(0))
}

fn store(from: &PreparedCharm, to: &PreparedCharm) -> Store {
    let mut store = Store::default();
    for (charm, unnamed) in [from, to].into_iter().zip(REVISIONS) {
        let revision = match &charm.pin {
            Pin::Revision(revision) => *revision,
            Pin::Channel(channel) => {
                store.channels.insert(channel.clone(), unnamed);
                unnamed
            }
        };
        store.revisions.insert(revision, charm.version.clone());
    }
    store
}

fn read_yaml(charm: &Path, file: &'static str) -> Result<serde_yaml::Value, RehearsalError> {
    let bad = |problem: String| RehearsalError::Charm { file, problem };
    let text = fs::read_to_string(charm.join(file)).map_err(|error| bad(error.to_string()))?;
    serde_yaml::from_str(&text).map_err(|error| bad(error.to_string()))
}

fn peers(charm: &Path) -> Result<Vec<String>, RehearsalError> {
    let metadata = read_yaml(charm, "metadata.yaml")?;
    let peers = metadata.get("peers").and_then(serde_yaml::Value::as_mapping);
    Ok(peers.into_iter().flatten().filter_map(|(name, _)| name.as_str().map(str::to_owned)).collect())
}

fn defaults(charm: &Path) -> Result<Map<String, Value>, RehearsalError> {
    let config = read_yaml(charm, "config.yaml")?;
    let options = config.get("options").and_then(serde_yaml::Value::as_mapping);
    let default = |(name, option): (&serde_yaml::Value, &serde_yaml::Value)| {
        let default = serde_json::to_value(option.get("default")?).ok()?;
        Some((name.as_str()?.to_owned(), default))
    };
    Ok(options.into_iter().flatten().filter_map(default).collect())
}

fn is_k8s(unit: &UnitId) -> bool {
    unit.application == APPLICATION
}

fn at_version(engine: &Engine, version: &semver::Version) -> usize {
    let there = |id: &&UnitId| {
        let machine = engine.model.units.get(*id).map(|unit| unit.machine);
        let installed = machine.and_then(|machine| engine.fleet.view(machine)).and_then(|view| view.installed);
        installed.is_some_and(|snap| snap.version == *version)
    };
    engine.model.units.keys().filter(|unit| is_k8s(unit)).filter(there).count()
}

/// Whether every unit is active and idle, none has a hook in error, and no unit wants to be woken.
fn is_settled(engine: &Engine) -> bool {
    let upgrade = engine.model.relations.values().find(|relation| relation.name == "upgrade");
    let idle = |id: &UnitId| {
        let bag = upgrade.and_then(|relation| relation.scope.get(id));
        bag.is_some_and(|bag| bag.content.get("state").is_some_and(|state| state == "idle"))
    };
    let run = upgrade
        .is_none_or(|relation| relation.application_bags.values().all(|bag| !bag.content.contains_key("upgrade-run")));
    let calm = |unit: &crate::juju::Unit| unit.workload.status == "active" && unit.failed.is_none() && idle(&unit.id);
    let timers = engine.fleet.machines.values().all(|machine| machine.systemd.next_event().is_none());
    run && timers && engine.is_idle() && engine.model.units.values().filter(|unit| is_k8s(&unit.id)).all(calm)
}

fn what_is_shown(engine: &Engine) -> String {
    let shown = engine.model.units.values().map(|unit| {
        let error = if unit.failed.is_some() { " (hook failed)" } else { "" };
        format!("{} {}: {}{error}", unit.id, unit.workload.status, unit.workload.message)
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn rows(engine: &Engine) -> Vec<UnitRow> {
    let row = |unit: &crate::juju::Unit| {
        let installed = engine.fleet.view(unit.machine).and_then(|view| view.installed);
        let failed = unit.failed.as_ref().map(|failed| engine.model.hook_name(&failed.hook));
        let (workload, message) = match failed {
            Some(hook) => ("error".to_owned(), format!("hook failed: \"{hook}\"")),
            None => (unit.workload.status.clone(), unit.workload.message.clone()),
        };
        UnitRow {
            unit: unit.id.to_string(),
            leader: engine.model.leads(&unit.id),
            workload,
            agent: if engine.is_busy(&unit.id) { "executing".to_owned() } else { "idle".to_owned() },
            machine: unit.machine.to_string(),
            message,
            version: installed.as_ref().map(|snap| snap.version.to_string()),
            revision: installed.map(|snap| snap.revision),
        }
    };
    engine.model.units.values().map(row).chain(workers::rows(engine)).collect()
}

fn line(ran: &Ran) -> Line {
    Line {
        time: ran.at,
        unit: ran.unit.to_string(),
        hook: ran.hook.clone(),
        did: ran.did.clone(),
        status: ran.status.clone(),
    }
}

fn costs<'a>(ran: impl Iterator<Item = &'a Ran>) -> Costs {
    let mut costs = Costs::default();
    let mut cpu_ns = 0;
    let mut peak_kb = 0;
    for ran in ran {
        if ran.wake_up {
            costs.wakeups += 1;
        } else {
            costs.hooks += 1;
        }
        let calls = u64::try_from(ran.calls.len()).unwrap_or(0);
        costs.calls += calls;
        costs.processes += calls;
        cpu_ns += ran.cost.cpu_ns;
        peak_kb = peak_kb.max(ran.cost.peak_kb);
    }
    costs.cpu_ms = std::time::Duration::from_nanos(cpu_ns).as_secs_f64() * 1e3;
    costs.peak_rss_mb = f64::from(u32::try_from(peak_kb).unwrap_or(u32::MAX)) / 1024.0;
    costs
}
