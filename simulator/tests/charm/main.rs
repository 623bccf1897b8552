//! The whole charm, its release binary, in the simulator.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may end at once where its own data is wrong")]

mod bad_input;
mod calls;
mod common;
mod upgrades;
mod wake_up;
