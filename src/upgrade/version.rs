//! The version table: which steps Kubernetes takes, and how far workers may be behind.

use std::collections::BTreeSet;

use super::checks::{CheckId, Finding, Verdict};
use super::constraint::Constraint;
use crate::names::{KubernetesVersion, UnitName};

/// Which way a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Into a run.
    Forward,
    /// Back to what the run came from: nothing has been written yet that the old version couldn't read.
    Back,
}

/// A step of the control plane.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// This unit.
    pub me: &'a UnitName,
    /// What snapd says is installed.
    pub from: &'a KubernetesVersion,
    /// What the pin brings. `None`: a channel's pin, and the store doesn't answer.
    pub to: Option<&'a KubernetesVersion>,
    /// Which way.
    pub way: Way,
    /// `upgrade_supported` of the new charm.
    pub supported: Option<&'a Constraint>,
}

/// What the table says of the control plane's step, and of the workers.
pub fn judge(
    step: &Step<'_>,
    workers: &[(UnitName, Option<KubernetesVersion>)],
    charm: Option<&Constraint>,
) -> Finding {
    let Some(to) = step.to else {
        return finding(
            Verdict::Warn,
            "the target's version is not known".to_owned(),
            format!("see what the channel holds: juju exec --unit {} -- snap info k8s", step.me),
        );
    };
    let own = control_plane(step, to);
    if own.verdict == Verdict::Fail {
        return own;
    }
    match skew(to, workers, charm) {
        Some(skew) if skew.verdict > own.verdict => skew,
        _ => own,
    }
}

fn finding(verdict: Verdict, seen: String, remedy: impl Into<String>) -> Finding {
    Finding { id: CheckId::Versions, verdict, seen, remedy: remedy.into() }
}

fn control_plane(step: &Step<'_>, to: &KubernetesVersion) -> Finding {
    let from = step.from;
    let seen = format!("{from} to {to}");
    let (from_minor, to_minor) = (from.minor(), to.minor());
    let minors_up = i128::from(to_minor.1) - i128::from(from_minor.1);
    if to_minor.0 != from_minor.0 {
        return finding(
            Verdict::Fail,
            format!("{seen}: another major version"),
            "refresh to a charm of this major version",
        );
    }
    let down = to < from;
    if minors_up > 1 {
        let between = format!("{}.{}", from_minor.0, from_minor.1 + 1);
        let seen = format!("{seen}: Kubernetes upgrades one minor version at a time");
        return finding(
            Verdict::Fail,
            seen,
            format!("go to {between} first: juju refresh {} --channel {between}/stable", step.me.application()),
        );
    }
    if minors_up < 0 && step.way == Way::Forward {
        let seen = format!("{seen}: the datastore may hold objects that {to} can't read");
        return finding(Verdict::Fail, seen, format!("stay at {from}, or restore a backup made with {to}"));
    }
    if !down
        && step.way == Way::Forward
        && let Some(supported) = step.supported
        && !supported.allows(from.semver())
    {
        let seen = format!("{seen}: this charm upgrades from {supported}");
        return finding(Verdict::Fail, seen, "refresh to a charm in between first");
    }
    if down {
        return finding(Verdict::Warn, format!("{seen}: back to an older version"), "");
    }
    finding(Verdict::Pass, seen, "")
}

/// How many minor versions a worker may be behind (Kubernetes' version skew policy).
const WORKER_SKEW: u64 = 3;

