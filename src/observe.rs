//! What a hook sees before it decides. Each fact is read at most once, and calls to one peer go one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::charm::Charm;
use crate::cluster::values::{ClusterApplicationBag, ClusterUnitBag, Entry};
use crate::databags::{self, Bag, Complaint, Parsed};
use crate::error_text::with_causes;
use crate::juju::{Event, GoalState, HookTools, JujuError, RelationId};
use crate::k8sd::NodeStanding;
use crate::machine::host;
use crate::names::{KubernetesVersion, Timestamp, UnitName};
use crate::settings::{self, BadOption, Settings};
use crate::snap::pin::Sources;
use crate::snap::refresh::{self, Look};
use crate::snap::{Architecture, PinError, Sha256, Wanted};
use crate::upgrade::messages::{Message, Tone};
use crate::upgrade::unit::{SnapView, Standing, UnitView};
use crate::upgrade::values::{ApplicationBag, Dependencies, UnitBag, UnitState};

/// The resource that replaces the charm's own pin (metadata.yaml).
const RESOURCE: &str = "snap-installation";
const RESOURCE_FILE: &str = "snap-installation.tar.gz";

/// The peer relation `upgrade`, as this unit sees it.
#[derive(Debug, Clone)]
pub struct UpgradePeers {
    /// Juju's id of it.
    pub id: RelationId,
    /// This unit's bag.
    pub own: Parsed<UnitBag>,
    /// The application's bag.
    pub application: Parsed<ApplicationBag>,
}

/// The peer relation `cluster`, as this unit sees it.
#[derive(Debug, Clone)]
pub struct ClusterPeers {
    /// Juju's id of it.
    pub id: RelationId,
    /// This unit's bag; not read where the other bags say that nothing in it can have changed.
    pub own: Option<Parsed<ClusterUnitBag>>,
    /// The application's bag.
    pub application: Parsed<ClusterApplicationBag>,
}

impl ClusterPeers {
    /// Whether a bag says that this unit has joined: the application's, or, until the leader has noticed, its own.
    fn says_joined(&self, me: &UnitName) -> bool {
        let own = self.own.as_ref().is_some_and(|own| own.value.joined.is_some());
        own || self.application.value.has_joined(me)
    }
}

/// What the charm's own files and the resource ask for.
#[derive(Debug, Clone)]
pub struct Declared {
    /// The snap.
    pub wanted: Wanted,
    /// What this charm can be upgraded from.
    pub dependencies: Dependencies,
}

/// What a hook sees.
#[derive(Debug)]
pub struct Observation {
    /// The present, as the hook begins.
    pub now: Timestamp,
    /// Whether this unit leads.
    pub leads: bool,
    /// What exists.
    pub goal: GoalState,
    /// Every unit of the application that exists, dying ones too.
    pub units: BTreeSet<UnitName>,
    /// Whether this unit is being removed.
    pub dying: bool,
    /// The application's options, as they are.
    pub options: Map<String, Value>,
    /// The application's options, as they are used.
    pub settings: Settings,
    /// Options that can't be used.
    pub bad_options: Vec<BadOption>,
    /// The relation `upgrade`; absent in `install`.
    pub upgrade: Option<UpgradePeers>,
    /// The relation `cluster`; absent in `install`.
    pub cluster: Option<ClusterPeers>,
    /// What is asked for, or why that can't be said.
    pub declared: Result<Declared, Message>,
    /// The snap.
    pub look: Look,
    /// Whether this unit's node has joined.
    pub standing: Standing,
    /// This unit's node's name.
    pub node: String,
    /// The cluster's name.
    pub cluster_name: String,
    /// The units whose nodes have joined.
    pub members: BTreeSet<UnitName>,
    /// Other units' bags of `upgrade`, as far as they are needed.
    pub peers: BTreeMap<UnitName, UnitBag>,
    /// Other units' bags of `cluster`, as far as they are needed: of those that have not joined.
    pub entrants: BTreeMap<UnitName, ClusterUnitBag>,
}

