//! The simulated Kubernetes clusters of a rehearsal: k8sd, datastore member, API server and kubelet of every machine.
//!
//! Everything that changes by itself is an event in an agenda; [`Cluster::advance`] lets the events up to a moment happen,
//! in order. What a client sees over time follows recordings of real programs (`delays`), and so do texts and bodies.
//! Nothing keeps two machines from making a cluster each: that's for a test to find, with [`Cluster::clusters`].

mod agenda;
mod answers;
mod config;
mod delays;
mod entry;
mod events;
mod faults;
mod k8sd;
mod kubernetes;
mod lifecycle;
mod node;
mod objects;
mod pki;
mod quorum;
mod removal;
mod requests;
mod schema;
mod state;
#[cfg(test)]
mod tests;
mod tokens;
mod upgrades;
mod views;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

pub use self::config::Feature;
pub use self::faults::NodeFault;
pub use self::pki::TlsMaterial;
pub use self::state::NodeReady;
pub use self::views::{ClusterView, MemberView, UpgradeView};

use self::agenda::Agenda;
use self::node::{ApiServer, Daemon, Machine};
use self::state::ClusterState;
use crate::time::SimTime;
use crate::wire::{MachineId, Reply, Request, Service};

/// A cluster of the rehearsal, in the order of their bootstraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub u32);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster-{}", self.0)
    }
}

/// A caller who is kept waiting.
struct Ticket {
    machine: MachineId,
    until: SimTime,
    /// Absent until the work is done.
    reply: Option<Reply>,
}

/// All machines' k8sds, and the clusters that they make.
pub struct Cluster {
    machines: BTreeMap<MachineId, Machine>,
    states: BTreeMap<ClusterId, ClusterState>,
    states_made: u32,
    agenda: Agenda,
    tickets: BTreeMap<u64, Ticket>,
    tickets_made: u64,
    random: ChaCha8Rng,
    now: SimTime,
    troubles: Vec<String>,
}

impl Cluster {
    /// No machine, no cluster. The same seed gives the same names and tokens (not the same keys: those are real).
    pub fn new(seed: u64) -> Self {
        Self {
            machines: BTreeMap::new(),
            states: BTreeMap::new(),
            states_made: 0,
            agenda: Agenda::default(),
            tickets: BTreeMap::new(),
            tickets_made: 0,
            random: ChaCha8Rng::seed_from_u64(seed),
            now: SimTime::default(),
            troubles: Vec::new(),
        }
    }

    /// A new machine without the snap. Its files are under `root`; `address` is where its API server will listen.
    pub fn add_machine(&mut self, id: MachineId, root: &Path, hostname: &str, address: SocketAddr) {
        self.machines.insert(id, Machine::new(id, root, hostname, address));
    }

    /// The machine is gone. Its cluster isn't told: member and Node stay.
    pub fn remove_machine(&mut self, id: MachineId) {
        self.snap_removed(id, self.now);
        self.machines.remove(&id);
        self.note_quorum(self.now);
    }

    /// A request to a machine's k8sd or API server.
    ///
    /// A closed socket hangs up; so does a call for snapd, which isn't here.
    pub fn handle(&mut self, machine: MachineId, service: Service, now: SimTime, request: &Request) -> Reply {
        self.advance(now);
        if !self.is_open(machine, service) {
            return Reply::Hangup;
        }
        match service {
            Service::K8sd => self.k8sd(machine, now, request),
            Service::Kubernetes => self.kubernetes(machine, now, request),
            Service::Snapd => Reply::Hangup,
        }
    }

    /// Continues a [`Reply::Wait`]. A wait that nobody continues ends all the same.
    pub fn resume(&mut self, ticket: u64, now: SimTime) -> Reply {
        self.advance(now);
        let Some(waiting) = self.tickets.get(&ticket) else { return Reply::Hangup };
        if waiting.reply.is_none() {
            let soonest = SimTime(now.0.saturating_add(100));
            return Reply::Wait { until: waiting.until.max(soonest), ticket };
        }
        self.tickets.remove(&ticket).and_then(|done| done.reply).unwrap_or(Reply::Hangup)
    }

    /// Lets everything happen that happens by itself up to `now`.
    pub fn advance(&mut self, now: SimTime) {
        while let Some((at, event)) = self.agenda.take_due(now) {
            self.now = self.now.max(at);
            self.happen(at, event);
            self.note_quorum(at);
        }
        self.now = self.now.max(now);
    }

    /// When something changes by itself next.
    pub fn next_event(&self) -> Option<SimTime> {
        self.agenda.first()
    }

    /// Whether the socket was there, or the port open, at the time of the last [`advance`](Self::advance).
    pub fn is_open(&self, machine: MachineId, service: Service) -> bool {
        let Some(machine) = self.machines.get(&machine) else { return false };
        match service {
            Service::K8sd => machine.daemon != Daemon::Stopped,
            Service::Kubernetes => machine.api_server != ApiServer::Down,
            Service::Snapd => false,
        }
    }

    /// What a machine's API server needs to speak TLS; absent while it has no certificate.
    pub fn tls(&self, machine: MachineId) -> Option<TlsMaterial> {
        let machine = self.machines.get(&machine)?;
        let state = self.states.get(&machine.cluster()?)?;
        Some(state.pki.tls(machine.certificate.as_ref()?, machine.api_address))
    }

    /// Files that could not be written, since this was asked last: trouble of the rehearsal, not in it.
    pub fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    fn note_trouble(&mut self, machine: MachineId, result: io::Result<()>) {
        if let Err(error) = result {
            self.troubles.push(format!("machine {machine}: {error}"));
        }
    }

    /// Keeps a caller waiting.
    fn new_ticket(&mut self, machine: MachineId, until: SimTime) -> u64 {
        self.tickets_made += 1;
        self.tickets.insert(self.tickets_made, Ticket { machine, until, reply: None });
        self.tickets_made
    }

    /// The work that a caller waits for is done.
    fn end_ticket(&mut self, ticket: u64, reply: Reply) {
        if let Some(ticket) = self.tickets.get_mut(&ticket) {
            ticket.reply = Some(reply);
        }
    }

    /// The work that a caller waits for takes longer.
    fn extend_ticket(&mut self, ticket: u64, until: SimTime) {
        if let Some(ticket) = self.tickets.get_mut(&ticket) {
            ticket.until = until;
        }
    }

    /// k8sd of this machine ends: who waits for it is cut off.
    fn cut_tickets(&mut self, machine: MachineId) {
        let waiting = self.tickets.values_mut().filter(|ticket| ticket.machine == machine && ticket.reply.is_none());
        waiting.for_each(|ticket| ticket.reply = Some(Reply::Hangup));
    }

    /// Random hexadecimal digits, two for a byte.
    fn hex(&mut self, bytes: usize) -> String {
        let mut random = vec![0; bytes];
        self.random.fill_bytes(&mut random);
        random.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"))
    }

    /// A random name of an object, in the form that Kubernetes uses.
    fn uid(&mut self) -> String {
        let digits = self.hex(16);
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        parts.map(|(from, to)| digits.get(from..to).unwrap_or_default()).join("-")
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("now", &self.now).field("clusters", &self.clusters()).finish_non_exhaustive()
    }
}
