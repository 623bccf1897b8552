//! The model against recordings of real programs, and against the life of a cluster.

mod entry;
mod kubernetes;
mod life;
mod recorded;
mod removal;
mod restart;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::Cluster;
use crate::time::SimTime;
use crate::wire::{InstalledSnap, MachineId, Reply, Request, Service, SnapEvent};

/// Machines with a clock.
struct Rig {
    cluster: Cluster,
    now: SimTime,
    roots: tempfile::TempDir,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// Status and body.
    Answer(u16, String),
    /// The connection was closed without one.
    Hangup,
}

impl Outcome {
    fn status(&self) -> u16 {
        match self {
            Self::Answer(status, _) => *status,
            Self::Hangup => 0,
        }
    }

    fn body(&self) -> &str {
        match self {
            Self::Answer(_, body) => body,
            Self::Hangup => "",
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap()
    }

    /// The text of k8sd's error.
    fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }
}

fn snap(version: &str, revision: &str) -> InstalledSnap {
    InstalledSnap { version: version.parse().unwrap(), revision: revision.to_owned() }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const BOOTSTRAP: &str = r#"{"name":"k8s-0","address":"10.0.0.11:6400","config":{"cluster-config":{"network":{"enabled":false},
    "dns":{"enabled":false},"metrics-server":{"enabled":false},"cloud-provider":""},
    "control-plane-taints":["node-role.kubernetes.io/control-plane:NoSchedule"],"pod-cidr":"10.1.0.0/16",
    "service-cidr":"10.152.183.0/24","secure-port":6443,"datastore-type":"etcd","extra-sans":["10.0.0.11"],
    "extra-node-kube-apiserver-args":{"--v":"2","--audit-log-maxage":null}},"timeout":100000000000}"#;

impl Rig {
    /// Machines 0, 1, …, named `k8s-0`, …, without the snap.
    fn new(machines: u32) -> Self {
        let mut rig = Self { cluster: Cluster::new(7), now: SimTime(0), roots: tempfile::tempdir().unwrap() };
        for id in 0..machines {
            let address = SocketAddr::from(([127, 0, 8, u8::try_from(id).unwrap() + 1], 6443));
            let root = rig.root(id);
            rig.cluster.add_machine(MachineId(id), &root, &format!("k8s-{id}"), address);
        }
        rig
    }

    /// The same with the snap installed, and k8sd ready.
    fn installed(machines: u32, version: &str, revision: &str) -> Self {
        let mut rig = Self::new(machines);
        for id in 0..machines {
            rig.event(id, SnapEvent::Installed(snap(version, revision)));
        }
        rig.wait(seconds(2));
        rig
    }

    /// One cluster of all machines, quiet.
    fn cluster_of(machines: u32, version: &str, revision: &str) -> Self {
        let mut rig = Self::installed(machines, version, revision);
        let datastore = if version.starts_with("1.31") { "k8s-dqlite" } else { "etcd" };
        let bootstrap = BOOTSTRAP.replace("etcd", datastore);
        assert_eq!(rig.k8sd(0, "POST", "/1.0/k8sd/cluster", &bootstrap).status(), 200);
        for id in 1..machines {
            assert_eq!(rig.join(id).status(), 200);
        }
        rig.wait(seconds(10));
        rig
    }

    fn root(&self, id: u32) -> PathBuf {
        self.roots.path().join(id.to_string())
    }

    fn event(&mut self, id: u32, event: SnapEvent) {
        self.cluster.snap_event(MachineId(id), self.now, event);
    }

    fn wait(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.cluster.advance(self.now);
        assert_eq!(self.cluster.take_troubles(), Vec::<String>::new());
    }

    /// A call that may take its time, up to its answer.
    fn k8sd(&mut self, id: u32, method: &str, path: &str, body: &str) -> Outcome {
        let reply = self.ask(id, Service::K8sd, &request(method, path, body));
        self.follow(reply)
    }

    /// The first word of an answer; a wait is left to itself.
    fn ask(&mut self, id: u32, service: Service, request: &Request) -> Reply {
        self.cluster.handle(MachineId(id), service, self.now, request)
    }

    fn follow(&mut self, mut reply: Reply) -> Outcome {
        loop {
            match reply {
                Reply::Now(response) => {
                    return Outcome::Answer(response.status, String::from_utf8(response.body).unwrap());
                }
                Reply::Hangup => return Outcome::Hangup,
                Reply::Wait { until, ticket } => {
                    self.now = until;
                    reply = self.cluster.resume(ticket, until);
                }
            }
        }
    }

    fn node(&mut self, id: u32) -> Outcome {
        self.k8sd(id, "GET", "/1.0/k8sd/node", "")
    }

    fn token(&mut self, from: u32, body: &str) -> String {
        let answer = self.k8sd(from, "POST", "/1.0/k8sd/cluster/tokens", body);
        answer.json()["metadata"]["token"].as_str().unwrap().to_owned()
    }

    /// Joins a machine as control plane, with a token from machine 0.
    fn join(&mut self, id: u32) -> Outcome {
        let token = self.token(0, &format!(r#"{{"name":"k8s-{id}"}}"#));
        self.join_with(id, &token)
    }

    fn join_with(&mut self, id: u32, token: &str) -> Outcome {
        self.k8sd(id, "POST", "/1.0/k8sd/cluster/join", &join_body(id, token))
    }

    /// The admin's read from the API server of a machine.
    fn kubernetes(&mut self, id: u32, path: &str) -> Outcome {
        let mut request = request("GET", path, "");
        request.client_certificate = true;
        let reply = self.ask(id, Service::Kubernetes, &request);
        self.follow(reply)
    }

    /// What snapd does to a machine's snap in a refresh: down for a second, then started in the new revision.
    fn refresh(&mut self, id: u32, version: &str, revision: &str) {
        self.event(id, SnapEvent::ServicesStopped);
        self.wait(seconds(1));
        self.event(id, SnapEvent::PostRefresh(snap(version, revision)));
        self.event(id, SnapEvent::ServicesStarted(snap(version, revision)));
    }

    fn has_lock_file(&self, id: u32) -> bool {
        self.root(id).join("var/snap/k8s/common/lock/post-refresh").exists()
    }
}

fn request(method: &str, path: &str, body: &str) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        content_type: None,
        headers: Vec::new(),
        body: body.as_bytes().to_vec(),
        client_certificate: false,
    }
}

fn join_body(id: u32, token: &str) -> String {
    format!(
        r#"{{"name":"k8s-{id}","address":"10.0.0.{}:6400","token":"{token}","config":"extra-sans: []\n"}}"#,
        11 + id
    )
}

/// A recorded body, unchanged.
fn recording(path: &str) -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("recorded").join(path)).unwrap()
}

/// The keys of a JSON text, in their order.
fn keys(text: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find('"') {
        let string = rest.get(begin + 1..).unwrap_or_default();
        let mut escaped = false;
        let end = string.find(|character| {
            let ends = character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            ends
        });
        let (string, after) = string.split_at(end.unwrap_or(string.len()));
        rest = after.get(1..).unwrap_or_default();
        if rest.trim_start().starts_with(':') {
            keys.push(string.to_owned());
        }
    }
    keys
}
