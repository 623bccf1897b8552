//! The bags of the peer relation `upgrade`: keys and formats of the protocol, which v0 reads too.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Bag, Complaint, difference, parsed, read};
use crate::rfc3339;
use crate::upgrade::values::{ApplicationBag, Target, UnitBag, UnitState};

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("not as expected ({error})"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a number".to_owned())
}

fn write<T: Serialize>(value: &T) -> Option<String> {
    // Maps with names as keys and plain values: there is nothing in them that JSON can't hold.
    serde_json::to_string(value).ok()
}

/// Reads a unit's bag.
pub fn parse_unit(bag: &Bag) -> (UnitBag, Vec<Complaint>) {
    let mut bad = Vec::new();
    let unit = UnitBag {
        state: read(bag, &mut bad, "state", |word| {
            UnitState::parse(word).ok_or_else(|| "not a state that this charm knows".to_owned())
        }),
        version: read(bag, &mut bad, "version", parsed),
        revision: read(bag, &mut bad, "revision", parsed),
        target: read(bag, &mut bad, "target", |text| {
            Target::try_from(text.to_owned()).map_err(|error| error.to_string())
        }),
        turn: read(bag, &mut bad, "turn", number),
        go: read(bag, &mut bad, "go", json),
        forced: read(bag, &mut bad, "forced", json).unwrap_or_default(),
        change: read(bag, &mut bad, "change", |text| Ok(text.to_owned())),
        cause: read(bag, &mut bad, "cause", |text| Ok(text.to_owned())),
        since: read(bag, &mut bad, "since", |text| {
            rfc3339::parse(text).ok_or_else(|| "not an instant such as `2026-01-01T00:00:00Z`".to_owned())
        }),
    };
    (unit, bad)
}

/// What to write so that the unit's bag says this.
pub fn unit_changes(unit: &UnitBag, bag: &Bag) -> Bag {
    let wanted = vec![
        ("state", unit.state.map(|state| state.word().to_owned())),
        ("version", unit.version.as_ref().map(ToString::to_string)),
        ("revision", unit.revision.map(|revision| revision.to_string())),
        ("target", unit.target.as_ref().map(ToString::to_string)),
        ("turn", unit.turn.map(|turn| turn.to_string())),
        ("go", unit.go.as_ref().and_then(write)),
        ("forced", (!unit.forced.is_empty()).then(|| write(&unit.forced)).flatten()),
        ("change", unit.change.clone()),
        ("cause", unit.cause.clone()),
        ("since", unit.since.map(rfc3339::format)),
    ];
    difference(bag, wanted)
}

/// Reads the application's bag.
pub fn parse_application(bag: &Bag) -> (ApplicationBag, Vec<Complaint>) {
    let mut bad = Vec::new();
    let mut stack: Vec<u32> = read(bag, &mut bad, "upgrade-stack", json).unwrap_or_default();
    let mut seen = std::collections::BTreeSet::new();
    stack.retain(|number| seen.insert(*number));
    let application = ApplicationBag {
        stack,
        turn: read(bag, &mut bad, "upgrade-turn", number),
        run: read(bag, &mut bad, "upgrade-run", json),
        dependencies: read(bag, &mut bad, "dependencies", json),
        history: read(bag, &mut bad, "upgrade-history", json).unwrap_or_default(),
    };
    (application, bad)
}

/// What to write so that the application's bag says this.
pub fn application_changes(application: &ApplicationBag, bag: &Bag) -> Bag {
    // A stack that was never there isn't written as an empty one.
    let was_there = bag.contains_key("upgrade-stack");
    let mut wanted = vec![
        ("upgrade-stack", (was_there || !application.stack.is_empty()).then(|| write(&application.stack)).flatten()),
        ("upgrade-turn", application.turn.map(|turn| turn.to_string())),
        ("upgrade-run", application.run.as_ref().and_then(write)),
        ("upgrade-history", (!application.history.is_empty()).then(|| write(&application.history)).flatten()),
    ];
    // v0 writes its JSON with other spaces: what says the same is left as it stands.
    if parse_application(bag).0.dependencies != application.dependencies {
        wanted.push(("dependencies", application.dependencies.as_ref().and_then(write)));
    }
    if parse_application(bag).0.stack == application.stack && was_there {
        wanted.retain(|(key, _)| *key != "upgrade-stack");
    }
    difference(bag, wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bag(entries: &[(&str, &str)]) -> Bag {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn v0s_bags_are_read_and_left_alone() {
        let application = bag(&[("upgrade-stack", "[2, 0, 1]")]);
        let (read, bad) = parse_application(&application);
        assert_eq!((read.stack.as_slice(), read.turn), (&[2, 0, 1][..], None));
        assert!(bad.is_empty());
        assert!(application_changes(&read, &application).is_empty());
        let (unit, _) = parse_unit(&bag(&[("state", "recovery")]));
        assert_eq!(unit.state, Some(UnitState::Ready));
    }

    #[test]
    fn garbage_is_absent_and_named() {
        let from_the_future = bag(&[("state", "hovering"), ("turn", "seven"), ("new-key", "x"), ("since", "now")]);
        let (unit, bad) = parse_unit(&from_the_future);
        assert_eq!(unit, UnitBag::default());
        assert_eq!(bad.iter().map(|complaint| complaint.key).collect::<Vec<_>>(), ["state", "turn", "since"]);
        assert!(!unit_changes(&unit, &from_the_future).contains_key("new-key"), "unknown keys are left alone");
    }

    proptest! {
        #[test]
        fn any_bag_is_read_and_what_is_written_reads_the_same(
            values in prop::collection::vec(".{0,40}", 10),
            target in prop::option::of(Just("1.32.1@0a1b2c3d".to_owned())),
        ) {
            let keys = ["state", "version", "revision", "target", "turn", "go", "forced", "change", "cause", "since"];
            let mut raw: Bag = keys.iter().map(|key| (*key).to_owned()).zip(values).collect();
            raw.extend(target.map(|target| ("target".to_owned(), target)));
            let (unit, _) = parse_unit(&raw);
            let mut written = raw.clone();
            written.extend(unit_changes(&unit, &raw));
            written.retain(|_, value| !value.is_empty());
            let (again, bad) = parse_unit(&written);
            prop_assert_eq!(&again, &unit);
            prop_assert!(bad.is_empty());
            prop_assert!(unit_changes(&again, &written).is_empty());
        }
    }
}
