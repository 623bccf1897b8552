//! The charm's binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    k8s_charm::cli::run(std::env::args_os(), std::env::vars_os())
}
