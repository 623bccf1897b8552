//! One run: the ports are wired together, the event is handled, the log is sent, and the exit code is chosen.

use std::process::ExitCode;

use tokio::runtime::Runtime;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::dispatch;
use crate::error_text::with_causes;
use crate::juju::log::Lines;
use crate::juju::{ContextError, Event, ExecTools, HookTools, Juju, JujuContext};
use crate::k8sd::K8sd;
use crate::machine::Clock;
use crate::machine::timer::WakeUp;
use crate::snap::{Hashes, Snapd};
use crate::upgrade::messages::{Message, Tone};

/// Everything that a handler works with.
#[derive(Debug)]
pub struct Charm<T> {
    /// What Juju told this run.
    pub context: JujuContext,
    /// Juju.
    pub juju: Juju<T>,
    /// snapd.
    pub snapd: Snapd,
    /// k8sd.
    pub k8sd: K8sd,
    /// The present.
    pub clock: Clock,
    /// This unit's wake-up.
    pub wake_up: WakeUp,
    /// Hashes of large files.
    pub hashes: Hashes,
}

impl<T: HookTools> Charm<T> {
    /// The ports of this machine, with Juju behind these tools.
    pub fn new(context: JujuContext, tools: T) -> Self {
        let root = &context.root;
        Self {
            juju: Juju::new(tools),
            snapd: Snapd::new(root),
            k8sd: K8sd::new(root),
            clock: Clock::new(root),
            wake_up: WakeUp::new(root, &context.unit),
            hashes: Hashes::new(context.charm_dir.join(".hashes.json")),
            context,
        }
    }
}

/// Handles the event of this context, and says how the process ends.
///
/// `upgrade-charm` never fails: while it is in error Juju ignores every further refresh, the way back too.
pub fn run(context: JujuContext) -> ExitCode {
    let must_not_fail = context.event == Event::UpgradeCharm;
    end_after_a_panic(must_not_fail);
    let lines = Lines::default();
    let subscriber = tracing_subscriber::registry().with(lines.layer());
    let Some(runtime) = runtime() else { return exit_code(must_not_fail) };
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let charm = Charm::new(context, ExecTools);
            let result = dispatch::dispatch(&charm).await;
            if let Err(error) = &result {
                tracing::error!("{} failed: {}", charm.context.event, with_causes(error));
            }
            lines.send(&charm.juju).await;
            match result {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => exit_code(must_not_fail),
            }
        })
    })
}

fn runtime() -> Option<Runtime> {
    match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            complain(&format!("cannot start: {error}"));
            None
        }
    }
}

/// Tells Juju why this run can do nothing: by the unit's status, or as the action's failure. Whether Juju could be told.
pub fn tell_unusable(error: &ContextError, is_action: bool) -> bool {
    let remedy = "Restart the agent: systemctl restart jujud-machine-*";
    let message = Message::with_remedy(Tone::Blocked, &error.to_string(), remedy);
    let Some(runtime) = runtime() else { return false };
    let juju = Juju::new(ExecTools);
    let told = runtime.block_on(async {
        if is_action {
            juju.fail_action(&message.text).await
        } else {
            juju.set_status(message.tone.word(), &message.text).await
        }
    });
    told.is_ok()
}

fn exit_code(must_not_fail: bool) -> ExitCode {
    if must_not_fail { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A panic would end the process by a signal, which Juju takes for a crash of its own making: it ends as an error.
fn end_after_a_panic(must_not_fail: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        complain(&format!("this is a bug: {panic}"));
        std::process::exit(i32::from(!must_not_fail));
    }));
}

#[expect(clippy::print_stderr, reason = "Juju logs a hook's standard error; its own log can't be reached from here")]
fn complain(text: &str) {
    eprintln!("{text}");
}
