//! The machines of a rehearsal: roots, snapds, systemds, and the clusters that they make.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{fs, io};

use crate::cluster::Cluster;
use crate::snapd::{ChangeView, Snapd, Store};
use crate::systemd::{Systemd, ToolAnswer};
use crate::time::SimTime;
use crate::wire::{InstalledSnap, MachineId, Reply, Request, Service};

/// Directories that a machine has.
const DIRECTORIES: [&str; 8] = [
    "run",
    "run/systemd/transient",
    "proc/sys/kernel",
    "etc",
    "var/lib/snapd/snaps",
    "var/lib/juju/agents",
    "var/lib/juju/tools",
    "var/snap/k8s/common/var/lib/k8sd/state",
];

/// So many fleets of one program have addresses of their own.
const FLEETS: u16 = 64;

static FLEETS_MADE: AtomicU16 = AtomicU16::new(0);

/// The API server's port.
const API_PORT: u16 = 6443;

/// One machine.
#[derive(Debug)]
pub struct Machine {
    /// What is `/` for it.
    pub root: PathBuf,
    /// Its host name.
    pub hostname: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its snapd; not asked where its socket is another's.
    pub snapd: Snapd,
    /// Whether its snapd is a real one, whose socket whoever rehearses puts in place.
    pub real_snapd: bool,
    /// Its systemd.
    pub systemd: Systemd,
}

/// What is seen of a machine from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineView {
    /// The change in progress of its snap.
    pub change: Option<ChangeView>,
    /// Its snap.
    pub installed: Option<InstalledSnap>,
    /// Since when its cluster has had no quorum, if it has none.
    pub quorum_lost_since: Option<SimTime>,
}

/// All machines.
#[derive(Debug)]
pub struct Fleet {
    /// The clusters that they make.
    pub cluster: Cluster,
    /// Them.
    pub machines: BTreeMap<MachineId, Machine>,
    store: Store,
    /// The middle of the machines' addresses, so that two rehearsals on one host don't meet.
    network: [u8; 2],
}

impl Fleet {
    /// No machines, and a store.
    pub fn new(seed: u64, store: Store) -> Self {
        let [.., high, low] = std::process::id().to_be_bytes();
        let own = u16::from_be_bytes([high, low]).wrapping_mul(FLEETS);
        let network = own.wrapping_add(FLEETS_MADE.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
        Self { cluster: Cluster::new(seed), machines: BTreeMap::new(), store, network }
    }

    /// A new machine with its directories under `root`.
    ///
    /// # Errors
    ///
    /// A directory can't be made.
    pub fn add_machine(&mut self, id: MachineId, root: &Path) -> io::Result<()> {
        for directory in DIRECTORIES {
            fs::create_dir_all(root.join(directory))?;
        }
        let hostname = format!("juju-k8s-{id}");
        fs::write(root.join("proc/sys/kernel/hostname"), format!("{hostname}\n"))?;
        let last = u8::try_from(id.0 % 250 + 1).unwrap_or(1);
        let address = Ipv4Addr::new(127, self.network[0], self.network[1], last);
        self.cluster.add_machine(id, root, &hostname, SocketAddr::from((address, API_PORT)));
        let machine = Machine {
            root: root.to_owned(),
            hostname,
            address,
            snapd: Snapd::new(self.store.clone()),
            real_snapd: false,
            systemd: Systemd::new(root),
        };
        self.machines.insert(id, machine);
        Ok(())
    }

    /// A machine is gone, with all that ran on it.
    pub fn remove_machine(&mut self, id: MachineId) {
        self.cluster.remove_machine(id);
        self.machines.remove(&id);
    }

    /// Lets everything happen up to `now`, in the order of its time; at one time snapd's part comes first.
    pub fn advance(&mut self, now: SimTime) {
        while let Some(at) = self.next_snapd_event().filter(|at| *at <= now) {
            self.cluster.advance(at);
            for (id, machine) in &mut self.machines {
                for (at, event) in machine.snapd.advance(at) {
                    self.cluster.snap_event(*id, at, event);
                }
            }
        }
        for (id, machine) in &mut self.machines {
            // Services are restarted by a request, not by time.
            for (at, event) in machine.snapd.advance(now) {
                self.cluster.snap_event(*id, at, event);
            }
        }
        self.cluster.advance(now);
    }

    fn next_snapd_event(&self) -> Option<SimTime> {
        self.machines.values().filter_map(|machine| machine.snapd.next_event()).min()
    }

    /// When something happens by itself next, timers too.
    pub fn next_event(&self) -> Option<SimTime> {
        let timers = self.machines.values().filter_map(|machine| machine.systemd.next_event());
        timers.chain(self.next_change()).min()
    }

    /// When a snapd or a cluster changes by itself next.
    pub fn next_change(&self) -> Option<SimTime> {
        self.next_snapd_event().into_iter().chain(self.cluster.next_event()).min()
    }

    /// A request to a machine's server.
    pub fn handle(&mut self, machine: MachineId, service: Service, now: SimTime, request: &Request) -> Reply {
        self.advance(now);
        if service != Service::Snapd {
            return self.cluster.handle(machine, service, now, request);
        }
        let member = self.cluster.cluster_of(machine).is_some();
        let Some(found) = self.machines.get_mut(&machine).filter(|found| found.snapd.is_open(now)) else {
            return Reply::Hangup;
        };
        let reply = found.snapd.handle(now, request, member);
        self.advance(now);
        reply
    }

    /// Runs a stand-in of systemd's on a machine.
    pub fn run_tool(&mut self, machine: MachineId, now: SimTime, tool: &str, arguments: &[String]) -> ToolAnswer {
        match self.machines.get_mut(&machine) {
            Some(machine) => machine.systemd.run(now, tool, arguments),
            None => ToolAnswer::failure(1, "no such machine\n"),
        }
    }

    /// Whether a server's socket is there, or its port open.
    pub fn is_open(&self, machine: MachineId, service: Service, now: SimTime) -> bool {
        match service {
            Service::Snapd => {
                self.machines.get(&machine).is_some_and(|machine| !machine.real_snapd && machine.snapd.is_open(now))
            }
            _ => self.cluster.is_open(machine, service),
        }
    }

    /// What is seen of a machine from outside.
    pub fn view(&self, machine: MachineId) -> Option<MachineView> {
        let found = self.machines.get(&machine)?;
        let cluster = self.cluster.cluster_of(machine);
        Some(MachineView {
            change: found.snapd.change(),
            installed: found.snapd.installed(),
            quorum_lost_since: cluster.and_then(|cluster| self.cluster.quorum_lost_since(cluster)),
        })
    }
}
