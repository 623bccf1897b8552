//! What k8sd does after a refresh: its record of the upgrade, `upgrades.k8sd.io`, and the features that wait for it.

use std::time::Duration;

use semver::Version;

use super::agenda::{Event, MachineEvent};
use super::node::{Controllers, Membership};
use super::state::{Phase, Strategy, Upgrade, UpgradeResource, VERSION_ANNOTATION};
use super::{Cluster, ClusterId, delays};
use crate::time::SimTime;
use crate::wire::MachineId;

/// With this annotation in the configuration features don't wait for upgrades, nor do joins.
const SEPARATE_FEATURES_OFF: &str = "k8sd/v1alpha/lifecycle/disable-separate-feature-upgrades";

impl Cluster {
    /// k8sd's step after its start: waits for the API server, marks the upgrade if the lock file is there, removes it,
    /// starts its controllers. A step that fails isn't tried again before the next start.
    pub(super) fn post_refresh_step(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get_mut(&machine) else { return };
        if matches!(found.membership, Membership::None | Membership::Entering(..)) {
            return;
        }
        if let Some(_cause) = found.next_failures.post_refresh.take() {
            return;
        }
        let Some(found) = self.machines.get(&machine) else { return };
        if !self.reaches_api_server(found) {
            self.agenda.add_for(machine, at + delays::API_SERVER_AGAIN, MachineEvent::PostRefreshStep);
            return;
        }
        let control_plane = matches!(found.membership, Membership::ControlPlane(_));
        if found.minor() >= 32 {
            if control_plane {
                self.apply_upgrade_resource(machine);
            }
            if self.machines.get(&machine).is_some_and(super::node::Machine::has_lock_file)
                && self.finish_refresh(machine, at, control_plane).is_err()
            {
                return;
            }
        }
        self.change(machine, |machine| machine.controllers = Controllers::Running);
        self.annotate(machine, at);
        let Some(cluster) = self.cluster_of(machine) else { return };
        self.look_at_upgrades(cluster, at);
        if self.states.get(&cluster).is_some_and(|state| state.features.is_none()) {
            self.agenda.add(at + delays::FEATURES_REPORT, Event::FeaturesReported(cluster));
        }
    }

    fn apply_upgrade_resource(&mut self, machine: MachineId) {
        let Some(cluster) = self.cluster_of(machine) else { return };
        if let Some(state) = self.states.get_mut(&cluster) {
            state.upgrade_resource = UpgradeResource::Applied;
        }
    }

    fn finish_refresh(&mut self, machine: MachineId, at: SimTime, control_plane: bool) -> Result<(), AlreadyExists> {
        if control_plane {
            self.mark_upgrade(machine, at)?;
        }
        if let Some(found) = self.machines.get(&machine) {
            let removed = found.remove_lock_file();
            self.note_trouble(machine, removed);
        }
        Ok(())
    }

    /// Takes the upgrade in progress, whatever version it's for, or makes one; adds this node.
    fn mark_upgrade(&mut self, machine: MachineId, at: SimTime) -> Result<(), AlreadyExists> {
        let uid = self.uid();
        let Some(found) = self.machines.get(&machine) else { return Ok(()) };
        let (node, Some(own_name)) = (found.name.clone(), found.upgrade_name()) else { return Ok(()) };
        let Some(state) = found.cluster().and_then(|cluster| self.states.get_mut(&cluster)) else { return Ok(()) };
        let in_progress = state.upgrade_in_progress().map(|(name, _)| name.clone());
        let name = match in_progress {
            Some(name) => name,
            None if state.upgrades.contains_key(&own_name) => return Err(AlreadyExists),
            None => {
                let upgrade = new_upgrade(uid, at, Strategy::InPlace, state.next_version());
                state.upgrades.insert(own_name.clone(), upgrade);
                own_name
            }
        };
        state.change_upgrade(&name, |upgrade| {
            upgrade.phase = Phase::NodeUpgrade;
            upgrade.strategy = Strategy::InPlace;
            add_node(upgrade, node);
        });
        Ok(())
    }

    /// Writes this node's version into its Node; the controller then adds it to the upgrade of this very version.
    pub(super) fn annotate(&mut self, machine: MachineId, at: SimTime) {
        let Some(found) = self.machines.get(&machine) else { return };
        let (Some(annotation), Some(upgrade)) = (found.version_annotation(), found.upgrade_name()) else { return };
        let Some(cluster) = found.cluster() else { return };
        let name = found.name.clone();
        let Some(state) = self.states.get_mut(&cluster) else { return };
        let Some((_, node)) = state.node_of(machine) else { return };
        if node.annotations.get(VERSION_ANNOTATION) == Some(&annotation) {
            return;
        }
        state.change_node(machine, |node| {
            node.annotations.insert(VERSION_ANNOTATION.to_owned(), annotation);
        });
        if state.upgrades.get(&upgrade).is_some_and(|upgrade| upgrade.phase == Phase::NodeUpgrade) {
            state.change_upgrade(&upgrade, |upgrade| add_node(upgrade, name));
        }
        self.look_at_upgrades(cluster, at);
    }

