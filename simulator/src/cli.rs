//! The command line of `k8s-sim`: parsed and checked into settings, nothing else.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use semver::Version;

use crate::layout::{self, CharmSource};

/// The most units of an application that a rehearsal takes.
const MOST_UNITS: i64 = 99;

/// Rehearses deployments and upgrades of the k8s charm, without Juju, machines or a cluster.
#[derive(Debug, Parser)]
#[command(name = "k8s-sim", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Deploys the charm, lets it settle, refreshes it, and tells what happened.
    ///
    /// The real charm binary is run, hook by hook; time is simulated. Exits with 0 only if every unit ended at its
    /// version and idle, and no invariant was broken.
    Upgrade(UpgradeArguments),
}

#[derive(Debug, Args)]
struct UpgradeArguments {
    /// Control-plane units.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=MOST_UNITS))]
    units: u32,
    /// Worker units.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=MOST_UNITS))]
    workers: u32,
    /// The Kubernetes version that is deployed.
    #[arg(long, value_name = "VERSION", default_value = "1.31.3", value_parser = kubernetes_version, conflicts_with = "charm")]
    from: Version,
    /// The Kubernetes version that it is refreshed to.
    #[arg(long, value_name = "VERSION", default_value = "1.32.1", value_parser = kubernetes_version, conflicts_with = "to_charm")]
    to: Version,
    /// What chance depends on: the same seed gives the same run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Refresh without running pre-upgrade-check before.
    #[arg(long)]
    no_check: bool,
    /// How to write the report.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The charm that is deployed, a directory or a .charm file [default: built from this repository, for --from].
    #[arg(long, value_name = "CHARM", value_parser = given_charm)]
    charm: Option<CharmSource>,
    /// The charm that it is refreshed to, a directory or a .charm file [default: built from this repository, for --to].
    #[arg(long, value_name = "CHARM", value_parser = given_charm)]
    to_charm: Option<CharmSource>,
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people, live ones on a terminal.
    Text,
    /// One JSON object.
    Json,
}

/// Whether `pre-upgrade-check` is run before the refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreUpgradeCheck {
    /// It is, on the leader.
    Run,
    /// It isn't: the leader checks after the refresh.
    LeftOut,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settings {
    /// An upgrade is to be rehearsed.
    Upgrade(UpgradeSettings),
}

/// One end of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charm {
    /// Where the charm comes from.
    pub source: CharmSource,
    /// The Kubernetes version to make a built charm for; a given one says its own.
    pub version: Version,
}

/// The rehearsal of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeSettings {
    /// Control-plane units, at least one.
    pub units: u32,
    /// Worker units.
    pub workers: u32,
    /// The charm that is deployed.
    pub from: Charm,
    /// The charm that it is refreshed to.
    pub to: Charm,
    /// What chance depends on.
    pub seed: u64,
    /// Whether `pre-upgrade-check` comes before the refresh.
    pub check: PreUpgradeCheck,
    /// How the report is written.
    pub format: Format,
}

/// Reads a command line, the program's name first.
///
/// # Errors
///
/// It asks for help or the version, or can't be understood: clap's error says which, and writes and exits as it should.
pub fn parse<I, T>(arguments: I) -> Result<Settings, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<std::ffi::OsString> + Clone,
{
    let Command::Upgrade(upgrade) = Arguments::try_parse_from(arguments)?.command;
    upgrade.settings().map(Settings::Upgrade)
}

impl UpgradeArguments {
    fn settings(self) -> Result<UpgradeSettings, clap::Error> {
        Ok(UpgradeSettings {
            units: self.units,
            workers: self.workers,
            from: Charm { source: given_or_built(self.charm)?, version: self.from },
            to: Charm { source: given_or_built(self.to_charm)?, version: self.to },
            seed: self.seed,
            check: if self.no_check { PreUpgradeCheck::LeftOut } else { PreUpgradeCheck::Run },
            format: self.format,
        })
    }
}

fn given_or_built(given: Option<CharmSource>) -> Result<CharmSource, clap::Error> {
    let built = || {
        let repository = layout::repository();
        repository.map(|repository| CharmSource::Build { repository }).map_err(|error| invalid(&error.to_string()))
    };
    given.map_or_else(built, Ok)
}

