//! The unit's own wake-up.

use crate::charm::Charm;
use crate::juju::{HookTools, JujuError};
use crate::reconcile::{follow, reconcile};

/// Looks at what is followed; only where that is over is the whole pass worth its calls.
pub async fn upgrade_granted<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    if follow(charm).await?.is_some() {
        return Ok(());
    }
    reconcile(charm).await
}
