//! Rehearses deployments and upgrades of the charm: Juju, snapd, k8sd and the Kubernetes API, simulated around the
//! real charm binary, which is run by exec as Juju's agent runs it.

pub mod cli;
pub mod cluster;
pub mod engine;
pub mod fleet;
pub mod invariants;
pub mod juju;
pub mod layout;
pub mod process;
pub mod rehearsal;
pub mod report;
pub mod servers;
pub mod snapd;
pub mod systemd;
pub mod time;
pub mod tool_client;
pub mod wire;
