//! What can go wrong with Juju.

use super::tools::HookToolError;

/// Why Juju gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum JujuError {
    /// A hook tool failed.
    #[error(transparent)]
    Tool(#[from] HookToolError),
    /// A hook tool's answer isn't what it should be.
    #[error("{tool} answered something else than {expected}")]
    Answer {
        /// Which tool.
        tool: &'static str,
        /// What it should have answered.
        expected: &'static str,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// A secret's content could not be handed over.
    #[error("cannot hand a secret over by a file")]
    SecretFile(#[source] std::io::Error),
}

impl JujuError {
    fn says(&self, texts: &[&str]) -> bool {
        match self {
            Self::Tool(HookToolError::Refused { message, .. }) => {
                let message = message.to_ascii_lowercase();
                texts.iter().any(|text| message.contains(text))
            }
            _ => false,
        }
    }

    /// The relation is gone, or unknown in this hook.
    pub fn is_relation_not_found(&self) -> bool {
        self.says(&["relation not found", "unknown relation"])
    }

    /// The unit has not entered the relation, or never left anything there.
    pub fn has_not_entered(&self) -> bool {
        self.says(&["settings not found", "relation unit not found"])
    }

    /// The unit has no bag that this unit could read: it never entered the relation, or is gone.
    pub fn is_no_bag(&self) -> bool {
        self.has_not_entered()
            || self.is_relation_not_found()
            || self.says(&["not found in relation", "permission denied"])
    }

    /// The secret is gone, or not for this unit.
    pub fn is_no_secret(&self) -> bool {
        self.says(&["not found", "not allowed to read", "permission denied"])
    }

    /// Nobody has attached the resource.
    pub fn is_no_resource(&self) -> bool {
        self.is_resource_unreachable() && self.says(&["not found"])
    }

    /// The resource can't be fetched, for whatever reason: what is on disk is still what it was.
    pub fn is_resource_unreachable(&self) -> bool {
        self.says(&["could not download resource"])
    }
}
