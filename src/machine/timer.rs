//! The wake-up: one repeating transient systemd timer a unit (rule R7).
//!
//! It runs `juju-exec`, which runs the charm between two of Juju's own hooks; so no hook ever has to sleep.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::machine::Root;
use crate::names::UnitName;

/// How long `juju-exec` may take, from its queue to its end: one that arrives during a code swap never ends.
const LONGEST: Duration = Duration::from_mins(15);

/// The wake-up of a unit.
#[derive(Debug, Clone)]
pub struct WakeUp {
    unit: UnitName,
    transient: PathBuf,
}

/// Why the wake-up could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum WakeUpError {
    /// A program could not be run.
    #[error("cannot run {program}")]
    Run {
        /// Which.
        program: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// systemd said no.
    #[error("{program} ended with {status}: {stderr}")]
    Refused {
        /// Which program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
}

/// A timer that is there: the name of its unit, without `.timer`, and how often it wakes the charm.
#[derive(Debug, PartialEq, Eq)]
struct Armed {
    name: String,
    /// Absent where its file says nothing that we would write.
    every: Option<Duration>,
}

impl WakeUp {
    /// The wake-up of this unit on the machine with this root.
    pub fn new(root: &Root, unit: &UnitName) -> Self {
        Self { unit: unit.clone(), transient: root.path("/run/systemd/transient") }
    }

    /// The names that its units may have: `NAME`, `NAME.1`, ….
    ///
    /// One isn't enough: systemd makes no transient timer while a service of its name runs, and a hook that the wake-up
    /// runs is waited for by just that service.
    fn names(&self) -> impl Iterator<Item = String> {
        let name = format!("k8s-charm-wake-up-{}-{}", self.unit.application(), self.unit.number());
        std::iter::once(name.clone()).chain((1_u32..).map(move |number| format!("{name}.{number}")))
    }

    fn is_there(&self, unit: &str) -> bool {
        self.transient.join(unit).exists()
    }

    /// Its units, timers and services, as systemd keeps their files while it knows them.
    fn units(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.transient) else { return Vec::new() };
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = self.names().next().unwrap_or_default();
        let is_ours = |file: &String| {
            let rest =
                file.strip_prefix(&name).and_then(|rest| rest.strip_suffix(".timer").or(rest.strip_suffix(".service")));
            let number =
                |rest: &str| rest.strip_prefix('.').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            rest.is_some_and(|rest| rest.is_empty() || number(rest))
        };
        let mut units: Vec<String> = files.filter(is_ours).collect();
        units.sort();
        units
    }

    fn timers(&self) -> Vec<Armed> {
        let timer = |unit: &String| {
            let name = unit.strip_suffix(".timer")?.to_owned();
            let text = std::fs::read_to_string(self.transient.join(unit)).unwrap_or_default();
            let every = text.lines().find_map(|line| span(line.strip_prefix("OnUnitInactiveSec=")?));
            Some(Armed { name, every })
        };
        self.units().iter().filter_map(timer).collect()
    }

    /// How often it wakes the unit, if it is armed: read where systemd keeps its transient units, not asked by a
    /// process.
    pub fn armed(&self) -> Option<Duration> {
        self.timers().into_iter().find_map(|timer| timer.every)
    }

    /// Wakes the unit that often from now on. Starts no process if it is woken that often already; `systemd-run` alone
    /// if it isn't armed; `systemd-run`, then `systemctl stop` of the old timer, if it is armed otherwise: a death in
    /// between leaves one timer too many, which the next call stops, never none.
    pub async fn arm(&self, every: Duration) -> Result<(), WakeUpError> {
        let mut timers = self.timers();
        match timers.iter().position(|timer| timer.every == Some(every)) {
            Some(good) => drop(timers.swap_remove(good)),
            None => self.start(every).await?,
        }
        stop(timers.into_iter().map(|timer| format!("{}.timer", timer.name)).collect()).await
    }

    /// Lets the unit sleep: `systemctl stop` of its timer, if it is armed. Not of its service: that one may be what
    /// waits for this very hook.
    pub async fn disarm(&self) -> Result<(), WakeUpError> {
        stop(self.timers().into_iter().map(|timer| format!("{}.timer", timer.name)).collect()).await
    }

    /// Arms it anew, in a hook of Juju's own that runs new code: a `juju-exec` that arrived during the code swap hangs,
    /// and the timer with it. So everything is stopped first.
    pub async fn arm_anew(&self, every: Duration) -> Result<(), WakeUpError> {
        stop(self.units()).await?;
        self.start(every).await
    }

    async fn start(&self, every: Duration) -> Result<(), WakeUpError> {
        let is_free =
            |name: &String| !self.is_there(&format!("{name}.timer")) && !self.is_there(&format!("{name}.service"));
        let name = self.names().find(is_free).unwrap_or_default();
        run("systemd-run", &arming(&self.unit, &name, every)).await
    }
}

