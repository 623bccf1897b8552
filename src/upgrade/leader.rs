//! What the leader does to the application bag: rules R1, R3, R10 and R11 of the protocol.
//!
//! It moves the token, begins and ends a run, and nothing else. What is called "shows" is what a unit's bag said when
//! it was read; it may be old, so nothing here trusts a state where a turn's number is at hand.

use std::collections::{BTreeMap, BTreeSet};

use super::unit::{gave_up, holder, is_at_rest};
use super::values::{
    ApplicationBag, Dependencies, HistoryEntry, Origin, Outcome, Run, RunChecks, Target, UnitBag, UnitState, UnitTarget,
};
use crate::names::{Timestamp, UnitName};

/// How many finished runs are remembered.
const HISTORY_LENGTH: usize = 10;

/// What the leader knows when it decides.
#[derive(Debug, Clone, Copy)]
pub struct LeaderView<'a> {
    /// The leader itself.
    pub me: &'a UnitName,
    /// The application bag, as it was read after `is-leader` was answered.
    pub application: &'a ApplicationBag,
    /// Every unit that exists, dying ones too.
    pub units: &'a BTreeSet<UnitName>,
    /// The units whose nodes have joined.
    pub members: &'a BTreeSet<UnitName>,
    /// Every unit's bag as it was read, and this unit's own as this hook leaves it.
    pub bags: &'a BTreeMap<UnitName, UnitBag>,
    /// What the leader's own charm code pins.
    pub target: &'a Target,
    /// What the leader's own charm code declares.
    pub dependencies: &'a Dependencies,
    /// Units whose nodes are known not to be Ready: they go first where the leader chooses.
    pub not_ready: &'a BTreeSet<UnitName>,
    /// The checks' answer, if they were asked.
    pub checks: Option<&'a Checks>,
    /// The present.
    pub now: Timestamp,
}

/// What the checks before a run said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checks {
    /// All pass.
    Passed,
    /// Some fail, and the admin's word forces these.
    Forced {
        /// Their ids.
        ids: Vec<String>,
        /// The action's operation.
        operation: String,
    },
    /// Going back: none of the checks of health apply.
    NotAsked,
    /// These fail: id and what was seen.
    Failed(Vec<(String, String)>),
}

/// The leader's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderPlan {
    /// The application bag as this hook leaves it.
    pub application: ApplicationBag,
    /// The checks are needed before a run may begin: ask them, and decide again.
    pub needs_checks: bool,
    /// Checks that keep the run from beginning: id and what was seen.
    pub blocked_by: Vec<(String, String)>,
    /// What an admin would want to read in the log.
    pub news: Vec<String>,
}

impl LeaderView<'_> {
    fn bag(&self, unit: &UnitName) -> Option<&UnitBag> {
        self.bags.get(unit)
    }

    fn unit(&self, number: u32) -> UnitName {
        UnitName::new(self.me.application(), number)
    }

    fn state(&self, unit: &UnitName) -> Option<UnitState> {
        self.bag(unit).and_then(|bag| bag.state)
    }

    /// v0 names no target: its word is taken for the present one. In our own bag it would be another's.
    fn is_for_target(&self, unit: &UnitName) -> bool {
        self.bag(unit).is_some_and(|bag| match &bag.target {
            Some(target) => target == self.target,
            None => unit != self.me,
        })
    }

    fn is_completed(&self, unit: &UnitName) -> bool {
        self.state(unit) == Some(UnitState::Completed) && self.is_for_target(unit)
    }

    fn is_off_pin(&self, unit: &UnitName) -> bool {
        matches!(self.state(unit), Some(UnitState::Ready | UnitState::Upgrading | UnitState::Failed))
    }

    fn is_at_rest(&self, unit: &UnitName) -> bool {
        self.is_for_target(unit) && self.bag(unit).is_some_and(|bag| is_at_rest(bag, self.target))
    }

    /// Members that exist still; a member that has gone counts nowhere.
    fn present_members(&self) -> impl Iterator<Item = &UnitName> {
        self.members.iter().filter(|unit| self.units.contains(*unit))
    }
}

