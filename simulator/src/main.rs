//! `k8s-sim`.
fn main() {}
