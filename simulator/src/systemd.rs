//! Stand-ins for systemd: transient timers, by `systemd-run` and `systemctl` as the charm calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use crate::time::SimTime;

/// What a program answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl ToolAnswer {
    /// A failure with that text.
    pub fn failure(code: i32, stderr: impl Into<String>) -> Self {
        Self { code, stdout: String::new(), stderr: stderr.into() }
    }
}

/// A transient timer.
#[derive(Debug, Clone)]
struct Timer {
    on_inactive: Duration,
    command: Vec<String>,
    /// When it fires next; none while its service runs.
    next: Option<SimTime>,
}

/// A machine's systemd.
#[derive(Debug)]
pub struct Systemd {
    transient: PathBuf,
    timers: BTreeMap<String, Timer>,
    /// Services that run, whether or not their timer is still there.
    running: BTreeSet<String>,
}

impl Systemd {
    /// systemd of the machine with this root.
    pub fn new(root: &Path) -> Self {
        Self { transient: root.join("run/systemd/transient"), timers: BTreeMap::new(), running: BTreeSet::new() }
    }

    /// When a timer fires next.
    pub fn next_event(&self) -> Option<SimTime> {
        self.timers.values().filter_map(|timer| timer.next).min()
    }

    /// A timer that is due: its name and its command. It doesn't fire again before its service has ended.
    pub fn due(&mut self, now: SimTime) -> Option<(String, Vec<String>)> {
        let due = |timer: &Timer| timer.next.is_some_and(|next| next <= now);
        let (name, timer) = self.timers.iter_mut().find(|(_, timer)| due(timer))?;
        timer.next = None;
        self.running.insert(name.clone());
        Some((name.clone(), timer.command.clone()))
    }

    /// A timer's service has ended.
    pub fn ended(&mut self, name: &str, now: SimTime) {
        let ran = self.running.remove(name);
        match self.timers.get_mut(name) {
            Some(timer) if ran => timer.next = Some(now + timer.on_inactive),
            Some(_) => {}
            None => self.forget_service(name),
        }
    }

    /// A transient service is forgotten when neither it nor its timer is at work any more.
    fn forget_service(&self, name: &str) {
        if !self.running.contains(name) && !self.timers.contains_key(name) {
            let _ = fs::remove_file(self.transient.join(format!("{name}.service")));
        }
    }

    /// Runs `systemd-run` or `systemctl`.
    pub fn run(&mut self, now: SimTime, tool: &str, arguments: &[String]) -> ToolAnswer {
        let result = match tool {
            "systemd-run" => self.systemd_run(now, arguments),
            "systemctl" => self.systemctl(arguments),
            _ => Ok(ToolAnswer::failure(127, format!("{tool}: command not found\n"))),
        };
        result.unwrap_or_else(|error| ToolAnswer::failure(1, format!("{tool}: {error}\n")))
    }

    fn systemd_run(&mut self, now: SimTime, arguments: &[String]) -> io::Result<ToolAnswer> {
        let options: Vec<&String> = arguments.iter().take_while(|argument| argument.starts_with("--")).collect();
        let command: Vec<String> = arguments.iter().skip(options.len()).cloned().collect();
        let value = |name: &str| options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        let known = ["unit", "description", "on-active", "on-unit-inactive", "timer-property", "property"];
        let is_known = |option: &str| {
            let name = option.trim_start_matches("--").split('=').next().unwrap_or_default();
            known.contains(&name) || ["quiet", "collect"].contains(&name)
        };
        if let Some(odd) = options.iter().find(|option| !is_known(option)) {
            return Ok(ToolAnswer::failure(1, format!("systemd-run: unrecognized option '{odd}'\n")));
        }
        let seconds = |name: &str| value(name).and_then(|text| text.strip_suffix('s')?.parse().ok());
        let (Some(unit), Some(on_active), Some(on_inactive)) =
            (value("--unit"), seconds("--on-active"), seconds("--on-unit-inactive"))
        else {
            return Ok(ToolAnswer::failure(1, "Failed to parse timer options\n"));
        };
        let taken = match (self.timers.contains_key(unit), self.running.contains(unit)) {
            (true, _) => Some("timer"),
            (false, true) => Some("service"),
            (false, false) => None,
        };
        if let Some(kind) = taken {
            let text = format!(
                "Failed to start transient timer unit: Unit {unit}.{kind} was already loaded or has a fragment file.\n"
            );
            return Ok(ToolAnswer::failure(1, text));
        }
        let (on_active, on_inactive) = (Duration::from_secs(on_active), Duration::from_secs(on_inactive));
        fs::create_dir_all(&self.transient)?;
        let mut text =
            "# This is a transient unit file, created programmatically via the systemd API. Do not edit.\n".to_owned();
        let description = value("--description").unwrap_or_default();
        let _ = write!(text, "[Unit]\nDescription={description}\n\n[Timer]\n");
        let _ = write!(text, "OnActiveSec={}\nOnUnitInactiveSec={}\n", span(on_active), span(on_inactive));
        text.push_str("RemainAfterElapse=no\n");
        fs::write(self.transient.join(format!("{unit}.timer")), text)?;
        let service = format!("[Unit]\nDescription={description}\n\n[Service]\nExecStart={}\n", command.join(" "));
        fs::write(self.transient.join(format!("{unit}.service")), service)?;
        let timer = Timer { on_inactive, command, next: Some(now + on_active) };
        self.timers.insert(unit.to_owned(), timer);
        Ok(ToolAnswer::default())
    }