/// What the leader makes of the application bag.
pub fn plan(view: &LeaderView<'_>) -> LeaderPlan {
    let mut plan = LeaderPlan {
        application: view.application.clone(),
        needs_checks: false,
        blocked_by: Vec::new(),
        news: Vec::new(),
    };
    follow_own_target(view, &mut plan);
    forget_the_gone(view, &mut plan);
    take_away(view, &mut plan);
    queue(view, &mut plan);
    begin_run(view, &mut plan);
    finish(view, &mut plan);
    declare_dependencies(view, &mut plan);
    plan
}

/// `upgrade-run.to` is the leader's own target, and follows it.
fn follow_own_target(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    if let Some(run) = &mut plan.application.run
        && run.to != *view.target
    {
        plan.news.push(format!("The upgrade's target is {} now (it was {})", view.target.version, run.to.version));
        run.to = view.target.clone();
    }
}

/// A unit that no longer exists isn't skipped any more, and one that is `completed` needs no skipping.
fn forget_the_gone(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let holder = holder(view.me.application(), &plan.application);
    if let Some(run) = &mut plan.application.run {
        run.skipped
            .retain(|unit| view.units.contains(unit) && (holder.as_ref() == Some(unit) || !view.is_completed(unit)));
    }
}

fn is_skipped(application: &ApplicationBag, unit: &UnitName) -> bool {
    application.run.as_ref().is_some_and(|run| run.skipped.contains(unit))
}

/// Takes away the holder that has given up or is gone, and others that are done, gone or skipped.
fn take_away(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let application = &mut plan.application;
    let Some(last) = holder(view.me.application(), application) else { return };
    let gone = !view.units.contains(&last);
    let given_up = view.bag(&last).is_some_and(|bag| gave_up(bag, &last, application));
    let mut numbers = application.stack.clone();
    numbers.pop();
    numbers.retain(|number| {
        let unit = view.unit(*number);
        view.units.contains(&unit) && !view.is_completed(&unit) && !is_skipped(application, &unit)
    });
    if gone || given_up {
        let completed = given_up && view.state(&last) == Some(UnitState::Completed);
        application.turn = next_turn(application);
        if completed && let Some(run) = &mut application.run {
            let target = view.bag(&last).and_then(|bag| bag.target.clone()).unwrap_or_else(|| view.target.clone());
            run.done.push(UnitTarget { unit: last.clone(), target });
        }
        plan.news.push(match (gone, completed) {
            (true, _) => format!("{last} is gone: the upgrade goes on without it"),
            (false, true) => format!("{last} is done"),
            (false, false) => format!("{last} is left out of the upgrade"),
        });
    } else {
        numbers.push(last.number());
    }
    application.stack = numbers;
}

/// The number of a new turn: never reset, absent counts as 0.
pub fn next_turn(application: &ApplicationBag) -> Option<u64> {
    Some(application.turn.unwrap_or(0).saturating_add(1))
}

/// Puts members that are off their pin below the last element; where there is none, a new stack begins.
fn queue(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let missing: Vec<UnitName> = view
        .present_members()
        .filter(|unit| view.is_off_pin(unit))
        .filter(|unit| !plan.application.stack.contains(&unit.number()) && !is_skipped(&plan.application, unit))
        .cloned()
        .collect();
    if missing.is_empty() {
        return;
    }
    if plan.application.stack.is_empty() {
        if plan.application.run.is_some() {
            write_stack(view, plan, &missing);
        } else if missing.iter().any(|unit| view.is_for_target(unit)) {
            first_stack(view, plan);
        }
        return;
    }
    let last = plan.application.stack.pop();
    plan.application.stack.extend(missing.iter().map(UnitName::number));
    sort_below(view, &mut plan.application.stack);
    plan.application.stack.extend(last);
}

/// No run is on and no stack prepared: the checks come first, unless this is a way back.
fn first_stack(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    match view.checks {
        None => plan.needs_checks = true,
        Some(Checks::Failed(failed)) => plan.blocked_by.clone_from(failed),
        Some(Checks::Passed | Checks::Forced { .. } | Checks::NotAsked) => {
            let members: Vec<UnitName> = view
                .present_members()
                .filter(|unit| !view.is_completed(unit) && !is_skipped(&plan.application, unit))
                .cloned()
                .collect();
            write_stack(view, plan, &members);
        }
    }
}

fn write_stack(view: &LeaderView<'_>, plan: &mut LeaderPlan, units: &[UnitName]) {
    plan.application.stack = order(view.me, units, view.not_ready);
    plan.application.turn = next_turn(&plan.application);
}

