//! Who bootstraps, who joins, and who makes the tokens: rule R13.
//!
//! Pure. Nothing is bootstrapped or joined but in a hook that reads in the application's bag that this unit may; so
//! there is never a second cluster, whoever leads and whatever hook dies.

use std::collections::{BTreeMap, BTreeSet};

use super::values::{ClusterApplicationBag, ClusterUnitBag, Entry, TokenFailure, TokenId};
use crate::names::{KubernetesVersion, UnitName};
use crate::upgrade::messages::{self, Message, Tone};
use crate::upgrade::unit::Standing;

/// What one unit knows when it decides about its own entry.
#[derive(Debug, Clone, Copy)]
pub struct UnitView<'a> {
    /// This unit.
    pub me: &'a UnitName,
    /// Whether it is being removed.
    pub dying: bool,
    /// Whether its node has joined.
    pub standing: Standing,
    /// Its node's name.
    pub node: &'a str,
    /// Its own bag, as it was read.
    pub own: &'a ClusterUnitBag,
    /// The application's bag, as it was read in this hook and untouched by it.
    pub application: &'a ClusterApplicationBag,
    /// Every unit that exists, dying ones too.
    pub units: &'a BTreeSet<UnitName>,
    /// Other units' bags, as far as they were read.
    pub peers: &'a BTreeMap<UnitName, ClusterUnitBag>,
    /// The cluster's name.
    pub cluster_name: &'a str,
    /// Whether this unit leads.
    pub leads: bool,
    /// The version that is installed here.
    pub version: Option<&'a KubernetesVersion>,
    /// An upgrade that a join has to wait for: what it goes to.
    pub upgrade: Option<&'a KubernetesVersion>,
}

/// What a unit does about its entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Make a cluster of this node.
    Bootstrap,
    /// Join with the token in this secret, which it found at exactly one place.
    Join(TokenId),
    /// Make these tokens, into this unit's own bag: the leader can't.
    MakeTokens(Vec<TokenWanted>),
}

/// A token that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenWanted {
    /// For this unit.
    pub unit: UnitName,
    /// Its node.
    pub node: String,
    /// The failure that asks for it: if it is of the token that the unit has now, that one is spent.
    pub failure: Option<TokenFailure>,
}

/// What a unit waits for on its way into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// k8sd doesn't say whether this node is in a cluster.
    K8sd,
    /// The leader has still to say who bootstraps.
    Claim,
    /// Another unit bootstraps.
    Bootstrap(UnitName),
    /// The unit that was to bootstrap is gone; every unit has to say that it has not joined it.
    LostBootstrap(UnitName),
    /// A token.
    Token,
    /// An upgrade's end.
    Upgrade(KubernetesVersion),
}

impl Waiting {
    /// The status that says so.
    pub fn message(&self) -> Message {
        let text = match self {
            Self::K8sd => "Waiting for k8sd to say whether this node is in the cluster".to_owned(),
            Self::Claim => "Waiting for the leader to say which unit bootstraps the cluster".to_owned(),
            Self::Bootstrap(unit) => format!("Waiting for {unit} to bootstrap the cluster"),
            Self::LostBootstrap(unit) => {
                format!("{unit} is gone without a cluster: waiting until every unit says so, then another bootstraps")
            }
            Self::Token => "Waiting for a join token".to_owned(),
            Self::Upgrade(version) => return messages::joins_later(version),
        };
        Message::new(Tone::Waiting, text)
    }
}

/// A unit's decision: its bag as this hook leaves it, what to do, and what is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    /// Its bag.
    pub bag: ClusterUnitBag,
    /// What to do.
    pub step: Step,
    /// What it waits for, if it does.
    pub waiting: Option<Waiting>,
}

/// What this unit does about its entry.
pub fn plan(view: &UnitView<'_>) -> UnitPlan {
    let mut bag = view.own.clone();
    bag.version = view.version.cloned();
    match view.standing {
        Standing::Unknown => UnitPlan { bag, step: Step::Rest, waiting: Some(Waiting::K8sd) },
        Standing::Member => member(view, bag),
        Standing::Newcomer => newcomer(view, bag),
    }
}

