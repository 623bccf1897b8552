//! A run on paper: three units, hook after hook, from the refresh to the end.

#![expect(clippy::unwrap_used, reason = "a test may end at once where its own data is wrong")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_charm::names::{Revision, Timestamp, UnitName};
use k8s_charm::upgrade::leader::{self, Checks, LeaderView};
use k8s_charm::upgrade::unit::{self, Installed, KnownSnap, PausePolicy, SnapView, Standing, UnitAction, UnitView};
use k8s_charm::upgrade::values::{
    ApplicationBag, Dependencies, Dependency, Outcome, Run, RunChecks, Target, UnitBag, UnitState,
};
use k8s_charm::upgrade::waiting::WaitingOn;

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
    /// Whose nodes have joined, as the databag says: an entry may outlive its unit.
    joined: BTreeSet<UnitName>,
    /// Units whose snapd doesn't answer.
    deaf: BTreeSet<UnitName>,
}

impl Paper {
    fn new() -> Self {
        let units = (0..3).map(|number| UnitName::new("k8s", number));
        Self {
            now: 1_000,
            bags: units.clone().map(|unit| (unit, UnitBag::default())).collect(),
            application: ApplicationBag::default(),
            installed: units.clone().map(|unit| (unit, ("1.31.3", 2001))).collect(),
            code: units.clone().map(|unit| (unit, ("1.31.3", 2001))).collect(),
            pause: PausePolicy::None,
            refreshes: Vec::new(),
            broken: BTreeSet::new(),
            joined: units.collect(),
            deaf: BTreeSet::new(),
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
        let known = SnapView::Known(KnownSnap {
            installed: Some(Installed { version: version.parse().unwrap(), revision: Revision::Store(revision) }),
            at_pin: revision == pinned,
            change: None,
            finished: Vec::new(),
        });
        let unknown = SnapView::Unknown("snapd doesn't answer".to_owned());
        let snap = if self.deaf.contains(me) { &unknown } else { &known };
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
            members: &self.joined,
            target: &wanted,
            pin_revision: Some(Revision::Store(pinned)),
            snap,
            pause: self.pause,
            health_timeout: 600,
            now: Timestamp(self.now),
        };
        let mut plan = unit::plan(&view);
        match plan.action.clone() {
            UnitAction::GateBefore => {
                self.refreshes.push(me.clone());
                self.installed.insert(me.clone(), self.code[me]);
                unit::begun(&view, &mut plan.bag, Some("7".to_owned()));
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
            members: &self.joined,
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

#[test]
fn a_unit_removed_in_the_middle_holds_nobody_up_even_while_its_entry_stays() {
    for removed in 1..3 {
        for rounds in 0..8 {
            let mut paper = Paper::new();
            paper.rounds(1);
            paper.refresh("1.32.1", 2002);
            paper.rounds(rounds);
            paper.bags.remove(&unit(removed));
            paper.installed.remove(&unit(removed));
            paper.rounds(12);
            assert!(
                paper.is_over_at("1.32.1"),
                "without k8s/{removed} after {rounds}: {:?} {:?}",
                paper.application,
                paper.bags
            );
        }
    }
}

#[test]
fn a_state_speaks_of_another_target_only_once_snapd_has_been_asked() {
    for state in [UnitState::Completed, UnitState::Failed, UnitState::Idle] {
        let mut paper = Paper::new();
        paper.rounds(1);
        let old = paper.bags[&unit(1)].target.clone();
        paper.bags.get_mut(&unit(1)).unwrap().state = Some(state);
        paper.refresh("1.32.1", 2002);
        paper.deaf.insert(unit(1));
        paper.hook(&unit(1));
        assert_eq!((paper.bags[&unit(1)].state, &paper.bags[&unit(1)].target), (Some(state), &old), "{state:?}");
        paper.deaf.clear();
        paper.hook(&unit(1));
        assert_eq!(paper.bags[&unit(1)].state, Some(UnitState::Ready), "off its pin after {state:?}");
    }
}

/// A run to 1.32.1 on the paper, with this stack and turn; every unit shows `state` for it.
fn in_a_run(stack: &[u32], turn: u64, state: UnitState) -> Paper {
    let mut paper = Paper::new();
    paper.rounds(1);
    paper.refresh("1.32.1", 2002);
    for bag in paper.bags.values_mut() {
        bag.state = Some(state);
        bag.target = Some(target("1.32.1"));
    }
    paper.application.stack = stack.to_vec();
    paper.application.turn = Some(turn);
    paper.application.run = Some(Run {
        id: "a run".to_owned(),
        from: BTreeMap::new(),
        to: target("1.32.1"),
        started: Timestamp(1_000),
        checks: RunChecks::Passed,
        forced: Vec::new(),
        resumed: Vec::new(),
        skipped: Vec::new(),
        done: Vec::new(),
    });
    paper
}

fn lead(paper: &mut Paper) {
    let units = paper.bags.keys().cloned().collect();
    paper.lead(&unit(0), &units, &target("1.32.1"));
}

#[test]
fn r4_the_holder_waits_for_units_on_old_code() {
    let mut paper = Paper::new();
    paper.rounds(1);
    paper.refresh("1.32.1", 2002);
    paper.code.insert(unit(1), ("1.31.3", 2001));
    paper.rounds(6);
    assert!(paper.refreshes.is_empty());
    assert_eq!(paper.hook(&unit(2)), Some(WaitingOn::OldCode { unit: unit(1) }));
}

#[test]
fn r4_the_holder_waits_while_another_unit_is_failed_or_at_work() {
    for (state, waiting) in [
        (UnitState::Failed, WaitingOn::Failed { unit: unit(1) }),
        (UnitState::Upgrading, WaitingOn::AtWork { unit: unit(1) }),
    ] {
        let mut paper = in_a_run(&[0, 1, 2], 5, UnitState::Ready);
        paper.bags.get_mut(&unit(1)).unwrap().state = Some(state);
        assert_eq!(paper.hook(&unit(2)), Some(waiting));
        assert!(paper.refreshes.is_empty());
    }
}

#[test]
fn r4_a_prepared_stack_alone_lets_nobody_begin() {
    let mut paper = in_a_run(&[0, 1, 2], 5, UnitState::Ready);
    paper.application.run = None;
    assert_eq!(paper.hook(&unit(2)), Some(WaitingOn::LeaderChecks));
    assert!(paper.refreshes.is_empty());
}

#[test]
fn r3_only_the_present_turn_can_be_given_up() {
    let mut paper = in_a_run(&[0, 1, 2], 5, UnitState::Ready);
    let holder = |paper: &mut Paper, state, turn| {
        let bag = paper.bags.get_mut(&unit(2)).unwrap();
        (bag.state, bag.turn) = (Some(state), turn);
    };
    for (state, turn) in [
        (UnitState::Completed, None),
        (UnitState::Completed, Some(4)),
        (UnitState::Failed, Some(5)),
        (UnitState::Ready, Some(5)),
    ] {
        holder(&mut paper, state, turn);
        lead(&mut paper);
        assert_eq!((paper.application.stack.last(), paper.application.turn), (Some(&2), Some(5)), "{state:?} {turn:?}");
    }
    holder(&mut paper, UnitState::Completed, Some(5));
    lead(&mut paper);
    assert_eq!((paper.application.stack.as_slice(), paper.application.turn), (&[0, 1][..], Some(6)));
    assert_eq!(paper.application.run.unwrap().done[0].unit, unit(2));
}

#[test]
fn r3_a_skipped_holder_goes_when_it_gives_its_turn_up() {
    let mut paper = in_a_run(&[0, 1, 2], 5, UnitState::Ready);
    paper.application.run.as_mut().unwrap().skipped.push(unit(2));
    lead(&mut paper);
    assert_eq!(paper.application.stack.last(), Some(&2), "it is only asked");
    assert_eq!(paper.hook(&unit(2)), Some(WaitingOn::TakenBack));
    assert_eq!(paper.bags[&unit(2)].turn, Some(5));
    lead(&mut paper);
    assert_eq!(paper.application.stack, [0, 1]);
}

#[test]
fn r3_the_leader_goes_last_and_a_sick_node_first() {
    let units = [unit(0), unit(1), unit(2)];
    assert_eq!(leader::order(&unit(1), &units, &BTreeSet::new()), [1, 0, 2]);
    assert_eq!(leader::order(&unit(1), &units, &BTreeSet::from([unit(0)])), [1, 2, 0]);
    assert_eq!(leader::order(&unit(1), &units, &BTreeSet::from([unit(1)])), [0, 2, 1]);
}

#[test]
fn r11_a_run_isnt_over_while_somebody_is_in_the_stack() {
    let mut paper = in_a_run(&[0], 5, UnitState::Idle);
    lead(&mut paper);
    assert!(paper.application.run.is_some());
    paper.application.stack.clear();
    lead(&mut paper);
    assert!(paper.application.run.is_none());
}

#[test]
fn r12_a_way_back_is_remembered_as_one() {
    let mut paper = Paper::new();
    paper.rounds(1);
    paper.refresh("1.32.1", 2002);
    for _ in 0..10 {
        if paper.application.run.as_ref().is_none_or(|run| run.done.is_empty()) {
            paper.rounds(1);
        }
    }
    assert!(paper.application.run.is_some(), "in the middle");
    paper.refresh("1.31.3", 2001);
    paper.rounds(12);
    assert!(paper.is_over_at("1.31.3"));
    assert_eq!(paper.application.history[0].outcome, Outcome::RolledBack);
}
