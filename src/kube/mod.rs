//! Port: the Kubernetes API of this node's own API server.
//!
//! Over TLS with the cluster's own CA alone, with the credentials of the administrator's kubeconfig.

mod client;
mod config;
mod wire;

pub use client::{Kube, KubeError};
pub use config::KubeconfigError;
pub use wire::{Node, NodeReady, Pod, Upgrade};
