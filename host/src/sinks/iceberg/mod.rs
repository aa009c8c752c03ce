//! The Iceberg sink: rows by a declared schema into Parquet files, one snapshot an epoch. Owns the settings
//! and ties the parts together: `catalog` (where tables are listed), `table` (the one table: made, compared,
//! evolved), `partition` (which table partition a row belongs to), `spread` (which worker owns it), `writer` with `file`
//! and `stats` (data files), `committer` (snapshots and the mark that proves them).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use async_trait::async_trait;
use futures::TryStreamExt;
use iceberg::Catalog;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use crate::columnar::Schema;
use crate::error::{Error, Result};
use crate::sink::{Committer, Distribution, Identity, SinkConnector, Writer};
use crate::units::{Size, Span};

mod catalog;
mod committer;
mod file;
mod partition;
mod spread;
mod stats;
mod table;
mod watched;
mod writer;

use catalog::CatalogConfig;
pub use file::encode_once;
use table::{Layout, Plan};

/// How rows are spread over the workers before they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Spreading {
    /// Rows stay on the worker that read them: each worker has its own files for every table partition.
    None,
    /// Each table partition belongs to one worker: fewer, larger files, at the price of one copy.
    #[default]
    Hash,
}

/// Snapshots to expire with each commit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expire {
    /// Snapshots older than this go.
    pub older_than: Span,
    /// But this many always stay.
    #[serde(default = "default_retain")]
    pub retain_last: usize,
}

fn default_retain() -> usize {
    10
}

/// Settings of the `iceberg` sink.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the table is listed.
    pub catalog: CatalogConfig,
    /// Where new tables lie: a folder, `s3://bucket/prefix` or `gs://bucket/prefix`. A REST catalog may have its own.
    pub warehouse: Option<String>,
    /// `namespace.table`.
    pub table: String,
    /// Path of the schema of the rows: an Iceberg schema or an Avro-style record, as JSON. Left out: the existing table's.
    pub schema: Option<String>,
    /// Table partitions of a new table, such as `bucket(id, 64)`, `day(ts)`, `truncate(name, 4)`, `country`.
    #[serde(default)]
    pub partition_by: Vec<String>,
    /// Sort order of a new table, such as `ts desc`: for whoever compacts it. Rows are written as they come, and the files say that
    /// they are not sorted, as Iceberg lets streaming writers do.
    #[serde(default)]
    pub sort_order: Vec<String>,
    /// Properties of a new table.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// How rows are spread over the workers. `hash` needs a partitioned table; an unpartitioned one is not spread.
    #[serde(default)]
    pub distribution: Spreading,
    /// Adds a column to the table when messages bring an unknown field at the top level.
    #[serde(default)]
    pub add_columns: bool,
    /// A data file is closed at about this size.
    #[serde(default = "default_target")]
    pub target_file_size: Size,
    /// `zstd`, `zstd(LEVEL)`, `snappy`, `lz4` or `none`.
    #[serde(default = "default_compression")]
    pub compression: String,
    /// A row group is closed at about this size, encoded.
    #[serde(default = "default_row_group")]
    pub row_group_size: Size,
    /// Columns that get a bloom filter.
    #[serde(default)]
    pub bloom_filters: Vec<String>,
    /// What the open files of one worker may hold in memory; past it row groups are closed early.
    #[serde(default = "default_memory")]
    pub memory: Size,
    /// Files that a worker keeps open at once; past it the largest is closed.
    #[serde(default = "default_open_files")]
    pub open_files: usize,
    /// Asks for a commit once messages of this size wait for it.
    pub commit_bytes: Option<Size>,
    /// Asks for a commit once so many rows wait for it.
    pub commit_rows: Option<u64>,
    /// Snapshots to expire with each commit. Left out: none.
    pub expire_snapshots: Option<Expire>,
    /// Options of the warehouse's storage by Iceberg's names, such as `s3.endpoint`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

fn default_target() -> Size {
    Size(512 << 20)
}

fn default_compression() -> String {
    "zstd(1)".to_string()
}

fn default_row_group() -> Size {
    Size(64 << 20)
}

fn default_memory() -> Size {
    Size(32 << 20)
}

fn default_open_files() -> usize {
    256
}

/// What waits for the next commit, over all workers.
#[derive(Debug, Default)]
struct Held {
    bytes: AtomicU64,
    rows: AtomicU64,
}

/// One writer's part of what is held. Given back when the writer goes, however it goes: what a failed attempt left
/// counted would ask for a commit at every batch of the next one.
struct Share {
    held: Arc<Held>,
    bytes: u64,
    rows: u64,
}

impl Share {
    fn new(held: Arc<Held>) -> Share {
        Share { held, bytes: 0, rows: 0 }
    }

    fn add(&mut self, bytes: u64, rows: u64) {
        self.bytes += bytes;
        self.rows += rows;
        self.held.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held.rows.fetch_add(rows, Ordering::Relaxed);
    }

