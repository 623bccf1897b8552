//! The leader's part in an upgrade: it moves the token, begins and ends runs, and asks the checks before one begins.

use std::collections::{BTreeMap, BTreeSet};

use crate::charm::Charm;
use crate::cluster::values::ClusterUnitBag;
use crate::collect;
use crate::databags;
use crate::entry;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError};
use crate::kube::Kube;
use crate::lease::{Led, time_left};
use crate::names::UnitName;
use crate::observe::{Declared, Nothing, Observation, UpgradePeers};
use crate::own_snap;
use crate::reconcile::{Pace, remark};
use crate::status::Voices;
use crate::upgrade::checks::{Finding, Verdict, blocking, pre_upgrade};
use crate::upgrade::facts::{CheckFacts, Fact};
use crate::upgrade::leader::{self, Checks, LeaderPlan, LeaderView};
use crate::upgrade::messages;
use crate::upgrade::unit::is_going_back;
use crate::upgrade::values::{ApplicationBag, Outcome, UnitBag};

/// Does the leader's part, and writes the application's bags: only while the lease is sure to hold (R5).
///
/// `own` and `own_entry`: this unit's bags of `upgrade` and `cluster` as this hook leaves them.
pub async fn lead<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    own: Option<&UnitBag>,
    own_entry: Option<&ClusterUnitBag>,
    nothing: &Nothing,
    voices: &mut Voices,
    pace: &mut Pace,
) -> Result<Led, JujuError> {
    let mut led = Led::Nothing;
    if let (Some(upgrade), Some(own), Ok(declared)) = (&seen.upgrade, own, &seen.declared) {
        let plan = decide(charm, seen, upgrade, own, declared, nothing).await?;
        if !plan.blocked_by.is_empty() {
            voices.checks = Some(messages::checks_failed(&charm.context.unit, &plan.blocked_by));
            pace.at_least(Pace::Seldom);
        }
        if plan.application.run.is_some() {
            // Its own hook may be in error by the next event; its timer runs all the same.
            pace.at_least(Pace::Seldom);
        }
        led = write(charm, seen, upgrade, &plan).await?;
        if plan.application.run.is_none() {
            voices.remark = remark(charm, seen).await?;
        }
    }
    Ok(led.max(entry::lead(charm, seen, own_entry, led, pace).await?))
}

async fn write<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    plan: &LeaderPlan,
) -> Result<Led, JujuError> {
    let changes = databags::upgrade::application_changes(&plan.application, &upgrade.application.bag);
    if changes.is_empty() {
        return Ok(Led::Nothing);
    }
    if ended_where_it_began(&upgrade.application.value, &plan.application) {
        free_features(charm).await;
    }
    if time_left(charm, seen.now).is_none() {
        return Ok(Led::TooLate);
    }
    for news in &plan.news {
        tracing::info!("{news}");
    }
    charm.juju.set_application_bag(&upgrade.id, &changes).await?;
    Ok(Led::Wrote)
}

async fn decide<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    own: &UnitBag,
    declared: &Declared,
    nothing: &Nothing,
) -> Result<LeaderPlan, JujuError> {
    let bags = leader_bags(&charm.context.unit, seen, own);
    let nobody = BTreeSet::new();
    let view = LeaderView {
        me: &charm.context.unit,
        application: &upgrade.application.value,
        units: &seen.units,
        members: &seen.members,
        bags: &bags,
        target: &declared.wanted.target,
        dependencies: &declared.dependencies,
        not_ready: &nobody,
        checks: None,
        now: seen.now,
    };
    let plan = leader::plan(&view);
    if !plan.needs_checks {
        return Ok(plan);
    }
    let Some(unit_view) = seen.unit_view(&charm.context.unit, nothing) else { return Ok(plan) };
    let facts = collect::checks(charm, seen, &unit_view, declared, None).await?;
    let findings = pre_upgrade(&facts);
    report(&findings);
    let failed = blocking(&findings, &[]);
    let checks = match failed.is_empty() {
        true if is_going_back(&unit_view) => Checks::NotAsked,
        true => Checks::Passed,
        false => Checks::Failed(failed),
    };
    let not_ready = not_ready(seen, &charm.context.unit, &facts);
    Ok(leader::plan(&LeaderView { checks: Some(&checks), not_ready: &not_ready, ..view }))
}

/// Every unit's bag as it was read, and this unit's own as this hook leaves it.
pub fn leader_bags(me: &UnitName, seen: &Observation, own: &UnitBag) -> BTreeMap<UnitName, UnitBag> {
    let mut bags = seen.peers.clone();
    bags.insert(me.clone(), own.clone());
    bags
}

/// What an admin would want to read of the checks in the log.
pub fn report(findings: &[Finding]) {
    for Finding { id, verdict, seen, remedy } in findings {
        match verdict {
            Verdict::Pass => tracing::debug!("Check {id}: {seen}"),
            Verdict::Warn => tracing::warn!("Check {id}: {seen}"),
            Verdict::Fail => tracing::warn!("Check {id} fails: {seen} ({remedy})"),
        }
    }
}

/// The units whose nodes are known not to be Ready: they go first.
pub fn not_ready(seen: &Observation, me: &UnitName, facts: &CheckFacts) -> BTreeSet<UnitName> {
    let Fact::Known(nodes) = &facts.gate.nodes else { return BTreeSet::new() };
    let own = std::iter::once((me, &facts.gate.own_node));
    let all = facts.gate.other_nodes.iter().chain(own).filter(|(unit, _)| seen.members.contains(*unit));
    all.filter(|(_, node)| nodes.get(*node).is_none_or(|node| !node.ready)).map(|(unit, _)| unit.clone()).collect()
}

/// Whether this step ends a run that went back.
fn ended_where_it_began(before: &ApplicationBag, after: &ApplicationBag) -> bool {
    let rolled_back = after.history.first().is_some_and(|entry| entry.outcome == Outcome::RolledBack);
    before.run.is_some() && after.run.is_none() && rolled_back && before.history != after.history
}

/// R12: a way back in the middle leaves k8sd's record open for ever, with features and joins blocked. It goes, and k8sd
/// looks at the features again.
async fn free_features<T: HookTools>(charm: &Charm<T>) {
    let kube = match Kube::open(&charm.context.root, &charm.clock) {
        Ok(kube) => kube,
        Err(error) => return tracing::warn!("k8sd's records could not be looked at: {}", with_causes(&error)),
    };
    let records = match kube.upgrades().await {
        Ok(records) => records,
        Err(error) => return tracing::warn!("k8sd's records could not be looked at: {}", with_causes(&error)),
    };
    let mut deleted = false;
    for record in records.iter().filter(|record| !record.is_over()) {
        match kube.delete_upgrade(&record.name).await {
            Ok(()) => {
                tracing::info!("Deleted k8sd's record {}: it would block features and joins for ever", record.name);
                deleted = true;
            }
            Err(error) => tracing::warn!("k8sd's record {} stays: {}", record.name, with_causes(&error)),
        }
    }
    if deleted {
        own_snap::restart_k8sd(charm).await;
    }
}
