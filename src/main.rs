//! The charm's binary.

fn main() -> Result<(), &'static str> {
    Err("this build has no event handlers yet: it can't run a unit")
}
