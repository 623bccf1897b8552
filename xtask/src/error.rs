//! What can go wrong while a charm is made or taken apart.

use std::io;
use std::path::{Path, PathBuf};

/// Why a charm could not be built, laid out, packed or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// A file or directory could not be read, written or made.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was being done to it.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The repository lacks a file that every charm has.
    #[error("{} is missing: no charm is complete without it", path.display())]
    MissingMember {
        /// Where it should be.
        path: PathBuf,
    },
    /// A file is not YAML, or lacks what it must say.
    #[error("{} is not what it should be: {expected}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// What it must hold.
        expected: &'static str,
        /// Where it is not YAML; none if it is YAML of another shape.
        #[source]
        source: Option<serde_yaml::Error>,
    },
    /// A binary is for a kind of machine that this charm is not made for.
    #[error("{} is for another machine (ELF machine {machine}): the charm is for amd64 and arm64", path.display())]
    UnknownMachine {
        /// The binary.
        path: PathBuf,
        /// `e_machine` of its header.
        machine: u16,
    },
    /// What was to be packaged is no binary.
    #[error("{} is not a Linux binary", path.display())]
    NotABinary {
        /// The file.
        path: PathBuf,
    },
    /// An archive could not be written or read.
    #[error("cannot {action} the charm archive {}", path.display())]
    Archive {
        /// What was being done.
        action: &'static str,
        /// The archive.
        path: PathBuf,
        /// Why not.
        #[source]
        source: zip::result::ZipError,
    },
    /// cargo could not be run.
    #[error("cannot run cargo; is Rust installed? See https://rustup.rs")]
    Cargo(#[source] io::Error),
    /// cargo ran, and the build failed; it said why itself.
    #[error("`{command}` failed; {remedy}")]
    Build {
        /// The command.
        command: String,
        /// What may help.
        remedy: String,
    },
}

impl PackageError {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    pub(crate) fn archive(action: &'static str, path: &Path, source: impl Into<zip::result::ZipError>) -> Self {
        Self::Archive { action, path: path.to_owned(), source: source.into() }
    }
}
