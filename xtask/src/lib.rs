//! Builds and packages the charm; also used by the simulator to lay out a charm directory.