    /// k8sd's upgrade controller, wherever it runs: an upgrade that every Node is in goes on to the features.
    pub(super) fn look_at_upgrades(&mut self, cluster: ClusterId, at: SimTime) {
        if !self.controllers_run(cluster) {
            return;
        }
        let Some(state) = self.states.get(&cluster) else { return };
        let complete = |upgrade: &&Upgrade| {
            upgrade.phase == Phase::NodeUpgrade && state.nodes.keys().all(|node| upgrade.upgraded_nodes.contains(node))
        };
        let names: Vec<String> =
            state.upgrades.iter().filter(|(_, upgrade)| complete(upgrade)).map(|(name, _)| name.clone()).collect();
        for name in names {
            self.agenda.add(at + delays::FEATURES_BEGIN, Event::FeatureUpgrade(cluster, name));
        }
    }

    fn controllers_run(&self, cluster: ClusterId) -> bool {
        self.has_quorum(cluster)
            && self.machines.values().any(|machine| {
                machine.membership == Membership::ControlPlane(cluster)
                    && machine.controllers == Controllers::Running
                    && machine.minor() >= 32
            })
    }

    pub(super) fn feature_upgrade_begins(&mut self, cluster: ClusterId, at: SimTime, name: &str) {
        let Some(state) = self.states.get_mut(&cluster) else { return };
        let Some(upgrade) = state.upgrades.get(name).filter(|upgrade| upgrade.phase == Phase::NodeUpgrade) else {
            return;
        };
        if state.nodes.keys().all(|node| upgrade.upgraded_nodes.contains(node)) {
            state.change_upgrade(name, |upgrade| upgrade.phase = Phase::FeatureUpgrade);
            self.agenda.add(at + delays::FEATURES_END, Event::FeaturesApplied(cluster, name.to_owned()));
        }
    }

    pub(super) fn upgrade_completes(&mut self, cluster: ClusterId, at: SimTime, name: &str) {
        let Some(state) = self.states.get_mut(&cluster) else { return };
        if state.upgrades.get(name).is_some_and(|upgrade| upgrade.phase == Phase::FeatureUpgrade) {
            state.change_upgrade(name, |upgrade| upgrade.phase = Phase::Completed);
            self.features_reported(cluster, at);
        }
    }

    /// The features are deployed as configured, unless they wait for an upgrade.
    pub(super) fn features_reported(&mut self, cluster: ClusterId, at: SimTime) {
        let minors = self.machines.values().filter(|machine| machine.membership == Membership::ControlPlane(cluster));
        let Some(minor) = minors.map(super::node::Machine::minor).max() else { return };
        let Some(state) = self.states.get_mut(&cluster) else { return };
        if state.upgrade_in_progress().is_none() || state.config.annotations.contains_key(SEPARATE_FEATURES_OFF) {
            state.features = Some((minor, at));
            if state.config.dns.enabled == Some(true) && state.config.dns.service_ip.is_none() {
                state.config.dns.service_ip = Some(super::config::DNS_ADDRESS.to_owned());
            }
        }
    }

    /// Why a control plane may not join, and how long it takes to say so (since 1.32). Another minor version may, and
    /// begins an upgrade of another strategy.
    pub(super) fn refuses(
        &mut self,
        cluster: ClusterId,
        machine: MachineId,
        at: SimTime,
    ) -> Option<(String, Duration)> {
        let uid = self.uid();
        let found = self.machines.get(&machine)?;
        let version = found.snap.as_ref().map(|snap| snap.version.clone()).filter(|version| version.minor >= 32)?;
        let (name, upgrade_name) = (found.name.clone(), found.upgrade_name()?);
        let state = self.states.get_mut(&cluster)?;
        if state.config.annotations.contains_key(SEPARATE_FEATURES_OFF) {
            return None;
        }
        if let Some((in_progress, upgrade)) = state.upgrade_in_progress() {
            if upgrade.strategy == Strategy::InPlace {
                let text = "can not join a new node while an in-place upgrade is in progress";
                return Some((text.to_owned(), delays::REFUSED_FOR_UPGRADE));
            }
            let in_progress = in_progress.clone();
            state.change_upgrade(&in_progress, |upgrade| add_node(upgrade, name));
            return None;
        }
        let others = state.nodes.iter().filter(|(other, _)| **other != name).map(|(_, node)| &node.kubelet_version);
        let others: Vec<Version> = others.filter_map(|version| version.parse().ok()).collect();
        let first = others.first()?.clone();
        if let Some(other) = others.iter().find(|other| **other != first) {
            let text = format!(
                "the cluster has nodes with different Kubernetes versions \"{first}\" and \"{other}\" - upgrade all nodes \
                 to the same version before joining a new one"
            );
            return Some((text, delays::REFUSED_FOR_VERSION));
        }
        if version == first {
            return None;
        }
        if version.minor == first.minor {
            let text = "the joining node has a different patch version than cluster nodes";
            return Some((text.to_owned(), delays::REFUSED_FOR_VERSION));
        }
        let strategy = if version > first { Strategy::RollingUpgrade } else { Strategy::RollingDowngrade };
        let mut upgrade = new_upgrade(uid, at, strategy, state.next_version());
        add_node(&mut upgrade, name);
        state.upgrades.insert(upgrade_name, upgrade);
        None
    }
}

/// An upgrade of that name is there already; nothing in k8sd catches that.
struct AlreadyExists;

fn new_upgrade(uid: String, created: SimTime, strategy: Strategy, resource_version: u64) -> Upgrade {
    Upgrade { uid, created, phase: Phase::NodeUpgrade, strategy, upgraded_nodes: Vec::new(), resource_version }
}

fn add_node(upgrade: &mut Upgrade, node: String) {
    if !upgrade.upgraded_nodes.contains(&node) {
        upgrade.upgraded_nodes.push(node);
    }
}
