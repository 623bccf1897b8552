//! What snapd does to a machine's snap, and what becomes of its processes.

use std::time::Duration;

use super::agenda::{MachineEvent, Process};
use super::node::{ApiServer, Controllers, Daemon, Machine, Membership, Running};
use super::{Cluster, delays};
use crate::time::SimTime;
use crate::wire::{InstalledSnap, MachineId, SnapEvent};

impl Cluster {
    /// Something happens to a machine's k8s snap.
    pub fn snap_event(&mut self, machine: MachineId, now: SimTime, event: SnapEvent) {
        self.advance(now);
        match event {
            SnapEvent::Installed(snap) => self.snap_installed(machine, now, snap),
            SnapEvent::ServicesStopped => self.services_stopped(machine, now),
            SnapEvent::PostRefresh(snap) => self.post_refresh_hook(machine, snap),
            SnapEvent::ServicesStarted(snap) => self.services_started(machine, now, snap),
            SnapEvent::ServiceRestarted(service) => self.service_restarted(machine, now, &service),
            SnapEvent::Removed => self.snap_removed(machine, now),
        }
        self.note_quorum(now);
    }

    fn snap_installed(&mut self, machine: MachineId, now: SimTime, snap: InstalledSnap) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.snap = Some(snap);
        found.services = Running::Up;
        self.start_daemon(machine, now, delays::FIRST_SOCKET, delays::FIRST_READY);
    }

    /// The hook leaves the lock file since 1.32.
    fn post_refresh_hook(&mut self, machine: MachineId, snap: InstalledSnap) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.snap = Some(snap);
        if found.minor() >= 32 {
            let made = found.make_lock_file();
            self.note_trouble(machine, made);
        }
    }

    fn services_started(&mut self, machine: MachineId, now: SimTime, snap: InstalledSnap) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.snap = Some(snap);
        if found.services == Running::Up {
            return;
        }
        found.services = Running::Up;
        let membership = found.membership.clone();
        self.start_daemon(machine, now, delays::START_SOCKET, delays::START_READY);
        if matches!(membership, Membership::ControlPlane(_)) {
            self.agenda.add_for(machine, now + delays::START_DATASTORE, MachineEvent::DatastoreUp);
            self.agenda.add_for(machine, now + delays::START_API_SERVER, MachineEvent::ApiServerListens);
        }
        if membership != Membership::None {
            self.agenda.add_for(machine, now + delays::START_KUBELET, MachineEvent::KubeletPosts);
        }
    }

    /// Everything of the snap stops. A bootstrap or join under way is lost with its daemon; nothing is recorded of
    /// what a real one leaves behind then, here it leaves nothing.
    fn services_stopped(&mut self, machine: MachineId, now: SimTime) {
        self.abandon_entry(machine, now);
        self.cut_tickets(machine);
        self.agenda.void(machine, Process::Daemon);
        self.agenda.void(machine, Process::Services);
        if let Some(found) = self.machines.get_mut(&machine) {
            found.stop();
            found.services = Running::Down;
        }
        self.kubelet_silent(machine, now);
    }

    fn service_restarted(&mut self, machine: MachineId, now: SimTime, service: &str) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        if found.services == Running::Down {
            return;
        }
        match service.strip_prefix("k8s.").unwrap_or(service) {
            "k8sd" => {
                self.abandon_entry(machine, now);
                self.cut_tickets(machine);
                self.stop_daemon(machine);
                self.start_daemon(machine, now, delays::RESTART_SOCKET, delays::RESTART_READY);
            }
            "kube-apiserver" if found.api_server != ApiServer::Down => {
                found.api_server = ApiServer::Down;
                self.agenda.add_for(machine, now + delays::RESTART_API_SERVER, MachineEvent::ApiServerListens);
            }
            _ => {}
        }
    }

    /// The snap is gone with all its data; nobody told its cluster.
    pub(super) fn snap_removed(&mut self, machine: MachineId, now: SimTime) {
        self.services_stopped(machine, now);
        self.agenda.void(machine, Process::Entry);
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.snap = None;
        forget_cluster(found);
        let removed = found.remove_cluster_files().and(found.remove_lock_file());
        self.note_trouble(machine, removed);
    }

    /// The machine leaves its cluster, removed or never quite in it: services and files go, k8sd starts anew.
    pub(super) fn reset(&mut self, machine: MachineId, now: SimTime) {
        self.agenda.void(machine, Process::Entry);
        self.agenda.void(machine, Process::Services);
        self.cut_tickets(machine);
        self.stop_daemon(machine);
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.stop_services();
        forget_cluster(found);
        let removed = found.remove_cluster_files();
        let running = found.services;
        self.note_trouble(machine, removed);
        if running == Running::Up {
            self.start_daemon(machine, now, delays::RESET_SOCKET, delays::RESET_READY);
        }
    }

    fn stop_daemon(&mut self, machine: MachineId) {
        self.agenda.void(machine, Process::Daemon);
        if let Some(found) = self.machines.get_mut(&machine) {
            found.daemon = Daemon::Stopped;
            found.controllers = Controllers::Stopped;
        }
    }

    fn start_daemon(&mut self, machine: MachineId, now: SimTime, socket: Duration, ready: Duration) {
        self.agenda.add_for(machine, now + socket, MachineEvent::SocketOpens);
        self.agenda.add_for(machine, now + socket + delays::DATABASE_OPENS, MachineEvent::DatabaseOpens);
        self.agenda.add_for(machine, now + ready, MachineEvent::DaemonReady);
    }

    /// The kubelet of a machine says nothing more: in a while others take its node for lost.
    fn kubelet_silent(&mut self, machine: MachineId, now: SimTime) {
        for state in self.states.values_mut() {
            let Some((_, node)) = state.node_of(machine) else { continue };
            if node.silent_since.is_none() {
                state.change_node(machine, |node| node.silent_since = Some(now));
                self.agenda.add_for(machine, now + delays::NODE_GRACE, MachineEvent::NodeLost);
            }
        }
    }
}

pub(super) fn forget_cluster(machine: &mut Machine) {
    machine.membership = Membership::None;
    machine.name.clone_from(&machine.hostname);
    machine.address.clear();
    machine.certificate = None;
}
