//! The values that pass through the `upgrade` relation's databags, as types.
//!
//! Pure: how they are written there is the codec's business.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::names::{KubernetesVersion, Revision, Timestamp, UnitName};

/// The state of a unit, in v0's words (v0's `recovery` is read as `Ready` and never written).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitState {
    /// At rest.
    Idle,
    /// Off its pin, waits for its turn.
    Ready,
    /// Its snap is being refreshed, or its gate after hasn't passed yet.
    Upgrading,
    /// Refreshed and healthy.
    Completed,
    /// Keeps the token until the admin's word or another target ends it.
    Failed,
}

impl UnitState {
    /// The word in the databag.
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Upgrading => "upgrading",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }

    /// Reads the databag's word; one from the future is none.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "recovery" => Some(Self::Ready),
            _ => [Self::Idle, Self::Ready, Self::Upgrading, Self::Completed, Self::Failed]
                .into_iter()
                .find(|state| state.word() == word),
        }
    }
}

/// The pin that a state speaks of, `VERSION@HASH`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Target {
    /// The Kubernetes version that the charm code declares.
    pub version: KubernetesVersion,
    /// 8 hex digits of the SHA-256 of the whole manifest or resource.
    pub hash: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.version, self.hash)
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

/// A text that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a target such as `1.32.1@0a1b2c3d`")]
pub struct TargetError(String);

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        let parsed = text.split_once('@').and_then(|(version, hash)| {
            let version = version.parse().ok()?;
            let is_hash = hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase());
            is_hash.then(|| Self { version, hash: hash.to_owned() })
        });
        parsed.ok_or(TargetError(text))
    }
}

/// `resume-upgrade` ran on this unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Go {
    /// Juju's id of the operation.
    pub operation: String,
    /// Check ids to go on past.
    #[serde(default)]
    pub skip: Vec<String>,
}

/// Checks that were forced, and by which operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// The checks' ids.
    pub ids: Vec<String>,
    /// Juju's id of the operation.
    pub operation: String,
}

/// A unit's bag; an absent key is `None` or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitBag {
    /// `state`.
    pub state: Option<UnitState>,
    /// `version`: the installed Kubernetes version.
    pub version: Option<KubernetesVersion>,
    /// `revision`: the installed snap's.
    pub revision: Option<Revision>,
    /// `target`.
    pub target: Option<Target>,
    /// `turn`: the one that this unit gave up last, or failed in.
    pub turn: Option<u64>,
    /// `go`.
    pub go: Option<Go>,
    /// `forced`.
    pub forced: Vec<Forced>,
    /// `change`: snapd's id of the change being followed.
    pub change: Option<String>,
    /// `cause`, for `failed`.
    pub cause: Option<String>,
    /// `since`: when `state` changed last.
    pub since: Option<Timestamp>,
}

/// What a unit had at a run's start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The Kubernetes version.
    pub version: KubernetesVersion,
    /// The snap's revision.
    pub revision: Revision,
}

/// A unit, and the target that the entry is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitTarget {
    /// The unit.
    pub unit: UnitName,
    /// The target.
    pub target: Target,
}

/// How a run came to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunChecks {
    /// The checks passed.
    Passed,
    /// Some failed and were forced.
    Forced,
    /// The stack was there.
    Prepared,
}

/// One rolling upgrade of the application (`upgrade-run`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its name.
    pub id: String,
    /// What each unit had at the start.
    #[serde(default)]
    pub from: BTreeMap<UnitName, Origin>,
    /// The leader's own target; follows it.
    pub to: Target,
    /// When it began.
    pub started: Timestamp,
    /// How it came to begin.
    pub checks: RunChecks,
    /// What was forced.
    #[serde(default)]
    pub forced: Vec<Forced>,
    /// Units let begin by the admin.
    #[serde(default)]
    pub resumed: Vec<UnitTarget>,
    /// Units left out.
    #[serde(default)]
    pub skipped: Vec<UnitName>,
    /// Holders taken away as `completed`, in order.
    #[serde(default)]
    pub done: Vec<UnitTarget>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// At another version or revision than it came from.
    #[serde(rename = "upgraded")]
    Upgraded,
    /// Where it came from.
    #[serde(rename = "rolled back")]
    RolledBack,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The lowest version at its start, if known.
    #[serde(default)]
    pub from: Option<KubernetesVersion>,
    /// The version that it went to.
    pub to: KubernetesVersion,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How.
    pub outcome: Outcome,
}

/// One member of `dependencies`, as the Python charm's library reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// Constraints on others, by name.
    pub dependencies: BTreeMap<String, String>,
    /// Its own name.
    pub name: String,
    /// From which versions an upgrade is supported.
    pub upgrade_supported: String,
    /// Its own version.
    pub version: String,
}

/// `dependencies`: what a charm's code declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependencies {
    /// The charm.
    pub k8s_charm: Dependency,
    /// Kubernetes.
    pub k8s_service: Dependency,
}

/// The application's bag; an absent key is `None` or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApplicationBag {
    /// `upgrade-stack`: unit numbers, the last goes next.
    pub stack: Vec<u32>,
    /// `upgrade-turn`; absent in a v0 stack.
    pub turn: Option<u64>,
    /// `upgrade-run`.
    pub run: Option<Run>,
    /// `dependencies`.
    pub dependencies: Option<Dependencies>,
    /// `upgrade-history`, newest first.
    pub history: Vec<HistoryEntry>,
}
