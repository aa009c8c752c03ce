//! What a source is: a connector that knows where to start, and the running source that it opens.
//! Owns the two traits and their vocabulary; the connectors themselves live under `sources/`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Rejected};
use crate::error::Result;
use crate::watermark::Progress;

/// Where a source stands: for each of its partitions, by a name of the connector's own, where
/// reading goes on. Kept in the manifest; positions of several workers merge into one by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(pub BTreeMap<String, serde_json::Value>);

impl Position {
    /// The integer stored for a partition, if there is one.
    pub fn integer(&self, partition: &str) -> Option<i64> {
        self.0.get(partition)?.as_i64()
    }

    /// Sets the integer of a partition.
    pub fn set(&mut self, partition: impl Into<String>, value: i64) {
        self.0.insert(partition.into(), value.into());
    }

    /// Takes over every partition of `other`, another worker's part of the same moment.
    pub fn merge(&mut self, other: &Position) {
        self.0.extend(other.0.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Goes on to `next`, a later moment: what is null there is gone from here on.
    pub fn advance(&mut self, next: &Position) {
        self.merge(next);
        self.0.retain(|_, value| !value.is_null());
    }

    /// What a position calls a file of [`Source::state`].
    pub fn file(name: &str) -> String {
        format!("file:{name}")
    }

    /// The files of [`Source::state`] that it needs.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, value)| !value.is_null()).filter_map(|(name, _)| name.strip_prefix("file:"))
    }
}

/// The part of a source's partitions that one worker of one task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// This process's task.
    pub task: u32,
    /// Tasks of the pipeline.
    pub tasks: u32,
    /// The worker within the task.
    pub worker: u32,
    /// Workers of the task.
    pub workers: u32,
}

impl Slice {
    /// Everything: one task, one worker.
    pub const WHOLE: Slice = Slice { task: 0, tasks: 1, worker: 0, workers: 1 };

    /// Whether partition number `partition` is this worker's to read.
    pub fn owns(&self, partition: u32) -> bool {
        partition % self.tasks == self.task && (partition / self.tasks) % self.workers == self.worker
    }
}

/// A configured source, before it runs: made from the pipeline file.
#[async_trait]
pub trait SourceConnector: Send + Sync {
    /// The connector's name as the pipeline file has it: `kafka`, `file`, …
    fn kind(&self) -> &'static str;

    /// Whether a position can be read again: what exactly-once needs. `stdin` cannot.
    fn replayable(&self) -> bool {
        true
    }

    /// Looks whether the source can be opened at all: the topic exists, the file is readable.
    /// Reads no message. For `weir check` and before a first start.
    async fn check(&self) -> Result<()>;

    /// Where the task starts when its log is new. Resolved once and kept in the first manifest
    /// before anything is read. Names every partition of the task that exists by then.
    async fn start(&self, task: u32, tasks: u32) -> Result<Position>;

    /// A life of the pipeline begins at `position`: called once before the parts of all workers are opened, with what each of
    /// [`Position::files`] holds.
    fn begin(&self, _position: &Position, _files: Vec<(String, Bytes)>) -> Result<()> {
        Ok(())
    }

    /// Opens the slice at `position`. A partition that `position` doesn't know starts at its beginning.
    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn Source>>;
}

/// A running source: one for each worker.
#[async_trait]
pub trait Source: Send {
    /// The next messages, as soon as there are some; `None` at the end of the input, for ever after.
    /// Cancel-safe: dropping the future loses nothing.
    async fn next(&mut self) -> Result<Option<Batch>>;

    /// Where reading goes on after everything that `next` has handed out so far.
    fn position(&self) -> Position;

    /// What a checkpoint has to keep beside the position, in a file of its own that is made durable as `name` before the
    /// manifest: what came about since it was last asked. Asked at each barrier before `position`, which then names the file
    /// ([`Position::file`]) for as long as it is needed.
    fn state(&mut self, _name: &str) -> Option<Bytes> {
        None
    }

    /// The checkpoint that holds `position` is durable. Idempotent.
    async fn ack(&mut self, position: &Position) -> Result<()>;

    /// What it knows of all partitions of its slice besides their messages: what the watermark goes by. None, where the
    /// slice has no partitions: others' watermarks count then.
    fn progress(&self) -> Vec<Progress>;

    /// Rows that the last `next` read along with its batch and can make no messages of: dead letters. Each is told once.
    fn rejected(&mut self) -> Option<Rejected> {
        None
    }

    /// True when it would rather have a barrier now: much of what it may have out unacknowledged is handed out. Asked after each batch and each `ack`.
    fn wants_barrier(&self) -> bool {
        false
    }

    /// Nothing more will be asked of it: waits until the outside system has taken every `ack`.
    async fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Messages that wait in the outside system behind `position`, for each partition, where it can tell.
    fn lag(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}
