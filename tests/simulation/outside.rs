//! The outside of the simulation, which outlives every process: an object store with faults, and
//! two transactional sinks whose visible rows are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions,
    PutPayload, PutResult,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use weir::batch::{Batch, BatchBuilder, Rejected};
use weir::error::{Error, Result};
use weir::sink::*;

pub const MAIN: &str = "main";
pub const DEAD: &str = "dead";

/// A row: partition and offset.
pub type Row = (u32, i64);

/// What exists outside of every process.
pub struct Outside {
    pub rng: StdRng,
    /// Chance that a call to the outside fails.
    pub fault: f64,
    pub trace: Vec<String>,
    pub sinks: BTreeMap<&'static str, Table>,
}

#[derive(Default)]
pub struct Table {
    /// Rows by how often they are visible.
    pub visible: BTreeMap<Row, u32>,
    /// Prepared files, not visible.
    pub files: BTreeMap<String, Vec<Row>>,
    /// Files that are visible: removing one takes its rows away.
    pub committed: BTreeMap<String, Vec<Row>>,
    /// Log id and epoch of the newest commit, changed in one step with the rows.
    pub mark: Option<(String, u64)>,
}

pub type Shared = Arc<Mutex<Outside>>;

pub fn lock(outside: &Shared) -> MutexGuard<'_, Outside> {
    outside.lock().unwrap()
}

/// How one call goes.
#[derive(Clone, Copy, PartialEq)]
enum Luck {
    Works,
    /// Fails, nothing happened.
    FailsBefore,
    /// It happened, and the answer is lost.
    FailsAfter,
}

impl Outside {
    pub fn new(seed: u64) -> Shared {
        let mut rng = StdRng::seed_from_u64(seed);
        let fault = if rng.random_bool(0.2) { 0.0 } else { rng.random_range(0.0..0.15) };
        let sinks = BTreeMap::from([(MAIN, Table::default()), (DEAD, Table::default())]);
        Arc::new(Mutex::new(Outside { rng, fault, trace: Vec::new(), sinks }))
    }

    fn luck(&mut self) -> (Luck, Duration) {
        let delay = Duration::from_micros(self.rng.random_range(0..5_000));
        let fault = self.fault;
        let luck = match self.rng.random_bool(fault) {
            false => Luck::Works,
            true if self.rng.random_bool(0.5) => Luck::FailsBefore,
            true => Luck::FailsAfter,
        };
        (luck, delay)
    }
}

/// Draws a fate, waits a moment, and says whether to act.
async fn fate(outside: &Shared) -> Luck {
    let (luck, delay) = lock(outside).luck();
    tokio::time::sleep(delay).await;
    luck
}

/// Now and then a process hangs right before or after it changes something, long enough for a successor to go on.
async fn hang(outside: &Shared, chance: f64) {
    let hangs = {
        let mut o = lock(outside);
        let hangs = o.fault > 0.0 && o.rng.random_bool(chance);
        hangs.then(|| Duration::from_millis(o.rng.random_range(200..4_000)))
    };
    if let Some(time) = hangs {
        tokio::time::sleep(time).await;
    }
}

fn lost_reply() -> Error {
    Error::transient("the connection was lost")
}

