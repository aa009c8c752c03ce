//! The writer of one worker: messages to rows, rows to the files of their table partitions. Gathers some
//! megabytes of rows before it sorts them, so that each file gets a run of rows at a time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use async_trait::async_trait;
use futures::future::try_join_all;
use iceberg::spec::{FormatVersion, serialize_data_file_to_json};
use iceberg::writer::file_writer::location_generator::{DefaultLocationGenerator, LocationGenerator};
use parquet::file::properties::WriterProperties;

use super::committer::Files;
use super::file::{Encoded, OpenFile, local_path, properties};
use super::partition::Partitioner;
use super::stats::data_file;
use super::table::{Layout, add_columns};
use super::{Share, Shared};
use crate::batch::{Batch, Rejected};
use crate::columnar::{Decoded, Decoder, Field, Options};
use crate::error::{Error, Result};
use crate::metrics;
use crate::sink::{Epoch, Prepared, Writer};

/// Rows are sorted into files once so many bytes of messages are gathered.
const GATHER_BYTES: u64 = 8 << 20;
/// Or so many rows, when they are small.
const GATHER_ROWS: usize = 64 << 10;
/// Files stored at the same time.
const STORING: usize = 4;
/// Past so many table partitions their numbers are drawn anew at an epoch's end.
const MOST_KNOWN: usize = 10_000;

