//! snapd's JSON, as far as the charm reads it: unknown fields are ignored, and every fact is from recordings
//! (`tests/recorded/snapd/`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

use crate::names::{Channel, Revision, Timestamp};
use crate::rfc3339;

/// snapd's id of a change, `42`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeId(pub String);

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What every answer has around its result.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    /// `sync`, `async` or `error`.
    #[serde(rename = "type")]
    pub(super) kind: AnswerKind,
    /// For `async`.
    #[serde(default)]
    pub(super) change: Option<ChangeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerKind {
    Sync,
    Async,
    Error,
}

/// The result alone, read in a second pass when the envelope says which shape it has.
#[derive(Debug, Deserialize)]
pub(super) struct ResultOf<T> {
    pub(super) result: T,
}

/// The result of an `error` answer.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    pub(super) message: String,
    #[serde(default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) value: serde_json::Value,
}

/// A snap of the store: one of `GET /v2/find?name=NAME`.
#[derive(Debug, Deserialize)]
pub(super) struct Found {
    pub(super) name: String,
    /// What is in which channel; closed ones aren't listed.
    #[serde(default)]
    pub(super) channels: BTreeMap<String, Released>,
}

/// What a channel holds.
#[derive(Debug, Deserialize)]
pub(super) struct Released {
    pub(super) version: String,
}

/// The result of `GET /v2/system-info`.
#[derive(Debug, Deserialize)]
pub(super) struct SystemInfo {
    pub(super) version: String,
}

/// An installed snap: `GET /v2/snaps/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snap {
    /// The version in the snap's own words, `1.32.1`.
    pub version: String,
    /// The revision that is active.
    pub revision: Revision,
    /// The channel that it follows; absent for one that was installed from a file and never switched.
    #[serde(default, deserialize_with = "channel")]
    pub tracking_channel: Option<Channel>,
    /// `active`, or `installed` when it is disabled.
    pub status: String,
    /// `classic` or `strict`.
    pub confinement: String,
    /// Until when its refreshes are held (`forever` is some three hundred years); absent on a snapd before 2.58.
    #[serde(default, deserialize_with = "instant")]
    pub hold: Option<Timestamp>,
    /// The file that it is mounted from, byte for byte what was downloaded or uploaded; below the machine's root.
    #[serde(default, rename = "mounted-from")]
    pub blob: Option<PathBuf>,
}

impl Snap {
    /// Whether it runs unconfined, so that a refresh must say that it may.
    pub fn is_classic(&self) -> bool {
        self.confinement == "classic"
    }
}

/// One of snapd's changes: `GET /v2/changes/ID`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Change {
    /// Its id.
    pub id: ChangeId,
    /// `install-snap`, `refresh-snap`, `service-control`, ….
    pub kind: String,
    /// `Refresh "k8s" snap from "1.32-classic/stable" channel`.
    pub summary: String,
    /// `Do`, `Doing`, `Abort`, `Undoing`; when ready `Done`, `Undone`, `Error`, `Hold`.
    pub status: String,
    /// Whether it is over, one way or the other.
    pub ready: bool,
    /// When it began.
    #[serde(default, deserialize_with = "instant")]
    pub spawn_time: Option<Timestamp>,
    /// When it ended.
    #[serde(default, deserialize_with = "instant")]
    pub ready_time: Option<Timestamp>,
    /// What went wrong, in several lines.
    #[serde(default)]
    pub err: Option<String>,
    /// Its tasks, in order; some changes (`hold-snap`) have none.
    #[serde(default)]
    pub tasks: Vec<Task>,
}

/// One step of a change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Task {
    /// `download-snap`, `link-snap`, `run-hook`, ….
    pub kind: String,
    /// `Download snap "k8s" (2002) from channel "1.32-classic/stable"`.
    pub summary: String,
    /// `Do`, `Doing`, `Done`, `Undo`, `Undoing`, `Undone`, `Abort`, `Error`, `Hold`, `Wait`.
    pub status: String,
    /// How much is done.
    #[serde(default)]
    pub progress: TaskProgress,
    /// Lines such as `2026-12-01T02:09:33Z ERROR run hook "post-refresh": …`.
    #[serde(default)]
    pub log: Vec<String>,
}

/// How far a task is: bytes for a download, otherwise 0 or 1 of 1 (1 as soon as it has begun).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct TaskProgress {
    /// So much is done.
    pub done: u64,
    /// Of so much.
    pub total: u64,
}

/// A service of a snap: `GET /v2/apps?select=service`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Its name within the snap, `kubelet`.
    pub name: String,
    /// Whether it is started at boot; snapd leaves out what is false.
    #[serde(default)]
    pub enabled: bool,
    /// Whether it runs now.
    #[serde(default)]
    pub active: bool,
}

fn instant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.as_deref().and_then(rfc3339::parse))
}

/// A channel that this charm can't read is no reason to know nothing of the snap.
fn channel<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Channel>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.and_then(|text| text.parse().ok()))
}
