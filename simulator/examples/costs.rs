//! What the charm costs: figures beside their targets, of a settled three-unit cluster and of its upgrade.
//!
//! `cargo run --release -p k8s-sim --example costs`. CPU is the charm's own process, hook tools apart.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use k8s_sim::cli::{self, Settings, UpgradeSettings};
use k8s_sim::engine::Ran;
use k8s_sim::juju::UnitId;
use k8s_sim::rehearsal::{APPLICATION, Rehearsal, Show};

/// How often each event is run.
const TIMES: usize = 9;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let program = simulator()?;
    let Settings::Upgrade(settings) = cli::parse(["k8s-sim", "upgrade"])?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure(&settings, &program))
}

/// The program that the hook tools are links to, beside this example's own directory.
fn simulator() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()?;
    let program = own.parent().and_then(Path::parent).map(|target| target.join("k8s-sim")).unwrap_or_default();
    if program.is_file() { Ok(program) } else { Err("build k8s-sim first: cargo build --release -p k8s-sim".into()) }
}

/// A row: what, its target, and what was found.
struct Row {
    event: &'static str,
    cpu_ms: f64,
    calls: usize,
    megabytes: f64,
}

async fn measure(settings: &UpgradeSettings, program: &Path) -> Result<(), Failure> {
    let work = tempfile::Builder::new().prefix("k8s-sim-").tempdir()?;
    let mut rehearsal = Rehearsal::new(settings, work.path(), program)?;
    rehearsal.deploy(settings.units, &mut Show::nothing()).await?;
    let leader = UnitId::new(APPLICATION, 0);
    let targets = [
        Row { event: "update-status", cpu_ms: 4.0, calls: 13, megabytes: 6.0 },
        Row { event: "config-changed", cpu_ms: 6.0, calls: 18, megabytes: 6.0 },
        Row { event: "upgrade-relation-changed", cpu_ms: 4.0, calls: 12, megabytes: 6.0 },
    ];
    let mut table = vec![format!("{:28}{:>22}{:>16}{:>22}", "event (settled leader)", "CPU ms", "calls", "peak MB")];
    for target in &targets {
        let ran = rehearsal.engine.repeat(&leader, target.event, TIMES).await?;
        table.push(row(target, &ran));
    }
    let before = rehearsal.engine.ran.len();
    rehearsal.refresh();
    rehearsal.settle("upgrading", &rehearsal.to.version.clone(), &mut Show::nothing()).await?;
    let upgrade: Vec<Ran> = rehearsal.engine.ran.iter().skip(before).cloned().collect();
    let follows = |ran: &&Ran| matches!(ran.requests.as_slice(), [one] if one.starts_with("GET /v2/changes/"));
    let following: Vec<Ran> = upgrade.iter().filter(|ran| ran.wake_up).filter(follows).cloned().collect();
    table.push(row(&Row { event: "wake-up, change followed", cpu_ms: 3.0, calls: 5, megabytes: 6.0 }, &following));
    table.push(String::new());
    table.extend(whole(&upgrade));
    writeln!(std::io::stdout(), "{}", table.join("\n"))?;
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn milliseconds(nanoseconds: u64) -> f64 {
    std::time::Duration::from_nanos(nanoseconds).as_secs_f64() * 1e3
}

fn row(target: &Row, ran: &[Ran]) -> String {
    let cpu = median(ran.iter().map(|ran| milliseconds(ran.cost.cpu_ns)).collect());
    let calls = ran.iter().map(|ran| ran.calls.len()).max().unwrap_or(0);
    let peak = ran.iter().map(|ran| ran.cost.peak_kb).max().unwrap_or(0);
    let peak = f64::from(u32::try_from(peak).unwrap_or(u32::MAX)) / 1024.0;
    let of = |value: f64, target: f64| format!("{value:.2} of {target} ({:.2})", value / target);
    let mut costs = BTreeMap::new();
    costs.insert("calls", format!("{calls} of {}", target.calls));
    format!("{:28}{:>22}{:>16}{:>22}", target.event, of(cpu, target.cpu_ms), costs["calls"], of(peak, target.megabytes))
}

fn whole(upgrade: &[Ran]) -> Vec<String> {
    let hooks = upgrade.iter().filter(|ran| !ran.wake_up).count();
    let calls: usize = upgrade.iter().map(|ran| ran.calls.len()).sum();
    let cpu: f64 = upgrade.iter().map(|ran| milliseconds(ran.cost.cpu_ns)).sum();
    let mut kinds: BTreeMap<&str, (usize, usize, f64)> = BTreeMap::new();
    for ran in upgrade {
        let kind = kinds.entry(&ran.hook).or_default();
        kind.0 += 1;
        kind.1 += ran.calls.len();
        kind.2 += milliseconds(ran.cost.cpu_ns);
    }
    let mut lines = vec![
        "an upgrade of three units".to_owned(),
        format!("hooks besides wake-ups: {hooks} of 60"),
        format!("hook-tool calls: {calls} of 700"),
        format!("CPU: {cpu:.0} ms of 250"),
    ];
    lines.extend(
        kinds
            .into_iter()
            .map(|(hook, (times, calls, cpu))| format!("  {hook:28}{times:4} times {calls:5} calls {cpu:7.1} ms")),
    );
    lines
}
