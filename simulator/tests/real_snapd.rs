//! The charm on a real snapd (2.57.6 and 2.68.3): it installs, holds, is refreshed by the state machine, goes back, and
//! meets a `post-refresh` hook that fails. Juju, k8sd and Kubernetes are simulated, in real time.
//!
//! It needs root and Debian's packages; where it can't run it says why.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may end at once where its own data is wrong, and speaks to whoever runs it"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use k8s_charm::unix_http::{UnixHttp, full};
use k8s_sim::cli::{self, Settings};
use k8s_sim::juju::UnitId;
use k8s_sim::rehearsal::{APPLICATION, Rehearsal};
use k8s_sim::time::{EPOCH, SimTime};
use k8s_sim::wire::{InstalledSnap, MachineId, SnapEvent};
use serde_json::{Value, json};

const MACHINE: MachineId = MachineId(0);

fn fixture(program: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/real-snapd/fixture").join(program)
}

fn main() -> ExitCode {
    let check = Command::new(fixture("up")).arg("--check").output().unwrap();
    if !check.status.success() {
        let why = String::from_utf8_lossy(&check.stderr);
        println!("SKIPPED, tests on a real snapd cannot run here: {}", why.trim());
        return ExitCode::SUCCESS;
    }
    let both = [("bookworm", false), ("trixie", true)];
    let threads = both.map(|(suite, holds)| std::thread::spawn(move || life(suite, holds)));
    let results = threads.map(|thread| thread.join().is_ok());
    if results == [true; 2] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A real snapd that is up; it ends with this.
struct Instance {
    suite: &'static str,
    name: String,
    facts: BTreeMap<String, String>,
}

impl Instance {
    fn up(suite: &'static str) -> Self {
        let name = format!("charm-{suite}-{}", std::process::id());
        let output = Self::command("up", suite, &name).arg("--fresh").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let facts = text.lines().filter_map(|line| line.split_once('='));
        let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Self { suite, name, facts }
    }

    fn command(program: &str, suite: &str, name: &str) -> Command {
        let mut command = Command::new(fixture(program));
        command.env("REAL_SNAPD_SUITE", suite).env("REAL_SNAPD_NAME", name);
        command
    }

    fn inside(&self, script: &str) {
        let status = Self::command("exec", self.suite, &self.name).args(["sh", "-c", script]).status().unwrap();
        assert!(status.success(), "{script}");
    }

    fn path(&self, fact: &str) -> PathBuf {
        PathBuf::from(&self.facts[fact])
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = Self::command("down", self.suite, &self.name).arg("--delete").status();
    }
}

/// The stage: one unit whose snapd is real, and what has been told to its cluster.
struct Stage {
    rehearsal: Rehearsal,
    snapd: UnixHttp,
    told: BTreeSet<(String, String)>,
    statuses: Vec<String>,
    suite: &'static str,
    _work: tempfile::TempDir,
}

#[expect(clippy::disallowed_methods, reason = "this rehearsal's time is the real one")]
fn real_now() -> SimTime {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    SimTime(u64::try_from(now.as_millis()).unwrap() - u64::try_from(EPOCH).unwrap() * 1000)
}

impl Stage {
    fn new(instance: &Instance) -> Self {
        let work = tempfile::Builder::new().prefix("k8s-sim-").tempdir().unwrap();
        let Settings::Upgrade(settings) = cli::parse(["k8s-sim", "upgrade"]).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_k8s-sim"));
        let mut rehearsal = Rehearsal::new(&settings, work.path(), program).unwrap();
        for (charm, version) in [(&rehearsal.from.directory, "1.31.3"), (&rehearsal.to.directory, "1.32.1")] {
            let snap = json!([{"name": "k8s", "install-type": "file", "classic": true, "dangerous": true,
                "filename": format!("/share/k8s_{version}.snap")}]);
            let manifest = json!({"amd64": snap, "arm64": snap}).to_string();
            std::fs::write(charm.join("templates/snap_installation.yaml"), manifest).unwrap();
        }
        rehearsal.engine.now = real_now();
        rehearsal.engine.add_unit(APPLICATION).unwrap();
        let machine = rehearsal.engine.fleet.machines.get_mut(&MACHINE).unwrap();
        machine.real_snapd = true;
        let root = machine.root.clone();
        symlink(instance.path("REAL_SNAPD_SOCKET"), root.join("run/snapd.socket")).unwrap();
        symlink(instance.path("REAL_SNAPD_SNAPS"), root.join("share")).unwrap();
        // Where the real snapd keeps the files that snaps are mounted from.
        let snapds_own = instance.path("REAL_SNAPD_SHARE").parent().unwrap().join("upper/var/lib/snapd");
        std::fs::remove_dir_all(root.join("var/lib/snapd")).unwrap();
        symlink(snapds_own, root.join("var/lib/snapd")).unwrap();
        let snapd = UnixHttp::new(instance.path("REAL_SNAPD_SOCKET"));
        Self { rehearsal, snapd, told: BTreeSet::new(), statuses: Vec::new(), suite: instance.suite, _work: work }
    }

    async fn ask(&self, path: &str) -> Value {
        let limit = Duration::from_secs(10);
        let answer = self.snapd.send(hyper::Method::GET, path, "application/json", full(""), limit).await;
        answer.map(|answer| serde_json::from_slice(&answer.body).unwrap_or_default()).unwrap_or_default()
    }

    async fn installed(&self) -> Option<InstalledSnap> {
        let snap = self.ask("/v2/snaps/k8s").await["result"].clone();
        let version = snap["version"].as_str()?.parse().ok()?;
        Some(InstalledSnap { version, revision: snap["revision"].as_str()?.to_owned() })
    }

    /// Tells the cluster what has happened to the real snap since it was told last.
    async fn tell_the_cluster(&mut self) {
        let mut changes =
            self.ask("/v2/changes?select=all&for=k8s").await["result"].as_array().cloned().unwrap_or_default();
        changes.sort_by_key(|change| change["id"].as_str().and_then(|id| id.parse::<u64>().ok()));
        for change in changes {
            let id = change["id"].as_str().unwrap_or_default().to_owned();
            for task in change["tasks"].as_array().cloned().unwrap_or_default() {
                let (kind, status) = (task["kind"].as_str().unwrap_or_default(), task["status"].as_str());
                let is_hook = task["summary"].as_str().is_some_and(|summary| summary.contains("post-refresh"));
                let Some(now) = self.installed().await else { continue };
                let event = match (kind, status) {
                    ("stop-snap-services", Some("Done")) => SnapEvent::ServicesStopped,
                    ("run-hook", Some("Done")) if is_hook => SnapEvent::PostRefresh(now),
                    ("start-snap-services", Some("Done"))
                        if change["kind"] == "install-snap" && self.told.is_empty() =>
                    {
                        SnapEvent::Installed(now)
                    }
                    ("start-snap-services", Some("Done")) | ("stop-snap-services", Some("Undone")) => {
                        SnapEvent::ServicesStarted(now)
                    }
                    _ => continue,
                };
                let key = (id.clone(), format!("{} {}", task["id"], status.unwrap_or_default()));
                // An undone stop was a stop before, seen or not.
                if matches!(event, SnapEvent::ServicesStarted(_)) && kind == "stop-snap-services" {
                    let stopped = (id.clone(), format!("{} Done", task["id"]));
                    if self.told.insert(stopped) {
                        let engine = &mut self.rehearsal.engine;
                        engine.fleet.cluster.snap_event(MACHINE, engine.now, SnapEvent::ServicesStopped);
                    }
                }
                if self.told.insert(key) {
                    let engine = &mut self.rehearsal.engine;
                    engine.fleet.cluster.snap_event(MACHINE, engine.now, event);
                }
            }
        }
    }

    fn status(&self) -> String {
        let status = &self.rehearsal.engine.model.units[&UnitId::new(APPLICATION, 0)].workload;
        format!("{}: {}", status.status, status.message)
    }

    /// Goes on in real time until the unit shows this, and answers all that it has shown meanwhile.
    async fn until(&mut self, what: &str, seconds: u64, is_so: impl Fn(&str) -> bool) -> Vec<String> {
        let limit = SimTime(real_now().0 + seconds * 1000);
        let before = self.statuses.len();
        loop {
            self.tell_the_cluster().await;
            self.rehearsal.engine.run_until(real_now()).await.unwrap();
            let status = self.status();
            if self.statuses.last() != Some(&status) {
                println!("{:9} {status}", self.suite);
                self.statuses.push(status.clone());
            }
            if is_so(&status) && self.rehearsal.engine.is_idle() {
                return self.statuses.get(before..).unwrap_or_default().to_vec();
            }
            assert!(real_now() < limit, "{what}: not within {seconds} s\n{}", self.log());
            tokio::time::timeout(Duration::from_millis(150), std::future::pending::<()>()).await.unwrap_err();
        }
    }

    fn log(&self) -> String {
        let lines = self
            .rehearsal
            .engine
            .ran
            .iter()
            .map(|ran| format!("{} {:?} {:?} {}", ran.hook, ran.did, ran.log, ran.output));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn refresh(&mut self, charm: &Path) {
        self.rehearsal.engine.model.refresh(APPLICATION, charm.to_owned());
        self.rehearsal.engine.notice_all();
    }

    fn violations(&self) -> Vec<String> {
        let own = |text: &&String| !text.contains("without the token");
        let violations = self.rehearsal.engine.checker.violations.iter().map(|broken| broken.text.clone());
        violations.collect::<Vec<_>>().iter().filter(own).cloned().collect()
    }
}

/// The state of the unit's bag, `idle`.
fn state(stage: &Stage) -> String {
    let relations = &stage.rehearsal.engine.model.relations;
    let upgrade = relations.values().find(|relation| relation.name == "upgrade").unwrap();
    upgrade.scope[&UnitId::new(APPLICATION, 0)].content.get("state").cloned().unwrap_or_default()
}

fn life(suite: &'static str, holds: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let instance = Instance::up(suite);
        println!("{suite:9} snapd {}", instance.facts["REAL_SNAPD_VERSION"]);
        // Slow enough for a wake-up, every 3 s, to see them at work.
        instance.inside(
            "cd /var/snap; mkdir -p k8s/common/test; echo 7 > k8s/common/test/slow-post-refresh; \
             echo 7 > k8s/common/test/slow-install",
        );
        let mut stage = Stage::new(&instance);
        let (old, new) = (stage.rehearsal.from.directory.clone(), stage.rehearsal.to.directory.clone());

        let shown = stage.until("it installs and bootstraps", 120, |status| status == "active: Ready").await;
        assert!(
            shown.iter().any(|status| status.starts_with("maintenance: Installing Kubernetes 1.31.3: ")),
            "{shown:?}"
        );
        let snap = stage.ask("/v2/snaps/k8s").await["result"].clone();
        assert_eq!((snap["version"].as_str(), snap.get("hold").is_some()), (Some("1.31.3"), holds), "{snap}");

        stage.refresh(&new);
        let shown = stage.until("it is refreshed", 120, |status| status == "active: Ready").await;
        let step = "maintenance: Upgrading to 1.32.1: Run post-refresh hook of \"k8s\" snap if present";
        assert!(shown.iter().any(|status| status == step), "{shown:?}");
        assert!(
            shown.iter().any(|status| status.starts_with("maintenance: Upgraded to 1.32.1: waiting for")),
            "{shown:?}"
        );
        assert_eq!(stage.installed().await.unwrap().version.to_string(), "1.32.1");

        // The run is over: the way back is a downgrade by now, and wants a word.
        stage.refresh(&old);
        stage.until("the checks stand against a downgrade", 60, |status| status.contains("skip=versions")).await;
        let unit = UnitId::new(APPLICATION, 0);
        let forced = json!({"skip": "versions", "force": false}).as_object().unwrap().clone();
        stage.rehearsal.engine.model.run_action(&unit, "pre-upgrade-check", forced);
        stage.rehearsal.engine.notice_all();
        let shown = stage.until("it goes back", 120, |status| status == "active: Ready").await;
        assert!(shown.iter().any(|status| status.starts_with("maintenance: Going back to 1.31.3: ")), "{shown:?}");
        assert_eq!(stage.installed().await.unwrap().version.to_string(), "1.31.3");

        instance.inside("touch /var/snap/k8s/common/test/fail-post-refresh");
        stage.refresh(&new);
        let shown = stage.until("it fails", 240, |status| status.starts_with("blocked: ")).await;
        let line = "hook post-refresh of version 1.32.1 was told to fail";
        assert!(shown.iter().any(|status| status.contains("tried once more in a minute")), "{shown:?}");
        assert!(
            stage.status().contains("Upgrade failed: ") && stage.status().ends_with("juju run k8s/0 resume-upgrade")
        );
        let cause =
            stage.rehearsal.engine.model.relations.values().find(|relation| relation.name == "upgrade").unwrap();
        let cause = cause.scope[&unit].content["cause"].clone();
        assert!(cause.contains(line), "{cause}");
        assert_eq!(stage.installed().await.unwrap().version.to_string(), "1.31.3", "snapd has undone it");

        instance.inside("rm /var/snap/k8s/common/test/fail-post-refresh");
        let word = json!({"skip": "", "force": false, "skip-unit": ""}).as_object().unwrap().clone();
        stage.rehearsal.engine.model.run_action(&unit, "resume-upgrade", word);
        stage.rehearsal.engine.notice_all();
        stage.until("it recovers", 120, |status| status == "active: Ready").await;
        assert_eq!(stage.installed().await.unwrap().version.to_string(), "1.32.1");
        assert_eq!((state(&stage), stage.violations()), ("idle".to_owned(), Vec::new()));
        println!("{suite:9} passed");
    });
}
