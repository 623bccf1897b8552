//! Juju, as a charm sees it: applications, units, relations and their databags, leadership, secrets, actions.
//!
//! Rules `S…` are numbered in juju's contract with a charm; each is kept where its number stands.

mod context;
mod look;
mod secrets;
mod tools;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value};

pub use self::context::{ActionResult, Context, Ended};
pub use self::look::Operation;
pub use self::secrets::Secret;

use crate::time::SimTime;
use crate::wire::MachineId;

/// A unit, `k8s/0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId {
    /// Its application.
    pub application: String,
    /// Its number.
    pub number: u32,
}

impl UnitId {
    /// The unit `application/number`.
    pub fn new(application: &str, number: u32) -> Self {
        Self { application: application.to_owned(), number }
    }

    /// As in paths and tags, `unit-k8s-0`.
    pub fn tag(&self) -> String {
        format!("unit-{}-{}", self.application, self.number)
    }

    fn parse(text: &str) -> Option<Self> {
        let (application, number) = text.split_once('/')?;
        Some(Self { application: application.to_owned(), number: number.parse().ok()? })
    }
}

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.application, self.number)
    }
}

/// A databag and the number of its effective writes (3.x counts them).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bag {
    /// What is in it.
    pub content: BTreeMap<String, String>,
    /// How often it changed.
    pub version: u64,
}

impl Bag {
    /// Writes; "" deletes; equal values change nothing (S14).
    fn write(&mut self, changes: &BTreeMap<String, String>) {
        let before = self.content.clone();
        for (key, value) in changes {
            if value.is_empty() {
                self.content.remove(key);
            } else {
                self.content.insert(key.clone(), value.clone());
            }
        }
        self.version += u64::from(self.content != before);
    }
}

/// A relation: a peer relation has one application, others two.
#[derive(Debug, Clone)]
pub struct Relation {
    /// Its number.
    pub id: u32,
    /// The endpoint's name, on every side.
    pub name: String,
    /// Whose.
    pub applications: Vec<String>,
    /// The applications' bags.
    pub application_bags: BTreeMap<String, Bag>,
    /// The bags of units that have entered.
    pub scope: BTreeMap<UnitId, Bag>,
}

impl Relation {
    /// `upgrade:3`.
    pub fn full_id(&self) -> String {
        format!("{}:{}", self.name, self.id)
    }

    /// Whether it is one of an application with itself.
    pub fn is_peer(&self) -> bool {
        self.applications.len() == 1
    }

    /// The application on the other side; of a peer relation its own.
    pub fn remote_application(&self, of: &str) -> String {
        self.applications.iter().find(|name| *name != of).cloned().unwrap_or_else(|| of.to_owned())
    }
}

/// An application.
#[derive(Debug, Clone)]
pub struct Application {
    /// The charm directory that its units are to run.
    pub charm: PathBuf,
    /// How often it was refreshed.
    pub generation: u64,
    /// Options that were set.
    pub config: Map<String, Value>,
    /// Options' defaults.
    pub defaults: Map<String, Value>,
    /// Who leads.
    pub leader: Option<UnitId>,
    next_number: u32,
}

/// A hook, an action or a `juju-exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Juju's")]
pub enum Hook {
    Install,
    Start,
    Stop,
    Remove,
    ConfigChanged,
    UpgradeCharm,
    LeaderElected,
    UpdateStatus,
    /// A secret that the unit reads has another revision: its id.
    SecretChanged(String),
    /// A relation's: its number, `joined`, and the unit that it is about; none for the application's bag.
    Relation(u32, &'static str, Option<UnitId>),
    /// An action by its number.
    Action(u32),
    /// A script, and the timer that sent it.
    Exec(String, Option<String>),
}

/// A workload's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// `active`, ….
    pub status: String,
    /// Its text.
    pub message: String,
}

/// What a unit's agent knows of one relation.
#[derive(Debug, Clone, Default)]
struct LocalRelation {
    created: bool,
    /// Units whose `-joined` has begun, and the version of their bag that was told last; none: `-changed` is due.
    joined: BTreeMap<UnitId, Option<u64>>,
    /// Versions of application bags that were told last.
    applications: BTreeMap<String, u64>,
    /// Members' bags as they were read first since their last hook (S18).
    cache: BTreeMap<UnitId, BTreeMap<String, String>>,
}

/// A hook that failed.
#[derive(Debug, Clone)]
pub struct FailedHook {
    /// It.
    pub hook: Hook,
    /// When it is tried again.
    pub retry_at: SimTime,
    attempts: u32,
}

