//! `upgrade-status`: where an upgrade stands, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Parameters;
use crate::charm::Charm;
use crate::collect;
use crate::databags;
use crate::juju::{HookTools, JujuError};
use crate::names::UnitName;
use crate::observe::{Nothing, Observation, UpgradePeers, observe, peer_bag};
use crate::rfc3339;
use crate::upgrade::facts::Fact;
use crate::upgrade::messages::{self, Message, Speaker};
use crate::upgrade::unit::{self, UnitView};
use crate::upgrade::values::{ApplicationBag, Outcome, UnitBag, UnitState};

/// Where an upgrade stands.
#[derive(Debug, Serialize)]
struct Report {
    /// One sentence.
    summary: String,
    units: Vec<Row>,
    /// What is awaited by this unit, in its status's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    awaited: Option<String>,
    /// What the admin can do next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    /// Checks that were passed over in this run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forced: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    history: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(rename = "unit")]
    name: String,
    state: &'static str,
    version: String,
    target: String,
    since: String,
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

/// Shows where an upgrade stands. Changes nothing.
pub async fn upgrade_status<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let parameters = Parameters::read(charm).await?;
    let seen = observe(charm).await?;
    let nothing = Nothing::default();
    let Some(upgrade) = &seen.upgrade else {
        return charm.juju.fail_action("Nothing to show yet: this unit is still being set up").await;
    };
    let bags = all_bags(charm, &seen, upgrade).await?;
    let health = match (seen.unit_view(&charm.context.unit, &nothing), &seen.declared) {
        (Some(view), Ok(declared)) => collect::gate(charm, &seen, &view, declared).await?.nodes,
        _ => Fact::Unknown("what this unit is to run is not known".to_owned()),
    };
    let report = report(charm, &seen, upgrade, &bags, &health, &nothing);
    let text = match parameters.text("format") {
        "json" => serde_json::to_string_pretty(&report).unwrap_or_default(),
        "yaml" => serde_yaml::to_string(&report).unwrap_or_default(),
        _ => as_text(&report),
    };
    charm.juju.set_action_results(&BTreeMap::from([("status", text)])).await
}

/// Every unit's bag, however much this hook needed of them.
async fn all_bags<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
) -> Result<BTreeMap<UnitName, UnitBag>, JujuError> {
    let mut bags = seen.peers.clone();
    bags.insert(charm.context.unit.clone(), upgrade.own.value.clone());
    for unit in &seen.units {
        if !bags.contains_key(unit)
            && let Some(bag) = peer_bag(charm, &upgrade.id, unit, databags::upgrade::parse_unit).await?
        {
            bags.insert(unit.clone(), bag);
        }
    }
    Ok(bags)
}

type Nodes = Fact<BTreeMap<String, crate::upgrade::facts::Node>>;

fn report<T>(
    charm: &Charm<T>,
    seen: &Observation,
    upgrade: &UpgradePeers,
    bags: &BTreeMap<UnitName, UnitBag>,
    nodes: &Nodes,
    nothing: &Nothing,
) -> Report {
    let me = &charm.context.unit;
    let application = &upgrade.application.value;
    let view = seen.unit_view(me, nothing);
    let awaited = view.as_ref().and_then(|view| awaited(view, application)).map(|message| message.text);
    Report {
        summary: summary(seen, bags, application),
        units: seen.units.iter().map(|unit| row(unit, seen, bags.get(unit), nodes)).collect(),
        next: next_steps(me, application, bags),
        awaited,
        forced: forced(application, bags),
        history: application.history.iter().map(history).collect(),
    }
}

fn awaited(view: &UnitView<'_>, application: &ApplicationBag) -> Option<Message> {
    let plan = unit::plan(view);
    let speaker = Speaker {
        me: view.me,
        version: &view.target.version,
        going_back: unit::is_going_back(view),
        bag: &plan.bag,
        application,
    };
    messages::upgrade(&speaker, &plan.action, plan.waiting.as_ref(), None)
}

fn summary(seen: &Observation, bags: &BTreeMap<UnitName, UnitBag>, application: &ApplicationBag) -> String {
    let failed: Vec<String> =
        bags.iter().filter(|(_, bag)| bag.state == Some(UnitState::Failed)).map(|(unit, _)| unit.to_string()).collect();
    if !failed.is_empty() {
        return format!("The upgrade is halted: {} failed", failed.join(", "));
    }
    if let Some(run) = &application.run {
        let to_go = application.stack.len();
        return format!("An upgrade to {} is on: {to_go} of {} units to go", run.to.version, seen.members.len());
    }
    if !application.stack.is_empty() {
        return "An upgrade is prepared: the next juju refresh begins it".to_owned();
    }
    let wanted = seen.declared.as_ref().ok().map(|declared| &declared.wanted.target);
    let is_current = |unit: &UnitName| {
        let bag = bags.get(unit);
        let at_rest = bag.is_some_and(|bag| bag.state == Some(UnitState::Idle) && bag.target.as_ref() == wanted);
        at_rest && bag.and_then(|bag| bag.version.as_ref()) == wanted.map(|target| &target.version)
    };
    match wanted {
        Some(target) if seen.units.iter().all(is_current) => format!("Up to date: every unit runs {}", target.version),
        Some(target) => format!("Not every unit runs {} yet", target.version),
        None => "What the units are to run is not known".to_owned(),
    }
}

