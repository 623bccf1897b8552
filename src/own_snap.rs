//! This unit's own snap: what the pure core decides about it, carried out.

use crate::charm::Charm;
use crate::collect;
use crate::databags::Bag;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError};
use crate::kube::Kube;
use crate::machine::host;
use crate::names::{KubernetesVersion, Revision, Timestamp};
use crate::observe::{Declared, Nothing, Observation, declared_on_disk};
use crate::reconcile::Pace;
use crate::settings;
use crate::snap::refresh::{self, Look};
use crate::snap::{ChangeId, SNAP};
use crate::upgrade::checks::{CheckId, Verdict, blocking, gate_after, gate_before};
use crate::upgrade::facts::Fact;
use crate::upgrade::messages::{self, Message, Speaker};
use crate::upgrade::unit::{self, SnapView, Standing, UnitAction, UnitPlan, UnitView};
use crate::upgrade::values::{ApplicationBag, Forced, UnitBag, UnitState};
use crate::upgrade::waiting::WaitingOn;

/// A failed installation of a unit that is no member yet is tried again so many seconds after it ended.
const INSTALL_AGAIN_AFTER: u64 = 60;

/// This unit's part in the upgrade, in one hook.
#[derive(Debug)]
pub struct Own<'a> {
    view: UnitView<'a>,
    declared: &'a Declared,
    plan: UnitPlan,
    /// Its bag of `upgrade` as this hook has left it so far.
    stands: Bag,
    going_back: bool,
    /// What is said instead of what the plan says.
    says: Option<Message>,
}

impl<'a> Own<'a> {
    /// Decides the next step with this unit's snap, and looks at the gate after, which may end its turn. `None`: what is
    /// asked for is not known.
    pub async fn plan<T: HookTools>(
        charm: &'a Charm<T>,
        seen: &'a Observation,
        nothing: &'a Nothing,
        pace: &mut Pace,
    ) -> Option<Self> {
        let (view, declared) = (seen.unit_view(&charm.context.unit, nothing)?, seen.declared.as_ref().ok()?);
        let mut plan = unit::plan(&view);
        match plan.action.clone() {
            UnitAction::Rest => {}
            UnitAction::Follow { .. } => pace.at_least(Pace::Close),
            // Until they are carried out: the next hook may have to.
            UnitAction::BringToPin | UnitAction::GateBefore => pace.at_least(Pace::Seldom),
            UnitAction::GateAfter { since, change_ended } => {
                // What was installed counts, not what the charm's code declares: a channel may hold another patch.
                let version = seen.installed().unwrap_or(&view.target.version);
                let health = collect::health(charm, &seen.node, version, change_ended, seen.now).await;
                let health = gate_after(&health);
                if health.repair {
                    mend_k8sd(charm, seen).await;
                }
                plan = unit::after_gate_after(&view, plan, since, health.awaited, false);
            }
        }
        pace.at_least(pace_of(plan.waiting.as_ref()));
        let stands = seen.upgrade.as_ref().map(|upgrade| upgrade.own.bag.clone()).unwrap_or_default();
        let going_back = unit::is_going_back(&view) || (seen.is_at_pin() && unit::went_back(&view));
        Some(Self { view, declared, plan, stands, going_back, says: None })
    }

    /// Its bag of `upgrade` as this hook leaves it.
    pub fn bag(&self) -> &UnitBag {
        &self.plan.bag
    }

    /// Its bag of `upgrade` as this hook leaves it, and as it stands.
    pub fn bag_and_what_stands(&mut self) -> (&UnitBag, &mut Bag) {
        (&self.plan.bag, &mut self.stands)
    }

    /// Whether the plan asks for what takes time.
    pub fn is_slow(&self) -> bool {
        matches!(self.plan.action, UnitAction::BringToPin | UnitAction::GateBefore) && self.plan.waiting.is_none()
    }

