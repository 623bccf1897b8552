//! What Juju tells a hook by its environment, parsed once into a value that doesn't change.
//!
//! Variables: Juju `internal/worker/uniter/runner/context/context.go` `HookVars`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::event::Event;
use crate::machine::Root;
use crate::names::UnitName;

/// One hook's, action's or `juju-exec`'s circumstances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JujuContext {
    /// This unit, `JUJU_UNIT_NAME`.
    pub unit: UnitName,
    /// What is dispatched, `JUJU_DISPATCH_PATH`.
    pub event: Event,
    /// The charm's directory, `JUJU_CHARM_DIR`.
    pub charm_dir: PathBuf,
    /// The machine's root.
    pub root: Root,
    /// The model's name and UUID.
    pub model: Model,
    /// The relation that the hook is for.
    pub relation: Option<RelationContext>,
    /// The action that is run.
    pub action: Option<ActionContext>,
    /// The machine, `0` or `0/lxd/1`.
    pub machine_id: String,
    /// The agent's version; absent if it isn't one.
    pub juju_version: Option<semver::Version>,
    /// The cloud's availability zone, if it has one.
    pub availability_zone: Option<String>,
    /// The hook's name, `JUJU_HOOK_NAME`; none in actions and `juju-exec`.
    pub hook_name: Option<String>,
    /// The context's id, `JUJU_CONTEXT_ID`.
    pub context_id: Option<String>,
    /// Where the agent answers hook tools: network and address.
    pub agent_socket: Option<(String, String)>,
    /// The controllers' addresses.
    pub api_addresses: Vec<String>,
    /// The unit that a subordinate stands beside.
    pub principal: Option<UnitName>,
    /// The model's proxies.
    pub proxies: Proxies,
    /// The secret that the hook is for.
    pub secret: Option<SecretContext>,
    /// The storage that the hook is for: its id, kind and place.
    pub storage: Option<StorageContext>,
    /// Every other `JUJU_` variable that says something: those of debugging, tracing, series, and newer Jujus.
    pub others: BTreeMap<String, String>,
}

/// The proxies for charms, from the model's configuration `juju-*-proxy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proxies {
    /// `JUJU_CHARM_HTTP_PROXY`.
    pub http: Option<String>,
    /// `JUJU_CHARM_HTTPS_PROXY`.
    pub https: Option<String>,
    /// `JUJU_CHARM_FTP_PROXY`.
    pub ftp: Option<String>,
    /// `JUJU_CHARM_NO_PROXY`.
    pub none: Option<String>,
}

/// The secret that a hook is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretContext {
    /// `JUJU_SECRET_ID`.
    pub id: String,
    /// `JUJU_SECRET_LABEL`.
    pub label: Option<String>,
    /// `JUJU_SECRET_REVISION`, of one that expires or is to be removed.
    pub revision: Option<u64>,
}

/// The storage that a hook is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageContext {
    /// `JUJU_STORAGE_ID`.
    pub id: String,
    /// `JUJU_STORAGE_KIND`.
    pub kind: Option<String>,
    /// `JUJU_STORAGE_LOCATION`.
    pub location: Option<String>,
}

/// `JUJU_MODEL_NAME` and `JUJU_MODEL_UUID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The name.
    pub name: String,
    /// The UUID.
    pub uuid: String,
}

/// Juju's id of a relation, `upgrade:3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationId(pub String);

/// The relation that a hook is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationContext {
    /// Its id, `JUJU_RELATION_ID`.
    pub id: RelationId,
    /// Its endpoint's name, `JUJU_RELATION`.
    pub endpoint: String,
    /// The unit that it is about, if it is about one.
    pub remote_unit: Option<UnitName>,
    /// The application on the other side.
    pub remote_application: Option<String>,
    /// Who leaves.
    pub departing_unit: Option<UnitName>,
}

/// The action that is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionContext {
    /// Its name, `JUJU_ACTION_NAME`.
    pub name: String,
    /// Juju's id of the operation, `JUJU_ACTION_UUID` (`12`).
    pub operation: String,
}

