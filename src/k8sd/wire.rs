//! k8sd's answers, as far as the charm looks at them. Unknown fields are ignored, missing ones mean empty or false.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::names::Timestamp;
use crate::rfc3339;

/// The envelope of every answer (lxd `shared/api/response.go`). It may hold a secret: not to be printed.
#[derive(Deserialize)]
pub(super) struct Envelope {
    #[serde(default)]
    pub(super) error: String,
    #[serde(default)]
    pub(super) metadata: Value,
}

/// This node's place, as its k8sd says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeStanding {
    /// In no cluster.
    NotInitialised,
    /// A bootstrap or a join is under way, and may still be undone.
    Entering,
    /// In a cluster, under this name.
    Member(NodeStatus),
}

/// A node's status (k8s-snap-api `NodeStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its address; a control plane's with the port.
    pub address: String,
    /// `control-plane`, `worker` or `unknown`.
    pub cluster_role: String,
    /// Its role in k8sd's own database: `voter`, `stand-by`, `spare`, `PENDING`.
    pub datastore_role: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) status: NodeStatus,
}

/// The cluster's status (k8s-snap-api `ClusterStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterStatus {
    /// Its control planes.
    pub members: Vec<NodeStatus>,
    /// `etcd`, `k8s-dqlite` or `external`.
    pub datastore: String,
    /// Its features by name.
    pub features: BTreeMap<String, Feature>,
}

/// A feature's status (k8s-snap-api `FeatureStatus`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Feature {
    /// Whether the cluster's configuration asks for it.
    #[serde(skip)]
    pub wanted: bool,
    /// Whether its last deployment went well.
    pub enabled: bool,
    /// For people; begins with `Failed to` after a failure.
    pub message: String,
    /// Its version.
    pub version: String,
}

const FEATURES: [&str; 7] =
    ["dns", "network", "load-balancer", "ingress", "gateway", "metrics-server", "local-storage"];

impl ClusterStatus {
    pub(super) fn read(metadata: &Value) -> Result<Self, serde_json::Error> {
        let status = metadata.get("status").unwrap_or(&Value::Null);
        let members = status.get("members").filter(|members| !members.is_null()).cloned();
        let mut features = BTreeMap::new();
        for name in FEATURES {
            if let Some(feature) = status.get(name).filter(|feature| feature.is_object()) {
                let wanted = status["config"][name]["enabled"].as_bool().unwrap_or(true);
                features.insert(name.to_owned(), Feature { wanted, ..Feature::deserialize(feature)? });
            }
        }
        Ok(Self {
            members: members.map(serde_json::from_value).transpose()?.unwrap_or_default(),
            datastore: status["datastore"]["type"].as_str().unwrap_or_default().to_owned(),
            features,
        })
    }

    /// The features that the cluster's configuration asks for and whose last deployment failed: name and message, which
    /// is many lines long where Helm had much to say.
    pub fn failed_features(&self) -> Vec<(String, String)> {
        let failed = |feature: &Feature| feature.wanted && feature.message.starts_with("Failed to");
        let failed = self.features.iter().filter(|(_, feature)| failed(feature));
        failed.map(|(name, feature)| (name.clone(), one_line(&feature.message))).collect()
    }
}

/// A text of k8sd's in one line.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A member of k8sd's own cluster (microcluster `rest/types/cluster.go`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// `voter`, `stand-by`, `spare`, `PENDING`.
    pub role: String,
    /// `ONLINE`, `UNREACHABLE`, `UPGRADING`, ….
    pub status: String,
}

/// A certificate's end (k8s-snap-api `CertificateStatus`).
#[derive(Debug, Deserialize)]
pub(super) struct Certificate {
    pub(super) name: String,
    pub(super) expires: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Certificates {
    certificates: Vec<Certificate>,
    certificate_authorities: Vec<Certificate>,
}

impl Certificates {
    /// Names and ends; an end that can't be read is left out.
    pub(super) fn ends(self) -> Vec<(String, Timestamp)> {
        let all = self.certificates.into_iter().chain(self.certificate_authorities);
        all.filter_map(|certificate| Some((certificate.name, rfc3339::parse(&certificate.expires)?))).collect()
    }
}