/// The arguments of the `systemd-run` that arms a unit's wake-up under this name.
///
/// `exec`: a `dispatch` that is killed discards its writes only where it took bash's place. Both outputs are redirected:
/// `juju-exec` waits for whoever holds them.
fn arming(unit: &UnitName, name: &str, every: Duration) -> Vec<String> {
    let (seconds, limit) = (every.as_secs(), LONGEST.as_secs());
    [
        "--quiet".to_owned(),
        "--collect".to_owned(),
        format!("--unit={name}"),
        format!("--description=Wakes the charm of {unit}"),
        format!("--on-active={seconds}s"),
        format!("--on-unit-inactive={seconds}s"),
        "--timer-property=AccuracySec=100ms".to_owned(),
        "--property=StandardOutput=null".to_owned(),
        "--property=StandardError=null".to_owned(),
        "timeout".to_owned(),
        limit.to_string(),
        "juju-exec".to_owned(),
        unit.to_string(),
        "exec env JUJU_DISPATCH_PATH=hooks/upgrade_granted ./dispatch".to_owned(),
    ]
    .to_vec()
}

/// Stops these units and waits until they have ended, so that the next look at their files finds none.
async fn stop(units: Vec<String>) -> Result<(), WakeUpError> {
    if units.is_empty() {
        return Ok(());
    }
    let arguments: Vec<String> = std::iter::once("stop".to_owned()).chain(units).collect();
    run("systemctl", &arguments).await
}

/// A span as systemd writes it into a transient unit: `3s`, `1min 30s`, `5min`.
fn span(text: &str) -> Option<Duration> {
    text.split_whitespace().try_fold(Duration::ZERO, |sum, part| {
        let digits = part.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = part.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        let seconds = match unit {
            "s" => number,
            "min" => number * 60,
            "h" => number * 3600,
            _ => return None,
        };
        Some(sum + Duration::from_secs(seconds))
    })
}

async fn run(program: &'static str, arguments: &[String]) -> Result<(), WakeUpError> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output().await.map_err(|source| WakeUpError::Run { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(WakeUpError::Refused { program, status: output.status, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake_up(root: &std::path::Path) -> WakeUp {
        let root = Root::of_charm_dir(&root.join("var/lib/juju/agents/unit-k8s-0/charm"));
        WakeUp::new(&root, &UnitName::new("k8s", 0))
    }

    #[test]
    fn it_runs_the_charm_through_juju_exec_and_in_bashs_place() {
        let arming = arming(&UnitName::new("k8s", 0), "k8s-charm-wake-up-k8s-0", Duration::from_secs(3));
        let exactly = [
            "--quiet",
            "--collect",
            "--unit=k8s-charm-wake-up-k8s-0",
            "--description=Wakes the charm of k8s/0",
            "--on-active=3s",
            "--on-unit-inactive=3s",
            "--timer-property=AccuracySec=100ms",
            "--property=StandardOutput=null",
            "--property=StandardError=null",
            "timeout",
            "900",
            "juju-exec",
            "k8s/0",
            "exec env JUJU_DISPATCH_PATH=hooks/upgrade_granted ./dispatch",
        ];
        assert_eq!(arming, exactly);
    }

    #[test]
    fn a_units_wake_up_is_not_its_neighbours() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("run/systemd/transient");
        std::fs::create_dir_all(&directory).unwrap();
        let ours = ["-0.1.service", "-0.12.timer", "-0.service", "-0.timer"];
        for ending in ["-01.timer", "-0-x.timer", "-0.x.timer", "-10.timer", "-0.socket"].iter().chain(&ours) {
            std::fs::write(directory.join(format!("k8s-charm-wake-up-k8s{ending}")), "").unwrap();
        }
        std::fs::write(directory.join("x-k8s-charm-wake-up-k8s-0.timer"), "").unwrap();
        assert_eq!(wake_up(root.path()).units(), ours.map(|ending| format!("k8s-charm-wake-up-k8s{ending}")));
    }

    #[test]
    fn whether_it_is_armed_is_read_from_systemds_files() {
        let root = tempfile::tempdir().unwrap();
        let wake_up = wake_up(root.path());
        assert_eq!(wake_up.armed(), None);
        let directory = root.path().join("run/systemd/transient");
        std::fs::create_dir_all(&directory).unwrap();
        let timer = directory.join("k8s-charm-wake-up-k8s-0.timer");
        for (text, seconds) in [("3s", 3), ("30s", 30), ("1min 30s", 90), ("5min", 300), ("1h", 3600)] {
            // As systemd 252 and 257 write it: `systemd-run --on-active=… --on-unit-inactive=…`.
            let unit = format!(
                "# This is a transient unit file\n[Unit]\nDescription=x\n\n[Timer]\nOnActiveSec={text}\nOnUnitInactiveSec={text}\n"
            );
            std::fs::write(&timer, unit).unwrap();
            assert_eq!(wake_up.armed(), Some(Duration::from_secs(seconds)));
        }
        std::fs::write(&timer, "[Timer]\n").unwrap();
        assert_eq!(wake_up.armed(), None);
    }
}
