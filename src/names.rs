//! The words that everything else is said in: units, revisions, channels, versions, instants.
//!
//! Pure values, parsed once at the edge. Nothing here reads a clock, a file or the environment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a name could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not {expected}")]
pub struct NameError {
    /// The text as it was found.
    pub value: String,
    /// What it should have been, with an example.
    pub expected: &'static str,
}

fn name_error(value: &str, expected: &'static str) -> NameError {
    NameError { value: value.to_owned(), expected }
}

/// A Juju unit, `k8s/0`. Ordered by application, then by number (so `k8s/10` comes after `k8s/9`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitName {
    application: String,
    number: u32,
}

impl UnitName {
    /// The unit `application/number`.
    pub fn new(application: impl Into<String>, number: u32) -> Self {
        Self { application: application.into(), number }
    }

    /// The application's name, `k8s`.
    pub fn application(&self) -> &str {
        &self.application
    }

    /// The unit's number within its application; never used twice.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.application, self.number)
    }
}

impl FromStr for UnitName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || name_error(text, "a unit's name such as `k8s/0`");
        let (application, number) = text.split_once('/').ok_or_else(bad)?;
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let canonical = number == "0" || !number.starts_with('0');
        if application.is_empty() || !digits || !canonical {
            return Err(bad());
        }
        Ok(Self { application: application.to_owned(), number: number.parse().map_err(|_| bad())? })
    }
}

/// A snap's revision: from the store (`1234`) or installed from a file (`x2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// Installed from a file; snapd counts these per machine, so they say nothing about the content.
    Local(u32),
    /// The store's number.
    Store(u32),
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(number) => write!(f, "{number}"),
            Self::Local(number) => write!(f, "x{number}"),
        }
    }
}

impl FromStr for Revision {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || name_error(text, "a snap revision such as `1234` or `x1`");
        let (local, digits) = match text.strip_prefix('x') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let number = digits.parse().map_err(|_| bad())?;
        if number == 0 {
            return Err(bad());
        }
        Ok(if local { Self::Local(number) } else { Self::Store(number) })
    }
}

/// A snap channel, normalised: `1.32-classic/stable`, `latest/edge`, `1.32/stable/fix`.
///
/// `stable` alone is `latest/stable`, `1.32` alone is `1.32/stable`, as snapd has it
/// (snapd `snap/channel/channel.go`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Channel {
    track: String,
    risk: Risk,
    branch: Option<String>,
}

/// How risky a channel is, in the store's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words say it")]
pub enum Risk {
    Stable,
    Candidate,
    Beta,
    Edge,
}

impl Risk {
    fn word(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Candidate => "candidate",
            Self::Beta => "beta",
            Self::Edge => "edge",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Stable, Self::Candidate, Self::Beta, Self::Edge].into_iter().find(|risk| risk.word() == word)
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.track, self.risk.word())?;
        match &self.branch {
            Some(branch) => write!(f, "/{branch}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Channel {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bad = || name_error(text, "a snap channel such as `1.32-classic/stable`");
        let parts: Vec<&str> = text.split('/').collect();
        if parts.iter().any(|part| part.is_empty() || part.contains(char::is_whitespace)) {
            return Err(bad());
        }
        let channel = |track: &str, risk, branch: Option<&str>| Self {
            track: track.to_owned(),
            risk,
            branch: branch.map(str::to_owned),
        };
        match parts[..] {
            [one] => Ok(match Risk::parse(one) {
                Some(risk) => channel("latest", risk, None),
                None => channel(one, Risk::Stable, None),
            }),
            [first, second] => match (Risk::parse(first), Risk::parse(second)) {
                (None, Some(risk)) => Ok(channel(first, risk, None)),
                (Some(risk), _) => Ok(channel("latest", risk, Some(second))),
                (None, None) => Err(bad()),
            },
            [track, risk, branch] => Ok(channel(track, Risk::parse(risk).ok_or_else(bad)?, Some(branch))),
            _ => Err(bad()),
        }
    }
}

/// A Kubernetes version, `1.32.1`. Read with or without a leading `v`, and with or without a patch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion(semver::Version);

impl KubernetesVersion {
    /// Major and minor, `(1, 32)`.
    pub fn minor(&self) -> (u64, u64) {
        (self.0.major, self.0.minor)
    }

    /// The whole version, for constraints.
    pub fn semver(&self) -> &semver::Version {
        &self.0
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for KubernetesVersion {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        let padded = if bare.matches('.').count() == 1 { format!("{bare}.0") } else { bare.to_owned() };
        semver::Version::parse(&padded).map(Self).map_err(|_| name_error(text, "a Kubernetes version such as `1.32.1`"))
    }
}

macro_rules! serde_as_text {
    ($($name:ty),*) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(UnitName, Revision, Channel, KubernetesVersion);

/// An instant: seconds since the Unix epoch, UTC.
///
/// Seconds are what the protocol speaks of (`since`, timeouts); how it is written is the edge's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Whole seconds from `earlier` until this instant; 0 if it isn't later.
    pub fn seconds_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names() {
        let unit: UnitName = "k8s-worker/12".parse().unwrap();
        assert_eq!((unit.application(), unit.number()), ("k8s-worker", 12));
        assert!(UnitName::new("k8s", 9) < UnitName::new("k8s", 10));
        for bad in ["", "k8s", "k8s/", "/0", "k8s/01", "k8s/-1", "k8s/a", "k8s/0/1", "k8s/99999999999"] {
            assert!(bad.parse::<UnitName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn revisions() {
        assert_eq!("1234".parse(), Ok(Revision::Store(1234)));
        assert_eq!("x2".parse::<Revision>().unwrap().to_string(), "x2");
        for bad in ["", "x", "0", "x0", "-1", "1.2", "xx1"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad}");
        }
    }

    #[test]
    fn channels_are_normalised_as_snapd_does() {
        for (text, full) in [
            ("stable", "latest/stable"),
            ("1.32-classic", "1.32-classic/stable"),
            ("1.32-classic/edge", "1.32-classic/edge"),
            ("edge/fix", "latest/edge/fix"),
            ("1.32/beta/fix", "1.32/beta/fix"),
        ] {
            assert_eq!(text.parse::<Channel>().unwrap().to_string(), full);
        }
        for bad in ["", "a/b", "a/b/c/d", "1.32/", "/stable", "1 2/stable"] {
            assert!(bad.parse::<Channel>().is_err(), "{bad}");
        }
    }

    #[test]
    fn versions() {
        let version: KubernetesVersion = "v1.32.1".parse().unwrap();
        assert_eq!(version.to_string(), "1.32.1");
        assert_eq!("1.32".parse::<KubernetesVersion>().unwrap().to_string(), "1.32.0");
        assert!("1.9.0".parse::<KubernetesVersion>().unwrap() < "1.10.0".parse().unwrap());
        assert!("latest".parse::<KubernetesVersion>().is_err());
    }
}
