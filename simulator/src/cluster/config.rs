//! The cluster's configuration as k8sd keeps, merges and shows it, and the status of its features.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::answers::Failure;

/// `network`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Network {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enabled: Option<bool>,
    /// 1.36 and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kube_proxy_enabled: Option<bool>,
}

/// `dns`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Dns {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster_domain: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) service_ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upstream_nameservers: Option<Vec<String>>,
}

/// `ingress`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Ingress {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_tls_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enable_proxy_protocol: Option<bool>,
}

/// `load-balancer`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LoadBalancer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cidrs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l2_mode: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    l2_interfaces: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bgp_mode: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bgp_local_asn: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bgp_peer_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bgp_peer_asn: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bgp_peer_port: Option<u32>,
}

/// `local-storage`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LocalStorage {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    local_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reclaim_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<bool>,
}

/// `gateway`, `metrics-server`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Switch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
}

/// All of it, in the order of k8sd's answers. What isn't set is absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct ClusterConfig {
    pub(super) network: Network,
    pub(super) dns: Dns,
    ingress: Ingress,
    load_balancer: LoadBalancer,
    local_storage: LocalStorage,
    gateway: Switch,
    metrics_server: Switch,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_provider: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

fn keep<T>(new: Option<T>, old: Option<T>) -> Option<T> {
    new.or(old)
}

impl ClusterConfig {
    /// Reads one that has been checked strictly.
    ///
    /// # Errors
    ///
    /// A value that k8sd couldn't take either: a negative number.
    pub(super) fn read(value: &serde_json::Value) -> Result<Self, Failure> {
        if value.is_null() {
            return Ok(Self::default());
        }
        serde_json::from_value(without_nulls(value)).map_err(|error| Failure::new(400, error.to_string()))
    }

    /// This one over an older: an absent key keeps its value, annotations are merged key by key, `-` deletes one.
    pub(super) fn over(self, old: Self) -> Self {
        let mut annotations = old.annotations;
        for (key, value) in self.annotations {
            if value == "-" {
                annotations.remove(&key);
            } else {
                annotations.insert(key, value);
            }
        }
        Self {
            network: Network {
                enabled: keep(self.network.enabled, old.network.enabled),
                kube_proxy_enabled: keep(self.network.kube_proxy_enabled, old.network.kube_proxy_enabled),
            },
            dns: Dns {
                enabled: keep(self.dns.enabled, old.dns.enabled),
                cluster_domain: keep(self.dns.cluster_domain, old.dns.cluster_domain),
                service_ip: keep(self.dns.service_ip, old.dns.service_ip),
                upstream_nameservers: keep(self.dns.upstream_nameservers, old.dns.upstream_nameservers),
            },
            ingress: Ingress {
                enabled: keep(self.ingress.enabled, old.ingress.enabled),
                default_tls_secret: keep(self.ingress.default_tls_secret, old.ingress.default_tls_secret),
                enable_proxy_protocol: keep(self.ingress.enable_proxy_protocol, old.ingress.enable_proxy_protocol),
            },
            load_balancer: self.load_balancer.over(old.load_balancer),
            local_storage: LocalStorage {
                enabled: keep(self.local_storage.enabled, old.local_storage.enabled),
                local_path: keep(self.local_storage.local_path, old.local_storage.local_path),
                reclaim_policy: keep(self.local_storage.reclaim_policy, old.local_storage.reclaim_policy),
                default: keep(self.local_storage.default, old.local_storage.default),
            },
            gateway: Switch { enabled: keep(self.gateway.enabled, old.gateway.enabled) },
            metrics_server: Switch { enabled: keep(self.metrics_server.enabled, old.metrics_server.enabled) },
            cloud_provider: keep(self.cloud_provider, old.cloud_provider),
            annotations,
        }
    }

    /// With k8sd's defaults for what isn't set, as a k8sd of that minor version shows it.
    pub(super) fn with_defaults(self, minor: u64) -> Self {
        let network = self.network.enabled.unwrap_or(false);
        let kube_proxy = (minor >= 36).then(|| self.network.kube_proxy_enabled.unwrap_or(!network));
        let defaults = Self {
            network: Network { enabled: Some(false), kube_proxy_enabled: kube_proxy },
            dns: Dns {
                enabled: Some(false),
                cluster_domain: Some("cluster.local".to_owned()),
                service_ip: None,
                upstream_nameservers: Some(vec!["/etc/resolv.conf".to_owned()]),
            },
            ingress: Ingress {
                enabled: Some(false),
                default_tls_secret: Some(String::new()),
                enable_proxy_protocol: Some(false),
            },
            load_balancer: LoadBalancer::defaults(minor),
            local_storage: LocalStorage {
                enabled: Some(false),
                local_path: Some("/var/snap/k8s/common/rawfile-storage".to_owned()),
                reclaim_policy: Some("Delete".to_owned()),
                default: Some(true),
            },
            gateway: Switch { enabled: Some(false) },
            metrics_server: Switch { enabled: Some(true) },
            cloud_provider: None,
            annotations: BTreeMap::new(),
        };
        let mut config = self.over(defaults);
        if minor < 36 {
            config.network.kube_proxy_enabled = None;
        }
        config
    }

    /// What k8sd checks of a whole configuration.
    ///
    /// # Errors
    ///
    /// The text that it refuses it with.
    pub(super) fn validate(&self) -> Result<(), String> {
        let on = |enabled: Option<bool>| enabled == Some(true);
        if !on(self.network.enabled) {
            for (feature, enabled) in [("ingress", self.ingress.enabled), ("gateway", self.gateway.enabled)] {
                if on(enabled) {
                    return Err(format!("{feature} requires network to be enabled"));
                }
            }
        }
        Ok(())
    }

