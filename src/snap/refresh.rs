//! One look at the snap, and the one step that may follow. Nothing here waits: a change is looked at once.

use super::SNAP;
use super::client::{Ask, Snapd, Which};
use super::error::{SnapdError, one_line};
use super::hashes::{Hashes, Sha256};
use super::pin::{Pin, Wanted, at_pin};
use super::wire::{Change, ChangeId, Snap, Task};
use crate::names::{KubernetesVersion, Revision, Timestamp};
use crate::upgrade::messages::Progress;
use crate::upgrade::unit::{FinishedChange, Installed, KnownSnap, SnapView};

/// Kinds of changes that leave the snap's revision alone (recorded, but for the snapshots': snapd
/// `overlord/snapshotstate`). A kind that isn't known counts as one that doesn't.
const HARMLESS: [&str; 7] = [
    "service-control",
    "configure-snap",
    "hold-snap",
    "unhold-snap",
    "save-snapshot",
    "check-snapshot",
    "forget-snapshot",
];

/// A hold that ends sooner than this, in seconds, isn't one for ever.
const YEAR: u64 = 365 * 24 * 3600;

/// What was seen of the snap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// What the upgrade's rules want to know of it.
    pub view: SnapView,
    /// The change in progress, whoever started it.
    pub change: Option<Change>,
    /// The snap as snapd has it, if it is installed.
    pub snap: Option<Snap>,
}

/// Looks at the snap once: its changes, then itself.
///
/// `finished`: whether the changes that are over are wanted too, and since when. Whatever fails makes the view unknown.
pub async fn look(snapd: &Snapd, wanted: &Wanted, hashes: &Hashes, finished: Option<Timestamp>) -> Look {
    match try_look(snapd, wanted, hashes, finished).await {
        Ok(look) => look,
        Err(error) => Look { view: SnapView::Unknown(error.to_string()), change: None, snap: None },
    }
}

async fn try_look(
    snapd: &Snapd,
    wanted: &Wanted,
    hashes: &Hashes,
    finished: Option<Timestamp>,
) -> Result<Look, SnapdError> {
    // In this order: a change that ends in between is then seen as still on, and the next hook sees its end. The other
    // way round the snap would be seen as before that change, and nothing at work on it.
    let which = if finished.is_some() { Which::All } else { Which::InProgress };
    let changes: Vec<Change> = snapd.changes(SNAP, which).await?.into_iter().filter(alters_the_snap).collect();
    let snap = snapd.snap(SNAP).await?;
    let content = snap.as_ref().map(|snap| content(&wanted.pin, snap, hashes)).transpose()?.flatten();
    let installed = snap.as_ref().map(|snap| (kubernetes_version(&snap.version), snap));
    if let Some((None, Snap { version, .. })) = installed {
        let view = SnapView::Unknown(format!("the snap's version `{version}` is none of Kubernetes"));
        return Ok(Look { view, change: None, snap });
    }
    let installed =
        installed.and_then(|(version, snap)| Some(Installed { version: version?, revision: snap.revision }));
    let at_pin = snap.as_ref().is_some_and(|snap| at_pin(&wanted.pin, snap, content.as_ref()));
    let finished = finished.map_or_else(Vec::new, |since| finished_since(&changes, since));
    let change = at_work(changes);
    let known = KnownSnap { installed, at_pin, change: change.as_ref().map(|change| change.id.0.clone()), finished };
    Ok(Look { view: SnapView::Known(known), change, snap })
}

/// The change that began first of those that are not over; snapd lists them in no order.
fn at_work(changes: Vec<Change>) -> Option<Change> {
    changes.into_iter().filter(|change| !change.ready).min_by_key(|change| change.spawn_time)
}

fn alters_the_snap(change: &Change) -> bool {
    !HARMLESS.contains(&change.kind.as_str())
}

fn finished_since(changes: &[Change], since: Timestamp) -> Vec<FinishedChange> {
    let mut finished: Vec<FinishedChange> = changes
        .iter()
        .filter(|change| change.ready)
        .filter_map(|change| Some(FinishedChange { ready: change.ready_time?, failure: failure(change) }))
        .filter(|change| change.ready >= since)
        .collect();
    finished.sort_by_key(|change| change.ready);
    finished
}

