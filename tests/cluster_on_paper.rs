//! A deploy on paper: hooks in steps, killed half-way, with a leader that moves and units that come and go. There must
//! never be two clusters, and in the end every unit is in the one.

#![expect(clippy::unwrap_used, reason = "a test may end at once where its own data is wrong")]

use std::collections::{BTreeMap, BTreeSet};

use k8s_charm::cluster::decide::{self, LeaderView, Step, TokenWanted, UnitPlan, UnitView};
use k8s_charm::cluster::values::{ClusterApplicationBag, ClusterUnitBag, Entry, TokenId};
use k8s_charm::names::UnitName;
use k8s_charm::upgrade::unit::Standing;
use proptest::prelude::*;

/// No cluster has this number.
const NO_CLUSTER: u32 = 0;
const NAME: &str = "k8s-0123";

fn unit(number: u32) -> UnitName {
    UnitName::new("k8s", number)
}

/// A unit's k8sd; clusters have numbers, for two of them must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum K8sd {
    Out,
    Bootstrapping(u32),
    Joining(u32),
    In(u32),
}

impl K8sd {
    fn standing(self) -> Standing {
        match self {
            Self::Out => Standing::Newcomer,
            Self::In(_) => Standing::Member,
            Self::Bootstrapping(_) | Self::Joining(_) => Standing::Unknown,
        }
    }
}

/// A hook that has begun: what it read, and what it has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hook {
    read: Reading,
    action: Step,
    acted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading {
    units: BTreeSet<UnitName>,
    dying: BTreeSet<UnitName>,
    application: ClusterApplicationBag,
    bags: BTreeMap<UnitName, ClusterUnitBag>,
    k8sd: K8sd,
}

/// What may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    leaders: u8,
    kills: u8,
    removals: u8,
    forced: u8,
    added: u8,
    failed_joins: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A hook begins; it brings this peer's bag.
    Begin(u32, Option<u32>),
    Act(u32),
    /// k8sd's bootstrap or join comes to its end.
    Ends(u32),
    /// The join fails, though the cluster is there, and will with this token.
    Fails(u32),
    Finish(u32),
    /// Dies with its unit's bag written and the application's not: a timer's writes are kept.
    Half(u32),
    /// Dies, or its flush is refused: nothing that it wrote is kept.
    Kill(u32),
    Leads(u32),
    Remove(u32),
    Gone(u32),
    ForceOut(u32),
    Add,
}

impl Event {
    fn is_trouble(self) -> bool {
        !matches!(self, Self::Begin(..) | Self::Act(_) | Self::Ends(_) | Self::Finish(_))
    }
}

/// A token secret.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Secret {
    /// The unit that made it for itself to keep; the application's otherwise.
    owner: Option<u32>,
    /// The cluster that the token in it is good for.
    cluster: u32,
    /// Which one it is for its unit.
    revision: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct World {
    units: BTreeMap<u32, K8sd>,
    dying: BTreeSet<u32>,
    leader: u32,
    application: ClusterApplicationBag,
    bags: BTreeMap<UnitName, ClusterUnitBag>,
    /// What each unit has seen of its peers' bags: as old as its last hook for that peer.
    seen: BTreeMap<u32, BTreeMap<UnitName, ClusterUnitBag>>,
    hooks: BTreeMap<u32, Hook>,
    secrets: BTreeMap<TokenId, Secret>,
    numbers: u32,
    next_unit: u32,
    budget: Budget,
}

impl World {
    fn new(units: u32, budget: Budget) -> Self {
        Self {
            units: (0..units).map(|number| (number, K8sd::Out)).collect(),
            dying: BTreeSet::new(),
            leader: 0,
            application: ClusterApplicationBag::default(),
            bags: (0..units).map(|number| (unit(number), ClusterUnitBag::default())).collect(),
            seen: BTreeMap::new(),
            hooks: BTreeMap::new(),
            secrets: BTreeMap::new(),
            numbers: 0,
            next_unit: units,
            budget,
        }
    }

    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    /// A cluster lives while a unit that exists is in it.
    fn lives(&self, cluster: u32) -> bool {
        self.units.values().any(|k8sd| *k8sd == K8sd::In(cluster))
    }

