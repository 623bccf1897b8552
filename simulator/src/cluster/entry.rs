//! How a machine enters a cluster: bootstrap and join, which take their time, may fail, and go on without their caller.

use std::time::Duration;

use super::agenda::{MachineEvent, Process};
use super::answers::{Failure, Handled, Nothing, success};
use super::config::ClusterConfig;
use super::lifecycle::forget_cluster;
use super::node::{Entry, EntryEnd, EntryKind, EntryStage, Membership, Running};
use super::pki::Pki;
use super::requests::{Bootstrap, Join, host_name};
use super::schema::{JoinAs, check_join_config};
use super::state::{ClusterState, DatabaseRole, DatastoreMembership, Member, TokenKind};
use super::{Cluster, ClusterId, delays};
use crate::time::SimTime;
use crate::wire::{MachineId, Reply};

/// `timeout` of a request: absent stands for an hour.
fn deadline(now: SimTime, nanoseconds: i64) -> SimTime {
    match u64::try_from(nanoseconds) {
        Ok(nanoseconds) if nanoseconds > 0 => now + Duration::from_nanos(nanoseconds),
        _ => now + Duration::from_hours(1),
    }
}

/// A bootstrap or join that begins.
struct Arrival<'a> {
    cluster: Option<ClusterId>,
    kind: EntryKind,
    name: String,
    address: &'a str,
    end: EntryEnd,
    takes: Duration,
    deadline: SimTime,
}

impl Cluster {
    /// `POST /1.0/k8sd/cluster`.
    ///
    /// Only the form is looked at beforehand; a configuration that makes no sense costs ten seconds and a restart.
    pub(super) fn bootstrap(&mut self, machine: MachineId, now: SimTime, request: &Bootstrap) -> Handled {
        let failed = |text: String| Failure::new(400, format!("failed to bootstrap new cluster: {text}"));
        let name = host_name(&request.name)?;
        if request.address.parse::<std::net::SocketAddr>().is_err() {
            return Err(failed(format!("Received invalid address \"{}\": not an ip:port", request.address)));
        }
        let config = ClusterConfig::read(&request.config.cluster_config)?;
        let Some(found) = self.machines.get_mut(&machine) else { return Ok(Reply::Hangup) };
        let minor = found.minor();
        let default_datastore = if minor >= 32 { "etcd" } else { "k8s-dqlite" };
        let datastore = request.config.datastore_type.clone().unwrap_or_else(|| default_datastore.to_owned());
        let until = deadline(now, request.timeout);
        let asked_failure = found.next_failures.bootstrap.take();
        let cause = asked_failure.or_else(|| bootstrap_fails(&config, &datastore, minor, now, until));
        let (end, takes) = match cause {
            None => (EntryEnd::Well, delays::BOOTSTRAP),
            Some(cause) => {
                let failure = failed(format!("Failed to run post-bootstrap actions: {cause}"));
                (EntryEnd::Fails(failure.status, failure.text), delays::BOOTSTRAP_FAILS)
            }
        };
        let pki = Pki::new().map_err(|error| failed(error.to_string()))?;
        let fingerprint = self.hex(32);
        let mut state = ClusterState::new(pki, fingerprint, datastore);
        state.taints.clone_from(&request.config.control_plane_taints);
        state.config = config;
        if let Some(cidr) = &request.config.pod_cidr {
            state.pod_cidr.clone_from(cidr);
        }
        if let Some(cidr) = &request.config.service_cidr {
            state.service_cidr.clone_from(cidr);
        }
        self.states_made += 1;
        let cluster = ClusterId(self.states_made);
        self.states.insert(cluster, state);
        let (kind, address) = (EntryKind::Bootstrap, &request.address);
        self.arrive(machine, now, Arrival { cluster: Some(cluster), kind, name, address, end, takes, deadline: until })
    }

