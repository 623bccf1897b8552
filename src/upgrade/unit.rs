//! What one unit does next about its own snap: rules R2, R4, R7, R9, R10 and R13 of the protocol.
//!
//! Two steps, because a gate's facts are dear and seldom needed: [`plan`] says what the databags and snapd ask for;
//! where it asks for a gate, the gate's verdict goes into [`gate_before`] or [`after_gate_after`].

use std::collections::{BTreeMap, BTreeSet};

use super::values::{ApplicationBag, Origin, Run, Target, UnitBag, UnitState, UnitTarget};
use super::waiting::WaitingOn;
use crate::names::{KubernetesVersion, Revision, Timestamp, UnitName};

/// A failed refresh is tried once more, this many seconds after it ended (R9).
pub const SECOND_TRY_AFTER: u64 = 60;

/// What one unit knows when it decides.
#[derive(Debug, Clone, Copy)]
pub struct UnitView<'a> {
    /// This unit.
    pub me: &'a UnitName,
    /// Whether it is being removed.
    pub dying: bool,
    /// Whether its node has joined the cluster.
    pub standing: Standing,
    /// Its own bag, as it was read.
    pub own: &'a UnitBag,
    /// The application bag, as it was read in this hook and untouched by it.
    pub application: &'a ApplicationBag,
    /// Every unit that exists, dying ones too.
    pub units: &'a BTreeSet<UnitName>,
    /// The other units' bags, as far as they were read; they may be old.
    pub peers: &'a BTreeMap<UnitName, UnitBag>,
    /// The units whose nodes have joined.
    pub members: &'a BTreeSet<UnitName>,
    /// What this unit's charm code pins.
    pub target: &'a Target,
    /// The revision that the pin names, if it names one.
    pub pin_revision: Option<Revision>,
    /// What snapd says.
    pub snap: &'a SnapView,
    /// The admin's pause policy.
    pub pause: PausePolicy,
    /// Seconds that the gate after may take.
    pub health_timeout: u64,
    /// The present.
    pub now: Timestamp,
}

/// Whether a unit's node is in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It has joined (or bootstrapped).
    Member,
    /// Its k8sd is known not to be initialised.
    Newcomer,
    /// Could not be found out; nothing is begun on a guess.
    Unknown,
}

/// What snapd says of the snap; unknown is never "different".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapView {
    /// snapd could not be asked, and why.
    Unknown(String),
    /// As snapd has it.
    Known(KnownSnap),
}

/// The snap as snapd has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSnap {
    /// What is installed, if anything.
    pub installed: Option<Installed>,
    /// Whether that satisfies the pin.
    pub at_pin: bool,
    /// A change in progress for the snap, whoever started it.
    pub change: Option<String>,
    /// The changes that are over, oldest first, as far as they were asked for.
    pub finished: Vec<FinishedChange>,
}

/// An installed snap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// The Kubernetes version in it.
    pub version: KubernetesVersion,
    /// Its revision.
    pub revision: Revision,
}

/// A change of the snap that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedChange {
    /// When it ended.
    pub ready: Timestamp,
    /// `None`: status Done. Otherwise the failing task's own line.
    pub failure: Option<String>,
}

/// Config `pause-after-unit-refresh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausePolicy {
    /// Never pause.
    None,
    /// Pause once, after the first unit.
    First,
    /// Pause after every unit.
    All,
}

/// What the unit does in this hook, apart from writing its bag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitAction {
    /// Nothing.
    Rest,
    /// Look at the change once, and show its progress.
    Follow {
        /// snapd's id of it.
        change: String,
    },
    /// Bring the snap to its pin without the token: no member yet, it counts nowhere (R13).
    BringToPin,
    /// Its turn: look at the gate before, then begin (R6).
    GateBefore,
    /// At its pin: look at the gate after (R8).
    GateAfter {
        /// When the gate began: its patience ends `health_timeout` later.
        since: Timestamp,
        /// When the change that brought the pin ended, if one is known.
        change_ended: Option<Timestamp>,
    },
}

