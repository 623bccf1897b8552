//! Changes: their tasks in snapd's order, how long each takes, and what it does to the snap.

use semver::Version;

use super::{Installed, Snapd};
use crate::time::SimTime;
use crate::wire::{InstalledSnap, SnapEvent};

/// What a task does when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Nothing,
    StopServices,
    Link,
    PostRefresh,
    StartServices,
    Remove,
}

/// How far a task is, in snapd's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Do,
    Doing,
    Done,
    Error,
    Undone,
    Hold,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Do => "Do",
            Self::Doing => "Doing",
            Self::Done => "Done",
            Self::Error => "Error",
            Self::Undone => "Undone",
            Self::Hold => "Hold",
        }
    }
}

/// A task of a change.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) id: u32,
    pub(super) kind: &'static str,
    pub(super) summary: String,
    pub(super) status: Status,
    pub(super) began: SimTime,
    pub(super) ended: Option<SimTime>,
    pub(super) log: Vec<(SimTime, String)>,
    milliseconds: u64,
    effect: Effect,
}

/// How long the undoing of one task takes.
const UNDO: u64 = 150;

/// How many bytes a snap has.
pub(super) const SIZE: u64 = 300 * 1024 * 1024;

/// What a change makes of the snap.
#[derive(Debug, Clone)]
pub(super) enum Goal {
    /// This revision, out of that channel.
    Revision { revision: u32, version: Version, channel: Option<String> },
    /// No snap.
    Removed,
    /// What it is.
    Same,
}

/// A change.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) id: String,
    pub(super) kind: &'static str,
    pub(super) summary: String,
    pub(super) tasks: Vec<Task>,
    pub(super) spawned: SimTime,
    pub(super) ready: Option<SimTime>,
    pub(super) failed: bool,
    goal: Goal,
    before: Option<Installed>,
    current: usize,
    until: SimTime,
}

impl Change {
    /// When its task at work ends.
    pub(super) fn next(&self) -> Option<SimTime> {
        self.ready.is_none().then_some(self.until)
    }

    /// The version that it brings.
    pub(super) fn brings(&self) -> Option<Version> {
        match &self.goal {
            Goal::Revision { version, .. } => Some(version.clone()),
            Goal::Removed | Goal::Same => None,
        }
    }

    /// Whether it changes the snap's revision.
    pub(super) fn alters(&self) -> bool {
        !matches!(self.goal, Goal::Same)
    }

    pub(super) fn status(&self) -> &'static str {
        match (self.ready, self.failed) {
            (Some(_), true) => "Error",
            (Some(_), false) => "Done",
            (None, true) => "Undoing",
            (None, false) => "Doing",
        }
    }

    pub(super) fn err(&self) -> Option<String> {
        let failed = self.tasks.iter().find(|task| task.status == Status::Error)?;
        let line = failed.log.last().map(|(_, line)| line.as_str()).unwrap_or_default();
        Some(format!("cannot perform the following tasks:\n- {} ({line})", failed.summary))
    }
}

impl Task {
    /// How much of it is done, and of how much; bytes of a download.
    pub(super) fn progress(&self, now: SimTime) -> (u64, u64) {
        if self.kind != "download-snap" || self.status == Status::Do {
            return (u64::from(self.status != Status::Do), 1);
        }
        if self.status != Status::Doing {
            return (SIZE, SIZE);
        }
        let elapsed = now.0.saturating_sub(self.began.0).min(self.milliseconds);
        match SIZE * elapsed / self.milliseconds.max(1) {
            0 => (1, 1),
            done => (done, SIZE),
        }
    }
}

/// A row of a change's plan.
type Row = (&'static str, &'static str, u64, Effect);

