//! Version constraints in the grammar of the Python charms: comma is and, `||` is or, `^ ~ = == != < <= > >=`,
//! wildcards, spaces allowed, and a bare version means equal.

use std::fmt;
use std::str::FromStr;

use semver::Version;

/// A constraint, `^1.33, < 1.35`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    text: String,
    /// Any of these, each all of its ranges.
    alternatives: Vec<Vec<Term>>,
}

/// A text that is no constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a version constraint such as `^1.33, < 1.35`")]
pub struct ConstraintError(String);

/// One range: from a version on, up to before another; `not` takes what is outside.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    from: Version,
    before: Option<Version>,
    not: bool,
}

impl Constraint {
    /// Whether this version satisfies it.
    pub fn allows(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|terms| terms.iter().all(|term| term.allows(version)))
    }
}

impl Term {
    fn allows(&self, version: &Version) -> bool {
        let within = *version >= self.from && self.before.as_ref().is_none_or(|before| version < before);
        within != self.not
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, ConstraintError> {
        let alternatives = text.split("||").map(|part| part.split(',').map(term).collect()).collect::<Option<_>>();
        let alternatives = alternatives.ok_or_else(|| ConstraintError(text.to_owned()))?;
        Ok(Self { text: text.to_owned(), alternatives })
    }
}

const OPERATORS: [&str; 9] = ["==", "!=", "<=", ">=", "^", "~", "=", "<", ">"];

fn term(text: &str) -> Option<Term> {
    let text = text.trim();
    let operator = OPERATORS.into_iter().find(|operator| text.starts_with(operator));
    let rest = text.strip_prefix(operator.unwrap_or("")).unwrap_or(text).trim();
    let parts = numbers(rest)?;
    let given = parts.len();
    let at = |index: usize| parts.get(index).copied().unwrap_or(0);
    let from = Version::new(at(0), at(1), at(2));
    let wildcard = rest.ends_with(['*', 'x', 'X']);
    let zero = Version::new(0, 0, 0);
    let patch_after = Version::new(at(0), at(1), at(2) + 1);
    let span = |from, before, not| Some(Term { from, before, not });
    match operator {
        None | Some("=" | "==" | "!=") => {
            let before = match (wildcard, given) {
                (true, 0) => None,
                (true, 1) => Some(Version::new(at(0) + 1, 0, 0)),
                (true, _) => Some(Version::new(at(0), at(1) + 1, 0)),
                (false, _) => Some(patch_after),
            };
            span(from, before, operator == Some("!="))
        }
        _ if wildcard || given == 0 => None,
        Some("^") => span(from, Some(caret_end(&parts)), false),
        Some("~") if given == 1 => span(from, Some(Version::new(at(0) + 1, 0, 0)), false),
        Some("~") => span(from, Some(Version::new(at(0), at(1) + 1, 0)), false),
        Some(">=") => span(from, None, false),
        Some("<") => span(zero, Some(from), false),
        Some("<=") => span(zero, Some(patch_after), false),
        Some(">") => span(patch_after, None, false),
        Some(_) => None,
    }
}

/// `^` lets everything change right of the first part that isn't 0.
fn caret_end(parts: &[u64]) -> Version {
    match *parts {
        [0, 0, patch, ..] => Version::new(0, 0, patch + 1),
        [0, minor, ..] => Version::new(0, minor + 1, 0),
        [major, ..] => Version::new(major + 1, 0, 0),
        [] => Version::new(1, 0, 0),
    }
}

/// The numbers of a version of up to three parts, up to a wildcard.
fn numbers(text: &str) -> Option<Vec<u64>> {
    let parts: Vec<&str> = text.split('.').collect();
    let mut numbers = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match *part {
            "*" | "x" | "X" if index + 1 == parts.len() => break,
            digits if digits.bytes().all(|b| b.is_ascii_digit()) => {
                numbers.push(digits.parse().ok().filter(|n| *n < u64::from(u32::MAX))?);
            }
            _ => return None,
        }
    }
    (parts.len() <= 3).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed() {
        for (constraint, allowed, refused) in [
            ("^1.33, < 1.35", vec!["1.33.0", "1.34.9"], vec!["1.32.9", "1.35.0"]),
            ("^1.31, < 1.33 || 2.*", vec!["1.31.3", "2.7.0"], vec!["1.33.0", "3.0.0"]),
            ("~1.31", vec!["1.31.0", "1.31.9"], vec!["1.32.0"]),
            (">=1", vec!["1.0.0", "9.9.9"], vec!["0.9.0"]),
            (">2", vec!["2.0.1"], vec!["2.0.0"]),
            ("1.32.1", vec!["1.32.1"], vec!["1.32.2"]),
            ("!= 1.32.1", vec!["1.32.2"], vec!["1.32.1"]),
            ("== 1.32.*", vec!["1.32.0", "1.32.9"], vec!["1.33.0"]),
            ("*", vec!["0.0.1", "7.0.0"], vec![]),
            ("<=1.32.1", vec!["1.32.1"], vec!["1.32.2"]),
        ] {
            let parsed: Constraint = constraint.parse().unwrap();
            for version in allowed {
                assert!(parsed.allows(&version.parse().unwrap()), "{constraint} allows {version}");
            }
            for version in refused {
                assert!(!parsed.allows(&version.parse().unwrap()), "{constraint} refuses {version}");
            }
        }
        for bad in ["", ",", "^", "one", "1.2.3.4", "^1.*", ">", "1..2"] {
            assert!(bad.parse::<Constraint>().is_err(), "{bad}");
        }
    }
}
