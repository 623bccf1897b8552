//! The engine: one charm process at a time, in real time, while simulated time stands still; then the next event.
//!
//! Only a process that waits for a slow server (a bootstrap, a join) lets time move on.

mod attend;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokio::net::UnixListener;
use tokio::sync::mpsc::UnboundedReceiver;

use self::attend::Watch;
use crate::fleet::Fleet;
use crate::invariants::{Checker, Observation};
use crate::juju::{Context, Ended, Hook, Model, Operation, UnitId};
use crate::process::{self, AgentPaths, Cost};
use crate::servers::{Incoming, Servers};
use crate::snapd::Store;
use crate::time::SimTime;
use crate::tool_client::{MACHINE_TOOLS, NAMES};
use crate::wire::MachineId;

/// How long a change takes until an agent notices it, in milliseconds (S31).
const NOTICE: (u64, u64) = (200, 3_000);

/// How long after its process's end a hook is flushed, in milliseconds.
const FLUSH: (u64, u64) = (300, 1_500);

/// What will happen next to a unit.
#[derive(Debug)]
enum Event {
    /// Its agent looks.
    Look(UnitId),
    /// Its hook's writes are flushed.
    Flush(Box<Finished>),
}

/// A hook whose process has ended.
#[derive(Debug)]
struct Finished {
    context: Context,
    ended: Ended,
}

/// A hook that ran, as it is told.
#[derive(Debug, Clone)]
pub struct Ran {
    /// When it began.
    pub at: SimTime,
    /// The unit.
    pub unit: UnitId,
    /// The hook's name.
    pub hook: String,
    /// Whether it was a wake-up.
    pub wake_up: bool,
    /// The hook tools that it called, in order.
    pub calls: Vec<String>,
    /// What it asked the machine's servers, in order.
    pub requests: Vec<String>,
    /// What it did.
    pub did: Vec<String>,
    /// The status that it set.
    pub status: Option<String>,
    /// What it logged.
    pub log: Vec<(String, String)>,
    /// What its process wrote.
    pub output: String,
    /// How its process ended.
    pub ended: Ended,
    /// What its process cost.
    pub cost: Cost,
}

/// What a test does to a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Its process is killed when it has asked this of a server and been answered.
    KillAfterRequest(String),
}

/// A rehearsal under way.
#[derive(Debug)]
pub struct Engine {
    /// Juju.
    pub model: Model,
    /// The machines.
    pub fleet: Fleet,
    /// The present.
    pub now: SimTime,
    /// What ran, in order.
    pub ran: Vec<Ran>,
    /// What watches the invariants.
    pub checker: Checker,
    /// Units whose part is played, and their machines.
    pub played: BTreeMap<UnitId, MachineId>,
    /// A fault for the next hook of a unit that meets it.
    pub faults: Vec<(UnitId, Fault)>,
    work: PathBuf,
    program: PathBuf,
    servers: Servers,
    incoming: UnboundedReceiver<Incoming>,
    events: BTreeMap<(SimTime, u64), Event>,
    made: u64,
    /// Units whose hook runs, or is not flushed yet.
    busy: BTreeSet<UnitId>,
    machines_made: u32,
}

/// Why a rehearsal could not go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A file or a socket.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A charm's process hangs.
    #[error("{hook} of {unit} does nothing any more")]
    Hangs {
        /// Its hook.
        hook: String,
        /// Its unit.
        unit: UnitId,
    },
    /// The clusters' files.
    #[error("{0}")]
    Trouble(String),
}

fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> EngineError {
    let doing = doing.into();
    move |source| EngineError::Io { doing, source }
}