    fn clusters(&self) -> BTreeSet<u32> {
        let of = |k8sd: &K8sd| match k8sd {
            K8sd::In(cluster) | K8sd::Bootstrapping(cluster) => Some(*cluster),
            K8sd::Joining(_) | K8sd::Out => None,
        };
        self.units.values().filter_map(of).collect()
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let budget = self.budget;
        for (&number, k8sd) in &self.units {
            let busy = matches!(k8sd, K8sd::Bootstrapping(_) | K8sd::Joining(_));
            match self.hooks.get(&number) {
                None => {
                    events.push(Event::Begin(number, None));
                    let news = |peer: &&u32| {
                        let seen = self.seen.get(&number).and_then(|seen| seen.get(&unit(**peer)));
                        **peer != number && seen != self.bags.get(&unit(**peer))
                    };
                    events.extend(self.units.keys().filter(news).map(|peer| Event::Begin(number, Some(*peer))));
                }
                Some(hook) if hook.acted && busy => {}
                Some(hook) if hook.acted || hook.action == Step::Rest => {
                    events.push(Event::Finish(number));
                    if number == self.leader && budget.kills > 0 {
                        events.push(Event::Half(number));
                    }
                }
                Some(_) => events.push(Event::Act(number)),
            }
            if busy {
                events.push(Event::Ends(number));
            }
            if matches!(k8sd, K8sd::Joining(_)) && budget.failed_joins > 0 {
                events.push(Event::Fails(number));
            }
            if self.hooks.contains_key(&number) && budget.kills > 0 {
                events.push(Event::Kill(number));
            }
            if number != self.leader && budget.leaders > 0 {
                events.push(Event::Leads(number));
            }
            if !self.dying.contains(&number) && budget.removals > 0 {
                events.push(Event::Remove(number));
            }
            if self.dying.contains(&number) && !self.hooks.contains_key(&number) && self.units.len() > 1 {
                events.push(Event::Gone(number));
            }
            if budget.forced > 0 && self.units.len() > 1 {
                events.push(Event::ForceOut(number));
            }
        }
        if budget.added > 0 {
            events.push(Event::Add);
        }
        events
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Begin(number, peer) => {
                let seen = self.seen.entry(number).or_default();
                if let Some(bag) = peer.and_then(|peer| self.bags.get(&unit(peer))) {
                    seen.insert(unit(peer.unwrap()), bag.clone());
                }
                self.begin(number);
            }
            Event::Act(number) => self.act(number),
            Event::Ends(number) => {
                let ended = match self.units[&number] {
                    K8sd::Bootstrapping(cluster) => K8sd::In(cluster),
                    K8sd::Joining(cluster) if self.lives(cluster) => K8sd::In(cluster),
                    _ => K8sd::Out,
                };
                self.units.insert(number, ended);
            }
            Event::Fails(number) => {
                self.budget.failed_joins -= 1;
                self.units.insert(number, K8sd::Out);
                self.spoil(number);
            }
            Event::Finish(number) => self.finish(number, true),
            Event::Half(number) => {
                self.budget.kills -= 1;
                self.finish(number, false);
            }
            Event::Kill(number) => {
                self.budget.kills -= 1;
                self.hooks.remove(&number);
            }
            Event::Leads(number) => {
                self.budget.leaders -= 1;
                self.leader = number;
            }
            Event::Remove(number) => {
                self.budget.removals -= 1;
                self.dying.insert(number);
            }
            Event::Gone(number) => self.gone(number),
            Event::ForceOut(number) => {
                self.budget.forced -= 1;
                self.gone(number);
            }
            Event::Add => {
                self.budget.added -= 1;
                self.units.insert(self.next_unit, K8sd::Out);
                self.bags.insert(unit(self.next_unit), ClusterUnitBag::default());
                self.next_unit += 1;
            }
        }
    }

    /// What this unit joins with is good for no cluster any more.
    fn spoil(&mut self, number: u32) {
        if let Some(Hook { action: Step::Join(token), .. }) = self.hooks.get(&number)
            && let Some(secret) = self.secrets.get_mut(token)
        {
            secret.cluster = NO_CLUSTER;
        }
    }

    fn gone(&mut self, number: u32) {
        self.units.remove(&number);
        self.dying.remove(&number);
        self.hooks.remove(&number);
        self.bags.remove(&unit(number));
        self.secrets.retain(|_, secret| secret.owner != Some(number));
        if self.leader == number {
            let next =
                *self.units.keys().find(|unit| !self.dying.contains(unit)).unwrap_or(self.units.keys().next().unwrap());
            self.leader = next;
        }
    }

    fn existing(&self) -> BTreeSet<UnitName> {
        self.units.keys().map(|number| unit(*number)).collect()
    }

    fn leaving(&self) -> BTreeSet<UnitName> {
        self.dying.iter().map(|number| unit(*number)).collect()
    }

    fn begin(&mut self, number: u32) {
        let mut bags = self.seen.get(&number).cloned().unwrap_or_default();
        bags.insert(unit(number), self.bags[&unit(number)].clone());
        let read = Reading {
            units: self.existing(),
            dying: self.leaving(),
            application: self.application.clone(),
            bags,
            k8sd: self.units[&number],
        };
        let plan = self.unit_part(number, &read);
        // What takes time is for a hook that writes nothing as the leader.
        let leads = number == self.leader && {
            let mut ahead = self.clone();
            let mut read = read.clone();
            read.bags.insert(unit(number), plan.bag);
            ahead.lead(number, &read);
            ahead.application != self.application
        };
        let action = if leads { Step::Rest } else { plan.step };
        self.hooks.insert(number, Hook { read, action, acted: false });
    }

    fn unit_part(&self, number: u32, read: &Reading) -> UnitPlan {
        let me = unit(number);
        let peers = read.bags.iter().filter(|(unit, _)| **unit != me).map(|(unit, bag)| (unit.clone(), bag.clone()));
        decide::plan(&UnitView {
            me: &me,
            dying: read.dying.contains(&me),
            standing: read.k8sd.standing(),
            node: &format!("n{number}"),
            own: &read.bags[&me],
            application: &read.application,
            units: &read.units,
            peers: &peers.collect(),
            cluster_name: NAME,
            leads: self.leader == number,
            version: None,
            upgrade: None,
        })
    }

    fn act(&mut self, number: u32) {
        let hook = self.hooks.get_mut(&number).unwrap();
        hook.acted = true;
        let begun = match hook.action.clone() {
            Step::Rest | Step::MakeTokens(_) => return,
            Step::Bootstrap => K8sd::Bootstrapping(self.number()),
            // A secret that was withdrawn can't be read, and a token that failed isn't tried again.
            Step::Join(token) => match (self.secrets.get(&token), &hook.read.bags[&unit(number)].token_failure) {
                (Some(secret), Some(failure)) if secret.revision == failure.revision => return,
                (Some(secret), _) => K8sd::Joining(secret.cluster),
                (None, _) => return,
            },
        };
        // k8sd itself refuses a second bootstrap or join.
        if self.units[&number] == K8sd::Out {
            self.units.insert(number, begun);
        }
    }

    /// A member of the cluster makes a token: it is good for that cluster.
    fn make(&mut self, number: u32, owner: Option<u32>, revision: i64) -> TokenId {
        let cluster = match self.units[&number] {
            K8sd::In(cluster) => cluster,
            other => unreachable!("only a member makes tokens, not one that is {other:?}"),
        };
        let id = format!("secret:{}", self.number());
        self.secrets.insert(id.clone(), Secret { owner, cluster, revision });
        id
    }

    /// As the shell does it: a failure of an older token than the unit has by now asks for none.
    fn renew(
        &mut self,
        number: u32,
        owner: Option<u32>,
        old: Option<&TokenId>,
        wanted: &TokenWanted,
    ) -> Option<TokenId> {
        if old.is_some() && !self.is_spent(old, wanted) {
            return None;
        }
        let revision = wanted.failure.as_ref().map_or(0, |failure| failure.revision + 1);
        Some(self.make(number, owner, revision))
    }

    fn is_spent(&self, token: Option<&TokenId>, wanted: &TokenWanted) -> bool {
        let (Some(token), Some(failure)) = (token, &wanted.failure) else { return false };
        self.secrets.get(token).is_none_or(|secret| secret.revision == failure.revision)
    }

    /// What the unit finds after its action; or, without one, the leader's part on a fresh application bag. All is kept at
    /// once.
    fn finish(&mut self, number: u32, whole: bool) {
        let mut hook = self.hooks.remove(&number).unwrap();
        if hook.acted {
            hook.read.k8sd = self.units[&number];
        }
        let plan = self.unit_part(number, &hook.read);
        let mut bag = plan.bag;
        if let Step::Join(token) = &hook.action
            && hook.read.k8sd == K8sd::Out
        {
            let revision = self.secrets.get(token).map_or(0, |secret| secret.revision);
            bag = decide::failed_to_join(bag, revision, "refused");
        }
        if let Step::MakeTokens(wanted) = plan.step {
            for wanted in wanted {
                let old = bag.tokens.get(&wanted.unit).cloned();
                let Some(id) = self.renew(number, Some(number), old.as_ref(), &wanted) else { continue };
                self.secrets.retain(|id, _| Some(id) != old.as_ref());
                bag.tokens.insert(wanted.unit, id);
            }
        }
        let before = self.bags[&unit(number)].tokens.clone();
        for (_, id) in before.iter().filter(|(joiner, _)| !bag.tokens.contains_key(*joiner)) {
            self.secrets.remove(id);
        }
        self.bags.insert(unit(number), bag.clone());
        if whole && self.leader == number && !hook.acted {
            hook.read.bags.insert(unit(number), bag);
            self.lead(number, &hook.read);
        }
    }

    fn lead(&mut self, number: u32, read: &Reading) {
        let (me, application) = (unit(number), self.application.clone());
        // Read after the application bag: a unit that was added since the hook began isn't one that is gone.
        let units = self.existing();
        let plan = decide::lead(&LeaderView {
            me: &me,
            dying: self.leaving().contains(&me),
            standing: read.k8sd.standing(),
            application: &application,
            units: &units,
            bags: &read.bags,
            cluster_name: NAME,
        });
        let mut application = plan.application;
        let mut withdrawn = plan.withdrawn;
        for wanted in plan.tokens {
            let old = application.tokens.get(&wanted.unit).cloned();
            if read.k8sd.standing() != Standing::Member {
                if self.is_spent(old.as_ref(), &wanted) {
                    withdrawn.extend(application.tokens.remove(&wanted.unit));
                }
                continue;
            }
            let Some(id) = self.renew(number, None, old.as_ref(), &wanted) else { continue };
            withdrawn.extend(old);
            application.tokens.insert(wanted.unit, id);
        }
        for (departed, _) in plan.departed {
            assert!(!self.units.contains_key(&departed.number()), "{departed} is there");
            application.entries.remove(&departed);
            withdrawn.extend(application.tokens.remove(&departed));
        }
        self.secrets.retain(|id, _| !withdrawn.contains(id));
        self.application = application;
    }

    /// From here on nothing goes wrong, every hook is run, and news arrives: how it ends.
    fn settle(mut self) -> Self {
        self.budget = Budget { leaders: 0, kills: 0, removals: 0, forced: 0, added: 0, failed_joins: 0 };
        if self.dying.len() == self.units.len() {
            return self;
        }
        for _ in 0..12 {
            let before = self.clone();
            let numbers: Vec<u32> = self.units.keys().copied().collect();
            for number in numbers {
                self.one_hook(number);
                if self.dying.contains(&number) {
                    self.gone(number);
                }
            }
            if self == before {
                break;
            }
        }
        self
    }

    /// What is under way comes to its end, then one whole hook with all news.
    fn one_hook(&mut self, number: u32) {
        for whole in [false, true] {
            if whole && !self.hooks.contains_key(&number) {
                let bags = self.bags.clone();
                self.seen.insert(number, bags);
                self.step(Event::Begin(number, None));
            }
            for event in [Event::Act(number), Event::Ends(number), Event::Finish(number)] {
                if self.events().contains(&event) {
                    self.step(event);
                }
            }
        }
    }

    fn check_safe(&self) {
        let clusters = self.clusters();
        assert!(clusters.len() <= 1, "two clusters: {self:#?}");
    }

    /// Every unit is in the one cluster, the bag says so, and no token is left.
    fn check_ends(&self) {
        let end = self.clone().settle();
        if end.dying.len() == end.units.len() {
            return;
        }
        end.check_safe();
        let wanted: BTreeMap<UnitName, Entry> =
            end.units.keys().map(|number| (unit(*number), Entry::Joined(format!("n{number}")))).collect();
        assert_eq!(end.application.entries, wanted, "from {self:#?}\nto {end:#?}");
        assert!(end.units.values().all(|k8sd| matches!(k8sd, K8sd::In(_))), "{end:#?}");
        assert_eq!(end.application.bootstrap, end.units.keys().next().map(|number| unit(*number)));
        assert!(end.secrets.is_empty() && end.application.tokens.is_empty(), "tokens are left: {end:#?}");
        assert!(end.bags.values().all(|bag| bag.tokens.is_empty()), "tokens are left: {end:#?}");
        assert!(end.bags.values().all(|bag| bag.joined.as_deref() == Some(NAME) && bag.unjoined.is_none()));
    }
}

