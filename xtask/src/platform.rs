//! The kinds of machines that the charm runs on.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::PackageError;

/// A kind of machine, as Juju, Rust and ELF name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Platform {
    /// The platform that this program was built for; none if the charm isn't made for it.
    pub fn host() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// The platform that a binary is made for, by its ELF header; none for what is not an ELF binary (a script).
    ///
    /// # Errors
    ///
    /// The file can't be read; it is an ELF binary for another kind of machine.
    pub fn of_binary(binary: &Path) -> Result<Option<Self>, PackageError> {
        let mut header = Vec::new();
        File::open(binary)
            .and_then(|file| file.take(20).read_to_end(&mut header))
            .map_err(|source| PackageError::file("read", binary, source))?;
        // e_machine, at bytes 18 and 19, little-endian on both platforms (elf(5)).
        let machine = match header[..] {
            [0x7f, b'E', b'L', b'F', .., low, high] if header.len() == 20 => u16::from_le_bytes([low, high]),
            _ => return Ok(None),
        };
        match machine {
            62 => Ok(Some(Self::Amd64)),
            183 => Ok(Some(Self::Arm64)),
            _ => Err(PackageError::UnknownMachine { path: binary.to_owned(), machine }),
        }
    }

    /// Juju's word, `amd64`; charmcraft's and snapd's too.
    pub fn juju_name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target for static binaries.
    pub fn static_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }
}