    /// Carries the plan out: the snap is installed, or the gate before is looked at and the refresh begins.
    pub async fn act<T: HookTools>(
        &mut self,
        charm: &Charm<T>,
        seen: &Observation,
        pace: &mut Pace,
    ) -> Result<(), JujuError> {
        match self.plan.action {
            UnitAction::BringToPin => self.says = Some(self.install(charm, seen, pace).await),
            UnitAction::GateBefore => self.begin(charm, seen, pace).await?,
            UnitAction::Rest | UnitAction::Follow { .. } | UnitAction::GateAfter { .. } => {}
        }
        pace.at_least(pace_of(self.plan.waiting.as_ref()));
        Ok(())
    }

    /// What the unit says of it.
    pub fn speak(&self, look: &Look) -> Option<Message> {
        if self.says.is_some() {
            return self.says.clone();
        }
        let progress = look.change.as_ref().map(refresh::progress);
        let version = &self.view.target.version;
        if self.view.standing == Standing::Newcomer {
            let installs = matches!(self.plan.action, UnitAction::Follow { .. } | UnitAction::BringToPin);
            return installs.then(|| messages::installing(version, progress.as_ref()));
        }
        let speaker = Speaker {
            me: self.view.me,
            version,
            going_back: self.going_back,
            bag: &self.plan.bag,
            application: self.view.application,
        };
        messages::upgrade(&speaker, &self.plan.action, self.plan.waiting.as_ref(), progress.as_ref())
    }

    /// R13: a unit that is no member brings its snap to its pin without the token.
    async fn install<T>(&mut self, charm: &Charm<T>, seen: &Observation, pace: &mut Pace) -> Message {
        let version = &self.view.target.version;
        if let SnapView::Known(known) = &seen.look.view
            && let Some(last) = known.finished.last()
            && let Some(cause) = &last.failure
            && seen.now.seconds_since(last.ready) < INSTALL_AGAIN_AFTER
        {
            pace.at_least(Pace::Soon);
            return messages::not_installed(version, cause, true);
        }
        match refresh::begin(&charm.snapd, &self.declared.wanted, seen.look.snap.as_ref()).await {
            Ok(change) => {
                tracing::info!("Installs Kubernetes {version} (snapd's change {})", change.0);
                self.plan.bag.change = Some(change.0);
                pace.at_least(Pace::Close);
                messages::installing(version, None)
            }
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!("Installing Kubernetes {version} failed: {why}");
                pace.at_least(if error.is_transient() { Pace::Soon } else { Pace::Seldom });
                messages::not_installed(version, &why, error.is_transient())
            }
        }
    }

    /// The gate before, and the refresh if it passes (R4, R6, R7).
    async fn begin<T: HookTools>(
        &mut self,
        charm: &Charm<T>,
        seen: &Observation,
        pace: &mut Pace,
    ) -> Result<(), JujuError> {
        let (view, plan) = (&self.view, &mut self.plan);
        let facts = collect::gate(charm, seen, view, self.declared).await?;
        let findings = gate_before(&facts);
        let skipped = skipped(view);
        plan.waiting = unit::gate_before(blocking(&findings, &skipped));
        if plan.waiting.is_some() {
            return Ok(());
        }
        let forced =
            findings.iter().filter(|finding| finding.verdict == Verdict::Fail && skipped.contains(&finding.id));
        let forced: Vec<String> = forced.map(|finding| finding.id.word().to_owned()).collect();
        for id in &forced {
            tracing::warn!("The gate's check {id} fails and is passed over: the admin said so");
        }
        delete_finished_records(charm, view).await;
        match refresh::begin(&charm.snapd, &self.declared.wanted, seen.look.snap.as_ref()).await {
            Ok(ChangeId(change)) => {
                let version = &view.target.version;
                tracing::info!("The refresh to {version} begins (snapd's change {change})");
                let operation = view.own.go.as_ref().map(|go| go.operation.clone());
                unit::begun(view, &mut plan.bag, Some(change));
                if let (Some(operation), false) = (operation, forced.is_empty()) {
                    plan.bag.forced.push(Forced { ids: forced, operation });
                }
                pace.at_least(Pace::Close);
            }
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!("The refresh could not begin: {why}");
                plan.waiting = Some(if error.is_transient() {
                    WaitingOn::Snapd { why }
                } else {
                    unit::fail(&mut plan.bag, view, &why);
                    WaitingOn::Admin
                });
            }
        }
        Ok(())
    }
}