impl Observation {
    /// What the unit's own decision looks at. `None`: what is asked for is not known.
    pub fn unit_view<'a>(&'a self, me: &'a UnitName, nothing: &'a Nothing) -> Option<UnitView<'a>> {
        let wanted = &self.declared.as_ref().ok()?.wanted;
        let (own, application) = match &self.upgrade {
            Some(upgrade) => (&upgrade.own.value, &upgrade.application.value),
            None => (&nothing.0, &nothing.1),
        };
        Some(UnitView {
            me,
            dying: self.dying,
            standing: self.standing,
            own,
            application,
            units: &self.units,
            peers: &self.peers,
            members: &self.members,
            target: &wanted.target,
            pin_revision: wanted.pin.revision(),
            snap: &self.look.view,
            pause: self.settings.pause,
            health_timeout: self.settings.health_timeout,
            now: self.now,
        })
    }

    /// Whether the snap is known to be what it should be.
    pub fn is_at_pin(&self) -> bool {
        matches!(&self.look.view, SnapView::Known(known) if known.at_pin)
    }

    /// The Kubernetes version that is installed, if that is known.
    pub fn installed(&self) -> Option<&KubernetesVersion> {
        match &self.look.view {
            SnapView::Known(known) => known.installed.as_ref().map(|installed| &installed.version),
            SnapView::Unknown(_) => None,
        }
    }
}

/// The bags of a relation that isn't there yet.
#[derive(Debug, Default)]
pub struct Nothing(UnitBag, ApplicationBag);

/// Looks at everything that an event's work may need.
pub async fn observe<T: HookTools>(charm: &Charm<T>) -> Result<Observation, JujuError> {
    let juju = &charm.juju;
    let me = &charm.context.unit;
    let now = charm.clock.now();
    let leads = juju.is_leader().await?;
    let options = juju.config().await?;
    let (settings, bad_options) = settings::read(&options);
    let upgrade_id = peer_relation(charm, "upgrade").await?;
    let cluster_id = peer_relation(charm, "cluster").await?;
    let upgrade = match upgrade_id {
        Some(id) => if_there(upgrade_peers(charm, id).await)?,
        None => None,
    };
    let mut cluster = match cluster_id {
        Some(id) => if_there(cluster_peers(charm, id).await)?,
        None => None,
    };
    // After the bags that name units: an older list would take one that has just been added for one that is gone.
    let goal = juju.goal_state().await?;
    let mut units: BTreeSet<UnitName> = goal.units.keys().cloned().collect();
    units.insert(me.clone());
    let declared = declared(charm).await?;
    if let Some(cluster) = &mut cluster
        && has_to_read_own(&charm.context.event, me, leads, &units, &cluster.application.value)
    {
        cluster.own = Some(own_cluster_bag(charm, &cluster.id).await?);
    }
    let recorded = cluster.as_ref().is_some_and(|cluster| cluster.says_joined(me));
    let since = changes_since(upgrade.as_ref(), recorded);
    let (look, asked) = tokio::join!(look(charm, declared.as_ref().ok(), since), standing(charm, recorded));
    let standing = match (asked, &look.view) {
        // Where no snap is, no k8sd can be initialised.
        (Standing::Unknown, SnapView::Known(known)) if known.installed.is_none() => Standing::Newcomer,
        (standing, _) => standing,
    };
    let mut members: BTreeSet<UnitName> = match &cluster {
        Some(cluster) => cluster.application.value.joined().filter(|unit| units.contains(*unit)).cloned().collect(),
        None => BTreeSet::new(),
    };
    if standing == Standing::Member {
        members.insert(me.clone());
    }
    // A node that is in the cluster keeps its name there; on some clouds it isn't the host's.
    let recorded = cluster.as_ref().and_then(|cluster| cluster.application.value.entries.get(me));
    let node = recorded.map(|entry| entry.node().to_owned());
    let node = node.or_else(|| host::host_name(&charm.context.root).ok()).unwrap_or_default();
    let mut seen = Observation {
        now,
        leads,
        dying: goal.units.get(me).is_some_and(crate::juju::GoalUnit::is_dying),
        goal,
        units,
        options,
        settings,
        bad_options,
        upgrade,
        cluster,
        declared,
        look,
        standing,
        node,
        cluster_name: String::new(),
        members,
        peers: BTreeMap::new(),
        entrants: BTreeMap::new(),
    };
    read_peers(charm, &mut seen).await?;
    seen.cluster_name = cluster_name(charm, &seen);
    Ok(seen)
}

