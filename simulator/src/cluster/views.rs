//! What a checker sees of the clusters from outside.

use super::state::NodeReady;
use super::{Cluster, ClusterId};
use crate::wire::MachineId;

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// Which.
    pub id: ClusterId,
    /// Its control planes, in the order of their entry, whether or not their machines are there.
    pub members: Vec<MemberView>,
}

/// A control plane, as its cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Its name in the cluster.
    pub name: String,
    /// Its machine.
    pub machine: MachineId,
    /// Its role in k8sd's database, `PENDING` while it enters.
    pub role: &'static str,
}

/// An upgrade as k8sd records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeView {
    /// `cluster-upgrade-to-k8s-VERSION-rev-REVISION`.
    pub name: String,
    /// `NodeUpgrade`, `FeatureUpgrade`, `Completed` or `Failed`.
    pub phase: &'static str,
    /// `InPlace`, `RollingUpgrade` or `RollingDowngrade`.
    pub strategy: &'static str,
    /// Names of Nodes, in the order of their entry.
    pub upgraded_nodes: Vec<String>,
}

impl Cluster {
    /// All clusters that were bootstrapped, or are being.
    pub fn clusters(&self) -> Vec<ClusterView> {
        let view = |(id, state): (&ClusterId, &super::ClusterState)| ClusterView {
            id: *id,
            members: state
                .members
                .iter()
                .map(|member| MemberView {
                    name: member.name.clone(),
                    machine: member.machine,
                    role: member.role.name(),
                })
                .collect(),
        };
        self.states.iter().map(view).collect()
    }

    /// The cluster that a machine is in, or enters.
    pub fn cluster_of(&self, machine: MachineId) -> Option<ClusterId> {
        self.machines.get(&machine)?.cluster()
    }

    /// What its cluster says of a machine's node; absent without a Node.
    pub fn node_ready(&self, machine: MachineId) -> Option<NodeReady> {
        self.states.values().find_map(|state| state.node_of(machine)).map(|(_, node)| node.ready)
    }

    /// The version of the kubelet that posted last, `1.32.1`; absent without a Node.
    pub fn kubelet_version(&self, machine: MachineId) -> Option<&str> {
        self.states.values().find_map(|state| state.node_of(machine)).map(|(_, node)| node.kubelet_version.as_str())
    }

    /// k8sd's records of upgrades, by name.
    pub fn upgrades(&self, cluster: ClusterId) -> Vec<UpgradeView> {
        let upgrades = self.states.get(&cluster).into_iter().flat_map(|state| &state.upgrades);
        upgrades
            .map(|(name, upgrade)| UpgradeView {
                name: name.clone(),
                phase: upgrade.phase.name(),
                strategy: upgrade.strategy.name(),
                upgraded_nodes: upgrade.upgraded_nodes.clone(),
            })
            .collect()
    }
}