    fn release(&mut self) {
        self.held.bytes.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        self.held.rows.fetch_sub(std::mem::take(&mut self.rows), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.release();
    }
}

/// What every part of the sink shares.
struct Shared {
    name: String,
    config: Config,
    plan: Plan,
    catalog: OnceCell<Arc<dyn Catalog>>,
    /// The table as loaded last; replaced when a column is added.
    layout: Mutex<Option<Arc<Layout>>>,
    evolving: tokio::sync::Mutex<()>,
    held: Arc<Held>,
}

impl Shared {
    async fn catalog(&self) -> Result<&Arc<dyn Catalog>> {
        self.catalog.get_or_try_init(|| catalog::open(&self.config)).await
    }

    /// The table's layout, loaded anew.
    async fn load(&self) -> Result<Arc<Layout>> {
        let layout = Arc::new(Layout::load(self.catalog().await?.as_ref(), &self.plan, &[]).await?);
        *self.layout.lock().unwrap_or_else(PoisonError::into_inner) = Some(layout.clone());
        Ok(layout)
    }

    /// The layout as loaded last, or loaded now.
    async fn layout(&self) -> Result<Arc<Layout>> {
        match self.loaded() {
            Some(layout) => Ok(layout),
            None => self.load().await,
        }
    }

    fn loaded(&self) -> Option<Arc<Layout>> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A configured Iceberg sink.
pub struct Connector(Arc<Shared>);

impl Connector {
    /// Reads the schema file and checks everything that can be checked without the catalog.
    pub fn new(config: Config, name: &str) -> Result<Connector> {
        let schema = match &config.schema {
            Some(path) => Some(Schema::load(std::path::Path::new(path))?),
            None => None,
        };
        file::compression(&config.compression)?;
        if let (Some(column), Some(schema)) = (
            config.bloom_filters.iter().find(|c| schema.as_ref().is_some_and(|s| !s.fields.iter().any(|f| f.name == **c))),
            &schema,
        ) {
            let known: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
            return Err(Error::config("bloom_filters names a column that the schema doesn't have")
                .with("column", column)
                .with("columns", known.join(",")));
        }
        let plan = Plan::new(&config, schema)?;
        Ok(Connector(Arc::new(Shared {
            name: name.to_string(),
            config,
            plan,
            catalog: OnceCell::new(),
            layout: Mutex::new(None),
            evolving: tokio::sync::Mutex::new(()),
            held: Arc::default(),
        })))
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "iceberg"
    }

    fn transactional(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<()> {
        if catalog::will_be_created(&self.0.config) {
            return self.0.plan.can_create();
        }
        let catalog = self.0.catalog().await?;
        match table::exists(catalog.as_ref(), &self.0.plan).await? {
            true => Layout::load(catalog.as_ref(), &self.0.plan, &[]).await.map(drop),
            false => self.0.plan.can_create(),
        }
    }

    async fn create(&self) -> Result<()> {
        table::create(self.0.catalog().await?.as_ref(), &self.0.plan).await
    }

    fn distribution(&self) -> Result<Option<Box<dyn Distribution>>> {
        if self.0.config.distribution == Spreading::None {
            return Ok(None);
        }
        let Some(layout) = self.0.loaded() else {
            return Err(Error::bug("rows are to be spread before the table was loaded").with("table", &self.0.config.table));
        };
        match layout.spec.is_unpartitioned() {
            true => Ok(None),
            false => Ok(Some(Box::new(spread::Spread::new(&layout)?))),
        }
    }

    async fn writer(&self, identity: &Identity, worker: u32) -> Result<Box<dyn Writer>> {
        let layout = self.0.layout().await?;
        Ok(Box::new(writer::FileWriter::new(self.0.clone(), layout, format!("{}-{worker}", identity.attempt))?))
    }

    async fn committer(&self, identity: &Identity) -> Result<Box<dyn Committer>> {
        let layout = self.0.load().await?;
        let committer = committer::SnapshotCommitter::new(self.0.clone(), identity.clone());
        committer.check_mark(&layout.table)?;
        Ok(Box::new(committer))
    }

    async fn head(&self, rows: usize) -> Result<Option<Vec<RecordBatch>>> {
        let layout = self.0.load().await?;
        let wrong = |e| catalog::error("cannot read the table", e).with("table", &self.0.config.table);
        let scan = layout.table.scan().with_batch_size(Some(rows.max(1))).build().map_err(wrong)?;
        let mut stream = scan.to_arrow().await.map_err(wrong)?;
        let (mut found, mut left) = (Vec::new(), rows);
        while let (true, Some(batch)) = (left > 0, stream.try_next().await.map_err(wrong)?) {
            let batch = batch.slice(0, left.min(batch.num_rows()));
            left -= batch.num_rows();
            found.push(batch);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_goes_leaves_nothing_counted() {
        let held = Arc::new(Held::default());
        let counted = || (held.bytes.load(Ordering::Relaxed), held.rows.load(Ordering::Relaxed));
        let (mut stays, mut fails) = (Share::new(held.clone()), Share::new(held.clone()));
        stays.add(10, 1);
        fails.add(100, 2);
        assert_eq!(counted(), (110, 3));
        drop(fails);
        assert_eq!(counted(), (10, 1));
        stays.release();
        drop(stays);
        assert_eq!(counted(), (0, 0));
    }
}