fn row(unit: &UnitName, seen: &Observation, bag: Option<&UnitBag>, nodes: &Nodes) -> Row {
    let text = |value: Option<String>| value.unwrap_or_else(|| "?".to_owned());
    let entry = seen.cluster.as_ref().and_then(|cluster| cluster.application.value.entries.get(unit));
    let node = match (entry, nodes) {
        (None, _) => "not in the cluster".to_owned(),
        (Some(entry), Fact::Known(nodes)) => match nodes.get(entry.node()) {
            Some(node) if node.ready => format!("{} Ready", entry.node()),
            Some(_) => format!("{} NotReady", entry.node()),
            None => format!("{} absent", entry.node()),
        },
        (Some(entry), Fact::Unknown(_)) => format!("{} unknown", entry.node()),
    };
    Row {
        name: unit.to_string(),
        state: bag.and_then(|bag| bag.state).map_or("?", UnitState::word),
        version: text(bag.and_then(|bag| bag.version.as_ref()).map(ToString::to_string)),
        target: text(bag.and_then(|bag| bag.target.as_ref()).map(|target| target.version.to_string())),
        since: text(bag.and_then(|bag| bag.since).map(rfc3339::format)),
        node,
        cause: bag.and_then(|bag| bag.cause.clone()),
    }
}

fn next_steps(me: &UnitName, application: &ApplicationBag, bags: &BTreeMap<UnitName, UnitBag>) -> Vec<String> {
    let name = me.application();
    let mut steps: Vec<String> = bags
        .iter()
        .filter(|(_, bag)| bag.state == Some(UnitState::Failed))
        .map(|(unit, _)| format!("try again: juju run {unit} resume-upgrade"))
        .collect();
    if let Some(run) = &application.run {
        if let Some(from) = run.from.values().map(|origin| &origin.version).min() {
            steps.push(format!("go back to {from}: juju refresh {name} to the charm that you came from"));
        }
        if !run.skipped.is_empty() {
            steps.push(format!("take in who was left out: juju run {name}/leader resume-upgrade"));
        }
    }
    steps
}

fn forced(application: &ApplicationBag, bags: &BTreeMap<UnitName, UnitBag>) -> Vec<String> {
    let of_run = application.run.iter().flat_map(|run| &run.forced).map(|forced| ("the run".to_owned(), forced));
    let of_units = bags.iter().flat_map(|(unit, bag)| bag.forced.iter().map(|forced| (unit.to_string(), forced)));
    of_run
        .chain(of_units)
        .map(|(whose, forced)| format!("{whose}: {} (operation {})", forced.ids.join(", "), forced.operation))
        .collect()
}

fn history(entry: &crate::upgrade::values::HistoryEntry) -> String {
    let from = entry.from.as_ref().map_or("?".to_owned(), ToString::to_string);
    let outcome = match entry.outcome {
        Outcome::Upgraded => "upgraded",
        Outcome::RolledBack => "rolled back",
    };
    let (started, ended) = (rfc3339::format(entry.started), rfc3339::format(entry.ended));
    format!("{outcome} from {from} to {}, {started} until {ended}", entry.to)
}

fn as_text(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.summary);
    let header = ["UNIT", "STATE", "VERSION", "TARGET", "SINCE", "NODE"].map(str::to_owned);
    let rows: Vec<[String; 6]> = std::iter::once(header)
        .chain(report.units.iter().map(|unit| {
            let Row { name, state, version, target, since, node, .. } = unit;
            [name.clone(), (*state).to_owned(), version.clone(), target.clone(), since.clone(), node.clone()]
        }))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    for unit in report.units.iter().filter(|unit| unit.cause.is_some()) {
        let _ = writeln!(text, "\n{} failed: {}", unit.name, unit.cause.as_deref().unwrap_or_default());
    }
    let sections = [("Next", &report.next), ("Passed over", &report.forced), ("Earlier", &report.history)];
    if let Some(awaited) = &report.awaited {
        let _ = writeln!(text, "\n{awaited}");
    }
    for (title, lines) in sections.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        let _ = writeln!(text, "\n{title}:");
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}
