//! Juju's port against recordings of real hook tools (3.6 and 4.0).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may end at once where its own data is wrong")]

use std::path::Path;

use k8s_charm::databags::Bag;
use k8s_charm::juju::{HookToolError, HookTools, Juju, JujuError, RelationId, ToolCall};
use k8s_charm::names::UnitName;
use serde_json::Value;

/// Answers as the recorded tool did to the same arguments, wherever it was recorded.
struct Recorded {
    version: &'static str,
    leader: bool,
}

impl HookTools for Recorded {
    async fn call(&self, call: &ToolCall<'_>) -> Result<Vec<u8>, HookToolError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/juju");
        let path = path.join(self.version).join("hook-tools").join(format!("{}.json", call.tool));
        let recorded: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let argv: Vec<&str> = std::iter::once(call.tool).chain(call.arguments.iter().copied()).collect();
        let stdin = call.stdin.map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap());
        let found = recorded.iter().find(|entry| {
            let same_input = entry["stdin"].as_str().and_then(|text| serde_yaml::from_str(text).ok()) == stdin;
            let same_role = entry["context"]
                .as_str()
                .is_some_and(|context| !context.contains("leader") || context.contains("non-leader") != self.leader);
            entry["argv"] == serde_json::json!(argv) && (call.stdin.is_none() || same_input) && same_role
        });
        let entry = found.unwrap_or_else(|| panic!("{argv:?} was not recorded"));
        match i32::try_from(entry["exit"].as_i64().unwrap()).unwrap() {
            0 => Ok(entry["stdout"].as_str().unwrap().as_bytes().to_vec()),
            code => Err(HookToolError::Refused {
                tool: call.tool,
                code,
                message: entry["stderr"].as_str().unwrap().trim_start_matches("ERROR ").trim().to_owned(),
            }),
        }
    }
}

fn both() -> [Juju<Recorded>; 2] {
    ["3.6", "4.0"].map(|version| Juju::new(Recorded { version, leader: true }))
}

fn unit(number: u32) -> UnitName {
    UnitName::new("k8s", number)
}

#[tokio::test(flavor = "current_thread")]
async fn recorded_answers_become_values() {
    for juju in both() {
        assert!(juju.is_leader().await.unwrap());
        let goal = juju.goal_state().await.unwrap();
        assert_eq!(goal.units.keys().cloned().collect::<Vec<_>>(), [unit(0), unit(1)]);
        assert!(!goal.units[&unit(1)].is_dying());
        assert_eq!(goal.related_units("db"), [UnitName::new("mysql", 0)]);
        assert_eq!(juju.relation_ids("cluster").await.unwrap(), [RelationId("cluster:0".to_owned())]);
        assert!(!juju.config().await.unwrap().is_empty());
        assert_eq!(juju.status().await.unwrap().status, "waiting");
        let resource = juju.resource("snap-installation").await.unwrap().unwrap();
        assert_eq!(resource, Path::new("/var/lib/juju/agents/unit-k8s-0/resources/snap.tar.gz"));
        assert_eq!(juju.resource("nope").await.unwrap(), None);
        let addresses = juju.network("cluster").await.unwrap().node_addresses();
        assert_eq!(addresses, ["10.7.0.1".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(juju.public_address().await.unwrap().unwrap(), "10.7.0.1");
    }
    for version in ["3.6", "4.0"] {
        assert!(!Juju::new(Recorded { version, leader: false }).is_leader().await.unwrap());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn bags_are_read_and_what_cannot_be_read_is_absent() {
    let db = RelationId("db:2".to_owned());
    for juju in both() {
        let bag = juju.unit_bag(&db, &UnitName::new("mysql", 0)).await.unwrap().unwrap();
        assert_eq!(bag["host"], "10.9.9.9");
        let bag = juju.application_bag(&db, "mysql").await.unwrap();
        assert_eq!(bag["dbname"], "kine");
    }
}

/// Refuses with one text, whatever is asked.
struct Refuses(&'static str);

impl HookTools for Refuses {
    async fn call(&self, call: &ToolCall<'_>) -> Result<Vec<u8>, HookToolError> {
        Err(HookToolError::Refused { tool: call.tool, code: 1, message: self.0.to_owned() })
    }
}

#[tokio::test(flavor = "current_thread")]
async fn recorded_refusals_are_told_apart() {
    let relation = RelationId("cluster:0".to_owned());
    for text in [
        "cannot read settings for unit \"k8s/7\" in relation \"k8s:cluster\": unit \"k8s/7\": settings not found",
        "relation unit not found",
        "getting relation endpoint UUID: application not found in relation",
        "invalid value \"cluster:9\" for option -r: relation not found",
    ] {
        assert_eq!(Juju::new(Refuses(text)).unit_bag(&relation, &unit(7)).await.unwrap(), None, "{text}");
    }
    let broken = Juju::new(Refuses("connection is shut down"));
    assert!(broken.unit_bag(&relation, &unit(1)).await.is_err(), "what Juju can't say is not absent");
    let unreachable = Juju::new(Refuses("could not download resource: HTTP request failed: EOF"));
    let error = unreachable.resource("snap-installation").await.unwrap_err();
    assert!(error.is_resource_unreachable(), "what can't be fetched now is not absent");
    let leader = Juju::new(Refuses("leadership status unknown: lease manager stopped"));
    assert!(!leader.is_leader().await.unwrap());
    let changes = [("a".to_owned(), "b".to_owned())].into();
    let refused = Juju::new(Refuses("cannot write relation settings"));
    assert!(refused.set_application_bag(&relation, &changes).await.is_err(), "another unit leads by now");
    let denied = Juju::new(Refuses("permission denied"));
    assert_eq!(denied.unit_bag(&relation, &unit(7)).await.unwrap(), None, "a unit that is gone");
    assert!(denied.own_bag(&relation, &unit(0)).await.is_err(), "what stands in the own bag is not nothing");
    let fresh =
        Juju::new(Refuses("cannot read settings for unit \"k8s/0\" in relation \"k8s:cluster\": settings not found"));
    assert_eq!(fresh.own_bag(&relation, &unit(0)).await.unwrap(), None);
}

/// Answers anything with the same bytes.
struct Says(&'static [u8]);

impl HookTools for Says {
    async fn call(&self, _: &ToolCall<'_>) -> Result<Vec<u8>, HookToolError> {
        Ok(self.0.to_vec())
    }
}

#[tokio::test(flavor = "current_thread")]
async fn answers_that_make_no_sense_are_errors_that_name_the_tool() {
    for answer in [&b"{\"a\": "[..], b"[1,2]", b"", b"\xff\xfe"] {
        let error = Juju::new(Says(answer)).config().await.unwrap_err();
        assert!(matches!(error, JujuError::Answer { tool: "config-get", .. }), "{error}");
    }
    let without_units = Juju::new(Says(b"{\"relations\": {}}")).goal_state().await;
    assert!(without_units.is_err(), "no answer about units is not that there are none");
    let odd = Juju::new(Says(b"{\"name\": \"\xff\"}")).config().await.unwrap();
    assert_eq!(odd["name"], "\u{fffd}", "a byte that isn't UTF-8 loses nothing else");
    let nothing = Juju::new(Says(b""));
    nothing.set_unit_bag(&RelationId("a:1".to_owned()), &Bag::default()).await.unwrap();
}
