//! `k8s-sim`.

use std::process::ExitCode;

use k8s_sim::cli;

#[expect(clippy::print_stderr, reason = "this is where the command speaks to whoever started it")]
fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(_) => {
            eprintln!("k8s-sim: this build has no simulated Juju yet: it can't rehearse an upgrade");
            ExitCode::FAILURE
        }
        Err(error) => error.exit(),
    }
}
