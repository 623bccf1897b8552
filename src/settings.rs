//! The application's configuration, read once: values of the right type and range, and complaints about all others.
//!
//! Pure. An option that can't be read keeps a safe value; its complaint names the option and the command that mends it.

use serde_json::{Map, Value};

use crate::upgrade::unit::PausePolicy;

/// What the charm wants to know of its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `pause-after-unit-refresh`; what is none of its words counts as `all`.
    pub pause: PausePolicy,
    /// `upgrade-health-timeout`, seconds.
    pub health_timeout: u64,
    /// `unready-pod-namespaces`.
    pub pod_namespaces: Vec<String>,
}

/// An option that can't be used as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadOption {
    /// Its name.
    pub option: &'static str,
    /// What it may be.
    pub allowed: &'static str,
    /// A value that is allowed, for the command.
    pub example: &'static str,
}

/// Seconds that the gate after may take, where the option doesn't say.
const HEALTH_TIMEOUT: u64 = 600;

/// A gate after takes half a minute where all is well: a shorter patience would fail every upgrade.
pub const SHORTEST_TIMEOUT: u64 = 30;

/// Reads what `config-get` gave.
pub fn read(config: &Map<String, Value>) -> (Settings, Vec<BadOption>) {
    let mut bad = Vec::new();
    let pause = match config.get("pause-after-unit-refresh").map(Value::as_str) {
        None | Some(Some("none")) => PausePolicy::None,
        Some(Some("first")) => PausePolicy::First,
        Some(Some("all")) => PausePolicy::All,
        Some(_) => {
            bad.push(BadOption { option: "pause-after-unit-refresh", allowed: "none, first or all", example: "none" });
            PausePolicy::All
        }
    };
    let health_timeout = match config.get("upgrade-health-timeout") {
        None => HEALTH_TIMEOUT,
        Some(value) => value.as_u64().filter(|seconds| *seconds >= SHORTEST_TIMEOUT).unwrap_or_else(|| {
            bad.push(BadOption { option: "upgrade-health-timeout", allowed: "seconds, 30 or more", example: "600" });
            HEALTH_TIMEOUT
        }),
    };
    let pod_namespaces = match config.get("unready-pod-namespaces") {
        None => Vec::new(),
        Some(value) => words(value),
    };
    (Settings { pause, health_timeout, pod_namespaces }, bad)
}

/// The words of an option; a value that is no text has none.
pub fn words(value: &Value) -> Vec<String> {
    value.as_str().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(config: &Value) -> (Settings, Vec<&'static str>) {
        let (settings, bad) = read(config.as_object().unwrap());
        (settings, bad.into_iter().map(|bad| bad.option).collect())
    }

    #[test]
    fn options_are_read_and_absent_ones_have_their_defaults() {
        let (settings, bad) = of(&json!({"pause-after-unit-refresh": "first", "upgrade-health-timeout": 60,
            "unready-pod-namespaces": "kube-system  metallb-system"}));
        assert_eq!((settings.pause, settings.health_timeout), (PausePolicy::First, 60));
        assert_eq!(settings.pod_namespaces, ["kube-system", "metallb-system"]);
        assert!(bad.is_empty());
        let (settings, bad) = of(&json!({}));
        assert_eq!((settings.pause, settings.health_timeout), (PausePolicy::None, 600));
        assert!(bad.is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_named_and_takes_the_careful_value() {
        let (settings, bad) = of(&json!({"pause-after-unit-refresh": "sometimes", "upgrade-health-timeout": -5}));
        assert_eq!((settings.pause, settings.health_timeout), (PausePolicy::All, 600));
        assert_eq!(bad, ["pause-after-unit-refresh", "upgrade-health-timeout"]);
        for value in [json!(0), json!(29), json!("600"), json!(null), json!(1.5)] {
            let (_, bad) = of(&json!({"upgrade-health-timeout": value}));
            assert_eq!(bad, ["upgrade-health-timeout"], "{value}");
        }
    }
}