/// The hash of the file that the snap is mounted from, where the pin needs it.
///
/// That file is what was uploaded, byte for byte, so nothing has to be remembered about it.
fn content(pin: &Pin, snap: &Snap, hashes: &Hashes) -> Result<Option<Sha256>, SnapdError> {
    let (Pin::File { .. }, Some(blob)) = (pin, &snap.blob) else { return Ok(None) };
    hashes.of_file(blob).map(Some).map_err(|source| SnapdError::File { path: blob.clone(), source })
}

/// The Kubernetes version in a snap's version: `1.32.1`, `v1.32`, and `1.33.0` of `1.33-dev`.
fn kubernetes_version(text: &str) -> Option<KubernetesVersion> {
    if let Ok(version) = text.parse() {
        return Some(version);
    }
    let bare = text.strip_prefix('v').unwrap_or(text);
    let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
    bare.get(..end)?.parse().ok()
}

/// The Kubernetes version that the pin brings: of a channel, the store knows it; otherwise the charm's code declares it.
pub async fn brings(snapd: &Snapd, wanted: &Wanted) -> Result<Option<KubernetesVersion>, SnapdError> {
    let Pin::Channel { channel, .. } = &wanted.pin else { return Ok(Some(wanted.target.version.clone())) };
    Ok(snapd.available(SNAP, channel).await?.and_then(|version| kubernetes_version(&version)))
}

/// Begins to bring the snap to its pin.
pub async fn begin(snapd: &Snapd, wanted: &Wanted, installed: Option<&Snap>) -> Result<ChangeId, SnapdError> {
    // An installed snap that runs unconfined goes on so, whatever the manifest says.
    let classic = |wants: bool| wants || installed.is_some_and(Snap::is_classic);
    let amend = matches!(installed.map(|snap| snap.revision), Some(Revision::Local(_)));
    let ask = match &wanted.pin {
        Pin::File { file, classic: wants } => return snapd.install_file(&file.path, classic(*wants)).await,
        Pin::Revision { revision, channel, classic: wants } => {
            Ask { revision: Some(*revision), channel: channel.clone(), classic: classic(*wants), amend }
        }
        Pin::Channel { channel, classic: wants } => {
            Ask { revision: None, channel: Some(channel.clone()), classic: classic(*wants), amend }
        }
    };
    match installed {
        None => snapd.install(SNAP, &ask).await,
        Some(_) => snapd.refresh(SNAP, &ask).await,
    }
}

/// Whether the snap's refreshes are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// They were already.
    Already,
    /// They are now.
    Now,
    /// This snapd (before 2.58) can't hold one snap, and the whole machine isn't held for it.
    CannotHold,
}

/// Holds the snap's refreshes, unless they are held already: a revision changes when its unit has its turn, and never by
/// itself.
pub async fn hold(snapd: &Snapd, snap: &Snap, now: Timestamp) -> Result<Held, SnapdError> {
    if snap.hold.is_some_and(|until| until.seconds_since(now) > YEAR) {
        return Ok(Held::Already);
    }
    Ok(if snapd.hold(SNAP).await? { Held::Now } else { Held::CannotHold })
}

/// How far a change is: the task at work, and how much of a download is there.
pub fn progress(change: &Change) -> Progress {
    // `check-rerefresh` is at work beside all others.
    let at_work =
        |task: &&Task| matches!(task.status.as_str(), "Doing" | "Undoing" | "Abort") && task.kind != "check-rerefresh";
    let Some(task) = change.tasks.iter().find(at_work) else {
        return Progress { task: change.summary.clone(), percent: None };
    };
    if task.kind == "download-snap" {
        // `Download snap "k8s" (2002) from channel "1.32-classic/stable"` is too much for a status.
        let short = task.summary.split(" (").next().unwrap_or(&task.summary);
        return Progress { task: short.to_owned(), percent: percent(task) };
    }
    let undoing = if task.status == "Undoing" { "Undo: " } else { "" };
    Progress { task: format!("{undoing}{}", task.summary), percent: None }
}

/// In steps of 5; `None` before the first byte, when snapd says 1 of 1.
fn percent(task: &Task) -> Option<u8> {
    let (done, total) = (task.progress.done, task.progress.total);
    if total <= 1 {
        return None;
    }
    let hundredths = u128::from(done.min(total)) * 100 / u128::from(total);
    u8::try_from(hundredths / 5 * 5).ok()
}

