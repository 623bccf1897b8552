//! The pure core of the upgrade: facts in, decision out. No I/O, no clock, no environment.

pub mod admin;
pub mod checks;
pub mod constraint;
pub mod facts;
pub mod leader;
pub mod messages;
pub mod unit;
pub mod values;
pub mod version;
pub mod waiting;
