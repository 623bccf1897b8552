//! A run on paper: three units, hook after hook, from the refresh to the end.

use std::collections::{BTreeMap, BTreeSet};

use super::leader::{self, Checks, LeaderView};
use super::unit::{self, Installed, KnownSnap, PausePolicy, SnapView, Standing, UnitAction, UnitView};
use super::values::{ApplicationBag, Dependencies, Dependency, Outcome, Target, UnitBag, UnitState};
use super::waiting::WaitingOn;
use crate::names::{Revision, Timestamp, UnitName};

fn dependencies() -> Dependencies {
    let one = || Dependency {
        dependencies: BTreeMap::new(),
        name: "k8s".to_owned(),
        upgrade_supported: ">=1".to_owned(),
        version: "2".to_owned(),
    };
    Dependencies { k8s_charm: one(), k8s_service: one() }
}

fn target(version: &str) -> Target {
    Target { version: version.parse().unwrap(), hash: "0a1b2c3d".to_owned() }
}

/// Three units, k8s/0 leading; bags are read fresh, and every write is kept.
struct Paper {
    now: i64,
    bags: BTreeMap<UnitName, UnitBag>,
    application: ApplicationBag,
    installed: BTreeMap<UnitName, (&'static str, u32)>,
    code: BTreeMap<UnitName, (&'static str, u32)>,
    pause: PausePolicy,
    refreshes: Vec<UnitName>,
    broken: BTreeSet<UnitName>,
}

impl Paper {
    fn new() -> Self {
        let units = (0..3).map(|number| UnitName::new("k8s", number));
        Self {
            now: 1_000,
            bags: units.clone().map(|unit| (unit, UnitBag::default())).collect(),
            application: ApplicationBag::default(),
            installed: units.clone().map(|unit| (unit, ("1.31.3", 2001))).collect(),
            code: units.map(|unit| (unit, ("1.31.3", 2001))).collect(),
            pause: PausePolicy::None,
            refreshes: Vec::new(),
            broken: BTreeSet::new(),
        }
    }

    fn refresh(&mut self, version: &'static str, revision: u32) {
        self.code.values_mut().for_each(|code| *code = (version, revision));
    }

    fn hook(&mut self, me: &UnitName) -> Option<WaitingOn> {
        self.now += 10;
        let units: BTreeSet<UnitName> = self.bags.keys().cloned().collect();
        let peers = self.bags.iter().filter(|(unit, _)| *unit != me).map(|(u, b)| (u.clone(), b.clone())).collect();
        let (version, revision) = self.installed[me];
        let (wanted, pinned) = self.code[me];
        let snap = SnapView::Known(KnownSnap {
            installed: Some(Installed { version: version.parse().unwrap(), revision: Revision::Store(revision) }),
            at_pin: revision == pinned,
            change: None,
            finished: Vec::new(),
        });
        let own = self.bags[me].clone();
        let wanted = target(wanted);
        let view = UnitView {
            me,
            dying: false,
            standing: Standing::Member,
            own: &own,
            application: &self.application,
            units: &units,
            peers: &peers,
            members: &units,
            target: &wanted,
            pin_revision: Some(Revision::Store(pinned)),
            snap: &snap,
            pause: self.pause,
            health_timeout: 600,
            now: Timestamp(self.now),
        };
        let mut plan = unit::plan(&view);
        match plan.action.clone() {
            UnitAction::GateBefore => {
                self.refreshes.push(me.clone());
                self.installed.insert(me.clone(), self.code[me]);
                plan.bag = unit::begun(&view, plan.bag, Some("7".to_owned()));
            }
            UnitAction::GateAfter { since, .. } => {
                let sick = self.broken.contains(me);
                let awaited = if sick { vec!["the node to be Ready".to_owned()] } else { Vec::new() };
                plan = unit::after_gate_after(&view, plan, since, awaited, false);
            }
            _ => {}
        }
        self.bags.insert(me.clone(), plan.bag);
        if me.number() == 0 {
            self.lead(me, &units, &wanted);
        }
        plan.waiting
    }

    fn lead(&mut self, me: &UnitName, units: &BTreeSet<UnitName>, wanted: &Target) {
        let leader = leader::plan(&LeaderView {
            me,
            application: &self.application,
            units,
            members: units,
            bags: &self.bags,
            target: wanted,
            dependencies: &dependencies(),
            not_ready: &BTreeSet::new(),
            checks: Some(&Checks::Passed),
            now: Timestamp(self.now),
        });
        self.application = leader.application;
    }

    fn rounds(&mut self, count: usize) {
        let units: Vec<UnitName> = self.bags.keys().cloned().collect();
        for _ in 0..count {
            for unit in &units {
                self.hook(unit);
            }
        }
    }

    fn is_over_at(&self, version: &str) -> bool {
        self.application.run.is_none()
            && self.application.stack.is_empty()
            && self.bags.values().all(|bag| bag.state == Some(UnitState::Idle))
            && self.installed.values().all(|(installed, _)| *installed == version)
    }
}

fn unit(number: u32) -> UnitName {
    UnitName::new("k8s", number)
}

#[test]
fn a_refresh_goes_through_the_units_highest_first_and_the_leader_last() {
    let mut paper = Paper::new();
    paper.rounds(1);
    assert!(paper.refreshes.is_empty(), "nothing is refreshed at the pin");
    paper.refresh("1.32.1", 2002);
    paper.rounds(10);
    assert!(paper.is_over_at("1.32.1"), "{:?} {:?}", paper.application, paper.bags);
    assert_eq!(paper.refreshes, [unit(2), unit(1), unit(0)]);
    assert_eq!(paper.application.history[0].outcome, Outcome::Upgraded);
}

#[test]
fn a_settled_cluster_writes_nothing() {
    let mut paper = Paper::new();
    paper.rounds(2);
    let (bags, application) = (paper.bags.clone(), paper.application.clone());
    paper.rounds(3);
    assert_eq!((bags, application), (paper.bags, paper.application));
}

#[test]
fn a_rollback_in_the_middle_ends_at_the_old_pin() {
    for rounds in 1..8 {
        let mut paper = Paper::new();
        paper.rounds(1);
        paper.refresh("1.32.1", 2002);
        paper.rounds(rounds);
        paper.refresh("1.31.3", 2001);
        paper.rounds(12);
        assert!(paper.is_over_at("1.31.3"), "after {rounds} rounds: {:?} {:?}", paper.application, paper.bags);
    }
}

#[test]
fn a_sick_node_fails_after_its_time_and_halts_the_others_until_it_is_well() {
    let mut paper = Paper::new();
    paper.rounds(1);
    paper.refresh("1.32.1", 2002);
    paper.broken.insert(unit(2));
    paper.rounds(40);
    assert_eq!(paper.bags[&unit(2)].state, Some(UnitState::Failed));
    assert_eq!(paper.refreshes, [unit(2)], "nobody else begins");
    assert_eq!(paper.hook(&unit(1)), Some(WaitingOn::Failed { unit: unit(2) }));
    paper.broken.clear();
    paper.rounds(12);
    assert!(paper.is_over_at("1.32.1"), "{:?} {:?}", paper.application, paper.bags);
}

#[test]
fn the_pause_policy_waits_for_the_admin_after_the_first_unit() {
    let mut paper = Paper::new();
    paper.rounds(1);
    paper.pause = PausePolicy::First;
    paper.refresh("1.32.1", 2002);
    paper.rounds(10);
    assert_eq!(paper.refreshes, [unit(2)]);
    assert_eq!(paper.hook(&unit(1)), Some(WaitingOn::Pause { after: unit(2) }));
}
