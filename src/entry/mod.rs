//! A unit's entry into the cluster, and the leader's part in everybody's: rule R13, carried out.

mod leader;
mod tokens;

pub use leader::lead;

use std::net::IpAddr;
use std::time::Duration;

use crate::charm::Charm;
use crate::cluster::config;
use crate::cluster::decide::{self, Step, TokenWanted, UnitView};
use crate::cluster::values::{ClusterApplicationBag, ClusterUnitBag, TokenFailure, TokenId};
use crate::databags;
use crate::databags::Parsed;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError, RelationId, SecretId, SecretOwner};
use crate::k8sd::K8sdError;
use crate::names::{KubernetesVersion, UnitName};
use crate::observe::{ClusterPeers, Observation, own_cluster_bag};
use crate::reconcile::{Pace, show};
use crate::settings::BadOption;
use crate::status::Voices;
use crate::upgrade::messages::{self, Message, Tone};
use crate::upgrade::unit::{SnapView, Standing};
use crate::upgrade::values::UnitState;

/// The API server's port, for whoever looks at `juju status`.
const API_PORT: &str = "6443/tcp";

/// k8sd's own port, which stands in a node's address (k8s-snap `src/k8s/pkg/config/`).
const K8SD_PORT: u16 = 6400;

/// What a unit is to do for its entry, decided before anything is written.
#[derive(Debug, Clone)]
pub struct Plan {
    bag: Option<OwnBag>,
    step: Step,
}

/// This unit's bag of `cluster`: as it stands, and as it is to be.
#[derive(Debug, Clone)]
struct OwnBag {
    stands: Parsed<ClusterUnitBag>,
    wanted: ClusterUnitBag,
}

impl Plan {
    /// Nothing is to be done.
    pub fn nothing() -> Self {
        Self { bag: None, step: Step::Rest }
    }

    /// This unit's bag of `cluster` as this hook leaves it; none if it wasn't read.
    pub fn bag(&self) -> Option<&ClusterUnitBag> {
        self.bag.as_ref().map(|bag| &bag.wanted)
    }

    /// Whether it asks for what takes time.
    pub fn is_slow(&self) -> bool {
        self.step != Step::Rest
    }

    /// What the unit says while that is under way, or about to be.
    pub fn speak(&self) -> Option<Message> {
        let text = match self.step {
            Step::Bootstrap => "Bootstrapping the cluster",
            Step::Join(_) => "Joining the cluster",
            Step::Rest | Step::MakeTokens(_) => return None,
        };
        Some(Message::new(Tone::Maintenance, text))
    }
}

/// What this unit does for its entry.
pub fn plan<T>(charm: &Charm<T>, seen: &Observation, voices: &mut Voices, pace: &mut Pace) -> Plan {
    let Some(cluster) = &seen.cluster else { return Plan::nothing() };
    let Some(own) = &cluster.own else { return Plan::nothing() };
    let waits_for = upgrade_to_wait_for(seen, &charm.context.unit);
    let plan = decide::plan(&view(charm, seen, cluster, &own.value, waits_for.as_ref()));
    if let Some(waiting) = &plan.waiting {
        pace.at_least(Pace::Soon);
        voices.entry = Some(waiting.message());
    }
    let is_ready = match &seen.look.view {
        SnapView::Known(known) => known.at_pin && known.change.is_none(),
        SnapView::Unknown(_) => false,
    };
    let step = match plan.step {
        // It comes into the cluster with the snap that it is to have.
        Step::Bootstrap | Step::Join(_) if !is_ready => {
            pace.at_least(Pace::Soon);
            Step::Rest
        }
        Step::Bootstrap | Step::Join(_) if seen.node.is_empty() => {
            Trouble::HostName.voice(voices, pace);
            Step::Rest
        }
        step => step,
    };
    Plan { bag: Some(OwnBag { stands: own.clone(), wanted: plan.bag }), step }
}

fn view<'a, T>(
    charm: &'a Charm<T>,
    seen: &'a Observation,
    cluster: &'a ClusterPeers,
    own: &'a ClusterUnitBag,
    upgrade: Option<&'a KubernetesVersion>,
) -> UnitView<'a> {
    UnitView {
        me: &charm.context.unit,
        dying: seen.dying,
        standing: seen.standing,
        node: &seen.node,
        own,
        application: &cluster.application.value,
        units: &seen.units,
        peers: &seen.entrants,
        cluster_name: &seen.cluster_name,
        leads: seen.leads,
        version: published_version(seen, own),
        upgrade,
    }
}

