//! The admin's word: what `resume-upgrade` changes in the bags (R10, R12, and the table of actions).

use std::collections::BTreeMap;

use super::leader::next_turn;
use super::unit::{PausePolicy, holder, pauses_before};
use super::values::{ApplicationBag, Go, Target, UnitBag, UnitState, UnitTarget};
use super::waiting::WaitingOn;
use crate::names::{Timestamp, UnitName};

/// What `resume-upgrade` asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resume {
    /// Check ids to go on past.
    pub skip: Vec<String>,
    /// Go on past everything that can be skipped, and past the gate after.
    pub force: bool,
    /// A unit to leave out of the run.
    pub skip_unit: Option<UnitName>,
    /// Juju's id of the operation, for the record.
    pub operation: String,
}

/// What a unit's own bag becomes when the admin resumes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitResumed {
    /// The bag to decide on anew, and what to tell the admin.
    Bag(Box<UnitBag>, String),
    /// Its gate after is taken as passed, at once.
    GateAfterForced,
    /// This unit needs no word.
    NothingHere,
}

/// `resume-upgrade` on the unit that it is for.
///
/// `waiting` is what the unit stands still for without the word; `gate_after` whether it is in its gate after;
/// `gate_before_fails` whether its gate before fails.
pub fn resume_unit(
    own: &UnitBag,
    waiting: Option<&WaitingOn>,
    gate_before_fails: bool,
    gate_after: bool,
    resume: &Resume,
    now: Timestamp,
) -> UnitResumed {
    if gate_after && resume.force {
        return UnitResumed::GateAfterForced;
    }
    let word = Go { operation: resume.operation.clone(), skip: skipped_checks(resume) };
    let mut bag = own.clone();
    if own.state == Some(UnitState::Failed) {
        bag.state = Some(UnitState::Ready);
        bag.since = Some(now);
        bag.turn = None;
        bag.cause = None;
        bag.go = Some(word);
        return UnitResumed::Bag(Box::new(bag), "The failure is over: this unit tries again".to_owned());
    }
    let paused = matches!(waiting, Some(WaitingOn::Pause { .. }));
    if paused || (gate_before_fails && !word.skip.is_empty()) {
        bag.go = Some(word);
        return UnitResumed::Bag(Box::new(bag), "This unit goes on".to_owned());
    }
    if matches!(waiting, Some(WaitingOn::SecondTry { .. })) {
        bag.since = Some(now);
        bag.go = Some(word);
        return UnitResumed::Bag(Box::new(bag), "The refresh is tried again now".to_owned());
    }
    UnitResumed::NothingHere
}

/// The ids that the word goes past: those named, or all that a gate before has.
fn skipped_checks(resume: &Resume) -> Vec<String> {
    if resume.force { ["api", "nodes", "quorum", "versions"].map(str::to_owned).to_vec() } else { resume.skip.clone() }
}

/// `resume-upgrade` on the leader, which needs no word itself: for the holder, or for units left out.
///
/// Answers the application bag as it becomes and what to tell the admin, or why there is nothing to resume.
pub fn resume_on_leader(
    me: &UnitName,
    application: &ApplicationBag,
    bags: &BTreeMap<UnitName, UnitBag>,
    target: &Target,
    pause: PausePolicy,
) -> Result<(ApplicationBag, String), String> {
    let mut application = application.clone();
    let holder = holder(me.application(), &application);
    let turn = application.turn;
    let Some(run) = &mut application.run else {
        return Err("Nothing to resume: no upgrade is under way".to_owned());
    };
    if let Some(holder) = &holder {
        let bag = bags.get(holder);
        let failed =
            bag.is_some_and(|bag| bag.state == Some(UnitState::Failed) && bag.turn.is_some_and(|t| Some(t) == turn));
        let paused = !failed
            && bag.is_some_and(|bag| bag.state == Some(UnitState::Ready))
            && pauses_before(holder, run, target, pause).is_some();
        if failed || paused {
            run.resumed.push(UnitTarget { unit: holder.clone(), target: target.clone() });
            if failed {
                application.turn = next_turn(&application);
                return Ok((application, format!("{holder} tries again")));
            }
            return Ok((application, format!("{holder} goes on")));
        }
    }
    // The holder can't be taken back before it has given its turn up: that would be a dead end (model check, 5).
    let (kept, back): (Vec<_>, Vec<_>) = run.skipped.drain(..).partition(|unit| holder.as_ref() == Some(unit));
    run.skipped = kept;
    if !back.is_empty() {
        let names = back.iter().map(UnitName::to_string).collect::<Vec<_>>().join(", ");
        return Ok((application, format!("Taken into the upgrade again: {names}")));
    }
    Err(match holder {
        Some(holder) => format!(
            "Nothing to resume here: the upgrade waits for {holder}. What it waits for: juju run {holder} \
             upgrade-status"
        ),
        None => "Nothing to resume: no unit waits for its turn".to_owned(),
    })
}

/// `resume-upgrade skip-unit=UNIT` on the leader.
pub fn skip_unit(
    application: &ApplicationBag,
    unit: &UnitName,
    exists: bool,
) -> Result<(ApplicationBag, String), String> {
    let mut application = application.clone();
    let Some(run) = &mut application.run else {
        return Err("No upgrade is under way: there is nothing to leave a unit out of".to_owned());
    };
    if !exists {
        return Err(format!("skip-unit: there is no unit {unit}"));
    }
    if run.skipped.contains(unit) {
        return Err(format!("{unit} is left out already"));
    }
    run.skipped.push(unit.clone());
    Ok((application, format!("{unit} is left out of the upgrade; to take it in again: resume-upgrade")))
}
