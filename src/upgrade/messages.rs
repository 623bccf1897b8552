//! The texts of `juju status`, in one place: what is going on first, what to do last.
//!
//! At most 120 characters, or `juju status` cuts them. Figures move in steps, so that `juju show-status-log` stays
//! readable.

use super::unit::UnitAction;
use super::values::{ApplicationBag, UnitBag, UnitState};
use super::waiting::WaitingOn;
use crate::names::{KubernetesVersion, UnitName};

/// The longest message that `juju status` shows whole in a usual terminal.
pub const LONGEST: usize = 120;

/// Which of Juju's workload statuses a message goes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// All is well, or what is left is others' business.
    Active,
    /// Something has to happen first, and it will by itself.
    Waiting,
    /// At work.
    Maintenance,
    /// The admin's word is needed.
    Blocked,
}

impl Tone {
    /// Juju's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Waiting => "waiting",
            Self::Maintenance => "maintenance",
            Self::Blocked => "blocked",
        }
    }
}

/// One status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The status.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

impl Message {
    /// A message, cut to what `juju status` shows.
    pub fn new(tone: Tone, text: impl AsRef<str>) -> Self {
        Self { tone, text: shorten(text.as_ref(), LONGEST) }
    }

    /// A message that ends in what to do: that is seen whole, whatever has to be cut before it.
    pub fn with_remedy(tone: Tone, text: &str, remedy: &str) -> Self {
        let end = format!(". {remedy}");
        let room = LONGEST.saturating_sub(end.chars().count());
        Self::new(tone, format!("{}{end}", shorten(text.trim_end_matches('.'), room)))
    }
}

/// How far a followed change is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The task at work, `Download snap "k8s"`.
    pub task: String,
    /// How much of it is done, in steps of 5 %; for downloads.
    pub percent: Option<u8>,
}

/// What the texts speak of.
#[derive(Debug, Clone, Copy)]
pub struct Speaker<'a> {
    /// This unit.
    pub me: &'a UnitName,
    /// The version that this unit's pin brings.
    pub version: &'a KubernetesVersion,
    /// Whether that is the way back.
    pub going_back: bool,
    /// This unit's bag as this hook leaves it.
    pub bag: &'a UnitBag,
    /// The application bag as it was read.
    pub application: &'a ApplicationBag,
}

impl Speaker<'_> {
    fn going(&self) -> String {
        if self.going_back { format!("Going back to {}", self.version) } else { format!("Upgrade to {}", self.version) }
    }

    fn refreshing(&self) -> String {
        if self.going_back {
            format!("Going back to {}", self.version)
        } else {
            format!("Upgrading to {}", self.version)
        }
    }
}

/// What the unit says of the upgrade, if it has anything to say.
pub fn upgrade(
    speaker: &Speaker<'_>,
    action: &UnitAction,
    waiting: Option<&WaitingOn>,
    progress: Option<&Progress>,
) -> Option<Message> {
    if let Some(waiting) = waiting {
        return Some(waits(speaker, waiting));
    }
    match action {
        UnitAction::Follow { .. } => {
            let step = progress.map_or_else(|| "snapd is at work".to_owned(), describe);
            Some(Message::new(Tone::Maintenance, format!("{}: {step}", speaker.refreshing())))
        }
        UnitAction::GateBefore => {
            Some(Message::new(Tone::Maintenance, format!("{}: refresh begins", speaker.refreshing())))
        }
        _ => None,
    }
}

/// A change's step, `Download snap "k8s" 45%`.
pub fn describe(progress: &Progress) -> String {
    match progress.percent {
        Some(percent) => format!("{} {percent}%", progress.task),
        None => progress.task.clone(),
    }
}

