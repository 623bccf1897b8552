//! The Canonical Kubernetes control plane as a Juju machine charm.
//!
//! Where to look: an event in [`handlers`], a rule of the upgrade in [`upgrade`], a wire format in its port
//! ([`juju`], [`snap`], [`k8sd`], [`kube`], [`machine`]). See ARCHITECTURE.md.

pub mod cluster;
pub mod databags;
pub mod error_text;
pub mod juju;
pub mod k8sd;
pub mod kube;
pub mod machine;
pub mod names;
pub mod rfc3339;
pub mod secret;
pub mod settings;
pub mod snap;
pub mod status;
pub mod unix_http;
pub mod upgrade;
