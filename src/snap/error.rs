//! Why snapd didn't do what was asked, in a line that an admin reads in `juju status`.

use std::path::PathBuf;

use serde_json::Value;

use super::wire::Refusal;
use crate::unix_http::TransportError;

/// snapd's error kinds that pass by themselves (snapd `client/errors.go`): what was found is out of date, or
/// something is on its way. All others, unknown ones too, stay until somebody acts.
const TRANSIENT_KINDS: [&str; 9] = [
    "snap-change-conflict",
    "snap-already-installed",
    "snap-not-installed",
    "snap-no-update-available",
    "network-timeout",
    "dns-failure",
    "daemon-restart",
    "system-restart",
    "quota-change-conflict",
];

/// What snapd says, without a kind, of a store that can't be reached now, of a change in progress, or of a snapd that
/// isn't seeded yet (Go's `net` errors, snapd `store/store.go`, `overlord/snapstate/conflict.go`).
const TRANSIENT_TEXTS: [&str; 10] = [
    "dial tcp",
    "persistent network error",
    "i/o timeout",
    "TLS handshake timeout",
    "Client.Timeout exceeded",
    "connection reset by peer",
    "too many requests",
    "try again later",
    "change in progress",
    "too early for operation",
];

/// Why a call to snapd failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapdError {
    /// No answer came.
    #[error("snapd doesn't answer ({doing}): {source}")]
    Transport {
        /// What was being done, `refresh snap k8s`.
        doing: String,
        /// Why there is no answer.
        source: TransportError,
    },
    /// snapd answered no.
    #[error("{}", refusal(doing, kind.as_deref(), message, value))]
    Refused {
        /// What was being done.
        doing: String,
        /// The HTTP status.
        status: u16,
        /// snapd's word for it, `snap-change-conflict`; many refusals have none.
        kind: Option<String>,
        /// snapd's own text.
        message: String,
        /// What the kind's text needs to know.
        value: Value,
    },
    /// The answer isn't one of snapd's.
    #[error("snapd's answer can't be read ({doing}, HTTP {status}): {cause}")]
    Unreadable {
        /// What was being done.
        doing: String,
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        cause: String,
    },
    /// The snap's file can't be read.
    #[error("cannot read the snap's file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl SnapdError {
    pub(super) fn refused(doing: &str, status: u16, refusal: Refusal) -> Self {
        let Refusal { message, kind, value } = refusal;
        Self::Refused { doing: doing.to_owned(), status, kind, message, value }
    }

    /// Whether the same call may succeed later, with nobody doing anything about it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Transport { .. } => true,
            Self::Refused { status, kind: Some(kind), .. } => {
                TRANSIENT_KINDS.contains(&kind.as_str()) || is_transient_status(*status)
            }
            Self::Refused { status, kind: None, message, .. } => {
                is_transient_status(*status)
                    || TRANSIENT_TEXTS.iter().any(|text| message.contains(text))
                    || store_status(message).is_some_and(is_transient_status)
            }
            Self::Unreadable { status, .. } => is_transient_status(*status),
            Self::File { .. } => false,
        }
    }

    /// Whether snapd has this kind of refusal, `snap-not-found`.
    pub(super) fn has_kind(&self, expected: &str) -> bool {
        matches!(self, Self::Refused { kind: Some(kind), .. } if kind == expected)
    }
}

fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// The store's HTTP status in `got unexpected HTTP status code 503 via POST to …`.
fn store_status(message: &str) -> Option<u16> {
    let (_, rest) = message.split_once("HTTP status code ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn refusal(doing: &str, kind: Option<&str>, message: &str, value: &Value) -> String {
    let said = one_line(message);
    match kind {
        Some("snap-change-conflict") => format!("snapd is busy with the snap ({said})"),
        Some("snap-channel-not-available") => match value.get("channel").and_then(Value::as_str) {
            Some(channel) => format!("the store has no channel {channel} of the snap{}", releases(value)),
            None => format!("the store has no such channel of the snap: {said}"),
        },
        Some("snap-revision-not-available") => {
            format!("the store has no such revision of the snap for this machine ({doing})")
        }
        Some("snap-architecture-not-available") => {
            format!("the store has the snap not for this machine's architecture{}", releases(value))
        }
        Some("snap-needs-classic") => "the snap needs classic confinement: set `classic: true` for it".to_owned(),
        // Seen of 2.57.6; 2.68.3 does it.
        Some("snap-local") => {
            "the snap was installed from a file, and this snapd is too old to go from there to a revision: update snapd"
                .to_owned()
        }
        Some("login-required") => format!("snapd lets only root do this ({doing})"),
        _ => format!("snapd can't {doing}: {said}"),
    }
}

/// The channels that there are, `; there are 1.31-classic/stable, 1.32-classic/stable`.
fn releases(value: &Value) -> String {
    let of_release = |release: &Value| {
        let field = |name| release.get(name).and_then(Value::as_str).map(str::to_owned);
        field("channel").or_else(|| field("architecture"))
    };
    let mut names: Vec<String> =
        value.get("releases").and_then(Value::as_array).into_iter().flatten().filter_map(of_release).collect();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("; there are {}", names.join(", ")) }
}

/// snapd's text on one line, without the queries of its URLs: they say nothing to an admin, and a download's query may
/// hold a token.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().map(without_query).collect::<Vec<_>>().join(" ")
}

fn without_query(word: &str) -> String {
    let Some((before, query)) = word.split_once('?').filter(|(before, _)| before.contains("://")) else {
        return word.to_owned();
    };
    let after: String = query.chars().skip_while(|c| !matches!(c, '"' | '\'' | ')')).collect();
    format!("{before}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, kind: Option<&str>, message: &str) -> SnapdError {
        SnapdError::Refused {
            doing: "refresh snap k8s".to_owned(),
            status,
            kind: kind.map(str::to_owned),
            message: message.to_owned(),
            value: Value::Null,
        }
    }

    #[test]
    fn what_passes_by_itself() {
        for (transient, status, kind, message) in [
            (true, 409, Some("snap-change-conflict"), ""),
            (true, 400, Some("network-timeout"), ""),
            (false, 404, Some("snap-revision-not-available"), ""),
            (false, 404, Some("snap-architecture-not-available"), ""),
            (false, 400, Some("insufficient-disk-space"), ""),
            (false, 400, Some("a-kind-of-the-future"), "dial tcp"),
            (false, 400, None, "something new"),
            (true, 503, None, "something new"),
            (true, 400, None, "too early for operation, device not yet seeded or device model not acknowledged"),
            (true, 400, None, "cannot install \"k8s\": got unexpected HTTP status code 429 via POST to \"x\""),
            (true, 400, None, "got unexpected HTTP status code 502 via GET to \"x\""),
            (false, 400, None, "got unexpected HTTP status code 403 via GET to \"x\""),
            (false, 400, None, "got unexpected HTTP status code "),
        ] {
            assert_eq!(refused(status, kind, message).is_transient(), transient, "{status} {kind:?} {message}");
        }
    }

    #[test]
    fn texts_are_one_line_and_hold_no_query() {
        let error = refused(400, None, "Get \"https://x/y?token=s3cret&a=b\":\n  dial tcp: no such host");
        assert_eq!(error.to_string(), "snapd can't refresh snap k8s: Get \"https://x/y\": dial tcp: no such host");
        assert_eq!(one_line("why? because"), "why? because");
    }
}
