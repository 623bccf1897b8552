//! A unit's entry into the cluster, and the leader's part in everybody's: rule R13, carried out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::charm::Charm;
use crate::cluster::config;
use crate::cluster::decide::{self, LeaderView, Step, TokenWanted, UnitView};
use crate::cluster::values::{ClusterApplicationBag, ClusterUnitBag, TokenFailure, TokenId};
use crate::databags;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError, RelationId, SecretContent, SecretId, SecretOwner};
use crate::k8sd::K8sdError;
use crate::names::{KubernetesVersion, UnitName};
use crate::observe::{ClusterPeers, Observation, own_cluster_bag};
use crate::reconcile::Pace;
use crate::secret::SecretText;
use crate::settings::BadOption;
use crate::status::Voices;
use crate::upgrade::messages::{self, Message, Tone};
use crate::upgrade::unit::{SnapView, Standing};
use crate::upgrade::values::UnitState;

/// The API server's port, for whoever looks at `juju status`.
const API_PORT: &str = "6443/tcp";

/// k8sd's own port, which stands in a node's address (k8s-snap `src/k8s/pkg/config/`).
const K8SD_PORT: u16 = 6400;

/// What came of a unit's step into the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entered {
    /// Its bag of `cluster` as this hook leaves it; none if it wasn't read.
    pub bag: Option<ClusterUnitBag>,
    /// Whether its node is in the cluster now.
    pub standing: Standing,
}

/// This unit's own part: it bootstraps, joins, or makes tokens for others. Slow: comes before everything that the leader
/// writes.
pub async fn enter<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    voices: &mut Voices,
    pace: &mut Pace,
) -> Result<Entered, JujuError> {
    let untouched = Entered { bag: None, standing: seen.standing };
    let Some(cluster) = &seen.cluster else { return Ok(untouched) };
    let Some(own) = &cluster.own else { return Ok(untouched) };
    let waits_for = upgrade_to_wait_for(seen, &charm.context.unit);
    let view = UnitView {
        me: &charm.context.unit,
        dying: seen.dying,
        standing: seen.standing,
        node: &seen.node,
        own: &own.value,
        application: &cluster.application.value,
        units: &seen.units,
        peers: &seen.entrants,
        cluster_name: &seen.cluster_name,
        leads: seen.leads,
        version: published_version(seen, &own.value),
        upgrade: waits_for.as_ref(),
    };
    let plan = decide::plan(&view);
    if let Some(waiting) = &plan.waiting {
        pace.at_least(Pace::Soon);
        voices.entry = Some(waiting.message());
    }
    let mut entered = Entered { bag: Some(plan.bag.clone()), standing: seen.standing };
    let ready = match &seen.look.view {
        SnapView::Known(known) => known.at_pin && known.change.is_none(),
        SnapView::Unknown(_) => false,
    };
    match plan.step {
        Step::Rest => {}
        Step::MakeTokens(wanted) => {
            let mut bag = plan.bag;
            for wanted in wanted {
                let old = bag.tokens.get(&wanted.unit).cloned();
                let Some(id) = renew_token(charm, &cluster.id, SecretOwner::Unit, old.as_ref(), &wanted).await? else {
                    continue;
                };
                if let Some(old) = old {
                    charm.juju.remove_secret(&SecretId(old)).await?;
                }
                bag.tokens.insert(wanted.unit, id.0);
            }
            entered.bag = Some(bag);
        }
        // It comes into the cluster with the snap that it is to have.
        Step::Bootstrap | Step::Join(_) if !ready => pace.at_least(Pace::Soon),
        Step::Bootstrap | Step::Join(_) if seen.node.is_empty() => Trouble::HostName.voice(voices, pace),
        Step::Bootstrap => match bootstrap(charm, seen).await? {
            Ok(()) => entered = Entered { bag: Some(decide::entered(&view)), standing: Standing::Member },
            Err(trouble) => trouble.voice(voices, pace),
        },
        Step::Join(token) => match join(charm, seen, &token).await? {
            Ok(()) => entered = Entered { bag: Some(decide::entered(&view)), standing: Standing::Member },
            Err(trouble) => {
                if let Trouble::Join { revision, error } = &trouble {
                    entered.bag = Some(decide::failed_to_join(plan.bag, *revision, error));
                }
                trouble.voice(voices, pace);
            }
        },
    }
    let just_joined = own.value.joined.is_none() && entered.standing == Standing::Member;
    if just_joined {
        charm.juju.open_port(API_PORT).await?;
    }
    Ok(entered)
}

