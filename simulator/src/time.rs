//! Simulated time: it stands still while anything runs, and jumps to the next event when nothing does.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Where simulated time begins: 2026-01-01T00:00:00Z, in seconds since the Unix epoch.
pub const EPOCH: i64 = 1_767_225_600;

/// A moment of a rehearsal, in milliseconds since its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(pub u64);

impl SimTime {
    /// The same moment in seconds since the Unix epoch.
    pub fn unix_seconds(self) -> i64 {
        EPOCH.saturating_add(i64::try_from(self.0 / 1000).unwrap_or(i64::MAX))
    }
}

impl Add<Duration> for SimTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for SimTime {
    /// `1h02m03s`, without the leading zero parts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        match (hours, minutes) {
            (0, 0) => write!(f, "{seconds}s"),
            (0, _) => write!(f, "{minutes}m{seconds:02}s"),
            _ => write!(f, "{hours}h{minutes:02}m{seconds:02}s"),
        }
    }
}
