//! Secrets: an owner, one content, and units that it was granted to.

use std::collections::{BTreeMap, BTreeSet};

use super::{Model, UnitId};

/// A secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// `k8s` or `k8s/0`.
    pub owner: String,
    /// What is in it.
    pub content: BTreeMap<String, String>,
    /// The units that it was granted to.
    pub granted: BTreeSet<String>,
}

impl Model {
    /// Whether a unit may read a secret (S62): its owner, all units of an owning application, and whom it is granted to.
    pub(super) fn may_read(secret: &Secret, unit: &UnitId) -> bool {
        let name = unit.to_string();
        secret.owner == name || secret.owner == unit.application || secret.granted.contains(&name)
    }

    /// Whether a unit may change a secret.
    pub(super) fn may_manage(&self, secret: &Secret, unit: &UnitId) -> bool {
        secret.owner == unit.to_string() || (secret.owner == unit.application && self.leads(unit))
    }
}