impl Engine {
    /// An engine that works below a directory; `program` is this very program, which the hook tools are links to.
    ///
    /// # Errors
    ///
    /// The stand-ins can't be made.
    pub fn new(seed: u64, store: Store, work: &Path, program: &Path) -> Result<Self, EngineError> {
        let (servers, incoming) = Servers::new();
        let engine = Self {
            model: Model::new(seed),
            fleet: Fleet::new(seed, store),
            now: SimTime::default(),
            ran: Vec::new(),
            checker: Checker::default(),
            played: BTreeMap::new(),
            faults: Vec::new(),
            work: work.to_owned(),
            program: program.to_owned(),
            servers,
            incoming,
            events: BTreeMap::new(),
            made: 0,
            busy: BTreeSet::new(),
            machines_made: 0,
        };
        engine.link(&engine.stand_ins(), &MACHINE_TOOLS)?;
        Ok(engine)
    }

    fn stand_ins(&self) -> PathBuf {
        self.work.join("bin")
    }

    fn link(&self, directory: &Path, names: &[&str]) -> Result<(), EngineError> {
        let failed = |source| EngineError::Io { doing: format!("make tools in {}", directory.display()), source };
        std::fs::create_dir_all(directory).map_err(failed)?;
        for name in names {
            symlink(&self.program, directory.join(name)).map_err(failed)?;
        }
        Ok(())
    }

    /// A new machine.
    ///
    /// # Errors
    ///
    /// Its directories can't be made.
    pub fn add_machine(&mut self) -> Result<MachineId, EngineError> {
        let machine = MachineId(self.machines_made);
        self.machines_made += 1;
        let root = self.work.join(machine.to_string());
        self.fleet.add_machine(machine, &root).map_err(io_error(format!("make machine {machine}")))?;
        Ok(machine)
    }

    /// A unit on a machine of its own.
    ///
    /// # Errors
    ///
    /// Its machine can't be made.
    pub fn add_unit(&mut self, application: &str) -> Result<UnitId, EngineError> {
        let machine = self.add_machine()?;
        let root = self.work.join(machine.to_string());
        let unknown = || EngineError::Trouble(format!("there is no application {application}"));
        let unit = self.model.add_unit(application, machine).ok_or_else(unknown)?;
        let paths = AgentPaths::new(&root, &unit);
        self.link(&paths.tools, &NAMES)?;
        self.swap(&unit)?;
        self.notice(&unit);
        Ok(unit)
    }

