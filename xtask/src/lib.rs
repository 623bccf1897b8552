//! Builds and packages the charm; also used by the simulator to lay out a charm directory.
//!
//! ```text
//! build_charm ──▶ lay_out ──▶ pack ──▶ k8s_amd64.charm ──▶ unpack
//! ```

mod archive;
mod build;
mod error;
mod layout;
mod platform;

pub use archive::{pack, unpack};
pub use build::build_charm;
pub use error::PackageError;
pub use layout::{copy_tree, lay_out};
pub use platform::Platform;

use std::path::{Path, PathBuf};

/// Lays out, packs and names a charm: writes `NAME_PLATFORM.charm` (as charmcraft names it) into `output`, and returns
/// its path. The platform is the binary's own.
///
/// # Errors
///
/// What [`lay_out`] and [`pack`] say; a binary that is made for no [`Platform`].
pub fn package(repository: &Path, binary: &Path, output: &Path) -> Result<PathBuf, PackageError> {
    let platform = Platform::of_binary(binary)?.ok_or_else(|| PackageError::NotABinary { path: binary.to_owned() })?;
    let directory =
        tempfile::tempdir().map_err(|source| PackageError::file("make", Path::new("a directory"), source))?;
    lay_out(repository, binary, directory.path())?;
    let name = layout::charm_name(directory.path())?;
    std::fs::create_dir_all(output).map_err(|source| PackageError::file("make", output, source))?;
    let charm = output.join(format!("{name}_{}.charm", platform.juju_name()));
    pack(directory.path(), &charm)?;
    Ok(charm)
}
