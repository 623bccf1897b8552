//! One cluster: members, Nodes, upgrades, tokens, configuration. What all its machines share.

use std::collections::BTreeMap;

use ::time::OffsetDateTime;
use ::time::format_description::well_known::Rfc3339;

use super::config::{ClusterConfig, FeatureStatus};
use super::pki::Pki;
use crate::time::{EPOCH, SimTime};
use crate::wire::MachineId;

/// A moment as Kubernetes writes it, to the second.
pub(super) fn timestamp(at: SimTime) -> String {
    let moment = OffsetDateTime::from_unix_timestamp(at.unix_seconds()).ok();
    moment.and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| format!("@{EPOCH}"))
}

/// A member's role in k8sd's own database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabaseRole {
    Pending,
    Voter,
    StandBy,
    Spare,
}

impl DatabaseRole {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Voter => "voter",
            Self::StandBy => "stand-by",
            Self::Spare => "spare",
        }
    }
}

/// A member's part in the datastore (etcd or k8s-dqlite).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatastoreMembership {
    /// Not counted for the quorum: joining, or taken out.
    None,
    /// Counted.
    Voting,
}

/// A control plane, as the cluster knows it, whether or not its machine is there.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) machine: MachineId,
    pub(super) address: String,
    pub(super) role: DatabaseRole,
    pub(super) datastore: DatastoreMembership,
    pub(super) certificate_pem: String,
}

/// What a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeRole {
    ControlPlane,
    Worker,
}

impl NodeRole {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
        }
    }

    /// The label by which Kubernetes' tools know the role.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::ControlPlane => "node-role.kubernetes.io/control-plane",
            Self::Worker => "node-role.kubernetes.io/worker",
        }
    }
}

/// The status of a Node's condition `Ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReady {
    /// The kubelet says so.
    True,
    /// The kubelet says that it isn't.
    False,
    /// The kubelet has been silent for too long.
    Unknown,
}

/// A Node of Kubernetes.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) machine: MachineId,
    pub(super) uid: String,
    pub(super) created: SimTime,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) taints: Vec<String>,
    /// `None` where the key is absent.
    pub(super) unschedulable: Option<bool>,
    pub(super) host: String,
    /// Version of the kubelet that posted last, without `v`.
    pub(super) kubelet_version: String,
    pub(super) ready: NodeReady,
    pub(super) ready_since: SimTime,
    /// When the kubelet went silent.
    pub(super) silent_since: Option<SimTime>,
    pub(super) resource_version: u64,
}

/// The annotation that k8sd keeps on its Node.
pub(super) const VERSION_ANNOTATION: &str = "k8sd.io/version";

/// Phase of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    NodeUpgrade,
    FeatureUpgrade,
    Completed,
    Failed,
}

impl Phase {
    pub(super) const ALL: [Self; 4] = [Self::NodeUpgrade, Self::FeatureUpgrade, Self::Completed, Self::Failed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NodeUpgrade => "NodeUpgrade",
            Self::FeatureUpgrade => "FeatureUpgrade",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
        }
    }
}

/// Strategy of an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    InPlace,
    RollingUpgrade,
    RollingDowngrade,
}

impl Strategy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InPlace => "InPlace",
            Self::RollingUpgrade => "RollingUpgrade",
            Self::RollingDowngrade => "RollingDowngrade",
        }
    }
}

/// A resource `upgrades.k8sd.io`.
#[derive(Debug, Clone)]
pub(super) struct Upgrade {
    pub(super) uid: String,
    pub(super) created: SimTime,
    pub(super) phase: Phase,
    pub(super) strategy: Strategy,
    pub(super) upgraded_nodes: Vec<String>,
    pub(super) resource_version: u64,
}

impl Upgrade {
    /// Neither Completed nor Failed.
    pub(super) fn in_progress(&self) -> bool {
        !matches!(self.phase, Phase::Completed | Phase::Failed)
    }
}

/// Who a join token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    ControlPlane,
    Worker,
}

/// A join token.
pub(super) struct Token {
    pub(super) name: String,
    pub(super) kind: TokenKind,
    pub(super) secret: String,
    /// As it was given out.
    pub(super) text: String,
    pub(super) expires: SimTime,
}

/// A token of k8sd's for Kubernetes.
pub(super) struct AuthToken {
    pub(super) username: String,
    pub(super) groups: Vec<String>,
    pub(super) text: String,
}

/// Whether the custom resource Upgrade is known to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpgradeResource {
    /// Only ever 1.31.
    Unknown,
    /// Applied by a k8sd of 1.32 or later.
    Applied,
}