/// The decision: the bag as it will be, what to do, and what is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    /// The unit's own bag as this hook leaves it.
    pub bag: UnitBag,
    /// What to do.
    pub action: UnitAction,
    /// What the unit waits for, if it does.
    pub waiting: Option<WaitingOn>,
}

impl UnitView<'_> {
    /// The unit that holds the token, by the stack as it was read.
    pub fn holder(&self) -> Option<UnitName> {
        holder(self.me.application(), self.application)
    }

    /// Whether this unit holds the token.
    pub fn holds_token(&self) -> bool {
        self.application.stack.last() == Some(&self.me.number())
    }

    /// Whether this unit has given up the turn that it still holds: it begins nothing any more (R3).
    pub fn has_given_up(&self) -> bool {
        self.holds_token() && gave_up(self.own, self.me, self.application)
    }

    fn installed(&self) -> Option<&Installed> {
        match self.snap {
            SnapView::Known(known) => known.installed.as_ref(),
            SnapView::Unknown(_) => None,
        }
    }

    fn is_skipped(&self, unit: &UnitName) -> bool {
        self.application.run.as_ref().is_some_and(|run| run.skipped.contains(unit))
    }

    fn failures_since(&self, known: &KnownSnap) -> Vec<FinishedChange> {
        let since = self.own.since.unwrap_or(Timestamp(0));
        known.finished.iter().filter(|change| change.failure.is_some() && change.ready >= since).cloned().collect()
    }
}

/// The unit named by the last element of the stack.
pub fn holder(application_name: &str, application: &ApplicationBag) -> Option<UnitName> {
    application.stack.last().map(|number| UnitName::new(application_name, *number))
}

/// Whether a holder's bag says that it gives the present turn up (R3).
///
/// In a stack without `upgrade-turn` (v0's) `completed` alone says so. A `failed` that names the turn gives nothing up.
pub fn gave_up(bag: &UnitBag, unit: &UnitName, application: &ApplicationBag) -> bool {
    let skipped = application.run.as_ref().is_some_and(|run| run.skipped.contains(unit));
    match (bag.state, application.turn) {
        (Some(UnitState::Completed), None) => true,
        (Some(UnitState::Completed), Some(turn)) => bag.turn == Some(turn),
        (Some(UnitState::Ready), Some(turn)) => skipped && bag.turn == Some(turn),
        _ => false,
    }
}

/// What this unit does next.
pub fn plan(view: &UnitView<'_>) -> UnitPlan {
    let mut bag = view.own.clone();
    if bag.state.is_none() {
        enter(&mut bag, UnitState::Idle, view.now);
    }
    let known = match view.snap {
        // What is unknown changes no target: `completed` for the old pin would read as `completed` for the new one.
        SnapView::Unknown(why) => {
            return UnitPlan { bag, action: UnitAction::Rest, waiting: Some(WaitingOn::Snapd { why: why.clone() }) };
        }
        SnapView::Known(known) => known,
    };
    note_installed(&mut bag, known.installed.as_ref());
    match view.standing {
        Standing::Newcomer => newcomer(view, known, bag),
        Standing::Member => member(view, known, bag),
        Standing::Unknown => UnitPlan { bag, action: UnitAction::Rest, waiting: Some(WaitingOn::Membership) },
    }
}

/// R13: no member yet. Its snap needs no token; its join is the cluster part's business.
fn newcomer(view: &UnitView<'_>, known: &KnownSnap, mut bag: UnitBag) -> UnitPlan {
    note_target(&mut bag, view);
    enter(&mut bag, UnitState::Idle, view.now);
    // The admin's word to join stays until it has joined.
    bag.go.clone_from(&view.own.go);
    bag.change.clone_from(&known.change);
    let action = match &known.change {
        Some(change) => UnitAction::Follow { change: change.clone() },
        None if known.at_pin || view.dying => UnitAction::Rest,
        None => UnitAction::BringToPin,
    };
    UnitPlan { bag, action, waiting: None }
}