/// Carries the plan out, which may take minutes: this unit bootstraps, joins, or makes tokens for others. Its bag of
/// `cluster` is written afterwards, an application's by a later hook. Answers whether the node is in the cluster now.
pub async fn enter<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    plan: Plan,
    voices: &mut Voices,
    pace: &mut Pace,
) -> Result<Standing, JujuError> {
    let message = plan.speak();
    let (Some(cluster), Some(mut bag)) = (&seen.cluster, plan.bag) else { return Ok(seen.standing) };
    if let Some(message) = message {
        show(charm, &message).await?;
    }
    let entered = match plan.step {
        Step::Rest => return Ok(seen.standing),
        Step::MakeTokens(wanted) => {
            make_tokens(charm, &cluster.id, &mut bag.wanted, wanted).await?;
            bag.write(charm, &cluster.id).await?;
            return Ok(seen.standing);
        }
        Step::Bootstrap => bootstrap(charm, seen).await?,
        Step::Join(token) => join(charm, seen, &token, bag.wanted.token_failure.as_ref()).await?,
    };
    let standing = match entered {
        Ok(()) => {
            bag.wanted = decide::entered(&view(charm, seen, cluster, &bag.wanted, None));
            if seen.leads {
                // No event comes back to a unit for what it wrote itself.
                pace.at_least(Pace::Close);
            }
            Standing::Member
        }
        Err(trouble) => {
            if let Trouble::Join { revision, error } = &trouble {
                bag.wanted = decide::failed_to_join(bag.wanted, *revision, error);
            }
            trouble.voice(voices, pace);
            seen.standing
        }
    };
    bag.write(charm, &cluster.id).await?;
    Ok(standing)
}

/// Makes tokens for units that the leader can't serve.
async fn make_tokens<T: HookTools>(
    charm: &Charm<T>,
    relation: &RelationId,
    bag: &mut ClusterUnitBag,
    wanted: Vec<TokenWanted>,
) -> Result<(), JujuError> {
    for wanted in wanted {
        let old = bag.tokens.get(&wanted.unit).cloned();
        let Some(id) = tokens::renew(charm, relation, SecretOwner::Unit, old.as_ref(), &wanted, Duration::MAX).await?
        else {
            continue;
        };
        if let Some(old) = old {
            charm.juju.remove_secret(&SecretId(old)).await?;
        }
        bag.tokens.insert(wanted.unit, id.0);
    }
    Ok(())
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
    failure: Option<&TokenFailure>,
) -> Result<Result<(), Trouble>, JujuError> {
    let Some(content) = charm.juju.secret(&SecretId(token.clone())).await? else { return Ok(Err(Trouble::Token)) };
    // An empty token isn't refused by k8sd, and makes it hang.
    let Some(text) = content.get("token").filter(|text| !text.expose().trim().is_empty()) else {
        return Ok(Err(Trouble::Token));
    };
    if failure.is_some_and(|failure| failure.revision == tokens::revision(&content)) {
        // It is the one that failed: another is on its way.
        return Ok(Err(Trouble::Token));
    }
    let Some(node) = node(charm, seen).await? else { return Ok(Err(Trouble::Addresses)) };
    let config = match config::join(&seen.options, &node) {
        Ok(config) => config,
        Err(bad) => return Ok(Err(Trouble::Option(bad))),
    };
    tracing::info!("Joins the cluster {} as {}", seen.cluster_name, seen.node);
    Ok(match charm.k8sd.join(&seen.node, &k8sd_address(&node), text, &config).await {
        Ok(()) => Ok(()),
        Err(error) if error.is_joined_already() => Ok(()),
        Err(error) => Err(Trouble::Join { revision: tokens::revision(&content), error: refusal("join", &error) }),
    })
}

fn refusal(what: &str, error: &K8sdError) -> String {
    let text = with_causes(error);
    tracing::warn!("The {what} failed: {text}");
    text
}

/// Writes this unit's bag of `cluster` as it was planned. `refreshed`: the version that its bag of `upgrade` names from
/// now on, if it is a new one; this bag, which need not have been read for anything else, names it too.
pub async fn write_own<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    plan: &mut Plan,
    refreshed: Option<&KubernetesVersion>,
) -> Result<(), JujuError> {
    let Some(cluster) = &seen.cluster else { return Ok(()) };
    let mut bag = match (plan.bag.take(), refreshed) {
        (Some(bag), _) => bag,
        (None, None) => return Ok(()),
        (None, Some(_)) => {
            let stands = own_cluster_bag(charm, &cluster.id).await?;
            OwnBag { wanted: stands.value.clone(), stands }
        }
    };
    bag.wanted.version = refreshed.cloned().or(bag.wanted.version);
    bag.write(charm, &cluster.id).await?;
    plan.bag = Some(bag);
    Ok(())
}

impl OwnBag {
    async fn write<T: HookTools>(&mut self, charm: &Charm<T>, relation: &RelationId) -> Result<(), JujuError> {
        let before = &self.stands.value;
        if before.joined.is_none() && self.wanted.joined.is_some() {
            charm.juju.open_port(API_PORT).await?;
        }
        for withdrawn in before.tokens.iter().filter(|(unit, _)| !self.wanted.tokens.contains_key(*unit)) {
            charm.juju.remove_secret(&SecretId(withdrawn.1.clone())).await?;
        }
        let changes = databags::cluster::unit_changes(&self.wanted, &self.stands.bag);
        charm.juju.set_unit_bag(relation, &changes).await?;
        databags::apply(&mut self.stands.bag, changes);
        self.stands.value = self.wanted.clone();
        Ok(())
    }
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
