//! Lays out the charm directories of a rehearsal.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use semver::Version;
use serde_yaml::Value;
use xtask::{PackageError, Platform};

const MANIFEST: &str = "templates/snap_installation.yaml";
const DEPENDENCIES: &str = "templates/dependencies.yaml";

/// Where a charm comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CharmSource {
    /// Built from the repository.
    Build {
        /// The repository's root.
        repository: PathBuf,
    },
    /// A charm directory, taken as it is.
    Directory(PathBuf),
    /// A `.charm` file, taken as it is.
    File(PathBuf),
}

/// A charm directory, and what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedCharm {
    /// The directory.
    pub directory: PathBuf,
    /// The Kubernetes version that it declares (`k8s_service.version` of its dependencies).
    pub version: Version,
    /// The snap that it asks for on this machine's architecture.
    pub pin: Pin,
}

/// The snap that a charm asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A revision of the store.
    Revision(u32),
    /// Whatever a channel holds.
    Channel(String),
}

/// Why a charm directory could not be laid out.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The charm could not be built, copied or unpacked.
    #[error("no charm to rehearse")]
    Package(#[from] PackageError),
    /// There is no repository to build the charm from.
    #[error("the charm's repository is not here: run this inside it, or give the charm with --charm and --to-charm")]
    NoRepository,
    /// What was given is not a charm.
    #[error("{} is not a charm: {missing}", path.display())]
    NotACharm {
        /// What was given.
        path: PathBuf,
        /// What a charm has and this hasn't.
        missing: &'static str,
    },
    /// A file of the charm could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was being done to it.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// One of the charm's templates doesn't say what a rehearsal must know.
    #[error("{} is not what it should be: {expected}", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// What it must say.
        expected: &'static str,
        /// Where it is not YAML; none if it is YAML of another shape.
        #[source]
        source: Option<serde_yaml::Error>,
    },
}

/// The charm's repository: where this program was built, or else where it is run.
///
/// # Errors
///
/// Neither place is (in) the repository.
pub fn repository() -> Result<PathBuf, LayoutError> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
    let run_in = std::env::current_dir().unwrap_or_default();
    let mut candidates = built_in.into_iter().chain(run_in.ancestors().map(Path::to_owned));
    let is_repository = |path: &PathBuf| path.join("Cargo.lock").is_file() && path.join("metadata.yaml").is_file();
    candidates.find(is_repository).ok_or(LayoutError::NoRepository)
}

/// Lays out a charm directory in `into`, which is made if it isn't there.
///
/// A charm that is built here is made one for `version`: its templates are rewritten to declare that version, to be
/// upgradable from the minors beside it, and to pin the snap's `revision`; so one binary plays both ends of an upgrade.
/// A given package is taken as it is, and what it says counts.
///
/// # Errors
///
/// The charm doesn't build; what was given is no charm, or doesn't say what it asks for; a file can't be written.
pub fn prepare(
    source: &CharmSource,
    version: &Version,
    revision: u32,
    into: &Path,
) -> Result<PreparedCharm, LayoutError> {
    match source {
        CharmSource::Build { repository } => {
            let binary = xtask::build_charm(repository, None)?;
            xtask::lay_out(repository, &binary, into)?;
            declare(into, version, revision)?;
        }
        CharmSource::Directory(directory) => {
            be_charm(directory, directory)?;
            xtask::copy_tree(directory, into)?;
        }
        CharmSource::File(file) => {
            xtask::unpack(file, into)?;
            be_charm(into, file)?;
        }
    }
    read(into)
}

/// Checks that a directory is a charm that Juju would run; an error speaks of `given`.
fn be_charm(directory: &Path, given: &Path) -> Result<(), LayoutError> {
    let not = |missing| Err(LayoutError::NotACharm { path: given.to_owned(), missing });
    if !directory.join("metadata.yaml").is_file() {
        return not("it has no metadata.yaml");
    }
    match fs::metadata(directory.join("dispatch")) {
        Ok(dispatch) if dispatch.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => not("its dispatch is not executable"),
        Err(_) => not("it has no dispatch"),
    }
}

/// Rewrites a charm's templates for a version and a revision.
fn declare(charm: &Path, version: &Version, revision: u32) -> Result<(), LayoutError> {
    rewrite(&charm.join(MANIFEST), "a list of snaps for each architecture", |manifest| {
        for snap in manifest.as_mapping_mut()?.values_mut() {
            for snap in snap.as_sequence_mut()? {
                let snap = snap.as_mapping_mut()?;
                snap.remove("channel");
                snap.insert("revision".into(), revision.into());
            }
        }
        Some(())
    })?;
    rewrite(&charm.join(DEPENDENCIES), "`k8s_service` with its `dependencies`", |dependencies| {
        let service = dependencies.get_mut("k8s_service")?.as_mapping_mut()?;
        let constraint = neighbours(version);
        service.insert("version".into(), version.to_string().into());
        service.insert("upgrade_supported".into(), constraint.clone().into());
        service.get_mut("dependencies")?.as_mapping_mut()?.insert("k8s-worker".into(), constraint.into());
        Some(())
    })
}

/// The versions that a charm can be upgraded from: one minor down and its own, as the Python charms have it.
fn neighbours(version: &Version) -> String {
    let Version { major, minor, .. } = version;
    format!("^{major}.{}, < {major}.{}", minor.saturating_sub(1), minor.saturating_add(1))
}

fn rewrite(path: &Path, expected: &'static str, edit: impl Fn(&mut Value) -> Option<()>) -> Result<(), LayoutError> {
    let wrong = |source| LayoutError::Template { path: path.to_owned(), expected, source };
    let mut value = read_yaml(path, expected)?;
    edit(&mut value).ok_or_else(|| wrong(None))?;
    let text = serde_yaml::to_string(&value).map_err(|source| wrong(Some(source)))?;
    fs::write(path, text).map_err(|source| LayoutError::File { action: "write", path: path.to_owned(), source })
}

