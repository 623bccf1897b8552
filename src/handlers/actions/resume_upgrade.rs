//! `resume-upgrade`.

use std::collections::BTreeMap;

use super::{Parameters, operation};
use crate::charm::Charm;
use crate::collect;
use crate::databags;
use crate::entry;
use crate::juju::{HookTools, JujuError};
use crate::lead::leader_bags;
use crate::lease::time_left;
use crate::names::UnitName;
use crate::observe::{Nothing, Observation, UpgradePeers, observe};
use crate::reconcile::{Pace, wake, write_own};
use crate::upgrade::admin::{Resume, UnitResumed, resume_on_leader, resume_unit, skip_unit};
use crate::upgrade::checks::{CheckId, blocking, gate_before};
use crate::upgrade::unit::{self, Standing, UnitAction};
use crate::upgrade::values::{ApplicationBag, Forced, Go, UnitBag};

/// Goes on with what stands still: on this unit, or, on the leader, with the holder or units that were left out.
pub async fn resume_upgrade<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let resume = match asked(charm).await? {
        Ok(resume) => resume,
        Err(why) => return charm.juju.fail_action(&why).await,
    };
    let seen = observe(charm).await?;
    let nothing = Nothing::default();
    let Some(upgrade) = &seen.upgrade else {
        return charm.juju.fail_action("Nothing to resume: this unit is still being set up").await;
    };
    if let Some(unit) = &resume.skip_unit {
        return leave_out(charm, &seen, upgrade, unit).await;
    }
    match on_this_unit(charm, &seen, upgrade, &nothing, &resume).await? {
        Some((bag, said)) => {
            let mut stands = upgrade.own.bag.clone();
            write_own(charm, &seen, &bag, &mut stands, &mut entry::Plan::nothing()).await?;
            done(charm, &said).await
        }
        None if seen.leads => on_the_leader(charm, &seen, upgrade, &nothing).await,
        None => {
            let me = &charm.context.unit;
            let holder = unit::holder(me.application(), &upgrade.application.value).filter(|holder| holder != me);
            let elsewhere = holder.map_or_else(String::new, |holder| {
                format!(" The upgrade waits for {holder}: juju run {holder} resume-upgrade")
            });
            charm.juju.fail_action(&format!("Nothing to resume on {me}.{elsewhere}")).await
        }
    }
}

async fn asked<T: HookTools>(charm: &Charm<T>) -> Result<Result<Resume, String>, JujuError> {
    let parameters = Parameters::read(charm).await?;
    let read = || -> Result<Resume, String> {
        let skip = CheckId::parse_list(parameters.text("skip"), &CheckId::GATE)?;
        let unit = parameters.text("skip-unit");
        Ok(Resume {
            skip: skip.iter().map(|id| id.word().to_owned()).collect(),
            force: parameters.is_true("force")?,
            skip_unit: match unit {
                "" => None,
                unit => Some(unit.parse().map_err(|error| format!("skip-unit: {error}"))?),
            },
            operation: operation(charm),
        })
    };
    Ok(read())
}

/// Says it, and lets the next hook, which comes at once, act on it.
async fn done<T: HookTools>(charm: &Charm<T>, said: &str) -> Result<(), JujuError> {
    tracing::info!("resume-upgrade, operation {}: {said}", operation(charm));
    charm.juju.set_action_results(&BTreeMap::from([("result", said.to_owned())])).await?;
    wake(charm, Pace::Close).await;
    Ok(())
}

async fn leave_out<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    unit: &UnitName,
) -> Result<(), JujuError> {
    if !seen.leads {
        let application = charm.context.unit.application();
        let why = format!("The leader leaves units out: juju run {application}/leader resume-upgrade skip-unit={unit}");
        return charm.juju.fail_action(&why).await;
    }
    write_as_leader(charm, seen, upgrade, skip_unit(&upgrade.application.value, unit, seen.units.contains(unit))).await
}

async fn write_as_leader<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    answer: Result<(ApplicationBag, String), String>,
) -> Result<(), JujuError> {
    match answer {
        Err(why) => charm.juju.fail_action(&why).await,
        Ok(_) if time_left(charm, seen.now).is_none() => {
            charm.juju.fail_action("This took too long: run it again").await
        }
        Ok((application, said)) => {
            let changes = databags::upgrade::application_changes(&application, &upgrade.application.bag);
            charm.juju.set_application_bag(&upgrade.id, &changes).await?;
            done(charm, &said).await
        }
    }
}

async fn on_the_leader<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    nothing: &Nothing,
) -> Result<(), JujuError> {
    let me = &charm.context.unit;
    let Some(view) = seen.unit_view(me, nothing) else {
        return charm
            .juju
            .fail_action("Nothing to resume: what this unit is to run is not known, see juju status")
            .await;
    };
    let bags = leader_bags(me, seen, &unit::plan(&view).bag);
    let answer = resume_on_leader(me, &upgrade.application.value, &bags, view.target, seen.settings.pause);
    write_as_leader(charm, seen, upgrade, answer).await
}

/// The word for this unit, if it needs one: its bag as it becomes, and what is said of it.
async fn on_this_unit<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    nothing: &Nothing,
    resume: &Resume,
) -> Result<Option<(UnitBag, String)>, JujuError> {
    let (Some(view), Ok(declared)) = (seen.unit_view(&charm.context.unit, nothing), &seen.declared) else {
        return Ok(None);
    };
    let own = &upgrade.own.value;
    if seen.standing == Standing::Newcomer {
        return Ok(resume.force.then(|| (let_in(own, resume), "This unit joins now".to_owned())));
    }
    let plan = unit::plan(&view);
    let mut gate_before_fails = false;
    if plan.action == UnitAction::GateBefore {
        let findings = gate_before(&collect::gate(charm, seen, &view, declared).await?);
        gate_before_fails = !blocking(&findings, &[]).is_empty();
    }
    let gate_after = match plan.action {
        UnitAction::GateAfter { since, .. } => Some(since),
        _ => None,
    };
    let resumed = resume_unit(own, plan.waiting.as_ref(), gate_before_fails, gate_after.is_some(), resume, seen.now);
    Ok(match (resumed, gate_after) {
        (UnitResumed::Bag(bag, said), _) => Some((*bag, said)),
        (UnitResumed::GateAfterForced, Some(since)) => {
            let mut passed = unit::after_gate_after(&view, plan, since, Vec::new(), true).bag;
            passed.forced.push(Forced { ids: vec!["health".to_owned()], operation: resume.operation.clone() });
            Some((passed, "This unit is taken as healthy".to_owned()))
        }
        _ => None,
    })
}

fn let_in(own: &UnitBag, resume: &Resume) -> UnitBag {
    let go = Go { operation: resume.operation.clone(), skip: Vec::new() };
    UnitBag { go: Some(go), ..own.clone() }
}