    /// `POST /1.0/k8sd/cluster/join`.
    pub(super) fn join(&mut self, machine: MachineId, now: SimTime, request: &Join) -> Handled {
        let name = host_name(&request.name)?;
        let token = super::tokens::Secret::read(&request.token);
        let kind = match &token {
            Ok(secret) if secret.kind() == TokenKind::Worker => EntryKind::Worker,
            _ => EntryKind::ControlPlane,
        };
        let Some(found) = self.machines.get_mut(&machine) else { return Ok(Reply::Hangup) };
        let minor = found.minor();
        check_config(&request.config, kind, minor)?;
        let asked_failure = found.next_failures.join.take();
        let (cluster, cause) = match token.and_then(|secret| self.find_token(&secret, &name, now)) {
            Ok(cluster) => (Some(cluster), asked_failure),
            Err(cause) => (None, Some(asked_failure.unwrap_or(cause))),
        };
        let (end, takes) = match (cause, kind) {
            (None, EntryKind::Worker) => (EntryEnd::Well, delays::WORKER_JOIN),
            (None, _) => (EntryEnd::Well, delays::JOIN),
            (Some(_), _) if request.token.is_empty() => (EntryEnd::Hangup, delays::EMPTY_TOKEN),
            (Some(cause), EntryKind::Worker) => {
                let text = "failed to join k8sd cluster as worker: Failed to run post-bootstrap actions";
                (EntryEnd::Fails(500, format!("{text}: {cause}")), delays::JOIN_FAILS)
            }
            (Some(_), _) if minor >= 36 => (EntryEnd::Hangup, delays::JOIN_FAILS),
            (Some(cause), _) => {
                let text = format!("failed to join k8sd cluster as control plane: {cause}");
                (EntryEnd::Fails(500, text), delays::JOIN_FAILS)
            }
        };
        let (address, deadline) = (&request.address, deadline(now, request.timeout));
        self.arrive(machine, now, Arrival { cluster, kind, name, address, end, takes, deadline })
    }

    /// The machine is on its way into a cluster, or into failure; to a client it looks like a member already.
    fn arrive(&mut self, machine: MachineId, now: SimTime, arrival: Arrival<'_>) -> Handled {
        let Arrival { cluster, kind, name, address, end, takes, deadline } = arrival;
        let until = now + takes;
        let ticket = self.new_ticket(machine, until);
        let Some(found) = self.machines.get_mut(&machine) else { return Ok(Reply::Hangup) };
        found.name = name;
        address.clone_into(&mut found.address);
        if let Some(state) = cluster.and_then(|cluster| self.states.get_mut(&cluster))
            && kind != EntryKind::Worker
        {
            let certificate = state
                .pki
                .server(&found.name, found.api_address.ip())
                .map_err(|error| Failure::new(500, format!("failed to make certificates: {error}")))?;
            state.members.push(Member {
                name: found.name.clone(),
                machine,
                address: found.address.clone(),
                role: DatabaseRole::Pending,
                datastore: DatastoreMembership::None,
                certificate_pem: certificate.certificate_pem.clone(),
            });
            found.certificate = Some(certificate);
        }
        let well = end == EntryEnd::Well;
        let entry = Entry { ticket, kind, stage: EntryStage::Begun, end, deadline };
        found.membership = Membership::Entering(cluster, entry);
        self.agenda.add_for(machine, until, if well { MachineEvent::EntryEnds } else { MachineEvent::EntryFails });
        if well {
            self.schedule_entry(machine, now, kind);
        }
        Ok(Reply::Wait { until, ticket })
    }

    fn schedule_entry(&mut self, machine: MachineId, now: SimTime, kind: EntryKind) {
        let (files, role, api_server) = match kind {
            EntryKind::Bootstrap => (delays::BOOTSTRAP_FILES, delays::BOOTSTRAP_ROLE, delays::BOOTSTRAP_API_SERVER),
            EntryKind::ControlPlane => (delays::JOIN_FILES, delays::JOIN_ROLE, delays::JOIN_API_SERVER),
            EntryKind::Worker => return,
        };
        self.agenda.add_for(machine, now + files, MachineEvent::EntryFiles);
        self.agenda.add_for(machine, now + role, MachineEvent::EntryRole);
        self.agenda.add_for(machine, now + api_server, MachineEvent::ApiServerListens);
        self.agenda.add_for(machine, now + api_server + delays::ENTRY_KUBELET, MachineEvent::KubeletPosts);
    }