fn invalid(message: &str) -> clap::Error {
    Arguments::command().error(ErrorKind::ValueValidation, message)
}

/// A Kubernetes version as the snap has it: three numbers.
fn kubernetes_version(text: &str) -> Result<Version, String> {
    let version = Version::parse(text.strip_prefix('v').unwrap_or(text)).ok();
    let released = version.filter(|version| version.pre.is_empty() && version.build.is_empty());
    released.ok_or_else(|| "a version such as 1.32.1 is needed".to_owned())
}

/// A charm that was given by its path.
fn given_charm(text: &str) -> Result<CharmSource, String> {
    let path = PathBuf::from(text);
    let is_charm_file = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("charm"));
    match std::fs::metadata(Path::new(text)) {
        Err(error) => Err(error.to_string()),
        Ok(metadata) if metadata.is_dir() => Ok(CharmSource::Directory(path)),
        Ok(_) if is_charm_file => Ok(CharmSource::File(path)),
        Ok(_) => Err("a charm directory or a .charm file is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &str) -> UpgradeSettings {
        let Settings::Upgrade(settings) = parse(format!("k8s-sim {arguments}").split_whitespace()).unwrap();
        settings
    }

    fn refusal(arguments: &str) -> String {
        parse(format!("k8s-sim {arguments}").split_whitespace()).unwrap_err().to_string()
    }

    #[test]
    fn upgrade_alone_rehearses_this_repository() {
        let built = CharmSource::Build { repository: layout::repository().unwrap() };
        let charm = |version: &str| Charm { source: built.clone(), version: version.parse().unwrap() };
        let expected = UpgradeSettings {
            units: 3,
            workers: 0,
            from: charm("1.31.3"),
            to: charm("1.32.1"),
            seed: 0,
            check: PreUpgradeCheck::Run,
            format: Format::Text,
        };
        assert_eq!(settings("upgrade"), expected);
    }

    #[test]
    fn everything_can_be_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("k8s_amd64.charm");
        std::fs::write(&file, "").unwrap();
        let settings = settings(&format!(
            "upgrade --units 5 --workers 2 --seed 7 --no-check --format json --charm {} --to-charm {}",
            directory.path().display(),
            file.display()
        ));
        assert_eq!((settings.units, settings.workers, settings.seed), (5, 2, 7));
        assert_eq!((settings.check, settings.format), (PreUpgradeCheck::LeftOut, Format::Json));
        assert_eq!(settings.from.source, CharmSource::Directory(directory.path().to_owned()));
        assert_eq!(settings.to.source, CharmSource::File(file));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        let charm = tempfile::tempdir().unwrap();
        let charm = charm.path().display();
        for (arguments, reason) in [
            ("upgrade --units 0".to_owned(), "0 is not in 1..=99"),
            ("upgrade --workers 100".to_owned(), "100 is not in 0..=99"),
            ("upgrade --from 1.31".to_owned(), "a version such as 1.32.1 is needed"),
            ("upgrade --to 1.32.1-rc.0".to_owned(), "a version such as 1.32.1 is needed"),
            ("upgrade --charm /nowhere.charm".to_owned(), "No such file or directory"),
            ("upgrade --to-charm Cargo.toml".to_owned(), "a charm directory or a .charm file is needed"),
            ("upgrade --format xml".to_owned(), "[possible values: text, json]"),
            ("downgrade".to_owned(), "unrecognized subcommand 'downgrade'"),
            (
                format!("upgrade --from 1.31.3 --charm {charm}"),
                "'--from <VERSION>' cannot be used with '--charm <CHARM>'",
            ),
            (format!("upgrade --to 1.32.1 --to-charm {charm}"), "'--to <VERSION>' cannot be used with"),
        ] {
            let refusal = refusal(&arguments);
            assert!(refusal.contains(reason), "{arguments}: {refusal}");
        }
    }

    #[test]
    fn help_is_no_failure() {
        for arguments in ["--help", "upgrade --help", "--version"] {
            let error = parse(format!("k8s-sim {arguments}").split_whitespace()).unwrap_err();
            assert_eq!(error.exit_code(), 0, "{arguments}");
        }
    }
}
