//! What a sink is: the connector made from the pipeline file, a writer on each worker, and one
//! committer. Owns the traits and their vocabulary; the sinks themselves live under `sinks/`.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Rejected};
use crate::error::Result;

/// The number of a checkpoint: rises by one, never used twice in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl std::fmt::Display for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Epoch {
    /// The one after.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Whose work a sink's writes are. Everything that a sink leaves outside is named by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The pipeline's name.
    pub pipeline: String,
    /// The sink's name within the pipeline.
    pub sink: String,
    /// The task that this process runs.
    pub task: u32,
    /// Tasks of the pipeline.
    pub tasks: u32,
    /// Drawn when the log was begun; tells this pipeline's work from a namesake's.
    pub log_id: String,
    /// Drawn anew at each start; tells this process's files from those of a dead one.
    pub attempt: String,
}

/// What one writer made durable, but not yet visible, for one epoch. Kept in the manifest; whatever
/// `commit` and `recover` need must be in here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prepared(pub serde_json::Value);

/// What became of an epoch whose manifest exists, as the outside system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Everything is visible.
    Committed,
    /// Nothing is visible and everything prepared is still there: `commit` will do.
    NeedsCommit,
    /// Nothing is visible and what was prepared is gone.
    Lost,
}

/// Facts about an epoch that a committer may leave in the outside system beside the rows.
#[derive(Clone, Debug, Default)]
pub struct CommitInfo {
    /// Step name and digest of the module that made the epoch's rows.
    pub modules: Vec<(String, String)>,
}

/// What a commit brought about: for metrics and the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Rows made visible.
    pub rows: u64,
    /// Files made visible, where the sink has files.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// Rows by owning worker, and those that have no place.
pub type Split = (Vec<(u32, Batch)>, Vec<Rejected>);

/// Sends each row to the worker that owns its place in the sink (an Iceberg bucket): one for each sending worker.
pub trait Distribution: Send {
    /// Splits a batch by owning worker, below `workers`. Rows that have no place are rejected.
    fn split(&mut self, batch: Batch, workers: u32) -> Result<Split>;
}

/// A configured sink, before it runs.
#[async_trait]
pub trait SinkConnector: Send + Sync {
    /// The connector's name as the pipeline file has it: `iceberg`, `file`, …
    fn kind(&self) -> &'static str;

    /// Whether what it prepares stays invisible until `commit`: what exactly-once needs. `stdout` cannot.
    fn transactional(&self) -> bool;

    /// Whether a process that dies between the manifest and its commit takes what it prepared along, as with a transaction
    /// that no other process can finish. Such a sink is committed before all others, so that a lost epoch can be read again.
    fn commits_first(&self) -> bool {
        false
    }

    /// Looks whether the sink can be written, changing nothing: the catalog answers, the table matches.
    async fn check(&self) -> Result<()>;

    /// Creates what is missing, once, before the first writer opens: namespace, table, topic.
    async fn create(&self) -> Result<()> {
        Ok(())
    }

    /// How rows are spread over the workers before they are written; `None` leaves them where they are.
    fn distribution(&self) -> Result<Option<Box<dyn Distribution>>> {
        Ok(None)
    }

    /// Opens the writer of one worker.
    async fn writer(&self, identity: &Identity, worker: u32) -> Result<Box<dyn Writer>>;

    /// The first rows that are visible, where the sink can be read: for a look after a run.
    async fn head(&self, _rows: usize) -> Result<Option<Vec<arrow_array::RecordBatch>>> {
        Ok(None)
    }

    /// Opens the committer.
    async fn committer(&self, identity: &Identity) -> Result<Box<dyn Committer>>;
}

/// Writes one worker's rows. Runs on the worker's thread: work that only waits goes behind a bounded window of its own.
#[async_trait]
pub trait Writer: Send {
    /// Takes rows of the current epoch; answers with those that the sink can never take.
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>>;

    /// Makes everything written since the last `prepare` durable, not yet visible. `None` without rows.
    /// At-least-once sinks flush here. `write` for the next epoch may follow before `commit`.
    async fn prepare(&mut self, epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)>;

    /// True when the sink would rather have a barrier now: enough bytes or rows for one commit.
    fn wants_barrier(&self) -> bool {
        false
    }
}

/// Makes epochs visible: one for each sink, beside the coordinator.
#[async_trait]
pub trait Committer: Send {
    /// Makes the epoch visible, all of it at once. Idempotent: replayed after a crash.
    /// An unknown outcome is looked up by the identity's token before it is tried again.
    async fn commit(&mut self, epoch: Epoch, prepared: &[Prepared], info: &CommitInfo) -> Result<Committed>;

    /// Tells what became of an epoch whose manifest exists. Fences out any older process first.
    async fn recover(&mut self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered>;

    /// Removes what an abandoned epoch prepared. Idempotent.
    async fn discard(&mut self, prepared: &[Prepared]) -> Result<()>;

    /// Removes what an attempt prepared for epochs up to `epoch` and no manifest names: the leavings of a crash.
    /// Called after a recovery. `keep` holds what the kept manifests name.
    async fn sweep(&mut self, _epoch: Epoch, _keep: &[Prepared]) -> Result<()> {
        Ok(())
    }
}
