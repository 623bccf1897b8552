//! Port: snapd. Its client, what the charm's code pins, and one look at a refresh.
//!
//! [`client`] speaks snapd's REST API; [`manifest`] and [`resource`] say what is asked for, [`pin`] whether that is what
//! is installed; [`refresh`] is what the charm does with all of it.

pub mod client;
pub mod error;
pub mod hashes;
pub mod manifest;
pub mod pin;
pub mod refresh;
pub mod resource;
mod upload;
pub mod wire;

pub use client::{Ask, Snapd, Which};
pub use error::SnapdError;
pub use hashes::{Hashes, Sha256};
pub use manifest::{Architecture, ManifestError};
pub use pin::{Pin, PinError, Wanted};
pub use wire::{Change, ChangeId, Service, Snap, Task};

/// The snap that this charm runs.
pub const SNAP: &str = "k8s";
