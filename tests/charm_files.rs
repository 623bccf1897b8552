//! The files that Juju reads, against what was found in the Python charm (`tests/recorded/python-charms/`) and Juju's
//! own rules: a deployment of it must be refreshable to this charm and back, and lose nothing by it.

#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_yaml::{Mapping, Value};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&read(path)).unwrap()
}

fn recorded(file: &str) -> Value {
    yaml(&format!("tests/recorded/python-charms/{file}"))
}

fn entries(value: &Value) -> BTreeMap<String, Value> {
    serde_yaml::from_value(value.clone()).unwrap()
}

/// The endpoints of a role: name to interface and limit.
fn endpoints(metadata: &Value, role: &str) -> BTreeMap<String, (Value, Option<Value>)> {
    let endpoints = entries(&metadata[role]);
    endpoints.into_iter().map(|(name, e)| (name, (e["interface"].clone(), e.get("limit").cloned()))).collect()
}

fn every_key(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Mapping(mapping) => {
            for (key, value) in mapping {
                found.push(key.clone());
                every_key(value, found);
            }
        }
        Value::Sequence(sequence) => sequence.iter().for_each(|value| every_key(value, found)),
        _ => {}
    }
}

#[test]
fn the_metadata_is_what_juju_demands() {
    let metadata = yaml("metadata.yaml");
    assert_eq!(metadata["name"], "k8s");
    for key in ["summary", "description"] {
        assert!(metadata[key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }
    assert_eq!(metadata["assumes"], Value::from(vec!["juju >= 3.3"]));
    assert!(metadata.get("series").is_none(), "Juju refuses it beside `assumes`");
}

#[test]
fn the_endpoints_are_those_of_the_python_charm() {
    let metadata = yaml("metadata.yaml");
    for (word, role) in [("peer", "peers"), ("provider", "provides"), ("requirer", "requires")] {
        let expected: BTreeMap<String, (Value, Option<Value>)> = entries(&recorded("endpoints.yaml")["k8s"])
            .into_iter()
            .filter(|(_, endpoint)| endpoint["role"] == word)
            .map(|(name, e)| (name, (e["interface"].clone(), e.get("limit").filter(|limit| !limit.is_null()).cloned())))
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(endpoints(&metadata, role), expected, "{role}");
    }
}

#[test]
fn the_resource_is_that_of_the_python_charm() {
    let resources = entries(&yaml("metadata.yaml")["resources"]);
    assert_eq!(resources.keys().collect::<Vec<_>>(), ["snap-installation"]);
    assert_eq!(resources["snap-installation"]["type"], "file");
    assert_eq!(resources["snap-installation"]["filename"], "snap-installation.tar.gz");
}

#[test]
fn the_options_are_those_of_the_python_charm_and_two_more() {
    let options = entries(&yaml("config.yaml")["options"]);
    for (name, expected) in entries(&recorded("k8s.options.yaml")["options"]) {
        let option = &options.get(&name).unwrap_or_else(|| panic!("a refresh would lose the value of {name}"));
        assert_eq!((&option["type"], &option["default"]), (&expected["type"], &expected["default"]), "{name}");
    }
    let recorded = entries(&recorded("k8s.options.yaml")["options"]);
    let ours: BTreeMap<_, _> = options.iter().filter(|(name, _)| !recorded.contains_key(*name)).collect();
    assert_eq!(
        ours.into_iter().map(|(name, o)| (name.as_str(), o["type"].clone(), o["default"].clone())).collect::<Vec<_>>(),
        [
            ("pause-after-unit-refresh", "string".into(), "none".into()),
            ("upgrade-health-timeout", "int".into(), 600.into()),
        ]
    );
}

#[test]
fn each_option_has_a_name_a_type_its_default_and_a_description() {
    for (name, option) in entries(&yaml("config.yaml")["options"]) {
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()), "{name}");
        assert!(option["description"].as_str().is_some_and(|text| text.len() > 20), "{name}");
        let fits = match option["type"].as_str() {
            Some("string") => option["default"].is_string(),
            Some("int") => option["default"].is_i64(),
            Some("boolean") => option["default"].is_bool(),
            _ => false,
        };
        assert!(fits, "{name}");
    }
}

