//! One Parquet file under way: encodes on the worker's thread, and hands finished bytes to the storage. Owns
//! the Parquet settings; knows neither batches nor snapshots.

use std::collections::HashSet;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bytes::Bytes;
use iceberg::io::{FileIO, FileWrite};
use iceberg::spec::PartitionKey;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::Config;
use super::catalog::error;
use crate::error::{Error, Result};

/// Iceberg's own default for bounds of strings.
const BOUND_BYTES: usize = 16;
/// Every open file holds a page and a compressor's window for each column: hundreds of files make large ones dear.
const PAGE_BYTES: usize = 256 << 10;
/// A page's size is looked at after so many rows.
const PAGE_CHECK_ROWS: usize = 128;
/// Encoded bytes go to the storage once there are so many.
const CHUNK: usize = 1 << 20;
/// Values looked at to tell whether a dictionary can help.
const SAMPLE: usize = 512;

/// Reads the `compression` setting.
pub fn compression(text: &str) -> Result<Compression> {
    let wrong = || {
        Error::config("unknown compression: write `zstd`, `zstd(LEVEL)` with a level from 1 to 22, `snappy`, `lz4` or `none`")
            .with("compression", text)
    };
    let level = match text {
        "none" => return Ok(Compression::UNCOMPRESSED),
        "snappy" => return Ok(Compression::SNAPPY),
        "lz4" => return Ok(Compression::LZ4_RAW),
        "zstd" => 1,
        _ => {
            let inner = text.strip_prefix("zstd(").and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
            inner.trim().parse().map_err(|_| wrong())?
        }
    };
    ZstdLevel::try_new(level).map(Compression::ZSTD).map_err(|_| wrong())
}

/// The Parquet settings for rows like those of the sample.
pub fn properties(config: &Config, sample: &RecordBatch) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_compression(compression(&config.compression)?)
        .set_created_by(concat!("weir ", env!("CARGO_PKG_VERSION")).to_string())
        .set_data_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(PAGE_CHECK_ROWS)
        .set_statistics_truncate_length(Some(BOUND_BYTES))
        .set_column_index_truncate_length(Some(BOUND_BYTES));
    for (field, column) in sample.schema().fields().iter().zip(sample.columns()) {
        if !repeats(column) {
            builder = builder.set_column_dictionary_enabled(ColumnPath::from(field.name().as_str()), false);
        }
    }
    for column in &config.bloom_filters {
        builder = builder.set_column_bloom_filter_enabled(ColumnPath::from(column.as_str()), true);
    }
    Ok(builder.build())
}

/// Whether a column's values repeat often enough for a dictionary to be worth building.
fn repeats(column: &dyn Array) -> bool {
    let rows = column.len().min(SAMPLE);
    let distinct = |count: usize| rows < 16 || count * 2 <= rows;
    match column.data_type() {
        DataType::Utf8 => distinct((0..rows).map(|row| column.as_string::<i32>().value(row)).collect::<HashSet<_>>().len()),
        DataType::LargeBinary => {
            distinct((0..rows).map(|row| column.as_binary::<i64>().value(row)).collect::<HashSet<_>>().len())
        }
        DataType::FixedSizeBinary(_) => {
            distinct((0..rows).map(|row| column.as_fixed_size_binary().value(row)).collect::<HashSet<_>>().len())
        }
        DataType::Int64 => {
            distinct((0..rows).map(|row| column.as_primitive::<Int64Type>().value(row)).collect::<HashSet<_>>().len())
        }
        DataType::Int32 => {
            distinct((0..rows).map(|row| column.as_primitive::<Int32Type>().value(row)).collect::<HashSet<_>>().len())
        }
        _ => true,
    }
}

/// A Parquet file that takes rows.
pub struct OpenFile {
    /// Its table partition, where the table has some.
    pub key: Option<PartitionKey>,
    path: String,
    encoder: ArrowWriter<Vec<u8>>,
    out: Out,
    sent: u64,
}