/// How soon what is awaited has to be looked at again: an event comes for what other units write.
fn pace_of(waiting: Option<&WaitingOn>) -> Pace {
    match waiting {
        Some(WaitingOn::GateAfter { .. }) => Pace::Close,
        Some(WaitingOn::Snapd { .. } | WaitingOn::Membership | WaitingOn::SecondTry { .. }) => Pace::Soon,
        Some(WaitingOn::GateBefore { .. } | WaitingOn::Admin) => Pace::Seldom,
        Some(
            WaitingOn::LeaderChecks
            | WaitingOn::Turn { .. }
            | WaitingOn::OldCode { .. }
            | WaitingOn::AtWork { .. }
            | WaitingOn::Failed { .. }
            | WaitingOn::Pause { .. }
            | WaitingOn::TakenBack
            | WaitingOn::NextTurn
            | WaitingOn::OthersToFinish
            | WaitingOn::Removal,
        )
        | None => Pace::Asleep,
    }
}

/// The checks of the gate that the admin's word goes past: for this unit, and `versions` where the run was forced so.
fn skipped(view: &UnitView<'_>) -> Vec<CheckId> {
    let own = view.own.go.iter().flat_map(|go| &go.skip);
    let of_run = view.application.run.iter().flat_map(|run| &run.forced).flat_map(|forced| &forced.ids);
    let of_run = of_run.filter(|id| *id == CheckId::Versions.word());
    let words: Vec<&str> = own.chain(of_run).map(String::as_str).collect();
    CheckId::GATE.into_iter().filter(|id| words.contains(&id.word())).collect()
}

/// k8sd's finished records of an upgrade to this very snap: it would find its own, and stop there (R7, R8).
async fn delete_finished_records<T>(charm: &Charm<T>, view: &UnitView<'_>) {
    let Some(revision) = view.pin_revision else { return };
    let name = record_name(&view.target.version, revision);
    let Ok(kube) = Kube::open(&charm.context.root, &charm.clock) else { return };
    let Ok(records) = kube.upgrades().await else { return };
    if records.iter().any(|record| record.name == name && record.is_over()) {
        delete_record(&kube, &name).await;
    }
}

fn record_name(version: &KubernetesVersion, revision: Revision) -> String {
    format!("cluster-upgrade-to-k8s-{version}-rev-{revision}")
}

async fn delete_record(kube: &Kube, name: &str) {
    match kube.delete_upgrade(name).await {
        Ok(()) => tracing::info!("Deleted k8sd's record {name}: with it, k8sd would not finish its work"),
        Err(error) => tracing::warn!("k8sd's record {name} could not be deleted: {}", with_causes(&error)),
    }
}

/// k8sd's own work after the refresh is stuck: its record goes, then it is restarted, in this order (R8).
async fn mend_k8sd<T>(charm: &Charm<T>, seen: &Observation) {
    let SnapView::Known(known) = &seen.look.view else { return };
    let Some(installed) = &known.installed else { return };
    tracing::warn!("k8sd did not finish its work after the refresh: its record is deleted, and it is restarted");
    if let Ok(kube) = Kube::open(&charm.context.root, &charm.clock) {
        delete_record(&kube, &record_name(&installed.version, installed.revision)).await;
    }
    restart_k8sd(charm).await;
}