/// An object store that fails before or after it acts.
pub struct FaultyStore {
    pub inner: InMemory,
    pub outside: Shared,
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

fn store_error() -> object_store::Error {
    object_store::Error::Generic { store: "simulated", source: "the connection was lost".into() }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> object_store::Result<PutResult> {
        let luck = fate(&self.outside).await;
        if luck == Luck::FailsBefore {
            return Err(store_error());
        }
        hang(&self.outside, 0.03).await;
        let done = self.inner.put_opts(location, payload, options).await;
        lock(&self.outside).trace.push(format!("put {location} {}", done.is_ok()));
        // Most of all between a manifest and the word that it is there: what it names is another's to commit then.
        let manifest = done.is_ok() && location.extension() == Some("json");
        hang(&self.outside, if manifest { 0.2 } else { 0.03 }).await;
        if luck == Luck::FailsAfter { Err(store_error()) } else { done }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        match fate(&self.outside).await {
            Luck::Works => self.inner.get_opts(location, options).await,
            _ => Err(store_error()),
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// A sink of the simulation.
pub struct SimulatedSink {
    pub name: &'static str,
    pub outside: Shared,
    /// Rows that `prepare` refuses: those whose offset leaves this rest when divided by 11.
    pub refuses: Option<i64>,
}

#[async_trait]
impl SinkConnector for SimulatedSink {
    fn kind(&self) -> &'static str {
        "simulated"
    }
    fn transactional(&self) -> bool {
        true
    }
    async fn check(&self) -> Result<()> {
        Ok(())
    }
    async fn writer(&self, identity: &Identity, worker: u32) -> Result<Box<dyn Writer>> {
        let rows = BatchBuilder::new(0, 0);
        Ok(Box::new(SimulatedWriter {
            name: self.name,
            outside: self.outside.clone(),
            refuses: self.refuses,
            attempt: identity.attempt.clone(),
            worker,
            files: 0,
            rows,
        }))
    }
    async fn committer(&self, identity: &Identity) -> Result<Box<dyn Committer>> {
        Ok(Box::new(SimulatedCommitter { name: self.name, outside: self.outside.clone(), log_id: identity.log_id.clone() }))
    }
}

struct SimulatedWriter {
    name: &'static str,
    outside: Shared,
    refuses: Option<i64>,
    attempt: String,
    worker: u32,
    files: u64,
    rows: BatchBuilder,
}

#[async_trait]
impl Writer for SimulatedWriter {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        if fate(&self.outside).await == Luck::FailsBefore {
            return Err(lost_reply());
        }
        self.rows.append(&batch);
        Ok(Vec::new())
    }

    async fn prepare(&mut self, epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        let rows = self.rows.finish(0);
        let luck = fate(&self.outside).await;
        if luck == Luck::FailsBefore {
            return Err(lost_reply());
        }
        let refused = |i: &u32| self.refuses.is_some_and(|rest| row_of(&rows, *i).1 % 11 == rest);
        let (bad, good): (Vec<u32>, Vec<u32>) = (0..rows.len() as u32).partition(refused);
        let rejected = match bad.is_empty() {
            true => Vec::new(),
            false => vec![Rejected { rows: rows.take(&bad)?, reasons: vec!["eleven".into(); bad.len()], module: None }],
        };
        if good.is_empty() {
            return Ok((None, rejected));
        }
        let name = format!("{epoch}-{}-{}-{}", self.attempt, self.worker, self.files);
        self.files += 1;
        let good = good.iter().map(|i| row_of(&rows, *i)).collect();
        let mut outside = lock(&self.outside);
        outside.trace.push(format!("prepare {} {name}", self.name));
        outside.sinks.get_mut(self.name).unwrap().files.insert(name.clone(), good);
        drop(outside);
        if luck == Luck::FailsAfter {
            return Err(lost_reply());
        }
        Ok((Some(Prepared(json!(name))), rejected))
    }
}

/// The message that a row is, by its text: what comes out of windows has places of its own.
fn row_of(rows: &Batch, row: u32) -> Row {
    let text = std::str::from_utf8(rows.value(row as usize).unwrap()).unwrap();
    let (partition, offset) = text.split_once(':').unwrap();
    (partition.parse().unwrap(), offset.parse().unwrap())
}

struct SimulatedCommitter {
    name: &'static str,
    outside: Shared,
    log_id: String,
}

impl SimulatedCommitter {
    fn marked(&self, table: &Table, epoch: Epoch) -> Result<bool> {
        match &table.mark {
            Some((log_id, _)) if *log_id != self.log_id => Err(Error::config("a foreign mark").with("found", log_id)),
            Some((_, newest)) => Ok(*newest >= epoch.0),
            None => Ok(false),
        }
    }
}

#[async_trait]
impl Committer for SimulatedCommitter {
    async fn commit(&mut self, epoch: Epoch, prepared: &[Prepared], _info: &CommitInfo) -> Result<Committed> {
        for _ in 0..10 {
            let luck = fate(&self.outside).await;
            if luck == Luck::FailsBefore {
                continue;
            }
            let mut outside = lock(&self.outside);
            outside.trace.push(format!("commit {} {epoch}", self.name));
            let table = outside.sinks.get_mut(self.name).unwrap();
            // The look and the change are one step, as in a catalog's compare-and-set.
            if self.marked(table, epoch)? {
                return Ok(Committed::default());
            }
            let mut rows = 0;
            for name in prepared {
                let file =
                    table.files.remove(name.0.as_str().unwrap()).ok_or_else(|| Error::corrupt("a prepared file is gone"))?;
                rows += file.len() as u64;
                for row in &file {
                    *table.visible.entry(*row).or_default() += 1;
                }
                table.committed.insert(name.0.as_str().unwrap().to_string(), file);
            }
            table.mark = Some((self.log_id.clone(), epoch.0));
            if luck == Luck::Works {
                return Ok(Committed { rows, files: prepared.len() as u64, bytes: 0 });
            }
        }
        Err(lost_reply())
    }

    async fn recover(&mut self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered> {
        if fate(&self.outside).await != Luck::Works {
            return Err(lost_reply());
        }
        let outside = lock(&self.outside);
        let table = &outside.sinks[self.name];
        if self.marked(table, epoch)? {
            return Ok(Recovered::Committed);
        }
        let there: BTreeSet<&str> = table.files.keys().map(String::as_str).collect();
        match prepared.iter().all(|name| there.contains(name.0.as_str().unwrap())) {
            true => Ok(Recovered::NeedsCommit),
            false => Ok(Recovered::Lost),
        }
    }

    async fn discard(&mut self, prepared: &[Prepared]) -> Result<()> {
        let mut outside = lock(&self.outside);
        for name in prepared {
            let name = name.0.as_str().unwrap();
            outside.trace.push(format!("discard {} {name}", self.name));
            let table = outside.sinks.get_mut(self.name).unwrap();
            table.files.remove(name);
            for row in table.committed.remove(name).unwrap_or_default() {
                table.visible.remove(&row);
            }
        }
        Ok(())
    }
}
