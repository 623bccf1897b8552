//! The only `now`.
