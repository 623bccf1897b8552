//! The checks before a run, the gate before a refresh, and the gate after: facts in, findings out.
//!
//! The texts are read at 3 a.m.: what was seen, why it matters, and what to do.

use std::fmt;

use serde::{Serialize, Serializer};

use super::facts::{CheckFacts, Datastore, Fact, GateFacts, HealthFacts, Hold};
use super::version::{Step, judge};
use crate::names::Timestamp;

/// A check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "their words are the admin's")]
pub enum CheckId {
    Api,
    Nodes,
    Quorum,
    Pods,
    Features,
    K8sd,
    Versions,
    Snapd,
    Space,
    Certificates,
    Run,
}

impl CheckId {
    const WORDS: [(Self, &'static str); 11] = [
        (Self::Api, "api"),
        (Self::Nodes, "nodes"),
        (Self::Quorum, "quorum"),
        (Self::Pods, "pods"),
        (Self::Features, "features"),
        (Self::K8sd, "k8sd"),
        (Self::Versions, "versions"),
        (Self::Snapd, "snapd"),
        (Self::Space, "space"),
        (Self::Certificates, "certificates"),
        (Self::Run, "run"),
    ];

    /// The gate before looks at these.
    pub const GATE: [Self; 4] = [Self::Api, Self::Nodes, Self::Quorum, Self::Versions];

    /// Its word.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(id, _)| *id == self).map_or("", |(_, word)| word)
    }

    /// Whether the admin's word goes past it: all but exclusivity.
    pub fn can_be_skipped(self) -> bool {
        self != Self::Run
    }

    /// Every check that the admin's word goes past.
    pub fn all_that_can_be_skipped() -> impl Iterator<Item = Self> {
        Self::WORDS.into_iter().map(|(id, _)| id).filter(|id| id.can_be_skipped())
    }

    /// Reads `nodes, pods`.
    ///
    /// # Errors
    ///
    /// A word that is none of `allowed`'s, with all that are.
    pub fn parse_list(text: &str, allowed: &[Self]) -> Result<Vec<Self>, String> {
        let words = text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
        words
            .map(|word| {
                let known = allowed.iter().find(|id| id.word() == word && id.can_be_skipped());
                known.copied().ok_or_else(|| {
                    let there = allowed.iter().filter(|id| id.can_be_skipped()).map(|id| id.word());
                    format!(
                        "skip: there is no check `{word}` to pass over here; there are: {}",
                        there.collect::<Vec<_>>().join(", ")
                    )
                })
            })
            .collect()
    }
}

