//! How typed values are written into databags, and read back from whatever stands there.
//!
//! A value that doesn't parse is treated as absent and complained about; unknown keys are left alone; a key is
//! written only when its value changes.

pub mod cluster;
pub mod upgrade;

use std::collections::BTreeMap;

/// A databag as Juju gives it: strings by key.
pub type Bag = BTreeMap<String, String>;

/// A value that doesn't parse: one line for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("databag key {key}: `{value}` is {why}; it is taken as absent")]
pub struct Complaint {
    /// The key.
    pub key: &'static str,
    /// The beginning of the value.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
}

/// A databag as it stands, and as it reads.
#[derive(Debug, Clone, Default)]
pub struct Parsed<B> {
    /// As it stands.
    pub bag: Bag,
    /// As it reads.
    pub value: B,
}

/// How much of a bad value a complaint shows, in characters.
const SHOWN: usize = 60;

/// Reads one key.
fn read<T>(
    bag: &Bag,
    complaints: &mut Vec<Complaint>,
    key: &'static str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = bag.get(key).filter(|text| !text.is_empty())?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(why) => {
            complaints.push(Complaint { key, value: text.chars().take(SHOWN).collect(), why });
            None
        }
    }
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Makes a bag what it is after these changes; "" deletes.
pub fn apply(bag: &mut Bag, changes: Bag) {
    bag.extend(changes);
    bag.retain(|_, value| !value.is_empty());
}

/// What must be written so that the bag says what `wanted` says: only keys whose value changes; "" deletes.
fn difference<K: Into<String>>(bag: &Bag, wanted: Vec<(K, Option<String>)>) -> Bag {
    wanted
        .into_iter()
        .map(|(key, value)| (key.into(), value.unwrap_or_default()))
        .filter(|(key, value)| bag.get(key).map_or("", String::as_str) != value)
        .collect()
}