/// The order of a new stack: highest number first, the leader last, a unit whose node isn't Ready before all others.
/// The stack is read from its end, so it begins with the leader.
pub fn order(leader: &UnitName, units: &[UnitName], not_ready: &BTreeSet<UnitName>) -> Vec<u32> {
    let mut sorted: Vec<&UnitName> = units.iter().collect();
    sorted.sort_by_key(|unit| (not_ready.contains(*unit), *unit != leader, unit.number()));
    sorted.into_iter().map(UnitName::number).collect()
}

/// What stands below the last element: the leader first, then by number.
fn sort_below(view: &LeaderView<'_>, numbers: &mut Vec<u32>) {
    numbers.sort_by_key(|number| (*number != view.me.number(), *number));
    numbers.dedup();
}

/// The run begins when there is a stack, written or found, and a member to go with it.
fn begin_run(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let someone = view.present_members().any(|unit| view.is_off_pin(unit) && view.is_for_target(unit));
    if plan.application.run.is_some() || plan.application.stack.is_empty() || !someone {
        return;
    }
    let found = plan.application.stack == view.application.stack;
    let (checks, forced) = match view.checks {
        _ if found => (RunChecks::Prepared, Vec::new()),
        Some(Checks::Forced { ids, operation }) => {
            (RunChecks::Forced, vec![super::values::Forced { ids: ids.clone(), operation: operation.clone() }])
        }
        _ => (RunChecks::Passed, Vec::new()),
    };
    // One new turn for the stack and the run together; a prepared stack's turn ends with the preparation.
    if found {
        plan.application.turn = next_turn(&plan.application);
    }
    let from = view
        .present_members()
        .filter_map(|unit| {
            let bag = view.bag(unit)?;
            Some((unit.clone(), Origin { version: bag.version.clone()?, revision: bag.revision? }))
        })
        .collect();
    plan.news.push(format!("The upgrade to {} begins", view.target.version));
    plan.application.run = Some(Run {
        id: format!("{}-{}", view.target, view.now.0),
        from,
        to: view.target.clone(),
        started: view.now,
        checks,
        forced,
        resumed: Vec::new(),
        skipped: Vec::new(),
        done: Vec::new(),
    });
}

/// R11: nobody is left in the stack, and every member is at rest for the leader's own target.
fn finish(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let Some(run) = &plan.application.run else { return };
    let at_rest = view.present_members().all(|unit| view.is_at_rest(unit));
    if !plan.application.stack.is_empty() || !run.skipped.is_empty() || !at_rest {
        return;
    }
    let back = !run.from.is_empty()
        && run.from.iter().filter(|(unit, _)| view.units.contains(*unit)).all(|(unit, from)| {
            view.bag(unit).is_some_and(|bag| {
                bag.version.as_ref() == Some(&from.version) && bag.revision.as_ref() == Some(&from.revision)
            })
        });
    if back && run.done.is_empty() {
        // Old news may begin a run that finds nothing to do: no line of history for it.
        plan.news.push("The upgrade is over: there was nothing to do".to_owned());
        end_run(view, plan);
        return;
    }
    let outcome = if back { Outcome::RolledBack } else { Outcome::Upgraded };
    let from = run.from.values().map(|origin| origin.version.clone()).min();
    plan.news.push(match outcome {
        Outcome::RolledBack => format!("The upgrade was taken back: every unit is at {} again", run.to.version),
        Outcome::Upgraded => format!("The upgrade to {} is over: every unit has it", run.to.version),
    });
    let entry = HistoryEntry { from, to: run.to.version.clone(), started: run.started, ended: view.now, outcome };
    plan.application.history.insert(0, entry);
    plan.application.history.truncate(HISTORY_LENGTH);
    end_run(view, plan);
}

fn end_run(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    plan.application.run = None;
    plan.application.dependencies = Some(view.dependencies.clone());
}

/// R1: written once, and again by new code when every member is at rest for its target.
fn declare_dependencies(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let application = &mut plan.application;
    let settled = application.run.is_none()
        && application.stack.is_empty()
        && view.present_members().all(|unit| view.is_at_rest(unit));
    if application.dependencies.is_none() || settled {
        application.dependencies = Some(view.dependencies.clone());
    }
}
