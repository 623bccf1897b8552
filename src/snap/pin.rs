//! What this unit's snap should be, and whether it is.

use std::io;
use std::path::{Path, PathBuf};

use super::hashes::{Hashes, Sha256};
use super::manifest::{self, Architecture, ManifestError};
use super::resource::{self, Content, Resource, ResourceError};
use super::wire::Snap;
use crate::machine::root::Root;
use crate::names::{Channel, KubernetesVersion, Revision};
use crate::upgrade::values::Target;

/// The snap that is asked for. `F` is what is known of a file: its name in a manifest, or the file itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin<F = SnapFile> {
    /// A revision of the store.
    Revision {
        /// It.
        revision: Revision,
        /// The channel to follow meanwhile, if one is named.
        channel: Option<Channel>,
        /// Whether it may run unconfined.
        classic: bool,
    },
    /// Whatever is in a channel.
    Channel {
        /// It.
        channel: Channel,
        /// Whether it may run unconfined.
        classic: bool,
    },
    /// A file that no store has signed.
    File {
        /// It.
        file: F,
        /// Whether it may run unconfined.
        classic: bool,
    },
}

/// A snap's file on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub sha256: Sha256,
}

impl<F> Pin<F> {
    /// The revision that it names, if it names one.
    pub fn revision(&self) -> Option<Revision> {
        match self {
            Self::Revision { revision, .. } => Some(*revision),
            Self::Channel { .. } | Self::File { .. } => None,
        }
    }

    fn with_file<G, E>(self, find: impl FnOnce(F) -> Result<G, E>) -> Result<Pin<G>, E> {
        Ok(match self {
            Self::Revision { revision, channel, classic } => Pin::Revision { revision, channel, classic },
            Self::Channel { channel, classic } => Pin::Channel { channel, classic },
            Self::File { file, classic } => Pin::File { file: find(file)?, classic },
        })
    }
}

/// Whether the installed snap satisfies the pin.
///
/// `content` is the hash of the file that the snap is mounted from, for a pin that is a file: local revisions are
/// counted per machine, `x1` says nothing.
pub fn at_pin(pin: &Pin, snap: &Snap, content: Option<&Sha256>) -> bool {
    match pin {
        Pin::Revision { revision, .. } => snap.revision == *revision,
        Pin::Channel { channel, .. } => {
            matches!(snap.revision, Revision::Store(_)) && snap.tracking_channel.as_ref() == Some(channel)
        }
        Pin::File { file, .. } => content == Some(&file.sha256),
    }
}

/// The pin, and the name that it has among the units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What is asked for.
    pub pin: Pin,
    /// The version that the charm's code declares, and the hash of the whole manifest or resource.
    pub target: Target,
}

/// Where a unit finds what it wants.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The text of the charm's own `templates/snap_installation.yaml`.
    pub manifest: &'a str,
    /// The version that the charm's `templates/dependencies.yaml` declares for `k8s_service`.
    pub version: &'a KubernetesVersion,
    /// The file of the resource `snap-installation`, if one was attached.
    pub resource: Option<&'a Path>,
    /// A directory for what was in the resource; nothing else is in it, and nothing outside is written.
    pub unpacked: &'a Path,
    /// The hashes of large files.
    pub hashes: &'a Hashes,
    /// The machine's root.
    pub root: &'a Root,
    /// The machine's architecture.
    pub architecture: Architecture,
}

/// Why it isn't known what is asked for; each stays until somebody acts.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The charm's own manifest.
    #[error("the charm's snap_installation.yaml: {0}")]
    Own(#[source] ManifestError),
    /// The resource.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The manifest in the resource.
    #[error("resource snap-installation: snap_installation.yaml: {0}")]
    Attached(#[source] ManifestError),
    /// The file that a manifest names.
    #[error("`filename` {}: {source}", path.display())]
    File {
        /// As it is named.
        path: PathBuf,
        /// Why it can't be read.
        source: io::Error,
    },
}

impl Wanted {
    /// Reads what is asked for: the resource if there is one that isn't empty, otherwise the charm's own manifest.
    pub fn read(sources: &Sources<'_>) -> Result<Self, PinError> {
        let resource = resource::read(sources.resource, sources.unpacked, sources.hashes)?;
        let (pin, hash, attached) = match resource {
            None => {
                let pin = manifest::parse(sources.manifest, sources.architecture).map_err(PinError::Own)?;
                (pin, Sha256::of(sources.manifest.as_bytes()), None)
            }
            Some(Resource { sha256, content: Content::Manifest { text, snap } }) => {
                let pin = manifest::parse(&text, sources.architecture).map_err(PinError::Attached)?;
                (pin, sha256, snap)
            }
            // As the Python charm has it: a snap alone is installed as classic.
            Some(Resource { sha256, content: Content::Snap(snap) }) => {
                (Pin::File { file: snap.clone(), classic: true }, sha256, Some(snap))
            }
        };
        let pin = pin.with_file(|name| find_file(sources, name, attached))?;
        Ok(Self { pin, target: Target { version: sources.version.clone(), hash: hash.short().to_owned() } })
    }
}

/// A relative name is that of the snap in the resource; an absolute one is a path of the machine.
fn find_file(sources: &Sources<'_>, name: PathBuf, attached: Option<PathBuf>) -> Result<SnapFile, PinError> {
    let path = match attached {
        Some(attached) if attached.file_name() == name.file_name() => attached,
        _ if name.is_absolute() => sources.root.path(&name),
        _ => {
            let source = io::Error::new(io::ErrorKind::NotFound, "neither an absolute path nor a snap in the resource");
            return Err(PinError::File { path: name, source });
        }
    };
    match sources.hashes.of_file(&path) {
        Ok(sha256) => Ok(SnapFile { path, sha256 }),
        Err(source) => Err(PinError::File { path: name, source }),
    }
}