fn member(view: &UnitView<'_>, known: &KnownSnap, mut bag: UnitBag) -> UnitPlan {
    if let Some(change) = &known.change {
        // Whoever started it and whatever the pin says by now: a unit asked back in the middle of its change is
        // "at its pin" and must not let go (model check, 1). A turn named before is not given up any more (15).
        note_target(&mut bag, view);
        enter(&mut bag, UnitState::Upgrading, view.now);
        bag.turn = None;
        bag.go = None;
        bag.change = Some(change.clone());
        return UnitPlan { bag, action: UnitAction::Follow { change: change.clone() }, waiting: None };
    }
    bag.change = None;
    if view.holds_token() && view.application.turn.is_some() && view.is_skipped(view.me) && !view.has_given_up() {
        return give_up_skipped(view, bag);
    }
    let v0_completed = bag.state == Some(UnitState::Completed) && bag.target.is_none();
    if view.holds_token() && v0_completed && view.application.turn.is_some() {
        // v0's `completed` names no turn: written for it, it gives up what v0 had finished (R14).
        bag.turn = view.application.turn;
        return stay_given_up(view, known, bag);
    }
    if view.has_given_up() {
        return stay_given_up(view, known, bag);
    }
    if known.at_pin { at_pin(view, known, bag) } else { off_pin(view, known, bag) }
}

/// A skipped holder is only asked: it gives its turn up here, when no change is in progress (model check, 5).
fn give_up_skipped(view: &UnitView<'_>, mut bag: UnitBag) -> UnitPlan {
    note_target(&mut bag, view);
    enter(&mut bag, UnitState::Ready, view.now);
    bag.turn = view.application.turn;
    bag.go = None;
    UnitPlan { bag, action: UnitAction::Rest, waiting: Some(WaitingOn::TakenBack) }
}

/// Gave its turn up and still holds the token: begins nothing, off its pin or not, healthy or not (R3).
fn stay_given_up(view: &UnitView<'_>, known: &KnownSnap, mut bag: UnitBag) -> UnitPlan {
    // A `completed` kept off its pin keeps the target that it was for; v0's names no turn, ours does it for it.
    if known.at_pin || bag.state != Some(UnitState::Completed) {
        note_target(&mut bag, view);
    }
    let skipped = bag.state == Some(UnitState::Ready);
    let waiting = if skipped { WaitingOn::TakenBack } else { WaitingOn::NextTurn };
    UnitPlan { bag, action: UnitAction::Rest, waiting: Some(waiting) }
}

fn at_pin(view: &UnitView<'_>, known: &KnownSnap, mut bag: UnitBag) -> UnitPlan {
    let state = bag.state.unwrap_or(UnitState::Idle);
    let v0_stack = view.application.turn.is_none() && !view.application.stack.is_empty();
    let run = view.application.run.as_ref();
    let completed_for_another = state == UnitState::Completed && bag.target.as_ref() != Some(view.target);
    let through_gate = matches!(state, UnitState::Upgrading | UnitState::Failed)
        || (view.holds_token()
            && (run.is_some() || v0_stack)
            && (state == UnitState::Ready
                || completed_for_another
                || (state == UnitState::Idle && run.is_some_and(|run| run.to == *view.target))));
    note_target(&mut bag, view);
    if through_gate {
        let change_ended = last_success(known);
        if state != UnitState::Failed {
            enter(&mut bag, UnitState::Upgrading, view.now);
            bag.turn = None;
        }
        if view.own.state == Some(UnitState::Upgrading) {
            // Nobody acts on these before the gate has passed: no other unit is woken for them.
            bag.version.clone_from(&view.own.version);
            bag.revision = view.own.revision;
            bag.change.clone_from(&view.own.change);
        }
        let since = bag.since.unwrap_or(view.now);
        let since = change_ended.map_or(since, |ended| ended.max(since));
        return UnitPlan { bag, action: UnitAction::GateAfter { since, change_ended }, waiting: None };
    }
    if run_is_over(view, &bag) && state == UnitState::Completed {
        enter(&mut bag, UnitState::Idle, view.now);
        return rest(bag);
    }
    let next = match (state, run) {
        (UnitState::Ready, None) if v0_stack => UnitState::Completed,
        (UnitState::Ready, None) => UnitState::Idle,
        (UnitState::Ready, Some(_)) => UnitState::Completed,
        (UnitState::Idle, Some(run)) if run.to == *view.target && !run_is_over(view, &bag) => UnitState::Completed,
        (state, _) => state,
    };
    enter(&mut bag, next, view.now);
    let waiting = (next == UnitState::Completed && run.is_some()).then_some(WaitingOn::OthersToFinish);
    UnitPlan { bag, action: UnitAction::Rest, waiting }
}

