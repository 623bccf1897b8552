//! The bags of the peer relation `cluster`: keys and formats of the Python charm, and two of ours.

use std::collections::BTreeMap;

use super::{Bag, Complaint, difference, parsed, read};
use crate::cluster::values::{ClusterApplicationBag, ClusterUnitBag, Entry, TokenFailure, TokenId};
use crate::names::UnitName;

const TOKEN: &str = "-secret-id";

/// Reads the application's bag.
pub fn parse_application(bag: &Bag) -> (ClusterApplicationBag, Vec<Complaint>) {
    let mut bad = Vec::new();
    let entries = bag.iter().filter_map(|(key, value)| Some((key.parse().ok()?, entry(value)?))).collect();
    let application = ClusterApplicationBag {
        bootstrap: read(bag, &mut bad, "bootstrap", parsed),
        entries,
        tokens: tokens(bag),
        version: read(bag, &mut bad, "version", parsed),
        bootstrap_certificates: read(bag, &mut bad, "bootstrap-certificates", |text| Ok(text.to_owned())),
    };
    (application, bad)
}

fn entry(value: &str) -> Option<Entry> {
    let entry = |node: &str, kind: fn(String) -> Entry| (!node.is_empty()).then(|| kind(node.to_owned()));
    match (value.strip_prefix("pending-"), value.strip_prefix("joined-")) {
        (Some(node), _) => entry(node, Entry::Pending),
        (_, Some(node)) => entry(node, Entry::Joined),
        _ => None,
    }
}

fn tokens(bag: &Bag) -> BTreeMap<UnitName, TokenId> {
    let token = |(key, value): (&String, &String)| {
        let unit = key.strip_suffix(TOKEN)?.parse().ok()?;
        (!value.is_empty()).then(|| (unit, value.clone()))
    };
    bag.iter().filter_map(token).collect()
}

/// What to write so that the application's bag says this.
pub fn application_changes(application: &ClusterApplicationBag, bag: &Bag) -> Bag {
    let before = parse_application(bag).0;
    let mut wanted = vec![
        ("bootstrap".to_owned(), application.bootstrap.as_ref().map(ToString::to_string)),
        ("bootstrap-certificates".to_owned(), application.bootstrap_certificates.clone()),
        ("version".to_owned(), application.version.as_ref().map(ToString::to_string)),
    ];
    let word = |entry: &Entry| match entry {
        Entry::Pending(node) => format!("pending-{node}"),
        Entry::Joined(node) => format!("joined-{node}"),
    };
    let units = before.entries.keys().chain(application.entries.keys());
    wanted.extend(units.map(|unit| (unit.to_string(), application.entries.get(unit).map(word))));
    wanted.extend(token_keys(&before.tokens, &application.tokens));
    difference(bag, wanted)
}

fn token_keys(
    before: &BTreeMap<UnitName, TokenId>,
    after: &BTreeMap<UnitName, TokenId>,
) -> Vec<(String, Option<String>)> {
    let units = before.keys().chain(after.keys());
    units.map(|unit| (format!("{unit}{TOKEN}"), after.get(unit).cloned())).collect()
}

/// Reads a unit's bag.
pub fn parse_unit(bag: &Bag) -> (ClusterUnitBag, Vec<Complaint>) {
    let mut bad = Vec::new();
    let text = |text: &str| Ok(text.to_owned());
    let unit = ClusterUnitBag {
        node_name: read(bag, &mut bad, "node-name", text),
        joined: read(bag, &mut bad, "joined", text),
        cluster_name: read(bag, &mut bad, "cluster-name", text),
        token_failure: read(bag, &mut bad, "token-failure", |text| {
            serde_json::from_str(text).map_err(|error| format!("not as expected ({error})"))
        }),
        version: read(bag, &mut bad, "version", parsed),
        unjoined: read(bag, &mut bad, "unjoined", parsed),
        tokens: tokens(bag),
    };
    (unit, bad)
}

