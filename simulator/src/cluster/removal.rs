//! Taking a node out of its cluster: Kubernetes' Node first, then the datastore's member, then k8sd's.

use super::agenda::{Event, Insistence, Removal};
use super::answers::{Failure, Handled, Nothing, success};
use super::node::{Daemon, Membership};
use super::requests::Remove;
use super::state::DatastoreMembership;
use super::{Cluster, ClusterId, delays};
use crate::time::SimTime;
use crate::wire::{MachineId, Reply};

const DATASTORE: &str = "failed to delete node from datastore: failed to remove node from etcd cluster";

impl Cluster {
    /// `POST /1.0/k8sd/cluster/remove`.
    ///
    /// What was done before a step failed stays done. With `force` every step is tried.
    pub(super) fn remove(&mut self, machine: MachineId, now: SimTime, request: &Remove) -> Handled {
        let name = request.name.as_str();
        let insistence = if request.force { Insistence::GoOn } else { Insistence::Stop };
        let Some(found) = self.machines.get(&machine) else { return Ok(Reply::Hangup) };
        let minor = found.minor();
        let kubernetes = self.delete_node(machine, now, name);
        if insistence == Insistence::Stop {
            kubernetes?;
        }
        let (cluster, state) = self.state_of(machine)?;
        let Some(member) = state.member(name) else { return not_a_member(name, minor, insistence) };
        let (target, address, part) = (member.machine, member.address.clone(), member.datastore);
        let others = state.members.iter().filter(|other| other.name != name).count();
        if insistence == Insistence::Stop {
            if others == 0 {
                let text =
                    "failed to create etcd client: failed to create etcd client: etcdclient: no available endpoints";
                return Err(Failure::new(500, format!("{DATASTORE}: {text}")));
            }
            if part == DatastoreMembership::None && !self.enters(target) {
                let text =
                    format!("failed to remove node {name} from etcd cluster: no etcd member found with name: {name}");
                return Err(Failure::new(500, format!("{DATASTORE}: {text}")));
            }
        }
        if others == 0 {
            return Ok(Reply::Now(success(Nothing {})));
        }
        if let Some(member) = self.states.get_mut(&cluster).and_then(|state| state.member_of(target)) {
            member.datastore = DatastoreMembership::None;
        }
        let takes = if self.answers(target, cluster) { delays::REMOVE } else { delays::REMOVE_UNREACHABLE };
        let ticket = self.new_ticket(machine, now + takes);
        let removal = Removal { cluster, name: name.to_owned(), insistence, ticket, address };
        self.agenda.add(now + takes, Event::Removal(removal));
        Ok(Reply::Wait { until: now + takes, ticket })
    }

    /// Deletes the Node of that name, through this machine's API server.
    fn delete_node(&mut self, machine: MachineId, now: SimTime, name: &str) -> Result<(), Failure> {
        let failed = |cause: String| {
            let text = format!("failed to remove k8s node \"{name}\": failed to delete node: {cause}");
            Failure::new(500, format!("failed to remove node from Kubernetes: {text}"))
        };
        if name.is_empty() {
            return Err(failed("resource name may not be empty".to_owned()));
        }
        if let Some(found) = self.machines.get(&machine) {
            self.api_call(found, "Delete", &format!("/api/v1/nodes/{name}")).map_err(failed)?;
        }
        let (cluster, _) = self.state_of(machine)?;
        if let Some(state) = self.states.get_mut(&cluster) {
            state.nodes.remove(name);
        }
        self.look_at_upgrades(cluster, now);
        Ok(())
    }

    fn enters(&self, machine: MachineId) -> bool {
        self.machines.get(&machine).is_some_and(|machine| matches!(machine.membership, Membership::Entering(..)))
    }

    /// Whether k8sd of a member answers the others.
    fn answers(&self, machine: MachineId, cluster: ClusterId) -> bool {
        self.machines
            .get(&machine)
            .is_some_and(|machine| machine.cluster() == Some(cluster) && machine.daemon >= Daemon::Open)
    }

    pub(super) fn removal_ends(&mut self, removal: &Removal, at: SimTime) {
        let Removal { cluster, name, insistence, ticket, address } = removal;
        let target = self.states.get(cluster).and_then(|state| state.member(name)).map(|member| member.machine);
        let reached = target.is_none_or(|target| self.answers(target, *cluster));
        if !reached && *insistence == Insistence::Stop {
            let hook = format!("Post \"https://{address}/core/internal/hooks/pre-remove?target={name}\"");
            let text = format!("failed to delete cluster member {name}: {hook}: context deadline exceeded");
            let asked = self.tickets.get(ticket).and_then(|ticket| self.machines.get(&ticket.machine));
            let Some(end) = asked.map(super::node::Machine::error_end) else { return };
            let failure = Failure::new(500, format!("failed to delete node from microcluster: {text}"));
            self.end_ticket(*ticket, Reply::Now(failure.response(end)));
            return;
        }
        if let Some(state) = self.states.get_mut(cluster) {
            state.members.retain(|member| member.name != *name);
            state.balance_roles();
        }
        self.end_ticket(*ticket, Reply::Now(success(Nothing {})));
        if let Some(target) = target
            && self.cluster_of(target) == Some(*cluster)
        {
            self.reset(target, at);
        }
    }
}

/// A name that k8sd has no member of: 200, but before October 2025 (1.31).
fn not_a_member(name: &str, minor: u64, insistence: Insistence) -> Handled {
    if minor <= 31 && insistence == Insistence::Stop {
        let text = format!("node \"{name}\" is not part of the cluster: nodes \"{name}\" not found");
        return Err(Failure::new(520, text));
    }
    Ok(Reply::Now(success(Nothing {})))
}
