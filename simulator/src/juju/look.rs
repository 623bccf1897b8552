//! What a unit's agent does next: the order of Juju's resolver (S21, S22), evaluated afresh after every operation.

use rand::seq::{IndexedRandom as _, SliceRandom as _};

use super::{Bag, FailedHook, Hook, LocalRelation, Model, Phase, Unit, UnitId};
use crate::time::SimTime;

/// The next operation of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A process is run.
    Hook(Hook),
    /// The charm's code is replaced (S42).
    Swap,
}

/// The first wait after a failed hook, and the longest one, in milliseconds (S32).
const BACKOFF: (u64, u64) = (5_000, 300_000);

/// The wait between two `update-status`, in milliseconds, ±20 % (S30).
const UPDATE_STATUS: (u64, u64) = (240_000, 360_000);

impl Model {
    /// What this unit does next, if anything, at this time.
    pub fn look(&mut self, id: &UnitId, now: SimTime) -> Option<Operation> {
        let unit = self.units.get(id)?.clone();
        if unit.phase == Phase::Removed {
            return None;
        }
        let idle = unit.failed.is_none() && unit.queued.is_empty();
        let hook = |hook| Some(Operation::Hook(hook));
        if idle && unit.phase >= Phase::Installed && !unit.dying {
            if let Some(relation) = self.uncreated(&unit) {
                self.enter(&unit.id, relation);
                return hook(Hook::Relation(relation, "created", None));
            }
            if self.leads(id) && !unit.told_to_lead {
                return hook(Hook::LeaderElected);
            }
        }
        if let Some(action) = unit.actions.front().filter(|_| unit.phase >= Phase::Installed) {
            return hook(Hook::Action(*action));
        }
        if let Some(exec) = unit.execs.front() {
            return hook(exec.clone());
        }
        if let Some(failed) = &unit.failed {
            return (failed.retry_at <= now).then(|| Operation::Hook(failed.hook.clone()));
        }
        if let Some(queued) = unit.queued.front() {
            return hook(queued.clone());
        }
        if unit.dying {
            return dying(&unit).map(Operation::Hook);
        }
        if unit.phase == Phase::New {
            return hook(Hook::Install);
        }
        let application = self.applications.get(&id.application)?;
        if unit.generation != application.generation {
            return Some(Operation::Swap);
        }
        if unit.config_seen.as_deref() != Some(self.config_hash(id).as_str()) {
            return hook(Hook::ConfigChanged);
        }
        if unit.phase < Phase::Started {
            return None;
        }
        if let Some(found) = self.relation_hook(&unit) {
            return hook(found);
        }
        (unit.update_status_at.is_some_and(|at| at <= now)).then_some(Operation::Hook(Hook::UpdateStatus))
    }

    /// When a unit does something by itself.
    pub fn next_look(&self, id: &UnitId) -> Option<SimTime> {
        let unit = self.units.get(id).filter(|unit| unit.phase != Phase::Removed)?;
        match &unit.failed {
            Some(failed) => Some(failed.retry_at),
            None => unit.update_status_at,
        }
    }

    /// Whether a unit has gone through its last hook.
    pub fn is_removed(&self, id: &UnitId) -> bool {
        self.units.get(id).is_none_or(|unit| unit.phase == Phase::Removed)
    }

    /// What `config-changed` compares (S28): values and, in 3.x, the charm.
    fn config_hash(&self, id: &UnitId) -> String {
        let generation = self.units.get(id).map_or(0, |unit| unit.generation);
        format!("{generation} {}", serde_json::Value::Object(self.config_of(&id.application)))
    }

    /// A relation that the unit hasn't entered; which of several is the first, nobody knows (S21).
    fn uncreated(&mut self, unit: &Unit) -> Option<u32> {
        let of_unit = |id: &&u32| {
            let local = unit.relations.get(id);
            self.relations[*id].applications.contains(&unit.id.application) && !local.is_some_and(|local| local.created)
        };
        let uncreated: Vec<u32> = self.relations.keys().filter(of_unit).copied().collect();
        uncreated.choose(&mut self.random).copied()
    }

    /// A unit enters a relation's scope just before its `-created` (S54).
    fn enter(&mut self, id: &UnitId, relation: u32) {
        let address = format!("10.0.0.{}", id.number + 10);
        if let Some(relation) = self.relations.get_mut(&relation) {
            let content = [
                ("ingress-address", address.clone()),
                ("private-address", address.clone()),
                ("egress-subnets", format!("{address}/32")),
            ];
            let content = content.map(|(key, value)| (key.to_owned(), value)).into();
            relation.scope.entry(id.clone()).or_insert(Bag { content, version: 1 });
        }
    }

    /// S22: joined and then changed of the same unit, departed, application's bag, joined, changed.
    fn relation_hook(&mut self, unit: &Unit) -> Option<Hook> {
        let mut ids: Vec<u32> = unit.relations.keys().copied().collect();
        // Which comes first, nobody knows; but peers come last (S21).
        ids.shuffle(&mut self.random);
        ids.sort_by_key(|id| self.relations[id].is_peer());
        ids.into_iter().find_map(|id| {
            let relation = &self.relations[&id];
            let local = &unit.relations[&id];
            let hook = |kind, about| Some(Hook::Relation(id, kind, about));
            if let Some((joined, _)) = local.joined.iter().find(|(_, told)| told.is_none()) {
                return hook("changed", Some(joined.clone()));
            }
            if let Some(gone) = local.joined.keys().find(|joined| !relation.scope.contains_key(*joined)) {
                return hook("departed", Some(gone.clone()));
            }
            let told = |name: &String| local.applications.get(name).copied().unwrap_or(0);
            let remote = relation.remote_application(&unit.id.application);
            if relation.application_bags.get(&remote).is_some_and(|bag| bag.version > told(&remote)) {
                return hook("changed", None);
            }
            let others = relation.scope.iter().filter(|(other, _)| {
                **other != unit.id && (relation.is_peer() || other.application != unit.id.application)
            });
            for (other, bag) in others {
                match local.joined.get(other) {
                    None => return hook("joined", Some(other.clone())),
                    Some(Some(told)) if *told < bag.version => return hook("changed", Some(other.clone())),
                    Some(_) => {}
                }
            }
            None
        })
    }