/// It has joined, however that came about: a hook that died after its join is made good here.
fn member(view: &UnitView<'_>, mut bag: ClusterUnitBag) -> UnitPlan {
    bag.node_name = Some(view.node.to_owned());
    bag.joined = Some(view.cluster_name.to_owned());
    bag.cluster_name = view.leads.then(|| view.cluster_name.to_owned()).or(bag.cluster_name);
    bag.token_failure = None;
    bag.unjoined = None;
    let application = view.application;
    bag.tokens.retain(|unit, _| !application.has_joined(unit) && !application.tokens.contains_key(unit));
    bag.tokens.retain(|unit, _| application.entries.contains_key(unit));
    let lowest = application.joined().find(|unit| view.units.contains(*unit)) == Some(view.me);
    if !lowest {
        // Another makes them now: a unit joins only where it finds just one.
        bag.tokens.clear();
    }
    let failure = |unit: &UnitName| view.peers.get(unit).and_then(|peer| peer.token_failure.clone());
    let wanted: Vec<TokenWanted> = application
        .entries
        .iter()
        .filter(|(unit, entry)| matches!(entry, Entry::Pending(_)) && view.units.contains(*unit))
        .filter(|(unit, _)| !application.tokens.contains_key(*unit))
        .filter(|(unit, _)| !bag.tokens.contains_key(*unit) || failure(unit).is_some())
        .map(|(unit, entry)| TokenWanted { unit: unit.clone(), node: entry.node().to_owned(), failure: failure(unit) })
        .collect();
    let step =
        if lowest && !view.leads && !view.dying && !wanted.is_empty() { Step::MakeTokens(wanted) } else { Step::Rest };
    UnitPlan { bag, step, waiting: None }
}

fn newcomer(view: &UnitView<'_>, mut bag: ClusterUnitBag) -> UnitPlan {
    let application = view.application;
    if view.dying {
        return UnitPlan { bag, step: Step::Rest, waiting: None };
    }
    bag.node_name = Some(view.node.to_owned());
    let wait = |bag, waiting| UnitPlan { bag, step: Step::Rest, waiting: Some(waiting) };
    let Some(claimant) = &application.bootstrap else { return wait(bag, Waiting::Claim) };
    let members = application.joined().any(|unit| view.units.contains(unit));
    match application.entries.get(view.me) {
        Some(Entry::Pending(_)) => return pending(view, bag),
        // The record says that it has joined, and k8sd that it is in no cluster: never a reason to make a new one.
        Some(Entry::Joined(_)) => return wait(bag, Waiting::K8sd),
        None => {}
    }
    if members {
        return wait(bag, Waiting::Token);
    }
    if claimant == view.me {
        bag.unjoined = None;
        return UnitPlan { bag, step: Step::Bootstrap, waiting: None };
    }
    if view.units.contains(claimant) {
        bag.unjoined = None;
        return wait(bag, Waiting::Bootstrap(claimant.clone()));
    }
    bag.unjoined = Some(claimant.clone());
    wait(bag, Waiting::LostBootstrap(claimant.clone()))
}

/// It may join: with a token, and when no upgrade is on.
fn pending(view: &UnitView<'_>, bag: ClusterUnitBag) -> UnitPlan {
    if let Some(version) = view.upgrade {
        return UnitPlan { bag, step: Step::Rest, waiting: Some(Waiting::Upgrade(version.clone())) };
    }
    // Two makers for a while do no harm: one is withdrawn, and a unit takes a token where there is just one.
    let of_peers = view.peers.values().filter_map(|peer| peer.tokens.get(view.me));
    let tokens: BTreeSet<&TokenId> = view.application.tokens.get(view.me).into_iter().chain(of_peers).collect();
    let only = if tokens.len() == 1 { tokens.first() } else { None };
    match only {
        Some(token) => UnitPlan { step: Step::Join((*token).clone()), bag, waiting: None },
        None => UnitPlan { bag, step: Step::Rest, waiting: Some(Waiting::Token) },
    }
}

/// The bag after a join that worked, or after a bootstrap.
pub fn entered(view: &UnitView<'_>) -> ClusterUnitBag {
    plan(&UnitView { standing: Standing::Member, ..*view }).bag
}

/// The bag after a join that failed: the leader makes another token.
pub fn failed_to_join(mut bag: ClusterUnitBag, revision: i64, error: &str) -> ClusterUnitBag {
    let error = messages::shorten(&error.split_whitespace().collect::<Vec<_>>().join(" "), 200);
    bag.token_failure = Some(TokenFailure { revision, error });
    bag
}

/// What the leader knows when it decides about everybody's entry.
#[derive(Debug, Clone, Copy)]
pub struct LeaderView<'a> {
    /// The leader.
    pub me: &'a UnitName,
    /// Whether it is being removed.
    pub dying: bool,
    /// Whether its own node has joined.
    pub standing: Standing,
    /// The application's bag, as it was read after `is-leader` was answered.
    pub application: &'a ClusterApplicationBag,
    /// Every unit that exists, dying ones too.
    pub units: &'a BTreeSet<UnitName>,
    /// The bags of units that have not joined, and its own as this hook leaves it.
    pub bags: &'a BTreeMap<UnitName, ClusterUnitBag>,
    /// The cluster's name.
    pub cluster_name: &'a str,
}

