//! Port: the machine itself. Its root, its clock, its wake-up timer, its files and host facts.

pub mod clock;
pub mod host;
pub mod root;
pub mod timer;

pub use clock::Clock;
pub use root::Root;
