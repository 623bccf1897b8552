//! What stands in the databags of the peer relation `cluster`, as types.
//!
//! Keys are the Python charm's, but for `bootstrap` and `unjoined` (rule R13).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::{KubernetesVersion, UnitName};

/// The id of a Juju secret that holds a join token. Not itself secret.
pub type TokenId = String;

/// A unit's place, as its leader keeps it under the unit's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// `pending-NODE`: it may join under this name.
    Pending(String),
    /// `joined-NODE`.
    Joined(String),
}

impl Entry {
    /// The node's name.
    pub fn node(&self) -> &str {
        match self {
            Self::Pending(node) | Self::Joined(node) => node,
        }
    }
}

/// The application's bag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterApplicationBag {
    /// `bootstrap`: the unit that may bootstrap.
    pub bootstrap: Option<UnitName>,
    /// `UNIT`: who may join, and who has.
    pub entries: BTreeMap<UnitName, Entry>,
    /// `UNIT-secret-id`: the token that a unit joins with.
    pub tokens: BTreeMap<UnitName, TokenId>,
    /// `version`: the leader's, once every unit has published one.
    pub version: Option<KubernetesVersion>,
    /// `bootstrap-certificates`: written once.
    pub bootstrap_certificates: Option<String>,
}

impl ClusterApplicationBag {
    /// The units that have joined.
    pub fn joined(&self) -> impl Iterator<Item = &UnitName> {
        self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Joined(_))).map(|(unit, _)| unit)
    }

    /// Whether this unit has joined.
    pub fn has_joined(&self, unit: &UnitName) -> bool {
        matches!(self.entries.get(unit), Some(Entry::Joined(_)))
    }
}

/// A token that didn't work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenFailure {
    /// The `revision` that stood in the secret with it.
    pub revision: i64,
    /// Why, in one line.
    pub error: String,
}

/// A unit's bag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterUnitBag {
    /// `node-name`: asks for a place under this name.
    pub node_name: Option<String>,
    /// `joined`: the name of the cluster that it has joined.
    pub joined: Option<String>,
    /// `cluster-name`: the leader's word on it.
    pub cluster_name: Option<String>,
    /// `token-failure`.
    pub token_failure: Option<TokenFailure>,
    /// `version`: the installed Kubernetes version.
    pub version: Option<KubernetesVersion>,
    /// `unjoined`: the lost claimant that this unit has not joined.
    pub unjoined: Option<UnitName>,
    /// `UNIT-secret-id`: tokens that this unit made while the leader could not.
    pub tokens: BTreeMap<UnitName, TokenId>,
}
