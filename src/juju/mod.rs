//! Port: Juju. The environment of a hook, hook tools, databags, secrets, actions.
//!
//! Formats and errors: Juju 3.6 and 4.0 `internal/worker/uniter/runner/jujuc/`.

mod answers;
mod client;
mod context;
mod error;
mod event;
pub mod log;
mod secrets;
mod tools;

pub use answers::{GoalState, GoalUnit, Network, Status};
pub use client::Juju;
pub use context::{
    ActionContext, ContextError, JujuContext, Model, Proxies, RelationContext, RelationId, SecretContext,
    StorageContext,
};
pub use error::JujuError;
pub use event::{Event, RelationChange};
pub use secrets::{SecretContent, SecretId, SecretOwner};
pub use tools::{ExecTools, HookToolError, HookTools, ToolCall};
