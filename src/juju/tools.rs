//! The seam to Juju's hook tools: one call in, its standard output back.
//!
//! Today every call is a process (`ExecTools`); whoever speaks to the agent's socket implements the same trait.

use std::future::Future;
use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, Command};

/// One call of a hook tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolCall<'a> {
    /// The tool, `relation-get`.
    pub tool: &'static str,
    /// Its arguments; they never go through a shell.
    pub arguments: &'a [&'a str],
    /// What it reads; most tools read nothing.
    pub stdin: Option<&'a [u8]>,
}

/// Whoever can call hook tools.
pub trait HookTools {
    /// Calls one tool, and waits for its answer.
    fn call(&self, call: &ToolCall<'_>) -> impl Future<Output = Result<Vec<u8>, HookToolError>>;
}

/// Why a call of a hook tool has no answer.
#[derive(Debug, thiserror::Error)]
pub enum HookToolError {
    /// The tool could not be run.
    #[error("cannot run {tool}")]
    Run {
        /// Which.
        tool: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The tool says no (exit code 1), or doesn't understand (2).
    #[error("{tool}: {message}")]
    Refused {
        /// Which.
        tool: &'static str,
        /// Its exit code.
        code: i32,
        /// Its `ERROR` line without that word.
        message: String,
    },
    /// The tool was killed: whether it did its work is not known.
    #[error("{tool} died ({status})")]
    Died {
        /// Which.
        tool: &'static str,
        /// How.
        status: ExitStatus,
    },
}

/// Hook tools as processes, found by `PATH`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecTools;

impl HookTools for ExecTools {
    async fn call(&self, call: &ToolCall<'_>) -> Result<Vec<u8>, HookToolError> {
        let tool = call.tool;
        let run = |source| HookToolError::Run { tool, source };
        let stdin = if call.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut command = Command::new(tool);
        command.args(call.arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(run)?;
        let (pipe, payload) = (child.stdin.take(), call.stdin.unwrap_or_default());
        // At the same time: a tool that writes before it has read all would wait for us, and we for it.
        let (written, output) = tokio::join!(write(pipe, payload), child.wait_with_output());
        written.map_err(run)?;
        let output = output.map_err(run)?;
        match output.status.code() {
            Some(0) => Ok(output.stdout),
            Some(code) => Err(HookToolError::Refused { tool, code, message: error_text(&output.stderr) }),
            None => Err(HookToolError::Died { tool, status: output.status }),
        }
    }
}

async fn write(pipe: Option<ChildStdin>, payload: &[u8]) -> io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    match pipe.write_all(payload).await {
        // A tool that ends without reading says why by its exit code.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// The last `ERROR` line that a tool wrote, or else all that it wrote.
fn error_text(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let error = text.lines().rev().find_map(|line| line.strip_prefix("ERROR "));
    error.unwrap_or(text.trim()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_error_line_is_found_between_others() {
        assert_eq!(error_text(b"WARNING x\nERROR permission denied\n"), "permission denied");
        assert_eq!(error_text(b" odd \xff\n"), "odd \u{fffd}");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn arguments_and_payload_reach_the_tool_as_they_are() {
        let echo = ToolCall { tool: "printf", arguments: &["%s|", "$HOME", "a b", "*"], stdin: None };
        assert_eq!(ExecTools.call(&echo).await.unwrap(), b"$HOME|a b|*|");
        let payload = vec![b'x'; 300_000];
        let cat = ToolCall { tool: "cat", arguments: &[], stdin: Some(&payload) };
        assert_eq!(ExecTools.call(&cat).await.unwrap(), payload);
        let ignores = ToolCall { tool: "true", arguments: &[], stdin: Some(&payload) };
        assert!(ExecTools.call(&ignores).await.is_ok(), "a tool may end without reading");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn failures_are_told_apart() {
        let call = |tool| ToolCall { tool, arguments: &[], stdin: None };
        assert!(matches!(ExecTools.call(&call("false")).await, Err(HookToolError::Refused { code: 1, .. })));
        assert!(matches!(ExecTools.call(&call("no-such-tool")).await, Err(HookToolError::Run { .. })));
        let suicide = ToolCall { tool: "sh", arguments: &["-c", "kill -9 $$"], stdin: None };
        assert!(matches!(ExecTools.call(&suicide).await, Err(HookToolError::Died { .. })));
    }
}
