//! `pre-upgrade-check`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Parameters, operation};
use crate::charm::Charm;
use crate::collect;
use crate::databags;
use crate::juju::{HookTools, JujuError};
use crate::lead::{leader_bags, not_ready, report};
use crate::lease::time_left;
use crate::names::UnitName;
use crate::observe::{Declared, Nothing, Observation, UpgradePeers, observe};
use crate::reconcile::{Pace, wake};
use crate::rfc3339;
use crate::upgrade::checks::{CheckId, Finding, Verdict, blocking, pre_upgrade};
use crate::upgrade::leader::{self, Checks, LeaderView, next_turn};
use crate::upgrade::unit;
use crate::upgrade::values::{ApplicationBag, UnitBag, UnitState};

/// Says whether the application is ready to be upgraded; prepares the order, or begins the run if units are off their
/// pin already.
pub async fn pre_upgrade_check<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let application = charm.context.unit.application();
    let parameters = Parameters::read(charm).await?;
    let all: Vec<CheckId> = CheckId::all_that_can_be_skipped().collect();
    let skipped = match parameters.skipped(&all) {
        Ok(skipped) => skipped,
        Err(why) => return charm.juju.fail_action(&why).await,
    };
    let seen = observe(charm).await?;
    if !seen.leads {
        let why = format!("The leader checks: juju run {application}/leader pre-upgrade-check");
        return charm.juju.fail_action(&why).await;
    }
    let nothing = Nothing::default();
    let (Some(upgrade), Some(view), Ok(declared)) =
        (&seen.upgrade, seen.unit_view(&charm.context.unit, &nothing), &seen.declared)
    else {
        let why = seen.declared.as_ref().err().map_or("the unit is still being set up", |why| why.text.as_str());
        return charm.juju.fail_action(&format!("Not ready to be checked: {why}")).await;
    };
    let bags = leader_bags(&charm.context.unit, &seen, &unit::plan(&view).bag);
    let facts = collect::checks(charm, &seen, &view, declared, at_work(&upgrade.application.value, &bags)).await?;
    let findings = pre_upgrade(&facts);
    report(&findings);
    let failed = blocking(&findings, &skipped);
    let forced: Vec<String> = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Fail && skipped.contains(&finding.id))
        .map(|finding| finding.id.word().to_owned())
        .collect();
    let checks = match (failed.is_empty(), forced.is_empty()) {
        (false, _) => Checks::Failed(failed.clone()),
        (true, true) => Checks::Passed,
        (true, false) => Checks::Forced { ids: forced.clone(), operation: operation(charm) },
    };
    if !forced.is_empty() {
        tracing::warn!("Checks passed over by operation {}: {}", operation(charm), forced.join(", "));
    }
    let sick = not_ready(&seen, &charm.context.unit, &facts);
    let next = decide(charm, &seen, upgrade, &bags, &checks, &sick, declared);
    let mut result = sentence(application, &failed, &upgrade.application.value, &next);
    let mut results = BTreeMap::from([
        ("plan", order(&charm.context.unit, &next, &bags, &declared.wanted.target.version.to_string())),
        ("checks", as_yaml(&findings)),
        ("rollback", way_back(application, &charm.context.charm_dir, upgrade.application.value.run.is_some())),
    ]);
    results.retain(|_, text| !text.is_empty());
    let late = failed.is_empty() && time_left(charm, seen.now).is_none();
    if late {
        "The checks pass, but took so long that another unit may lead by now: run this again".clone_into(&mut result);
    }
    results.insert("result", result.clone());
    charm.juju.set_action_results(&results).await?;
    if late || !failed.is_empty() {
        return charm.juju.fail_action(&result).await;
    }
    let changes = databags::upgrade::application_changes(&next, &upgrade.application.bag);
    charm.juju.set_application_bag(&upgrade.id, &changes).await?;
    wake(charm, Pace::Soon).await;
    Ok(())
}

/// Who is at work in a run, or has failed: nothing is begun beside it.
fn at_work(application: &ApplicationBag, bags: &BTreeMap<UnitName, UnitBag>) -> Option<String> {
    let shows = |wanted: UnitState| bags.iter().find(|(_, bag)| bag.state == Some(wanted));
    let since = |bag: &UnitBag| bag.since.map(|since| format!(" since {}", rfc3339::format(since))).unwrap_or_default();
    if let Some((unit, bag)) = shows(UnitState::Failed) {
        return Some(format!("{unit} has failed{}", since(bag)));
    }
    let run = application.run.as_ref()?;
    let began = rfc3339::format(run.started);
    Some(match shows(UnitState::Upgrading) {
        Some((unit, bag)) => format!("an upgrade to {} is on: {unit} is at work{}", run.to.version, since(bag)),
        None => format!("an upgrade to {} is on since {began}", run.to.version),
    })
}

