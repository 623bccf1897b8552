//! k8sd's API on its control socket.

use std::time::Duration;

use hyper::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::{Database, K8sdError};
use super::wire::{Certificates, ClusterStatus, Envelope, Member, Node, NodeStanding, one_line};
use crate::machine::Root;
use crate::names::Timestamp;
use crate::secret::SecretText;
use crate::unix_http::{UnixHttp, full};

/// Where k8sd listens: `$SNAP_COMMON` and its `--state-dir` (k8s-snap `k8s/args/k8sd`).
const SOCKET: &str = "/var/snap/k8s/common/var/lib/k8sd/state/control.socket";

/// What k8sd may be asked at once.
const QUICK: Duration = Duration::from_secs(5);
/// What needs its database.
const NORMAL: Duration = Duration::from_secs(30);
/// What needs the API server and all members.
const SLOW: Duration = Duration::from_mins(1);
/// How long a removal may take.
const REMOVAL: Duration = Duration::from_mins(5);
/// How long a bootstrap or a join may take; k8sd is told so too.
pub(super) const ENTRY: Duration = Duration::from_mins(10);
/// How much longer than k8sd's own limit its answer is awaited.
const GRACE: Duration = Duration::from_secs(30);

/// Whether k8sd is at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// It is.
    Ready,
    /// Its database waits for other members to be upgraded: normal until the last one is.
    WaitsForMembers,
    /// It isn't, and why.
    NotReady(String),
}

/// k8sd of this machine.
#[derive(Debug, Clone)]
pub struct K8sd {
    http: UnixHttp,
}

impl K8sd {
    /// k8sd of the machine with this root; it need not be there.
    pub fn new(root: &Root) -> Self {
        Self { http: UnixHttp::new(root.path(SOCKET)) }
    }

    /// Whether it is at work (`GET /core/1.0/ready`); known whatever happens.
    pub async fn ready(&self) -> Readiness {
        let doing = "looking whether it is ready";
        let Err(error) = self.call(Method::GET, "/core/1.0/ready", None, QUICK, doing).await else {
            return Readiness::Ready;
        };
        if error.database() == Some(Database::NotYet) {
            // Its readiness doesn't say whether it is its database that waits; its node's status does.
            let node = self.call(Method::GET, "/1.0/k8sd/node", None, QUICK, doing).await;
            if node.is_err_and(|error| error.database() == Some(Database::WaitsForMembers)) {
                return Readiness::WaitsForMembers;
            }
        }
        Readiness::NotReady(error.trouble().to_owned())
    }

    /// This node's place (`GET /1.0/k8sd/node`). An error: it could not be found out.
    ///
    /// A control plane is asked for the cluster's status too: one that bootstraps shows a role before it is through, and
    /// may still fail and be undone (recorded: `timelines/bootstrap-failed`), but has no cluster to tell of.
    pub async fn standing(&self) -> Result<NodeStanding, K8sdError> {
        let doing = "asking for this node's status";
        match self.get::<Node>("/1.0/k8sd/node", NORMAL, doing).await {
            Ok(Node { status }) => match (status.cluster_role.as_str(), status.datastore_role.as_str()) {
                // It has a database, but isn't, or is no longer, or not yet, one of its members.
                ("" | "unknown", _) | (_, "PENDING") => Ok(NodeStanding::Entering),
                ("control-plane", _) => self.cluster().await.map(|_| NodeStanding::Member(status)),
                _ => Ok(NodeStanding::Member(status)),
            },
            Err(error) if error.database() == Some(Database::NotInitialised) => Ok(NodeStanding::NotInitialised),
            Err(error) => Err(error),
        }
    }

    /// The cluster's status (`GET /1.0/k8sd/cluster`); it needs the API server of this node.
    pub async fn cluster(&self) -> Result<ClusterStatus, K8sdError> {
        let doing = "asking for the cluster's status";
        let metadata = self.call(Method::GET, "/1.0/k8sd/cluster", None, SLOW, doing).await?;
        ClusterStatus::read(&metadata).map_err(|source| K8sdError::Answer { doing, source })
    }

    /// The members of k8sd's own cluster (`GET /core/1.0/cluster`).
    pub async fn members(&self) -> Result<Vec<Member>, K8sdError> {
        self.get("/core/1.0/cluster", SLOW, "asking for its members").await
    }

