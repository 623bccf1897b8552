//! What hook tools answer, as values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use crate::names::UnitName;

/// What Juju is bringing about (`goal-state`): every unit of this application that exists, and every relation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GoalState {
    /// This application's units, dying ones too.
    pub units: BTreeMap<UnitName, GoalUnit>,
    /// Related applications and their units by endpoint; peers are not among them.
    pub relations: BTreeMap<String, BTreeMap<String, GoalUnit>>,
}

impl GoalState {
    /// The units on an endpoint's other side.
    pub fn related_units(&self, endpoint: &str) -> Vec<UnitName> {
        let related = self.relations.get(endpoint).into_iter().flatten();
        related.filter_map(|(name, _)| name.parse().ok()).collect()
    }
}

/// A unit or an application in `goal-state`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GoalUnit {
    /// Its workload status, or `dying`.
    #[serde(default)]
    pub status: String,
}

impl GoalUnit {
    /// Whether it is being removed.
    pub fn is_dying(&self) -> bool {
        self.status == "dying"
    }
}

/// `goal-state` as it is written; a name that is no unit's is left out.
#[derive(Deserialize)]
pub(super) struct RawGoalState {
    /// Never absent: without it every unit would read as gone.
    units: BTreeMap<String, GoalUnit>,
    #[serde(default)]
    relations: BTreeMap<String, BTreeMap<String, GoalUnit>>,
}

impl From<RawGoalState> for GoalState {
    fn from(raw: RawGoalState) -> Self {
        let units = raw.units.into_iter().filter_map(|(name, unit)| Some((name.parse().ok()?, unit))).collect();
        Self { units, relations: raw.relations }
    }
}

/// A workload's status (`status-get`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// `active`, `waiting`, `unknown`, ….
    pub status: String,
    /// Its text.
    #[serde(default)]
    pub message: String,
}

/// A binding's addresses (`network-get`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Network {
    /// The addresses that others reach this unit by; host names are possible, and left out by
    /// [`node_addresses`](Self::node_addresses).
    pub ingress_addresses: Vec<String>,
}

impl Network {
    /// The first IPv4 and the first IPv6 address, in this order: what a node of Kubernetes is known by.
    pub fn node_addresses(&self) -> Vec<IpAddr> {
        let addresses: Vec<IpAddr> = self.ingress_addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let first = |v4: bool| addresses.iter().find(|address| address.is_ipv4() == v4).copied();
        first(true).into_iter().chain(first(false)).collect()
    }
}
