//! What a step of a pipeline is while it runs. Owns the trait; operators live under `operators/`.

use crate::batch::{Batch, Rejected, Route};
use crate::error::Result;

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
