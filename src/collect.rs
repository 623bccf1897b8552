//! The facts that checks and gates look at, fetched from the ports. What can't be read is unknown, and says why.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::charm::Charm;
use crate::databags;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError};
use crate::k8sd::{ClusterStatus, Readiness};
use crate::kube::{self, Kube, KubeError};
use crate::machine::host;
use crate::names::{KubernetesVersion, Timestamp, UnitName};
use crate::observe::{Declared, Observation};
use crate::snap::refresh;
use crate::snap::{SNAP, SnapdError};
use crate::upgrade::facts::{
    CheckFacts, Datastore, Fact, GateFacts, HealthFacts, Hold, Node, SnapdFacts, VersionFacts,
};
use crate::upgrade::unit::{SnapView, UnitView, is_going_back, is_way_back};
use crate::upgrade::version::Way;

/// All checks together may take this long; what hasn't answered by then is unknown (R5).
const ALL_CHECKS: Duration = Duration::from_secs(20);

/// The endpoint that workers are related on.
pub const WORKERS: &str = "k8s-cluster";

impl<T, E: std::error::Error> From<Result<T, E>> for Fact<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(error) => Self::Unknown(with_causes(&error)),
        }
    }
}

/// When the time of all checks is over.
#[derive(Debug, Clone, Copy)]
struct Deadline(Instant);

impl Deadline {
    fn begins() -> Self {
        Self(Instant::now() + ALL_CHECKS)
    }

    /// What an answer is until then.
    async fn wait<T>(self, answer: impl Future<Output = Fact<T>>) -> Fact<T> {
        let late = |_| Fact::Unknown(format!("no answer within {} s", ALL_CHECKS.as_secs()));
        tokio::time::timeout_at(self.0, answer).await.unwrap_or_else(late)
    }
}

fn map<T, U>(fact: Fact<T>, change: impl FnOnce(T) -> U) -> Fact<U> {
    match fact {
        Fact::Known(value) => Fact::Known(change(value)),
        Fact::Unknown(why) => Fact::Unknown(why),
    }
}

impl From<kube::Node> for Node {
    fn from(node: kube::Node) -> Self {
        Self {
            control_plane: node.control_plane,
            ready: node.ready == kube::NodeReady::Ready,
            kubelet: node.kubelet_version.parse().ok(),
        }
    }
}

/// The API server, asked one thing after another.
struct Api(Result<Kube, KubeError>);

impl Api {
    fn open<T>(charm: &Charm<T>) -> Self {
        Self(Kube::open(&charm.context.root, &charm.clock))
    }

    fn client(&self) -> Result<&Kube, String> {
        self.0.as_ref().map_err(|error| with_causes(error))
    }

    async fn ready(&self) -> Fact<()> {
        match self.client() {
            Ok(kube) => kube.readyz().await.into(),
            Err(why) => Fact::Unknown(why),
        }
    }

    async fn nodes(&self) -> Fact<BTreeMap<String, Node>> {
        match self.client() {
            Ok(kube) => {
                let by_name = |nodes: Vec<kube::Node>| {
                    nodes.into_iter().map(|node| (node.name.clone(), Node::from(node))).collect()
                };
                map(kube.nodes().await.into(), by_name)
            }
            Err(why) => Fact::Unknown(why),
        }
    }

    async fn node(&self, name: &str) -> Fact<Option<Node>> {
        match self.client() {
            Ok(kube) => map(kube.node(name).await.into(), |node| node.map(Node::from)),
            Err(why) => Fact::Unknown(why),
        }
    }

    /// Pods that should run and don't, `NAMESPACE/NAME: why`.
    async fn sick_pods(&self, namespaces: &[String]) -> Fact<Vec<String>> {
        let kube = match self.client() {
            Ok(kube) => kube,
            Err(why) => return Fact::Unknown(why),
        };
        let mut sick = Vec::new();
        for namespace in namespaces {
            match kube.pods(namespace).await {
                Ok(pods) => sick.extend(
                    pods.into_iter().filter_map(|pod| Some(format!("{namespace}/{}: {}", pod.name, pod.trouble?))),
                ),
                Err(error) => return Fact::Unknown(with_causes(&error)),
            }
        }
        Fact::Known(sick)
    }
}

