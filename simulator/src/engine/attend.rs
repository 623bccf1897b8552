//! A charm's process and what it asks for: hook tools, the machine's servers, and time where it waits for them.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Child;
use tokio::sync::oneshot;

use super::{Engine, EngineError, Fault, io_error};
use crate::juju::{Context, Ended, UnitId};
use crate::process::{self, Cost};
use crate::servers::Incoming;
use crate::systemd::ToolAnswer;
use crate::time::SimTime;
use crate::tool_client::{Answer, Call, MACHINE_TOOLS};
use crate::wire::{MachineId, Reply, Response};

/// How often a process that asks nothing is looked at, in real time.
const TICK: Duration = Duration::from_millis(2);

/// A process that does nothing for so long, in real time, hangs: trouble of the rehearsal.
const HANGS_AFTER: Duration = Duration::from_mins(1);

impl Engine {
    /// Serves a process until it has ended.
    pub(super) async fn attend(
        &mut self,
        context: &mut Context,
        socket: &UnixListener,
        mut child: Child,
        watch: &mut Watch,
    ) -> Result<Ended, EngineError> {
        let pid = child.id().unwrap_or_default();
        let machine = self.machine_of(&context.unit);
        let mut output = Box::pin(read_all(child.stdout.take(), child.stderr.take()));
        let mut parked: Vec<Parked> = Vec::new();
        let mut quiet = 0_u32;
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                biased;
                Ok((stream, _)) = socket.accept() => {
                    quiet = 0;
                    watch.look(pid);
                    self.serve_tool(context, machine, stream).await;
                }
                Some(incoming) = self.incoming.recv() => {
                    quiet = 0;
                    watch.look(pid);
                    let request = format!("{} {}", incoming.request.method, incoming.request.path);
                    watch.note(&request, &incoming);
                    let reply = self.fleet.handle(incoming.machine, incoming.service, self.now, &incoming.request);
                    self.servers.sync(&self.fleet, self.now).await.map_err(io_error("open a server"))?;
                    if answer(reply, incoming.reply, &mut parked) {
                        self.kill_if_told(&context.unit, &request, pid);
                    }
                    watch.requests.push(request);
                }
                text = &mut output => {
                    watch.output = text;
                    break;
                }
                _ = tick.tick() => {
                    quiet += 1;
                    if !parked.is_empty() && quiet > 1 && process::waits(pid) {
                        self.let_time_pass(&context.unit, pid, &mut parked, watch).await?;
                    } else if TICK * quiet > HANGS_AFTER {
                        let (hook, unit) = (context.name.clone(), context.unit.clone());
                        return Err(EngineError::Hangs { hook, unit });
                    }
                }
            }
        }
        watch.look(pid);
        let status = child.wait().await.map_err(io_error("wait for the charm"))?;
        Ok(process::ended(status))
    }

    /// The process waits for a slow server: time goes on to the end of its wait, or to what comes before.
    async fn let_time_pass(
        &mut self,
        unit: &UnitId,
        pid: u32,
        parked: &mut Vec<Parked>,
        watch: &Watch,
    ) -> Result<(), EngineError> {
        let until = parked.iter().map(|parked| parked.until).min().unwrap_or(self.now);
        // A timer that is due meanwhile has to wait for the hook.
        let next = self.fleet.next_change().unwrap_or(until);
        self.go_on_to(until.min(next).max(self.now)).await?;
        let waiting = std::mem::take(parked);
        for waits in waiting {
            if waits.until > self.now {
                parked.push(waits);
                continue;
            }
            let reply = self.fleet.cluster.resume(waits.ticket, self.now);
            self.servers.sync(&self.fleet, self.now).await.map_err(io_error("open a server"))?;
            if answer(reply, waits.to, parked)
                && let Some(request) = watch.requests.last().cloned()
            {
                self.kill_if_told(unit, &request, pid);
            }
        }
        Ok(())
    }

    fn kill_if_told(&mut self, unit: &UnitId, request: &str, pid: u32) {
        let told =
            |(whose, fault): &(UnitId, Fault)| whose == unit && *fault == Fault::KillAfterRequest(request.to_owned());
        if let Some(index) = self.faults.iter().position(told) {
            self.faults.remove(index);
            if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    async fn serve_tool(&mut self, context: &mut Context, machine: MachineId, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        if stream.read_line(&mut line).await.is_err() {
            return;
        }
        let Ok(call) = serde_json::from_str::<Call>(&line) else { return };
        let answer = self.run_tool(context, machine, &call);
        let answer = Answer { code: answer.code, stdout: answer.stdout, stderr: answer.stderr };
        let mut text = serde_json::to_vec(&answer).unwrap_or_default();
        text.push(b'\n');
        let _ = stream.get_mut().write_all(&text).await;
    }

    fn run_tool(&mut self, context: &mut Context, machine: MachineId, call: &Call) -> ToolAnswer {
        let Call { context: id, tool, arguments, stdin } = call;
        if MACHINE_TOOLS.contains(&tool.as_str()) {
            return self.fleet.run_tool(machine, self.now, tool, arguments);
        }
        if *id != context.id {
            return ToolAnswer::failure(1, format!("ERROR bad request: wrong context ID; got {id:?}\n"));
        }
        if tool == "juju-exec" {
            let text = format!("ERROR juju-exec cannot be called from within a hook, have context \"{id}\"\n");
            return ToolAnswer::failure(2, text);
        }
        self.model.tool(context, tool, arguments, stdin)
    }
}

/// A request that a slow server has not answered yet.
struct Parked {
    ticket: u64,
    until: SimTime,
    to: oneshot::Sender<Option<Response>>,
}

/// Answers a request, or keeps it waiting. Whether it was answered.
fn answer(reply: Reply, to: oneshot::Sender<Option<Response>>, parked: &mut Vec<Parked>) -> bool {
    match reply {
        Reply::Now(response) => {
            let _ = to.send(Some(response));
            true
        }
        Reply::Hangup => {
            let _ = to.send(None);
            true
        }
        Reply::Wait { until, ticket } => {
            parked.push(Parked { ticket, until, to });
            false
        }
    }
}

/// What is seen of a process while it runs.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) requests: Vec<String>,
    pub(super) did: Vec<String>,
    pub(super) output: String,
    pub(super) cost: Cost,
}

impl Watch {
    fn look(&mut self, pid: u32) {
        let seen = process::cost(pid);
        self.cost.cpu_ns = self.cost.cpu_ns.max(seen.cpu_ns);
        self.cost.peak_kb = self.cost.peak_kb.max(seen.peak_kb);
    }

    /// A request that changes something is a deed.
    fn note(&mut self, request: &str, incoming: &Incoming) {
        if incoming.request.method == "GET" {
            return;
        }
        let body: Value = serde_json::from_slice(&incoming.request.body).unwrap_or_default();
        let action = body["action"].as_str().map(|action| {
            let what = body["revision"].as_str().or(body["channel"].as_str());
            let what = what.or_else(|| body["names"][0].as_str());
            format!("snapd: {action} {}", what.unwrap_or("k8s"))
        });
        self.did.push(action.unwrap_or_else(|| format!("{:?}: {request}", incoming.service)));
    }
}

async fn read_all(stdout: Option<tokio::process::ChildStdout>, stderr: Option<tokio::process::ChildStderr>) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let read_out = async {
        if let Some(mut stdout) = stdout {
            let _ = stdout.read_to_end(&mut out).await;
        }
    };
    let read_err = async {
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut err).await;
        }
    };
    tokio::join!(read_out, read_err);
    out.extend(err);
    String::from_utf8_lossy(&out).into_owned()
}