/// When the last change that was good for something ended, as far as changes were asked for.
pub fn last_success(known: &KnownSnap) -> Option<Timestamp> {
    known.finished.iter().filter(|change| change.failure.is_none()).map(|change| change.ready).max()
}

/// R11, as this unit sees it: nobody is left in the stack, and every member is at rest for its own target.
///
/// It comes before R2, or `completed` and `idle` would chase each other while `upgrade-run` is still there.
fn run_is_over(view: &UnitView<'_>, own: &UnitBag) -> bool {
    view.application.stack.is_empty()
        && view.members.iter().filter(|member| view.units.contains(*member)).all(|member| {
            let bag = if member == view.me { Some(own) } else { view.peers.get(member) };
            view.is_skipped(member) || bag.is_some_and(|bag| is_at_rest(bag, view.target))
        })
}

/// `idle` or `completed` for this target; v0 names no target, and is taken at its word.
pub fn is_at_rest(bag: &UnitBag, target: &Target) -> bool {
    matches!(bag.state, Some(UnitState::Idle | UnitState::Completed))
        && bag.target.as_ref().is_none_or(|named| named == target)
}

fn off_pin(view: &UnitView<'_>, known: &KnownSnap, mut bag: UnitBag) -> UnitPlan {
    let same_target = bag.target.as_ref() == Some(view.target);
    note_target(&mut bag, view);
    if bag.state == Some(UnitState::Failed) && same_target {
        let named_turn_is_over = bag.turn.is_some() && bag.turn != view.application.turn;
        if !named_turn_is_over {
            return UnitPlan { bag, action: UnitAction::Rest, waiting: Some(WaitingOn::Admin) };
        }
    }
    let second_try = bag.state == Some(UnitState::Upgrading) && same_target;
    if !second_try {
        enter(&mut bag, UnitState::Ready, view.now);
        bag.turn = None;
    }
    if !view.holds_token() {
        // A refresh that failed while this unit lost the token (its stack was rewritten) queues up again.
        if second_try {
            enter(&mut bag, UnitState::Ready, view.now);
        }
        let waiting = waits_for_turn(view);
        return UnitPlan { bag, action: UnitAction::Rest, waiting: Some(waiting) };
    }
    if let Some(waiting) = retry_or_fail(view, known, same_target, &mut bag) {
        return UnitPlan { bag, action: UnitAction::Rest, waiting: Some(waiting) };
    }
    match may_begin(view, second_try) {
        Ok(()) => UnitPlan { bag, action: UnitAction::GateBefore, waiting: None },
        Err(waiting) => UnitPlan { bag, action: UnitAction::Rest, waiting: Some(waiting) },
    }
}

/// R9: read, not kept. Attempts are snapd's failed changes since `since`.
fn retry_or_fail(view: &UnitView<'_>, known: &KnownSnap, same_target: bool, bag: &mut UnitBag) -> Option<WaitingOn> {
    let failures = if same_target { view.failures_since(known) } else { Vec::new() };
    let last = failures.last()?;
    let cause = last.failure.clone().unwrap_or_default();
    if failures.len() > 1 {
        fail(bag, view, &cause);
        return Some(WaitingOn::Admin);
    }
    if bag.state == Some(UnitState::Ready) {
        // The hook that began it died before its bag was flushed; the attempt counts all the same.
        let began = bag.since;
        enter(bag, UnitState::Upgrading, view.now);
        bag.since = began;
    }
    let waited = view.now.seconds_since(last.ready);
    (waited < SECOND_TRY_AFTER)
        .then(|| WaitingOn::SecondTry { cause, seconds: SECOND_TRY_AFTER.saturating_sub(waited) })
}

