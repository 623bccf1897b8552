//! The kubeconfig: where the API server is, whom it is to be believed, and who we are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::secret::SecretText;

/// Why a kubeconfig can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// There is none.
    #[error("no kubeconfig yet: this node is in no cluster")]
    Absent,
    /// It can't be read.
    #[error("the kubeconfig can't be read")]
    Unreadable(#[source] std::io::Error),
    /// It is empty.
    #[error("the kubeconfig is empty")]
    Empty,
    /// It isn't YAML of this shape.
    #[error("the kubeconfig is not what it should be")]
    Yaml(#[source] serde_yaml::Error),
    /// Something in it is missing or can't be used.
    #[error("the kubeconfig's `{key}` {problem}")]
    Key {
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The certificate or the key in it can't be used.
    #[error("the kubeconfig's certificates can't be used")]
    Certificates(#[source] rustls::Error),
}

/// What a client needs of a kubeconfig.
#[derive(Debug)]
pub(super) struct Access {
    /// `https://10.0.0.1:6443`.
    pub(super) server: String,
    /// The cluster's CA, PEM.
    pub(super) authority: Vec<u8>,
    pub(super) credentials: Credentials,
}

pub(super) enum Credentials {
    /// PEM of the certificate and of its key.
    Certificate {
        certificate: Vec<u8>,
        key: Vec<u8>,
    },
    Token(SecretText),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    current_context: String,
    clusters: Vec<Named>,
    contexts: Vec<Named>,
    users: Vec<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    cluster: Option<Cluster>,
    context: Option<Context>,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority_data: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

/// Reads a kubeconfig's current context.
pub(super) fn read(text: &str) -> Result<Access, KubeconfigError> {
    if text.trim().is_empty() {
        return Err(KubeconfigError::Empty);
    }
    let config: Kubeconfig = serde_yaml::from_str(text).map_err(KubeconfigError::Yaml)?;
    let missing = |key| KubeconfigError::Key { key, problem: "is missing" };
    let named = |list: Vec<Named>, name: &str| list.into_iter().find(|entry| entry.name == name);
    let context = named(config.contexts, &config.current_context).and_then(|entry| entry.context);
    let context = context.ok_or_else(|| missing("current-context"))?;
    let cluster = named(config.clusters, &context.cluster).and_then(|entry| entry.cluster);
    let cluster = cluster.ok_or_else(|| missing("clusters"))?;
    let user = named(config.users, &context.user).and_then(|entry| entry.user).ok_or_else(|| missing("users"))?;
    if !cluster.server.starts_with("https://") {
        return Err(KubeconfigError::Key { key: "server", problem: "is not an https:// address" });
    }
    let credentials = if user.token.is_empty() {
        Credentials::Certificate {
            certificate: decode("client-certificate-data", &user.client_certificate_data)?,
            key: decode("client-key-data", &user.client_key_data)?,
        }
    } else {
        Credentials::Token(SecretText::new(user.token))
    };
    let authority = decode("certificate-authority-data", &cluster.certificate_authority_data)?;
    Ok(Access { server: cluster.server, authority, credentials })
}

fn decode(key: &'static str, text: &str) -> Result<Vec<u8>, KubeconfigError> {
    if text.is_empty() {
        return Err(KubeconfigError::Key { key, problem: "is missing" });
    }
    STANDARD.decode(text.trim()).map_err(|_| KubeconfigError::Key { key, problem: "is not base64" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(server: &str, authority: &str, user: &str) -> String {
        format!(
            "current-context: k8s\ncontexts: [{{name: k8s, context: {{cluster: k8s, user: k8s-user}}}}]\n\
             clusters: [{{name: k8s, cluster: {{server: '{server}', certificate-authority-data: '{authority}'}}}}]\n\
             users: [{{name: k8s-user, user: {{{user}}}}}]\n"
        )
    }

    #[test]
    fn what_is_wrong_with_a_kubeconfig_is_named() {
        let fine = "https://10.0.0.1:6443";
        for (text, says) in [
            (String::new(), "the kubeconfig is empty"),
            (" \n".to_owned(), "the kubeconfig is empty"),
            ("{".to_owned(), "the kubeconfig is not what it should be"),
            ("[]".to_owned(), "the kubeconfig is not what it should be"),
            ("a: 1".to_owned(), "the kubeconfig's `current-context` is missing"),
            (kubeconfig("http://x", "Zg==", "token: t"), "the kubeconfig's `server` is not an https:// address"),
            (kubeconfig(fine, "", "token: t"), "the kubeconfig's `certificate-authority-data` is missing"),
            (kubeconfig(fine, "%", "token: t"), "the kubeconfig's `certificate-authority-data` is not base64"),
            (kubeconfig(fine, "Zg==", ""), "the kubeconfig's `client-certificate-data` is missing"),
        ] {
            assert_eq!(read(&text).unwrap_err().to_string(), says, "{text}");
        }
        let access = read(&kubeconfig(fine, "Zg==", "token: hunter2")).unwrap();
        assert_eq!(access.authority, b"f");
        assert!(!format!("{access:?}").contains("hunter2"));
    }
}
