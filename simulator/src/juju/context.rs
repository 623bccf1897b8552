//! One hook's context: its writes are kept apart until it ends well, and then become visible in one step (S7 to S10).

use std::collections::BTreeMap;

use super::look::Told;
use super::secrets::Secret;
use super::{Hook, Model, Status, UnitId};
use crate::time::SimTime;

/// Whose bag: a unit's or an application's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Unit(UnitId),
    Application(String),
}

/// How an action ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionResult {
    /// What it answered.
    pub results: BTreeMap<String, String>,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

/// A hook that runs.
#[derive(Debug)]
pub struct Context {
    /// Its id (S5).
    pub id: String,
    /// The unit.
    pub unit: UnitId,
    /// The hook.
    pub hook: Hook,
    /// Its name.
    pub name: String,
    /// When it began.
    pub began: SimTime,
    /// The hook tools that it called, in order.
    pub calls: Vec<String>,
    /// What it did, one phrase each.
    pub did: Vec<String>,
    /// The status that it set.
    pub status: Option<Status>,
    /// What it logged: level and text.
    pub log: Vec<(String, String)>,
    pub(super) action: ActionResult,
    pub(super) writes: BTreeMap<(u32, Owner), BTreeMap<String, String>>,
    pub(super) secrets: BTreeMap<String, Option<Secret>>,
    /// Bags that this context has read: constant within it (S18).
    pub(super) reads: BTreeMap<(u32, Owner), BTreeMap<String, String>>,
    pub(super) lost_leadership: bool,
    told: Told,
}

/// How a hook's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Exit(i32),
    /// By a signal.
    Killed(i32),
}

impl Context {
    /// Whether it wrote, or set a status, or anything else that somebody may notice.
    pub fn has_written(&self) -> bool {
        !self.writes.is_empty() || !self.secrets.is_empty() || self.status.is_some()
    }

    fn writes_application(&self) -> bool {
        self.writes.keys().any(|(_, owner)| matches!(owner, Owner::Application(_)))
    }
}

impl Model {
    /// Begins a hook.
    pub fn begin(&mut self, unit: &UnitId, hook: Hook, now: SimTime) -> Context {
        self.contexts_made += 1;
        let name = self.hook_name(&hook);
        let told = self.prepare(unit, &hook);
        Context {
            id: format!("{unit}-{name}-{:032x}", self.contexts_made),
            unit: unit.clone(),
            hook,
            name,
            began: now,
            calls: Vec::new(),
            did: Vec::new(),
            status: None,
            log: Vec::new(),
            action: ActionResult::default(),
            writes: BTreeMap::new(),
            secrets: BTreeMap::new(),
            reads: BTreeMap::new(),
            lost_leadership: false,
            told,
        }
    }

    /// Ends a hook: its writes become visible, or are discarded. Answers whether it counts as done.
    pub fn end(&mut self, context: &Context, ended: Ended, now: SimTime) -> bool {
        let unit = &context.unit;
        let flushes = match (&context.hook, ended) {
            // S11: kept whatever the exit code; `exec` makes the charm's death bash's own.
            (Hook::Exec(..), Ended::Exit(_)) | (_, Ended::Exit(0)) => true,
            _ => false,
        };
        let kept = flushes && self.flush(context);
        match &context.hook {
            Hook::Action(id) => {
                let failed = match (ended, kept) {
                    (Ended::Exit(0), true) => context.action.failed.clone(),
                    (Ended::Exit(0), false) => Some("committing requested changes failed".to_owned()),
                    (Ended::Exit(code), _) => Some(format!("exit status {code}")),
                    (Ended::Killed(_), _) => Some("terminated".to_owned()),
                };
                if let Some(action) = self.actions.get_mut(id) {
                    action.result = Some(ActionResult { results: context.action.results.clone(), failed });
                }
                self.commit(unit, &context.hook, &context.told, now);
                true
            }
            Hook::Exec(..) => {
                // It is over in any case; a failed hook of the unit stays failed.
                if let Some(unit) = self.units.get_mut(unit) {
                    unit.execs.pop_front();
                }
                kept
            }
            _ if kept => {
                self.commit(unit, &context.hook, &context.told, now);
                true
            }
            // S34: killed by KILL or TERM it runs again at once, without an error.
            _ if matches!(ended, Ended::Killed(9 | 15)) => false,
            _ => {
                self.fail(unit, &context.hook, now);
                false
            }
        }
    }

    /// All in one step; an application's bag only by who leads at that moment (S10).
    fn flush(&mut self, context: &Context) -> bool {
        if context.writes_application() && !self.leads(&context.unit) {
            return false;
        }
        for (id, secret) in &context.secrets {
            match secret {
                Some(secret) => self.secrets.insert(id.clone(), secret.clone()),
                None => self.secrets.remove(id),
            };
        }
        for ((relation, owner), changes) in &context.writes {
            let Some(relation) = self.relations.get_mut(relation) else { continue };
            let bag = match owner {
                Owner::Unit(unit) => relation.scope.get_mut(unit),
                Owner::Application(name) => relation.application_bags.get_mut(name),
            };
            if let Some(bag) = bag {
                bag.write(changes);
            }
        }
        true
    }
}