fn skew(
    to: &KubernetesVersion,
    workers: &[(UnitName, Option<KubernetesVersion>)],
    charm: Option<&Constraint>,
) -> Option<Finding> {
    let named = |matches: &dyn Fn(&KubernetesVersion) -> bool| -> Vec<String> {
        let known = workers.iter().filter_map(|(unit, version)| Some((unit, version.as_ref()?)));
        known.filter(|(_, version)| matches(version)).map(|(unit, version)| format!("{unit} {version}")).collect()
    };
    let too_old = |version: &KubernetesVersion| version.minor().1 + WORKER_SKEW < to.minor().1;
    let old = named(&too_old);
    if !old.is_empty() {
        let seen = format!("too old for {to}: {}", old.join(", "));
        let known = workers.iter().filter(|(_, version)| version.as_ref().is_some_and(too_old));
        let applications: BTreeSet<&str> = known.map(|(unit, _)| unit.application()).collect();
        let commands: Vec<String> = applications.iter().map(|name| format!("juju refresh {name}")).collect();
        return Some(finding(Verdict::Fail, seen, format!("refresh the workers first: {}", commands.join("; "))));
    }
    let newer = named(&|version| version.minor() > to.minor());
    if !newer.is_empty() {
        let seen = format!("newer than {to}: {}", newer.join(", "));
        return Some(finding(
            Verdict::Fail,
            seen,
            "a kubelet must not be newer than its API server: refresh the workers back",
        ));
    }
    let outside = named(&|version| charm.is_some_and(|charm| !charm.allows(version.semver())));
    if !outside.is_empty() {
        let wanted = charm.map(ToString::to_string).unwrap_or_default();
        let seen = format!("outside of {wanted}: {}", outside.join(", "));
        return Some(finding(Verdict::Fail, seen, "refresh the workers to a version in between first"));
    }
    let patch = named(&|version| version > to);
    if !patch.is_empty() {
        return Some(finding(Verdict::Warn, format!("newer than {to} by a patch: {}", patch.join(", ")), ""));
    }
    let silent: Vec<String> =
        workers.iter().filter(|(_, version)| version.is_none()).map(|(unit, _)| unit.to_string()).collect();
    (!silent.is_empty()).then(|| finding(Verdict::Warn, format!("no version published yet: {}", silent.join(", ")), ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    fn me() -> UnitName {
        UnitName::new("kubernetes", 0)
    }

    fn step(from: &str, to: &str, way: Way) -> Verdict {
        let supported = "^1.31, < 1.33".parse().unwrap();
        let (from, to) = (version(from), version(to));
        judge(&Step { me: &me(), from: &from, to: Some(&to), way, supported: Some(&supported) }, &[], None).verdict
    }

    #[test]
    fn the_table_of_the_control_plane() {
        for (from, to, way, verdict) in [
            ("1.32.1", "1.32.1", Way::Forward, Verdict::Pass),
            ("1.32.1", "1.32.4", Way::Forward, Verdict::Pass),
            ("1.31.3", "1.32.1", Way::Forward, Verdict::Pass),
            ("1.30.3", "1.32.1", Way::Forward, Verdict::Fail),
            ("1.30.3", "1.31.1", Way::Forward, Verdict::Fail),
            ("1.32.4", "1.32.1", Way::Forward, Verdict::Warn),
            ("1.32.1", "1.31.3", Way::Back, Verdict::Warn),
            ("1.32.1", "1.31.3", Way::Forward, Verdict::Fail),
            ("1.32.1", "2.32.1", Way::Forward, Verdict::Fail),
        ] {
            assert_eq!(step(from, to, way), verdict, "{from} to {to} {way:?}");
        }
    }

    #[test]
    fn a_minor_that_was_left_out_is_named() {
        let (from, to) = (version("1.30.3"), version("1.33.0"));
        let found =
            judge(&Step { me: &me(), from: &from, to: Some(&to), way: Way::Forward, supported: None }, &[], None);
        assert_eq!(found.remedy, "go to 1.31 first: juju refresh kubernetes --channel 1.31/stable");
        let unknown = judge(&Step { me: &me(), from: &from, to: None, way: Way::Forward, supported: None }, &[], None);
        assert_eq!(unknown.verdict, Verdict::Warn);
    }

    #[test]
    fn workers_may_be_three_minors_behind_and_none_ahead() {
        let to = version("1.34.1");
        let from = version("1.33.9");
        let charm = "^1.32, < 1.35".parse().unwrap();
        for (worker, verdict) in [
            (Some("1.33.0"), Verdict::Pass),
            (Some("1.34.1"), Verdict::Pass),
            (Some("1.34.2"), Verdict::Warn),
            (Some("1.35.0"), Verdict::Fail),
            (Some("1.31.9"), Verdict::Fail),
            (Some("1.30.9"), Verdict::Fail),
            (None, Verdict::Warn),
        ] {
            let workers = [
                (UnitName::new("k8s-worker", 0), Some(version("1.33.2"))),
                (UnitName::new("k8s-worker", 7), worker.map(version)),
            ];
            let step = Step { me: &me(), from: &from, to: Some(&to), way: Way::Forward, supported: None };
            let found = judge(&step, &workers, Some(&charm));
            assert_eq!(found.verdict, verdict, "{worker:?} {found:?}");
            assert_eq!(verdict != Verdict::Pass, found.seen.contains("k8s-worker/7"), "{found:?}");
            assert_eq!(worker == Some("1.30.9"), found.remedy.ends_with("juju refresh k8s-worker"), "{found:?}");
        }
    }
}
