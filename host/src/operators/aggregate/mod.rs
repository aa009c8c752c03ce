//! A keyed, windowed step whose code is a guest. Its **front** runs where messages are: it finds key and window and has the
//! guest make fragments of a batch, so that only these travel to the worker that has the key. Its **back** runs there: it keeps the
//! fragments, fires windows as the watermark passes, and has the guest turn them into rows.

mod back;
mod columns;
mod front;
mod guest;
mod key;

use std::sync::Arc;

pub use back::{Back, Checkpointed};
pub use front::{Front, Split};
use guest::Guest;
pub use key::Key;

use crate::batch::Route;
use crate::error::Result;
use crate::operator::Aggregate;
use crate::state::Rules;
use crate::wasm::Limits;
use crate::window::Windows;

/// Makes a guest, or what a simulation puts in its place.
pub type MakeAggregate = dyn Fn() -> Result<Box<dyn Aggregate>> + Send + Sync;

/// What a keyed step is made of.
#[derive(Clone)]
pub struct Settings {
    /// The step's name.
    pub step: Arc<str>,
    /// Digest of the module.
    pub digest: Arc<str>,
    /// Makes an instance.
    pub make: Arc<MakeAggregate>,
    /// What the guest may use.
    pub limits: Limits,
    /// The version of the guest's accumulators.
    pub state_version: u32,
    /// The pipeline's number of each route, in the order in which `configure` names them.
    pub routes: Vec<Route>,
    /// By what messages are put together.
    pub key: Key,
    /// How windows behave.
    pub rules: Rules,
    /// Processing time between two early panes, in ms.
    pub early_ms: Option<i64>,
    /// Key, window and pane are put into rows that are JSON objects.
    pub columns: bool,
    /// Memory for state on one worker, in bytes.
    pub memory: usize,
}

/// Other code for one side of a keyed step, with an instance that is ready.
pub struct Replacement {
    settings: Settings,
    guest: Guest,
}

impl Replacement {
    /// Makes the instance.
    pub fn new(settings: &Settings) -> Result<Replacement> {
        Ok(Replacement { settings: settings.clone(), guest: Guest::new(settings)? })
    }
}

impl Settings {
    /// Key and windows in words: a checkpoint of other ones can't be carried over.
    pub fn shape(&self) -> String {
        let key = match &self.key {
            Key::None => "all messages".to_string(),
            Key::Fields { pointers, .. } => pointers.join(", "),
            Key::Attribute(name) => format!("attribute {name}"),
            Key::Message => "the message's key".to_string(),
        };
        let windows = match self.rules.windows {
            Windows::Fixed { size_ms, every_ms, offset_ms } => format!("{size_ms} ms every {every_ms} ms from {offset_ms} ms"),
            Windows::Session { gap_ms } => format!("sessions with a gap of {gap_ms} ms"),
            // Their limits may change: what waits is a batch all the same.
            Windows::Batch { .. } => "batches".to_string(),
        };
        format!("by {key}: {windows}")
    }
}

#[cfg(test)]
mod tests;