/// Whether files may lie in a folder of their table partition, such as `id_bucket=3`. Not on GCS: OpenDAL 0.57 escapes
/// what needs escaping twice there when it writes, once when it reads, so that nobody would find the file again.
fn folders(location: &str) -> Result<bool> {
    if !location.starts_with("gs://") {
        return Ok(true);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.!~*'()/".contains(c);
    match location["gs://".len()..].chars().find(|c| !plain(*c)) {
        None => Ok(false),
        Some(character) => Err(Error::config(
            "a table on GCS can only lie where the path is made of letters, digits and -_.!~*'(): choose another warehouse, namespace or table name",
        )
        .with("location", location)
        .with("character", format!("`{character}`"))),
    }
}

/// Writes data files.
pub struct FileWriter {
    shared: Arc<Shared>,
    layout: Arc<Layout>,
    /// Unique among all workers and starts; files are numbered behind it.
    name: String,
    numbered: u64,
    decoder: Decoder,
    partitioner: Option<Partitioner>,
    locations: DefaultLocationGenerator,
    /// Whether each table partition has a folder.
    folders: bool,
    properties: Option<WriterProperties>,
    gathered: Vec<RecordBatch>,
    /// The table partition's number of each gathered row.
    numbers: Vec<u32>,
    gathered_bytes: u64,
    gathered_rows: usize,
    /// By the number of the table partition; 0 without any.
    files: Vec<Option<OpenFile>>,
    finished: Vec<Encoded>,
    share: Share,
    /// Columns that messages brought along.
    extra: Vec<Field>,
    unknown_logged: bool,
}

/// The rows that a decoder refused.
pub(super) fn rejected(batch: &Batch, refused: Vec<(u32, String)>) -> Result<Vec<Rejected>> {
    if refused.is_empty() {
        return Ok(Vec::new());
    }
    let (rows, reasons): (Vec<u32>, Vec<String>) = refused.into_iter().unzip();
    Ok(vec![Rejected { rows: batch.take(&rows)?, reasons, module: None }])
}

impl FileWriter {
    pub(super) fn new(shared: Arc<Shared>, layout: Arc<Layout>, name: String) -> Result<FileWriter> {
        let options = Options { report_new_fields: shared.config.add_columns, ..Options::default() };
        let wrong = |e| super::catalog::error("the table's location can't be used", e);
        let locations = DefaultLocationGenerator::new(layout.table.metadata()).map_err(wrong)?;
        Ok(FileWriter {
            decoder: Decoder::new(&layout.columns, options)?,
            partitioner: match layout.spec.is_unpartitioned() {
                true => None,
                false => Some(Partitioner::new(&layout)?),
            },
            folders: folders(&locations.generate_location(None, ""))?,
            locations,
            share: Share::new(shared.held.clone()),
            shared,
            layout,
            name,
            numbered: 0,
            properties: None,
            gathered: Vec::new(),
            numbers: Vec::new(),
            gathered_bytes: 0,
            gathered_rows: 0,
            files: Vec::new(),
            finished: Vec::new(),
            extra: Vec::new(),
            unknown_logged: false,
        })
    }

    /// Decodes, and adds columns first where unknown fields ask for it.
    async fn decode(&mut self, batch: &Batch) -> Result<Decoded> {
        let decoded = self.decoder.decode(batch)?;
        if decoded.new_fields.is_empty() {
            return Ok(decoded);
        }
        self.sort_gathered().await?;
        self.finish_all().await?;
        {
            let _alone = self.shared.evolving.lock().await;
            add_columns(self.shared.catalog().await?.as_ref(), &self.shared.plan.ident, &decoded.new_fields).await?;
        }
        self.extra.extend(decoded.new_fields.iter().cloned());
        self.layout = Arc::new(Layout::load(self.shared.catalog().await?.as_ref(), &self.shared.plan, &self.extra).await?);
        self.decoder = Decoder::new(&self.layout.columns, Options { report_new_fields: true, ..Options::default() })?;
        self.partitioner = match self.layout.spec.is_unpartitioned() {
            true => None,
            false => Some(Partitioner::new(&self.layout)?),
        };
        self.files.clear();
        self.properties = None;
        self.decoder.decode(batch)
    }

    fn count_unknown(&mut self, decoded: &Decoded) {
        if decoded.unknown_fields == 0 {
            return;
        }
        metrics::SINK_UNKNOWN_FIELDS.with_label_values(&[&self.shared.name]).inc_by(decoded.unknown_fields);
        if let (false, Some(sample)) = (self.unknown_logged, &decoded.unknown_sample) {
            self.unknown_logged = true;
            tracing::warn!(
                sink = self.shared.name,
                sample,
                "messages have fields that the schema doesn't name: they are left out and counted"
            );
        }
    }

    /// Sorts the gathered rows into the files of their table partitions.
    async fn sort_gathered(&mut self) -> Result<()> {
        if self.gathered_rows == 0 {
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        if self.properties.is_none() {
            self.properties = Some(properties(&self.shared.config, &gathered[0])?);
        }
        match self.partitioner.as_ref().map(Partitioner::len) {
            None => {
                for rows in &gathered {
                    self.append(0, rows).await?;
                }
            }
            Some(partitions) => {
                // A counting sort: rows of one table partition side by side, in their order.
                let mut rows: Vec<Vec<(usize, usize)>> = vec![Vec::new(); partitions];
                let mut numbers = self.numbers.iter();
                for (part, batch) in gathered.iter().enumerate() {
                    for (row, number) in (0..batch.num_rows()).zip(&mut numbers) {
                        rows[*number as usize].push((part, row));
                    }
                }
                let parts: Vec<&RecordBatch> = gathered.iter().collect();
                for (number, rows) in rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                    let run = interleave_record_batch(&parts, &rows)
                        .map_err(|e| Error::bug("cannot sort rows by table partition").because(e))?;
                    self.append(number, &run).await?;
                }
            }
        }
        self.numbers.clear();
        (self.gathered_bytes, self.gathered_rows) = (0, 0);
        self.keep_within_memory().await
    }

    /// Adds rows to the file of a table partition, and closes the file when it is large enough.
    async fn append(&mut self, number: usize, rows: &RecordBatch) -> Result<()> {
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        let file = match &mut self.files[number] {
            Some(file) => file,
            empty => {
                let key = self.partitioner.as_ref().map(|p| p.key(number as u32).clone());
                let name = format!("{}-{:06}.parquet", self.name, self.numbered);
                self.numbered += 1;
                let path = self.locations.generate_location(key.as_ref().filter(|_| self.folders), &name);
                let settings = self.properties.as_ref().ok_or_else(|| Error::bug("a data file before its settings"))?;
                empty.insert(OpenFile::new(path, key, rows.schema(), settings)?)
            }
        };
        file.encode(rows, self.shared.config.row_group_size.0)?;
        file.store(self.layout.table.file_io()).await?;
        if file.size() >= self.shared.config.target_file_size.0 {
            self.close(number).await?;
        }
        Ok(())
    }

    /// Closes a file early: its rows stay, its memory goes.
    async fn close(&mut self, number: usize) -> Result<()> {
        if let Some(file) = self.files[number].take() {
            let mut encoded = file.finish()?;
            encoded.store(self.layout.table.file_io()).await?;
            self.finished.push(encoded);
        }
        Ok(())
    }

    /// Row groups are closed early, and files too, before they take more memory than allowed.
    async fn keep_within_memory(&mut self) -> Result<()> {
        let mut sizes: Vec<(u64, usize)> =
            self.files.iter().enumerate().filter_map(|(number, file)| Some((file.as_ref()?.memory(), number))).collect();
        sizes.sort_unstable();
        while sizes.len() > self.shared.config.open_files {
            if let Some((_, number)) = sizes.pop() {
                self.close(number).await?;
            }
        }
        let mut total: u64 = sizes.iter().map(|(size, _)| size).sum();
        while let Some((size, number)) = sizes.pop().filter(|_| total > self.shared.config.memory.0) {
            if let Some(file) = &mut self.files[number] {
                file.close_row_group()?;
                file.store(self.layout.table.file_io()).await?;
                total -= size.saturating_sub(file.memory());
            }
        }
        Ok(())
    }

    /// Closes every file, a few at a time: each takes its memory twice while it is closed.
    async fn finish_all(&mut self) -> Result<()> {
        let mut open: Vec<OpenFile> = self.files.drain(..).flatten().collect();
        while !open.is_empty() {
            let some = open.drain(..STORING.min(open.len()));
            let mut encoded = some.map(OpenFile::finish).collect::<Result<Vec<_>>>()?;
            let io = self.layout.table.file_io();
            try_join_all(encoded.iter_mut().map(|file| file.store(io))).await?;
            self.finished.append(&mut encoded);
        }
        Ok(())
    }

    /// Makes the finished files last, and says which they are.
    fn describe_all(&mut self) -> Result<Vec<serde_json::Value>> {
        sync_folders(self.finished.iter().map(|file| file.path.as_str()))?;
        let unreadable = |e| Error::bug("cannot describe a data file").because(e);
        let kind = self.layout.spec.partition_type(&self.layout.schema).map_err(unreadable)?;
        let mut described = Vec::with_capacity(self.finished.len());
        for file in self.finished.drain(..) {
            let spec = self.layout.spec.spec_id();
            let file = data_file(&file.footer, &self.layout.schema, spec, file.key.as_ref(), &file.path, file.size)?;
            let json = serialize_data_file_to_json(file, &kind, FormatVersion::V2).map_err(unreadable)?;
            described.push(serde_json::from_str(&json).map_err(|e| Error::bug("cannot describe a data file").because(e))?);
        }
        Ok(described)
    }
}

/// On a local disk a new file survives a power failure only when its folder was synced too.
fn sync_folders<'a>(paths: impl Iterator<Item = &'a str>) -> Result<()> {
    let local = paths.filter_map(|path| Path::new(local_path(path)?).parent());
    for folder in local.collect::<BTreeSet<_>>() {
        let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| Error::transient("cannot sync a folder of data files").with("folder", folder.display()).because(e))?;
    }
    Ok(())
}