/// Marks the unit failed in its present turn; it keeps the token (R10).
pub fn fail(bag: &mut UnitBag, view: &UnitView<'_>, cause: &str) {
    enter(bag, UnitState::Failed, view.now);
    bag.cause = Some(one_line(cause));
    bag.turn = if view.holds_token() { view.application.turn } else { None };
    bag.go = None;
    bag.change = None;
}

fn waits_for_turn(view: &UnitView<'_>) -> WaitingOn {
    if view.is_skipped(view.me) {
        return WaitingOn::TakenBack;
    }
    let Some(holder) = view.holder() else { return WaitingOn::LeaderChecks };
    if view.peers.get(&holder).and_then(|bag| bag.state) == Some(UnitState::Failed) {
        return WaitingOn::Failed { unit: holder };
    }
    WaitingOn::Turn { holder, left: view.application.stack.len(), total: view.members.len() }
}

/// R4: the holder's conditions, but for the gate.
fn may_begin(view: &UnitView<'_>, second_try: bool) -> Result<(), WaitingOn> {
    if view.dying {
        return Err(WaitingOn::Removal);
    }
    if view.application.run.is_none() && view.application.turn.is_some() {
        return Err(WaitingOn::LeaderChecks);
    }
    for (unit, bag) in view.peers.iter().filter(|(unit, _)| view.units.contains(unit)) {
        match bag.state {
            Some(UnitState::Failed) => return Err(WaitingOn::Failed { unit: unit.clone() }),
            Some(UnitState::Upgrading) => return Err(WaitingOn::AtWork { unit: unit.clone() }),
            _ => {}
        }
    }
    for number in &view.application.stack {
        let unit = UnitName::new(view.me.application(), *number);
        if unit == *view.me || view.is_skipped(&unit) || !view.units.contains(&unit) {
            continue;
        }
        let runs_new_code = view.peers.get(&unit).is_some_and(|bag| {
            matches!(bag.state, Some(UnitState::Ready | UnitState::Completed))
                && bag.target.as_ref().is_none_or(|target| target == view.target)
        });
        if !runs_new_code {
            return Err(WaitingOn::OldCode { unit });
        }
    }
    if !second_try && let Some(after) = paused_after(view) {
        return Err(WaitingOn::Pause { after });
    }
    Ok(())
}

/// The pause policy: whom the run pauses after, if this unit has to wait for the admin's word.
fn paused_after(view: &UnitView<'_>) -> Option<UnitName> {
    if view.own.go.is_some() || is_going_back(view) {
        return None;
    }
    pauses_before(view.me, view.application.run.as_ref()?, view.target, view.pause)
}

/// After whom the policy pauses before this unit begins, unless the run's record lets it.
pub fn pauses_before(unit: &UnitName, run: &Run, target: &Target, pause: PausePolicy) -> Option<UnitName> {
    let for_target = |entries: &[UnitTarget]| -> Vec<UnitName> {
        entries.iter().filter(|entry| entry.target == *target).map(|entry| entry.unit.clone()).collect()
    };
    let (done, resumed) = (for_target(&run.done), for_target(&run.resumed));
    let pauses = match pause {
        PausePolicy::None => false,
        PausePolicy::First => done.len() == 1 && resumed.is_empty(),
        PausePolicy::All => !done.is_empty(),
    };
    if pauses && !resumed.contains(unit) { done.last().cloned() } else { None }
}

/// Going back: the pin is what the run came from, or older than what is installed (version, then revision).
pub fn is_going_back(view: &UnitView<'_>) -> bool {
    let Some(installed) = view.installed() else { return false };
    let older_revision = match (view.pin_revision, installed.revision) {
        (Some(Revision::Store(pinned)), Revision::Store(installed)) => pinned < installed,
        _ => false,
    };
    let older = view.target.version < installed.version || (view.target.version == installed.version && older_revision);
    older || is_way_back(view)
}