    pub(super) fn entry_files(&mut self, machine: MachineId) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        let server = found.api_address.to_string();
        let Membership::Entering(Some(cluster), entry) = &mut found.membership else { return };
        entry.stage = EntryStage::FilesWritten;
        found.datastore = Running::Up;
        let Some(state) = self.states.get(cluster) else { return };
        let written = found.write_admin_conf(&state.pki.kubeconfig(&server)).and(found.write_state_files());
        self.note_trouble(machine, written);
    }

    pub(super) fn entry_role(&mut self, machine: MachineId) {
        let Some(cluster) = self.cluster_of(machine) else { return };
        let Some(state) = self.states.get_mut(&cluster) else { return };
        if let Some(member) = state.member_of(machine) {
            member.role = DatabaseRole::Spare;
        }
        state.balance_roles();
    }

    /// The work is done; now, at the very end, k8sd looks whether this version may join at all.
    pub(super) fn entry_ends(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get(&machine) else { return };
        let Membership::Entering(Some(cluster), entry) = found.membership.clone() else { return };
        if !self.reaches_api_server(found) {
            self.entry_waits(machine, at, &entry);
            return;
        }
        if entry.kind == EntryKind::ControlPlane
            && let Some((text, after)) = self.refuses(cluster, machine, at)
        {
            let text =
                format!("failed to join k8sd cluster as control plane: failed to handle rollout-upgrade: {text}");
            self.annotate(machine, at);
            self.entry_will_fail(machine, at + after, &entry, EntryEnd::Fails(500, text));
            return;
        }
        self.entered(machine, at, cluster, &entry);
    }

    /// No API server answers yet: k8sd looks again, until its caller's patience ends.
    fn entry_waits(&mut self, machine: MachineId, at: SimTime, entry: &Entry) {
        let next = at + delays::API_SERVER_AGAIN;
        if next <= entry.deadline {
            self.extend_ticket(entry.ticket, next);
            self.agenda.add_for(machine, next, MachineEvent::EntryEnds);
            return;
        }
        let role = if entry.kind == EntryKind::Worker { "worker" } else { "control plane" };
        let late = "kube-apiserver did not become ready in time: kubernetes endpoints not ready yet: context deadline exceeded";
        let text = format!("failed to join k8sd cluster as {role}: {late}");
        self.entry_will_fail(machine, at, entry, EntryEnd::Fails(500, text));
    }

    fn entry_will_fail(&mut self, machine: MachineId, at: SimTime, entry: &Entry, end: EntryEnd) {
        self.extend_ticket(entry.ticket, at);
        self.agenda.add_for(machine, at, MachineEvent::EntryFails);
        self.change(machine, |machine| {
            if let Membership::Entering(_, entry) = &mut machine.membership {
                entry.end = end;
            }
        });
    }

    fn entered(&mut self, machine: MachineId, at: SimTime, cluster: ClusterId, entry: &Entry) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        let Some(state) = self.states.get_mut(&cluster) else { return };
        state.tokens.retain(|token| token.name != found.name);
        let mut written = Ok(());
        let reply = match entry.kind {
            EntryKind::Bootstrap => {
                state.formed = Some(at);
                success(Entered { name: &found.name, address: &found.address })
            }
            EntryKind::ControlPlane => success(Nothing {}),
            EntryKind::Worker => {
                written = found.write_state_files().and(found.write_worker_mark());
                success(Nothing {})
            }
        };
        match entry.kind {
            EntryKind::Worker => {
                found.membership = Membership::Worker(cluster);
                self.agenda.add_for(machine, at, MachineEvent::KubeletPosts);
            }
            EntryKind::Bootstrap | EntryKind::ControlPlane => {
                found.membership = Membership::ControlPlane(cluster);
                if let Some(member) = state.member_of(machine) {
                    member.datastore = DatastoreMembership::Voting;
                }
            }
        }
        self.note_trouble(machine, written);
        self.end_ticket(entry.ticket, Reply::Now(reply));
        self.agenda.add_for(machine, at + delays::API_SERVER_READY, MachineEvent::PostRefreshStep);
    }

    /// The answer first; a moment later the daemon that gave it ends.
    pub(super) fn entry_fails(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get(&machine) else { return };
        let Membership::Entering(_, entry) = &found.membership else { return };
        let reply = match &entry.end {
            EntryEnd::Fails(status, text) => Reply::Now(Failure::new(*status, text).response(found.error_end())),
            EntryEnd::Well | EntryEnd::Hangup => Reply::Hangup,
        };
        let ticket = entry.ticket;
        self.end_ticket(ticket, reply);
        self.agenda.add_for(machine, at + delays::UNDOING, MachineEvent::EntryUndone);
    }

    pub(super) fn undo_entry(&mut self, machine: MachineId, at: SimTime) {
        let cluster = self.cluster_of(machine);
        self.withdraw_entry(machine);
        self.reset(machine, at);
        if let Some(cluster) = cluster {
            self.look_at_upgrades(cluster, at);
        }
    }

    /// k8sd ends in the middle of a bootstrap or join.
    pub(super) fn abandon_entry(&mut self, machine: MachineId, now: SimTime) {
        if !self.machines.get(&machine).is_some_and(|machine| matches!(machine.membership, Membership::Entering(..))) {
            return;
        }
        self.withdraw_entry(machine);
        self.agenda.void(machine, Process::Entry);
        self.agenda.void(machine, Process::Services);
        let Some(found) = self.machines.get_mut(&machine) else { return };
        found.stop_services();
        forget_cluster(found);
        let removed = found.remove_cluster_files();
        self.note_trouble(machine, removed);
        self.note_quorum(now);
    }

    /// Takes out of the cluster what a bootstrap or join has put there.
    fn withdraw_entry(&mut self, machine: MachineId) {
        let Some(found) = self.machines.get(&machine) else { return };
        let Membership::Entering(Some(cluster), entry) = &found.membership else { return };
        let cluster = *cluster;
        if entry.kind == EntryKind::Bootstrap {
            self.states.remove(&cluster);
            self.agenda.void_cluster(cluster);
        } else if let Some(state) = self.states.get_mut(&cluster) {
            state.members.retain(|member| member.machine != machine);
            state.nodes.retain(|_, node| node.machine != machine);
            state.balance_roles();
        }
    }
}