    /// A hook begins: what it will have told is fixed now (S25), and the cache of whom it is about is dropped (S18).
    pub(super) fn prepare(&mut self, id: &UnitId, hook: &Hook) -> Told {
        let Hook::Relation(relation, kind, about) = hook else { return Told::default() };
        let Some(found) = self.relations.get(relation) else { return Told::default() };
        let remote = found.remote_application(&id.application);
        let told = Told {
            unit: about.as_ref().and_then(|about| found.scope.get(about)).map(|bag| bag.version),
            application: found.application_bags.get(&remote).map(|bag| (remote, bag.version)),
        };
        let Some(unit) = self.units.get_mut(id) else { return told };
        let local = unit.relations.entry(*relation).or_default();
        if let Some(about) = about {
            if matches!(*kind, "joined" | "changed") {
                local.cache.remove(about);
            }
            if *kind == "joined" {
                local.joined.insert(about.clone(), None);
            }
        }
        told
    }

    /// A hook ended well: what it told is remembered, and what follows is queued.
    pub(super) fn commit(&mut self, id: &UnitId, hook: &Hook, told: &Told, now: SimTime) {
        let config = self.config_hash(id);
        let next_update = self.within(UPDATE_STATUS.0, UPDATE_STATUS.1);
        let Some(unit) = self.units.get_mut(id) else { return };
        unit.failed = None;
        if unit.queued.front() == Some(hook) {
            unit.queued.pop_front();
        }
        match hook {
            Hook::Install => unit.phase = Phase::Installed,
            Hook::ConfigChanged => {
                unit.config_seen = Some(config);
                if unit.phase < Phase::Started {
                    unit.queued.push_back(Hook::Start);
                }
            }
            Hook::Start => {
                unit.phase = unit.phase.max(Phase::Started);
                unit.update_status_at = Some(SimTime(now.0 + next_update));
            }
            Hook::UpgradeCharm => unit.queued.push_back(Hook::ConfigChanged),
            Hook::LeaderElected => unit.told_to_lead = true,
            Hook::UpdateStatus => unit.update_status_at = Some(SimTime(now.0 + next_update)),
            Hook::Stop => unit.phase = Phase::Stopped,
            Hook::Remove => unit.phase = Phase::Removed,
            Hook::Relation(relation, kind, about) => {
                let local = unit.relations.entry(*relation).or_default();
                commit_relation(local, kind, about.as_ref(), told);
            }
            Hook::SecretChanged(_) => {}
            Hook::Action(_) => {
                unit.actions.pop_front();
            }
            Hook::Exec(..) => {
                unit.execs.pop_front();
            }
        }
        if unit.phase == Phase::Removed {
            for relation in self.relations.values_mut() {
                relation.scope.remove(id);
            }
        }
    }

    /// A hook failed: the unit is in error until it is tried again (S32).
    pub(super) fn fail(&mut self, id: &UnitId, hook: &Hook, now: SimTime) {
        let Some(unit) = self.units.get_mut(id) else { return };
        let attempts = unit.failed.as_ref().map_or(0, |failed| failed.attempts + 1);
        let wait = (BACKOFF.0 << attempts.min(10)).min(BACKOFF.1);
        unit.failed = Some(FailedHook { hook: hook.clone(), retry_at: SimTime(now.0 + wait), attempts });
    }

    /// The charm's code was replaced; `upgrade-charm` follows, but after a hook other than that in error (S42, S43).
    pub fn swapped(&mut self, id: &UnitId) {
        let generation = self.applications.get(&id.application).map_or(0, |application| application.generation);
        let Some(unit) = self.units.get_mut(id) else { return };
        unit.generation = generation;
        unit.queued.push_back(Hook::UpgradeCharm);
    }
}

/// The hooks of a unit that is being removed (S56): departed for each peer, `stop`, `remove`.
fn dying(unit: &Unit) -> Option<Hook> {
    for (id, local) in &unit.relations {
        if let Some(other) = local.joined.keys().next() {
            return Some(Hook::Relation(*id, "departed", Some(other.clone())));
        }
    }
    match unit.phase {
        Phase::Installed | Phase::Started => Some(Hook::Stop),
        Phase::New | Phase::Stopped => Some(Hook::Remove),
        Phase::Removed => None,
    }
}

fn commit_relation(local: &mut LocalRelation, kind: &str, about: Option<&UnitId>, told: &Told) {
    match (kind, about) {
        ("created", _) => local.created = true,
        ("changed", Some(about)) => {
            local.joined.insert(about.clone(), told.unit.or(Some(0)));
        }
        ("changed", None) => local.applications.extend(told.application.clone()),
        ("departed", Some(about)) => {
            local.joined.remove(about);
            local.cache.remove(about);
        }
        _ => {}
    }
}

/// The versions that a hook tells of.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    unit: Option<u64>,
    application: Option<(String, u64)>,
}