/// One cluster.
pub(super) struct ClusterState {
    pub(super) pki: Pki,
    pub(super) fingerprint: String,
    pub(super) datastore_type: String,
    pub(super) taints: Vec<String>,
    pub(super) pod_cidr: String,
    pub(super) service_cidr: String,
    pub(super) config: ClusterConfig,
    /// The features' last deployment: for which minor version, and when.
    pub(super) features: Option<(u64, SimTime)>,
    /// Features that report a failure, by their message.
    pub(super) failed_features: Vec<(super::config::Feature, String)>,
    pub(super) members: Vec<Member>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) upgrade_resource: UpgradeResource,
    pub(super) upgrades: BTreeMap<String, Upgrade>,
    pub(super) tokens: Vec<Token>,
    pub(super) auth_tokens: Vec<AuthToken>,
    /// When its bootstrap had come to its end.
    pub(super) formed: Option<SimTime>,
    pub(super) quorum_lost_since: Option<SimTime>,
    resource_version: u64,
}

impl ClusterState {
    pub(super) fn new(pki: Pki, fingerprint: String, datastore_type: String) -> Self {
        Self {
            pki,
            fingerprint,
            datastore_type,
            taints: Vec::new(),
            pod_cidr: "10.1.0.0/16".to_owned(),
            service_cidr: "10.152.183.0/24".to_owned(),
            config: ClusterConfig::default(),
            features: None,
            failed_features: Vec::new(),
            members: Vec::new(),
            nodes: BTreeMap::new(),
            upgrade_resource: UpgradeResource::Unknown,
            upgrades: BTreeMap::new(),
            tokens: Vec::new(),
            auth_tokens: Vec::new(),
            formed: None,
            quorum_lost_since: None,
            resource_version: 300,
        }
    }

    /// A new resource version.
    pub(super) fn next_version(&mut self) -> u64 {
        self.resource_version += 1;
        self.resource_version
    }

    /// The newest resource version.
    pub(super) fn last_version(&self) -> u64 {
        self.resource_version
    }

    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    pub(super) fn member_of(&mut self, machine: MachineId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.machine == machine)
    }

    /// The Node of a machine, with its name.
    pub(super) fn node_of(&self, machine: MachineId) -> Option<(&String, &Node)> {
        self.nodes.iter().find(|(_, node)| node.machine == machine)
    }

    /// Changes the Node of a machine, if there is one.
    pub(super) fn change_node(&mut self, machine: MachineId, change: impl FnOnce(&mut Node)) {
        let version = self.next_version();
        if let Some(node) = self.nodes.values_mut().find(|node| node.machine == machine) {
            change(node);
            node.resource_version = version;
        }
    }

    /// Changes an upgrade, if it's there.
    pub(super) fn change_upgrade(&mut self, name: &str, change: impl FnOnce(&mut Upgrade)) {
        let version = self.next_version();
        if let Some(upgrade) = self.upgrades.get_mut(name) {
            change(upgrade);
            upgrade.resource_version = version;
        }
    }

    /// The upgrade that k8sd takes for the one in progress: the newest-named.
    pub(super) fn upgrade_in_progress(&self) -> Option<(&String, &Upgrade)> {
        self.upgrades.iter().rev().find(|(_, upgrade)| upgrade.in_progress())
    }

    /// Gives roles in k8sd's database as it does itself: an odd number of voters, at most three, then three in waiting.
    pub(super) fn balance_roles(&mut self) {
        let settled = self.members.iter().filter(|member| member.role != DatabaseRole::Pending).count();
        let voters = if settled >= 3 { 3 } else { 1 };
        let settled = self.members.iter_mut().filter(|member| member.role != DatabaseRole::Pending);
        for (place, member) in settled.enumerate() {
            member.role = match place {
                place if place < voters => DatabaseRole::Voter,
                3..=5 => DatabaseRole::StandBy,
                _ => DatabaseRole::Spare,
            };
        }
    }

    /// The configuration with defaults, as a k8sd of that minor version shows it.
    pub(super) fn shown_config(&self, minor: u64) -> ClusterConfig {
        self.config.clone().with_defaults(minor)
    }

    /// The features' statuses, in the order of k8sd's answer.
    pub(super) fn feature_statuses(&self, minor: u64) -> [FeatureStatus; 7] {
        let config = self.shown_config(minor);
        config.features().map(|(feature, enabled)| {
            let Some((minor, at)) = self.features else { return FeatureStatus::unreported() };
            let status = FeatureStatus::applied(feature, enabled, &config, minor, &timestamp(at));
            match self.failed_features.iter().find(|(failed, _)| *failed == feature) {
                Some((_, message)) => status.failed(message),
                None => status,
            }
        })
    }
}
