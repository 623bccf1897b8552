//! The kubeconfig: where the API server is, whom it is to be believed, and who we are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde_yaml::Value;

use crate::secret::SecretText;

/// What mends it: k8sd knows what k8sd wrote (k8s-snap `src/k8s/cmd/k8s/k8s_config.go`).
const REMEDY: &str = "Write it anew: k8s config > /etc/kubernetes/admin.conf";

/// Why a kubeconfig can't be used. Its values are not told: there are keys and tokens among them.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// There is none.
    #[error("no kubeconfig yet: this node is in no cluster")]
    Absent,
    /// It can't be read.
    #[error("the kubeconfig can't be read")]
    Unreadable(#[source] std::io::Error),
    /// It is empty.
    #[error("the kubeconfig is empty. {REMEDY}")]
    Empty,
    /// It isn't YAML.
    #[error("the kubeconfig is not YAML (line {line}). {REMEDY}")]
    Yaml {
        /// Where that is seen.
        line: usize,
    },
    /// Something in it is missing or can't be used.
    #[error("the kubeconfig's `{key}` {problem}. {REMEDY}")]
    Key {
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[source] rustls::Error),
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

fn bad(key: &'static str, problem: &'static str) -> KubeconfigError {
    KubeconfigError::Key { key, problem }
}

/// Reads a kubeconfig's current context.
pub(super) fn read(text: &str) -> Result<Access, KubeconfigError> {
    if text.trim().is_empty() {
        return Err(KubeconfigError::Empty);
    }
    let config: Value = serde_yaml::from_str(text)
        .map_err(|error| KubeconfigError::Yaml { line: error.location().map_or(1, |place| place.line()) })?;
    let context = entry(&config, "contexts", "context", word(&config, "current-context")?)?;
    let cluster = entry(&config, "clusters", "cluster", word(context, "cluster")?)?;
    let user = entry(&config, "users", "user", word(context, "user")?)?;
    let server = word(cluster, "server")?;
    if !Url::parse(server).is_ok_and(|url| url.scheme() == "https" && url.has_host()) {
        return Err(bad("server", "is not an https:// address"));
    }
    let credentials = if user.get("token").is_some() {
        Credentials::Token(SecretText::new(word(user, "token")?.to_owned()))
    } else {
        Credentials::Certificate {
            certificate: decode(user, "client-certificate-data")?,
            key: decode(user, "client-key-data")?,
        }
    };
    Ok(Access { server: server.to_owned(), authority: decode(cluster, "certificate-authority-data")?, credentials })
}

/// The entry of this name in one of the lists, and what it holds.
fn entry<'a>(
    config: &'a Value,
    list: &'static str,
    kind: &'static str,
    name: &str,
) -> Result<&'a Value, KubeconfigError> {
    let entries = config.get(list).ok_or_else(|| bad(list, "is missing"))?;
    let entries = entries.as_sequence().ok_or_else(|| bad(list, "is not a list"))?;
    let found = entries.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
    found.and_then(|entry| entry.get(kind)).ok_or_else(|| bad(list, "lacks what the current context names"))
}

fn word<'a>(map: &'a Value, key: &'static str) -> Result<&'a str, KubeconfigError> {
    match map.get(key) {
        None | Some(Value::Null) => Err(bad(key, "is missing")),
        Some(Value::String(text)) if text.trim().is_empty() => Err(bad(key, "is empty")),
        Some(Value::String(text)) => Ok(text.trim()),
        Some(_) => Err(bad(key, "is not a text")),
    }
}

/// Base64, which may be folded into lines.
fn decode(map: &Value, key: &'static str) -> Result<Vec<u8>, KubeconfigError> {
    let text: String = word(map, key)?.split_whitespace().collect();
    STANDARD.decode(text).map_err(|_| bad(key, "is not base64"))
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
        let with = |what: &str, instead: &str| kubeconfig(fine, "Zg==", "token: t").replace(what, instead);
        for (text, says) in [
            (String::new(), " is empty"),
            (" \n".to_owned(), " is empty"),
            ("a: 1\nb: {".to_owned(), " is not YAML (line 3)"),
            ("\u{0}".to_owned(), " is not YAML (line 1)"),
            ("hunter2".to_owned(), "'s `current-context` is missing"),
            ("[]".to_owned(), "'s `current-context` is missing"),
            ("current-context: {a: hunter2}".to_owned(), "'s `current-context` is not a text"),
            ("current-context: ''".to_owned(), "'s `current-context` is empty"),
            ("current-context: k8s".to_owned(), "'s `contexts` is missing"),
            (
                with("current-context: k8s", "current-context: other"),
                "'s `contexts` lacks what the current context names",
            ),
            (with("cluster: k8s,", "cluster: other,"), "'s `clusters` lacks what the current context names"),
            (with("clusters: [", "clusters: 7 # "), "'s `clusters` is not a list"),
            (with("user: k8s-user", "user: other"), "'s `users` lacks what the current context names"),
            (with("user: {token: t}", "user: hunter2"), "'s `client-certificate-data` is missing"),
            (with("token: t", "token: [hunter2]"), "'s `token` is not a text"),
            (with("token: t", "token: ''"), "'s `token` is empty"),
            (kubeconfig("http://x", "Zg==", "token: t"), "'s `server` is not an https:// address"),
            (kubeconfig("https://", "Zg==", "token: t"), "'s `server` is not an https:// address"),
            (kubeconfig("10.0.0.1:6443", "Zg==", "token: t"), "'s `server` is not an https:// address"),
            (kubeconfig(fine, "", "token: t"), "'s `certificate-authority-data` is empty"),
            (kubeconfig(fine, "%", "token: t"), "'s `certificate-authority-data` is not base64"),
            (kubeconfig(fine, "Zg==", ""), "'s `client-certificate-data` is missing"),
            (kubeconfig(fine, "Zg==", "client-certificate-data: Zg=="), "'s `client-key-data` is missing"),
            (
                kubeconfig(fine, "Zg==", "client-certificate-data: Zg==, client-key-data: hunter2!"),
                "'s `client-key-data` is not base64",
            ),
        ] {
            let error = read(&text).unwrap_err();
            let told = format!("{error} {error:?} {}", crate::error_text::with_causes(&error));
            assert!(told.starts_with(&format!("the kubeconfig{says}. ")), "{text}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
            assert!(told.contains("k8s config > /etc/kubernetes/admin.conf"), "{told}");
        }
    }

    #[test]
    fn the_current_context_is_what_counts() {
        let text = kubeconfig("https://10.0.0.1:6443", "Z\n\n  g==", "token: hunter2");
        let access = read(&text).unwrap();
        assert_eq!((access.server.as_str(), access.authority.as_slice()), ("https://10.0.0.1:6443", &b"f"[..]));
        assert!(matches!(&access.credentials, Credentials::Token(token) if token.expose() == "hunter2"));
        assert!(!format!("{access:?}").contains("hunter2"));
        let two = text.replace("clusters: [", "clusters: [{name: other, cluster: {server: 'https://10.0.0.9'}}, ");
        assert_ne!(two, text);
        assert_eq!(read(&two).unwrap().server, "https://10.0.0.1:6443");
    }
}