/// Why a change that is over did no good: the failing task's own line; `None`: it did, or isn't over.
pub fn failure(change: &Change) -> Option<String> {
    if !change.ready || change.status == "Done" {
        return None;
    }
    let failed = change.tasks.iter().find(|task| task.status == "Error");
    let said = failed.and_then(|task| task.log.iter().rev().find_map(|line| line.split_once(" ERROR "))).map(|it| it.1);
    let cause = match (said, failed, &change.err) {
        (Some(said), _, _) => one_line(said),
        (None, Some(task), _) => format!("{} failed", one_line(&task.summary)),
        (None, None, Some(err)) => one_line(err),
        (None, None, None) => format!("{}: {}", one_line(&change.summary), change.status),
    };
    Some(cause)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snap::wire::TaskProgress;

    fn change(kind: &str, task_status: &str, done: u64, total: u64) -> Change {
        let task = Task {
            kind: kind.to_owned(),
            summary: "Download snap \"k8s\" (2002) from channel \"1.32-classic/stable\"".to_owned(),
            status: task_status.to_owned(),
            progress: TaskProgress { done, total },
            log: Vec::new(),
        };
        Change {
            id: ChangeId("1".to_owned()),
            kind: "refresh-snap".to_owned(),
            summary: "Refresh \"k8s\" snap".to_owned(),
            status: "Doing".to_owned(),
            ready: false,
            spawn_time: None,
            ready_time: None,
            err: None,
            tasks: vec![task],
        }
    }

    #[test]
    fn a_downloads_figure_moves_in_steps() {
        for (done, total, percent) in [
            (1, 1, None),
            (0, 300, Some(0)),
            (14, 300, Some(0)),
            (15, 300, Some(5)),
            (299, 300, Some(95)),
            (300, 300, Some(100)),
            (301, 300, Some(100)),
            (u64::MAX - 1, u64::MAX, Some(95)),
        ] {
            let progress = progress(&change("download-snap", "Doing", done, total));
            assert_eq!(progress, Progress { task: "Download snap \"k8s\"".to_owned(), percent }, "{done} of {total}");
        }
    }

    #[test]
    fn of_several_changes_the_first_is_followed() {
        let spawned = |id: &str, ready, at| Change {
            id: ChangeId(id.to_owned()),
            ready,
            spawn_time: Some(Timestamp(at)),
            ..change("link-snap", "Doing", 1, 1)
        };
        let changes = vec![spawned("3", false, 30), spawned("2", false, 20), spawned("1", true, 10)];
        assert_eq!(at_work(changes).unwrap().id.0, "2");
        assert_eq!(at_work(vec![spawned("1", true, 10)]), None);
    }

    #[test]
    fn what_is_undone_is_said_to_be() {
        assert!(progress(&change("link-snap", "Undoing", 1, 1)).task.starts_with("Undo: Download"));
        for (kind, status) in [("link-snap", "Do"), ("check-rerefresh", "Doing")] {
            assert_eq!(progress(&change(kind, status, 0, 1)).task, "Refresh \"k8s\" snap");
        }
    }

    #[test]
    fn a_failure_without_a_line_of_its_own_is_named_all_the_same() {
        let over = |task_status, err: Option<&str>| {
            let change = change("link-snap", task_status, 1, 1);
            failure(&Change { ready: true, status: "Error".to_owned(), err: err.map(str::to_owned), ..change })
        };
        assert!(over("Error", None).unwrap().ends_with("failed"));
        assert_eq!(over("Undone", Some("cannot\n- do")).unwrap(), "cannot - do");
        assert_eq!(over("Undone", None).unwrap(), "Refresh \"k8s\" snap: Error");
    }

    #[test]
    fn versions_as_snaps_write_them() {
        for (text, version) in
            [("1.32.1", Some("1.32.1")), ("v1.32", Some("1.32.0")), ("1.33-dev", Some("1.33.0")), ("latest", None)]
        {
            assert_eq!(kubernetes_version(text).map(|it| it.to_string()).as_deref(), version, "{text}");
        }
    }
}