/// The version that the bag is to name: the installed one, but for a unit that refreshes; it does when it is healthy.
fn published_version<'a>(seen: &'a Observation, own: &'a ClusterUnitBag) -> Option<&'a KubernetesVersion> {
    let upgrading = seen.upgrade.as_ref().is_some_and(|upgrade| upgrade.own.value.state == Some(UnitState::Upgrading));
    // What snapd doesn't say now is not gone.
    seen.installed().filter(|_| !upgrading).or(own.version.as_ref())
}

/// Why a unit isn't in the cluster yet.
enum Trouble {
    Option(BadOption),
    Bootstrap(String),
    Join {
        revision: i64,
        error: String,
    },
    /// The token can't be had.
    Token,
    Addresses,
    HostName,
}

impl Trouble {
    fn voice(self, voices: &mut Voices, pace: &mut Pace) {
        pace.at_least(Pace::Soon);
        let waits = |text: String| Some(Message::new(Tone::Waiting, text));
        match self {
            Self::Option(bad) => voices.bad_options.push(bad),
            Self::Bootstrap(why) => voices.entry = waits(format!("Bootstrap failed, tried again: {why}")),
            Self::Join { error, .. } => {
                voices.entry = waits(format!("Join failed, tried again with a new token: {error}"));
            }
            Self::Token => voices.entry = Some(decide::Waiting::Token.message()),
            Self::HostName => voices.entry = waits("Waiting: this machine's host name can't be read".to_owned()),
            Self::Addresses => voices.entry = waits("Waiting for Juju to know this unit's addresses".to_owned()),
        }
    }
}

/// An upgrade that is on, or about to be; a join waits for its end unless the admin let it in.
fn upgrade_to_wait_for(seen: &Observation, me: &UnitName) -> Option<KubernetesVersion> {
    let upgrade = seen.upgrade.as_ref()?;
    if upgrade.own.value.go.is_some() {
        return None;
    }
    if let Some(run) = &upgrade.application.value.run {
        return Some(run.to.version.clone());
    }
    let at_work = |unit: &&UnitName| {
        let state = seen.peers.get(*unit).and_then(|bag| bag.state);
        *unit != me && matches!(state, Some(UnitState::Ready | UnitState::Upgrading))
    };
    let version = &seen.declared.as_ref().ok()?.wanted.target.version;
    seen.members.iter().find(at_work).map(|_| version.clone())
}

async fn node<T: HookTools>(charm: &Charm<T>, seen: &Observation) -> Result<Option<config::Node>, JujuError> {
    let addresses = charm.juju.network("cluster").await?.node_addresses();
    let Some(version) = seen.installed().filter(|_| !addresses.is_empty()) else { return Ok(None) };
    let names = charm.juju.public_address().await?.into_iter().collect();
    Ok(Some(config::Node { cluster_name: seen.cluster_name.clone(), addresses, names, version: version.clone() }))
}

fn k8sd_address(node: &config::Node) -> String {
    match node.addresses.first() {
        Some(IpAddr::V6(address)) => format!("[{address}]:{K8SD_PORT}"),
        Some(IpAddr::V4(address)) => format!("{address}:{K8SD_PORT}"),
        None => String::new(),
    }
}

async fn bootstrap<T: HookTools>(charm: &Charm<T>, seen: &Observation) -> Result<Result<(), Trouble>, JujuError> {
    let Some(node) = node(charm, seen).await? else { return Ok(Err(Trouble::Addresses)) };
    let config = match config::bootstrap(&seen.options, &node) {
        Ok(config) => config,
        Err(bad) => return Ok(Err(Trouble::Option(bad))),
    };
    tracing::info!("Bootstraps the cluster {} on {}", seen.cluster_name, seen.node);
    Ok(match charm.k8sd.bootstrap(&seen.node, &k8sd_address(&node), &config).await {
        Ok(()) => Ok(()),
        // Whether it was done is seen by the next hook: it asks k8sd before it tries again.
        Err(error) => Err(Trouble::Bootstrap(refusal("bootstrap", &error))),
    })
}

