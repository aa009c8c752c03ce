//! Weir's host: a stream processor whose user code is WebAssembly.
//!
//! The modules below are in layers; a file imports from lower layers only (a test checks that).
#![warn(missing_docs)]

// Layer 0: vocabulary. No async, no I/O.
pub mod batch;
pub mod compression;
pub mod crash;
pub mod error;
pub mod metrics;
pub mod traces;
pub mod units;

// Layer 1: windows, watermarks and state. Pure logic: no async, no I/O, no guests.
pub mod state;
pub mod watermark;
pub mod window;

// Layer 2: the three traits, and what connectors and steps are made with.
pub mod checkpoint;
pub mod columnar;
pub mod kafka;
pub mod operator;
pub mod pubsub;
pub mod sink;
pub mod source;
pub mod wasm;

// Layer 3: connectors and operators.
pub mod operators;
pub mod sinks;
pub mod sources;

// Layer 4: the running loop.
pub mod exchange;
pub mod swap;
pub mod tap;
pub mod waits;
pub mod worker;

// Layer 5: from a file to a running pipeline.
pub mod pipeline;

// Layer 6: the ways in.
pub mod cli;
pub mod control;
