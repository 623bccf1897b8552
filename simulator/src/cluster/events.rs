//! What happens when an event's time has come.

use super::agenda::{Event, MachineEvent};
use super::node::{ApiServer, Daemon, Machine, Membership, Running};
use super::state::{Node, NodeReady, NodeRole};
use super::{Cluster, ClusterId, delays};
use crate::time::SimTime;
use crate::wire::MachineId;

impl Cluster {
    pub(super) fn happen(&mut self, at: SimTime, event: Event) {
        match event {
            Event::Machine(machine, event) => self.happen_on(machine, at, event),
            Event::FeatureUpgrade(cluster, name) => self.feature_upgrade_begins(cluster, at, &name),
            Event::FeaturesApplied(cluster, name) => self.upgrade_completes(cluster, at, &name),
            Event::FeaturesReported(cluster) => self.features_reported(cluster, at),
            Event::Removal(removal) => self.removal_ends(&removal, at),
        }
    }

    fn happen_on(&mut self, machine: MachineId, at: SimTime, event: MachineEvent) {
        match event {
            MachineEvent::SocketOpens => self.change(machine, |machine| machine.daemon = Daemon::Starting),
            MachineEvent::DatabaseOpens => self.change(machine, |machine| machine.daemon = Daemon::Open),
            MachineEvent::DaemonReady => self.daemon_ready(machine, at),
            MachineEvent::PostRefreshStep => self.post_refresh_step(machine, at),
            MachineEvent::DatastoreUp => self.change(machine, |machine| machine.datastore = Running::Up),
            MachineEvent::ApiServerListens => {
                self.change(machine, |machine| machine.api_server = ApiServer::Starting);
                self.agenda.add_for(machine, at + delays::API_SERVER_READY, MachineEvent::ApiServerReady);
            }
            MachineEvent::ApiServerReady => self.change(machine, |machine| machine.api_server = ApiServer::Up),
            MachineEvent::KubeletPosts => self.kubelet_posts(machine, at),
            MachineEvent::NodeLost => self.node_lost(machine, at),
            MachineEvent::FaultEnds => {
                self.change(machine, |machine| machine.not_ready_until = None);
                self.settle_ready(machine, at);
            }
            MachineEvent::EntryFiles => self.entry_files(machine),
            MachineEvent::EntryRole => self.entry_role(machine),
            MachineEvent::EntryEnds => self.entry_ends(machine, at),
            MachineEvent::EntryFails => self.entry_fails(machine, at),
            MachineEvent::EntryUndone => self.undo_entry(machine, at),
        }
    }

    pub(super) fn change(&mut self, machine: MachineId, change: impl FnOnce(&mut Machine)) {
        if let Some(machine) = self.machines.get_mut(&machine) {
            change(machine);
        }
    }

    fn daemon_ready(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.daemon = Daemon::Ready;
        if found.membership != Membership::None {
            self.agenda.add_for(machine, at + delays::POST_REFRESH, MachineEvent::PostRefreshStep);
        }
    }

    /// Whether a program on this machine finds an API server that answers: its own, or on a worker any.
    pub(super) fn reaches_api_server(&self, machine: &Machine) -> bool {
        match &machine.membership {
            Membership::None | Membership::Entering(None, _) => false,
            Membership::Entering(Some(cluster), entry) => match entry.kind {
                super::node::EntryKind::Worker => self.any_api_server(*cluster),
                _ => self.api_server_ready(machine),
            },
            Membership::ControlPlane(_) => self.api_server_ready(machine),
            Membership::Worker(cluster) => self.any_api_server(*cluster),
        }
    }

    fn any_api_server(&self, cluster: ClusterId) -> bool {
        self.machines.values().any(|machine| machine.cluster() == Some(cluster) && self.api_server_ready(machine))
    }

    /// The kubelet's first status: a new Node, or a new version in an old one.
    fn kubelet_posts(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get(&machine) else { return };
        if !self.reaches_api_server(found) {
            self.agenda.add_for(machine, at + delays::API_SERVER_AGAIN, MachineEvent::KubeletPosts);
            return;
        }
        let uid = self.uid();
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.kubelet = Running::Up;
        let version = found.snap.as_ref().map(|snap| snap.version.to_string()).unwrap_or_default();
        let Some(state) = found.cluster().and_then(|cluster| self.states.get_mut(&cluster)) else { return };
        if state.node_of(machine).is_none() {
            let role = match found.membership {
                Membership::Worker(_) => NodeRole::Worker,
                _ => NodeRole::ControlPlane,
            };
            let mut node = new_node(found, role, uid, at);
            node.resource_version = state.next_version();
            if role == NodeRole::ControlPlane {
                node.taints.clone_from(&state.taints);
            }
            state.nodes.insert(found.name.clone(), node);
        }
        state.change_node(machine, |node| {
            node.kubelet_version = version;
            node.silent_since = None;
        });
        self.settle_ready(machine, at);
    }

    /// Sets the Node's condition to what a kubelet that posts would say.
    pub(super) fn settle_ready(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get(&machine).filter(|machine| machine.kubelet == Running::Up) else { return };
        let ready = match found.not_ready_until {
            Some(until) if at < until => NodeReady::False,
            _ => NodeReady::True,
        };
        let Some(state) = found.cluster().and_then(|cluster| self.states.get_mut(&cluster)) else { return };
        state.change_node(machine, |node| set_ready(node, ready, at));
    }

    /// The controller manager finds a kubelet silent for too long; without a quorum it can't say so.
    fn node_lost(&mut self, machine: MachineId, at: SimTime) {
        let silent = |node: &Node| node.silent_since.is_some_and(|since| since + delays::NODE_GRACE <= at);
        let clusters: Vec<ClusterId> = self
            .states
            .iter()
            .filter(|(_, state)| state.node_of(machine).is_some_and(|(_, node)| silent(node)))
            .map(|(cluster, _)| *cluster)
            .collect();
        for cluster in clusters {
            if !self.has_quorum(cluster) {
                self.agenda.add_for(machine, at + delays::HEARTBEAT, MachineEvent::NodeLost);
            } else if let Some(state) = self.states.get_mut(&cluster) {
                state.change_node(machine, |node| set_ready(node, NodeReady::Unknown, at));
            }
        }
    }
}

fn set_ready(node: &mut Node, ready: NodeReady, at: SimTime) {
    if node.ready != ready {
        node.ready = ready;
        node.ready_since = at;
    }
}

fn new_node(machine: &Machine, role: NodeRole, uid: String, at: SimTime) -> Node {
    let labels = [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("k8sd.io/role", role.name()),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &machine.name),
        ("kubernetes.io/os", "linux"),
        (role.label(), ""),
    ];
    Node {
        machine: machine.id,
        uid,
        created: at,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        annotations: [("node.alpha.kubernetes.io/ttl".to_owned(), "0".to_owned())].into(),
        taints: Vec::new(),
        unschedulable: None,
        host: machine.host().to_owned(),
        kubelet_version: String::new(),
        ready: NodeReady::False,
        ready_since: at,
        silent_since: None,
        resource_version: 0,
    }
}
