//! `get-kubeconfig`.

use std::collections::BTreeMap;

use super::Parameters;
use crate::charm::Charm;
use crate::error_text::with_causes;
use crate::juju::{HookTools, JujuError};

/// Gives an administrator's kubeconfig, for the address that was asked for or this unit's public one.
pub async fn get_kubeconfig<T: HookTools>(charm: &Charm<T>) -> Result<(), JujuError> {
    let parameters = Parameters::read(charm).await?;
    let server = match parameters.text("server") {
        "" => charm.juju.public_address().await?.map(|address| with_port(&address)).unwrap_or_default(),
        given => given.to_owned(),
    };
    match charm.k8sd.kubeconfig(&server).await {
        Ok(kubeconfig) => {
            let results = BTreeMap::from([("kubeconfig", kubeconfig.expose().to_owned())]);
            charm.juju.set_action_results(&results).await
        }
        Err(error) => {
            let why = with_causes(&error);
            charm.juju.fail_action(&format!("No kubeconfig from this unit: {why}. See juju status")).await
        }
    }
}

fn with_port(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:6443") } else { format!("{address}:6443") }
}
