//! Rehearses deployments and upgrades of the charm: Juju, snapd, k8sd and the Kubernetes API, simulated around the
//! real charm binary, which is run by exec as Juju's agent runs it.

pub mod cli;
pub mod cluster;
pub mod layout;
pub mod report;
pub mod time;
pub mod wire;