/// Juju's id of a peer relation; a hook of that very relation brings it along.
pub async fn peer_relation<T: HookTools>(charm: &Charm<T>, endpoint: &str) -> Result<Option<RelationId>, JujuError> {
    if let Some(relation) = charm.context.relation.as_ref().filter(|relation| relation.endpoint == endpoint) {
        return Ok(Some(relation.id.clone()));
    }
    Ok(charm.juju.relation_ids(endpoint).await?.into_iter().next())
}

async fn upgrade_peers<T: HookTools>(charm: &Charm<T>, id: RelationId) -> Result<UpgradePeers, JujuError> {
    let own = own_bag(charm, &id, databags::upgrade::parse_unit).await?;
    let application = application_bag(charm, &id, databags::upgrade::parse_application).await?;
    Ok(UpgradePeers { id, own, application })
}

async fn cluster_peers<T: HookTools>(charm: &Charm<T>, id: RelationId) -> Result<ClusterPeers, JujuError> {
    let application = application_bag(charm, &id, databags::cluster::parse_application).await?;
    Ok(ClusterPeers { id, own: None, application })
}

/// A relation that vanishes while the hook runs was none.
fn if_there<P>(peers: Result<P, JujuError>) -> Result<Option<P>, JujuError> {
    match peers {
        Err(error) if error.is_relation_not_found() => Ok(None),
        peers => peers.map(Some),
    }
}

/// This unit's own bag of `cluster`.
pub async fn own_cluster_bag<T: HookTools>(
    charm: &Charm<T>,
    id: &RelationId,
) -> Result<Parsed<ClusterUnitBag>, JujuError> {
    own_bag(charm, id, databags::cluster::parse_unit).await
}

async fn own_bag<T: HookTools, B>(
    charm: &Charm<T>,
    id: &RelationId,
    parse: fn(&Bag) -> (B, Vec<Complaint>),
) -> Result<Parsed<B>, JujuError> {
    let me = &charm.context.unit;
    let bag = charm.juju.own_bag(id, me).await?.unwrap_or_default();
    Ok(parsed(me, bag, parse))
}

async fn application_bag<T: HookTools, B>(
    charm: &Charm<T>,
    id: &RelationId,
    parse: fn(&Bag) -> (B, Vec<Complaint>),
) -> Result<Parsed<B>, JujuError> {
    let application = charm.context.unit.application();
    let bag = charm.juju.application_bag(id, application).await?;
    Ok(parsed(application, bag, parse))
}

fn parsed<B>(whose: impl std::fmt::Display, bag: Bag, parse: fn(&Bag) -> (B, Vec<Complaint>)) -> Parsed<B> {
    let (value, complaints) = parse(&bag);
    for complaint in complaints {
        tracing::warn!("In the databag of {whose}: {complaint}");
    }
    Parsed { bag, value }
}

/// A peer's bag; none if there is none to read.
pub async fn peer_bag<T: HookTools, B>(
    charm: &Charm<T>,
    id: &RelationId,
    unit: &UnitName,
    parse: fn(&Bag) -> (B, Vec<Complaint>),
) -> Result<Option<B>, JujuError> {
    let bag = charm.juju.unit_bag(id, unit).await?;
    Ok(bag.map(|bag| parsed(unit, bag, parse).value))
}

/// Whether this unit's own bag of `cluster` has to be read: while it enters, while others wait for a token that it may
/// have to make, and now and then, for what it made once. A member's bag says nothing new otherwise.
fn has_to_read_own(
    event: &Event,
    me: &UnitName,
    leads: bool,
    units: &BTreeSet<UnitName>,
    record: &ClusterApplicationBag,
) -> bool {
    // The leader lets others in by the name that its own bag has for the cluster.
    let lets_in = leads && units.iter().any(|unit| !record.has_joined(unit));
    !record.has_joined(me) || *event == Event::UpdateStatus || lets_in || (!leads && has_tokenless(record))
}

/// Whether a unit may join that the leader has no token for.
fn has_tokenless(record: &ClusterApplicationBag) -> bool {
    let mut pending = record.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Pending(_)));
    pending.any(|(unit, _)| !record.tokens.contains_key(unit))
}

