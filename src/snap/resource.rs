//! The resource `snap-installation`: a `.tar.gz` with a `snap_installation.yaml`, a `.snap`, or both.
//!
//! It is unpacked once, into a directory named after its hash; where that directory is, nothing is left to do. What an
//! archive says about paths, links and owners is never followed: what is wanted is copied under names of the charm's
//! own choosing.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};

use super::hashes::{Hashes, Sha256};

/// The manifest's name in an archive, whatever directory it is in.
const MANIFEST: &str = "snap_installation.yaml";

/// A manifest for every architecture has some hundred bytes.
const LARGEST_MANIFEST: u64 = 64 * 1024;

/// All that is in the archive, in bytes; the k8s snap has some 300 MB.
const LARGEST_CONTENT: u64 = 4 * 1024 * 1024 * 1024;

/// Members of an archive that are looked at.
const MOST_MEMBERS: usize = 1000;

/// What is in the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The hash of the whole archive.
    pub sha256: Sha256,
    /// What it asks for.
    pub content: Content,
}

/// What a resource asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A manifest.
    Manifest {
        /// Its text.
        text: String,
        /// The snap that came with it.
        snap: Option<PathBuf>,
    },
    /// A snap alone.
    Snap(PathBuf),
}

/// Why the resource can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ResourceError {
    /// It isn't what it should be.
    #[error("resource snap-installation: {0}. Attach another")]
    Bad(String),
    /// The machine's own trouble.
    #[error("resource snap-installation: cannot {doing} {}: {source}", path.display())]
    Io {
        /// `read`, `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

fn bad(why: impl Into<String>) -> ResourceError {
    ResourceError::Bad(why.into())
}

fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ResourceError {
    move |source| ResourceError::Io { doing, path: path.to_owned(), source }
}

/// Reads the resource and unpacks it below `directory`; `None`: none was attached, or an empty one.
///
/// What an earlier resource left there is removed.
pub fn read(archive: Option<&Path>, directory: &Path, hashes: &Hashes) -> Result<Option<Resource>, ResourceError> {
    let Some(archive) = archive else {
        remove_all_but(None, directory)?;
        return Ok(None);
    };
    if fs::metadata(archive).map_err(io("read", archive))?.len() == 0 {
        remove_all_but(None, directory)?;
        return Ok(None);
    }
    let sha256 = hashes.of_file(archive).map_err(io("read", archive))?;
    let unpacked = directory.join(sha256.to_string());
    if !unpacked.is_dir() {
        let half_done = directory.join("half-done");
        remove_all_but(None, directory)?;
        fs::create_dir_all(&half_done).map_err(io("write", &half_done))?;
        unpack(archive, &half_done)?;
        fs::rename(&half_done, &unpacked).map_err(io("write", &unpacked))?;
    }
    remove_all_but(Some(&unpacked), directory)?;
    let content = content(&unpacked)?;
    Ok(Some(Resource { sha256, content }))
}

fn content(unpacked: &Path) -> Result<Content, ResourceError> {
    let manifest = unpacked.join(MANIFEST);
    let text = match fs::read(&manifest) {
        Ok(bytes) => Some(String::from_utf8(bytes).map_err(|_| bad(format!("{MANIFEST} is no text")))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io("read", &manifest)(error)),
    };
    let snap = entries(unpacked)?.into_iter().find(|path| is_snap(path));
    match (text, snap) {
        (Some(text), snap) => Ok(Content::Manifest { text, snap }),
        (None, Some(snap)) => Ok(Content::Snap(snap)),
        (None, None) => Err(bad(format!("it holds neither {MANIFEST} nor a .snap"))),
    }
}

fn unpack(archive: &Path, directory: &Path) -> Result<(), ResourceError> {
    let broken = |error: io::Error| bad(format!("not a .tar.gz ({error})"));
    let file = File::open(archive).map_err(io("read", archive))?;
    let mut archive = Archive::new(GzDecoder::new(file).take(LARGEST_CONTENT));
    let (mut manifest, mut snap) = (false, false);
    // Raw: the crate would read a header with a long name into memory whole, however long it says that it is.
    for (number, member) in archive.entries().map_err(broken)?.raw(true).enumerate() {
        let mut member = member.map_err(broken)?;
        if number >= MOST_MEMBERS {
            return Err(bad(format!("it has more than {MOST_MEMBERS} members")));
        }
        let Some(name) = file_name(&mut member)? else { continue };
        if name.ends_with(MANIFEST) && !manifest {
            manifest = true;
            if member.size() > LARGEST_MANIFEST {
                return Err(bad(format!("{MANIFEST} is larger than {LARGEST_MANIFEST} bytes")));
            }
            copy(&mut member, &directory.join(MANIFEST))?;
        } else if is_snap(Path::new(&name)) && !snap {
            snap = true;
            copy(&mut member, &directory.join(&name))?;
        }
    }
    Ok(())
}

/// The last part of a regular file's name; `None` for what there is no need to look at.
fn file_name(member: &mut Entry<'_, impl Read>) -> Result<Option<String>, ResourceError> {
    let path = member.path().map_err(|error| bad(format!("a member has no name ({error})")))?.into_owned();
    let shown: String = path.to_string_lossy().chars().filter(|c| !c.is_control()).take(60).collect();
    match member.header().entry_type() {
        EntryType::Directory | EntryType::XGlobalHeader => return Ok(None),
        // Python's tarfile writes one for each file, with its times. A name in it would be too long for the next one.
        EntryType::XHeader => return pax_header(member).map(|()| None),
        EntryType::Regular | EntryType::Continuous => {}
        EntryType::GNULongName | EntryType::GNULongLink => return Err(long_name()),
        _ => return Err(bad(format!("`{shown}` is no regular file"))),
    }
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(bad(format!("`{shown}` leads out of the archive")));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    if is_snap(Path::new(&name)) && !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-~".contains(&b)) {
        return Err(bad(format!("`{shown}`: name it with letters, digits and ._+- alone")));
    }
    Ok(Some(name))
}