/// Restarts k8sd on this node.
pub async fn restart_k8sd<T>(charm: &Charm<T>) {
    if let Err(error) = charm.snapd.restart_service(SNAP, "k8sd").await {
        tracing::warn!("k8sd could not be restarted: {}", with_causes(&error));
    }
}

/// What to show while a followed change runs, or the gate after has not passed: nothing else is decided meanwhile (R2).
/// `None`: there is more to do than to look.
pub async fn still_under_way<T: HookTools>(charm: &Charm<T>, own: &UnitBag) -> Result<Option<Message>, JujuError> {
    let Ok(declared) = declared_on_disk(charm) else { return Ok(None) };
    let target = &declared.wanted.target;
    if own.target.as_ref() != Some(target) {
        return Ok(None);
    }
    match (own.state, &own.change) {
        (Some(UnitState::Upgrading | UnitState::Idle), Some(change)) => {
            let Ok(Some(change)) = charm.snapd.change(&ChangeId(change.clone())).await else { return Ok(None) };
            if change.ready && own.state == Some(UnitState::Upgrading) {
                return in_gate_after(charm, own, &declared).await;
            }
            if change.ready {
                return Ok(None);
            }
            let progress = refresh::progress(&change);
            if own.state == Some(UnitState::Idle) {
                return Ok(Some(messages::installing(&target.version, Some(&progress))));
            }
            let action = UnitAction::Follow { change: change.id.0 };
            Ok(messages::upgrade(&alone(charm, own, &declared), &action, None, Some(&progress)))
        }
        (Some(UnitState::Upgrading), None) => in_gate_after(charm, own, &declared).await,
        _ => Ok(None),
    }
}

const NO_APPLICATION: &ApplicationBag =
    &ApplicationBag { stack: Vec::new(), turn: None, run: None, dependencies: None, history: Vec::new() };

/// What this unit can say without the application's bag.
fn alone<'a, T>(charm: &'a Charm<T>, own: &'a UnitBag, declared: &'a Declared) -> Speaker<'a> {
    let version = &declared.wanted.target.version;
    let older = own.version.as_ref().is_some_and(|installed| version < installed)
        || (own.version.as_ref() == Some(version)
            && declared.wanted.pin.revision().is_some_and(|pin| own.revision.is_some_and(|installed| pin < installed)));
    Speaker { me: &charm.context.unit, version, going_back: older, bag: own, application: NO_APPLICATION }
}

async fn in_gate_after<T: HookTools>(
    charm: &Charm<T>,
    own: &UnitBag,
    declared: &Declared,
) -> Result<Option<Message>, JujuError> {
    let Ok(node) = host::host_name(&charm.context.root) else { return Ok(None) };
    let since = own.since.unwrap_or(Timestamp(0));
    let look = refresh::look(&charm.snapd, &declared.wanted, &charm.hashes, Some(since)).await;
    let SnapView::Known(known) = &look.view else { return Ok(None) };
    if !known.at_pin || known.change.is_some() {
        return Ok(None);
    }
    let now = charm.clock.now();
    let ended = unit::last_success(known);
    let promised = &declared.wanted.target.version;
    let version = known.installed.as_ref().map_or(promised, |installed| &installed.version);
    let facts = collect::health(charm, &node, version, ended, now).await;
    let health = gate_after(&facts);
    // A node that isn't called as its host is found by the record, which the whole pass reads.
    if health.awaited.is_empty() || health.repair || facts.node == Fact::Known(None) {
        return Ok(None);
    }
    let seconds = now.seconds_since(ended.map_or(since, |ended| ended.max(since)));
    if seconds >= settings::SHORTEST_TIMEOUT {
        let (settings, _) = settings::read(&charm.juju.config().await?);
        if seconds >= settings.health_timeout {
            return Ok(None);
        }
    }
    let waiting = WaitingOn::GateAfter { awaited: health.awaited, seconds };
    Ok(messages::upgrade(&alone(charm, own, declared), &UnitAction::Rest, Some(&waiting), None))
}