/// Workers and what they publish.
pub async fn workers<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
) -> Result<Vec<(UnitName, Option<KubernetesVersion>)>, JujuError> {
    let related = seen.goal.related_units(WORKERS);
    if related.is_empty() {
        return Ok(Vec::new());
    }
    let mut workers = Vec::new();
    let relations = charm.juju.relation_ids(WORKERS).await?;
    for unit in related {
        let mut version = None;
        for relation in &relations {
            if let Some(bag) = charm.juju.unit_bag(relation, &unit).await? {
                version = version.or(databags::cluster::parse_unit(&bag).0.version);
            }
        }
        workers.push((unit, version));
    }
    Ok(workers)
}

/// All but what the pin brings.
async fn versions<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    view: &UnitView<'_>,
    declared: &Declared,
) -> Result<VersionFacts, JujuError> {
    let service = &declared.dependencies.k8s_service;
    Ok(VersionFacts {
        from: seen.installed().cloned(),
        to: None,
        way: if is_way_back(view) { Way::Back } else { Way::Forward },
        supported: service.upgrade_supported.parse().ok(),
        workers: workers(charm, seen).await?,
        worker_constraint: service.dependencies.get("k8s-worker").and_then(|text| text.parse().ok()),
    })
}

/// The version that the pin brings, if it is known by then.
async fn brings<T>(charm: &Charm<T>, declared: &Declared, deadline: Deadline) -> Option<KubernetesVersion> {
    match deadline.wait(async { refresh::brings(&charm.snapd, &declared.wanted).await.into() }).await {
        Fact::Known(version) => version,
        Fact::Unknown(why) => {
            tracing::debug!("What the channel holds is not known: {why}");
            None
        }
    }
}

/// The nodes of the other members, by unit.
fn other_nodes(seen: &Observation, me: &UnitName) -> BTreeMap<UnitName, String> {
    let entries = seen.cluster.iter().flat_map(|cluster| &cluster.application.value.entries);
    let others = entries.filter(|(unit, _)| *unit != me && seen.members.contains(*unit));
    others.map(|(unit, entry)| (unit.clone(), entry.node().to_owned())).collect()
}

async fn cluster_status<T>(charm: &Charm<T>) -> Fact<ClusterStatus> {
    charm.k8sd.cluster().await.into()
}

fn datastore(status: ClusterStatus) -> Datastore {
    match status.datastore.as_str() {
        "external" => Datastore::External,
        _ => Datastore::Own(status.members.into_iter().map(|member| member.name).collect()),
    }
}

/// What the gate before a refresh looks at.
pub async fn gate<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    view: &UnitView<'_>,
    declared: &Declared,
) -> Result<GateFacts, JujuError> {
    let mut versions = versions(charm, seen, view, declared).await?;
    let api = Api::open(charm);
    let deadline = Deadline::begins();
    let of_api = async { (deadline.wait(api.ready()).await, deadline.wait(api.nodes()).await) };
    let (of_api, status, to) =
        tokio::join!(of_api, deadline.wait(cluster_status(charm)), brings(charm, declared, deadline));
    versions.to = to;
    Ok(gate_facts(seen, view, versions, of_api, status))
}

fn gate_facts(
    seen: &Observation,
    view: &UnitView<'_>,
    versions: VersionFacts,
    (api, nodes): (Fact<()>, Fact<BTreeMap<String, Node>>),
    status: Fact<ClusterStatus>,
) -> GateFacts {
    GateFacts {
        me: view.me.clone(),
        own_node: seen.node.clone(),
        going_back: is_going_back(view),
        other_nodes: other_nodes(seen, view.me),
        api,
        nodes,
        datastore: map(status, datastore),
        versions,
    }
}