/// How far a unit's life is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    New,
    Installed,
    Started,
    Stopped,
    Removed,
}

/// A unit.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its name.
    pub id: UnitId,
    /// Its machine.
    pub machine: MachineId,
    /// Its workload's status.
    pub workload: Status,
    /// A hook that failed and waits to be tried again.
    pub failed: Option<FailedHook>,
    /// Whether it is being removed.
    pub dying: bool,
    /// Which of the application's charms it runs.
    pub generation: u64,
    phase: Phase,
    queued: VecDeque<Hook>,
    relations: BTreeMap<u32, LocalRelation>,
    config_seen: Option<String>,
    told_to_lead: bool,
    execs: VecDeque<Hook>,
    actions: VecDeque<u32>,
    update_status_at: Option<SimTime>,
}

/// An action that was asked for.
#[derive(Debug, Clone)]
pub struct Action {
    /// Its name.
    pub name: String,
    /// Its parameters, defaults filled in.
    pub parameters: Map<String, Value>,
    /// How it ended, if it has.
    pub result: Option<ActionResult>,
}

/// A model of Juju's.
#[derive(Debug)]
pub struct Model {
    /// Applications by name.
    pub applications: BTreeMap<String, Application>,
    /// Units.
    pub units: BTreeMap<UnitId, Unit>,
    /// Relations by number.
    pub relations: BTreeMap<u32, Relation>,
    /// Secrets by id.
    pub secrets: BTreeMap<String, Secret>,
    /// Actions by number.
    pub actions: BTreeMap<u32, Action>,
    contexts_made: u64,
    random: ChaCha8Rng,
}