/// Since when changes that are over count: only for a unit that may have had one.
fn changes_since(upgrade: Option<&UpgradePeers>, joined: bool) -> Option<Timestamp> {
    let own = upgrade.map(|upgrade| &upgrade.own.value);
    let at_rest = matches!(own.and_then(|own| own.state), Some(UnitState::Idle | UnitState::Completed));
    (!(joined && at_rest)).then(|| own.and_then(|own| own.since).unwrap_or(Timestamp(0)))
}

async fn look<T>(charm: &Charm<T>, declared: Option<&Declared>, since: Option<Timestamp>) -> Look {
    match declared {
        Some(declared) => refresh::look(&charm.snapd, &declared.wanted, &charm.hashes, since).await,
        None => Look { view: SnapView::Unknown("what is asked for is not known".to_owned()), change: None, snap: None },
    }
}

/// k8sd may take this long to say whether this node has joined, or the leader's lease would be over.
const STANDING: Duration = Duration::from_secs(8);

/// Whether this node has joined, asked only where the record doesn't say so. Nothing is guessed.
async fn standing<T>(charm: &Charm<T>, recorded: bool) -> Standing {
    if recorded {
        return Standing::Member;
    }
    match tokio::time::timeout(STANDING, charm.k8sd.standing()).await {
        Ok(Ok(NodeStanding::Member(_))) => Standing::Member,
        Ok(Ok(NodeStanding::NotInitialised)) => Standing::Newcomer,
        Ok(Ok(NodeStanding::Entering)) | Err(_) => Standing::Unknown,
        Ok(Err(error)) => {
            tracing::debug!("{}", with_causes(&error));
            Standing::Unknown
        }
    }
}

/// Whether this event looks whether another resource was attached. All others use the file that is there, so that
/// what is asked for doesn't change to and fro.
fn fetches_resource(event: &Event) -> bool {
    matches!(event, Event::Install | Event::ConfigChanged | Event::Start | Event::UpdateStatus | Event::UpgradeCharm)
}

async fn declared<T: HookTools>(charm: &Charm<T>) -> Result<Result<Declared, Message>, JujuError> {
    if !fetches_resource(&charm.context.event) {
        return Ok(declared_on_disk(charm));
    }
    match charm.juju.resource(RESOURCE).await {
        Ok(resource) => Ok(read_declared(charm, resource.as_deref())),
        // What can't be fetched now is not gone: a pin that changed for that would start an upgrade.
        Err(error) if error.is_resource_unreachable() => {
            tracing::warn!("The resource can't be fetched, the one on disk counts: {}", with_causes(&error));
            Ok(declared_on_disk(charm))
        }
        Err(error) => Err(error),
    }
}

/// What is asked for, by the resource that was fetched last.
pub fn declared_on_disk<T>(charm: &Charm<T>) -> Result<Declared, Message> {
    read_declared(charm, resource_on_disk(&charm.context.charm_dir).as_deref())
}

/// Where the agent keeps it: Juju 3.6 and 4.0 right in `resources`, others in a directory of its own.
fn resource_on_disk(charm_dir: &Path) -> Option<PathBuf> {
    let resources = charm_dir.parent()?.join("resources");
    [resources.join(RESOURCE_FILE), resources.join(RESOURCE).join(RESOURCE_FILE)]
        .into_iter()
        .find(|path| path.is_file())
}

fn read_declared<T>(charm: &Charm<T>, resource: Option<&Path>) -> Result<Declared, Message> {
    let charm_dir = &charm.context.charm_dir;
    let blocked = |why: &str, remedy: &str| Message::with_remedy(Tone::Blocked, why, remedy);
    let remedy = format!("Mend it: juju refresh {}", charm.context.unit.application());
    let template = |name: &str| {
        let path = charm_dir.join("templates").join(name);
        let unreadable = |error| blocked(&format!("The charm's templates/{name} can't be read: {error}"), &remedy);
        std::fs::read_to_string(path).map_err(unreadable)
    };
    let manifest = template("snap_installation.yaml")?;
    let dependencies: Dependencies = {
        let text = template("dependencies.yaml")?;
        let value = serde_yaml::Deserializer::from_str(&text);
        Dependencies::deserialize(value)
            .map_err(|error| blocked(&format!("The charm's templates/dependencies.yaml: {error}"), &remedy))?
    };
    let version: KubernetesVersion = dependencies.k8s_service.version.parse().map_err(|error| {
        blocked(&format!("The charm's templates/dependencies.yaml, k8s_service.version: {error}"), &remedy)
    })?;
    let agent_dir = charm_dir.parent().unwrap_or(charm_dir);
    let wanted = Wanted::read(&Sources {
        manifest: &manifest,
        version: &version,
        resource,
        unpacked: &agent_dir.join("snap-installation"),
        hashes: &charm.hashes,
        root: &charm.context.root,
        architecture: Architecture::here(),
    });
    wanted.map(|wanted| Declared { wanted, dependencies }).map_err(|error| {
        let application = charm.context.unit.application();
        let remedy = match error {
            PinError::Own(_) => format!("Mend it: juju refresh {application}"),
            _ => format!("Mend it: juju attach-resource {application} {RESOURCE}=FILE"),
        };
        blocked(&with_causes(&error), &remedy)
    })
}

