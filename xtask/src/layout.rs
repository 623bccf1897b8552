//! Lays out a charm directory: what a `.charm` unpacks to.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::PackageError;
use crate::platform::Platform;

/// Files and directories of the repository that every charm has.
const REQUIRED: [&str; 5] = ["actions.yaml", "config.yaml", "hooks", "metadata.yaml", "templates"];
/// Those that a charm has if the repository does (Juju unpacks what is there; Charmhub shows some).
const OPTIONAL: [&str; 5] = ["LICENSE", "README.md", "icon.svg", "lxd-profile.yaml", "version"];
/// Ubuntu releases that the charm may be deployed to. The binary is static, so it runs on each; these are the ones that
/// applications which are refreshed from the Python charm run on.
const UBUNTU_RELEASES: [&str; 3] = ["22.04", "24.04", "26.04"];

/// Lays out a charm directory in `into` (made if it isn't there): the repository's charm files, `binary` as `dispatch`,
/// and a generated `manifest.yaml`.
///
/// # Errors
///
/// A file can't be read or written; the repository lacks a file that a charm must have; the binary is for another kind
/// of machine.
pub fn lay_out(repository: &Path, binary: &Path, into: &Path) -> Result<(), PackageError> {
    let platform = Platform::of_binary(binary)?;
    fs::create_dir_all(into).map_err(|source| PackageError::file("make", into, source))?;
    for member in REQUIRED {
        let from = repository.join(member);
        if !from.exists() {
            return Err(PackageError::MissingMember { path: from });
        }
        copy_tree(&from, &into.join(member))?;
    }
    for member in OPTIONAL {
        let from = repository.join(member);
        if from.exists() {
            copy_tree(&from, &into.join(member))?;
        }
    }
    let dispatch = into.join("dispatch");
    copy_file(binary, &dispatch)?;
    // Juju repairs the mode of hooks, not of dispatch.
    fs::set_permissions(&dispatch, fs::Permissions::from_mode(0o755))
        .map_err(|source| PackageError::file("make executable", &dispatch, source))?;
    let path = into.join("manifest.yaml");
    fs::write(&path, manifest(platform)).map_err(|source| PackageError::file("write", &path, source))
}

/// `manifest.yaml`: where the charm runs. Channels are quoted, since Juju refuses numbers; without a platform (`dispatch`
/// is a script) it runs on every kind of machine.
fn manifest(platform: Option<Platform>) -> String {
    let mut text = "bases:\n".to_owned();
    for release in UBUNTU_RELEASES {
        _ = write!(text, "  - name: ubuntu\n    channel: \"{release}\"\n");
        if let Some(platform) = platform {
            _ = writeln!(text, "    architectures: [{}]", platform.juju_name());
        }
    }
    text
}

/// The charm's name, from the `metadata.yaml` of a charm directory.
pub(crate) fn charm_name(charm: &Path) -> Result<String, PackageError> {
    let path = charm.join("metadata.yaml");
    let text = fs::read_to_string(&path).map_err(|source| PackageError::file("read", &path, source))?;
    let wrong =
        |source| PackageError::Yaml { path: path.clone(), expected: "a mapping with the charm's `name`", source };
    let metadata: serde_yaml::Value = serde_yaml::from_str(&text).map_err(|source| wrong(Some(source)))?;
    metadata.get("name").and_then(|name| name.as_str()).map(str::to_owned).ok_or_else(|| wrong(None))
}

/// Copies a file, or a directory with all that is in it, and their modes. Links are followed, as charmcraft does.
///
/// # Errors
///
/// Something can't be read or written.
pub fn copy_tree(from: &Path, to: &Path) -> Result<(), PackageError> {
    if !from.is_dir() {
        return copy_file(from, to);
    }
    fs::create_dir_all(to).map_err(|source| PackageError::file("make", to, source))?;
    for entry in entries(from).map_err(|source| PackageError::file("list", from, source))? {
        let name = entry.file_name().unwrap_or_default();
        copy_tree(&entry, &to.join(name))?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<(), PackageError> {
    fs::copy(from, to).map(drop).map_err(|source| PackageError::file("copy", from, source))
}

/// What is in a directory, in the order of the names.
pub(crate) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