fn pax_header(member: &mut Entry<'_, impl Read>) -> Result<(), ResourceError> {
    let mut header = Vec::new();
    member.take(LARGEST_MANIFEST).read_to_end(&mut header).map_err(|error| bad(error.to_string()))?;
    let names = |key: &[u8]| header.windows(key.len()).any(|window| window == key);
    if names(b" path=") || names(b" size=") || names(b" linkpath=") { Err(long_name()) } else { Ok(()) }
}

fn long_name() -> ResourceError {
    bad("a member's name is longer than 100 characters")
}

fn is_snap(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "snap")
}

fn copy(member: &mut Entry<'_, impl Read>, to: &Path) -> Result<(), ResourceError> {
    let mut file = File::create(to).map_err(io("write", to))?;
    let expected = member.size();
    let mut piece = vec![0; 64 * 1024];
    let mut copied = 0;
    loop {
        let length = member.read(&mut piece).map_err(|error| bad(format!("it is damaged ({error})")))?;
        let Some(read) = piece.get(..length).filter(|read| !read.is_empty()) else { break };
        io::Write::write_all(&mut file, read).map_err(io("write", to))?;
        copied += read.len() as u64;
    }
    if copied == expected { Ok(()) } else { Err(bad("it is cut off, or larger than 4 GiB")) }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, ResourceError> {
    let list = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list.map_err(io("read", directory))?,
    };
    let paths: Result<Vec<PathBuf>, io::Error> = list.map(|entry| entry.map(|entry| entry.path())).collect();
    paths.map_err(io("read", directory))
}

fn remove_all_but(kept: Option<&Path>, directory: &Path) -> Result<(), ResourceError> {
    for path in entries(directory)? {
        if Some(path.as_path()) != kept {
            fs::remove_dir_all(&path).map_err(io("remove", &path))?;
        }
    }
    Ok(())
}
