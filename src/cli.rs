//! The command line: Juju runs this program as `dispatch`, a person may run it by hand.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::charm;
use crate::juju::{ContextError, Event, JujuContext};

/// What a wrong use ends with (`EX_USAGE` of `sysexits.h`).
const USAGE: u8 = 64;

/// Runs and upgrades a Canonical Kubernetes control-plane node: the charm that Juju runs as `dispatch`.
///
/// Not meant to be run by hand. `k8s-sim` rehearses it; `juju run k8s/leader upgrade-status` tells what it does.
#[derive(Debug, Parser)]
#[command(name = "k8s-charm", version, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Handles the event that `JUJU_DISPATCH_PATH` names, as Juju asks for it.
    Dispatch,
}

/// Runs the program: its arguments (its own name first) and its environment.
pub fn run<A, E>(arguments: A, environment: E) -> ExitCode
where
    A: IntoIterator<Item = OsString>,
    E: IntoIterator<Item = (OsString, OsString)>,
{
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments.first().cloned().unwrap_or_default();
    let is_dispatch = Path::new(&name).file_name().is_some_and(|name| name == "dispatch");
    // As `dispatch` the program has no arguments, and Juju gives none: clap isn't on that way.
    if !is_dispatch || arguments.len() > 1 {
        match Arguments::try_parse_from(&arguments) {
            Ok(Arguments { command: Some(Command::Dispatch) }) => {}
            Ok(Arguments { command: None }) => return usage("no command is given"),
            Err(error) if error.use_stderr() => return usage(error.render().to_string().trim()),
            Err(help) => {
                let _ = help.print();
                return ExitCode::SUCCESS;
            }
        }
    }
    let environment: Vec<(OsString, OsString)> = environment.into_iter().collect();
    let says = |name: &str| environment.iter().find(|(variable, _)| variable == name).map(|(_, value)| value.clone());
    let (path, is_action) =
        (says("JUJU_DISPATCH_PATH").unwrap_or_default(), says("JUJU_ACTION_NAME").is_some_and(|name| !name.is_empty()));
    match JujuContext::parse(environment, Path::new(&name)) {
        Ok(context) => charm::run(context),
        Err(ContextError::NotJuju) => usage("this isn't an environment of Juju's: JUJU_UNIT_NAME is not set"),
        Err(error) => {
            complain(&format!("Juju's environment can't be used: {error}"));
            let must_not_fail = Event::parse(&path.to_string_lossy()) == Event::UpgradeCharm;
            let is_told = charm::tell_unusable(&error, is_action);
            if is_told || must_not_fail { ExitCode::SUCCESS } else { ExitCode::from(USAGE) }
        }
    }
}

fn usage(why: &str) -> ExitCode {
    complain(&format!("{why}\n\n{}", Arguments::command().render_long_help()));
    ExitCode::from(USAGE)
}

#[expect(clippy::print_stderr, reason = "Juju isn't there to be told: this is for whoever started the program")]
fn complain(text: &str) {
    eprintln!("{text}");
}
