//! Builds the charm's binary with cargo.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::PackageError;

/// The charm's binary, as Cargo.toml names it.
const BINARY: &str = "k8s-charm";

/// Runs `cargo build --release --locked --bin k8s-charm` in the repository, for `target` (Rust's triple) or the host, and
/// returns the binary's path. cargo's own output goes to stderr.
///
/// # Errors
///
/// cargo is missing or the build fails.
pub fn build_charm(repository: &Path, target: Option<&str>) -> Result<PathBuf, PackageError> {
    let mut arguments = vec!["build", "--release", "--locked", "--bin", BINARY];
    if let Some(target) = target {
        arguments.extend(["--target", target]);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(&arguments).arg("--message-format=json-render-diagnostics").current_dir(repository);
    forget_outer_cargo(&mut cargo);
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(PackageError::Cargo)?;
    let messages = child.stdout.take().ok_or_else(|| PackageError::Cargo(ErrorKind::BrokenPipe.into()))?;
    let mut binary = None;
    for line in BufReader::new(messages).lines() {
        binary = executable(&line.map_err(PackageError::Cargo)?).or(binary);
    }
    let status = child.wait().map_err(PackageError::Cargo)?;
    binary.filter(|_| status.success()).ok_or_else(|| PackageError::Build {
        command: format!("cargo {}", arguments.join(" ")),
        remedy: target.map_or_else(
            || "cargo says above what is wrong".to_owned(),
            |target| format!("it needs musl-gcc (Debian's musl-tools) and `rustup target add {target}`"),
        ),
    })
}

/// Under `cargo run` the environment describes the package that is run. Build scripts that watch those variables would
/// be run anew each time, so the inner cargo must not see them.
fn forget_outer_cargo(cargo: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            cargo.env_remove(name);
        }
    }
}

/// A line of cargo's messages (The Cargo Book, "External tools": JSON messages).
#[derive(Deserialize)]
struct Message {
    target: MessageTarget,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct MessageTarget {
    name: String,
}

/// The path that a message names as the charm's binary.
fn executable(line: &str) -> Option<PathBuf> {
    let message: Message = serde_json::from_str(line).ok()?;
    message.executable.filter(|_| message.target.name == BINARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_where_cargo_says() {
        let artifact = |name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["bin"],"name":"{name}"}},"executable":{executable}}}"#
            )
        };
        let path = Some(PathBuf::from("/t/release/k8s-charm"));
        assert_eq!(executable(&artifact("k8s-charm", r#""/t/release/k8s-charm""#)), path);
        assert_eq!(executable(&artifact("k8s-charm", "null")), None);
        assert_eq!(executable(&artifact("build-script-build", r#""/t/build""#)), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
