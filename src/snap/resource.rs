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
        unpack(archive, &half_done, LARGEST_CONTENT)?;
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

fn unpack(archive: &Path, directory: &Path, largest: u64) -> Result<(), ResourceError> {
    let broken = |error: io::Error| bad(format!("not a .tar.gz ({error})"));
    let file = File::open(archive).map_err(io("read", archive))?;
    let mut archive = Archive::new(GzDecoder::new(file).take(largest));
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
    if copied == expected { Ok(()) } else { Err(bad("it is cut off, or its content too large")) }
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

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    struct Machine(TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn own(&self) -> PathBuf {
            self.0.path().join("own/unpacked")
        }

        fn read(&self, archive: &[u8]) -> Result<Option<Resource>, ResourceError> {
            let path = self.0.path().join("snap-installation.tar.gz");
            fs::write(&path, archive).unwrap();
            read(Some(&path), &self.own(), &Hashes::new(self.0.path().join("own/sha256.json")))
        }

        fn refused(&self, archive: &[u8], why: &str) {
            let error = self.read(archive).unwrap_err().to_string();
            assert!(error.starts_with("resource snap-installation: "), "{error}");
            assert!(error.contains(why), "`{error}` says nothing of `{why}`");
            self.nothing_outside();
        }

        /// Whatever was in the archive, it came no further than the directory made for it.
        fn nothing_outside(&self) {
            let mut names: Vec<String> = entries(self.0.path())
                .unwrap()
                .iter()
                .map(|path| path.file_name().unwrap().to_str().unwrap().into())
                .collect();
            names.sort();
            assert_eq!(names, ["own", "snap-installation.tar.gz"]);
        }
    }

    fn header(kind: EntryType, name: &str, size: usize) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        // Not `set_path`, which refuses what an attacker would write.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size as u64);
        header.set_mode(0o644);
        header.set_cksum();
        header
    }

    fn archive(members: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (kind, name, content) in members {
            builder.append(&header(*kind, name, content.len()), *content).unwrap();
        }
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn files(members: &[(&str, &str)]) -> Vec<u8> {
        let members: Vec<_> =
            members.iter().map(|(name, content)| (EntryType::Regular, *name, content.as_bytes())).collect();
        archive(&members)
    }

    #[test]
    fn none_and_an_empty_one_are_no_resource() {
        let machine = Machine::new();
        let hashes = Hashes::new(machine.0.path().join("own/sha256.json"));
        assert_eq!(read(None, &machine.own(), &hashes).unwrap(), None);
        assert_eq!(machine.read(b"").unwrap(), None);
    }

    #[test]
    fn a_manifest_a_snap_or_both() {
        let machine = Machine::new();
        let found = machine.read(&files(&[("./override/snap_installation.yaml", "amd64: []")])).unwrap().unwrap();
        assert_eq!(found.content, Content::Manifest { text: "amd64: []".to_owned(), snap: None });

        let packed = files(&[("README", "x"), ("k8s_1.32.1.snap", "hsqs")]);
        let found = machine.read(&packed).unwrap().unwrap();
        assert_eq!(found.sha256, Sha256::of(&packed));
        let Content::Snap(snap) = found.content else { panic!("{:?}", found.content) };
        assert_eq!(
            (snap.file_name().unwrap().to_str(), fs::read_to_string(&snap).unwrap()),
            (Some("k8s_1.32.1.snap"), "hsqs".to_owned())
        );

        let both = files(&[("k8s_2.snap", "hsqs2"), ("snap_installation.yaml", "arm64: []")]);
        let Content::Manifest { snap: Some(second), .. } = machine.read(&both).unwrap().unwrap().content else {
            panic!()
        };
        assert_eq!(fs::read_to_string(second).unwrap(), "hsqs2");
        assert!(!snap.exists(), "the earlier resource's snap takes room");
        machine.nothing_outside();
    }

    #[test]
    fn it_is_unpacked_once_and_again_after_a_death_in_between() {
        let machine = Machine::new();
        let packed = files(&[("k8s_1.snap", "hsqs")]);
        fs::create_dir_all(machine.own().join("half-done")).unwrap();
        fs::write(machine.own().join("half-done/k8s_1.snap"), "hs").unwrap();
        let Content::Snap(snap) = machine.read(&packed).unwrap().unwrap().content else { panic!() };
        assert_eq!(fs::read_to_string(&snap).unwrap(), "hsqs");

        fs::write(&snap, "left alone").unwrap();
        machine.read(&packed).unwrap();
        assert_eq!(fs::read_to_string(&snap).unwrap(), "left alone");
    }

    #[test]
    fn a_hostile_archive_is_refused() {
        let machine = Machine::new();
        for name in ["/etc/cron.d/k8s.snap", "../k8s.snap", "a/../../k8s.snap", "../snap_installation.yaml"] {
            machine.refused(&files(&[(name, "x")]), "leads out of the archive");
        }
        machine.refused(&files(&[("k8s\"; evil.snap", "x")]), "letters, digits");
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Char, EntryType::Fifo, EntryType::GNUSparse] {
            machine.refused(&archive(&[(kind, "k8s.snap", b"")]), "is no regular file");
        }
        machine.refused(&archive(&[(EntryType::GNULongName, "././@LongLink", &[b'a'; 4096])]), "longer than 100");
        machine.refused(&archive(&[(EntryType::XHeader, "x", b"30 path=../../../k8s.snap\n")]), "longer than 100");
        machine.refused(&files(&[("snap_installation.yaml", &" ".repeat(70_000))]), "larger than");
        let many: Vec<(&str, &str)> = vec![("a", ""); 1001];
        machine.refused(&files(&many), "more than 1000 members");
        machine.refused(&files(&[("README", "x")]), "neither snap_installation.yaml nor a .snap");
        machine.refused(&archive(&[(EntryType::Regular, "snap_installation.yaml", b"\xff")]), "is no text");
        machine.refused(b"this is no archive", "not a .tar.gz");
    }

    #[test]
    fn a_bomb_is_not_unpacked_whole() {
        let machine = Machine::new();
        let path = machine.0.path().join("snap-installation.tar.gz");
        fs::write(&path, files(&[("k8s.snap", &"x".repeat(100_000))])).unwrap();
        let error = unpack(&path, machine.0.path(), 50_000).unwrap_err().to_string();
        assert!(error.contains("too large"), "{error}");
        assert!(fs::metadata(machine.0.path().join("k8s.snap")).unwrap().len() < 50_000);
    }

    #[test]
    fn the_times_that_python_writes_are_no_hindrance() {
        let times = b"30 mtime=1764553757.87143068\n";
        let packed = archive(&[(EntryType::XHeader, "k8s.snap", times), (EntryType::Regular, "k8s.snap", b"hsqs")]);
        assert!(matches!(Machine::new().read(&packed).unwrap().unwrap().content, Content::Snap(_)));
    }

    #[test]
    fn a_cut_archive_is_refused_wherever_it_was_cut() {
        let noise: String = (0..3000_u32).map(|n| char::from(b'a' + u8::try_from(n * n % 23).unwrap())).collect();
        let packed = files(&[("k8s.snap", &noise)]);
        let machine = Machine::new();
        for length in (1..packed.len() - 30).step_by(7) {
            let found = machine.read(&packed[..length]);
            assert!(found.is_err(), "{length} of {}: {found:?}", packed.len());
        }
        assert!(machine.read(&packed).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn garbage_is_an_error_or_nothing(garbage in proptest::collection::vec(any::<u8>(), 1..300), zipped: bool) {
            let mut packed = garbage;
            if zipped {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                io::Write::write_all(&mut encoder, &packed).unwrap();
                packed = encoder.finish().unwrap();
            }
            let machine = Machine::new();
            prop_assert!(machine.read(&packed).is_err());
            machine.nothing_outside();
        }

        #[test]
        fn a_flipped_byte_never_gets_out(at in 0_usize..1024, to: u8) {
            let machine = Machine::new();
            let mut plain = Vec::new();
            GzDecoder::new(files(&[("k8s.snap", "hsqs"), ("snap_installation.yaml", "x")]).as_slice()).read_to_end(&mut plain).unwrap();
            plain[at] = to;
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            io::Write::write_all(&mut encoder, &plain).unwrap();
            let _ = machine.read(&encoder.finish().unwrap());
            machine.nothing_outside();
        }
    }
}
