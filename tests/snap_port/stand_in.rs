//! A Unix socket that answers as snapd was recorded to.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_charm::snap::{Hashes, Snapd};
use serde_json::Value;

use crate::unix_server::{Request, UnixServer};

/// A recorded answer: its status and its body.
pub(crate) fn recorded(version: &str, name: &str) -> (u64, Vec<u8>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/snapd/{version}/{name}.json"));
    let body = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let status = serde_json::from_slice::<Value>(&body).unwrap()["status-code"].as_u64().unwrap();
    (status, body)
}

/// A machine with such a socket.
pub(crate) struct StandIn(UnixServer);

impl StandIn {
    /// Answers these calls (`GET /v2/snaps/k8s`) with these recordings of a snapd.
    pub(crate) fn new(version: &str, answers: &[(&str, &str)]) -> Self {
        answers.iter().fold(Self::start(), |machine, (call, name)| machine.with(call, version, name))
    }

    /// Says this to every call; nothing: hangs up.
    pub(crate) fn saying(answer: &str) -> Self {
        let machine = Self::start();
        machine.0.always_says(answer);
        machine
    }

    /// Answers this call too.
    pub(crate) fn with(self, call: &str, version: &str, name: &str) -> Self {
        let (status, body) = recorded(version, name);
        self.0.answers(call, status, &body);
        self
    }

    fn start() -> Self {
        Self(UnixServer::at("/run/snapd.socket"))
    }

    pub(crate) fn snapd(&self) -> Snapd {
        Snapd::new(self.0.root())
    }

    pub(crate) fn path(&self, absolute: &str) -> PathBuf {
        self.0.root().path(absolute)
    }

    pub(crate) fn hashes(&self) -> Hashes {
        Hashes::new(self.path("/var/lib/juju/agents/unit-k8s-0/sha256.json"))
    }

    /// The calls so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.asked()
    }

    pub(crate) fn last(&self) -> Request {
        self.0.last()
    }
}