async fn join<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    token: &TokenId,
) -> Result<Result<(), Trouble>, JujuError> {
    let Some(content) = charm.juju.secret(&SecretId(token.clone())).await? else { return Ok(Err(Trouble::Token)) };
    // An empty token isn't refused by k8sd, and makes it hang.
    let Some(text) = content.get("token").filter(|text| !text.expose().trim().is_empty()) else {
        return Ok(Err(Trouble::Token));
    };
    let Some(node) = node(charm, seen).await? else { return Ok(Err(Trouble::Addresses)) };
    let config = match config::join(&seen.options, &node) {
        Ok(config) => config,
        Err(bad) => return Ok(Err(Trouble::Option(bad))),
    };
    tracing::info!("Joins the cluster {} as {}", seen.cluster_name, seen.node);
    Ok(match charm.k8sd.join(&seen.node, &k8sd_address(&node), text, &config).await {
        Ok(()) => Ok(()),
        Err(error) if error.is_joined_already() => Ok(()),
        Err(error) => Err(Trouble::Join { revision: revision(&content), error: refusal("join", &error) }),
    })
}

fn revision(content: &SecretContent) -> i64 {
    content.get("revision").and_then(|text| text.expose().parse().ok()).unwrap_or(0)
}

fn refusal(what: &str, error: &K8sdError) -> String {
    let text = with_causes(error);
    tracing::warn!("The {what} failed: {text}");
    text
}

/// The unit that makes a token for another, and how it is handed over: a secret that only that unit may read.
async fn make_token<T: HookTools>(
    charm: &Charm<T>,
    relation: &RelationId,
    owner: SecretOwner,
    unit: &UnitName,
    node: &str,
    revision: i64,
) -> Result<Option<SecretId>, JujuError> {
    let token = match charm.k8sd.token(node, false).await {
        Ok(token) => token,
        Err(error) => {
            tracing::warn!("No join token for {unit} yet: {}", with_causes(&error));
            return Ok(None);
        }
    };
    let content: SecretContent =
        BTreeMap::from([("revision".to_owned(), SecretText::new(revision.to_string())), ("token".to_owned(), token)]);
    let id = charm.juju.add_secret(owner, &content, &charm.context.charm_dir).await?;
    charm.juju.grant_secret(&id, relation, unit).await?;
    Ok(Some(id))
}

/// Writes this unit's bag of `cluster`. `refreshed`: the version that its bag of `upgrade` names from now on, if it is a
/// new one; this bag, which need not have been read for anything else, names it too.
pub async fn write_own<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    entered: &Entered,
    refreshed: Option<&KubernetesVersion>,
) -> Result<(), JujuError> {
    let Some(ClusterPeers { id, own, .. }) = &seen.cluster else { return Ok(()) };
    let (own, mut bag) = match (own, &entered.bag) {
        (Some(own), Some(bag)) => (own.clone(), bag.clone()),
        _ if refreshed.is_none() => return Ok(()),
        _ => {
            let own = own_cluster_bag(charm, id).await?;
            let bag = own.value.clone();
            (own, bag)
        }
    };
    bag.version = refreshed.cloned().or(bag.version);
    for withdrawn in own.value.tokens.iter().filter(|(unit, _)| !bag.tokens.contains_key(*unit)) {
        charm.juju.remove_secret(&SecretId(withdrawn.1.clone())).await?;
    }
    charm.juju.set_unit_bag(id, &databags::cluster::unit_changes(&bag, &own.bag)).await
}

