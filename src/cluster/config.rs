//! What a node is bootstrapped or joined with, out of the application's options.
//!
//! Pure. k8sd decodes requests strictly (k8s-snap `src/k8s/pkg/utils/` `NewStrictJSONDecoder`): a key that a version
//! doesn't know is refused, so each version gets only keys that it knows, and what isn't set isn't sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::names::KubernetesVersion;
use crate::settings::{BadOption, words};

/// What a node's own entry adds to the options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The cluster's name.
    pub cluster_name: String,
    /// The node's addresses, at most one IPv4 and then one IPv6.
    pub addresses: Vec<IpAddr>,
    /// More names and addresses of it, for the API server's certificate.
    pub names: Vec<String>,
    /// The Kubernetes version of the installed snap.
    pub version: KubernetesVersion,
}

/// The `config` of a bootstrap (k8s-snap-api `BootstrapConfig`).
///
/// # Errors
///
/// An option that k8sd would refuse, after some ten seconds and a database that has to be taken away again.
pub fn bootstrap(options: &Map<String, Value>, node: &Node) -> Result<Value, BadOption> {
    let mut config = node_arguments(options, node)?;
    config.insert("cluster-config".to_owned(), features(options, node)?);
    config.insert("control-plane-taints".to_owned(), json!(taints(options)?));
    for (option, key) in [("bootstrap-pod-cidr", "pod-cidr"), ("bootstrap-service-cidr", "service-cidr")] {
        if let Some(cidrs) = cidrs(options, option)? {
            config.insert(key.to_owned(), json!(cidrs));
        }
    }
    if let Some(datastore) = datastore(options)? {
        config.insert("datastore-type".to_owned(), json!(datastore));
    }
    Ok(Value::Object(config))
}

/// The `config` of a control plane's join: YAML, of which JSON is a part (k8s-snap-api `ControlPlaneJoinConfig`).
///
/// # Errors
///
/// As for a bootstrap.
pub fn join(options: &Map<String, Value>, node: &Node) -> Result<String, BadOption> {
    Ok(Value::Object(node_arguments(options, node)?).to_string())
}

fn text<'a>(options: &'a Map<String, Value>, option: &str) -> &'a str {
    options.get(option).and_then(Value::as_str).unwrap_or_default().trim()
}

fn list(options: &Map<String, Value>, option: &str) -> Vec<String> {
    options.get(option).map(words).unwrap_or_default()
}

fn node_arguments(options: &Map<String, Value>, node: &Node) -> Result<Map<String, Value>, BadOption> {
    let mut config = Map::new();
    let mut sans: Vec<String> = list(options, "kube-apiserver-extra-sans");
    sans.extend(node.names.iter().cloned());
    sans.extend(node.addresses.iter().map(ToString::to_string));
    sans.sort();
    sans.dedup();
    config.insert("extra-sans".to_owned(), json!(sans));
    for service in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"] {
        let mut arguments = arguments(options, &format!("{service}-extra-args"));
        match service {
            "kube-controller-manager" => {
                arguments.insert("--cluster-name".to_owned(), Some(node.cluster_name.clone()));
            }
            "kubelet" => {
                let addresses: Vec<String> = node.addresses.iter().map(ToString::to_string).collect();
                arguments.insert("--node-ip".to_owned(), Some(addresses.join(",")));
            }
            _ => {}
        }
        config.insert(format!("extra-node-{service}-args"), json!(arguments));
    }
    if datastore(options)? == Some("etcd") && node.version.minor() >= (1, 32) {
        let mut arguments = arguments(options, "datastore-extra-args");
        arguments.insert("--listen-metrics-urls".to_owned(), Some("http://localhost:2381".to_owned()));
        config.insert("extra-node-etcd-args".to_owned(), json!(arguments));
    }
    Ok(config)
}

/// A service's arguments: `key=value` words, a bare word is `true`, `key-` takes the argument out.
fn arguments(options: &Map<String, Value>, option: &str) -> BTreeMap<String, Option<String>> {
    let argument = |word: String| {
        let bare = word.trim_start_matches('-');
        match (bare.split_once('='), bare.strip_suffix('-')) {
            (Some((key, value)), _) => (format!("--{key}"), Some(value.to_owned())),
            (None, Some(key)) => (format!("--{key}"), None),
            (None, None) => (format!("--{bare}"), Some("true".to_owned())),
        }
    };
    list(options, option).into_iter().map(argument).collect()
}

fn datastore(options: &Map<String, Value>) -> Result<Option<&'static str>, BadOption> {
    match text(options, "bootstrap-datastore") {
        "" => Ok(None),
        "managed-etcd" => Ok(Some("etcd")),
        "dqlite" => Ok(Some("k8s-dqlite")),
        "etcd" => Err(BadOption {
            option: "bootstrap-datastore",
            allowed: "an external etcd isn't supported by this revision; managed-etcd, dqlite or empty",
            example: "managed-etcd",
        }),
        _ => Err(BadOption {
            option: "bootstrap-datastore",
            allowed: "managed-etcd, dqlite or empty",
            example: "managed-etcd",
        }),
    }
}