/// What to write so that the unit's bag says this.
pub fn unit_changes(unit: &ClusterUnitBag, bag: &Bag) -> Bag {
    let failure = |failure: &TokenFailure| serde_json::to_string(failure).ok();
    let mut wanted = vec![
        ("node-name".to_owned(), unit.node_name.clone()),
        ("joined".to_owned(), unit.joined.clone()),
        ("cluster-name".to_owned(), unit.cluster_name.clone()),
        ("version".to_owned(), unit.version.as_ref().map(ToString::to_string)),
        ("unjoined".to_owned(), unit.unjoined.as_ref().map(ToString::to_string)),
    ];
    let before = parse_unit(bag).0;
    if before.token_failure != unit.token_failure {
        wanted.push(("token-failure".to_owned(), unit.token_failure.as_ref().and_then(failure)));
    }
    wanted.extend(token_keys(&before.tokens, &unit.tokens));
    difference(bag, wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_python_charms_bags_are_read_and_left_alone() {
        let recorded: Value =
            serde_json::from_str(include_str!("../../tests/recorded/python-charms/databags/cluster.json")).unwrap();
        let bag = |owner: &str| -> Bag { serde_json::from_value(recorded["databags"][owner].clone()).unwrap() };
        let (application, bad) = parse_application(&bag("k8s"));
        assert!(bad.is_empty());
        let joined: Vec<String> = application.joined().map(ToString::to_string).collect();
        assert_eq!(joined, ["k8s/0", "k8s/1", "k8s/2"]);
        assert_eq!(application.entries[&UnitName::new("k8s", 1)].node(), "juju-k8s-1");
        assert!(application_changes(&application, &bag("k8s")).is_empty());
        let (unit, bad) = parse_unit(&bag("k8s/0"));
        assert!(bad.is_empty());
        assert_eq!(unit.joined, unit.cluster_name);
        assert!(unit_changes(&unit, &bag("k8s/0")).is_empty());
        for step in recorded["steps"].as_array().unwrap() {
            for (owner, bag) in step["databags"].as_object().unwrap() {
                let bag: Bag = serde_json::from_value(bag.clone()).unwrap();
                let (changes, bad) = if owner.contains('/') {
                    let (unit, bad) = parse_unit(&bag);
                    (unit_changes(&unit, &bag), bad)
                } else {
                    let (application, bad) = parse_application(&bag);
                    (application_changes(&application, &bag), bad)
                };
                assert!(changes.is_empty() && bad.is_empty(), "{owner} {step}");
            }
        }
    }

    #[test]
    fn an_entry_and_its_token_go_together() {
        let unit = UnitName::new("k8s", 1);
        let bag: Bag = [("k8s/1", "pending-n1"), ("k8s/1-secret-id", "secret:a"), ("new", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let (mut application, _) = parse_application(&bag);
        assert_eq!(application.tokens[&unit], "secret:a");
        application.entries.insert(unit.clone(), Entry::Joined("n1".to_owned()));
        application.tokens.remove(&unit);
        let changes = application_changes(&application, &bag);
        assert_eq!(changes["k8s/1"], "joined-n1");
        assert_eq!(changes["k8s/1-secret-id"], "");
        assert_eq!(changes.len(), 2, "unknown keys are left alone");
    }

    proptest! {
        #[test]
        fn any_bag_is_read_and_what_is_written_reads_the_same(
            raw in prop::collection::btree_map(
                prop::sample::select(vec!["bootstrap", "version", "k8s/0", "k8s/1", "k8s/1-secret-id", "x/y-secret-id",
                    "node-name", "joined", "cluster-name", "token-failure", "unjoined", "new"]),
                prop::sample::select(vec!["", "joined-a", "pending-", "pending-b", "k8s/0", "1.32.1", "secret:a", "{",
                    "{\"revision\": 0, \"error\": \"x\"}", "\u{1F600}"]),
                0..8,
            )
        ) {
            let raw: Bag = raw.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            let apply = |changes: Bag| {
                let mut written = raw.clone();
                super::super::apply(&mut written, changes);
                written
            };
            let (unit, _) = parse_unit(&raw);
            let written = apply(unit_changes(&unit, &raw));
            prop_assert_eq!(&parse_unit(&written).0, &unit);
            prop_assert!(unit_changes(&unit, &written).is_empty());
            let (application, _) = parse_application(&raw);
            let written = apply(application_changes(&application, &raw));
            prop_assert_eq!(&parse_application(&written).0, &application);
            prop_assert!(application_changes(&application, &written).is_empty());
        }
    }
}