/// The leader's part: who may bootstrap, who may join with which token, who is gone.
pub async fn lead<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    entered: &Entered,
    pace: &mut Pace,
) -> Result<(), JujuError> {
    let Some(cluster) = &seen.cluster else { return Ok(()) };
    let mut bags = seen.entrants.clone();
    if let Some(own) = &entered.bag {
        bags.insert(charm.context.unit.clone(), own.clone());
    }
    let plan = decide::lead(&LeaderView {
        me: &charm.context.unit,
        dying: seen.dying,
        standing: entered.standing,
        application: &cluster.application.value,
        units: &seen.units,
        bags: &bags,
        cluster_name: &seen.cluster_name,
    });
    for news in &plan.news {
        tracing::info!("{news}");
    }
    let mut application = plan.application;
    let mut withdrawn = plan.withdrawn;
    for wanted in plan.tokens {
        let old = application.tokens.get(&wanted.unit).cloned();
        if entered.standing != Standing::Member {
            if is_spent(charm, old.as_ref(), &wanted).await? {
                withdrawn.extend(application.tokens.remove(&wanted.unit));
            }
            continue;
        }
        match renew_token(charm, &cluster.id, SecretOwner::Application, old.as_ref(), &wanted).await? {
            Some(id) => {
                withdrawn.extend(old);
                application.tokens.insert(wanted.unit, id.0);
            }
            None => pace.at_least(Pace::Soon),
        }
    }
    for (unit, node) in plan.departed {
        if removed(charm, &unit, &node).await {
            application.entries.remove(&unit);
            withdrawn.extend(application.tokens.remove(&unit));
        } else {
            pace.at_least(Pace::Soon);
        }
    }
    application.version = version_of_all(seen).or(application.version);
    let changes = databags::cluster::application_changes(&application, &cluster.application.bag);
    for id in withdrawn {
        charm.juju.remove_secret(&SecretId(id)).await?;
    }
    charm.juju.set_application_bag(&cluster.id, &changes).await
}

/// Makes a token in an old one's place; none if it can't be made now, or the failure is of an older one than the unit has.
async fn renew_token<T: HookTools>(
    charm: &Charm<T>,
    relation: &RelationId,
    owner: SecretOwner,
    old: Option<&TokenId>,
    wanted: &TokenWanted,
) -> Result<Option<SecretId>, JujuError> {
    let TokenWanted { unit, node, failure } = wanted;
    if old.is_some() && !is_spent(charm, old, wanted).await? {
        return Ok(None);
    }
    let revision = failure.as_ref().map_or(0, |failure| failure.revision.saturating_add(1));
    make_token(charm, relation, owner, unit, node, revision).await
}

/// Whether a token is the one that failed, or is gone.
async fn is_spent<T: HookTools>(
    charm: &Charm<T>,
    token: Option<&TokenId>,
    wanted: &TokenWanted,
) -> Result<bool, JujuError> {
    let (Some(token), Some(TokenFailure { revision: failed, .. })) = (token, &wanted.failure) else { return Ok(false) };
    let content = charm.juju.secret(&SecretId(token.clone())).await?;
    Ok(content.is_none_or(|content| revision(&content) == *failed))
}

/// A node whose unit is gone leaves the cluster. Its machine is gone too, as a rule: it is not asked.
async fn removed<T: HookTools>(charm: &Charm<T>, unit: &UnitName, node: &str) -> bool {
    match charm.k8sd.remove(node, true).await {
        Ok(()) => {
            tracing::info!("{unit} is gone: its node {node} is out of the cluster");
            true
        }
        Err(error) => {
            tracing::warn!("{unit} is gone, but its node {node} is still in the cluster: {}", with_causes(&error));
            false
        }
    }
}

/// The leader's version, once every member has published one (Python charm `charm.py` `_announce_kubernetes_version`).
fn version_of_all(seen: &Observation) -> Option<KubernetesVersion> {
    let published = |unit: &UnitName| seen.peers.get(unit).is_none_or(|bag| bag.version.is_some());
    seen.members.iter().all(published).then(|| seen.installed().cloned()).flatten()
}

/// What a unit that is being removed says, and whether it is out of the cluster.
pub async fn leave<T: HookTools>(charm: &Charm<T>, seen: &Observation) -> Message {
    let others = |record: &ClusterApplicationBag| record.joined().any(|unit| *unit != charm.context.unit);
    let has_others = seen.cluster.as_ref().is_some_and(|cluster| others(&cluster.application.value));
    if seen.standing != Standing::Member || !has_others {
        return Message::new(Tone::Maintenance, "Being removed");
    }
    match charm.k8sd.remove(&seen.node, false).await {
        Ok(()) => {
            tracing::info!("This node, {}, is out of the cluster", seen.node);
            Message::new(Tone::Maintenance, "Being removed: this node has left the cluster")
        }
        Err(error) => {
            let why = with_causes(&error);
            tracing::warn!("This node, {}, could not leave the cluster, the leader takes it out: {why}", seen.node);
            let why = messages::shorten(&why, 60);
            Message::new(Tone::Maintenance, format!("Being removed: the leader takes this node out ({why})"))
        }
    }
}
