//! Juju's secrets: how join tokens travel between units.
//!
//! A content never stands on a command line: it goes by a private file that the agent reads
//! (Juju `internal/worker/uniter/runner/jujuc/secret-add.go`, `key#file=path`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::client::Juju;
use super::context::RelationId;
use super::error::JujuError;
use super::tools::HookTools;
use crate::names::UnitName;
use crate::secret::SecretText;

/// A secret's id, `secret:d2qfh0vmp25c7a8b9c0g`. Not itself secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId(pub String);

impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose a secret is: it goes with its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretOwner {
    /// The application: only its leader may make it, all its units may read it.
    Application,
    /// This unit.
    Unit,
}

/// A secret's content: keys of at least three characters.
pub type SecretContent = BTreeMap<String, SecretText>;

impl<T: HookTools> Juju<T> {
    /// Makes a secret. `directory` is where its content may lie for a moment, in a file that only root reads.
    pub async fn add_secret(
        &self,
        owner: SecretOwner,
        content: &SecretContent,
        directory: &Path,
    ) -> Result<SecretId, JujuError> {
        let owner = match owner {
            SecretOwner::Application => "application",
            SecretOwner::Unit => "unit",
        };
        let files = ContentFiles::write(content, directory).map_err(JujuError::SecretFile)?;
        let arguments = files.arguments();
        let arguments: Vec<&str> = ["--owner", owner].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let id = self.call("secret-add", &arguments, None).await?;
        Ok(SecretId(String::from_utf8_lossy(&id).trim().to_owned()))
    }

    /// Lets one unit of a relation read a secret of ours.
    pub async fn grant_secret(&self, id: &SecretId, relation: &RelationId, unit: &UnitName) -> Result<(), JujuError> {
        let unit = unit.to_string();
        self.call("secret-grant", &[&id.0, "--relation", &relation.0, "--unit", &unit], None).await.map(drop)
    }

    /// The newest content of a secret. None: it is gone, or not for this unit.
    pub async fn secret(&self, id: &SecretId) -> Result<Option<SecretContent>, JujuError> {
        let arguments = ["--format=json", "--refresh", &id.0];
        let answer: Result<BTreeMap<String, String>, _> =
            self.ask("secret-get", &arguments, "a secret's content").await;
        match answer {
            Ok(content) => Ok(Some(content.into_iter().map(|(key, text)| (key, SecretText::new(text))).collect())),
            Err(error) if error.is_no_secret() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes a secret of ours away, with all its revisions. That it is gone already is no error.
    pub async fn remove_secret(&self, id: &SecretId) -> Result<(), JujuError> {
        match self.call("secret-remove", &[&id.0], None).await {
            Err(error) if !error.is_no_secret() => Err(error),
            _ => Ok(()),
        }
    }
}

/// A secret's content in private files, which are gone when this is.
struct ContentFiles(Vec<(String, PathBuf)>);

impl ContentFiles {
    fn write(content: &SecretContent, directory: &Path) -> io::Result<Self> {
        let mut files = Self(Vec::new());
        for (key, text) in content {
            let path = directory.join(format!(".secret-{key}"));
            match fs::remove_file(&path) {
                // A run that died may have left it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            files.0.push((key.clone(), path));
            file.write_all(text.expose().as_bytes())?;
        }
        Ok(files)
    }

    fn arguments(&self) -> Vec<String> {
        self.0.iter().map(|(key, path)| format!("{key}#file={}", path.display())).collect()
    }
}

impl Drop for ContentFiles {
    fn drop(&mut self) {
        for (_, path) in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_content_lies_in_private_files_that_are_gone_afterwards() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(".secret-token"), "left by a run that died").unwrap();
        let content = BTreeMap::from([("token".to_owned(), SecretText::new("hunter2".to_owned()))]);
        let files = ContentFiles::write(&content, directory.path()).unwrap();
        let [argument] = files.arguments().try_into().unwrap();
        let path = argument.strip_prefix("token#file=").unwrap().to_owned();
        assert!(!argument.contains("hunter2"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hunter2");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(files);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