fn taints(options: &Map<String, Value>) -> Result<Vec<String>, BadOption> {
    let taints = list(options, "bootstrap-node-taints");
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
    let is_taint = |taint: &String| {
        let Some((key, effect)) = taint.rsplit_once(':') else { return false };
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
        known && key.split_once('=').map_or(is_name(key), |(key, value)| is_name(key) && is_name(value))
    };
    if taints.iter().all(is_taint) {
        return Ok(taints);
    }
    Err(BadOption {
        option: "bootstrap-node-taints",
        allowed: "words KEY[=VALUE]:NoSchedule, :PreferNoSchedule or :NoExecute",
        example: "node-role.kubernetes.io/control-plane:NoSchedule",
    })
}

/// One block, or an IPv4 and an IPv6 one.
fn cidrs<'a>(options: &'a Map<String, Value>, option: &'static str) -> Result<Option<&'a str>, BadOption> {
    let text = text(options, option);
    if text.is_empty() {
        return Ok(None);
    }
    let is_v4 = |block: &str| {
        let (address, length) = block.split_once('/')?;
        let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
        let longest = if address.is_ipv4() { 32 } else { 128 };
        (length < longest).then_some(address.is_ipv4())
    };
    let families: Vec<Option<bool>> = text.split(',').map(is_v4).collect();
    let fine = match families[..] {
        [Some(_)] => true,
        [Some(first), Some(second)] => first != second,
        _ => false,
    };
    if fine {
        return Ok(Some(text));
    }
    Err(BadOption {
        option,
        allowed: "one CIDR, or an IPv4 and an IPv6 one with a comma between",
        example: "10.1.0.0/16",
    })
}

/// The features and the rest of the cluster's own configuration (k8s-snap-api `UserFacingClusterConfig`).
fn features(options: &Map<String, Value>, node: &Node) -> Result<Value, BadOption> {
    let given = |option: &str| options.get(option).cloned();
    let some_text = |option: &str| given(option).filter(|value| value.as_str().is_some_and(|text| !text.is_empty()));
    let words = |option: &str| options.get(option).map(|value| json!(words(value)));
    let some_words = |option: &str| words(option).filter(|value| value.as_array().is_some_and(|w| !w.is_empty()));

    let mut network = section([("enabled", given("network-enabled"))]);
    if let Some(kube_proxy) = kube_proxy(options, node)? {
        network["kube-proxy-enabled"] = json!(kube_proxy);
    }
    let mut config = json!({
        "network": network,
        "dns": section([
            ("enabled", given("dns-enabled")),
            ("cluster-domain", some_text("dns-cluster-domain")),
            ("service-ip", some_text("dns-service-ip")),
            ("upstream-nameservers", some_words("dns-upstream-nameservers")),
        ]),
        "ingress": section([
            ("enabled", given("ingress-enabled")),
            ("enable-proxy-protocol", given("ingress-enable-proxy-protocol")),
        ]),
        "load-balancer": section([
            ("enabled", given("load-balancer-enabled")),
            ("cidrs", words("load-balancer-cidrs")),
            ("l2-mode", given("load-balancer-l2-mode")),
            ("l2-interfaces", words("load-balancer-l2-interfaces")),
            ("bgp-mode", given("load-balancer-bgp-mode")),
            ("bgp-local-asn", given("load-balancer-bgp-local-asn")),
            ("bgp-peer-address", given("load-balancer-bgp-peer-address")),
            ("bgp-peer-asn", given("load-balancer-bgp-peer-asn")),
            ("bgp-peer-port", given("load-balancer-bgp-peer-port")),
        ]),
        "local-storage": section([
            ("enabled", given("local-storage-enabled")),
            ("local-path", some_text("local-storage-local-path")),
            ("reclaim-policy", some_text("local-storage-reclaim-policy")),
        ]),
        "gateway": section([("enabled", given("gateway-enabled"))]),
        "metrics-server": section([("enabled", given("metrics-server-enabled"))]),
    });
    let annotations = annotations(options)?;
    if !annotations.is_empty() {
        config["annotations"] = json!(annotations);
    }
    Ok(config)
}

fn section<const N: usize>(keys: [(&str, Option<Value>); N]) -> Value {
    let known = keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(known.collect())
}

/// `kube-proxy-enabled`: 1.36's key; earlier versions refuse it.
fn kube_proxy(options: &Map<String, Value>, node: &Node) -> Result<Option<bool>, BadOption> {
    let bad = |allowed| BadOption { option: "kube-proxy-enabled", allowed, example: "auto" };
    let wanted = match text(options, "kube-proxy-enabled").to_ascii_lowercase().as_str() {
        "" | "auto" => return Ok(None),
        "true" => true,
        "false" => false,
        _ => return Err(bad("true, false or auto")),
    };
    if node.version.minor() < (1, 36) {
        return Err(bad("auto, for a snap before 1.36"));
    }
    Ok(Some(wanted))
}

