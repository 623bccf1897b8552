//! What an upgrade stands still for: every reason has a status text and a next step (see `messages`).

use crate::names::UnitName;

/// Why a unit does nothing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingOn {
    /// Off its pin, and there is no stack yet: the leader's checks come first.
    LeaderChecks,
    /// Another unit holds the token.
    Turn {
        /// Who.
        holder: UnitName,
        /// How many are still in the stack.
        left: usize,
        /// Of how many members.
        total: usize,
    },
    /// Its turn, but a unit in the stack doesn't run the new charm code yet.
    OldCode {
        /// Who.
        unit: UnitName,
    },
    /// Its turn, but another unit shows `upgrading`.
    AtWork {
        /// Who.
        unit: UnitName,
    },
    /// Another unit has failed: nobody begins.
    Failed {
        /// Who.
        unit: UnitName,
    },
    /// This unit has failed: the admin's word is awaited.
    Admin,
    /// Its turn, but the policy pauses.
    Pause {
        /// After whom.
        after: UnitName,
    },
    /// Its turn, but checks of the gate before fail.
    GateBefore {
        /// Check id and what was seen.
        checks: Vec<(String, String)>,
    },
    /// Refreshed; the gate after has not passed yet.
    GateAfter {
        /// What is still wrong.
        awaited: Vec<String>,
        /// For how long, in seconds.
        seconds: u64,
    },
    /// A refresh failed and is tried once more.
    SecondTry {
        /// The failing task's own line.
        cause: String,
        /// In so many seconds.
        seconds: u64,
    },
    /// snapd can't be asked, or is busy.
    Snapd {
        /// Why.
        why: String,
    },
    /// Left out of the run by the admin.
    TakenBack,
    /// Done; the leader has still to move the token.
    NextTurn,
    /// Done; others have still to go.
    OthersToFinish,
    /// Being removed: begins nothing.
    Removal,
    /// Whether its node has joined could not be found out.
    Membership,
}
