//! Strict decoding: which keys each version of k8sd knows in a request, and what it says of others.
//!
//! k8sd refuses a key that it doesn't know and a value of another type, in the words of Go's `encoding/json`; the texts are
//! recorded (`bootstrap.unknown-key`, `config.put.wrong-type`, …), the keys are those of its API's types.

use std::ops::RangeInclusive;

use serde_json::Value;

/// The minor versions that know a key.
type Minors = RangeInclusive<u64>;

const ALWAYS: Minors = 0..=u64::MAX;
const UP_TO_35: Minors = 0..=35;
const FROM_32: Minors = 32..=u64::MAX;
const FROM_36: Minors = 36..=u64::MAX;

/// The type of a value.
enum Kind {
    Text,
    Boolean,
    Integer,
    Texts,
    /// Strings by name; null deletes.
    TextMap,
    /// Whatever.
    Anything,
    Struct(&'static Struct),
}

/// A Go struct: its name, as error texts have it, and its keys.
pub(super) struct Struct {
    name: &'static str,
    keys: &'static [(&'static str, Kind, Minors)],
    /// Names that stand for two keys, `NAME-crt` and `NAME-key`.
    pairs: &'static [(&'static str, Minors)],
}

impl Struct {
    const fn new(name: &'static str, keys: &'static [(&'static str, Kind, Minors)]) -> Self {
        Self { name, keys, pairs: &[] }
    }

    fn kind(&self, key: &str, minor: u64) -> Option<&'static Kind> {
        if let Some((_, kind, minors)) = self.keys.iter().find(|(name, ..)| *name == key) {
            return minors.contains(&minor).then_some(kind);
        }
        let pair = key.strip_suffix("-crt").or_else(|| key.strip_suffix("-key"))?;
        let (_, minors) = self.pairs.iter().find(|(name, _)| *name == pair)?;
        minors.contains(&minor).then_some(&Kind::Text)
    }
}

/// `POST /1.0/k8sd/cluster`.
pub(super) static BOOTSTRAP: Struct = Struct::new(
    "BootstrapClusterRequest",
    &[
        ("name", Kind::Text, ALWAYS),
        ("address", Kind::Text, ALWAYS),
        ("config", Kind::Struct(&BOOTSTRAP_CONFIG), ALWAYS),
        ("timeout", Kind::Integer, ALWAYS),
    ],
);

/// `POST /1.0/k8sd/cluster/join`.
pub(super) static JOIN: Struct = Struct::new(
    "JoinClusterRequest",
    &[
        ("name", Kind::Text, ALWAYS),
        ("address", Kind::Text, ALWAYS),
        ("token", Kind::Text, ALWAYS),
        ("config", Kind::Text, ALWAYS),
        ("timeout", Kind::Integer, ALWAYS),
    ],
);

/// `POST /1.0/k8sd/cluster/remove`.
pub(super) static REMOVE: Struct = Struct::new(
    "RemoveNodeRequest",
    &[("name", Kind::Text, ALWAYS), ("force", Kind::Boolean, ALWAYS), ("timeout", Kind::Integer, ALWAYS)],
);

/// `POST /1.0/k8sd/cluster/tokens`.
pub(super) static TOKENS: Struct = Struct::new(
    "GetJoinTokenRequest",
    &[("name", Kind::Text, ALWAYS), ("worker", Kind::Boolean, ALWAYS), ("ttl", Kind::Integer, ALWAYS)],
);

/// `GET /1.0/k8sd/kubeconfig`.
pub(super) static KUBECONFIG: Struct = Struct::new("KubeConfigRequest", &[("server", Kind::Text, ALWAYS)]);

/// `PUT /1.0/k8sd/cluster/config`.
pub(super) static SET_CONFIG: Struct = Struct::new(
    "SetClusterConfigRequest",
    &[("config", Kind::Struct(&CLUSTER_CONFIG), ALWAYS), ("datastore", Kind::Struct(&DATASTORE), ALWAYS)],
);

static DATASTORE: Struct = Struct::new(
    "UserFacingDatastoreConfig",
    &[
        ("type", Kind::Text, ALWAYS),
        ("servers", Kind::Texts, ALWAYS),
        ("ca-crt", Kind::Text, ALWAYS),
        ("client-crt", Kind::Text, ALWAYS),
        ("client-key", Kind::Text, ALWAYS),
    ],
);

static CLUSTER_CONFIG: Struct = Struct::new(
    "UserFacingClusterConfig",
    &[
        ("network", Kind::Struct(&NETWORK), ALWAYS),
        ("dns", Kind::Struct(&DNS), ALWAYS),
        ("ingress", Kind::Struct(&INGRESS), ALWAYS),
        ("load-balancer", Kind::Struct(&LOAD_BALANCER), ALWAYS),
        ("local-storage", Kind::Struct(&LOCAL_STORAGE), ALWAYS),
        ("gateway", Kind::Struct(&GATEWAY), ALWAYS),
        ("metrics-server", Kind::Struct(&METRICS_SERVER), ALWAYS),
        ("cloud-provider", Kind::Text, ALWAYS),
        ("annotations", Kind::TextMap, ALWAYS),
    ],
);

static NETWORK: Struct =
    Struct::new("NetworkConfig", &[("enabled", Kind::Boolean, ALWAYS), ("kube-proxy-enabled", Kind::Boolean, FROM_36)]);
static DNS: Struct = Struct::new(
    "DNSConfig",
    &[
        ("enabled", Kind::Boolean, ALWAYS),
        ("cluster-domain", Kind::Text, ALWAYS),
        ("service-ip", Kind::Text, ALWAYS),
        ("upstream-nameservers", Kind::Texts, ALWAYS),
    ],
);
static INGRESS: Struct = Struct::new(
    "IngressConfig",
    &[
        ("enabled", Kind::Boolean, ALWAYS),
        ("default-tls-secret", Kind::Text, ALWAYS),
        ("enable-proxy-protocol", Kind::Boolean, ALWAYS),
    ],
);
static LOAD_BALANCER: Struct = Struct::new(
    "LoadBalancerConfig",
    &[
        ("enabled", Kind::Boolean, ALWAYS),
        ("cidrs", Kind::Texts, ALWAYS),
        ("l2-mode", Kind::Boolean, ALWAYS),
        ("l2-interfaces", Kind::Texts, ALWAYS),
        ("bgp-mode", Kind::Boolean, ALWAYS),
        ("bgp-local-asn", Kind::Integer, ALWAYS),
        ("bgp-peer-address", Kind::Text, ALWAYS),
        ("bgp-peer-asn", Kind::Integer, ALWAYS),
        ("bgp-peer-port", Kind::Integer, ALWAYS),
    ],
);
static LOCAL_STORAGE: Struct = Struct::new(
    "LocalStorageConfig",
    &[
        ("enabled", Kind::Boolean, ALWAYS),
        ("local-path", Kind::Text, ALWAYS),
        ("reclaim-policy", Kind::Text, ALWAYS),
        ("default", Kind::Boolean, ALWAYS),
    ],
);
static GATEWAY: Struct = Struct::new("GatewayConfig", &[("enabled", Kind::Boolean, ALWAYS)]);
static METRICS_SERVER: Struct = Struct::new("MetricsServerConfig", &[("enabled", Kind::Boolean, ALWAYS)]);

static BOOTSTRAP_CONFIG: Struct = Struct {
    name: "BootstrapConfig",
    keys: &[
        ("cluster-config", Kind::Struct(&CLUSTER_CONFIG), ALWAYS),
        ("control-plane-taints", Kind::Texts, ALWAYS),
        ("extra-sans", Kind::Texts, ALWAYS),
        ("datastore-servers", Kind::Texts, ALWAYS),
        ("pod-cidr", Kind::Text, ALWAYS),
        ("service-cidr", Kind::Text, ALWAYS),
        ("disable-rbac", Kind::Boolean, ALWAYS),
        ("disable-system-tuning", Kind::Boolean, FROM_32),
        ("secure-port", Kind::Integer, ALWAYS),
        ("datastore-type", Kind::Text, ALWAYS),
        ("datastore-ca-crt", Kind::Text, ALWAYS),
        ("k8s-dqlite-port", Kind::Integer, UP_TO_35),
        ("etcd-port", Kind::Integer, FROM_32),
        ("etcd-peer-port", Kind::Integer, FROM_32),
        ("extra-node-config-files", Kind::TextMap, ALWAYS),
        ("extra-node-kube-apiserver-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-controller-manager-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-scheduler-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-proxy-args", Kind::TextMap, ALWAYS),
        ("extra-node-kubelet-args", Kind::TextMap, ALWAYS),
        ("extra-node-containerd-args", Kind::TextMap, ALWAYS),
        ("extra-node-etcd-args", Kind::TextMap, FROM_32),
        ("extra-node-k8s-dqlite-args", Kind::TextMap, UP_TO_35),
        ("extra-node-containerd-config", Kind::Anything, ALWAYS),
        ("containerd-base-dir", Kind::Text, FROM_32),
        ("service-account-key", Kind::Text, ALWAYS),
    ],
    pairs: &[
        ("datastore-client", ALWAYS),
        ("etcd-ca", FROM_32),
        ("etcd-server", FROM_32),
        ("etcd-peer", FROM_32),
        ("etcd-apiserver-client", FROM_32),
        ("ca", ALWAYS),
        ("client-ca", ALWAYS),
        ("front-proxy-ca", ALWAYS),
        ("front-proxy-client", ALWAYS),
        ("apiserver-kubelet-client", ALWAYS),
        ("admin-client", ALWAYS),
        ("kube-proxy-client", ALWAYS),
        ("kube-scheduler-client", ALWAYS),
        ("kube-controller-manager-client", ALWAYS),
        ("apiserver", ALWAYS),
        ("kubelet", ALWAYS),
        ("kubelet-client", ALWAYS),
    ],
};

static CONTROL_PLANE_JOIN: Struct = Struct {
    name: "ControlPlaneJoinConfig",
    keys: &[
        ("extra-sans", Kind::Texts, ALWAYS),
        ("extra-node-config-files", Kind::TextMap, ALWAYS),
        ("extra-node-kube-apiserver-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-controller-manager-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-scheduler-args", Kind::TextMap, ALWAYS),
        ("extra-node-kube-proxy-args", Kind::TextMap, ALWAYS),
        ("extra-node-kubelet-args", Kind::TextMap, ALWAYS),
        ("extra-node-containerd-args", Kind::TextMap, ALWAYS),
        ("extra-node-etcd-args", Kind::TextMap, FROM_32),
        ("extra-node-k8s-dqlite-args", Kind::TextMap, UP_TO_35),
        ("extra-node-containerd-config", Kind::Anything, ALWAYS),
        ("containerd-base-dir", Kind::Text, FROM_32),
        ("disable-system-tuning", Kind::Boolean, FROM_32),
    ],
    pairs: &[
        ("kubelet", ALWAYS),
        ("kubelet-client", ALWAYS),
        ("kube-proxy-client", ALWAYS),
        ("front-proxy-client", ALWAYS),
        ("admin-client", FROM_32),
        ("kube-scheduler-client", ALWAYS),
        ("kube-controller-manager-client", ALWAYS),
        ("apiserver", ALWAYS),
        ("etcd-server", FROM_32),
        ("etcd-peer", FROM_32),
    ],
};

static WORKER_JOIN: Struct = Struct {
    name: "WorkerJoinConfig",
    keys: &[
        ("extra-node-config-files", Kind::TextMap, ALWAYS),
        ("extra-node-kube-proxy-args", Kind::TextMap, ALWAYS),
        ("extra-node-kubelet-args", Kind::TextMap, ALWAYS),
        ("extra-node-containerd-args", Kind::TextMap, ALWAYS),
        ("extra-node-k8s-apiserver-proxy-args", Kind::TextMap, ALWAYS),
        ("extra-node-containerd-config", Kind::Anything, ALWAYS),
        ("containerd-base-dir", Kind::Text, FROM_32),
        ("disable-system-tuning", Kind::Boolean, FROM_32),
    ],
    pairs: &[("kubelet", ALWAYS), ("kubelet-client", ALWAYS), ("kube-proxy-client", ALWAYS)],
};

/// Decodes a request's body strictly.
///
/// # Errors
///
/// What Go says of a body that isn't JSON, of an unknown key, of a value of another type.
pub(super) fn decode(body: &[u8], shape: &Struct, minor: u64) -> Result<Value, String> {
    // Go's decoder reads one value and looks no further.
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let value = match values.next() {
        None => return Err("EOF".to_owned()),
        Some(Err(error)) if error.is_eof() => return Err("unexpected EOF".to_owned()),
        Some(Err(_)) => {
            let first = body.iter().copied().find(|byte| !byte.is_ascii_whitespace()).unwrap_or_default();
            return Err(format!("invalid character '{}' looking for beginning of value", char::from(first)));
        }
        Some(Ok(value)) => value,
    };
    check_struct(&value, shape, minor, "").map(|()| value)
}

fn check_struct(value: &Value, shape: &Struct, minor: u64, path: &str) -> Result<(), String> {
    let Value::Object(object) = value else {
        return match value {
            Value::Null => Ok(()),
            other => Err(format!("json: cannot unmarshal {} into Go value of type {}", json_type(other), shape.name)),
        };
    };
    for (key, value) in object {
        let kind = shape.kind(key, minor).ok_or_else(|| format!("json: unknown field \"{key}\""))?;
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        check(value, kind, shape, minor, &path)?;
    }
    Ok(())
}

fn check(value: &Value, kind: &Kind, within: &Struct, minor: u64, path: &str) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    let (fits, go_type) = match kind {
        Kind::Struct(shape) => return check_struct(value, shape, minor, path),
        Kind::Anything => (true, "map[string]interface {}"),
        Kind::Text => (value.is_string(), "string"),
        Kind::Boolean => (value.is_boolean(), "bool"),
        Kind::Integer => (value.is_i64() || value.is_u64(), "int"),
        Kind::Texts => (value.as_array().is_some_and(|values| values.iter().all(Value::is_string)), "[]string"),
        Kind::TextMap => {
            let texts = |values: &serde_json::Map<_, Value>| values.values().all(|v| v.is_string() || v.is_null());
            (value.as_object().is_some_and(texts), "map[string]string")
        }
    };
    if fits {
        return Ok(());
    }
    let (value, name) = (json_type(value), within.name);
    Err(format!("json: cannot unmarshal {value} into Go struct field {name}.{path} of type {go_type}"))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What a node joins as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinAs {
    /// A control plane.
    ControlPlane,
    /// A worker.
    Worker,
}

/// Decodes the configuration of a join, YAML, strictly.
///
/// # Errors
///
/// What Go's YAML decoder says of an unknown key (recorded: `join.unknown-key`).
pub(super) fn check_join_config(config: &str, join_as: JoinAs, minor: u64) -> Result<(), String> {
    let shape = match join_as {
        JoinAs::ControlPlane => &CONTROL_PLANE_JOIN,
        JoinAs::Worker => &WORKER_JOIN,
    };
    let package = if minor >= 36 { "api" } else { "apiv1" };
    let keys = match serde_yaml::from_str::<serde_yaml::Value>(config) {
        Ok(serde_yaml::Value::Null) => return Ok(()),
        Ok(serde_yaml::Value::Mapping(mapping)) => mapping,
        Ok(_) => {
            return Err(format!("yaml: unmarshal errors:\n  line 1: cannot unmarshal into {package}.{}", shape.name));
        }
        Err(error) => return Err(format!("yaml: {error}")),
    };
    for key in keys.keys().filter_map(serde_yaml::Value::as_str) {
        if shape.kind(key, minor).is_none() {
            let line = config.lines().position(|line| line.contains(key)).unwrap_or_default() + 1;
            let name = shape.name;
            return Err(format!(
                "yaml: unmarshal errors:\n  line {line}: field {key} not found in type {package}.{name}"
            ));
        }
    }
    Ok(())
}