    /// When certificates end, by name (`GET /1.0/k8sd/certs-status`); `None` before 1.33, which can't say.
    pub async fn certificates(&self) -> Result<Option<Vec<(String, Timestamp)>>, K8sdError> {
        match self.get::<Certificates>("/1.0/k8sd/certs-status", NORMAL, "asking for the certificates").await {
            Ok(certificates) => Ok(Some(certificates.ends())),
            Err(K8sdError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a cluster of this node alone (`POST /1.0/k8sd/cluster`). It takes some ten seconds; an error may come after
    /// it was done all the same.
    pub async fn bootstrap(&self, name: &str, address: &str, config: &Value) -> Result<(), K8sdError> {
        let body = json!({"name": name, "address": address, "config": config, "timeout": nanoseconds(ENTRY)});
        self.call(Method::POST, "/1.0/k8sd/cluster", Some(body), ENTRY + GRACE, "bootstrapping").await.map(drop)
    }

    /// Joins this node to the cluster that made the token (`POST /1.0/k8sd/cluster/join`).
    pub async fn join(&self, name: &str, address: &str, token: &SecretText, config: &str) -> Result<(), K8sdError> {
        let body = json!({
            "name": name, "address": address, "token": token.expose(), "config": config,
            "timeout": nanoseconds(ENTRY),
        });
        self.call(Method::POST, "/1.0/k8sd/cluster/join", Some(body), ENTRY + GRACE, "joining").await.map(drop)
    }

    /// A token for the node of this name to join with (`POST /1.0/k8sd/cluster/tokens`), within `limit` or a minute. Asked
    /// again, k8sd gives a control plane the same one.
    pub async fn token(&self, name: &str, worker: bool, limit: Duration) -> Result<SecretText, K8sdError> {
        let doing = "making a join token";
        let body = json!({"name": name, "worker": worker});
        let limit = limit.min(SLOW);
        let metadata = self.call(Method::POST, "/1.0/k8sd/cluster/tokens", Some(body), limit, doing).await?;
        text(&metadata, "token", doing)
    }

    /// Takes a node out of the cluster (`POST /1.0/k8sd/cluster/remove`). One that nobody knows is no error.
    pub async fn remove(&self, name: &str, force: bool) -> Result<(), K8sdError> {
        let body = json!({"name": name, "force": force});
        match self.call(Method::POST, "/1.0/k8sd/cluster/remove", Some(body), REMOVAL, "removing a node").await {
            // Before October 2025: the node isn't in the cluster.
            Err(K8sdError::Refused { code: 520, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An administrator's kubeconfig (`GET /1.0/k8sd/kubeconfig`), for this address of the API server; empty: this
    /// node's.
    pub async fn kubeconfig(&self, server: &str) -> Result<SecretText, K8sdError> {
        let doing = "asking for a kubeconfig";
        let body = json!({"server": server});
        let metadata = self.call(Method::GET, "/1.0/k8sd/kubeconfig", Some(body), NORMAL, doing).await?;
        text(&metadata, "kubeconfig", doing)
    }

    async fn get<A: DeserializeOwned>(&self, path: &str, limit: Duration, doing: &'static str) -> Result<A, K8sdError> {
        let metadata = self.call(Method::GET, path, None, limit, doing).await?;
        serde_json::from_value(metadata).map_err(|source| K8sdError::Answer { doing, source })
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        limit: Duration,
        doing: &'static str,
    ) -> Result<Value, K8sdError> {
        let body = full(body.map(|body| body.to_string()).unwrap_or_default());
        let answer = self.http.send(method, path, "application/json", body, limit).await;
        let answer = answer.map_err(|source| K8sdError::Transport { doing, source })?;
        let envelope: Result<Envelope, _> = serde_json::from_slice(&answer.body);
        if answer.status.is_success() {
            return envelope.map(|envelope| envelope.metadata).map_err(|source| K8sdError::Answer { doing, source });
        }
        let message = envelope.map_or_else(|_| "no reason given".to_owned(), |envelope| one_line(&envelope.error));
        Err(K8sdError::Refused { doing, code: answer.status.as_u16(), message })
    }
}

fn text(metadata: &Value, key: &str, doing: &'static str) -> Result<SecretText, K8sdError> {
    let missing = || serde::de::Error::custom(format!("no `{key}` in it"));
    let text = metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.map(|text| SecretText::new(text.to_owned())).ok_or_else(|| K8sdError::Answer { doing, source: missing() })
}

/// As Go writes a duration.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