/// Whether this unit, at its pin, is where it came from or behind that: it went back.
pub fn went_back(view: &UnitView<'_>) -> bool {
    let from = view.application.run.as_ref().and_then(|run| run.from.get(view.me));
    from.is_some_and(|from| {
        let version = &view.target.version;
        let not_ahead = |pinned: Revision| pinned <= from.revision;
        *version < from.version || (*version == from.version && view.pin_revision.is_none_or(not_ahead))
    })
}

/// Whether the pin is what `upgrade-run.from` names for this unit (for a unit that it doesn't name: any unit's).
pub fn is_way_back(view: &UnitView<'_>) -> bool {
    let (Some(run), Some(installed)) = (&view.application.run, view.installed()) else { return false };
    let is_origin = |from: &Origin| {
        from.version == view.target.version && view.pin_revision.is_none_or(|pinned| pinned == from.revision)
    };
    let is_elsewhere = |from: &Origin| from.version != installed.version || from.revision != installed.revision;
    match run.from.get(view.me) {
        Some(from) => is_origin(from) && is_elsewhere(from),
        None => run.from.values().any(|from| is_origin(from) && is_elsewhere(from)),
    }
}

/// The gate before, looked at: what stands in the way, if anything does.
///
/// `blocking` are the checks that fail and were not forced: id and what was seen.
pub fn gate_before(blocking: Vec<(String, String)>) -> Option<WaitingOn> {
    (!blocking.is_empty()).then_some(WaitingOn::GateBefore { checks: blocking })
}

/// The refresh has begun with this change.
pub fn begun(view: &UnitView<'_>, bag: &mut UnitBag, change: Option<String>) {
    enter(bag, UnitState::Upgrading, view.now);
    bag.turn = None;
    bag.go = None;
    bag.change = change;
}

/// The gate after, looked at: completed, still waiting, or failed for having waited too long.
pub fn after_gate_after(
    view: &UnitView<'_>,
    mut plan: UnitPlan,
    since: Timestamp,
    awaited: Vec<String>,
    forced: bool,
) -> UnitPlan {
    plan.action = UnitAction::Rest;
    let installed = view.installed().cloned();
    if awaited.is_empty() || forced {
        let bag = &mut plan.bag;
        note_installed(bag, installed.as_ref());
        enter(bag, UnitState::Completed, view.now);
        bag.turn = if view.holds_token() { view.application.turn } else { None };
        bag.go = None;
        bag.change = None;
        plan.waiting = Some(WaitingOn::OthersToFinish);
        return plan;
    }
    if plan.bag.state == Some(UnitState::Failed) {
        plan.waiting = Some(WaitingOn::Admin);
        return plan;
    }
    let waited = view.now.seconds_since(since);
    if waited >= view.health_timeout {
        let cause = format!("not healthy after {waited} s: {}", awaited.join(", "));
        note_installed(&mut plan.bag, installed.as_ref());
        fail(&mut plan.bag, view, &cause);
        plan.waiting = Some(WaitingOn::Admin);
    } else {
        plan.waiting = Some(WaitingOn::GateAfter { awaited, seconds: waited });
    }
    plan
}

fn note_installed(bag: &mut UnitBag, installed: Option<&Installed>) {
    if let Some(installed) = installed {
        bag.version = Some(installed.version.clone());
        bag.revision = Some(installed.revision);
    }
}

fn rest(bag: UnitBag) -> UnitPlan {
    UnitPlan { bag, action: UnitAction::Rest, waiting: None }
}

/// The only writer of a state: what belongs to a state goes with it.
fn enter(bag: &mut UnitBag, state: UnitState, now: Timestamp) {
    if bag.state != Some(state) {
        bag.since = Some(now);
        bag.cause = None;
    }
    bag.state = Some(state);
    match state {
        UnitState::Ready => {}
        UnitState::Idle => {
            bag.forced = Vec::new();
            bag.go = None;
        }
        UnitState::Upgrading | UnitState::Completed | UnitState::Failed => bag.go = None,
    }
}

fn note_target(bag: &mut UnitBag, view: &UnitView<'_>) {
    bag.target = Some(view.target.clone());
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
