//! What the charm wants from k8sd: bootstrap, join, tokens, configuration.

pub mod config;
pub mod decide;
pub mod values;