/// `%r` stands for the revision, `%c` for the channel's words.
const REFRESH: [Row; 20] = [
    ("prerequisites", "Ensure prerequisites for \"k8s\" are available", 200, Effect::Nothing),
    ("download-snap", "Download snap \"k8s\" (%r) from channel \"%c\"", 8_000, Effect::Nothing),
    ("validate-snap", "Fetch and check assertions for snap \"k8s\" (%r)", 300, Effect::Nothing),
    ("mount-snap", "Mount snap \"k8s\" (%r)", 1_000, Effect::Nothing),
    ("run-hook", "Run pre-refresh hook of \"k8s\" snap if present", 500, Effect::Nothing),
    ("stop-snap-services", "Stop snap \"k8s\" services", 2_000, Effect::StopServices),
    ("remove-aliases", "Remove aliases for snap \"k8s\"", 50, Effect::Nothing),
    ("unlink-current-snap", "Make current revision for snap \"k8s\" unavailable", 100, Effect::Nothing),
    ("copy-snap-data", "Copy snap \"k8s\" data", 1_000, Effect::Nothing),
    ("setup-profiles", "Setup snap \"k8s\" (%r) security profiles", 1_500, Effect::Nothing),
    ("link-snap", "Make snap \"k8s\" (%r) available to the system", 500, Effect::Link),
    ("auto-connect", "Automatically connect eligible plugs and slots of snap \"k8s\"", 100, Effect::Nothing),
    ("set-auto-aliases", "Set automatic aliases for snap \"k8s\"", 50, Effect::Nothing),
    ("setup-aliases", "Setup snap \"k8s\" aliases", 50, Effect::Nothing),
    ("run-hook", "Run post-refresh hook of \"k8s\" snap if present", 500, Effect::PostRefresh),
    ("start-snap-services", "Start snap \"k8s\" (%r) services", 3_000, Effect::StartServices),
    ("cleanup", "Clean up \"k8s\" (%r) install", 100, Effect::Nothing),
    ("run-hook", "Run configure hook of \"k8s\" snap if present", 700, Effect::Nothing),
    ("run-hook", "Run health check of \"k8s\" snap", 200, Effect::Nothing),
    (
        "check-rerefresh",
        "Monitoring snap \"k8s\" to determine whether extra refresh steps are required",
        150,
        Effect::Nothing,
    ),
];

const INSTALL: [Row; 15] = [
    ("prerequisites", "Ensure prerequisites for \"k8s\" are available", 200, Effect::Nothing),
    ("download-snap", "Download snap \"k8s\" (%r) from channel \"%c\"", 10_000, Effect::Nothing),
    ("validate-snap", "Fetch and check assertions for snap \"k8s\" (%r)", 300, Effect::Nothing),
    ("mount-snap", "Mount snap \"k8s\" (%r)", 1_000, Effect::Nothing),
    ("copy-snap-data", "Copy snap \"k8s\" data", 100, Effect::Nothing),
    ("setup-profiles", "Setup snap \"k8s\" (%r) security profiles", 1_500, Effect::Nothing),
    ("link-snap", "Make snap \"k8s\" (%r) available to the system", 500, Effect::Link),
    ("auto-connect", "Automatically connect eligible plugs and slots of snap \"k8s\"", 100, Effect::Nothing),
    ("set-auto-aliases", "Set automatic aliases for snap \"k8s\"", 50, Effect::Nothing),
    ("setup-aliases", "Setup snap \"k8s\" aliases", 50, Effect::Nothing),
    ("run-hook", "Run install hook of \"k8s\" snap if present", 500, Effect::Nothing),
    ("run-hook", "Run default-configure hook of \"k8s\" snap if present", 100, Effect::Nothing),
    ("start-snap-services", "Start snap \"k8s\" (%r) services", 1_000, Effect::StartServices),
    ("run-hook", "Run configure hook of \"k8s\" snap if present", 500, Effect::Nothing),
    ("run-hook", "Run health check of \"k8s\" snap", 100, Effect::Nothing),
];

const REMOVE: [Row; 3] = [
    ("stop-snap-services", "Stop snap \"k8s\" services", 2_000, Effect::StopServices),
    ("unlink-snap", "Make snap \"k8s\" (%r) unavailable to the system", 100, Effect::Remove),
    ("discard-snap", "Remove snap \"k8s\" (%r) from the system", 500, Effect::Nothing),
];

impl Snapd {
    /// Begins to install the snap, or to refresh it.
    pub(super) fn begin(&mut self, now: SimTime, revision: u32, version: Version, channel: Option<String>) -> String {
        let from = channel.clone().unwrap_or_else(|| "latest/stable".to_owned());
        let (kind, rows, verb): (_, &[Row], _) = match self.installed {
            Some(_) => ("refresh-snap", &REFRESH, "Refresh"),
            None => ("install-snap", &INSTALL, "Install"),
        };
        let words = |text: &str| text.replace("%r", &revision.to_string()).replace("%c", &from);
        let summary = format!("{verb} \"k8s\" snap from \"{from}\" channel");
        let goal = Goal::Revision { revision, version, channel };
        self.start(now, kind, summary, rows, words, goal)
    }

    /// Begins to remove the snap.
    pub(super) fn begin_removal(&mut self, now: SimTime) -> String {
        let revision = self.installed.as_ref().map(|snap| snap.revision.to_string()).unwrap_or_default();
        let words = |text: &str| text.replace("%r", &revision);
        self.start(now, "remove-snap", "Remove \"k8s\" snap".to_owned(), &REMOVE, words, Goal::Removed)
    }

