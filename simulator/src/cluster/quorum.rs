//! The datastore's quorum, and what hangs on it.
//!
//! Every control plane has a member of the datastore (etcd, or k8s-dqlite). While more than half of the members are up it
//! has a leader; else no API server of the cluster answers reads or writes, wherever it runs. Of two members both are needed.

use super::node::{ApiServer, Machine, Membership, Running};
use super::state::DatastoreMembership;
use super::{Cluster, ClusterId};
use crate::time::SimTime;
use crate::wire::MachineId;

impl Cluster {
    /// Whether the cluster's datastore has a majority of its members up. True before its bootstrap is done.
    pub fn has_quorum(&self, cluster: ClusterId) -> bool {
        let Some(state) = self.states.get(&cluster) else { return false };
        let counted = || state.members.iter().filter(|member| member.datastore == DatastoreMembership::Voting);
        let up = counted().filter(|member| self.datastore_up(member.machine, cluster)).count();
        let members = counted().count();
        members == 0 || up * 2 > members
    }

    /// Since when the cluster's datastore has had no majority, if it has none.
    pub fn quorum_lost_since(&self, cluster: ClusterId) -> Option<SimTime> {
        self.states.get(&cluster)?.quorum_lost_since
    }

    fn datastore_up(&self, machine: MachineId, cluster: ClusterId) -> bool {
        let Some(machine) = self.machines.get(&machine) else { return false };
        machine.membership == Membership::ControlPlane(cluster) && machine.datastore == Running::Up
    }

    /// Whether this machine's API server is up, and its cluster's datastore has a leader.
    pub(super) fn api_server_ready(&self, machine: &Machine) -> bool {
        machine.api_server == ApiServer::Up && machine.cluster().is_some_and(|cluster| self.has_quorum(cluster))
    }

    /// Keeps the time of a loss.
    pub(super) fn note_quorum(&mut self, now: SimTime) {
        let lost: Vec<(ClusterId, bool)> =
            self.states.keys().map(|cluster| (*cluster, !self.has_quorum(*cluster))).collect();
        for (cluster, lost) in lost {
            let Some(state) = self.states.get_mut(&cluster) else { continue };
            state.quorum_lost_since = match state.quorum_lost_since {
                since @ Some(_) if lost => since,
                None if lost => Some(now),
                _ => None,
            };
        }
    }
}
