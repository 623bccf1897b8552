//! The Canonical Kubernetes control plane as a Juju machine charm.
//!
//! Where to look: an event in [`handlers`], a rule of the upgrade in [`upgrade`], a wire format in its port
//! ([`juju`], [`snap`], [`k8sd`], [`kube`], [`machine`]). See ARCHITECTURE.md.

pub mod charm;
pub mod cli;
pub mod cluster;
pub mod collect;
pub mod databags;
pub mod dispatch;
pub mod entry;
pub mod error_text;
pub mod handlers;
pub mod juju;
pub mod k8sd;
pub mod kube;
pub mod lead;
pub mod lease;
pub mod machine;
pub mod names;
pub mod observe;
pub mod own_snap;
pub mod reconcile;
pub mod rfc3339;
pub mod secret;
pub mod settings;
pub mod snap;
pub mod status;
pub mod unix_http;
pub mod upgrade;