    /// Whether no hook runs, and nothing is about to.
    pub fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.events.is_empty()
    }

    /// Whether any unit's hook runs, or is not flushed yet.
    pub fn has_busy_units(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Whether a hook of this unit runs.
    pub fn is_busy(&self, unit: &UnitId) -> bool {
        self.busy.contains(unit)
    }

    fn machine_of(&self, unit: &UnitId) -> MachineId {
        self.model.units.get(unit).map_or(MachineId(0), |unit| unit.machine)
    }

    fn paths(&self, unit: &UnitId) -> AgentPaths {
        AgentPaths::new(&self.work.join(self.machine_of(unit).to_string()), unit)
    }

    /// Puts the application's charm into a unit's directory: what the old one had goes, what it made itself stays (S42).
    fn swap(&mut self, unit: &UnitId) -> Result<(), EngineError> {
        let target = self.paths(unit).charm;
        let Some(application) = self.model.applications.get(&unit.application) else { return Ok(()) };
        let failed = |source| EngineError::Io { doing: format!("put the charm of {unit} in place"), source };
        for name in ["templates", "hooks", "dispatch"] {
            let path = target.join(name);
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        xtask::copy_tree(&application.charm, &target).map_err(|error| EngineError::Trouble(error.to_string()))
    }

    fn schedule(&mut self, at: SimTime, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// A unit's agent will look soon.
    fn notice(&mut self, unit: &UnitId) {
        let delay = self.model.within(NOTICE.0, NOTICE.1);
        self.schedule(SimTime(self.now.0 + delay), Event::Look(unit.clone()));
    }

    /// Something changed in the model: every agent will look soon.
    pub fn notice_all(&mut self) {
        let units: Vec<UnitId> = self.model.units.keys().cloned().collect();
        for unit in units {
            self.notice(&unit);
        }
    }

    /// Asks for an action, and runs until it has ended. Answers its number.
    ///
    /// # Errors
    ///
    /// The rehearsal can't go on.
    pub async fn run_action(
        &mut self,
        unit: &UnitId,
        name: &str,
        parameters: Map<String, Value>,
    ) -> Result<u32, EngineError> {
        let id = self.model.run_action(unit, name, parameters);
        self.notice(unit);
        let limit = SimTime(self.now.0 + 600_000);
        while self.model.actions.get(&id).is_some_and(|action| action.result.is_none()) && self.now < limit {
            if !self.step().await? {
                break;
            }
        }
        Ok(id)
    }

    /// Lets everything happen up to a time.
    ///
    /// # Errors
    ///
    /// The rehearsal can't go on.
    pub async fn run_until(&mut self, at: SimTime) -> Result<(), EngineError> {
        while self.next_event().is_some_and(|next| next <= at) && self.step().await? {}
        self.go_on_to(at.max(self.now)).await
    }

    /// Runs an event on a unit again and again, whatever the order of things; answers what ran.
    ///
    /// # Errors
    ///
    /// The rehearsal can't go on.
    pub async fn repeat(&mut self, unit: &UnitId, event: &str, times: usize) -> Result<Vec<Ran>, EngineError> {
        let hook = self.model.hook_named(unit, event);
        let hook = hook.ok_or_else(|| EngineError::Trouble(format!("{unit} has no {event} now")))?;
        let before = self.ran.len();
        for _ in 0..times {
            self.run(unit, hook.clone()).await?;
            while self.busy.contains(unit) && self.step().await? {}
        }
        let ran = self.ran.iter().skip(before).filter(|ran| ran.unit == *unit && ran.hook == event);
        Ok(ran.cloned().collect())
    }

    /// When the next thing happens.
    fn next_event(&self) -> Option<SimTime> {
        let looks = self.model.units.keys().filter(|unit| !self.busy.contains(*unit));
        let looks = looks.filter_map(|unit| self.model.next_look(unit));
        let scheduled = self.events.keys().next().map(|(at, _)| *at);
        looks.chain(scheduled).chain(self.fleet.next_event()).min()
    }

    /// Lets the next thing happen. Whether there was one.
    ///
    /// # Errors
    ///
    /// The rehearsal can't go on.
    pub async fn step(&mut self) -> Result<bool, EngineError> {
        let Some(at) = self.next_event() else { return Ok(false) };
        self.go_on_to(at.max(self.now)).await?;
        self.fire_timers();
        let scheduled = self.events.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= self.now);
        if scheduled.is_some() {
            if let Some((_, event)) = self.events.pop_first() {
                match event {
                    Event::Look(unit) => self.look(&unit).await?,
                    Event::Flush(finished) => self.flush(*finished),
                }
            }
        } else {
            let due = |unit: &&UnitId| self.model.next_look(unit).is_some_and(|at| at <= self.now);
            let idle = self.model.units.keys().filter(|unit| !self.busy.contains(*unit));
            let unit = idle.into_iter().find(due).cloned();
            if let Some(unit) = unit {
                self.look(&unit).await?;
            }
        }
        self.check();
        Ok(true)
    }

    async fn go_on_to(&mut self, at: SimTime) -> Result<(), EngineError> {
        self.now = at;
        self.fleet.advance(at);
        if let Some(trouble) = self.fleet.cluster.take_troubles().pop() {
            return Err(EngineError::Trouble(trouble));
        }
        self.servers.sync(&self.fleet, at).await.map_err(io_error("open a server"))
    }

    /// Timers of systemd's that are due send a `juju-exec`.
    fn fire_timers(&mut self) {
        let machines: Vec<MachineId> = self.fleet.machines.keys().copied().collect();
        for machine in machines {
            let due = self.fleet.machines.get_mut(&machine).and_then(|found| found.systemd.due(self.now));
            let Some((timer, command)) = due else { continue };
            let Some(at) = command.iter().position(|word| word == "juju-exec") else { continue };
            let (unit, script) = (command.get(at + 1), command.get(at + 2));
            let unit = self.model.units.keys().find(|id| Some(&id.to_string()) == unit).cloned();
            if let (Some(unit), Some(script)) = (unit, script) {
                self.model.exec(&unit, script.clone(), Some(timer));
                self.schedule(self.now, Event::Look(unit));
            }
        }
    }

    async fn look(&mut self, unit: &UnitId) -> Result<(), EngineError> {
        if self.busy.contains(unit) {
            return Ok(());
        }
        match self.model.look(unit, self.now) {
            None => {
                if self.model.is_removed(unit) {
                    self.model.units.remove(unit);
                    self.notice_all();
                }
                Ok(())
            }
            Some(Operation::Swap) => {
                self.swap(unit)?;
                self.model.swapped(unit);
                self.notice(unit);
                Ok(())
            }
            Some(Operation::Hook(hook)) => self.run(unit, hook).await,
        }
    }

    /// Runs a hook's process to its end; its flush comes a little later.
    async fn run(&mut self, unit: &UnitId, hook: Hook) -> Result<(), EngineError> {
        self.busy.insert(unit.clone());
        self.go_on_to(self.now).await?;
        let paths = self.paths(unit);
        let mut context = self.model.begin(unit, hook.clone(), self.now);
        let environment = process::environment(&self.model, unit, &hook, &context.id, &paths, &self.stand_ins());
        let _ = std::fs::remove_file(&paths.socket);
        let socket = UnixListener::bind(&paths.socket).map_err(io_error("open the hook socket"))?;
        let child = process::start(&hook, &paths, &environment).map_err(io_error("start the charm"))?;
        let is_exec = matches!(hook, Hook::Exec(..));
        let before = child.id().filter(|_| is_exec).map_or(0, process::cost_before_charm);
        let mut watch = Watch::default();
        // I4: an `update-status` has nothing to do where all is settled.
        let settled = hook == Hook::UpdateStatus && Observation::of(&self.model, &self.fleet, self.now).is_settled();
        let ended = self.attend(&mut context, &socket, child, &mut watch).await?;
        let _ = std::fs::remove_file(&paths.socket);
        self.ran.push(Ran {
            at: context.began,
            unit: unit.clone(),
            hook: context.name.clone(),
            wake_up: matches!(hook, Hook::Exec(..)),
            calls: context.calls.clone(),
            requests: watch.requests,
            did: std::mem::take(&mut watch.did).into_iter().chain(context.did.iter().cloned()).collect(),
            status: context.status.as_ref().map(|status| format!("{}: {}", status.status, status.message)),
            log: context.log.clone(),
            output: watch.output,
            ended,
            cost: Cost { cpu_ns: watch.cost.cpu_ns.saturating_sub(before), ..watch.cost },
        });
        if let Some(ran) = self.ran.last().filter(|_| settled) {
            self.checker.settled_hook(ran.at, &ran.unit, &ran.hook, &ran.did, ran.status.as_deref());
        }
        let delay = self.model.within(FLUSH.0, FLUSH.1);
        self.schedule(SimTime(self.now.0 + delay), Event::Flush(Box::new(Finished { context, ended })));
        Ok(())
    }

    fn flush(&mut self, finished: Finished) {
        let Finished { context, ended } = finished;
        let wrote = context.has_written();
        self.model.end(&context, ended, self.now);
        self.busy.remove(&context.unit);
        if let Hook::Exec(_, Some(timer)) = &context.hook
            && let Some(machine) = self.fleet.machines.get_mut(&self.machine_of(&context.unit))
        {
            machine.systemd.ended(timer, self.now);
        }
        if wrote {
            self.notice_all();
        } else {
            self.notice(&context.unit);
        }
    }

    fn check(&mut self) {
        let observation = Observation::of(&self.model, &self.fleet, self.now);
        self.checker.check(&observation);
    }
}