/// What the leader does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderPlan {
    /// The application's bag as this hook leaves it, but for the tokens that are still to be made.
    pub application: ClusterApplicationBag,
    /// Tokens to make; by a leader that is no member, only to withdraw where they are spent.
    pub tokens: Vec<TokenWanted>,
    /// Secrets that nobody needs any more.
    pub withdrawn: Vec<TokenId>,
    /// Nodes to take out of the cluster: their units are gone. Their entries go when that is done.
    pub departed: Vec<(UnitName, String)>,
    /// What an admin would want to read in the log.
    pub news: Vec<String>,
}

/// What the leader makes of the application's bag.
pub fn lead(view: &LeaderView<'_>) -> LeaderPlan {
    let mut plan = LeaderPlan {
        application: view.application.clone(),
        tokens: Vec::new(),
        withdrawn: Vec::new(),
        departed: Vec::new(),
        news: Vec::new(),
    };
    note_joined(view, &mut plan);
    let lowest = plan.application.joined().find(|unit| view.units.contains(*unit)).cloned();
    if lowest.is_some() {
        // The claim has done its work; whoever lost it must not take it up.
        plan.application.bootstrap = lowest;
        let certificates = &mut plan.application.bootstrap_certificates;
        certificates.get_or_insert_with(|| "snap-managed".to_owned());
        let_in(view, &mut plan);
    } else {
        claim(view, &mut plan);
    }
    if view.standing == Standing::Member {
        plan.departed = plan
            .application
            .entries
            .iter()
            .filter(|(unit, _)| unit.application() == view.me.application() && !view.units.contains(*unit))
            .map(|(unit, entry)| (unit.clone(), entry.node().to_owned()))
            .collect();
    }
    plan
}

/// Who says that it has joined, has.
fn note_joined(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    for (unit, bag) in view.bags {
        let (Some(node), Some(joined)) = (&bag.node_name, &bag.joined) else { continue };
        if plan.application.has_joined(unit) {
            continue;
        }
        if joined == view.cluster_name {
            plan.news.push(format!("{unit} has joined the cluster as {node}"));
            plan.application.entries.insert(unit.clone(), Entry::Joined(node.clone()));
            plan.withdrawn.extend(plan.application.tokens.remove(unit));
        } else {
            plan.news.push(format!("{unit} has joined another cluster ({joined}): it is left alone"));
        }
    }
}

/// Units that ask are let in; a leader that is a member makes their tokens together with the entry.
fn let_in(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    for (unit, bag) in view.bags {
        let Some(node) = bag.node_name.clone().filter(|_| bag.joined.is_none() && view.units.contains(unit)) else {
            continue;
        };
        if plan.application.has_joined(unit) {
            continue;
        }
        let failure = bag.token_failure.clone();
        let needs_token = failure.is_some() || !plan.application.tokens.contains_key(unit);
        // One that isn't a member makes none: it withdraws what is spent, so that the lowest-numbered member makes another.
        if (view.standing == Standing::Member && needs_token) || failure.is_some() {
            plan.tokens.push(TokenWanted { unit: unit.clone(), node: node.clone(), failure });
        }
        plan.application.entries.insert(unit.clone(), Entry::Pending(node));
    }
}

/// Nobody has joined yet: who may bootstrap is said first, and stays said while that unit exists.
fn claim(view: &LeaderView<'_>, plan: &mut LeaderPlan) {
    let application = &mut plan.application;
    let claimant = application.bootstrap.clone();
    let may_claim = match &claimant {
        None => true,
        Some(claimant) if view.units.contains(claimant) => return,
        // It is gone, and somebody may have joined it all the same: everybody has to say no first.
        Some(lost) => {
            let pending = |entry: &Entry| matches!(entry, Entry::Pending(_));
            application.entries.retain(|_, entry| !pending(entry));
            plan.withdrawn.extend(std::mem::take(&mut application.tokens).into_values());
            let said_no = |unit| view.bags.get(unit).is_some_and(|bag| bag.unjoined.as_ref() == Some(lost));
            view.units.iter().all(said_no)
        }
    };
    if may_claim && !view.dying {
        plan.news.push(format!("{} bootstraps the cluster", view.me));
        application.bootstrap = Some(view.me.clone());
    }
}
