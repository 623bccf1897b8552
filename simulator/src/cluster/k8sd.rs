//! k8sd's control socket: which call may be made when, by whom, and what is answered.

use serde::Serialize;

use super::answers::{Failure, Handled, Nothing, success};
use super::config::{ClusterConfig, FeatureStatus};
use super::node::{ApiServer, Daemon, Machine, Membership};
use super::requests::{self, Kubeconfig, NewAuthToken, RevokedAuthToken, SetConfig};
use super::schema::{self, Struct};
use super::state::{AuthToken, ClusterState, timestamp};
use super::{Cluster, ClusterId, agenda::Event, delays};
use crate::time::SimTime;
use crate::wire::{MachineId, Reply, Request};

/// What microcluster of all versions from 1.31 to 1.36 names here.
const EXTENSIONS: [&str; 2] = ["internal:runtime_extension_v1", "internal:rename_core_endpoints"];

/// A path that k8sd knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Root,
    Ready,
    Server,
    Members,
    Cluster,
    Join,
    Remove,
    Tokens,
    Node,
    Config,
    Kubeconfig,
    AuthTokens,
}

impl Endpoint {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Root,
            "/core/1.0/ready" => Self::Ready,
            "/core/1.0" => Self::Server,
            "/core/1.0/cluster" => Self::Members,
            "/1.0/k8sd/cluster" => Self::Cluster,
            "/1.0/k8sd/cluster/join" => Self::Join,
            "/1.0/k8sd/cluster/remove" => Self::Remove,
            "/1.0/k8sd/cluster/tokens" => Self::Tokens,
            "/1.0/k8sd/node" => Self::Node,
            "/1.0/k8sd/cluster/config" => Self::Config,
            "/1.0/k8sd/kubeconfig" => Self::Kubeconfig,
            "/1.0/kubernetes/auth/tokens" => Self::AuthTokens,
            _ => return None,
        })
    }

    /// Whether it's answered without a database.
    fn works_before_init(self) -> bool {
        matches!(self, Self::Root | Self::Ready | Self::Server | Self::Cluster | Self::Join)
    }

    /// Whether a worker's k8sd refuses it.
    fn control_plane_only(self) -> bool {
        matches!(self, Self::Remove | Self::Tokens | Self::Config | Self::Kubeconfig)
    }
}

const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "PATCH"];

impl Cluster {
    pub(super) fn k8sd(&mut self, machine: MachineId, now: SimTime, request: &Request) -> Reply {
        let Some(found) = self.machines.get(&machine) else { return Reply::Hangup };
        let end = found.error_end();
        self.k8sd_call(machine, now, request).unwrap_or_else(|failure| Reply::Now(failure.response(end)))
    }

    fn k8sd_call(&mut self, machine: MachineId, now: SimTime, request: &Request) -> Handled {
        let path = request.path.split('?').next().unwrap_or_default();
        let endpoint = Endpoint::of(path).ok_or_else(|| Failure::new(404, "Not Found"))?;
        let method = request.method.as_str();
        if !METHODS.contains(&method) {
            return Err(Failure::new(404, format!("Method '{method}' not found")));
        }
        let Some(found) = self.machines.get(&machine) else { return Ok(Reply::Hangup) };
        if !endpoint.works_before_init() {
            database_open(found)?;
        }
        if endpoint.control_plane_only() {
            not_a_worker(found)?;
        }
        let minor = found.minor();
        let body = |shape: &Struct, action: &str| {
            schema::decode(&request.body, shape, minor)
                .map_err(|text| Failure::new(400, format!("failed to {action} request: {text}")))
        };
        match (method, endpoint) {
            ("GET", Endpoint::Root) => answer(["/1.0"]),
            ("GET", Endpoint::Ready) => ready(found),
            ("GET", Endpoint::Server) => answer(Server::of(found)),
            ("GET", Endpoint::Members) => self.members(found, now),
            ("GET", Endpoint::Node) => self.node(found),
            ("GET", Endpoint::Cluster) => self.cluster_status(found),
            ("POST", Endpoint::Cluster) => {
                let body = body(&schema::BOOTSTRAP, "parse")?;
                not_bootstrapped(found)?;
                self.bootstrap(machine, now, &requests::read(&body)?)
            }
            ("POST", Endpoint::Join) => {
                let body = body(&schema::JOIN, "parse")?;
                let join: requests::Join = requests::read(&body)?;
                not_in_cluster(found, &join.name)?;
                self.join(machine, now, &join)
            }
            ("POST", Endpoint::Remove) => {
                let body = body(&schema::REMOVE, "parse")?;
                self.remove(machine, now, &requests::read(&body)?)
            }
            ("POST", Endpoint::Tokens) => {
                let body = body(&schema::TOKENS, "parse")?;
                self.join_token(machine, now, &requests::read(&body)?)
            }
            ("GET", Endpoint::Config) => self.config(found),
            ("PUT", Endpoint::Config) => {
                let body = body(&schema::SET_CONFIG, "decode")?;
                self.set_config(machine, now, &requests::read(&body)?)
            }
            ("GET", Endpoint::Kubeconfig) => {
                let body = body(&schema::KUBECONFIG, "parse")?;
                self.kubeconfig(found, &requests::read(&body)?)
            }
            ("POST", Endpoint::AuthTokens) => self.auth_token(machine, &request.body),
            ("DELETE", Endpoint::AuthTokens) => self.revoke_auth_token(machine, &request.body),
            _ => Err(Failure::new(501, "Not Implemented")),
        }
    }