/// What a charm directory declares and asks for.
fn read(charm: &Path) -> Result<PreparedCharm, LayoutError> {
    let path = charm.join(DEPENDENCIES);
    let expected = "`k8s_service` with a `version` such as \"1.32.0\"";
    let dependencies = read_yaml(&path, expected)?;
    let version = dependencies["k8s_service"]["version"].as_str().and_then(|text| Version::parse(text).ok());
    let version = version.ok_or(LayoutError::Template { path, expected, source: None })?;

    let path = charm.join(MANIFEST);
    let expected = "for this machine's architecture one snap, with a `revision` or a `channel`";
    let manifest = read_yaml(&path, expected)?;
    let architecture = Platform::host().map_or("amd64", Platform::juju_name);
    let pin = pin(&manifest[architecture][0]).ok_or(LayoutError::Template { path, expected, source: None })?;
    Ok(PreparedCharm { directory: charm.to_owned(), version, pin })
}

/// A snap's revision, as a number or a text, or else its channel.
fn pin(snap: &Value) -> Option<Pin> {
    let revision = match &snap["revision"] {
        Value::Number(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let channel = || snap["channel"].as_str().map(|channel| Pin::Channel(channel.to_owned()));
    revision.map(Pin::Revision).or_else(channel)
}

fn read_yaml(path: &Path, expected: &'static str) -> Result<Value, LayoutError> {
    let text = fs::read_to_string(path).map_err(|source| LayoutError::File {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let wrong = |source| LayoutError::Template { path: path.to_owned(), expected, source: Some(source) };
    serde_yaml::from_str(&text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    /// A charm directory as it is laid out from this repository, with a script as its binary.
    fn laid_out() -> (TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (script, charm) = (directory.path().join("script"), directory.path().join("charm"));
        fs::write(&script, "#!/bin/sh\n").unwrap();
        xtask::lay_out(&repository().unwrap(), &script, &charm).unwrap();
        (directory, charm)
    }

    #[test]
    fn one_charm_can_be_made_that_of_any_version() {
        let (_directory, charm) = laid_out();
        for (text, revision, constraint) in
            [("1.31.3", 2001, "^1.30, < 1.32"), ("1.32.1", 2002, "^1.31, < 1.33"), ("2.0.0", 1, "^2.0, < 2.1")]
        {
            declare(&charm, &version(text), revision).unwrap();
            let prepared = read(&charm).unwrap();
            assert_eq!((prepared.version, prepared.pin), (version(text), Pin::Revision(revision)));
            let dependencies = read_yaml(&charm.join(DEPENDENCIES), "").unwrap();
            assert_eq!(dependencies["k8s_service"]["upgrade_supported"], constraint);
            assert_eq!(dependencies["k8s_service"]["dependencies"]["k8s-worker"], constraint);
            assert_eq!(dependencies["k8s_charm"]["version"], "2");
            let manifest = read_yaml(&charm.join(MANIFEST), "").unwrap();
            for architecture in ["amd64", "arm64"] {
                assert_eq!(manifest[architecture][0]["revision"], revision);
                assert_eq!(manifest[architecture][0]["classic"], true);
            }
        }
    }

    #[test]
    fn a_given_package_is_taken_as_it_is() {
        let (directory, charm) = laid_out();
        declare(&charm, &version("1.33.4"), 4755).unwrap();
        let file = directory.path().join("k8s_amd64.charm");
        xtask::pack(&charm, &file).unwrap();
        for (source, into) in
            [(CharmSource::Directory(charm), "from-directory"), (CharmSource::File(file), "from-file")]
        {
            let into = directory.path().join(into);
            let prepared = prepare(&source, &version("1.31.3"), 1, &into).unwrap();
            let expected =
                PreparedCharm { directory: into.clone(), version: version("1.33.4"), pin: Pin::Revision(4755) };
            assert_eq!(prepared, expected);
            be_charm(&into, &into).unwrap();
        }
    }

    #[test]
    fn a_channel_is_a_pin_too() {
        for (snap, expected) in [
            ("{revision: 5473, channel: 1.32-classic/stable}", Some(Pin::Revision(5473))),
            ("{revision: '5473'}", Some(Pin::Revision(5473))),
            ("{channel: latest/edge}", Some(Pin::Channel("latest/edge".to_owned()))),
            ("{install-type: file, filename: k8s.snap}", None),
        ] {
            assert_eq!(pin(&serde_yaml::from_str(snap).unwrap()), expected, "{snap}");
        }
    }

    #[test]
    fn what_is_no_charm_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let given = directory.path().join("given");
        let into = directory.path().join("into");
        let refusal = |source: CharmSource| prepare(&source, &version("1.31.3"), 1, &into).unwrap_err().to_string();

        fs::create_dir(&given).unwrap();
        assert!(
            refusal(CharmSource::Directory(given.clone())).ends_with("given is not a charm: it has no metadata.yaml")
        );
        fs::write(given.join("metadata.yaml"), "name: k8s\n").unwrap();
        assert!(refusal(CharmSource::Directory(given.clone())).ends_with("it has no dispatch"));
        fs::write(given.join("dispatch"), "").unwrap();
        assert!(refusal(CharmSource::Directory(given.clone())).ends_with("its dispatch is not executable"));
        let file = directory.path().join("given.charm");
        xtask::pack(&given, &file).unwrap();
        assert!(
            refusal(CharmSource::File(file)).ends_with("given.charm is not a charm: its dispatch is not executable")
        );
    }
}
