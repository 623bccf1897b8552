//! The bodies of k8sd's requests, after they were decoded strictly.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::answers::Failure;

/// `POST /1.0/k8sd/cluster`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bootstrap {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) config: BootstrapConfig,
    /// Nanoseconds; 0 stands for an hour.
    pub(super) timeout: i64,
}

/// The part of a bootstrap's `config` that the model looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct BootstrapConfig {
    pub(super) cluster_config: Value,
    pub(super) control_plane_taints: Vec<String>,
    pub(super) pod_cidr: Option<String>,
    pub(super) service_cidr: Option<String>,
    pub(super) datastore_type: Option<String>,
    #[serde(flatten)]
    _others: BTreeMap<String, Value>,
}

/// `POST /1.0/k8sd/cluster/join`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Join {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) token: String,
    /// YAML.
    pub(super) config: String,
    /// Nanoseconds; 0 stands for an hour.
    pub(super) timeout: i64,
}

/// `POST /1.0/k8sd/cluster/remove`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Remove {
    pub(super) name: String,
    pub(super) force: bool,
}

/// `POST /1.0/k8sd/cluster/tokens`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    pub(super) name: String,
    pub(super) worker: bool,
    /// Nanoseconds; 0 stands for a day.
    pub(super) ttl: i64,
}

/// `GET /1.0/k8sd/kubeconfig`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Kubeconfig {
    pub(super) server: String,
}

/// `PUT /1.0/k8sd/cluster/config`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SetConfig {
    pub(super) config: Value,
    pub(super) datastore: Option<Datastore>,
}

/// The part of a datastore's configuration that the model looks at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Datastore {
    pub(super) r#type: Option<String>,
}

/// `POST /1.0/kubernetes/auth/tokens`, not decoded strictly.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NewAuthToken {
    pub(super) username: String,
    pub(super) groups: Vec<String>,
}

/// `DELETE /1.0/kubernetes/auth/tokens`, not decoded strictly.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RevokedAuthToken {
    pub(super) token: String,
}

/// Reads a request that was decoded strictly: nulls count as absent.
///
/// # Errors
///
/// 400 for a number out of its range.
pub(super) fn read<T: for<'a> Deserialize<'a>>(value: &Value) -> Result<T, Failure> {
    serde_json::from_value(super::config::without_nulls(value))
        .map_err(|error| Failure::new(400, format!("failed to parse request: {error}")))
}

/// Checks a name as k8sd does, and gives it as k8sd keeps it.
///
/// # Errors
///
/// 400 with the text recorded in `bootstrap.bad-name`.
pub(super) fn host_name(name: &str) -> Result<String, Failure> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || character == '-' || character == '.';
    match name.chars().find(|character| !allowed(*character)) {
        None => Ok(name.to_ascii_lowercase()),
        Some(bad) => Err(Failure::new(
            400,
            format!(
                "invalid hostname \"{name}\": failed to parse hostname \"{name}\": idna: disallowed rune U+{:04X}",
                u32::from(bad)
            ),
        )),
    }
}
