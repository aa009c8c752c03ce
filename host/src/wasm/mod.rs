//! The sandbox: engine, compiled modules and running instances. The only place that knows wasmtime.
//! Owns limits and their defaults; knows nothing of pipelines, sources or sinks.

mod componentize;
mod engine;
mod instance;
mod limits;
mod module;
mod preview1;
mod v1;

pub use engine::{Engine, beside};
pub use instance::{Accumulated, Aggregator, Grants, Instance, Outcome, Panes};
pub use limits::Limits;
pub use module::{Module, World, digest};

/// Checks a guest's answer that is made of the bytes of a fuzzer. Whatever they hold, this returns.
pub fn fuzz_entry(bytes: &[u8]) {
    v1::fuzz::entry(bytes);
}
