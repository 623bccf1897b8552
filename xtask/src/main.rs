//! `cargo xtask package`: the charm as a file that `juju deploy` takes.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::Platform;

/// Builds and packages the charm.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds the charm's binary and packs it with the charm's files: writes `k8s_PLATFORM.charm`.
    Package {
        /// Rust's target [default: this machine's, with musl].
        #[arg(long, value_name = "TRIPLE")]
        target: Option<String>,
        /// Where to write the charm.
        #[arg(long, value_name = "DIR", default_value = ".")]
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    let Task::Package { target, output } = Arguments::parse().task;
    match package(target, &output) {
        Ok(charm) => {
            _ = writeln!(std::io::stdout(), "{}", charm.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            _ = writeln!(std::io::stderr(), "error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn package(target: Option<String>, output: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let host = || Platform::host().map(|platform| platform.static_target().to_owned());
    let target = target.or_else(host).ok_or("the charm is not made for this kind of machine: name a --target")?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let binary = xtask::build_charm(repository, Some(&target))?;
    Ok(xtask::package(repository, &binary, output)?)
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