    /// The cluster of a machine whose database is open.
    pub(super) fn state_of(&self, machine: MachineId) -> Result<(ClusterId, &ClusterState), Failure> {
        let cluster = self.cluster_of(machine);
        let state = cluster.and_then(|cluster| Some((cluster, self.states.get(&cluster)?)));
        state.ok_or_else(|| Failure::new(503, "Database is still starting"))
    }

    /// What a call of this k8sd to its API server comes to; the error is Go's text.
    pub(super) fn api_call(&self, machine: &Machine, verb: &str, path: &str) -> Result<(), String> {
        if machine.api_server == ApiServer::Down {
            let url = format!("https://127.0.0.1:6443{path}");
            return Err(format!("{verb} \"{url}\": dial tcp 127.0.0.1:6443: connect: connection refused"));
        }
        if machine.cluster().is_some_and(|cluster| self.has_quorum(cluster)) {
            Ok(())
        } else {
            Err("etcdserver: request timed out".to_owned())
        }
    }

    fn members(&self, machine: &Machine, now: SimTime) -> Handled {
        let (cluster, state) = self.state_of(machine.id)?;
        let status = |id: MachineId| match self.machines.get(&id) {
            Some(other) if other.cluster() == Some(cluster) && other.daemon >= Daemon::Open => "ONLINE",
            _ => "UNREACHABLE",
        };
        let heartbeat = timestamp(now);
        let member = |name, address, certificate, role, id| MemberAnswer {
            name,
            address,
            certificate,
            role,
            schema_internal_version: 6,
            schema_external_version: 7,
            last_heartbeat: &heartbeat,
            status: status(id),
            extensions: EXTENSIONS,
            secret: "",
        };
        if matches!(machine.membership, Membership::Worker(_)) {
            return answer([member(&machine.name, &machine.address, "", "PENDING", machine.id)]);
        }
        let members = state.members.iter();
        answer(
            members
                .map(|m| member(&m.name, &m.address, &m.certificate_pem, m.role.name(), m.machine))
                .collect::<Vec<_>>(),
        )
    }

    fn node(&self, machine: &Machine) -> Handled {
        let taints = |taints: &[String]| (machine.minor() >= 33).then(|| not_empty(taints));
        let (status, taints) = match &machine.membership {
            Membership::None => return Err(Failure::new(503, "Database is not yet initialized")),
            Membership::Worker(_) => {
                let status = NodeStatus {
                    name: &machine.name,
                    address: machine.host(),
                    cluster_role: "worker",
                    datastore_role: "",
                };
                (status, taints(&[]))
            }
            Membership::Entering(..) | Membership::ControlPlane(_) => {
                let state = self.state_of(machine.id).ok().map(|(_, state)| state);
                let role =
                    state.and_then(|state| state.member(&machine.name)).map_or("PENDING", |member| member.role.name());
                let registered = state.filter(|_| machine.has_kubeconfigs());
                let status = NodeStatus {
                    name: &machine.name,
                    address: &machine.address,
                    cluster_role: "control-plane",
                    datastore_role: role,
                };
                (status, registered.and_then(|state| taints(&state.taints)))
            }
        };
        answer(NodeAnswer { status, taints })
    }