/// What the checks before a run look at.
pub async fn checks<T: HookTools>(
    charm: &Charm<T>,
    seen: &Observation,
    view: &UnitView<'_>,
    declared: &Declared,
    at_work: Option<String>,
) -> Result<CheckFacts, JujuError> {
    let mut versions = versions(charm, seen, view, declared).await?;
    let api = Api::open(charm);
    let deadline = Deadline::begins();
    let of_api = async {
        let ready = deadline.wait(api.ready()).await;
        let nodes = deadline.wait(api.nodes()).await;
        (ready, nodes, deadline.wait(api.sick_pods(&seen.settings.pod_namespaces)).await)
    };
    let of_k8sd = async {
        let ready = deadline.wait(k8sd_ready(charm)).await;
        let status = deadline.wait(cluster_status(charm)).await;
        let certificates = deadline.wait(async { charm.k8sd.certificates().await.into() }).await;
        (ready, status, certificates)
    };
    // One call to snapd after another.
    let of_snapd = async { (deadline.wait(snapd(charm, seen)).await, brings(charm, declared, deadline).await) };
    let ((ready, nodes, pods), (k8sd, status, certificates), (snapd, to)) = tokio::join!(of_api, of_k8sd, of_snapd);
    versions.to = to;
    let features = map(status.clone(), |status| status.failed_features());
    Ok(CheckFacts {
        gate: gate_facts(seen, view, versions, (ready, nodes), status),
        pods,
        features,
        k8sd,
        snapd,
        space: host::free_space(&charm.context.root).into(),
        // A k8sd before 1.33 can't say; that is no finding.
        certificates: map(certificates, |ends: Option<Vec<(String, Timestamp)>>| ends.unwrap_or_default()),
        at_work,
        now: seen.now,
    })
}

async fn k8sd_ready<T>(charm: &Charm<T>) -> Fact<()> {
    match charm.k8sd.ready().await {
        Readiness::Ready | Readiness::WaitsForMembers => Fact::Known(()),
        Readiness::NotReady(why) => Fact::Unknown(format!("k8sd: {why}")),
    }
}

async fn snapd<T>(charm: &Charm<T>, seen: &Observation) -> Fact<SnapdFacts> {
    let known = match &seen.look.view {
        SnapView::Known(known) => known,
        SnapView::Unknown(why) => return Fact::Unknown(why.clone()),
    };
    let is_held = seen.look.snap.as_ref().is_some_and(|snap| snap.hold.is_some_and(|until| until > seen.now));
    let hold = if is_held {
        Hold::Held
    } else {
        match charm.snapd.can_hold().await {
            Ok(true) => Hold::NotHeld,
            Ok(false) => Hold::CannotHold,
            Err(error) => return Fact::Unknown(with_causes(&error)),
        }
    };
    Fact::Known(SnapdFacts { change: known.change.clone(), hold })
}

/// What the gate after a refresh looks at. The API server is asked last, and not before the rest is well: that is what
/// costs most, and k8sd's own work needs it anyway.
pub async fn health<T>(
    charm: &Charm<T>,
    node: &str,
    version: &KubernetesVersion,
    change_ended: Option<Timestamp>,
    now: Timestamp,
) -> HealthFacts {
    let root = &charm.context.root;
    let (inactive_services, k8sd) = tokio::join!(inactive_services(charm), k8sd_ready(charm));
    let mut facts = HealthFacts {
        node_name: node.to_owned(),
        inactive_services,
        node: Fact::Unknown("not asked".to_owned()),
        api: Fact::Unknown("not asked".to_owned()),
        k8sd,
        post_refresh_since: host::post_refresh_since(root).into(),
        k8sd_since: host::k8sd_since(root).ok().flatten(),
        version: version.clone(),
        change_ended,
        now,
    };
    if facts.is_well_inside() {
        let api = Api::open(charm);
        facts.api = api.ready().await;
        facts.node = api.node(node).await;
    }
    facts
}

async fn inactive_services<T>(charm: &Charm<T>) -> Fact<Vec<String>> {
    let services: Result<_, SnapdError> = charm.snapd.services(SNAP).await;
    match services {
        Ok(services) => Fact::Known(
            services
                .into_iter()
                .filter(|service| service.enabled && !service.active)
                .map(|service| service.name)
                .collect(),
        ),
        Err(error) => Fact::Unknown(with_causes(&error)),
    }
}