/// Why an environment isn't a hook's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// Nobody of Juju's is here: the program was started by hand.
    #[error("no JUJU_UNIT_NAME in the environment: this program is run by Juju")]
    NotJuju,
    /// A variable that must be there is not.
    #[error("{0} is not set: this needs Juju 3.3 or later")]
    Missing(&'static str),
    /// A variable says what can't be.
    #[error("{variable} is `{value}`, not {expected}")]
    Bad {
        /// Its name.
        variable: &'static str,
        /// What it says.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
}

impl JujuContext {
    /// Reads the environment; `program` is how this program was called, for a Juju that names no dispatch path.
    ///
    /// # Errors
    ///
    /// It isn't Juju's, or lacks what no hook can do without.
    pub fn parse(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        program: &Path,
    ) -> Result<Self, ContextError> {
        let variables: Variables = Variables(
            variables
                .into_iter()
                .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
                .filter(|(name, _)| name.starts_with("JUJU_"))
                .collect(),
        );
        let variable = "JUJU_UNIT_NAME";
        let value = variables.text(variable).ok_or(ContextError::NotJuju)?;
        let bad = |_| ContextError::Bad { variable, value: value.clone(), expected: "a unit's name such as `k8s/0`" };
        let unit: UnitName = value.parse().map_err(bad)?;
        let charm_dir = variables.0.get("JUJU_CHARM_DIR").filter(|value| !value.is_empty());
        let charm_dir = PathBuf::from(charm_dir.ok_or(ContextError::Missing("JUJU_CHARM_DIR"))?);
        let path = variables.text("JUJU_DISPATCH_PATH");
        let path = path.unwrap_or_else(|| program.file_name().unwrap_or_default().to_string_lossy().into_owned());
        let text = |name: &str| variables.text(name);
        let socket = text("JUJU_AGENT_SOCKET_NETWORK").zip(text("JUJU_AGENT_SOCKET_ADDRESS"));
        Ok(Self {
            hook_name: text("JUJU_HOOK_NAME"),
            context_id: text("JUJU_CONTEXT_ID"),
            agent_socket: socket,
            api_addresses: variables.words("JUJU_API_ADDRESSES"),
            principal: variables.parsed("JUJU_PRINCIPAL_UNIT"),
            proxies: Proxies {
                http: text("JUJU_CHARM_HTTP_PROXY"),
                https: text("JUJU_CHARM_HTTPS_PROXY"),
                ftp: text("JUJU_CHARM_FTP_PROXY"),
                none: text("JUJU_CHARM_NO_PROXY"),
            },
            secret: variables.secret(),
            storage: text("JUJU_STORAGE_ID").map(|id| StorageContext {
                id,
                kind: text("JUJU_STORAGE_KIND"),
                location: text("JUJU_STORAGE_LOCATION"),
            }),
            others: variables.others(),
            unit,
            event: Event::parse(&path),
            root: Root::of_charm_dir(&charm_dir),
            charm_dir,
            model: Model {
                name: text("JUJU_MODEL_NAME").unwrap_or_default(),
                uuid: text("JUJU_MODEL_UUID").unwrap_or_default(),
            },
            relation: variables.relation(),
            action: text("JUJU_ACTION_NAME")
                .map(|name| ActionContext { name, operation: text("JUJU_ACTION_UUID").unwrap_or_default() }),
            machine_id: text("JUJU_MACHINE_ID").unwrap_or_default(),
            juju_version: variables.parsed("JUJU_VERSION"),
            availability_zone: text("JUJU_AVAILABILITY_ZONE"),
        })
    }
}

/// Variables that have a field of their own.
const NAMED: [&str; 31] = [
    "JUJU_UNIT_NAME",
    "JUJU_CHARM_DIR",
    "JUJU_DISPATCH_PATH",
    "JUJU_HOOK_NAME",
    "JUJU_MODEL_NAME",
    "JUJU_MODEL_UUID",
    "JUJU_VERSION",
    "JUJU_CONTEXT_ID",
    "JUJU_AGENT_SOCKET_ADDRESS",
    "JUJU_AGENT_SOCKET_NETWORK",
    "JUJU_API_ADDRESSES",
    "JUJU_MACHINE_ID",
    "JUJU_PRINCIPAL_UNIT",
    "JUJU_AVAILABILITY_ZONE",
    "JUJU_CHARM_HTTP_PROXY",
    "JUJU_CHARM_HTTPS_PROXY",
    "JUJU_CHARM_FTP_PROXY",
    "JUJU_CHARM_NO_PROXY",
    "JUJU_RELATION",
    "JUJU_RELATION_ID",
    "JUJU_REMOTE_UNIT",
    "JUJU_REMOTE_APP",
    "JUJU_DEPARTING_UNIT",
    "JUJU_ACTION_NAME",
    "JUJU_ACTION_UUID",
    "JUJU_SECRET_ID",
    "JUJU_SECRET_LABEL",
    "JUJU_SECRET_REVISION",
    "JUJU_STORAGE_ID",
    "JUJU_STORAGE_KIND",
    "JUJU_STORAGE_LOCATION",
];

/// `JUJU_*`; one that is empty says as much as one that is absent.
struct Variables(BTreeMap<String, OsString>);

impl Variables {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
    }

    /// What no hook depends on says nothing where it says what can't be.
    fn parsed<V: FromStr>(&self, name: &str) -> Option<V> {
        self.text(name)?.parse().ok()
    }

    fn words(&self, name: &str) -> Vec<String> {
        self.text(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    fn secret(&self) -> Option<SecretContext> {
        let (label, revision) = (self.text("JUJU_SECRET_LABEL"), self.parsed("JUJU_SECRET_REVISION"));
        Some(SecretContext { id: self.text("JUJU_SECRET_ID")?, label, revision })
    }

    /// What has no field of its own.
    fn others(&self) -> BTreeMap<String, String> {
        let others = self.0.keys().filter(|name| !NAMED.contains(&name.as_str()));
        others.filter_map(|name| Some((name.clone(), self.text(name)?))).collect()
    }

    fn relation(&self) -> Option<RelationContext> {
        Some(RelationContext {
            id: RelationId(self.text("JUJU_RELATION_ID")?),
            endpoint: self.text("JUJU_RELATION")?,
            remote_unit: self.parsed("JUJU_REMOTE_UNIT"),
            remote_application: self.text("JUJU_REMOTE_APP"),
            departing_unit: self.parsed("JUJU_DEPARTING_UNIT"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::RelationChange;
    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<JujuContext, ContextError> {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        JujuContext::parse(variables, Path::new("/charm/hooks/start"))
    }

    #[test]
    fn recorded_environments_are_read_whole() {
        for recording in [
            include_str!("../../tests/recorded/juju/3.6/hook-env/hooks_cluster-relation-departed.json"),
            include_str!("../../tests/recorded/juju/4.0/hook-env/hooks_cluster-relation-departed.json"),
        ] {
            let recording: serde_json::Value = serde_json::from_str(recording).unwrap();
            let variables = recording["env"].as_object().unwrap();
            let variables = variables.iter().map(|(name, value)| (name.into(), value.as_str().unwrap().into()));
            let context = JujuContext::parse(variables, Path::new("dispatch")).unwrap();
            assert_eq!(context.unit, UnitName::new("k8s", 0));
            assert_eq!(context.charm_dir, Path::new("/var/lib/juju/agents/unit-k8s-0/charm"));
            assert!(context.root.is_production());
            let event = Event::Relation { endpoint: "cluster".to_owned(), change: RelationChange::Departed };
            assert_eq!(context.event, event);
            let relation = context.relation.unwrap();
            assert_eq!(relation.id, RelationId("cluster:0".to_owned()));
            assert_eq!(relation.remote_unit, Some(UnitName::new("k8s", 1)));
            assert_eq!(relation.departing_unit, Some(UnitName::new("k8s", 1)));
            assert_eq!(context.action, None);
            assert_eq!(context.hook_name.as_deref(), Some("cluster-relation-departed"));
            assert_eq!(context.api_addresses, ["10.7.1.1:17070", "10.7.1.2:17070"]);
            let socket = "/var/lib/juju/agents/unit-k8s-0/agent.socket";
            assert_eq!(context.agent_socket, Some(("unix".to_owned(), socket.to_owned())));
            assert_eq!((context.principal, context.proxies, context.secret), (None, Proxies::default(), None));
            // All that is left over is what a version has of its own.
            assert!(context.others.keys().all(|name| name == "JUJU_SLA"), "{:?}", context.others);
        }
    }

    #[test]
    fn a_secrets_hook_names_it() {
        let recording = include_str!("../../tests/recorded/juju/3.6/hook-env/hooks_secret-changed.json");
        let recording: serde_json::Value = serde_json::from_str(recording).unwrap();
        let variables = recording["env"].as_object().unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.as_str().unwrap().into()));
        let context = JujuContext::parse(variables, Path::new("dispatch")).unwrap();
        assert_eq!(context.event, Event::SecretChanged);
        assert!(context.secret.unwrap().id.starts_with("secret:"));
    }

    #[test]
    fn an_action_is_known_by_its_name_and_operation() {
        let recording = include_str!("../../tests/recorded/juju/3.6/hook-env/actions_act.json");
        let recording: serde_json::Value = serde_json::from_str(recording).unwrap();
        let variables = recording["env"].as_object().unwrap();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.as_str().unwrap().into()));
        let context = JujuContext::parse(variables, Path::new("dispatch")).unwrap();
        assert_eq!(context.event, Event::Action("act".to_owned()));
        let action = ActionContext { name: "act".to_owned(), operation: "12".to_owned() };
        assert_eq!(context.action, Some(action));
    }

    #[test]
    fn what_is_missing_or_bad_is_named() {
        assert_eq!(parse(&[("HOME", "/root")]), Err(ContextError::NotJuju));
        assert_eq!(parse(&[("JUJU_UNIT_NAME", "k8s/0")]), Err(ContextError::Missing("JUJU_CHARM_DIR")));
        let bad = parse(&[("JUJU_UNIT_NAME", "k8s-0"), ("JUJU_CHARM_DIR", "/c")]).unwrap_err();
        assert_eq!(bad.to_string(), "JUJU_UNIT_NAME is `k8s-0`, not a unit's name such as `k8s/0`");
    }

    #[test]
    fn what_no_hook_depends_on_may_be_garbage() {
        let hard = [("JUJU_UNIT_NAME", "k8s/0"), ("JUJU_CHARM_DIR", "/c"), ("JUJU_DISPATCH_PATH", "hooks/start")];
        let garbage = ["JUJU_PRINCIPAL_UNIT", "JUJU_REMOTE_UNIT", "JUJU_DEPARTING_UNIT", "JUJU_SECRET_REVISION"];
        let garbage = garbage.into_iter().chain(["JUJU_VERSION"]).map(|name| (name, "?"));
        let named = [("JUJU_RELATION", "cluster"), ("JUJU_RELATION_ID", "cluster:0"), ("JUJU_SECRET_ID", "secret:a")];
        let all: Vec<_> = hard.into_iter().chain(garbage).chain(named).collect();
        let context = parse(&all).unwrap();
        assert_eq!((context.event, context.juju_version, context.principal), (Event::Start, None, None));
        assert_eq!(context.relation.unwrap().remote_unit, None);
        assert_eq!(context.secret.unwrap().revision, None);
    }

    #[test]
    fn without_a_dispatch_path_the_programs_name_is_the_event() {
        let context = parse(&[("JUJU_UNIT_NAME", "k8s/0"), ("JUJU_CHARM_DIR", "/c")]).unwrap();
        assert_eq!(context.event, Event::Start);
    }
}