/// A bootstrap's answer.
#[derive(serde::Serialize)]
struct Entered<'a> {
    name: &'a str,
    address: &'a str,
}

/// What a bootstrap finds out in its course.
fn bootstrap_fails(
    config: &ClusterConfig,
    datastore: &str,
    minor: u64,
    now: SimTime,
    deadline: SimTime,
) -> Option<String> {
    if let Err(text) = config.clone().with_defaults(minor).validate() {
        return Some(format!("invalid cluster configuration: {text}"));
    }
    let late =
        "kube-apiserver did not become ready in time: kubernetes endpoints not ready yet: context deadline exceeded";
    unknown_datastore(datastore, minor).or_else(|| (deadline < now + delays::BOOTSTRAP).then(|| late.to_owned()))
}

fn unknown_datastore(datastore: &str, minor: u64) -> Option<String> {
    let known = match datastore {
        "external" => true,
        "etcd" => minor >= 32,
        "k8s-dqlite" => minor <= 35,
        _ => false,
    };
    (!known).then(|| {
        format!("invalid bootstrap config: unknown datastore type specified in bootstrap config \"{datastore}\"")
    })
}

fn check_config(config: &str, kind: EntryKind, minor: u64) -> Result<(), Failure> {
    let (join_as, prefix) = match kind {
        EntryKind::Worker => (
            JoinAs::Worker,
            "worker: Failed to run pre-init hook before starting the API: failed to get worker join config",
        ),
        _ => (
            JoinAs::ControlPlane,
            "control plane: Failed to run pre-init hook before starting the API: failed to get control plane join \
             config, boostrap false: failed to unmarshal control plane join config",
        ),
    };
    check_join_config(config, join_as, minor)
        .map_err(|text| Failure::new(500, format!("failed to join k8sd cluster as {prefix}: {text}")))
}
