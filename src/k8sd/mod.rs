//! Port: k8sd, through its control socket.
//!
//! Sources: k8s-snap `src/k8s/pkg/k8sd/api/`, k8s-snap-api, microcluster `rest/`, and recordings of real ones.

mod client;
mod error;
mod wire;

pub use client::{K8sd, Readiness};
pub use error::{Database, K8sdError};
pub use wire::{ClusterStatus, Feature, Member, NodeStanding, NodeStatus};
