//! argv to cli.
fn main() {}
