//! SHA-256 of files that are too large to be read in every hook.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::Digest;

/// So much of a file is in memory at a time, in bytes.
const PIECE: usize = 64 * 1024;

/// So many files are remembered: an archive, what was in it, and two revisions of the snap, twice over.
const REMEMBERED: usize = 8;

/// A SHA-256, as 64 hex digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sha256(String);

impl Sha256 {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("{:x}", sha2::Sha256::digest(bytes)))
    }

    /// Its first 8 hex digits, as they stand in a target.
    pub fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Hashes of files, remembered in a small file for as long as inode, size and modification time stay.
///
/// It is a cache: without it everything is only slower.
#[derive(Debug, Clone)]
pub struct Hashes {
    memory: PathBuf,
}

/// What tells one content of a file from another without reading it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Known {
    file: Identity,
    sha256: Sha256,
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}

impl Hashes {
    /// Remembers them in this file.
    pub fn new(memory: PathBuf) -> Self {
        Self { memory }
    }

    /// The hash of a file's content.
    pub fn of_file(&self, path: &Path) -> io::Result<Sha256> {
        let mut file = File::open(path)?;
        let identity = Identity::of(&file.metadata()?);
        let mut known = self.recall();
        if let Some(known) = known.iter().find(|known| known.file == identity) {
            return Ok(known.sha256.clone());
        }
        let sha256 = read(&mut file)?;
        if Identity::of(&file.metadata()?) == identity {
            known.push(Known { file: identity, sha256: sha256.clone() });
            let surplus = known.len().saturating_sub(REMEMBERED);
            known.drain(..surplus);
            if let Err(error) = self.remember(&known) {
                tracing::warn!("cannot remember a hash in {}: {error}", self.memory.display());
            }
        }
        Ok(sha256)
    }

    fn recall(&self) -> Vec<Known> {
        fs::read(&self.memory).ok().and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default()
    }

    fn remember(&self, known: &[Known]) -> io::Result<()> {
        if let Some(directory) = self.memory.parent() {
            fs::create_dir_all(directory)?;
        }
        let new = self.memory.with_extension("new");
        fs::write(&new, serde_json::to_vec(known)?)?;
        fs::rename(new, &self.memory)
    }
}

fn read(file: &mut File) -> io::Result<Sha256> {
    let mut digest = sha2::Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        let length = file.read(&mut piece)?;
        let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { break };
        digest.update(read);
    }
    Ok(Sha256(format!("{:x}", digest.finalize())))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_hash_is_remembered_until_the_file_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("k8s.snap");
        let hashes = Hashes::new(directory.path().join("deep/sha256.json"));
        fs::write(&file, "one").unwrap();
        assert_eq!(hashes.of_file(&file).unwrap(), Sha256::of(b"one"));

        // What is remembered is taken at its word, so the file was not read again.
        let forged = fs::read_to_string(&hashes.memory).unwrap().replace(&Sha256::of(b"one").0, &Sha256::of(b"x").0);
        fs::write(&hashes.memory, forged).unwrap();
        assert_eq!(hashes.of_file(&file).unwrap(), Sha256::of(b"x"));

        // Another content of the same size, within the same second.
        let modified = |nanoseconds| {
            let file = File::options().write(true).open(&file).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::new(1_700_000_000, nanoseconds)).unwrap();
        };
        fs::write(&file, "two").unwrap();
        modified(1);
        assert_eq!(hashes.of_file(&file).unwrap(), Sha256::of(b"two"));
        fs::write(&file, "six").unwrap();
        modified(2);
        assert_eq!(hashes.of_file(&file).unwrap(), Sha256::of(b"six"));
        fs::write(&hashes.memory, "garbage").unwrap();
        assert_eq!(hashes.of_file(&file).unwrap(), Sha256::of(b"six"));
        assert!(hashes.of_file(&directory.path().join("absent")).is_err());
    }

    #[test]
    fn the_memory_stays_small() {
        let directory = tempfile::tempdir().unwrap();
        let hashes = Hashes::new(directory.path().join("sha256.json"));
        for number in 0..20 {
            let file = directory.path().join(number.to_string());
            fs::write(&file, number.to_string()).unwrap();
            hashes.of_file(&file).unwrap();
        }
        assert_eq!(hashes.recall().len(), REMEMBERED);
    }

    #[test]
    fn a_known_digest() {
        assert_eq!(Sha256::of(b"abc").short(), "ba7816bf");
        assert_eq!(Sha256::of(b"").to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
