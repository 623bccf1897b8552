//! What can go wrong with k8sd.

use crate::unix_http::TransportError;

/// Why k8sd gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum K8sdError {
    /// It could not be reached, or its answer was lost.
    #[error("k8sd doesn't answer ({doing})")]
    Transport {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: TransportError,
    },
    /// It said no.
    #[error("k8sd says: {message} ({doing})")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The HTTP status.
        code: u16,
        /// Its own words, in one line.
        message: String,
    },
    /// It answered something else.
    #[error("k8sd's answer is not what was expected ({doing})")]
    Answer {
        /// What was being done.
        doing: &'static str,
        /// Where it differs.
        source: serde_json::Error,
    },
}

/// The state of k8sd's database, which it tells by the text of its 503 only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Database {
    /// Never bootstrapped, never joined.
    NotInitialised,
    /// Waits for other members to be upgraded: normal until the last one is.
    WaitsForMembers,
    /// Opens, or the daemon starts or ends.
    NotYet,
}

/// What k8sd says that was never bootstrapped and never joined.
const NOT_INITIALISED: &str = "Database is not yet initialized";

impl K8sdError {
    /// What a refusal says of the database.
    ///
    /// That there is none yet is only believed where nothing else is said: within a chain of causes it was somebody
    /// else's transaction that met a database on its way in or out.
    pub fn database(&self) -> Option<Database> {
        let Self::Refused { code: code @ (503 | 500), message, .. } = self else { return None };
        if *code == 503 && message == NOT_INITIALISED {
            return Some(Database::NotInitialised);
        }
        let states = [
            (NOT_INITIALISED, Database::NotYet),
            ("Database is waiting for an upgrade", Database::WaitsForMembers),
            ("Database is still starting", Database::NotYet),
            ("Database is offline", Database::NotYet),
            ("Database is not ready yet", Database::NotYet),
            ("Daemon is not ready yet", Database::NotYet),
            ("Daemon is shutting down", Database::NotYet),
            ("daemon not yet initialized", Database::NotYet),
        ];
        states.into_iter().find(|(text, _)| message.contains(text)).map(|(_, state)| state)
    }

    /// What is wrong with k8sd itself, for a text that names it already.
    pub fn trouble(&self) -> &str {
        match self {
            Self::Transport { .. } => "it doesn't answer",
            Self::Refused { message, .. } => message,
            Self::Answer { .. } => "its answer is not what was expected",
        }
    }

    /// Whether trying again may help by itself.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } => true,
            // 501, 520 and 521 say what is so, and will be.
            Self::Refused { code, .. } => matches!(code, 500 | 502..=504),
            Self::Answer { .. } => false,
        }
    }

    /// A join of a node that is in a cluster already (521, k8s-snap `pkg/k8sd/api/response.go`).
    pub fn is_joined_already(&self) -> bool {
        matches!(self, Self::Refused { code: 521, .. })
    }

    /// A bootstrap of a node that is in a cluster already.
    pub fn is_bootstrapped_already(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("already bootstrapped"))
    }

    /// The answer was lost: whether the work was done is not known.
    pub fn is_unknown_outcome(&self) -> bool {
        matches!(self, Self::Transport { source, .. } if !source.never_sent())
    }
}
