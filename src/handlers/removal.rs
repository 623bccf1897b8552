//! A unit's end.

use crate::charm::Charm;
use crate::entry;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError};
use crate::observe::observe;
use crate::reconcile::{Pace, show, wake};
use crate::snap::SNAP;
use crate::upgrade::messages::{Message, Tone};

/// `stop`: the node leaves the cluster while its k8sd still runs.
pub async fn stop<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let seen = observe(charm).await?;
    let message = entry::leave(charm, &seen).await;
    wake(charm, Pace::Asleep).await;
    show(charm, &message).await
}

/// `remove`: the snap goes, and nothing wakes the unit any more.
pub async fn remove<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    wake(charm, Pace::Asleep).await;
    let text = match charm.snapd.remove(SNAP).await {
        Ok(Some(change)) => {
            tracing::info!("The snap is being removed (snapd's change {})", change.0);
            "Being removed: snapd removes the snap".to_owned()
        }
        Ok(None) => "Being removed".to_owned(),
        Err(error) => {
            tracing::warn!("The snap stays: {}", with_causes(&error));
            format!("Being removed; the snap stays: {error}")
        }
    };
    show(charm, &Message::new(Tone::Maintenance, text)).await
}
