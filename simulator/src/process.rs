//! One run of the charm's binary: its environment, exactly Juju's, and what it cost.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::juju::{Ended, Hook, Model, UnitId};

/// The version of Juju's that is modelled.
const JUJU: &str = "3.6.28";

/// The model's UUID.
pub const MODEL_UUID: &str = "11111111-2222-4333-8444-555555555555";

/// What a process cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Its own CPU, its children's apart, in nanoseconds.
    pub cpu_ns: u64,
    /// The most memory that it was seen with, in kB.
    pub peak_kb: u64,
}

/// Where a unit's agent keeps its things below a machine's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPaths {
    /// The charm's directory.
    pub charm: PathBuf,
    /// The hook tools.
    pub tools: PathBuf,
    /// The hook socket.
    pub socket: PathBuf,
}

impl AgentPaths {
    /// Those of a unit on the machine with this root.
    pub fn new(root: &Path, unit: &UnitId) -> Self {
        let agent = root.join("var/lib/juju/agents").join(unit.tag());
        Self {
            charm: agent.join("charm"),
            tools: root.join("var/lib/juju/tools").join(unit.tag()),
            socket: agent.join("agent.socket"),
        }
    }
}

/// The environment of a hook, and nothing inherited (Juju `context.go` `HookVars`).
pub fn environment(
    model: &Model,
    unit: &UnitId,
    hook: &Hook,
    context: &str,
    paths: &AgentPaths,
    stand_ins: &Path,
) -> BTreeMap<String, String> {
    let name = model.hook_name(hook);
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let machine = model.units.get(unit).map_or_else(String::new, |unit| unit.machine.to_string());
    let search = format!(
        "{}:{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        path(&paths.tools),
        path(stand_ins)
    );
    let mut variables: BTreeMap<String, String> = [
        ("CHARM_DIR", path(&paths.charm)),
        ("JUJU_CHARM_DIR", path(&paths.charm)),
        ("JUJU_UNIT_NAME", unit.to_string()),
        ("JUJU_MODEL_NAME", "rehearsal".to_owned()),
        ("JUJU_MODEL_UUID", MODEL_UUID.to_owned()),
        ("JUJU_VERSION", JUJU.to_owned()),
        ("JUJU_CONTEXT_ID", context.to_owned()),
        ("JUJU_AGENT_SOCKET_ADDRESS", path(&paths.socket)),
        ("JUJU_AGENT_SOCKET_NETWORK", "unix".to_owned()),
        ("JUJU_API_ADDRESSES", "10.0.0.1:17070".to_owned()),
        ("JUJU_MACHINE_ID", machine),
        ("JUJU_SLA", "unsupported".to_owned()),
        ("PATH", search),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "tmux-256color".to_owned()),
        ("DEBIAN_FRONTEND", "noninteractive".to_owned()),
        ("APT_LISTCHANGES_FRONTEND", "none".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let empty = [
        "JUJU_PRINCIPAL_UNIT",
        "JUJU_AVAILABILITY_ZONE",
        "CLOUD_API_VERSION",
        "JUJU_CHARM_HTTP_PROXY",
        "JUJU_CHARM_HTTPS_PROXY",
        "JUJU_CHARM_FTP_PROXY",
        "JUJU_CHARM_NO_PROXY",
    ];
    variables.extend(empty.map(|name| (name.to_owned(), String::new())));
    let mut set = |name: &str, value: String| variables.insert(name.to_owned(), value);
    match hook {
        Hook::Exec(..) => {
            set("JUJU_HOOK_NAME", String::new());
        }
        Hook::Action(id) => {
            set("JUJU_HOOK_NAME", String::new());
            set("JUJU_DISPATCH_PATH", format!("actions/{name}"));
            set("JUJU_ACTION_NAME", name);
            set("JUJU_ACTION_UUID", id.to_string());
            set("JUJU_ACTION_TAG", format!("action-{id}"));
        }
        _ => {
            set("JUJU_DISPATCH_PATH", format!("hooks/{name}"));
            set("JUJU_HOOK_NAME", name);
        }
    }
    if let Hook::SecretChanged(id) = hook {
        set("JUJU_SECRET_ID", format!("secret:{id}"));
        set("JUJU_SECRET_LABEL", String::new());
    }
    if let Hook::Relation(id, kind, about) = hook
        && let Some(relation) = model.relations.get(id)
    {
        set("JUJU_RELATION", relation.name.clone());
        set("JUJU_RELATION_ID", relation.full_id());
        set("JUJU_REMOTE_UNIT", about.as_ref().map(ToString::to_string).unwrap_or_default());
        set("JUJU_REMOTE_APP", relation.remote_application(&unit.application));
        if *kind == "departed" {
            // S57: who leaves; the unit itself if it is dying.
            let dying = model.units.get(unit).is_some_and(|unit| unit.dying);
            let leaver = if dying { Some(unit) } else { about.as_ref() };
            set("JUJU_DEPARTING_UNIT", leaver.map(ToString::to_string).unwrap_or_default());
        }
    }
    variables
}

/// Starts the charm: `dispatch`, or for a `juju-exec` bash with its script, in the charm's directory (S2).
///
/// # Errors
///
/// It can't be started.
pub fn start(hook: &Hook, paths: &AgentPaths, environment: &BTreeMap<String, String>) -> io::Result<Child> {
    let mut command = match hook {
        Hook::Exec(script, _) => {
            let mut command = Command::new("/bin/bash");
            command.arg("-c").arg(script);
            command
        }
        _ => Command::new(paths.charm.join("dispatch")),
    };
    command
        .current_dir(&paths.charm)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command.spawn()
}

/// How a process ended.
pub fn ended(status: std::process::ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exit(code),
        (None, signal) => Ended::Killed(signal.unwrap_or(9)),
    }
}

/// What a live process has cost by now, all its threads together; nothing for one that is gone.
pub fn cost(pid: u32) -> Cost {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let cpu = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Cost { cpu_ns: threads.filter_map(cpu).sum(), peak_kb: peak.unwrap_or(0) }
}

/// What a process had cost when it became the charm: a `juju-exec` is bash first, which is not the charm's cost.
pub fn cost_before_charm(pid: u32) -> u64 {
    for _ in 0..BASH_AT_MOST {
        match fs::read_link(format!("/proc/{pid}/exe")) {
            Ok(program) if program.ends_with("dispatch") => return cost(pid).cpu_ns,
            Ok(_) => std::thread::yield_now(),
            Err(_) => return 0,
        }
    }
    0
}

/// So often a process is looked at until it is the charm.
const BASH_AT_MOST: u32 = 20_000;

/// Whether a process does nothing but wait: it sleeps, and so do its threads, and no child of its runs.
pub fn waits(pid: u32) -> bool {
    let sleeps = |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'));
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut any = false;
    for thread in threads {
        any = true;
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        if !sleeps(stat) || !children.trim().is_empty() {
            return false;
        }
    }
    any
}
