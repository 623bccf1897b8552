//! Event to handler: one table.

use crate::charm::Charm;
use crate::handlers::{self, actions};
use crate::juju::{Event, HookTools, JujuError};

/// Handles this run's event. What can be waited for is a status; an error is Juju's own failure, and Juju runs the hook
/// again.
pub async fn dispatch<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    match &charm.context.event {
        Event::Install
        | Event::ConfigChanged
        | Event::Start
        | Event::LeaderElected
        | Event::UpdateStatus
        | Event::SecretChanged
        | Event::UpgradeCharm => handlers::reconcile(charm).await,
        Event::UpgradeGranted => handlers::upgrade_granted(charm).await,
        Event::Relation { endpoint, .. } if endpoint == "upgrade" || endpoint == "cluster" => {
            handlers::reconcile(charm).await
        }
        Event::Stop => handlers::stop(charm).await,
        Event::Remove => handlers::remove(charm).await,
        Event::Action(name) => match name.as_str() {
            "pre-upgrade-check" => actions::pre_upgrade_check(charm).await,
            "resume-upgrade" => actions::resume_upgrade(charm).await,
            "upgrade-status" => actions::upgrade_status(charm).await,
            "get-kubeconfig" => actions::get_kubeconfig(charm).await,
            name => {
                let application = charm.context.unit.application();
                let why = format!("This charm has no action {name}: see `juju actions {application}`");
                charm.juju.fail_action(&why).await
            }
        },
        event @ (Event::Relation { .. } | Event::Other(_)) => {
            tracing::debug!("Nothing to do for {event}");
            Ok(())
        }
    }
}