/// A file whose last bytes are encoded, but not yet stored.
pub struct Encoded {
    /// Its table partition.
    pub key: Option<PartitionKey>,
    /// Where it lies.
    pub path: String,
    /// Its footer.
    pub footer: ParquetMetaData,
    /// Its whole size in bytes.
    pub size: u64,
    rest: Vec<u8>,
    out: Out,
}

fn encoding(path: &str) -> impl FnOnce(parquet::errors::ParquetError) -> Error + '_ {
    move |e| Error::bug("cannot encode a Parquet file").with("path", path).because(e)
}

impl OpenFile {
    /// A file at `path`; nothing is stored before there is a chunk of it.
    pub fn new(path: String, key: Option<PartitionKey>, schema: SchemaRef, properties: &WriterProperties) -> Result<OpenFile> {
        // Field ids are in the Parquet schema; Arrow's own copy of it would only take space in each small file.
        let options = ArrowWriterOptions::new().with_properties(properties.clone()).with_skip_arrow_metadata(true);
        let encoder = ArrowWriter::try_new_with_options(Vec::new(), schema, options).map_err(encoding(&path))?;
        Ok(OpenFile { key, path, encoder, out: Out::Unopened, sent: 0 })
    }

    /// Takes rows.
    pub fn encode(&mut self, rows: &RecordBatch, row_group: u64) -> Result<()> {
        self.encoder.write(rows).map_err(encoding(&self.path))?;
        if self.encoder.in_progress_size() as u64 >= row_group {
            self.close_row_group()?;
        }
        Ok(())
    }

    /// Ends the row group, so that its bytes can leave the memory.
    pub fn close_row_group(&mut self) -> Result<()> {
        self.make_room();
        self.encoder.flush().map_err(encoding(&self.path))
    }

    /// The row group's bytes move into the buffer at once: growing it step by step would copy them again and again.
    fn make_room(&mut self) {
        let expected = self.encoder.in_progress_size();
        self.encoder.inner_mut().reserve(expected);
    }

    /// Encoded bytes so far, those of the row group under way included.
    pub fn size(&self) -> u64 {
        self.sent + self.encoder.inner().len() as u64 + self.encoder.in_progress_size() as u64
    }

    /// Bytes of memory that the file takes.
    pub fn memory(&self) -> u64 {
        (self.encoder.memory_size() + self.encoder.inner().capacity()) as u64
    }

    /// Hands whole chunks to the storage.
    pub async fn store(&mut self, io: &FileIO) -> Result<()> {
        if self.encoder.inner().len() < CHUNK {
            return Ok(());
        }
        let bytes = std::mem::take(self.encoder.inner_mut());
        self.sent += bytes.len() as u64;
        self.out.send(io, &self.path, bytes).await
    }

    /// Encodes the footer. What is left to do is storing.
    pub fn finish(mut self) -> Result<Encoded> {
        self.make_room();
        let footer = self.encoder.finish().map_err(encoding(&self.path))?;
        let rest = std::mem::take(self.encoder.inner_mut());
        let size = self.sent + rest.len() as u64;
        Ok(Encoded { key: self.key, path: self.path, footer, size, rest, out: self.out })
    }
}

impl Encoded {
    /// Stores the rest. When it returns, the file is durable.
    pub async fn store(&mut self, io: &FileIO) -> Result<()> {
        let rest = std::mem::take(&mut self.rest);
        self.out.send(io, &self.path, rest).await?;
        std::mem::replace(&mut self.out, Out::Unopened).close(&self.path).await
    }
}

/// Where a file's bytes go.
enum Out {
    Unopened,
    /// A local disk takes whole chunks at once; the storage library would copy each into a buffer of its own that
    /// every open file keeps.
    Local(std::fs::File),
    Remote(Box<dyn FileWrite>),
}

