//! The `.charm`: a zip of a charm directory, whose unix modes count (juju/charm, `charmarchive.go`).

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::error::PackageError;
use crate::layout::entries;

/// Packs a charm directory. Equal directories give equal files: members stand in the order of their names, and no time
/// is written. Modes are `0755` for what is executable and `0644` for the rest.
///
/// # Errors
///
/// A file can't be read or written.
pub fn pack(charm: &Path, file: &Path) -> Result<(), PackageError> {
    let output = File::create(file).map_err(|source| PackageError::file("write", file, source))?;
    let mut writer = ZipWriter::new(BufWriter::new(output));
    add_directory(&mut writer, charm, "").map_err(|source| PackageError::archive("write", file, source))?;
    writer.finish().map_err(|source| PackageError::archive("write", file, source))?;
    Ok(())
}

fn add_directory(writer: &mut ZipWriter<BufWriter<File>>, directory: &Path, prefix: &str) -> io::Result<()> {
    for path in entries(directory)? {
        let member = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        let metadata = fs::metadata(&path)?;
        if metadata.is_dir() {
            add_directory(writer, &path, &format!("{member}/"))?;
            continue;
        }
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        writer.start_file(member, SimpleFileOptions::DEFAULT.unix_permissions(mode))?;
        io::copy(&mut File::open(&path)?, writer)?;
    }
    Ok(())
}

/// Unpacks a `.charm` with its modes into a directory, made if it isn't there.
///
/// # Errors
///
/// The file can't be read or isn't a zip; a member's path leads out of the directory; a file can't be written.
pub fn unpack(charm: &Path, into: &Path) -> Result<(), PackageError> {
    let file = File::open(charm).map_err(|source| PackageError::file("read", charm, source))?;
    let mut archive =
        ZipArchive::new(BufReader::new(file)).map_err(|source| PackageError::archive("read", charm, source))?;
    archive.extract(into).map_err(|source| PackageError::archive("unpack", charm, source))
}