impl fmt::Display for CheckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for CheckId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words say it")]
pub enum Verdict {
    Pass,
    Warn,
    Fail,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check.
    pub id: CheckId,
    /// How it ended.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do; empty where there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

fn finding(id: CheckId, verdict: Verdict, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { id, verdict, seen: seen.into(), remedy: remedy.into() }
}

/// What couldn't be read is a failure that says so.
fn unknown(id: CheckId, why: &str, remedy: &str) -> Finding {
    finding(id, Verdict::Fail, why, remedy)
}

/// A command on this unit's machine.
fn on_unit(facts: &GateFacts, command: &str) -> String {
    format!("juju exec --unit {} -- {command}", facts.me)
}

const GIB: u64 = 1 << 30;
const DAY: i64 = 24 * 3600;

/// All checks before a run, in the order of their table; none stops at the first failure.
///
/// Going back only `versions` and `run` count: what is sick is what is left behind.
pub fn pre_upgrade(facts: &CheckFacts) -> Vec<Finding> {
    let run = run(facts);
    if facts.gate.going_back {
        return vec![versions(&facts.gate), run];
    }
    vec![
        api(&facts.gate),
        nodes(&facts.gate, true),
        quorum(&facts.gate),
        pods(facts),
        features(facts),
        match &facts.k8sd {
            Fact::Known(()) => finding(CheckId::K8sd, Verdict::Pass, "k8sd is ready", ""),
            Fact::Unknown(why) => {
                let command = on_unit(&facts.gate, "journalctl -n 50 -u snap.k8s.k8sd");
                unknown(CheckId::K8sd, why, &format!("look at it: {command}"))
            }
        },
        versions(&facts.gate),
        snapd(facts),
        space(facts),
        certificates(facts),
        run,
    ]
}

/// The gate before a unit's refresh (R6).
pub fn gate_before(facts: &GateFacts) -> Vec<Finding> {
    vec![api(facts), nodes(facts, false), quorum(facts), versions(facts)]
}

/// The findings that stand in the way: id and what was seen. Skipped ones don't, but for those that can't be.
pub fn blocking(findings: &[Finding], skipped: &[CheckId]) -> Vec<(String, String)> {
    let in_the_way = |finding: &&Finding| {
        let passed_over = finding.id.can_be_skipped() && skipped.contains(&finding.id);
        finding.verdict == Verdict::Fail && !passed_over
    };
    findings.iter().filter(in_the_way).map(|finding| (finding.id.word().to_owned(), finding.seen.clone())).collect()
}

fn own_node_is_down(facts: &GateFacts) -> bool {
    match &facts.nodes {
        Fact::Known(nodes) => nodes.get(&facts.own_node).is_some_and(|node| !node.ready),
        Fact::Unknown(_) => false,
    }
}

/// Going back, a broken snap must be able to leave: this node's API server may be what is broken.
fn api(facts: &GateFacts) -> Finding {
    let id = CheckId::Api;
    match &facts.api {
        Fact::Known(()) => finding(id, Verdict::Pass, "the API server answers", ""),
        Fact::Unknown(why) if facts.going_back => finding(id, Verdict::Warn, why, ""),
        Fact::Unknown(why) => {
            let command = on_unit(facts, "journalctl -n 50 -u snap.k8s.kube-apiserver");
            unknown(id, why, &format!("look at it: {command}"))
        }
    }
}

fn nodes(facts: &GateFacts, own_too: bool) -> Finding {
    let id = CheckId::Nodes;
    let nodes = match &facts.nodes {
        Fact::Known(nodes) => nodes,
        // A broken snap must be able to leave.
        Fact::Unknown(why) if facts.going_back => {
            let seen = if facts.other_nodes.is_empty() {
                "this is the only control-plane node".to_owned()
            } else {
                format!("the other nodes can't be seen from here: {why}")
            };
            return finding(id, Verdict::Warn, seen, "");
        }
        Fact::Unknown(why) => {
            return unknown(id, why, &format!("see them: {}", on_unit(facts, "k8s kubectl get nodes")));
        }
    };
    let own = own_too.then_some(&facts.own_node);
    let expected = facts.other_nodes.values().chain(own);
    let down: Vec<String> = expected
        .filter_map(|name| match nodes.get(name) {
            Some(node) if node.ready => None,
            Some(_) => Some(format!("{name} NotReady")),
            None => Some(format!("{name} absent")),
        })
        .collect();
    if !down.is_empty() {
        let remedy = "bring it back, or remove its unit: juju remove-unit";
        return finding(id, Verdict::Fail, format!("node {}", down.join(", ")), remedy);
    }
    let is_expected = |name: &String| *name == facts.own_node || facts.other_nodes.values().any(|node| node == name);
    let odd: Vec<String> = nodes
        .iter()
        .filter_map(|(name, node)| match node.control_plane {
            true if !is_expected(name) => Some(format!("{name} belongs to no unit")),
            false if !node.ready => Some(format!("worker {name} NotReady")),
            _ => None,
        })
        .collect();
    if odd.is_empty() {
        finding(id, Verdict::Pass, format!("{} nodes Ready", nodes.len()), "")
    } else {
        finding(id, Verdict::Warn, odd.join(", "), "")
    }
}

/// Whether the datastore keeps a majority without this node.
fn quorum(facts: &GateFacts) -> Finding {
    let id = CheckId::Quorum;
    let members = match &facts.datastore {
        Fact::Known(Datastore::External) => {
            return finding(id, Verdict::Pass, "the datastore is external: it is not touched", "");
        }
        Fact::Known(Datastore::Own(members)) => members,
        // It takes nothing from the quorum, or a broken snap could never leave.
        Fact::Unknown(why) if facts.going_back => return finding(id, Verdict::Warn, why, ""),
        Fact::Unknown(why) => return unknown(id, why, &format!("see them: {}", on_unit(facts, "k8s status"))),
    };
    if let (Fact::Unknown(why), true) = (&facts.nodes, facts.going_back) {
        return finding(id, Verdict::Warn, format!("which members are up can't be seen from here: {why}"), "");
    }
    let up = |name: &String| match &facts.nodes {
        Fact::Known(nodes) => nodes.get(name).is_some_and(|node| node.ready),
        Fact::Unknown(_) => false,
    };
    let total = members.len();
    match total {
        0 | 1 => {
            return finding(id, Verdict::Warn, "one control-plane node: the API is away while it is refreshed", "");
        }
        2 => return finding(id, Verdict::Warn, "two control-plane nodes: the API is away while one is refreshed", ""),
        _ => {}
    }
    if facts.going_back && own_node_is_down(facts) {
        return finding(id, Verdict::Pass, "this node is down: it takes nothing from the quorum", "");
    }
    let left = members.iter().filter(|name| **name != facts.own_node && up(name)).count();
    if left * 2 > total {
        return finding(id, Verdict::Pass, format!("{left} of {total} datastore members stay"), "");
    }
    let seen = format!("only {left} of {total} datastore members would stay: the cluster would stop");
    finding(id, Verdict::Fail, seen, "bring the others back first")
}

fn versions(facts: &GateFacts) -> Finding {
    let versions = &facts.versions;
    let Some(from) = &versions.from else {
        let remedy = format!("look at snapd: {}", on_unit(facts, "systemctl status snapd"));
        return finding(CheckId::Versions, Verdict::Warn, "the installed version is not known", remedy);
    };
    let step = Step {
        me: &facts.me,
        from,
        to: versions.to.as_ref(),
        way: versions.way,
        supported: versions.supported.as_ref(),
    };
    judge(&step, &versions.workers, versions.worker_constraint.as_ref())
}

fn pods(facts: &CheckFacts) -> Finding {
    let id = CheckId::Pods;
    match &facts.pods {
        Fact::Unknown(why) => {
            unknown(id, why, &format!("see them: {}", on_unit(&facts.gate, "k8s kubectl get pods -A")))
        }
        Fact::Known(pods) if pods.is_empty() => finding(id, Verdict::Pass, "all pods run", ""),
        Fact::Known(pods) => {
            let shown = pods.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
            let more = if pods.len() > 5 { format!("; and {} more", pods.len() - 5) } else { String::new() };
            let remedy = format!("look at them: {}", on_unit(&facts.gate, "k8s kubectl describe pod"));
            finding(id, Verdict::Fail, format!("{shown}{more}"), remedy)
        }
    }
}

fn features(facts: &CheckFacts) -> Finding {
    let id = CheckId::Features;
    match &facts.features {
        Fact::Unknown(why) => unknown(id, why, &format!("see them: {}", on_unit(&facts.gate, "k8s status"))),
        Fact::Known(failed) if failed.is_empty() => finding(id, Verdict::Pass, "all features are healthy", ""),
        Fact::Known(failed) => {
            let seen = failed.iter().map(|(name, message)| format!("{name}: {message}")).collect::<Vec<_>>().join("; ");
            finding(id, Verdict::Fail, seen, "mend the feature, or switch it off")
        }
    }
}

fn snapd(facts: &CheckFacts) -> Finding {
    let id = CheckId::Snapd;
    let snapd = match &facts.snapd {
        Fact::Unknown(why) => {
            return unknown(id, why, &format!("look at it: {}", on_unit(&facts.gate, "systemctl status snapd")));
        }
        Fact::Known(snapd) => snapd,
    };
    if let Some(change) = &snapd.change {
        let seen = format!("change {change} of the snap is in progress");
        let remedy = format!("wait for it: {}", on_unit(&facts.gate, &format!("snap watch {change}")));
        return finding(id, Verdict::Fail, seen, remedy);
    }
    match snapd.hold {
        Hold::Held => finding(id, Verdict::Pass, "snapd answers, and the snap is held", ""),
        Hold::NotHeld => {
            let seen = "the snap may refresh by itself";
            let command = on_unit(&facts.gate, "snap refresh --hold=forever k8s");
            finding(id, Verdict::Warn, seen, format!("hold it: {command}"))
        }
        Hold::CannotHold => {
            let seen = "this snapd can't hold one snap: it may refresh by itself";
            finding(id, Verdict::Warn, seen, "refresh snapd to 2.58 or later")
        }
    }
}

fn space(facts: &CheckFacts) -> Finding {
    let id = CheckId::Space;
    let free = match &facts.space {
        Fact::Unknown(why) => {
            return unknown(id, why, &format!("look: {}", on_unit(&facts.gate, "df -h /var/lib/snapd")));
        }
        Fact::Known(free) => *free,
    };
    let tenths = u128::from(free) * 10 / u128::from(GIB);
    let seen = format!("{}.{} GiB free", tenths / 10, tenths % 10);
    let verdict = match free {
        _ if free < GIB => Verdict::Fail,
        _ if free < 4 * GIB => Verdict::Warn,
        _ => Verdict::Pass,
    };
    let remedy = match verdict {
        Verdict::Pass => String::new(),
        _ => format!("make room: {}", on_unit(&facts.gate, "snap set system refresh.retain=2")),
    };
    finding(id, verdict, seen, remedy)
}

fn certificates(facts: &CheckFacts) -> Finding {
    let id = CheckId::Certificates;
    let certificates = match &facts.certificates {
        Fact::Unknown(why) => {
            return unknown(id, why, &format!("look: {}", on_unit(&facts.gate, "k8s certs-status")));
        }
        Fact::Known(certificates) => certificates,
    };
    let ending = |within: i64| -> Vec<String> {
        let limit = Timestamp(facts.now.0.saturating_add(within));
        certificates.iter().filter(|(_, end)| *end <= limit).map(|(name, _)| name.clone()).collect()
    };
    let remedy = format!("renew them: {}", on_unit(&facts.gate, "k8s refresh-certs --expires-in 20y"));
    let expired = ending(0);
    if !expired.is_empty() {
        return finding(id, Verdict::Fail, format!("expired: {}", expired.join(", ")), remedy);
    }
    let soon = ending(30 * DAY);
    if !soon.is_empty() {
        return finding(id, Verdict::Warn, format!("expiring within 30 days: {}", soon.join(", ")), remedy);
    }
    finding(id, Verdict::Pass, "none expires within 30 days", "")
}

fn run(facts: &CheckFacts) -> Finding {
    match &facts.at_work {
        None => finding(CheckId::Run, Verdict::Pass, "no upgrade is in progress", ""),
        Some(who) => {
            let application = facts.gate.me.application();
            let remedy = format!("see where it stands: juju run {application}/leader upgrade-status");
            finding(CheckId::Run, Verdict::Fail, who.clone(), remedy)
        }
    }
}

/// A service that comes and goes has shown it by then, in seconds after the change's end.
const SETTLED_AFTER: u64 = 15;

/// k8sd's own work after a refresh may take this long, in seconds.
const POST_REFRESH_PATIENCE: u64 = 300;

/// What the gate after found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What is still awaited; nothing: the gate passes.
    pub awaited: Vec<String>,
    /// k8sd found its own finished record of this very upgrade and stopped there: the record has to be deleted, and k8sd
    /// restarted, once.
    pub repair: bool,
}