    /// What k8sd checks of the load balancer's ranges before anything else.
    ///
    /// # Errors
    ///
    /// The text for the first range that isn't one.
    pub(super) fn validate_ranges(&self) -> Result<(), String> {
        let bad = |range: &&String| match range.split_once('-') {
            Some((from, to)) => !is_address(from) || !is_address(to),
            None => !range.split_once('/').is_some_and(|(address, _)| is_address(address)),
        };
        match self.load_balancer.cidrs.iter().flatten().find(bad) {
            None => Ok(()),
            Some(range) => Err(format!(
                "invalid load-balancer.cidrs: load-balancer.cidrs contains an invalid CIDR \"{range}\": \
                 invalid CIDR address: {range}"
            )),
        }
    }

    /// The features with their switches, in the order of k8sd's status.
    pub(super) fn features(&self) -> [(Feature, bool); 7] {
        [
            (Feature::Dns, self.dns.enabled),
            (Feature::Network, self.network.enabled),
            (Feature::LoadBalancer, self.load_balancer.enabled),
            (Feature::Ingress, self.ingress.enabled),
            (Feature::Gateway, self.gateway.enabled),
            (Feature::MetricsServer, self.metrics_server.enabled),
            (Feature::LocalStorage, self.local_storage.enabled),
        ]
        .map(|(feature, enabled)| (feature, enabled == Some(true)))
    }
}

impl LoadBalancer {
    fn defaults(minor: u64) -> Self {
        Self {
            enabled: Some(false),
            cidrs: Some(Vec::new()),
            l2_mode: Some(minor >= 32),
            l2_interfaces: Some(Vec::new()),
            bgp_mode: Some(false),
            bgp_local_asn: Some(0),
            bgp_peer_address: Some(String::new()),
            bgp_peer_asn: Some(0),
            bgp_peer_port: Some(if minor >= 36 { 179 } else { 0 }),
        }
    }

    fn over(self, old: Self) -> Self {
        Self {
            enabled: keep(self.enabled, old.enabled),
            cidrs: keep(self.cidrs, old.cidrs),
            l2_mode: keep(self.l2_mode, old.l2_mode),
            l2_interfaces: keep(self.l2_interfaces, old.l2_interfaces),
            bgp_mode: keep(self.bgp_mode, old.bgp_mode),
            bgp_local_asn: keep(self.bgp_local_asn, old.bgp_local_asn),
            bgp_peer_address: keep(self.bgp_peer_address, old.bgp_peer_address),
            bgp_peer_asn: keep(self.bgp_peer_asn, old.bgp_peer_asn),
            bgp_peer_port: keep(self.bgp_peer_port, old.bgp_peer_port),
        }
    }
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

/// Go takes a null as "not there".
pub(super) fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(object) => object
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// A feature of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `dns`.
    Dns,
    /// `network`.
    Network,
    /// `load-balancer`.
    LoadBalancer,
    /// `ingress`.
    Ingress,
    /// `gateway`.
    Gateway,
    /// `metrics-server`.
    MetricsServer,
    /// `local-storage`.
    LocalStorage,
}

impl Feature {
    /// The version that a snap of that minor deploys (recorded: `cluster.features`; before 1.35 samples from the source).
    fn version(self, minor: u64) -> &'static str {
        let [old, v35, v36] = match self {
            Self::Dns => ["1.12.3-ck0", "1.13.2-ck0", "1.13.2-ck0"],
            Self::Network | Self::Ingress | Self::Gateway => ["1.17.12-ck0", "1.18.4-ck0", "1.19.4-ck0"],
            Self::LoadBalancer => ["v0.14.9-ck0", "v0.15.3-ck2", "v0.15.3-ck2"],
            Self::MetricsServer => ["0.8.0-ck0", "0.8.0-ck4", "0.8.0-ck4"],
            Self::LocalStorage => ["0.8.2-ck0", "0.8.3-ck2", "0.8.3-ck2"],
        };
        match minor {
            ..=34 => old,
            35 => v35,
            36.. => v36,
        }
    }
}

/// What k8sd says of a feature.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct FeatureStatus {
    enabled: bool,
    message: String,
    version: &'static str,
    updated_at: String,
}

/// A cluster address for the DNS service, once it's deployed.
pub(super) const DNS_ADDRESS: &str = "10.152.183.10";

impl FeatureStatus {
    /// Before the feature's first report.
    pub(super) fn unreported() -> Self {
        Self { enabled: false, message: String::new(), version: "", updated_at: "0001-01-01T00:00:00Z".to_owned() }
    }

    /// After a deployment that went well.
    pub(super) fn applied(
        feature: Feature,
        enabled: bool,
        config: &ClusterConfig,
        minor: u64,
        updated_at: &str,
    ) -> Self {
        let path = config.local_storage.local_path.as_deref().unwrap_or("/var/snap/k8s/common/rawfile-storage");
        let address = config.dns.service_ip.as_deref().unwrap_or(DNS_ADDRESS);
        let message = match feature {
            _ if !enabled => "disabled".to_owned(),
            Feature::Dns => format!("enabled at {address}"),
            Feature::LocalStorage => format!("enabled at {path}"),
            Feature::LoadBalancer if config.load_balancer.bgp_mode == Some(true) => "enabled, BGP mode".to_owned(),
            Feature::LoadBalancer => "enabled, L2 mode".to_owned(),
            _ => "enabled".to_owned(),
        };
        Self { enabled, message, version: feature.version(minor), updated_at: updated_at.to_owned() }
    }

    /// After a deployment that failed.
    pub(super) fn failed(mut self, message: &str) -> Self {
        self.enabled = false;
        message.clone_into(&mut self.message);
        self
    }
}
