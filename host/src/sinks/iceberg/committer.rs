//! Snapshots: one for each epoch, with the epoch's number in a table property of the same commit. That
//! mark is the only evidence that an epoch was committed: it outlives expired snapshots, compactions and lost replies.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use iceberg::spec::{DataFile, deserialize_data_file_from_json};
use iceberg::table::Table;
use iceberg::transaction::{ApplyTransactionAction, Transaction};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::catalog::error;
use super::watched::Watched;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::sink::{CommitInfo, Committed, Committer, Epoch, Identity, Prepared, Recovered};

/// Data files that lie in the warehouse, in no snapshot yet.
#[derive(Debug, Serialize, Deserialize)]
pub struct Files {
    /// The table that they were written for: one that was dropped and made anew is another.
    pub table: uuid::Uuid,
    /// The partition spec that they follow.
    pub spec: i32,
    /// As Iceberg's own JSON.
    pub files: Vec<serde_json::Value>,
}

/// How often a commit whose outcome is unknown is looked up and tried again.
const TRIES: u32 = 6;
/// From here on snapshots are worth a warning: each commit rewrites the list of all of them.
const MANY_SNAPSHOTS: usize = 2_000;

/// Commits epochs of one task.
pub struct SnapshotCommitter {
    shared: Arc<Shared>,
    identity: Identity,
    property: String,
    warned: bool,
}

impl SnapshotCommitter {
    pub(super) fn new(shared: Arc<Shared>, identity: Identity) -> SnapshotCommitter {
        let property = format!("weir.{}.{}.{}", identity.pipeline, identity.sink, identity.task);
        SnapshotCommitter { shared, identity, property, warned: false }
    }

    /// The newest epoch that the table holds of this log. A mark of another log refuses.
    pub(super) fn check_mark(&self, table: &Table) -> Result<Option<Epoch>> {
        mark(table, &self.property, &self.identity.log_id)
    }

    async fn load(&self) -> Result<Table> {
        let catalog = self.shared.catalog().await?;
        let table = catalog.load_table(&self.shared.plan.ident).await;
        table.map_err(|e| error("cannot load the table", e).with("table", &self.shared.config.table))
    }

    /// The data files of an epoch, and that they are this table's.
    fn files(&self, table: &Table, prepared: &[Prepared]) -> Result<Vec<DataFile>> {
        let metadata = table.metadata();
        let unreadable = || Error::corrupt("the manifest's data files can't be read").with("table", &self.shared.config.table);
        let mut files = Vec::new();
        for part in prepared {
            let part: Files = serde_json::from_value(part.0.clone()).map_err(|e| unreadable().because(e))?;
            if part.table != metadata.uuid() {
                return Err(Error::config(
                    "the table was dropped and created anew since the checkpoint: rename the pipeline to fill it from the start, or bring the old table back",
                )
                .with("table", &self.shared.config.table)
                .with("uuid", metadata.uuid())
                .with("checkpoint", part.table));
            }
            let spec = metadata.partition_spec_by_id(part.spec).ok_or_else(|| {
                Error::corrupt("the table no longer knows the partition spec of the epoch's files").with("spec", part.spec)
            })?;
            let schema = metadata.current_schema();
            let partition = spec.partition_type(schema).map_err(|e| unreadable().because(e))?;
            for file in part.files {
                let file = deserialize_data_file_from_json(&file.to_string(), part.spec, &partition, schema);
                files.push(file.map_err(|e| unreadable().because(e))?);
            }
        }
        Ok(files)
    }

    /// One try. `Ok(None)`: the table says that the epoch is there already.
    async fn try_commit(&self, epoch: Epoch, prepared: &[Prepared], info: &CommitInfo) -> Result<Option<Table>> {
        let table = self.load().await?;
        if self.check_mark(&table)?.is_some_and(|done| done >= epoch) {
            return Ok(None);
        }
        let files = self.files(&table, prepared)?;
        let wrong = |e| error("cannot commit to the table", e).with("table", &self.shared.config.table).with("epoch", epoch);
        let mut transaction = Transaction::new(&table);
        if let Some(expire) = self.shared.config.expire_snapshots {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let older = now.saturating_sub(expire.older_than.0).as_millis() as i64;
            let action = transaction.expire_snapshots().expire_older_than_ms(older).retain_last(expire.retain_last.max(1));
            transaction = action.apply(transaction).map_err(wrong)?;
        }
        let value = format!("{}:{epoch}", self.identity.log_id);
        let action = transaction.update_table_properties().set(self.property.clone(), value);
        transaction = action.apply(transaction).map_err(wrong)?;
        let action = transaction
            .fast_append()
            // It would read every manifest at every commit; names of files are drawn anew at each start.
            .with_check_duplicate(false)
            .set_snapshot_properties(self.summary(epoch, info))
            .add_data_files(files);
        transaction = action.apply(transaction).map_err(wrong)?;
        // The table is loaded anew at each retry after a conflict: another process may have committed the epoch meanwhile.
        let seen = Arc::new(AtomicBool::new(false));
        let (property, log_id, found) = (self.property.clone(), self.identity.log_id.clone(), seen.clone());
        let look = move |table: &Table| match mark(table, &property, &log_id) {
            Ok(Some(done)) if done >= epoch => {
                found.store(true, Ordering::Relaxed);
                Err(iceberg::Error::new(iceberg::ErrorKind::PreconditionFailed, "the epoch is committed already"))
            }
            Ok(_) => Ok(()),
            Err(e) => Err(iceberg::Error::new(iceberg::ErrorKind::DataInvalid, e.to_string())),
        };
        let catalog = Watched { inner: self.shared.catalog().await?.clone(), look: Box::new(look) };
        match transaction.commit(&catalog).await {
            Ok(table) => Ok(Some(table)),
            Err(_) if seen.load(Ordering::Relaxed) => Ok(None),
            Err(e) => Err(wrong(e)),
        }
    }

