//! For how long what was read as the leader may still be written as the leader (rule R5).
//!
//! Juju looks who leads only when the hook ends: a leader that lost the lease and got it back in the meantime would write
//! from an old reading.

use std::time::Duration;

use crate::charm::Charm;
use crate::names::Timestamp;

/// Juju's "you lead" holds for 30 s. The hook's end takes some of them, and nothing that takes time follows a write.
const HOLDS: u64 = 25;

/// What came of the leader's part of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Led {
    /// There was nothing to write: the hook may go on to what takes time.
    Nothing,
    /// An application's bag was written: the hook ends soon.
    Wrote,
    /// There was something to write, and no time left: the next hook does it, and comes at once.
    TooLate,
}

/// How much time is left after an answer "you lead"; none: the application's bags are left alone.
pub fn time_left<T>(charm: &Charm<T>, asked: Timestamp) -> Option<Duration> {
    let left = HOLDS.saturating_sub(charm.clock.now().seconds_since(asked));
    (left > 0).then(|| Duration::from_secs(left))
}