/// Other units' bags: a unit's bag is read only where the application's doesn't say enough.
async fn read_peers<T: HookTools>(charm: &Charm<T>, seen: &mut Observation) -> Result<(), JujuError> {
    let me = &charm.context.unit;
    if let Some(upgrade) = &seen.upgrade {
        for unit in needed(me, seen, upgrade) {
            let bag = peer_bag(charm, &upgrade.id, &unit, databags::upgrade::parse_unit).await?;
            seen.peers.extend(bag.map(|bag| (unit, bag)));
        }
    }
    let Some(cluster) = &seen.cluster else { return Ok(()) };
    let record = &cluster.application.value;
    // A token may be in a member's bag, and the cluster's name is.
    let joins = seen.standing == Standing::Newcomer && record.entries.contains_key(me);
    let makes_tokens = seen.leads || (seen.standing == Standing::Member && has_tokenless(record));
    let asked = seen.units.iter().filter(|unit| *unit != me);
    let asked = asked.filter(|unit| if record.has_joined(unit) { joins } else { makes_tokens });
    let asked: Vec<UnitName> = asked.cloned().collect();
    for unit in asked {
        let bag = peer_bag(charm, &cluster.id, &unit, databags::cluster::parse_unit).await?;
        seen.entrants.extend(bag.map(|bag| (unit, bag)));
    }
    Ok(())
}

/// Whose bags of `upgrade` this unit has to know: all of them to lead, to begin, to join or to see the end of a run;
/// the holder's to say what it waits for.
fn needed(me: &UnitName, seen: &Observation, upgrade: &UpgradePeers) -> Vec<UnitName> {
    let application = &upgrade.application.value;
    let holder = application.stack.last().map(|number| UnitName::new(me.application(), *number));
    let may_join = seen.cluster.as_ref().is_some_and(|cluster| {
        seen.standing == Standing::Newcomer && cluster.application.value.entries.contains_key(me)
    });
    let at_work = application.run.is_some() || upgrade.own.value.state == Some(UnitState::Completed);
    let sees_the_end = at_work && application.stack.is_empty();
    let off_pin = !matches!(&seen.look.view, SnapView::Known(known) if known.at_pin);
    let others = seen.units.iter().filter(|unit| *unit != me);
    if seen.leads || holder.as_ref() == Some(me) || may_join || sees_the_end {
        return others.cloned().collect();
    }
    others.filter(|unit| off_pin && holder.as_ref() == Some(unit)).cloned().collect()
}

/// The name that stands in the databags, or else the Python charm's formula (python charm `charm.py`
/// `_generate_unique_cluster_name`): `k8s-` and half of the SHA-256 of application and model.
fn cluster_name<T>(charm: &Charm<T>, seen: &Observation) -> String {
    let of_peers = seen.entrants.values().find_map(|bag| bag.cluster_name.clone().or_else(|| bag.joined.clone()));
    let own = seen.cluster.as_ref().and_then(|cluster| cluster.own.as_ref()?.value.joined.clone());
    own.or(of_peers).unwrap_or_else(|| {
        let formula = format!("{}-{}", charm.context.unit.application(), charm.context.model.uuid);
        let hash = Sha256::of(formula.as_bytes()).to_string();
        format!("k8s-{}", hash.get(..32).unwrap_or_default())
    })
}
