//! The log of a task: manifests, one for each epoch, created if absent. What exists in the log has
//! been decided; everything else can be thrown away. Owns the format, the store and the decisions;
//! knows nothing of sources, sinks or workers beyond their names.

mod coordinator;
mod manifest;
mod store;

pub use coordinator::{Claim, Settled, claim, settle};
pub use manifest::{Clocks, MANIFEST_VERSION, Manifest, ModuleRef, SinkWork, StepState, Version};
pub use store::{Created, Log, LogStore, open_bucket};