fn waits(speaker: &Speaker<'_>, waiting: &WaitingOn) -> Message {
    let going = speaker.going();
    let (me, version) = (speaker.me, speaker.version);
    let (tone, text) = match waiting {
        WaitingOn::LeaderChecks => (Tone::Waiting, format!("{going}: waiting for the leader's checks")),
        WaitingOn::Turn { holder, left, total } => {
            (Tone::Waiting, format!("{going}: waiting for {holder} ({left} of {total} to go)"))
        }
        WaitingOn::OldCode { unit } => (Tone::Waiting, format!("{going} waits: {unit} still runs the old charm")),
        WaitingOn::AtWork { unit } => (Tone::Waiting, format!("{going} waits: {unit} is at work")),
        WaitingOn::Failed { unit } => (Tone::Waiting, format!("Upgrade halted: {unit} failed")),
        WaitingOn::Admin => return failed(speaker),
        WaitingOn::Pause { after } => {
            let remedy = format!("Check it, then: juju run {me} resume-upgrade");
            return Message::with_remedy(Tone::Blocked, &format!("Upgrade paused after {after}"), &remedy);
        }
        WaitingOn::GateBefore { checks } => return gate_before(speaker, checks),
        WaitingOn::GateAfter { awaited, seconds } => {
            let first = awaited.first().map_or("its node", String::as_str);
            let arrived = if speaker.going_back { "Back at" } else { "Upgraded to" };
            let waited = steps(*seconds);
            (Tone::Maintenance, format!("{arrived} {version}: waiting for {first}{waited}"))
        }
        WaitingOn::SecondTry { cause, .. } => {
            let room = LONGEST.saturating_sub(going.len() + 40);
            (Tone::Waiting, format!("{going} waits: {}; tried once more in a minute", shorten(cause, room)))
        }
        WaitingOn::Snapd { why } if speaker.bag.state == Some(UnitState::Idle) => {
            (Tone::Waiting, format!("Waiting for snapd: {why}"))
        }
        WaitingOn::Snapd { why } => (Tone::Waiting, format!("{going} waits: {why}")),
        WaitingOn::TakenBack => {
            let remedy = format!("To take it in: juju run {}/leader resume-upgrade", me.application());
            return Message::with_remedy(Tone::Waiting, &format!("Left out of the upgrade to {version}"), &remedy);
        }
        WaitingOn::NextTurn | WaitingOn::OthersToFinish => return done(speaker),
        WaitingOn::Removal => (Tone::Maintenance, "Being removed: begins no upgrade".to_owned()),
        WaitingOn::Membership => {
            (Tone::Waiting, "Waiting for k8sd to say whether this node is in the cluster".to_owned())
        }
    };
    Message::new(tone, text)
}

fn failed(speaker: &Speaker<'_>) -> Message {
    let cause = speaker.bag.cause.as_deref().unwrap_or("see the log");
    let remedy = format!("Retry: juju run {} resume-upgrade", speaker.me);
    Message::with_remedy(Tone::Blocked, &format!("Upgrade failed: {cause}"), &remedy)
}

fn gate_before(speaker: &Speaker<'_>, checks: &[(String, String)]) -> Message {
    let ids = checks.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(",");
    let seen = checks.first().map_or("", |(_, seen)| seen.as_str());
    let remedy = format!("To go on anyway: juju run {} resume-upgrade skip={ids}", speaker.me);
    Message::with_remedy(Tone::Waiting, &format!("Upgrade waits: {seen}"), &remedy)
}

/// The checks failed after a refresh: the leader says so.
pub fn checks_failed(leader: &UnitName, failed: &[(String, String)]) -> Message {
    let ids: Vec<&str> = failed.iter().map(|(id, _)| id.as_str()).collect();
    let text = format!("Not ready to upgrade: {}", ids.join(", "));
    let command = format!("Go on anyway: juju run {leader} pre-upgrade-check");
    let named = format!("{command} skip={}", ids.join(","));
    let fits = text.chars().count() + named.chars().count() + 2 <= LONGEST;
    let remedy = if fits { named } else { format!("{command} force=true") };
    Message::with_remedy(Tone::Blocked, &text, &remedy)
}

