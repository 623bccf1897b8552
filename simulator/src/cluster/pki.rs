//! A cluster's certificates: two authorities, as k8sd makes them, a certificate for each API server, one for the admin.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ::time::{Duration, OffsetDateTime};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::time::EPOCH;

/// k8sd's certificates are good for 20 years.
const YEARS: i64 = 20;
/// Certificates begin this long before the rehearsal: whoever checks them by the host's clock, not by simulated time,
/// finds them good too.
const YEARS_BEFORE: i64 = 6;

/// What a machine's API server needs to speak TLS.
#[derive(Clone)]
pub struct TlsMaterial {
    /// The server's certificate, PEM.
    pub certificate_chain_pem: String,
    /// Its private key, PEM (PKCS#8).
    pub key_pem: String,
    /// The authority of client certificates, PEM.
    pub client_ca_pem: String,
    /// Where it listens.
    pub address: SocketAddr,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A certificate with its private key.
#[derive(Clone)]
pub(super) struct Certified {
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
}

/// The certificates of one cluster.
pub(super) struct Pki {
    server_ca: CertifiedIssuer<'static, KeyPair>,
    client_ca: CertifiedIssuer<'static, KeyPair>,
    admin: Certified,
}

impl Pki {
    /// Makes two authorities and the admin's certificate.
    pub(super) fn new() -> Result<Self, Error> {
        let server_ca = authority("kubernetes-ca")?;
        let client_ca = authority("kubernetes-ca-client")?;
        let admin = leaf(&client_ca, "kubernetes-admin", Some("system:masters"), Vec::new())?;
        Ok(Self { server_ca, client_ca, admin })
    }

    /// Makes the certificate of an API server.
    pub(super) fn server(&self, hostname: &str, address: IpAddr) -> Result<Certified, Error> {
        let mut names = CertificateParams::new(vec![hostname.to_owned(), "kubernetes".to_owned()])?.subject_alt_names;
        names.push(SanType::IpAddress(address));
        if address != Ipv4Addr::LOCALHOST {
            names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        }
        leaf(&self.server_ca, "kube-apiserver", None, names)
    }

    /// What an API server needs.
    pub(super) fn tls(&self, server: &Certified, address: SocketAddr) -> TlsMaterial {
        TlsMaterial {
            certificate_chain_pem: server.certificate_pem.clone(),
            key_pem: server.key_pem.clone(),
            client_ca_pem: self.client_ca.pem(),
            address,
        }
    }

    /// The admin's kubeconfig as k8sd writes it (recorded: `kubeconfig`); `https://` is put before a server without scheme.
    pub(super) fn kubeconfig(&self, server: &str) -> String {
        let scheme = if server.contains("://") { "" } else { "https://" };
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: {scheme}{server}\n  \
             name: k8s\ncontexts:\n- context:\n    cluster: k8s\n    user: k8s-user\n  name: k8s\ncurrent-context: k8s\n\
             kind: Config\nusers:\n- name: k8s-user\n  user:\n    client-certificate-data: {certificate}\n    \
             client-key-data: {key}\n",
            ca = BASE64.encode(self.server_ca.pem()),
            certificate = BASE64.encode(&self.admin.certificate_pem),
            key = BASE64.encode(&self.admin.key_pem),
        )
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, Error> {
    let mut params = dated(CertificateParams::new(Vec::new())?);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn leaf(
    issuer: &CertifiedIssuer<'static, KeyPair>,
    name: &str,
    organisation: Option<&str>,
    server_names: Vec<SanType>,
) -> Result<Certified, Error> {
    let mut params = dated(CertificateParams::new(Vec::new())?);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![match server_names.as_slice() {
        [] => ExtendedKeyUsagePurpose::ClientAuth,
        _ => ExtendedKeyUsagePurpose::ServerAuth,
    }];
    params.subject_alt_names = server_names;
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok(Certified { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
}

fn dated(mut params: CertificateParams) -> CertificateParams {
    let epoch = OffsetDateTime::UNIX_EPOCH + Duration::seconds(EPOCH);
    params.not_before = epoch - Duration::days(365 * YEARS_BEFORE);
    params.not_after = epoch + Duration::days(365 * YEARS);
    params
}
