//! What a step of a pipeline is while it runs. Owns the traits; operators live under `operators/`.

use std::time::Duration;

use arrow_array::BinaryArray;

use crate::batch::{Batch, Rejected, Route};
use crate::error::Result;
use crate::wasm::{Accumulated, Aggregator, Outcome, Panes};

/// Where an operator puts what it makes of a batch.
#[derive(Default)]
pub struct Context {
    /// Rows that go on, with the route each batch takes; in order.
    pub out: Vec<(Route, Batch)>,
    /// Rows that could not be handled.
    pub rejected: Vec<Rejected>,
}

/// One step on one worker: synchronous, pure over its input; knows no barriers.
pub trait Operator: Send {
    /// Handles one batch of the main route. An error is a failed step, not a failed message.
    fn process(&mut self, batch: Batch, cx: &mut Context) -> Result<()>;
}

/// What sums up the messages of a key and window: a guest, or what a simulation puts in its place. After an error it
/// must be thrown away.
pub trait Aggregate: Send {
    /// Makes a fragment of each group of a batch: group i is `rows[ends[i - 1]..ends[i]]`.
    fn accumulate(&mut self, batch: &Batch, rows: &[u32], ends: &[u32], deadline: Duration) -> Result<Accumulated>;
    /// Makes one accumulator of each list: list i is `fragments[ends[i - 1]..ends[i]]`.
    fn merge(&mut self, fragments: &BinaryArray, ends: &[u32]) -> Result<BinaryArray>;
    /// Turns panes into rows, whose origins are panes.
    fn emit(&mut self, panes: &Panes, deadline: Duration) -> Result<Outcome>;
    /// Brings accumulators of an older version into the present one.
    fn migrate(&mut self, version: u32, accumulators: &BinaryArray) -> Result<BinaryArray>;
    /// The version of the accumulators.
    fn state_version(&self) -> u32;
    /// Linear memory in use, in bytes.
    fn memory_bytes(&self) -> u64;
}

impl Aggregate for Aggregator {
    fn accumulate(&mut self, batch: &Batch, rows: &[u32], ends: &[u32], deadline: Duration) -> Result<Accumulated> {
        Aggregator::accumulate(self, batch, rows, ends, deadline)
    }

    fn merge(&mut self, fragments: &BinaryArray, ends: &[u32]) -> Result<BinaryArray> {
        Aggregator::merge(self, fragments, ends)
    }

    fn emit(&mut self, panes: &Panes, deadline: Duration) -> Result<Outcome> {
        Aggregator::emit(self, panes, deadline)
    }

    fn migrate(&mut self, version: u32, accumulators: &BinaryArray) -> Result<BinaryArray> {
        Aggregator::migrate(self, version, accumulators)
    }

    fn state_version(&self) -> u32 {
        Aggregator::state_version(self)
    }

    fn memory_bytes(&self) -> u64 {
        Aggregator::memory_bytes(self)
    }
}