    fn systemctl(&mut self, arguments: &[String]) -> io::Result<ToolAnswer> {
        let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
        let ["stop", units @ ..] = words.as_slice() else {
            return Ok(ToolAnswer::failure(1, format!("Unknown command verb {}.\n", words.first().unwrap_or(&""))));
        };
        for unit in units {
            if !self.transient.join(unit).exists() {
                return Ok(ToolAnswer::failure(5, format!("Failed to stop {unit}: Unit {unit} not loaded.\n")));
            }
            if let Some(name) = unit.strip_suffix(".timer") {
                self.timers.remove(name);
                fs::remove_file(self.transient.join(unit))?;
                self.forget_service(name);
            } else if let Some(name) = unit.strip_suffix(".service") {
                // What it sent to Juju's agent runs on.
                self.running.remove(name);
                self.forget_service(name);
            }
        }
        Ok(ToolAnswer::default())
    }
}

/// A span as systemd writes it: `3s`, `1min 30s`.
fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, 0) => format!("{minutes}min"),
        (minutes, seconds) => format!("{minutes}min {seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_timer_fires_again_only_when_its_service_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let mut systemd = Systemd::new(root.path());
        let run = words("--quiet --collect --unit=x --on-active=3s --on-unit-inactive=90s true now");
        assert_eq!(systemd.run(SimTime(0), "systemd-run", &run).code, 0);
        assert_eq!(systemd.run(SimTime(0), "systemd-run", &run).code, 1, "one of a name");
        let file = root.path().join("run/systemd/transient/x.timer");
        assert!(fs::read_to_string(&file).unwrap().contains("\nOnUnitInactiveSec=1min 30s\n"));
        assert_eq!(systemd.due(SimTime(2_999)), None);
        assert_eq!(systemd.due(SimTime(3_000)), Some(("x".to_owned(), words("true now"))));
        assert_eq!(systemd.next_event(), None);
        systemd.ended("x", SimTime(5_000));
        assert_eq!(systemd.next_event(), Some(SimTime(95_000)));
        assert_eq!(systemd.run(SimTime(0), "systemctl", &words("stop x.timer")).code, 0);
        assert!(!file.exists());
        assert_eq!(systemd.run(SimTime(0), "systemctl", &words("stop x.timer")).code, 5);
    }

    #[test]
    fn no_timer_is_made_while_a_service_of_its_name_runs() {
        let root = tempfile::tempdir().unwrap();
        let mut systemd = Systemd::new(root.path());
        let run = words("--unit=x --on-active=3s --on-unit-inactive=3s true");
        systemd.run(SimTime(0), "systemd-run", &run);
        systemd.due(SimTime(3_000)).unwrap();
        systemd.run(SimTime(3_000), "systemctl", &words("stop x.timer"));
        let service = root.path().join("run/systemd/transient/x.service");
        assert!(service.exists(), "it runs on");
        // As systemd 252 says it.
        let says = "Failed to start transient timer unit: Unit x.service was already loaded or has a fragment file.\n";
        assert_eq!(systemd.run(SimTime(3_000), "systemd-run", &run), ToolAnswer::failure(1, says));
        systemd.ended("x", SimTime(4_000));
        assert!(!service.exists());
        assert_eq!(systemd.run(SimTime(4_000), "systemd-run", &run).code, 0);
    }
}