    /// What the snapshot's summary says of where its rows come from.
    fn summary(&self, epoch: Epoch, info: &CommitInfo) -> HashMap<String, String> {
        let mut summary = HashMap::from([
            ("weir.pipeline".to_string(), self.identity.pipeline.clone()),
            ("weir.task".to_string(), self.identity.task.to_string()),
            ("weir.epoch".to_string(), epoch.to_string()),
        ]);
        summary.extend(info.modules.iter().map(|(step, digest)| (format!("weir.module.{step}"), digest.clone())));
        summary
    }

    /// Counts what grows with every commit. What can't be counted now is counted next time.
    async fn watch_growth(&mut self, table: &Table) {
        if let Some(snapshot) = table.metadata().current_snapshot()
            && let Ok(list) = table.manifest_list_reader(snapshot).load().await
        {
            metrics::SINK_MANIFESTS.with_label_values(&[&self.shared.name]).set(list.entries().len() as i64);
        }
        let snapshots = table.metadata().snapshots().len();
        metrics::SINK_SNAPSHOTS.with_label_values(&[&self.shared.name]).set(snapshots as i64);
        if snapshots >= MANY_SNAPSHOTS && !self.warned {
            self.warned = true;
            tracing::warn!(
                sink = self.shared.name,
                table = self.shared.config.table,
                snapshots,
                "the table keeps many snapshots and each commit rewrites their list: set expire_snapshots or a longer checkpoint.interval"
            );
        }
    }
}

/// The newest epoch of `log_id` that `table` holds, by its property.
fn mark(table: &Table, property: &str, log_id: &str) -> Result<Option<Epoch>> {
    let Some(value) = table.metadata().properties().get(property) else { return Ok(None) };
    match value.rsplit_once(':').map(|(log, epoch)| (log, epoch.parse::<u64>())) {
        Some((log, Ok(epoch))) if log == log_id => Ok(Some(Epoch(epoch))),
        _ => Err(Error::config(
            "the table holds rows of another log of a pipeline with this name: its checkpoint was lost or lies elsewhere. Point checkpoint.store at it, or give the pipeline a new name (rows that are there already would come again), or remove the property",
        )
        .with("table", table.identifier())
        .with("property", property)
        .with("value", value)
        .with("log", log_id)),
    }
}

fn totals(files: &[DataFile]) -> Committed {
    Committed {
        rows: files.iter().map(DataFile::record_count).sum(),
        files: files.len() as u64,
        bytes: files.iter().map(DataFile::file_size_in_bytes).sum(),
    }
}

#[async_trait]
impl Committer for SnapshotCommitter {
    async fn commit(&mut self, epoch: Epoch, prepared: &[Prepared], info: &CommitInfo) -> Result<Committed> {
        if prepared.is_empty() {
            return Ok(Committed::default());
        }
        let mut delay = Duration::from_millis(100);
        let mut tried = 0;
        let table = loop {
            tried += 1;
            match self.try_commit(epoch, prepared, info).await {
                Ok(Some(table)) => break table,
                Ok(None) => break self.load().await?,
                // A lost reply leaves the outcome unknown: the next try looks the mark up first.
                Err(e) if e.kind() == ErrorKind::Transient && tried < TRIES => {
                    metrics::COMMIT_RETRIES.with_label_values(&[&self.shared.name]).inc();
                    tracing::warn!(sink = self.shared.name, error = %e, %epoch, "committing again");
                    tokio::time::sleep(delay).await;
                    delay *= 2;
                }
                Err(e) => return Err(e),
            }
        };
        self.watch_growth(&table).await;
        Ok(totals(&self.files(&table, prepared)?))
    }

    async fn recover(&mut self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered> {
        let table = self.load().await?;
        let files = self.files(&table, prepared)?;
        if self.check_mark(&table)?.is_some_and(|done| done >= epoch) {
            return Ok(Recovered::Committed);
        }
        for file in &files {
            let there = table.file_io().exists(file.file_path()).await;
            if !there.map_err(|e| error("cannot look for a data file", e).with("path", file.file_path()))? {
                tracing::warn!(path = file.file_path(), "a prepared data file is gone");
                return Ok(Recovered::Lost);
            }
        }
        Ok(Recovered::NeedsCommit)
    }

    async fn discard(&mut self, prepared: &[Prepared]) -> Result<()> {
        let table = self.load().await?;
        for file in self.files(&table, prepared)? {
            let deleted = table.file_io().delete(file.file_path()).await;
            deleted.map_err(|e| error("cannot delete an abandoned data file", e).with("path", file.file_path()))?;
        }
        Ok(())
    }
}
