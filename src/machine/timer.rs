//! The wake-up: one repeating transient systemd timer a unit (rule R7).
