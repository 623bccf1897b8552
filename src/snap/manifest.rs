//! `snap_installation.yaml`: which snap the charm's code, or a resource, asks for. Pure.
//!
//! The form is the Python charm's: for each architecture a list of snaps, each from the store (`revision`, `channel`)
//! or from a file (`filename`).

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use serde_yaml::Value;

use super::SNAP;
use super::pin::Pin;
use crate::names::{Channel, Revision};

/// A machine's architecture, in Debian's word for it, which is snapd's and the manifest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Architecture(&'static str);

impl Architecture {
    /// `amd64`.
    pub const AMD64: Self = Self("amd64");

    /// `arm64`.
    pub const ARM64: Self = Self("arm64");

    /// The one that this binary was built for.
    pub fn here() -> Self {
        match std::env::consts::ARCH {
            "x86_64" => Self::AMD64,
            "aarch64" => Self::ARM64,
            "powerpc64" => Self("ppc64el"),
            other => Self(other),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a manifest can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It isn't YAML, or not a mapping of architectures.
    #[error("not a manifest: {0}")]
    Form(String),
    /// It has nothing for this machine.
    #[error("no `{architecture}` in it: add this machine's architecture")]
    NoArchitecture {
        /// The one that is missing.
        architecture: String,
    },
    /// The list isn't one entry long.
    #[error("`{architecture}` lists {count} snaps: list {SNAP} alone")]
    Count {
        /// The architecture.
        architecture: String,
        /// So many are listed.
        count: usize,
    },
    /// A key's value can't be used.
    #[error("`{key}` is {found}: {remedy}")]
    Key {
        /// The key.
        key: &'static str,
        /// What it has.
        found: String,
        /// What to write instead.
        remedy: &'static str,
    },
}

/// One entry, as it is written. What makes no difference here (`dangerous`, `state`) is known, so that it may stand
/// there; a key that isn't known is refused, or a slip of the pen would be no more than ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: Value,
    #[serde(default)]
    install_type: Value,
    #[serde(default)]
    classic: Value,
    #[serde(default)]
    channel: Value,
    #[serde(default)]
    revision: Value,
    #[serde(default)]
    filename: Value,
    #[serde(default)]
    devmode: Value,
    #[serde(default)]
    cohort: Value,
    #[serde(default, rename = "dangerous")]
    _dangerous: Value,
    #[serde(default, rename = "state")]
    _state: Value,
}

/// Reads what a manifest asks for on this architecture; a file is named as it stands there.
pub fn parse(text: &str, architecture: Architecture) -> Result<Pin<PathBuf>, ManifestError> {
    let form = |error: serde_yaml::Error| ManifestError::Form(first_line(&error.to_string()));
    let manifest: Value = serde_yaml::from_str(text).map_err(form)?;
    if !manifest.is_mapping() {
        return Err(ManifestError::Form("it has no architectures".to_owned()));
    }
    let architecture = architecture.to_string();
    let list = match manifest.get(architecture.as_str()) {
        None | Some(Value::Null) => return Err(ManifestError::NoArchitecture { architecture }),
        Some(Value::Sequence(list)) => list,
        Some(_) => return Err(ManifestError::Form(format!("`{architecture}` is no list"))),
    };
    let [entry] = list.as_slice() else {
        return Err(ManifestError::Count { architecture, count: list.len() });
    };
    pin(&serde_yaml::from_value(entry.clone()).map_err(form)?)
}

fn pin(entry: &Entry) -> Result<Pin<PathBuf>, ManifestError> {
    if entry.name.as_str() != Some(SNAP) {
        return Err(wrong("name", &entry.name, "write `name: k8s`"));
    }
    if !matches!(entry.devmode, Value::Null | Value::Bool(false)) {
        return Err(wrong("devmode", &entry.devmode, "leave it out, k8s doesn't run in devmode"));
    }
    if !entry.cohort.is_null() {
        return Err(wrong("cohort", &entry.cohort, "leave it out, and write `revision` instead"));
    }
    let classic = match entry.classic {
        // Manifests of the Python charm for 1.32 and 1.33 don't say it. A snap that needs it not ignores it.
        Value::Null => true,
        Value::Bool(classic) => classic,
        ref other => return Err(wrong("classic", other, "write true or false")),
    };
    match entry.install_type.as_str() {
        Some("store") => store(entry, classic),
        Some("file") => match entry.filename.as_str() {
            Some(name) if !name.is_empty() => Ok(Pin::File { file: name.into(), classic }),
            _ => Err(wrong("filename", &entry.filename, "write the snap file's path")),
        },
        _ => Err(wrong("install-type", &entry.install_type, "write store or file")),
    }
}

fn store(entry: &Entry, classic: bool) -> Result<Pin<PathBuf>, ManifestError> {
    let channel = match &entry.channel {
        Value::Null => None,
        // A number has lost its final zeros: 1.30 is 1.3.
        Value::String(text) => Some(
            text.parse::<Channel>()
                .map_err(|_| wrong("channel", &entry.channel, "write one such as 1.32-classic/stable"))?,
        ),
        other => return Err(wrong("channel", other, "put it in quotes")),
    };
    let revision = match &entry.revision {
        Value::Null => None,
        value => Some(
            match value {
                Value::String(text) => text.parse().ok(),
                Value::Number(number) => number.to_string().parse().ok(),
                _ => None,
            }
            .filter(|revision| matches!(revision, Revision::Store(_)))
            .ok_or_else(|| wrong("revision", value, "write the store's number, such as 1234"))?,
        ),
    };
    match (revision, channel) {
        (Some(revision), channel) => Ok(Pin::Revision { revision, channel, classic }),
        (None, Some(channel)) => Ok(Pin::Channel { channel, classic }),
        (None, None) => Err(wrong("revision", &entry.revision, "write the store's number, or a channel")),
    }
}

fn wrong(key: &'static str, value: &Value, remedy: &'static str) -> ManifestError {
    let found = match value {
        Value::Null => "missing".to_owned(),
        Value::String(text) => format!("`{}`", first_line(text)),
        Value::Bool(flag) => format!("`{flag}`"),
        Value::Number(number) => format!("`{number}`"),
        _ => "no plain value".to_owned(),
    };
    ManifestError::Key { key, found, remedy }
}

/// A text may come from anywhere, and goes into a status.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(entry: &str) -> Result<Pin<PathBuf>, ManifestError> {
        parse(&format!("amd64:\n  - {{{entry}}}\n"), Architecture::AMD64)
    }

    fn key_of(result: Result<Pin<PathBuf>, ManifestError>) -> &'static str {
        match result {
            Err(ManifestError::Key { key, .. }) => key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_charms_own_manifest_pins_a_revision_for_each_architecture() {
        let own = include_str!("../../templates/snap_installation.yaml");
        for architecture in [Architecture::AMD64, Architecture::ARM64] {
            let pin = parse(own, architecture).unwrap();
            assert!(matches!(pin, Pin::Revision { channel: None, classic: true, .. }), "{pin:?}");
        }
    }

    #[test]
    fn all_forms() {
        let revision = Revision::Store(1234);
        let channel: Channel = "1.32-classic/stable".parse().unwrap();
        for (entry, expected) in [
            (
                "name: k8s, install-type: store, revision: 1234, classic: false",
                Pin::Revision { revision, channel: None, classic: false },
            ),
            (
                "name: k8s, install-type: store, revision: '1234', channel: 1.32-classic/stable, state: present",
                Pin::Revision { revision, channel: Some(channel.clone()), classic: true },
            ),
            (
                "name: k8s, install-type: store, channel: 1.32-classic",
                Pin::Channel { channel: channel.clone(), classic: true },
            ),
            (
                "name: k8s, install-type: file, filename: ./k8s_1.snap, dangerous: true, classic: true",
                Pin::File { file: "./k8s_1.snap".into(), classic: true },
            ),
        ] {
            assert_eq!(one(entry), Ok(expected), "{entry}");
        }
    }

    #[test]
    fn a_bad_value_is_named() {
        for (entry, key) in [
            ("install-type: store, revision: 1", "name"),
            ("name: lxd, install-type: store, revision: 1", "name"),
            ("name: k8s, revision: 1", "install-type"),
            ("name: k8s, install-type: snap, revision: 1", "install-type"),
            ("name: k8s, install-type: store", "revision"),
            ("name: k8s, install-type: store, revision: x1", "revision"),
            ("name: k8s, install-type: store, revision: 1.5", "revision"),
            ("name: k8s, install-type: store, revision: -3", "revision"),
            ("name: k8s, install-type: store, revision: [1]", "revision"),
            ("name: k8s, install-type: store, channel: 1.30", "channel"),
            ("name: k8s, install-type: store, channel: a/b/c/d", "channel"),
            ("name: k8s, install-type: store, revision: 1, classic: maybe", "classic"),
            ("name: k8s, install-type: store, revision: 1, devmode: true", "devmode"),
            ("name: k8s, install-type: store, revision: 1, cohort: abc", "cohort"),
            ("name: k8s, install-type: file", "filename"),
        ] {
            assert_eq!(key_of(one(entry)), key, "{entry}");
        }
        let error = one("name: k8s, install-type: store, revison: 1").unwrap_err();
        assert!(error.to_string().contains("`revison`"), "{error}");
    }

    #[test]
    fn a_bad_shape_is_an_error() {
        for text in ["", "- a", "amd64: {}", "amd64: 1", "{", "a: &a [*a]"] {
            assert!(parse(text, Architecture::AMD64).is_err(), "{text}");
        }
        let none = parse("arm64: []", Architecture::AMD64).unwrap_err();
        assert_eq!(none, ManifestError::NoArchitecture { architecture: "amd64".to_owned() });
        let empty = parse("amd64: []", Architecture::AMD64).unwrap_err();
        assert_eq!(empty, ManifestError::Count { architecture: "amd64".to_owned(), count: 0 });
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_gives_a_long_message(text in "(amd64:|  - |name: k8s|[ -~\n\t]|&a|\\*a){0,40}") {
            if let Err(error) = parse(&text, Architecture::AMD64) {
                let message = error.to_string();
                prop_assert!(message.len() < 400 && !message.contains('\n'), "{}", message);
            }
        }

        #[test]
        fn no_value_makes_it_panic(value in "[ -~]{0,20}") {
            for key in ["name", "install-type", "revision", "channel", "classic", "filename"] {
                let _ = one(&format!("name: k8s, install-type: store, revision: 1, {key}: {value}"));
                let _ = one(&format!("{key}: {value}"));
            }
        }
    }
}