#[async_trait]
impl Writer for FileWriter {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        let decoded = self.decode(&batch).await?;
        self.count_unknown(&decoded);
        if let Some(partitioner) = &mut self.partitioner {
            partitioner.number(&decoded.rows, &mut self.numbers)?;
        }
        let rows = decoded.rows.num_rows();
        if rows > 0 {
            self.gathered.push(decoded.rows);
        }
        self.gathered_rows += rows;
        self.gathered_bytes += batch.bytes();
        self.share.add(batch.bytes(), rows as u64);
        if self.gathered_bytes >= GATHER_BYTES || self.gathered_rows >= GATHER_ROWS {
            self.sort_gathered().await?;
        }
        rejected(&batch, decoded.rejected)
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        self.sort_gathered().await?;
        self.finish_all().await?;
        self.share.release();
        self.properties = None;
        let files = self.describe_all()?;
        if let Some(partitioner) = self.partitioner.as_mut().filter(|p| p.len() > MOST_KNOWN) {
            partitioner.forget();
        }
        if files.is_empty() {
            return Ok((None, Vec::new()));
        }
        let prepared = Files { table: self.layout.table.metadata().uuid(), spec: self.layout.spec.spec_id(), files };
        let json = serde_json::to_value(prepared).map_err(|e| Error::bug("cannot describe prepared files").because(e))?;
        Ok((Some(Prepared(json)), Vec::new()))
    }

    fn wants_barrier(&self) -> bool {
        let (config, held) = (&self.shared.config, &self.shared.held);
        config.commit_bytes.is_some_and(|most| held.bytes.load(Ordering::Relaxed) >= most.0)
            || config.commit_rows.is_some_and(|most| held.rows.load(Ordering::Relaxed) >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::folders;

    #[test]
    fn files_on_gcs_lie_in_no_folders_whose_names_need_escaping() {
        assert!(folders("s3://bucket/a b/data/").unwrap() && folders("file:///w/x=1/data/").unwrap());
        assert!(!folders("gs://bucket/warehouse/web/clicks/data/").unwrap());
        let error = folders("gs://bucket/a b/data/").unwrap_err().to_string();
        assert!(error.contains("location=gs://bucket/a b/data/ character=` `"), "{error}");
    }
}