fn annotations(options: &Map<String, Value>) -> Result<BTreeMap<String, String>, BadOption> {
    let pair = |word: String| {
        let (key, value) = word.split_once('=')?;
        (!key.is_empty() && !value.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    list(options, "cluster-annotations").into_iter().map(pair).collect::<Option<_>>().ok_or(BadOption {
        option: "cluster-annotations",
        allowed: "words key=value",
        example: "\"key=value\"",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(version: &str) -> Node {
        Node {
            cluster_name: "k8s-1".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            names: vec!["203.0.113.7".to_owned()],
            version: version.parse().unwrap(),
        }
    }

    fn options(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn options_become_what_k8sd_calls_them_and_unset_ones_are_left_out() {
        let options = options(&json!({
            "bootstrap-datastore": "managed-etcd", "bootstrap-node-taints": "a=b:NoSchedule c:NoExecute",
            "bootstrap-pod-cidr": "10.1.0.0/16,fd01::/108", "bootstrap-service-cidr": "", "dns-enabled": true,
            "dns-service-ip": "", "network-enabled": true, "cluster-annotations": "x=1", "kube-proxy-enabled": "auto",
            "kubelet-extra-args": "v=5 --feature-gate foo- node-ip=1.2.3.4", "datastore-extra-args": "a=b",
            "kube-apiserver-extra-sans": "k8s.example.com",
        }));
        let config = bootstrap(&options, &node("1.33.1")).unwrap();
        assert_eq!(config["datastore-type"], "etcd");
        assert_eq!(config["control-plane-taints"], json!(["a=b:NoSchedule", "c:NoExecute"]));
        assert_eq!(config["pod-cidr"], "10.1.0.0/16,fd01::/108");
        assert_eq!(config.get("service-cidr"), None);
        assert_eq!(config["cluster-config"]["dns"], json!({"enabled": true}));
        assert_eq!(config["cluster-config"]["network"], json!({"enabled": true}));
        assert_eq!(config["cluster-config"]["annotations"], json!({"x": "1"}));
        assert_eq!(
            config["extra-node-kubelet-args"],
            json!({"--v": "5", "--feature-gate": "true", "--foo": null, "--node-ip": "10.0.0.1,fd00::1"})
        );
        assert_eq!(config["extra-node-kube-controller-manager-args"], json!({"--cluster-name": "k8s-1"}));
        assert_eq!(
            config["extra-node-etcd-args"],
            json!({"--a": "b", "--listen-metrics-urls": "http://localhost:2381"})
        );
        assert_eq!(config["extra-sans"], json!(["10.0.0.1", "203.0.113.7", "fd00::1", "k8s.example.com"]));
    }

    #[test]
    fn a_version_gets_only_keys_that_it_knows() {
        let managed = options(&json!({"bootstrap-datastore": "managed-etcd"}));
        assert_eq!(bootstrap(&managed, &node("1.31.3")).unwrap().get("extra-node-etcd-args"), None);
        let off = options(&json!({"kube-proxy-enabled": "False"}));
        let network = |version| Ok(bootstrap(&off, &node(version))?["cluster-config"]["network"].clone());
        assert_eq!(network("1.36.0"), Ok(json!({"kube-proxy-enabled": false})));
        assert_eq!(network("1.35.0").map_err(|bad: BadOption| bad.option), Err("kube-proxy-enabled"));
    }

    #[test]
    fn what_k8sd_would_refuse_is_named_before() {
        for (option, values) in [
            ("bootstrap-datastore", ["etcd", "mysql", "-"]),
            ("bootstrap-node-taints", ["a", "a:Never", "=b:NoSchedule"]),
            ("bootstrap-pod-cidr", ["10.1.0.0", "10.1.0.0/16,10.2.0.0/16", "10.0.0.1/32"]),
            ("cluster-annotations", ["a", "=b", "a="]),
            ("kube-proxy-enabled", ["yes", "1", "true"]),
        ] {
            for value in values {
                let bad = bootstrap(&options(&json!({option: value})), &node("1.32.0")).unwrap_err();
                assert_eq!(bad.option, option, "{value}");
            }
        }
    }

    #[test]
    fn a_join_says_what_concerns_the_node_alone() {
        let config: Value = serde_yaml::from_str(&join(&Map::new(), &node("1.32.0")).unwrap()).unwrap();
        assert_eq!(config.get("cluster-config"), None);
        assert_eq!(config["extra-node-kubelet-args"]["--node-ip"], "10.0.0.1,fd00::1");
    }
}
