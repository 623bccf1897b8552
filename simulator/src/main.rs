//! `k8s-sim`; and, under their names, the hook tools that the charm calls in a rehearsal.

use std::io::Write as _;
use std::process::ExitCode;

use k8s_sim::cli::{self, Format, Settings, UpgradeSettings};
use k8s_sim::rehearsal::{self, Show};
use k8s_sim::report::{self, RunReport, Verdict};
use k8s_sim::tool_client;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if let Some(tool) = arguments.next().and_then(|program| tool_client::tool_name(&program)) {
        return tool_client::run(tool, arguments);
    }
    match cli::parse(std::env::args_os()) {
        Ok(Settings::Upgrade(settings)) => upgrade(&settings),
        Err(error) => error.exit(),
    }
}

fn upgrade(settings: &UpgradeSettings) -> ExitCode {
    match rehearse(settings) {
        Ok(report) => {
            let text = match settings.format {
                Format::Text => format!("\n{}", report::text(&report)),
                Format::Json => report::json(&report).unwrap_or_else(|error| error.to_string()),
            };
            let written = std::io::stdout().write_all(text.as_bytes());
            match (report.verdict, written) {
                (Verdict::Passed, Ok(())) => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        Err(error) => complain(error.as_ref()),
    }
}

fn rehearse(settings: &UpgradeSettings) -> Result<RunReport, Box<dyn std::error::Error>> {
    let program = std::env::current_exe()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(rehearsal::upgrade(settings, &program, &mut Show::new(settings.format)))?)
}

#[expect(clippy::print_stderr, reason = "this is where the command speaks to whoever started it")]
fn complain(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("k8s-sim: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  because: {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}
