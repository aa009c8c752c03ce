//! Weir's host: a stream processor whose user code is WebAssembly.
//!
//! The modules below are in layers; a file imports from lower layers only (a test checks that).
#![warn(missing_docs)]

// Layer 0: vocabulary. No async, no I/O.
pub mod batch;
pub mod error;
pub mod metrics;
pub mod units;

// Layer 2: the three traits, and what they are made with.
pub mod columnar;
pub mod operator;
pub mod sink;
pub mod source;

// Layer 3: connectors.
pub mod sinks;
pub mod sources;