impl Model {
    /// An empty model. The same seed makes the same choices.
    pub fn new(seed: u64) -> Self {
        Self {
            applications: BTreeMap::new(),
            units: BTreeMap::new(),
            relations: BTreeMap::new(),
            secrets: BTreeMap::new(),
            actions: BTreeMap::new(),
            contexts_made: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Deploys an application without units; its peer relations are there at once.
    pub fn deploy(&mut self, name: &str, charm: PathBuf, peers: &[String], defaults: Map<String, Value>) {
        for peer in peers {
            self.relate(peer, &[name]);
        }
        let application =
            Application { charm, generation: 0, config: Map::new(), defaults, leader: None, next_number: 0 };
        self.applications.insert(name.to_owned(), application);
    }

    /// Adds a relation.
    pub fn relate(&mut self, endpoint: &str, applications: &[&str]) -> u32 {
        let id = u32::try_from(self.relations.len()).unwrap_or(u32::MAX);
        let applications: Vec<String> = applications.iter().map(|name| (*name).to_owned()).collect();
        let bags = applications.iter().map(|name| (name.clone(), Bag::default())).collect();
        let relation =
            Relation { id, name: endpoint.to_owned(), applications, application_bags: bags, scope: BTreeMap::new() };
        self.relations.insert(id, relation);
        id
    }

    /// A unit whose part is played enters a relation with this bag.
    pub fn enter_played(&mut self, endpoint: &str, unit: &UnitId, content: BTreeMap<String, String>) {
        let relation = self.relations.values_mut().find(|relation| relation.name == endpoint && !relation.is_peer());
        if let Some(relation) = relation {
            relation.scope.insert(unit.clone(), Bag { content, version: 1 });
        }
    }

    /// Adds a unit; the first one leads (S49).
    pub fn add_unit(&mut self, application: &str, machine: MachineId) -> Option<UnitId> {
        let found = self.applications.get_mut(application)?;
        let id = UnitId::new(application, found.next_number);
        found.next_number += 1;
        found.leader.get_or_insert_with(|| id.clone());
        let unit = Unit {
            id: id.clone(),
            machine,
            workload: Status { status: "maintenance".to_owned(), message: "installing charm software".to_owned() },
            failed: None,
            dying: false,
            generation: found.generation,
            phase: Phase::New,
            queued: VecDeque::new(),
            relations: BTreeMap::new(),
            config_seen: None,
            told_to_lead: false,
            execs: VecDeque::new(),
            actions: VecDeque::new(),
            update_status_at: None,
        };
        self.units.insert(id.clone(), unit);
        Some(id)
    }

    /// `juju refresh`: every unit swaps at its own next look (S41).
    pub fn refresh(&mut self, application: &str, charm: PathBuf) {
        if let Some(application) = self.applications.get_mut(application) {
            application.charm = charm;
            application.generation += 1;
        }
    }

    /// `juju config`.
    pub fn configure(&mut self, application: &str, option: &str, value: Value) {
        if let Some(application) = self.applications.get_mut(application) {
            application.config.insert(option.to_owned(), value);
        }
    }

    /// Another unit leads.
    pub fn move_leader(&mut self, unit: &UnitId) {
        if let Some(application) = self.applications.get_mut(&unit.application) {
            application.leader = Some(unit.clone());
        }
    }

    /// `juju remove-unit`.
    pub fn remove_unit(&mut self, unit: &UnitId) {
        if let Some(unit) = self.units.get_mut(unit) {
            unit.dying = true;
        }
    }

    /// `juju run`; answers the action's number.
    pub fn run_action(&mut self, unit: &UnitId, name: &str, parameters: Map<String, Value>) -> u32 {
        let id = u32::try_from(self.actions.len() + 1).unwrap_or(u32::MAX);
        self.actions.insert(id, Action { name: name.to_owned(), parameters, result: None });
        if let Some(unit) = self.units.get_mut(unit) {
            unit.actions.push_back(id);
        }
        id
    }

    /// `juju-exec`, by a timer of systemd's.
    pub fn exec(&mut self, unit: &UnitId, script: String, timer: Option<String>) {
        if let Some(unit) = self.units.get_mut(unit) {
            unit.execs.push_back(Hook::Exec(script, timer));
        }
    }

    /// Whether a unit leads.
    pub fn leads(&self, unit: &UnitId) -> bool {
        self.applications.get(&unit.application).is_some_and(|found| found.leader.as_ref() == Some(unit))
    }

    /// A moment within these milliseconds, by chance.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        self.random.random_range(from..to)
    }

    /// The options of an application as `config-get` gives them.
    fn config_of(&self, application: &str) -> Map<String, Value> {
        let Some(found) = self.applications.get(application) else { return Map::new() };
        let mut config = found.defaults.clone();
        config.extend(found.config.clone());
        config
    }

    /// The hook of that name on a unit, `cluster-relation-joined`: about another unit, if there is one in that relation.
    pub fn hook_named(&self, unit: &UnitId, name: &str) -> Option<Hook> {
        if let Some((endpoint, kind)) = name.split_once("-relation-") {
            let kind =
                ["created", "joined", "changed", "departed", "broken"].into_iter().find(|known| *known == kind)?;
            let relation = self.relations.values().find(|relation| relation.name == endpoint)?;
            let other = relation.scope.keys().find(|other| *other != unit).cloned();
            let about = if matches!(kind, "joined" | "departed") { Some(other?) } else { None };
            return Some(Hook::Relation(relation.id, kind, about));
        }
        Some(match name {
            "install" => Hook::Install,
            "start" => Hook::Start,
            "stop" => Hook::Stop,
            "remove" => Hook::Remove,
            "leader-elected" => Hook::LeaderElected,
            "config-changed" => Hook::ConfigChanged,
            "update-status" => Hook::UpdateStatus,
            "upgrade-charm" => Hook::UpgradeCharm,
            // Of one that is gone by now, as a rule.
            "secret-changed" => Hook::SecretChanged("d2gnsmvfvvhs75tbpfu0".to_owned()),
            _ => return None,
        })
    }

    /// A name of an event, as Juju writes it into `JUJU_HOOK_NAME`.
    pub fn hook_name(&self, hook: &Hook) -> String {
        match hook {
            Hook::Install => "install".to_owned(),
            Hook::Start => "start".to_owned(),
            Hook::Stop => "stop".to_owned(),
            Hook::Remove => "remove".to_owned(),
            Hook::ConfigChanged => "config-changed".to_owned(),
            Hook::UpgradeCharm => "upgrade-charm".to_owned(),
            Hook::LeaderElected => "leader-elected".to_owned(),
            Hook::UpdateStatus => "update-status".to_owned(),
            Hook::SecretChanged(_) => "secret-changed".to_owned(),
            Hook::Relation(id, kind, _) => {
                let name = self.relations.get(id).map(|relation| relation.name.as_str()).unwrap_or_default();
                format!("{name}-relation-{kind}")
            }
            Hook::Action(id) => self.actions.get(id).map(|action| action.name.clone()).unwrap_or_default(),
            Hook::Exec(..) => "upgrade-granted".to_owned(),
        }
    }
}
