//! What each event does. Most share one pass: look, and take the next safe step.

pub mod actions;
mod removal;
mod upgrade_granted;

pub use crate::reconcile::reconcile;
pub use removal::{remove, stop};
pub use upgrade_granted::upgrade_granted;
