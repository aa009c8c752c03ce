//! What a guest may use, with defaults. Each limit holds while a guest starts, is configured, runs
//! and returns.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Size, Span};

/// Limits of one guest instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Linear memory of an instance. A guest that asks for more gets no more, which most answer with a trap.
    pub memory: Size,
    /// Time of one call with one batch, also of `configure` and of starting the instance.
    pub deadline: Span,
    /// Bytes that one call may hand back.
    pub output: Size,
    /// Rows that one call may hand back.
    pub output_rows: u64,
    /// An instance whose memory has grown past this between calls is replaced by a fresh one.
    pub recycle: Size,
    /// Bytes of log lines that one call may write; the rest is dropped and counted.
    pub log: Size,
    /// Calls that the search for a failing message in one batch may take. Past it the step has failed.
    pub search_calls: u64,
    /// Time that the search for a failing message in one batch may take. Past it the step has failed.
    pub search_time: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: Size(256 << 20),
            deadline: Span(Duration::from_secs(2)),
            output: Size(64 << 20),
            output_rows: 1_000_000,
            recycle: Size(192 << 20),
            log: Size(64 << 10),
            search_calls: 50_000,
            search_time: Span(Duration::from_secs(60)),
        }
    }
}
