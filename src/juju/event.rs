//! What Juju dispatches: every name becomes an event, one that nobody knows too.

use std::fmt;

/// An event, read from `JUJU_DISPATCH_PATH` (Juju `internal/worker/uniter/runner`, `hooks/NAME` or `actions/NAME`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Juju's")]
pub enum Event {
    Install,
    Start,
    Stop,
    Remove,
    ConfigChanged,
    UpgradeCharm,
    UpdateStatus,
    LeaderElected,
    /// Our own wake-up.
    UpgradeGranted,
    SecretChanged,
    /// `ENDPOINT-relation-CHANGE`.
    Relation {
        endpoint: String,
        change: RelationChange,
    },
    /// An action's name.
    Action(String),
    /// Anything else: nothing is done for it.
    Other(String),
}

/// What happened to a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words are Juju's")]
pub enum RelationChange {
    Created,
    Joined,
    Changed,
    Departed,
    Broken,
}

impl RelationChange {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Created, "created"),
        (Self::Joined, "joined"),
        (Self::Changed, "changed"),
        (Self::Departed, "departed"),
        (Self::Broken, "broken"),
    ];
}

/// The hooks that have a name of their own.
const HOOKS: [(Event, &str); 10] = [
    (Event::Install, "install"),
    (Event::Start, "start"),
    (Event::Stop, "stop"),
    (Event::Remove, "remove"),
    (Event::ConfigChanged, "config-changed"),
    (Event::UpgradeCharm, "upgrade-charm"),
    (Event::UpdateStatus, "update-status"),
    (Event::LeaderElected, "leader-elected"),
    (Event::UpgradeGranted, "upgrade-granted"),
    (Event::SecretChanged, "secret-changed"),
];

impl Event {
    /// Reads a dispatch path. Timers write custom events with `-` or `_`, with or without `hooks/` before them.
    pub fn parse(path: &str) -> Self {
        if let Some(action) = path.strip_prefix("actions/") {
            return Self::Action(action.to_owned());
        }
        let name = path.strip_prefix("hooks/").unwrap_or(path);
        let dashed = name.replace('_', "-");
        if let Some((event, _)) = HOOKS.into_iter().find(|(_, hook)| *hook == dashed) {
            return event;
        }
        relation(name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

/// An endpoint's own name may hold a `_`.
fn relation(name: &str) -> Option<Event> {
    RelationChange::ALL.into_iter().find_map(|(change, word)| {
        let endpoint = name.strip_suffix(word)?.strip_suffix("-relation-")?;
        (!endpoint.is_empty()).then(|| Event::Relation { endpoint: endpoint.to_owned(), change })
    })
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((_, name)) = HOOKS.iter().find(|(event, _)| event == self) {
            return f.write_str(name);
        }
        match self {
            Self::Relation { endpoint, change } => {
                let word = RelationChange::ALL.iter().find(|(known, _)| known == change).map_or("", |(_, word)| word);
                write!(f, "{endpoint}-relation-{word}")
            }
            Self::Action(name) | Self::Other(name) => f.write_str(name),
            // All others have a name of their own.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_read_and_written_as_juju_names_it() {
        for (event, name) in HOOKS {
            assert_eq!(Event::parse(&format!("hooks/{name}")), event);
            assert_eq!(event.to_string(), name);
        }
        for (change, word) in RelationChange::ALL {
            let event = Event::Relation { endpoint: "k8s-cluster".to_owned(), change };
            assert_eq!(Event::parse(&format!("hooks/k8s-cluster-relation-{word}")), event);
            assert_eq!(event.to_string(), format!("k8s-cluster-relation-{word}"));
        }
        assert_eq!(Event::parse("actions/get-kubeconfig"), Event::Action("get-kubeconfig".to_owned()));
    }

    #[test]
    fn custom_events_come_with_either_separator_and_with_or_without_the_folder() {
        for path in ["hooks/upgrade_granted", "hooks/upgrade-granted", "upgrade_granted", "upgrade-granted"] {
            assert_eq!(Event::parse(path), Event::UpgradeGranted, "{path}");
        }
        assert_eq!(Event::parse("update_status"), Event::UpdateStatus, "the Python charm's timer");
    }

    #[test]
    fn what_nobody_knows_is_an_event_too() {
        for name in ["collect-metrics", "pre-series-upgrade", "data-storage-attached", "-relation-joined", "", "x"] {
            assert_eq!(Event::parse(&format!("hooks/{name}")), Event::Other(name.to_owned()));
        }
        let endpoint = "my_db".to_owned();
        let event = Event::Relation { endpoint, change: RelationChange::Joined };
        assert_eq!(Event::parse("hooks/my_db-relation-joined"), event);
    }
}
