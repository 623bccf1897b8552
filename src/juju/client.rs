//! Hook tools with types: what they are asked, and what they answer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::answers::{GoalState, Network, RawGoalState, Status};
use super::context::RelationId;
use super::error::JujuError;
use super::tools::{HookToolError, HookTools, ToolCall};
use crate::databags::Bag;
use crate::names::UnitName;

/// The longest text of one `juju-log`: an argument may have 128 KiB on Linux (`MAX_ARG_STRLEN`).
const LONGEST_LOG: usize = 120 * 1024;

/// Juju, as the charm speaks to it.
#[derive(Debug, Clone, Copy)]
pub struct Juju<T> {
    tools: T,
}

impl<T: HookTools> Juju<T> {
    /// Juju by these hook tools.
    pub fn new(tools: T) -> Self {
        Self { tools }
    }

    pub(super) async fn call(
        &self,
        tool: &'static str,
        arguments: &[&str],
        stdin: Option<&[u8]>,
    ) -> Result<Vec<u8>, JujuError> {
        Ok(self.tools.call(&ToolCall { tool, arguments, stdin }).await?)
    }

    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        tool: &'static str,
        arguments: &[&str],
        expected: &'static str,
    ) -> Result<A, JujuError> {
        let answer = self.call(tool, arguments, None).await?;
        // JSON is UTF-8; a byte that isn't is shown as such rather than lost with all the rest.
        let text = String::from_utf8_lossy(&answer);
        serde_json::from_str(&text).map_err(|source| JujuError::Answer { tool, expected, source })
    }

    /// Whether this unit leads its application; where Juju doesn't know, it doesn't. `true` holds for 30 s at least.
    pub async fn is_leader(&self) -> Result<bool, JujuError> {
        match self.ask("is-leader", &["--format=json"], "true or false").await {
            Err(JujuError::Tool(HookToolError::Refused { .. })) => Ok(false),
            answer => answer,
        }
    }

    /// What exists.
    pub async fn goal_state(&self) -> Result<GoalState, JujuError> {
        let raw: RawGoalState = self.ask("goal-state", &["--format=json"], "units and relations").await?;
        Ok(raw.into())
    }

    /// The application's options that have a value.
    pub async fn config(&self) -> Result<Map<String, Value>, JujuError> {
        self.ask("config-get", &["--format=json"], "an object of options").await
    }

    /// The relations of an endpoint; in `install` there are none.
    pub async fn relation_ids(&self, endpoint: &str) -> Result<Vec<RelationId>, JujuError> {
        let ids: Vec<String> = self.ask("relation-ids", &["--format=json", endpoint], "a list of relations").await?;
        Ok(ids.into_iter().map(RelationId).collect())
    }

    /// Another unit's bag: it may be as old as that unit's last `-changed` here. None: there is none to read.
    pub async fn unit_bag(&self, relation: &RelationId, unit: &UnitName) -> Result<Option<Bag>, JujuError> {
        none_if(self.bag_of_unit(relation, unit).await, JujuError::is_no_bag)
    }

    /// This unit's own bag. None: it hasn't entered the relation yet. That it can't be read for another reason says
    /// nothing of what stands in it.
    pub async fn own_bag(&self, relation: &RelationId, me: &UnitName) -> Result<Option<Bag>, JujuError> {
        none_if(self.bag_of_unit(relation, me).await, JujuError::has_not_entered)
    }

    async fn bag_of_unit(&self, relation: &RelationId, unit: &UnitName) -> Result<Bag, JujuError> {
        self.ask("relation-get", &["--format=json", "-r", &relation.0, "-", &unit.to_string()], "a bag").await
    }

    /// This unit's application's bag: read fresh in each hook.
    pub async fn application_bag(&self, relation: &RelationId, application: &str) -> Result<Bag, JujuError> {
        let arguments = ["--format=json", "-r", &relation.0, "--app", "-", application];
        self.ask("relation-get", &arguments, "a bag").await
    }

    /// Writes into this unit's bag; an empty value deletes its key. Kept when the hook ends well.
    pub async fn set_unit_bag(&self, relation: &RelationId, changes: &Bag) -> Result<(), JujuError> {
        self.set_bag(&["-r", &relation.0, "--file", "-"], changes).await
    }

    /// Writes into the application's bag, as its leader.
    pub async fn set_application_bag(&self, relation: &RelationId, changes: &Bag) -> Result<(), JujuError> {
        self.set_bag(&["-r", &relation.0, "--app", "--file", "-"], changes).await
    }

    async fn set_bag(&self, arguments: &[&str], changes: &Bag) -> Result<(), JujuError> {
        if changes.is_empty() {
            return Ok(());
        }
        let tool = "relation-set";
        let payload = serde_json::to_vec(changes).map_err(|source| JujuError::Answer {
            tool,
            expected: "a bag that can be written",
            source,
        })?;
        self.call(tool, arguments, Some(&payload)).await.map(drop)
    }

    /// This unit's workload status.
    pub async fn status(&self) -> Result<Status, JujuError> {
        self.ask("status-get", &["--format=json", "--include-data"], "a status").await
    }

    /// Sets this unit's workload status, at once: `waiting`, and its text.
    pub async fn set_status(&self, status: &str, message: &str) -> Result<(), JujuError> {
        self.call("status-set", &[status, "--", message], None).await.map(drop)
    }

    /// Sets the workload's version, which `juju status` shows.
    pub async fn set_application_version(&self, version: &str) -> Result<(), JujuError> {
        self.call("application-version-set", &["--", version], None).await.map(drop)
    }

    /// Writes a text to Juju's log, in several calls where it is long.
    pub async fn log(&self, level: tracing::Level, text: &str) -> Result<(), JujuError> {
        let level = level.to_string();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST_LOG));
            self.call("juju-log", &["--log-level", &level, "--", part], None).await?;
            rest = after;
        }
        Ok(())
    }

    /// Fetches a resource if the one on disk is another; where it is. None: nobody has attached one.
    pub async fn resource(&self, name: &str) -> Result<Option<PathBuf>, JujuError> {
        let path = none_if(self.call("resource-get", &[name], None).await.map(Some), JujuError::is_no_resource)?;
        Ok(path.flatten().map(|path| PathBuf::from(String::from_utf8_lossy(&path).trim_end_matches('\n'))))
    }

    /// The addresses that a binding (an endpoint's name) has on this unit.
    pub async fn network(&self, binding: &str) -> Result<Network, JujuError> {
        self.ask("network-get", &["--format=json", binding], "a binding's addresses").await
    }

    /// The address that this unit is reached by from outside of its cloud.
    pub async fn public_address(&self) -> Result<Option<String>, JujuError> {
        let address = self.call("unit-get", &["public-address"], None).await?;
        let address = String::from_utf8_lossy(&address).trim().to_owned();
        Ok((!address.is_empty()).then_some(address))
    }

    /// Opens a port, `6443/tcp`.
    pub async fn open_port(&self, port: &str) -> Result<(), JujuError> {
        self.call("open-port", &[port], None).await.map(drop)
    }

    /// The parameters of the action that is run, defaults filled in.
    pub async fn action_parameters(&self) -> Result<Map<String, Value>, JujuError> {
        self.ask("action-get", &["--format=json"], "an object of parameters").await
    }

    /// Results of the action. Keys: lower-case letters, digits, `-`.
    pub async fn set_action_results(&self, results: &BTreeMap<&str, String>) -> Result<(), JujuError> {
        let pairs: Vec<String> = results.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let pairs: Vec<&str> = std::iter::once("--").chain(pairs.iter().map(String::as_str)).collect();
        self.call("action-set", &pairs, None).await.map(drop)
    }

    /// Marks the action failed; what else it does is kept.
    pub async fn fail_action(&self, why: &str) -> Result<(), JujuError> {
        self.call("action-fail", &["--", why], None).await.map(drop)
    }
}

/// Turns the error that says "there is none" into `None`.
fn none_if<A>(answer: Result<A, JujuError>, is_none: fn(&JujuError) -> bool) -> Result<Option<A>, JujuError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if is_none(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
