//! The client of the API server.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, StatusCode};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;

use super::config::{self, Access, Credentials, KubeconfigError};
use super::wire::{self, List, Node, Pod, RawNode, RawPod, RawUpgrade, Upgrade};
use crate::machine::{Clock, Root};

/// Where k8sd writes the administrator's kubeconfig (k8s-snap `src/k8s/pkg/snap/snap.go`, `KubernetesConfigDir`).
const KUBECONFIG: &str = "/etc/kubernetes/admin.conf";

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Why the API server gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// There are no credentials.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// It could not be reached, or its answer was lost.
    #[error("the API server doesn't answer ({doing})")]
    Unreachable {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: reqwest::Error,
    },
    /// It said no.
    #[error("the API server says {status}{} ({doing})", prefixed(message))]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The HTTP status.
        status: StatusCode,
        /// Its own words, in one line, or none.
        message: String,
    },
    /// It answered something else.
    #[error("the API server's answer is not what was expected ({doing})")]
    Answer {
        /// What was being done.
        doing: &'static str,
        /// Where it differs.
        source: serde_json::Error,
    },
}

fn prefixed(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl KubeError {
    /// Whether trying again may help by itself.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Kubeconfig(error) => matches!(error, KubeconfigError::Absent | KubeconfigError::Empty),
            Self::Unreachable { source, .. } => !is_untrusted(source),
            Self::Refused { status, .. } => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Answer { .. } => false,
        }
    }
}

/// Whether the server's certificate was not believed: neither it nor the kubeconfig changes by itself.
fn is_untrusted(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        // What an I/O error wraps is no source of it.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    false
}

/// The API server of this node.
#[derive(Debug)]
pub struct Kube {
    http: reqwest::Client,
    server: String,
}

/// rustls judges certificates by the charm's clock too.
#[derive(Debug)]
struct ByClock(Clock);

impl TimeProvider for ByClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.since_epoch()))
    }
}

impl Kube {
    /// The API server that the administrator's kubeconfig of this machine names.
    pub fn open(root: &Root, clock: &Clock) -> Result<Self, KubeError> {
        let text = match std::fs::read_to_string(root.path(KUBECONFIG)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(KubeconfigError::Absent.into()),
            Err(error) => return Err(KubeconfigError::Unreadable(error).into()),
        };
        Self::from_kubeconfig(&text, clock)
    }

    /// The API server that a kubeconfig names.
    pub fn from_kubeconfig(text: &str, clock: &Clock) -> Result<Self, KubeError> {
        let access = config::read(text)?;
        let unreachable = |source| KubeError::Unreachable { doing: "making its client", source };
        let server = access.server.trim_end_matches('/').to_owned();
        let mut headers = reqwest::header::HeaderMap::new();
        if let Credentials::Token(token) = &access.credentials {
            let bad = |_| KubeconfigError::Key { key: "token", problem: "has characters that no header may have" };
            let mut value =
                reqwest::header::HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(bad)?;
            value.set_sensitive(true);
            headers.insert(reqwest::header::AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(access, clock)?)
            .default_headers(headers)
            .no_proxy()
            // Who we are is for this server alone.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(LIMIT)
            .build()
            .map_err(unreachable)?;
        Ok(Self { http, server })
    }

    /// Whether the API server is ready (`GET /readyz`).
    pub async fn readyz(&self) -> Result<(), KubeError> {
        self.send(Method::GET, "/readyz", "looking whether it is ready").await.map(drop)
    }

    /// All nodes.
    pub async fn nodes(&self) -> Result<Vec<Node>, KubeError> {
        self.list::<RawNode, _>("/api/v1/nodes", "listing the nodes").await
    }

    /// The node of this name, if there is one.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, KubeError> {
        let doing = "looking at a node";
        match self.get::<RawNode>(&format!("/api/v1/nodes/{name}"), doing).await {
            Ok(node) => Ok(Some(node.into())),
            Err(KubeError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The pods of a namespace.
    pub async fn pods(&self, namespace: &str) -> Result<Vec<Pod>, KubeError> {
        self.list::<RawPod, _>(&format!("/api/v1/namespaces/{namespace}/pods"), "listing pods").await
    }

    /// k8sd's records of upgrades; none where this k8sd keeps none.
    pub async fn upgrades(&self) -> Result<Vec<Upgrade>, KubeError> {
        match self.list::<RawUpgrade, _>("/apis/k8sd.io/v1alpha/upgrades", "listing k8sd's upgrades").await {
            Err(KubeError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Deletes k8sd's record of an upgrade. That it is gone already is no error.
    pub async fn delete_upgrade(&self, name: &str) -> Result<(), KubeError> {
        let path = format!("/apis/k8sd.io/v1alpha/upgrades/{name}");
        match self.send(Method::DELETE, &path, "deleting k8sd's record of an upgrade").await {
            Err(KubeError::Refused { status: StatusCode::NOT_FOUND, .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn list<Raw: DeserializeOwned, T: From<Raw>>(
        &self,
        path: &str,
        doing: &'static str,
    ) -> Result<Vec<T>, KubeError> {
        let list: List<Raw> = self.get(path, doing).await?;
        Ok(list.items().into_iter().map(T::from).collect())
    }

    async fn get<A: DeserializeOwned>(&self, path: &str, doing: &'static str) -> Result<A, KubeError> {
        let body = self.send(Method::GET, path, doing).await?;
        serde_json::from_slice(&body).map_err(|source| KubeError::Answer { doing, source })
    }

    async fn send(&self, method: Method, path: &str, doing: &'static str) -> Result<Vec<u8>, KubeError> {
        let unreachable = |source: reqwest::Error| KubeError::Unreachable { doing, source: source.without_url() };
        let request = self.http.request(method, format!("{}{path}", self.server));
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unreachable)?;
        if !status.is_success() {
            return Err(KubeError::Refused { doing, status, message: wire::refusal(&body) });
        }
        Ok(body.to_vec())
    }
}

const AUTHORITY: &str = "certificate-authority-data";

/// TLS with the cluster's CA alone.
fn tls(access: Access, clock: &Clock) -> Result<ClientConfig, KubeconfigError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITY, &access.authority)? {
        roots.add(certificate).map_err(|_| KubeconfigError::Key { key: AUTHORITY, problem: "can't be used" })?;
    }
    let builder = ClientConfig::builder_with_details(provider, Arc::new(ByClock(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(KubeconfigError::Tls)?
        .with_root_certificates(roots);
    match access.credentials {
        Credentials::Token(_) => Ok(builder.with_no_client_auth()),
        Credentials::Certificate { certificate, key } => {
            let chain = certificates("client-certificate-data", &certificate)?;
            let not_pem = |_| KubeconfigError::Key { key: "client-key-data", problem: "is not a key in PEM" };
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(not_pem)?;
            let unfit = |_| KubeconfigError::Key { key: "client-key-data", problem: "is not that of the certificate" };
            builder.with_client_auth_cert(chain, key).map_err(unfit)
        }
    }
}

fn certificates(key: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, KubeconfigError> {
    let not_pem = |_| KubeconfigError::Key { key, problem: "is not a certificate in PEM" };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(not_pem)?;
    if certificates.is_empty() {
        return Err(KubeconfigError::Key { key, problem: "holds no certificate" });
    }
    Ok(certificates)
}
