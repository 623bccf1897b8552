//! A machine's snapd: the k8s snap, the store, and changes that run task by task in simulated time.
//!
//! Kinds of tasks, their order, texts and answers follow recordings of real snapds (2.57.6 and 2.68.3, with a store).

mod changes;
mod rest;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use semver::Version;

use self::changes::Change;
use crate::time::SimTime;
use crate::wire::{InstalledSnap, SnapEvent};

/// What the store has: which revision holds which version, and which is in which channel.
#[derive(Debug, Clone, Default)]
pub struct Store {
    /// Versions by revision.
    pub revisions: BTreeMap<u32, Version>,
    /// Revisions by channel, `1.32-classic/stable`.
    pub channels: BTreeMap<String, u32>,
}

/// The snap as it is installed.
#[derive(Debug, Clone)]
struct Installed {
    revision: u32,
    version: Version,
    channel: Option<String>,
    held: bool,
    since: SimTime,
}

impl Installed {
    fn snap(&self) -> InstalledSnap {
        InstalledSnap { version: self.version.clone(), revision: self.revision.to_string() }
    }
}

/// A change in progress, as a checker from outside sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeView {
    /// snapd's id of it.
    pub id: String,
    /// `install-snap`, `refresh-snap`, ….
    pub kind: &'static str,
    /// When it began.
    pub began: SimTime,
    /// The version that it brings, if it brings one.
    pub to: Option<Version>,
}

/// A task that is to fail.
#[derive(Debug, Clone)]
struct Failure {
    task: &'static str,
    line: String,
}

/// One machine's snapd.
#[derive(Debug, Default)]
pub struct Snapd {
    store: Store,
    installed: Option<Installed>,
    /// Whether the snap's services are stopped by a change.
    services_stopped: bool,
    changes: Vec<Change>,
    made: u32,
    failures: Vec<Failure>,
    down_until: Option<SimTime>,
    /// Services that were asked to be restarted.
    restarted: Vec<(SimTime, String)>,
}

impl Snapd {
    /// snapd of a new machine, with that store behind it.
    pub fn new(store: Store) -> Self {
        // A real one has seeded by then, in its first change.
        Self { store, made: 1, ..Self::default() }
    }

    /// Lets the next task whose summary begins so fail with that line in its log; snapd undoes the change.
    pub fn fail_next(&mut self, task: &'static str, line: &str) {
        self.failures.push(Failure { task, line: line.to_owned() });
    }

    /// snapd is away until then.
    pub fn restart(&mut self, until: SimTime) {
        self.down_until = Some(until);
    }

    /// Whether its socket is there.
    pub fn is_open(&self, now: SimTime) -> bool {
        self.down_until.is_none_or(|until| until <= now)
    }

    /// Version and revision of the installed snap.
    pub fn installed(&self) -> Option<InstalledSnap> {
        self.installed.as_ref().map(Installed::snap)
    }

    /// The change in progress that alters the snap.
    pub fn change(&self) -> Option<ChangeView> {
        let change = self.changes.iter().find(|change| change.ready.is_none() && change.alters())?;
        Some(ChangeView { id: change.id.clone(), kind: change.kind, began: change.spawned, to: change.brings() })
    }

    /// When something happens by itself next.
    pub fn next_event(&self) -> Option<SimTime> {
        let task = self.changes.iter().filter_map(Change::next).min();
        task.into_iter().chain(self.down_until).min()
    }

    /// Lets tasks end up to `now`; answers what happened to the snap, in order.
    pub fn advance(&mut self, now: SimTime) -> Vec<(SimTime, SnapEvent)> {
        let restarted = std::mem::take(&mut self.restarted).into_iter();
        let mut events: Vec<_> = restarted.map(|(at, service)| (at, SnapEvent::ServiceRestarted(service))).collect();
        if self.down_until.is_some_and(|until| until <= now) {
            self.down_until = None;
        }
        while let Some((at, index)) = self.due(now) {
            if let Some(event) = self.end_task(index, at) {
                events.push((at, event));
            }
        }
        events
    }

    fn due(&self, now: SimTime) -> Option<(SimTime, usize)> {
        let due = self.changes.iter().enumerate().filter_map(|(index, change)| Some((change.next()?, index)));
        due.filter(|(at, _)| *at <= now).min()
    }
}
