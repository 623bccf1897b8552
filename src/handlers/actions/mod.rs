//! The actions: what an admin asks, and says.

mod get_kubeconfig;
mod pre_upgrade_check;
mod resume_upgrade;
mod upgrade_status;

pub use get_kubeconfig::get_kubeconfig;
pub use pre_upgrade_check::pre_upgrade_check;
pub use resume_upgrade::resume_upgrade;
pub use upgrade_status::upgrade_status;

use serde_json::{Map, Value};

use crate::charm::Charm;
use crate::juju::{HookTools, JujuError};
use crate::upgrade::checks::CheckId;

/// Parameters of an action, checked.
struct Parameters(Map<String, Value>);

impl Parameters {
    async fn read<T: HookTools>(charm: &Charm<T>) -> Result<Self, JujuError> {
        Ok(Self(charm.juju.action_parameters().await?))
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default().trim()
    }

    /// Whether it is true; a word that isn't a boolean is refused.
    fn is_true(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => Err(format!("{name}: true or false is needed, not {other}")),
        }
    }

    /// `skip` and `force`: the checks to pass over.
    fn skipped(&self, allowed: &[CheckId]) -> Result<Vec<CheckId>, String> {
        if self.is_true("force")? {
            return Ok(allowed.iter().copied().filter(|id| id.can_be_skipped()).collect());
        }
        CheckId::parse_list(self.text("skip"), allowed)
    }
}

/// The operation's id, for the record.
fn operation<T>(charm: &Charm<T>) -> String {
    charm.context.action.as_ref().map(|action| action.operation.clone()).unwrap_or_default()
}