fn done(speaker: &Speaker<'_>) -> Message {
    let arrived = if speaker.going_back { "Back at" } else { "Upgraded to" };
    let others: Vec<u32> =
        speaker.application.stack.iter().copied().filter(|number| *number != speaker.me.number()).collect();
    let text = match others.split_last() {
        None => format!("{arrived} {}", speaker.version),
        Some((holder, rest)) => {
            let holder = UnitName::new(speaker.me.application(), *holder);
            let more = if rest.is_empty() { String::new() } else { format!(", {} more to go", rest.len()) };
            format!("{arrived} {} ({holder} at work{more})", speaker.version)
        }
    };
    Message::new(Tone::Active, text)
}

/// An option that can't be used as it is: what it may be, and the command that mends it.
pub fn bad_option(application: &str, option: &str, allowed: &str, example: &str) -> Message {
    let remedy = format!("Set it: juju config {application} {option}={example}");
    Message::with_remedy(Tone::Blocked, &format!("Config {option}: {allowed}"), &remedy)
}

/// A new unit gets its snap.
pub fn installing(version: &KubernetesVersion, progress: Option<&Progress>) -> Message {
    let step = progress.map_or_else(|| "snapd is at work".to_owned(), describe);
    Message::new(Tone::Maintenance, format!("Installing Kubernetes {version}: {step}"))
}

/// A new unit can't get its snap.
pub fn not_installed(version: &KubernetesVersion, why: &str, again: bool) -> Message {
    let (tone, end) = if again { (Tone::Waiting, "; tried again") } else { (Tone::Blocked, "") };
    let begin = format!("Installing Kubernetes {version} failed: ");
    let why = shorten(why, LONGEST.saturating_sub(begin.len() + end.len()));
    Message::new(tone, format!("{begin}{why}{end}"))
}

/// A unit added during a run.
pub fn joins_later(version: &KubernetesVersion) -> Message {
    Message::new(Tone::Waiting, format!("Joins when the upgrade to {version} is over"))
}

/// Seconds in steps of 30, ` (60 s)`; nothing below the first step.
fn steps(seconds: u64) -> String {
    match seconds / 30 * 30 {
        0 => String::new(),
        step => format!(" ({step} s)"),
    }
}

/// Cuts a text to so many characters, with an ellipsis.
pub fn shorten(text: &str, longest: usize) -> String {
    if text.chars().count() <= longest {
        return text.to_owned();
    }
    let kept: String = text.chars().take(longest.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names as long as they come.
    fn long() -> (UnitName, KubernetesVersion) {
        (UnitName::new("kubernetes-control-plane", 112), "1.132.110".parse().unwrap())
    }

    fn seen(ids: &[&str]) -> Vec<(String, String)> {
        ids.iter().map(|id| ((*id).to_owned(), "x".repeat(200))).collect()
    }

    #[test]
    fn the_command_is_seen_whole_whatever_is_cut_before_it() {
        let (me, version) = long();
        let bag = UnitBag { cause: Some("c".repeat(300)), ..UnitBag::default() };
        let application = ApplicationBag::default();
        let speaker = Speaker { me: &me, version: &version, going_back: false, bag: &bag, application: &application };
        let all = ["api", "nodes", "quorum", "versions"];
        let texts = [
            waits(&speaker, &WaitingOn::Admin),
            waits(&speaker, &WaitingOn::Pause { after: me.clone() }),
            waits(&speaker, &WaitingOn::GateBefore { checks: seen(&all) }),
            waits(&speaker, &WaitingOn::TakenBack),
            checks_failed(&me, &seen(&["api", "nodes", "quorum", "pods", "features", "k8sd", "snapd", "certificates"])),
            checks_failed(&me, &seen(&["nodes"])),
            bad_option("k8s", "bootstrap-datastore", &"a".repeat(200), "managed-etcd"),
        ];
        let ends = [
            "resume-upgrade",
            "resume-upgrade",
            "skip=api,nodes,quorum,versions",
            "kubernetes-control-plane/leader resume-upgrade",
            "pre-upgrade-check force=true",
            "pre-upgrade-check skip=nodes",
            "juju config k8s bootstrap-datastore=managed-etcd",
        ];
        for (message, end) in texts.iter().zip(ends) {
            assert!(message.text.chars().count() <= LONGEST, "{}", message.text);
            assert!(message.text.ends_with(end), "{}", message.text);
        }
    }
}