    /// A change that is over at once, and leaves the snap's revision alone.
    pub(super) fn begin_small(&mut self, now: SimTime, kind: &'static str, summary: String) -> String {
        let rows: [Row; 1] = [(kind, "", 50, Effect::Nothing)];
        let text = summary.clone();
        self.start(now, kind, summary, &rows, |_| text.clone(), Goal::Same)
    }

    fn start(
        &mut self,
        now: SimTime,
        kind: &'static str,
        summary: String,
        rows: &[Row],
        words: impl Fn(&str) -> String,
        goal: Goal,
    ) -> String {
        self.made += 1;
        let id = self.made.to_string();
        let mut tasks = Vec::new();
        for (number, (kind, summary, milliseconds, effect)) in (1..).zip(rows) {
            tasks.push(Task {
                id: self.made * 100 + number,
                kind,
                summary: words(summary),
                status: Status::Do,
                began: now,
                ended: None,
                log: Vec::new(),
                milliseconds: *milliseconds,
                effect: *effect,
            });
        }
        let mut change = Change {
            id: id.clone(),
            kind,
            summary,
            tasks,
            spawned: now,
            ready: None,
            failed: false,
            goal,
            before: self.installed.clone(),
            current: 0,
            until: now,
        };
        begin_task(&mut change, now);
        self.changes.push(change);
        id
    }

    /// The task at work of a change ends.
    pub(super) fn end_task(&mut self, index: usize, at: SimTime) -> Option<SnapEvent> {
        let change = self.changes.get_mut(index)?;
        if change.failed {
            return self.undo_task(index, at);
        }
        let task = change.tasks.get_mut(change.current)?;
        task.ended = Some(at);
        if let Some(failure) = self.failures.iter().position(|failure| task.summary.starts_with(failure.task)) {
            let failure = self.failures.remove(failure);
            task.status = Status::Error;
            task.log.push((at, failure.line));
            change.failed = true;
            for later in change.tasks.iter_mut().skip(change.current + 1) {
                later.status = Status::Hold;
                later.ended = Some(at);
            }
            change.until = SimTime(at.0 + UNDO);
            if change.current == 0 {
                change.ready = Some(at);
            }
            return None;
        }
        task.status = Status::Done;
        let effect = task.effect;
        change.current += 1;
        if change.current == change.tasks.len() {
            change.ready = Some(at);
        } else {
            begin_task(change, at);
        }
        let goal = change.goal.clone();
        self.take_effect(effect, &goal, at)
    }

    fn take_effect(&mut self, effect: Effect, goal: &Goal, at: SimTime) -> Option<SnapEvent> {
        match effect {
            Effect::Nothing => None,
            Effect::StopServices => {
                self.services_stopped = true;
                Some(SnapEvent::ServicesStopped)
            }
            Effect::Link => {
                let Goal::Revision { revision, version, channel } = goal else { return None };
                let before = self.installed.take();
                self.installed = Some(Installed {
                    revision: *revision,
                    version: version.clone(),
                    channel: channel.clone().or_else(|| before.as_ref().and_then(|snap| snap.channel.clone())),
                    held: before.is_some_and(|snap| snap.held),
                    since: at,
                });
                None
            }
            Effect::PostRefresh => self.installed().map(SnapEvent::PostRefresh),
            Effect::StartServices => {
                let first = !self.services_stopped;
                self.services_stopped = false;
                self.installed().map(if first { SnapEvent::Installed } else { SnapEvent::ServicesStarted })
            }
            Effect::Remove => {
                self.installed = None;
                self.services_stopped = false;
                Some(SnapEvent::Removed)
            }
        }
    }

    fn undo_task(&mut self, index: usize, at: SimTime) -> Option<SnapEvent> {
        let change = self.changes.get_mut(index)?;
        change.current = change.current.saturating_sub(1);
        change.until = SimTime(at.0 + UNDO);
        if change.current == 0 {
            change.ready = Some(at);
        }
        let task = change.tasks.get_mut(change.current)?;
        task.ended = Some(at);
        // snapd has nothing to undo of these, and leaves them done.
        if !matches!(task.kind, "prerequisites" | "validate-snap") {
            task.status = Status::Undone;
        }
        match task.effect {
            Effect::Link => {
                self.installed.clone_from(&change.before);
                None
            }
            Effect::StopServices => {
                self.services_stopped = false;
                let before: Option<InstalledSnap> = change.before.as_ref().map(Installed::snap);
                before.map(SnapEvent::ServicesStarted)
            }
            _ => None,
        }
    }
}

fn begin_task(change: &mut Change, now: SimTime) {
    if let Some(task) = change.tasks.get_mut(change.current) {
        task.status = Status::Doing;
        task.began = now;
        change.until = SimTime(now.0 + task.milliseconds);
    }
}
