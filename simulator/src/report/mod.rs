//! What a rehearsal found, and how it is shown. Pure: values in, text out.

mod json;
mod live;
mod table;
mod text;

pub use json::json;
pub use live::{Live, Progress, Screen};
pub use text::text;

use serde::{Serialize, Serializer};

use crate::time::SimTime;

/// The columns that texts are made for.
const WIDTH: usize = 120;

/// What a rehearsal found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    /// Whether all went as it should.
    pub verdict: Verdict,
    /// The units as they were at the end.
    pub units: Vec<UnitRow>,
    /// The hooks that ran, in order.
    pub timeline: Vec<Line>,
    /// The invariants that were broken, in order.
    pub violations: Vec<Violation>,
    /// What it cost.
    pub costs: Costs,
}

/// Whether all went as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every unit ended at its version and idle, and no invariant was broken.
    Passed,
    /// Something went wrong.
    Failed {
        /// What did, one sentence each.
        reasons: Vec<String>,
    },
}

/// A unit as `juju status` shows it, and its snap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnitRow {
    /// Its name, `k8s/0`.
    pub unit: String,
    /// Whether it leads its application.
    pub leader: bool,
    /// Its workload's status, `active`.
    pub workload: String,
    /// Its agent's state, `idle`.
    pub agent: String,
    /// Its machine, as in `JUJU_MACHINE_ID`.
    pub machine: String,
    /// What its status says.
    pub message: String,
    /// The Kubernetes version of its snap; none if there is no snap.
    pub version: Option<String>,
    /// The revision of its snap, as snapd writes it; none if there is no snap.
    pub revision: Option<String>,
}

/// A hook that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When it began. In JSON: `time_ms`, milliseconds since the beginning.
    #[serde(rename = "time_ms", serialize_with = "milliseconds")]
    pub time: SimTime,
    /// The unit that ran it.
    pub unit: String,
    /// The hook's or action's name; `upgrade-granted` for a wake-up.
    pub hook: String,
    /// What it did, one phrase each: requests that changed something, databag writes.
    pub did: Vec<String>,
    /// The status that it set, `waiting: Upgrade to 1.32.1: …`; none if it set none.
    pub status: Option<String>,
}

/// An invariant that was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// When. In JSON: `time_ms`, milliseconds since the beginning.
    #[serde(rename = "time_ms", serialize_with = "milliseconds")]
    pub time: SimTime,
    /// Which one, `I1`.
    pub invariant: String,
    /// What was seen.
    pub text: String,
}

/// What a rehearsal cost the charm.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Costs {
    /// Hooks and actions that ran, wake-ups apart.
    pub hooks: u64,
    /// Wake-ups by the unit's timer.
    pub wakeups: u64,
    /// Calls of hook tools.
    pub calls: u64,
    /// Processes that were started for those calls.
    pub processes: u64,
    /// CPU time of the charm's own processes, in milliseconds.
    pub cpu_ms: f64,
    /// The largest memory that one of them had at once, in megabytes (10^6 bytes).
    pub peak_rss_mb: f64,
}

impl Serialize for Verdict {
    /// `{"outcome": "passed" | "failed", "reasons": [TEXT, …]}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shape<'a> {
            outcome: &'static str,
            reasons: &'a [String],
        }
        let shape = match self {
            Self::Passed => Shape { outcome: "passed", reasons: &[] },
            Self::Failed { reasons } => Shape { outcome: "failed", reasons },
        };
        shape.serialize(serializer)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn milliseconds<S: Serializer>(time: &SimTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.0)
}

#[cfg(test)]
pub(crate) mod example {
    use super::*;

    pub(crate) fn unit(number: u32, workload: &str, message: &str, version: &str, revision: &str) -> UnitRow {
        UnitRow {
            unit: format!("k8s/{number}"),
            leader: number == 0,
            workload: workload.to_owned(),
            agent: "idle".to_owned(),
            machine: number.to_string(),
            message: message.to_owned(),
            version: Some(version.to_owned()),
            revision: Some(revision.to_owned()),
        }
    }

    fn line(seconds: u64, unit: &str, hook: &str, did: &[&str], status: Option<&str>) -> Line {
        let did = did.iter().map(|&did| did.to_owned()).collect();
        let (unit, hook, status) = (unit.to_owned(), hook.to_owned(), status.map(str::to_owned));
        Line { time: SimTime(seconds * 1000), unit, hook, did, status }
    }

    /// A run that went wrong in every way that a report can show.
    pub(crate) fn report() -> RunReport {
        RunReport {
            verdict: Verdict::Failed {
                reasons: vec!["k8s/2 is not at 1.32.1".to_owned(), "an invariant was broken: I1".to_owned()],
            },
            units: vec![
                unit(0, "active", "Upgraded to 1.32.1 (k8s/2 at work)", "1.32.1", "2002"),
                UnitRow { version: None, revision: None, ..unit(2, "waiting", "Upgrade halted: k8s/0 failed", "", "") },
            ],
            timeline: vec![
                line(0, "k8s/0", "install", &["snapd: install k8s revision 2001"], Some("maintenance: Installing k8s")),
                line(605, "k8s/0", "external-load-balancer-relation-departed", &[], None),
                line(
                    3723,
                    "k8s/2",
                    "upgrade-relation-changed",
                    &[
                        "upgrade: state=upgrading since=2026-01-01T01:02:03Z",
                        "kubernetes: delete upgrades.k8sd.io/cp-1.32.1",
                        "snapd: refresh k8s revision 2002",
                        "systemd: start k8s-2-upgrade-granted.timer",
                    ],
                    Some(
                        "maintenance: Upgrading to 1.32.1: Download snap \"k8s\" (2002) from channel \"1.32-classic/stable\" 45%",
                    ),
                ),
            ],
            violations: vec![Violation {
                time: SimTime(3_725_000),
                invariant: "I1".to_owned(),
                text: "k8s/0 and k8s/2 are refreshed at once".to_owned(),
            }],
            costs: Costs { hooks: 58, wakeups: 41, calls: 640, processes: 640, cpu_ms: 180.25, peak_rss_mb: 4.06 },
        }
    }
}