const NOTHING: Budget = Budget { leaders: 0, kills: 0, removals: 0, forced: 0, added: 0, failed_joins: 0 };

/// Every state that can be reached: how many there are.
fn explore(units: u32, budget: Budget) -> usize {
    let start = World::new(units, budget);
    let mut known = BTreeSet::from([format!("{start:?}")]);
    let mut ahead = vec![start];
    while let Some(world) = ahead.pop() {
        world.check_safe();
        world.check_ends();
        for event in world.events() {
            let mut next = world.clone();
            next.step(event);
            if known.insert(format!("{next:?}")) {
                ahead.push(next);
            }
        }
    }
    known.len()
}

#[test]
fn one_unit_in_every_way() {
    explore(1, Budget { kills: 2, ..NOTHING });
}

#[test]
fn two_units_in_every_way() {
    for budget in [
        Budget { leaders: 1, kills: 1, ..NOTHING },
        Budget { leaders: 1, removals: 1, ..NOTHING },
        Budget { leaders: 1, forced: 1, ..NOTHING },
        Budget { leaders: 1, failed_joins: 1, ..NOTHING },
    ] {
        let states = explore(2, budget);
        assert!(states > 1_000, "{states} states with {budget:?}: something doesn't happen any more");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn units_come_and_go_while_everything_goes_wrong(choices in prop::collection::vec(any::<u16>(), 0..200)) {
        let budget = Budget { leaders: 4, kills: 3, removals: 1, forced: 1, added: 1, failed_joins: 2 };
        let mut world = World::new(3, budget);
        for choice in choices {
            // Trouble is rare, or it would all be over before there is a cluster.
            let (trouble, usual): (Vec<_>, Vec<_>) = world.events().into_iter().partition(|event| event.is_trouble());
            let events = if choice % 8 == 0 && !trouble.is_empty() || usual.is_empty() { trouble } else { usual };
            world.step(events[usize::from(choice / 8) % events.len()]);
            world.check_safe();
        }
        world.check_ends();
    }
}
