//! The sinks, one file or folder each. Siblings never import each other.

pub mod blackhole;
mod counted;
mod encode;
pub mod file;
pub mod iceberg;
pub mod kafka;
pub mod pubsub;
pub mod stdout;
