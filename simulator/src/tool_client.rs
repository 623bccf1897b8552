//! The hook tools, `juju-exec` and systemd's programs of a rehearsal: one small client of the engine under many names.
//!
//! It says what it was called with, one line of JSON, to the socket that the hook's environment names, and does as it
//! is answered.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// Every name that it is known by.
pub const NAMES: [&str; 24] = [
    "action-fail",
    "action-get",
    "action-set",
    "application-version-set",
    "close-port",
    "config-get",
    "goal-state",
    "is-leader",
    "juju-log",
    "network-get",
    "open-port",
    "relation-get",
    "relation-ids",
    "relation-list",
    "relation-set",
    "resource-get",
    "secret-add",
    "secret-get",
    "secret-grant",
    "secret-remove",
    "status-get",
    "status-set",
    "unit-get",
    "juju-exec",
];

/// Names of systemd's, which are asked of the machine and not of Juju.
pub const MACHINE_TOOLS: [&str; 2] = ["systemctl", "systemd-run"];

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// `JUJU_CONTEXT_ID`.
    pub context: String,
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// What it read, if it was to read.
    pub stdin: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The exit code.
    pub code: i32,
    /// What goes to standard output.
    pub stdout: String,
    /// What goes to standard error.
    pub stderr: String,
}

/// Whether this program was called by the name of a tool.
pub fn tool_name(program: &OsString) -> Option<String> {
    let name = Path::new(program).file_name()?.to_str()?;
    (NAMES.contains(&name) || MACHINE_TOOLS.contains(&name)).then(|| name.to_owned())
}

/// Runs as a tool.
pub fn run(tool: String, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    match call(tool, arguments) {
        Ok(answer) => {
            let written = io::stdout().write_all(answer.stdout.as_bytes());
            let said = io::stderr().write_all(answer.stderr.as_bytes());
            match (written, said) {
                (Ok(()), Ok(())) => ExitCode::from(u8::try_from(answer.code).unwrap_or(1)),
                _ => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            // A tool without a hook, as Juju's own says it.
            let _ = writeln!(io::stderr(), "ERROR {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a hook tool finds its hook by the environment")]
fn call(tool: String, arguments: impl Iterator<Item = OsString>) -> io::Result<Answer> {
    let variable = |name: &str| std::env::var(name).map_err(|_| io::Error::other(format!("{name} not set")));
    let context = variable("JUJU_CONTEXT_ID")?;
    let address = variable("JUJU_AGENT_SOCKET_ADDRESS")?;
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let mut stdin = String::new();
    if arguments.windows(2).any(|pair| pair[0] == "--file" && pair[1] == "-") {
        io::stdin().read_to_string(&mut stdin)?;
    }
    let mut stream = UnixStream::connect(address)?;
    let mut line = serde_json::to_vec(&Call { context, tool, arguments, stdin })?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
