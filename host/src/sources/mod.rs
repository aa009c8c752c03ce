//! The sources, one file or folder each. Siblings never import each other.

pub mod file;
pub mod generator;
pub mod kafka;
pub mod letters;
mod lines;
pub mod pubsub;
pub mod stdin;
