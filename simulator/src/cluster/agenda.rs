//! What will happen by itself, and when.

use std::collections::BTreeMap;

use super::ClusterId;
use crate::time::SimTime;
use crate::wire::MachineId;

/// Something that happens by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// On one machine.
    Machine(MachineId, MachineEvent),
    /// k8sd's upgrade controller begins with the features.
    FeatureUpgrade(ClusterId, String),
    /// All features are at the new version.
    FeaturesApplied(ClusterId, String),
    /// The features report what the configuration asks for.
    FeaturesReported(ClusterId),
    /// A control plane is removed.
    Removal(Removal),
}

/// A request to remove a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) cluster: ClusterId,
    /// The member's name.
    pub(super) name: String,
    /// Its address, `ip:6400`.
    pub(super) address: String,
    pub(super) insistence: Insistence,
    /// Who waits for the answer.
    pub(super) ticket: u64,
}

/// What a removal does when a step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Insistence {
    /// It ends there.
    Stop,
    /// It takes the next step all the same (`force`).
    GoOn,
}

/// Something that happens by itself on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineEvent {
    /// k8sd's control socket is there.
    SocketOpens,
    /// k8sd's database is open.
    DatabaseOpens,
    /// k8sd's start hook is done.
    DaemonReady,
    /// k8sd's step after a refresh, taken at every start.
    PostRefreshStep,
    /// The datastore member is up.
    DatastoreUp,
    /// The API server's port is open.
    ApiServerListens,
    /// The API server's start hooks are done.
    ApiServerReady,
    /// The kubelet posts its status.
    KubeletPosts,
    /// The others take the silent kubelet for lost.
    NodeLost,
    /// A node's fault is over.
    FaultEnds,
    /// A bootstrap or join wrote the certificates and kubeconfigs.
    EntryFiles,
    /// A new member is given its role in k8sd's database.
    EntryRole,
    /// A bootstrap or join comes to its end.
    EntryEnds,
    /// A bootstrap or join is answered that it failed.
    EntryFails,
    /// A failed bootstrap or join is undone, k8sd starts anew.
    EntryUndone,
}

/// Which of a machine's processes an event belongs to, so that it's void when that process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    /// k8sd.
    Daemon,
    /// Datastore, API server, kubelet.
    Services,
    /// A bootstrap or join under way in k8sd.
    Entry,
    /// Nothing on the machine: what others see, or a fault.
    Elsewhere,
}

impl MachineEvent {
    fn process(self) -> Process {
        match self {
            Self::SocketOpens | Self::DatabaseOpens | Self::DaemonReady | Self::PostRefreshStep => Process::Daemon,
            Self::DatastoreUp | Self::ApiServerListens | Self::ApiServerReady | Self::KubeletPosts => Process::Services,
            Self::EntryFiles | Self::EntryRole | Self::EntryEnds | Self::EntryFails | Self::EntryUndone => {
                Process::Entry
            }
            Self::NodeLost | Self::FaultEnds => Process::Elsewhere,
        }
    }
}

/// Events in the order of their time, and of their making where that is equal.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(SimTime, u64), Event>,
    made: u64,
}

impl Agenda {
    /// Notes an event.
    pub(super) fn add(&mut self, at: SimTime, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// Notes an event of a machine.
    pub(super) fn add_for(&mut self, machine: MachineId, at: SimTime, event: MachineEvent) {
        self.add(at, Event::Machine(machine, event));
    }

    /// The time of the first event.
    pub(super) fn first(&self) -> Option<SimTime> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes the first event off, if its time has come.
    pub(super) fn take_due(&mut self, now: SimTime) -> Option<(SimTime, Event)> {
        let first = self.events.first_entry().filter(|entry| entry.key().0 <= now)?;
        let at = first.key().0;
        Some((at, first.remove()))
    }

    /// Voids the events of a machine's process, which has ended.
    pub(super) fn void(&mut self, machine: MachineId, process: Process) {
        self.events.retain(|_, event| match event {
            Event::Machine(whose, event) => *whose != machine || event.process() != process,
            _ => true,
        });
    }

    /// Voids one kind of a machine's events.
    pub(super) fn void_event(&mut self, machine: MachineId, event: MachineEvent) {
        self.events.retain(|_, other| *other != Event::Machine(machine, event));
    }

    /// Voids all events of a cluster, which is no more.
    pub(super) fn void_cluster(&mut self, cluster: ClusterId) {
        self.events.retain(|_, event| match event {
            Event::FeatureUpgrade(whose, _)
            | Event::FeaturesApplied(whose, _)
            | Event::FeaturesReported(whose)
            | Event::Removal(Removal { cluster: whose, .. }) => *whose != cluster,
            Event::Machine(..) => true,
        });
    }
}
