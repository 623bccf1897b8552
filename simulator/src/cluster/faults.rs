//! What a test, or a scenario, lets go wrong.

use std::time::Duration;

use super::agenda::MachineEvent;
use super::config::Feature;
use super::{Cluster, ClusterId};
use crate::time::SimTime;
use crate::wire::MachineId;

/// What is wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFault {
    /// Nothing: it is as Ready as its kubelet.
    None,
    /// Its kubelet says that it isn't Ready, for that long.
    NotReadyFor(Duration),
    /// Its kubelet says that it isn't Ready, through every restart and refresh.
    NotReady,
}

impl Cluster {
    /// Makes a node not Ready, or takes that back.
    pub fn set_node_fault(&mut self, machine: MachineId, now: SimTime, fault: NodeFault) {
        self.advance(now);
        self.agenda.void_event(machine, MachineEvent::FaultEnds);
        let until = match fault {
            NodeFault::None => None,
            NodeFault::NotReadyFor(duration) => Some(now + duration),
            NodeFault::NotReady => Some(SimTime(u64::MAX)),
        };
        if let NodeFault::NotReadyFor(duration) = fault {
            self.agenda.add_for(machine, now + duration, MachineEvent::FaultEnds);
        }
        self.change(machine, |machine| machine.not_ready_until = until);
        self.settle_ready(machine, now);
    }

    /// Lets the machine's next bootstrap fail with that cause.
    pub fn fail_next_bootstrap(&mut self, machine: MachineId, cause: &str) {
        self.change(machine, |machine| machine.next_failures.bootstrap = Some(cause.to_owned()));
    }

    /// Lets the machine's next join fail with that cause (which 1.36 doesn't tell).
    pub fn fail_next_join(&mut self, machine: MachineId, cause: &str) {
        self.change(machine, |machine| machine.next_failures.join = Some(cause.to_owned()));
    }

    /// Lets k8sd's next step after a refresh fail: the lock file stays until k8sd is restarted.
    pub fn fail_next_post_refresh(&mut self, machine: MachineId, cause: &str) {
        self.change(machine, |machine| machine.next_failures.post_refresh = Some(cause.to_owned()));
    }

    /// Lets a feature of a cluster report a failure, or, without a message, its success again.
    pub fn set_feature_failure(&mut self, cluster: ClusterId, feature: Feature, message: Option<&str>) {
        let Some(state) = self.states.get_mut(&cluster) else { return };
        state.failed_features.retain(|(failed, _)| *failed != feature);
        state.failed_features.extend(message.map(|message| (feature, message.to_owned())));
    }
}