impl HealthFacts {
    /// Whether all is well that this machine itself can say: only then is the API server worth asking.
    pub fn is_well_inside(&self) -> bool {
        self.awaited_inside().is_empty() && self.has_settled()
    }

    fn has_settled(&self) -> bool {
        self.change_ended.is_none_or(|ended| self.now.seconds_since(ended) >= SETTLED_AFTER)
    }

    fn awaited_inside(&self) -> Vec<String> {
        let mut awaited = Vec::new();
        match &self.inactive_services {
            Fact::Unknown(why) => awaited.push(format!("snapd ({why})")),
            Fact::Known(inactive) if !inactive.is_empty() => awaited.push(format!("services: {}", inactive.join(", "))),
            Fact::Known(_) => {}
        }
        if let Fact::Unknown(why) = &self.k8sd {
            awaited.push(why.clone());
        }
        match &self.post_refresh_since {
            Fact::Unknown(why) => awaited.push(why.clone()),
            Fact::Known(None) => {}
            Fact::Known(Some(_)) => awaited.push("k8sd to finish its own work after the refresh".to_owned()),
        }
        awaited
    }

    fn awaited_of_api(&self) -> Vec<String> {
        let name = &self.node_name;
        match (&self.api, &self.node) {
            (Fact::Unknown(_), _) => vec!["the API server to be ready".to_owned()],
            (_, Fact::Unknown(_)) => vec![format!("the API server to show node {name}")],
            (_, Fact::Known(None)) => vec![format!("node {name} to appear")],
            (_, Fact::Known(Some(node))) if !node.ready => vec![format!("node {name} to be Ready")],
            (_, Fact::Known(Some(node))) if node.kubelet.as_ref() != Some(&self.version) => {
                vec![format!("the kubelet of {name} to report {}", self.version)]
            }
            (_, Fact::Known(Some(_))) => Vec::new(),
        }
    }
}

/// The gate after a unit's refresh (R8): what this machine says comes first, then what the API server says.
pub fn gate_after(facts: &HealthFacts) -> Health {
    let mut awaited = facts.awaited_inside();
    if awaited.is_empty() && !facts.has_settled() {
        awaited.push("its services to have settled".to_owned());
    }
    if awaited.is_empty() {
        awaited = facts.awaited_of_api();
    }
    let open = match facts.post_refresh_since {
        Fact::Known(since) => since,
        Fact::Unknown(_) => None,
    };
    Health { awaited, repair: open.is_some_and(|since| repair_is_due(facts, since)) }
}

/// Once: k8sd that was restarted since then is active for less long than the lock file is old.
fn repair_is_due(facts: &HealthFacts, since: Timestamp) -> bool {
    let patience_is_over = facts.now.seconds_since(since) >= POST_REFRESH_PATIENCE;
    let restarted = facts.k8sd_since.is_some_and(|started| started.seconds_since(since) >= POST_REFRESH_PATIENCE);
    patience_is_over && !restarted && facts.k8sd == Fact::Known(())
}