fn decide<T>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    bags: &BTreeMap<UnitName, UnitBag>,
    checks: &Checks,
    sick: &BTreeSet<UnitName>,
    declared: &Declared,
) -> ApplicationBag {
    let me = &charm.context.unit;
    let application = &upgrade.application.value;
    let off_pin =
        |bag: &UnitBag| matches!(bag.state, Some(UnitState::Ready | UnitState::Upgrading | UnitState::Failed));
    if bags.iter().any(|(unit, bag)| seen.members.contains(unit) && off_pin(bag)) {
        let view = LeaderView {
            me,
            application,
            units: &seen.units,
            members: &seen.members,
            bags,
            target: &declared.wanted.target,
            dependencies: &declared.dependencies,
            not_ready: sick,
            checks: Some(checks),
            now: seen.now,
        };
        return leader::plan(&view).application;
    }
    let mut prepared = application.clone();
    if prepared.stack.is_empty() && !matches!(checks, Checks::Failed(_)) {
        let members: Vec<UnitName> = seen.members.iter().cloned().collect();
        prepared.stack = leader::order(me, &members, sick);
        prepared.turn = next_turn(&prepared);
    }
    prepared
}

/// One sentence: ready or not, and what is next.
fn sentence(application: &str, failed: &[(String, String)], before: &ApplicationBag, after: &ApplicationBag) -> String {
    if !failed.is_empty() {
        let ids = failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>();
        let seen = failed.iter().map(|(id, seen)| format!("{id}: {seen}")).collect::<Vec<_>>().join("; ");
        if ids.contains(&CheckId::Run.word()) {
            return format!("Not now: {seen}. Where it stands: juju run {application}/leader upgrade-status");
        }
        let skip = ids.join(",");
        return format!(
            "Not ready to upgrade: {seen}. To go on anyway: juju run {application}/leader pre-upgrade-check skip={skip}"
        );
    }
    match (&before.run, &after.run) {
        (None, Some(run)) => format!("The upgrade to {} begins: juju status --watch 5s", run.to.version),
        _ => format!("Ready to upgrade. Next: juju refresh {application}"),
    }
}

/// In which order the units go, and from which version to which.
fn order(me: &UnitName, next: &ApplicationBag, bags: &BTreeMap<UnitName, UnitBag>, to: &str) -> String {
    let lines = next.stack.iter().rev().map(|number| {
        let unit = UnitName::new(me.application(), *number);
        let from = bags.get(&unit).and_then(|bag| bag.version.as_ref()).map_or("?".to_owned(), ToString::to_string);
        match &next.run {
            Some(_) => format!("{unit}: {from} to {to}"),
            None => format!("{unit}: from {from}"),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The findings as YAML text.
fn as_yaml(findings: &[Finding]) -> String {
    serde_yaml::to_string(findings).unwrap_or_default()
}

/// The command that goes back to the charm of now. Juju writes the charm's URL beside it (`ch:amd64/k8s-12`).
fn way_back(application: &str, charm_dir: &Path, under_way: bool) -> String {
    if under_way {
        return format!("juju refresh {application} to the charm that you came from, by --revision or --path");
    }
    let url = std::fs::read_to_string(charm_dir.join(".juju-charm")).unwrap_or_default();
    let revision = url.trim().rsplit_once('-').map(|(_, revision)| revision.to_owned());
    match revision {
        Some(revision) if url.starts_with("ch:") => format!("juju refresh {application} --revision {revision}"),
        _ => format!("juju refresh {application} --path ./the-charm-file-of-now.charm"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_the_command_for_the_charm_that_runs_now() {
        let directory = tempfile::tempdir().unwrap();
        let way = |url: &str| {
            std::fs::write(directory.path().join(".juju-charm"), url).unwrap();
            way_back("k8s", directory.path(), false)
        };
        assert_eq!(way("ch:amd64/k8s-1234\n"), "juju refresh k8s --revision 1234");
        assert!(way("local:k8s-2").starts_with("juju refresh k8s --path "));
    }
}