#[test]
fn actions_take_what_is_documented_and_nothing_else() {
    let mut parameters = BTreeMap::new();
    for (name, action) in entries(&yaml("actions.yaml")) {
        let valid = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        assert!(valid && !name.starts_with("juju") && !name.starts_with('-') && !name.ends_with('-'), "{name}");
        assert_eq!(action["additionalProperties"], false, "{name}");
        assert!(action["description"].is_string(), "{name}");
        let params = entries(&action["params"]);
        for (param, schema) in &params {
            assert!(schema["description"].is_string() && schema["type"].is_string(), "{name} {param}");
        }
        parameters.insert(name, params.into_keys().collect::<Vec<_>>());
    }
    let expected = [
        ("get-kubeconfig", vec!["server"]),
        ("pre-upgrade-check", vec!["force", "skip"]),
        ("resume-upgrade", vec!["force", "skip", "skip-unit"]),
        ("upgrade-status", vec!["format"]),
    ];
    let expected = expected.map(|(name, params)| (name.to_owned(), params.into_iter().map(str::to_owned).collect()));
    assert_eq!(parameters, BTreeMap::from(expected));
    for (name, action) in entries(&recorded("actions.yaml")["k8s"]) {
        for param in entries(&action["params"]).keys() {
            assert!(parameters[&name].contains(param), "{name} {param}");
        }
    }
}

#[test]
fn no_key_is_a_boolean_to_a_reader_of_yaml_1_1() {
    let booleans = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    let templates = ["templates/snap_installation.yaml", "templates/dependencies.yaml"];
    for file in ["metadata.yaml", "config.yaml", "actions.yaml", "charmcraft.yaml"].into_iter().chain(templates) {
        let mut keys = Vec::new();
        every_key(&yaml(file), &mut keys);
        assert!(!keys.is_empty());
        for key in keys {
            let key = key.as_str().unwrap_or_else(|| panic!("{file}: {key:?} is no text"));
            assert!(!booleans.contains(&key.to_lowercase().as_str()), "{file}: {key}");
        }
    }
}

#[test]
fn charmcraft_yaml_repeats_nothing() {
    let charmcraft: Mapping = serde_yaml::from_value(yaml("charmcraft.yaml")).unwrap();
    let keys: BTreeSet<&str> = charmcraft.keys().filter_map(Value::as_str).collect();
    assert_eq!(keys, BTreeSet::from(["base", "parts", "platforms", "type"]));
}

#[test]
fn there_is_a_hook_file_for_each_event_that_juju_sends_us() {
    let metadata = yaml("metadata.yaml");
    let lifecycle =
        ["install", "start", "stop", "remove", "config-changed", "upgrade-charm", "update-status", "leader-elected"];
    let mut expected: BTreeSet<String> = lifecycle.map(str::to_owned).into();
    expected.extend(["changed", "expired", "remove", "rotate"].map(|kind| format!("secret-{kind}")));
    for role in ["peers", "provides", "requires"] {
        for endpoint in endpoints(&metadata, role).keys() {
            let kinds = ["created", "joined", "changed", "departed", "broken"];
            expected.extend(kinds.map(|kind| format!("{endpoint}-relation-{kind}")));
        }
    }
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert_eq!(fs::read_to_string(entry.path()).unwrap(), "#!/bin/sh\nexec \"$(dirname \"$0\")/../dispatch\"\n");
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o111 == 0o111, "{name}");
        found.insert(name);
    }
    assert_eq!(found, expected);
}

#[test]
fn the_snap_is_pinned_for_each_architecture() {
    let snaps = entries(&yaml("templates/snap_installation.yaml"));
    assert_eq!(snaps.keys().collect::<Vec<_>>(), ["amd64", "arm64"]);
    for (architecture, list) in snaps {
        let [snap] = &list.as_sequence().unwrap()[..] else { panic!("{architecture}: one snap") };
        assert_eq!((&snap["name"], &snap["install-type"]), (&"k8s".into(), &"store".into()));
        assert!(snap["revision"].is_u64() && snap["classic"] == true);
    }
}

/// What the Python charm's model of `dependencies` demands: both members, four keys each, texts.
#[test]
fn the_dependencies_load_in_the_python_charm() {
    let dependencies = entries(&yaml("templates/dependencies.yaml"));
    assert_eq!(dependencies.keys().collect::<Vec<_>>(), ["k8s_charm", "k8s_service"]);
    for member in dependencies.values() {
        let keys: Vec<String> = entries(member).into_keys().collect();
        assert_eq!(keys, ["dependencies", "name", "upgrade_supported", "version"]);
        assert_eq!(member["name"], "k8s");
        assert!(member["version"].is_string() && member["upgrade_supported"].is_string());
        assert_eq!(entries(&member["dependencies"]).into_keys().collect::<Vec<_>>(), ["k8s-worker"]);
    }
}