impl Out {
    async fn send(&mut self, io: &FileIO, path: &str, bytes: Vec<u8>) -> Result<()> {
        if let Out::Unopened = self {
            *self = match local_path(path) {
                Some(local) => Out::Local(create(local).map_err(|e| local_error(e, path))?),
                None => {
                    let wrong = |e| error("cannot write a data file", e).with("path", path);
                    Out::Remote(io.new_output(path).map_err(wrong)?.writer().await.map_err(wrong)?)
                }
            };
        }
        match self {
            Out::Unopened => Ok(()),
            Out::Local(file) => file.write_all(&bytes).map_err(|e| local_error(e, path)),
            Out::Remote(out) => {
                out.write(Bytes::from(bytes)).await.map_err(|e| error("cannot write a data file", e).with("path", path))
            }
        }
    }

    /// When it returns, the file is durable.
    async fn close(self, path: &str) -> Result<()> {
        match self {
            Out::Unopened => Ok(()),
            // Waiting for the disk is not the worker's to do: the other files' waits go on beside it.
            Out::Local(file) => match tokio::task::spawn_blocking(move || file.sync_all()).await {
                Ok(synced) => synced.map_err(|e| local_error(e, path)),
                Err(e) => Err(Error::bug("syncing a data file ended early").with("path", path).because(e)),
            },
            Out::Remote(mut out) => out.close().await.map_err(|e| error("cannot write a data file", e).with("path", path)),
        }
    }
}

/// Encodes rows as one data file, with the settings that hold where a pipeline names none: its size. For measuring.
pub fn encode_once(rows: &RecordBatch) -> Result<u64> {
    let settings = serde_json::json!({"catalog": {"type": "sql", "uri": "sqlite:"}, "table": "measured.rows"});
    let config = serde_json::from_value(settings).map_err(|e| Error::bug("the settings lack something").because(e))?;
    let mut file = OpenFile::new(String::new(), None, rows.schema(), &properties(&config, rows)?)?;
    file.encode(rows, config.row_group_size.0)?;
    Ok(file.finish()?.size)
}

/// The path of a location on local disk. Iceberg for Java writes `file:/x`, others `file:///x`.
pub fn local_path(location: &str) -> Option<&str> {
    let rest = location.strip_prefix("file:")?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

fn create(path: &str) -> std::io::Result<std::fs::File> {
    if let Some(folder) = std::path::Path::new(path).parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::File::create_new(path)
}

fn local_error(cause: std::io::Error, path: &str) -> Error {
    let text = cause.to_string();
    error("cannot write a data file", iceberg::Error::new(iceberg::ErrorKind::Unexpected, text)).with("path", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_disk_is_known_by_either_way_of_writing_it() {
        let told = ["file:///w/x", "file:/w/x", "s3://w/x", "/w/x"].map(local_path);
        assert_eq!(told, [Some("/w/x"), Some("/w/x"), None, None]);
    }

    #[tokio::test]
    async fn a_file_at_a_java_catalogs_location_is_written_by_the_local_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("file:{}/data/x.parquet", folder.path().display());
        let mut out = Out::Unopened;
        out.send(&FileIO::new_with_memory(), &path, b"rows".to_vec()).await.unwrap();
        assert!(matches!(out, Out::Local(_)));
        out.close(&path).await.unwrap();
        assert_eq!(std::fs::read(folder.path().join("data/x.parquet")).unwrap(), b"rows");
    }

    #[test]
    fn compression_is_read_and_levels_are_checked() {
        assert_eq!(compression("zstd(3)").unwrap(), Compression::ZSTD(ZstdLevel::try_new(3).unwrap()));
        assert_eq!(compression("none").unwrap(), Compression::UNCOMPRESSED);
        for bad in ["zstd(99)", "gz", "zstd(x)"] {
            assert!(compression(bad).unwrap_err().to_string().contains("unknown compression"));
        }
    }
}
