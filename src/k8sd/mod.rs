//! Port.