    fn cluster_status(&self, machine: &Machine) -> Handled {
        if machine.membership == Membership::None || machine.daemon < Daemon::Open {
            return Err(Failure::new(503, "daemon not yet initialized"));
        }
        not_a_worker(machine)?;
        let failed = |text: String| Failure::new(500, text);
        if !machine.has_kubeconfigs() {
            return Err(failed(
                "failed to create k8s client: failed to build Kubernetes REST config: stat /etc/kubernetes/admin.conf: no \
                 such file or directory"
                    .to_owned(),
            ));
        }
        self.api_call(machine, "Get", "/api/v1/nodes").map_err(|cause| {
            failed(format!("failed to check if cluster has ready nodes: failed to list nodes: {cause}"))
        })?;
        let (_, state) = self.state_of(machine.id)?;
        let members = state.members.iter().map(|member| NodeStatus {
            name: &member.name,
            address: &member.address,
            cluster_role: "control-plane",
            datastore_role: member.role.name(),
        });
        let [dns, network, load_balancer, ingress, gateway, metrics_server, local_storage] =
            state.feature_statuses(machine.minor());
        let status = ClusterStatus {
            ready: state.nodes.values().any(|node| node.ready == super::NodeReady::True),
            members: members.collect(),
            config: state.shown_config(machine.minor()),
            datastore: Datastore { r#type: &state.datastore_type },
            dns,
            network,
            load_balancer,
            ingress,
            gateway,
            metrics_server,
            local_storage,
        };
        answer(Status { status })
    }

    fn config(&self, machine: &Machine) -> Handled {
        let (_, state) = self.state_of(machine.id)?;
        let status = state.shown_config(machine.minor());
        if machine.minor() < 32 {
            return answer(Status { status });
        }
        answer(ConfigAnswer {
            status,
            datastore: Datastore { r#type: &state.datastore_type },
            pod_cidr: &state.pod_cidr,
            service_cidr: &state.service_cidr,
        })
    }

    fn set_config(&mut self, machine: MachineId, now: SimTime, request: &SetConfig) -> Handled {
        let new = ClusterConfig::read(&request.config)?;
        new.validate_ranges().map_err(|text| Failure::new(400, format!("invalid configuration: {text}")))?;
        let refused = |text: &str| {
            let merge = "failed to update cluster configuration: failed to merge new cluster configuration options";
            Failure::new(500, format!("database transaction to update cluster configuration failed: {merge}: {text}"))
        };
        let (cluster, state) = self.state_of(machine)?;
        let datastore = request.datastore.as_ref().and_then(|datastore| datastore.r#type.as_deref());
        if datastore.is_some_and(|datastore| datastore != state.datastore_type) {
            return Err(refused("prevented update of datastore type: value cannot change"));
        }
        let merged = new.over(state.config.clone());
        merged.validate().map_err(|text| refused(&format!("updated cluster configuration is not valid: {text}")))?;
        if let Some(state) = self.states.get_mut(&cluster) {
            state.config = merged;
            self.agenda.add(now + delays::FEATURES_REPORT, Event::FeaturesReported(cluster));
        }
        answer(Nothing {})
    }

    fn kubeconfig(&self, machine: &Machine, request: &Kubeconfig) -> Handled {
        let (_, state) = self.state_of(machine.id)?;
        let server = match request.server.as_str() {
            "" => machine.api_address.to_string(),
            server => server.to_owned(),
        };
        answer(KubeconfigAnswer { kubeconfig: state.pki.kubeconfig(&server) })
    }

    fn auth_token(&mut self, machine: MachineId, body: &[u8]) -> Handled {
        let request: NewAuthToken = lenient(body)?;
        let refused = |text: &str| Err(Failure::new(500, format!("database transaction failed: {text}")));
        if request.username.is_empty() {
            return refused("username cannot be empty");
        }
        for (place, group) in request.groups.iter().enumerate() {
            if group.is_empty() {
                return refused("invalid groups: group cannot be empty");
            }
            if request.groups.iter().take(place).any(|earlier| earlier == group) {
                return refused(&format!("invalid groups: duplicate group {group}"));
            }
        }
        let (cluster, state) = self.state_of(machine)?;
        let same = |token: &&AuthToken| token.username == request.username && token.groups == request.groups;
        if let Some(token) = state.auth_tokens.iter().find(same) {
            return answer(TokenAnswer { token: &token.text });
        }
        let text = format!("token::{}", self.hex(20));
        let reply = answer(TokenAnswer { token: &text });
        if let Some(state) = self.states.get_mut(&cluster) {
            state.auth_tokens.push(AuthToken { username: request.username, groups: request.groups, text });
        }
        reply
    }

    fn revoke_auth_token(&mut self, machine: MachineId, body: &[u8]) -> Handled {
        let request: RevokedAuthToken = lenient(body)?;
        if request.token.is_empty() {
            let chain =
                "failed to revoke auth token: database transaction failed: failed to delete token from database";
            return Err(Failure::new(500, format!("{chain}: token cannot be empty")));
        }
        let (cluster, _) = self.state_of(machine)?;
        if let Some(state) = self.states.get_mut(&cluster) {
            state.auth_tokens.retain(|token| token.text != request.token);
        }
        answer(())
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what every handler ends with")]
fn answer<M: Serialize>(metadata: M) -> Handled {
    Ok(Reply::Now(success(metadata)))
}

fn lenient<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let text = if body.is_empty() { "EOF".to_owned() } else { error.to_string() };
        Failure::new(400, format!("failed to parse request: {text}"))
    })
}

fn ready(machine: &Machine) -> Handled {
    match machine.daemon {
        Daemon::Ready => answer(Nothing {}),
        Daemon::Stopped | Daemon::Starting | Daemon::Open => Err(Failure::new(503, "Daemon is not ready yet")),
    }
}

fn database_open(machine: &Machine) -> Result<(), Failure> {
    if machine.membership == Membership::None {
        Err(Failure::new(503, "Database is not yet initialized"))
    } else if machine.daemon < Daemon::Open {
        Err(Failure::new(503, "Database is still starting"))
    } else {
        Ok(())
    }
}

fn not_a_worker(machine: &Machine) -> Result<(), Failure> {
    match machine.membership {
        Membership::Worker(_) => Err(Failure::new(403, "this action is restricted on workers")),
        _ => Ok(()),
    }
}

fn not_bootstrapped(machine: &Machine) -> Result<(), Failure> {
    match machine.membership {
        Membership::None => Ok(()),
        _ => Err(Failure::new(400, "cluster is already bootstrapped")),
    }
}

fn not_in_cluster(machine: &Machine, name: &str) -> Result<(), Failure> {
    match machine.membership {
        Membership::None => Ok(()),
        _ => Err(Failure::new(521, format!("node \"{name}\" is part of the cluster"))),
    }
}

/// A node that registers without taints shows one empty one.
fn not_empty(taints: &[String]) -> Vec<String> {
    if taints.is_empty() { vec![String::new()] } else { taints.to_vec() }
}

/// `GET /core/1.0`.
#[derive(Serialize)]
struct Server<'a> {
    name: &'a str,
    address: &'a str,
    version: &'static str,
    ready: bool,
    extensions: [&'static str; 2],
}

impl<'a> Server<'a> {
    fn of(machine: &'a Machine) -> Self {
        Server {
            name: &machine.name,
            address: &machine.address,
            version: "1.0",
            ready: machine.membership != Membership::None && machine.daemon >= Daemon::Open,
            extensions: EXTENSIONS,
        }
    }
}

/// A row of `GET /core/1.0/cluster`.
#[derive(Serialize)]
struct MemberAnswer<'a> {
    name: &'a str,
    address: &'a str,
    certificate: &'a str,
    role: &'static str,
    schema_internal_version: u32,
    schema_external_version: u32,
    last_heartbeat: &'a str,
    status: &'static str,
    extensions: [&'static str; 2],
    secret: &'a str,
}

/// A node's status; empty strings are left out.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NodeStatus<'a> {
    name: &'a str,
    address: &'a str,
    cluster_role: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    datastore_role: &'static str,
}

/// `GET /1.0/k8sd/node`.
#[derive(Serialize)]
struct NodeAnswer<'a> {
    status: NodeStatus<'a>,
    /// 1.33 and later.
    #[serde(skip_serializing_if = "Option::is_none")]
    taints: Option<Vec<String>>,
}

/// An answer that is all under `status`.
#[derive(Serialize)]
struct Status<S> {
    status: S,
}

/// `GET /1.0/k8sd/cluster`; a false `ready` is left out.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterStatus<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ready: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<NodeStatus<'a>>,
    config: ClusterConfig,
    datastore: Datastore<'a>,
    dns: FeatureStatus,
    network: FeatureStatus,
    load_balancer: FeatureStatus,
    ingress: FeatureStatus,
    gateway: FeatureStatus,
    metrics_server: FeatureStatus,
    local_storage: FeatureStatus,
}

/// `datastore` in a status.
#[derive(Serialize)]
struct Datastore<'a> {
    r#type: &'a str,
}

/// `GET /1.0/k8sd/cluster/config`, since 1.32.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ConfigAnswer<'a> {
    status: ClusterConfig,
    datastore: Datastore<'a>,
    pod_cidr: &'a str,
    service_cidr: &'a str,
}

/// `GET /1.0/k8sd/kubeconfig`.
#[derive(Serialize)]
struct KubeconfigAnswer {
    kubeconfig: String,
}

/// `POST /1.0/kubernetes/auth/tokens`.
#[derive(Serialize)]
struct TokenAnswer<'a> {
    token: &'a str,
}
