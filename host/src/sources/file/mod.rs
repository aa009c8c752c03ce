//! The `file` source: lines or CSV records of files, local or in an object store, each read once to its end.
//!
//! Which files there are is settled when the pipeline's log begins, and kept in its first manifest: what comes
//! to a folder later is for another pipeline. A line or record that can be no message is a dead letter. Each file is a partition, numbered in the order of the
//! names. A position is a byte and a line, with a hash of the bytes before it, by which a file that was
//! changed is told from the one that was read.

mod csv;
mod glob;
mod reading;
mod source;
mod store;

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use xxhash_rust::xxh3::xxh3_64;

use self::reading::{Place, Settings};
use self::source::Source;
use self::store::Files;
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::source::{self as trait_of, Position, Slice, SourceConnector};
use crate::units::Size;

/// Settings of the `file` source.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A file or a pattern: on local disk, `s3://bucket/…` or `gs://bucket/…`. `*`, `?` and `[a-z]` stand for characters of a name,
    /// `**` for any folders. The files are settled when the pipeline first starts.
    path: String,
    /// What a file holds. Default: by its ending, `.csv` (also before `.gz` and `.zst`), else `json_lines`.
    #[serde(default)]
    format: Option<Format>,
    /// Names of the columns of CSV files without a header. Default: each file's first record names them.
    #[serde(default)]
    columns: Option<Vec<String>>,
    /// What separates the fields of CSV files. Default: `,`.
    #[serde(default)]
    delimiter: Option<char>,
    /// Default: by each file's ending, `.gz` or `.zst`, else none.
    #[serde(default)]
    compression: Option<Compression>,
    /// Bytes that a line or record may have; a longer one is rejected, and of its line only so many are kept.
    #[serde(default = "default_max_line")]
    max_line: Size,
    /// Options of the object store, by object_store's names. Credentials are taken from the environment too.
    #[serde(default)]
    options: BTreeMap<String, String>,
}

fn default_max_line() -> Size {
    Size(16 << 20)
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// A message a line, taken as it is. Empty lines are skipped, and so is a byte order mark.
    #[serde(rename = "json_lines", alias = "lines")]
    Lines,
    /// A message a record: a JSON object with the columns' names and, as strings, the fields. A record with more or fewer fields than
    /// there are columns is rejected; where a quote is never closed, the line with the quote is.
    Csv,
}

/// A configured file source.
pub struct Connector {
    files: Files,
    format: Format,
    columns: Option<Vec<String>>,
    delimiter: u8,
    compression: Option<Compression>,
    limit: usize,
}

impl Connector {
    /// Checks the settings. Connects to nothing.
    pub fn new(config: Config, name: impl Into<String>) -> Result<Connector> {
        Connector::build(config)
            .map_err(|e| Error::new(e.kind(), "the file source's settings are wrong").with("source", name.into()).because(e))
    }

    fn build(config: Config) -> Result<Connector> {
        let format = config.format.unwrap_or(if Compression::plain_name(&config.path).ends_with(".csv") {
            Format::Csv
        } else {
            Format::Lines
        });
        if format == Format::Lines && (config.columns.is_some() || config.delimiter.is_some()) {
            return Err(Error::config("`columns` and `delimiter` are for CSV: add `format: csv`"));
        }
        if config.columns.as_ref().is_some_and(Vec::is_empty) {
            return Err(Error::config("`columns` names no column: leave it out if the files have a header"));
        }
        let delimiter = config.delimiter.unwrap_or(',');
        if !delimiter.is_ascii() || ['"', '\r', '\n'].contains(&delimiter) {
            return Err(
                Error::config("`delimiter` is one ASCII character, not a quote and not a newline").with("delimiter", delimiter)
            );
        }
        if config.max_line.0 == 0 || config.max_line.0 > 1 << 30 {
            return Err(Error::config("`max_line` is out of range: from 1B to 1GiB").with("max_line", config.max_line));
        }
        Ok(Connector {
            files: Files::new(&config.path, &config.options)?,
            format,
            columns: config.columns,
            delimiter: delimiter as u8,
            compression: config.compression,
            limit: config.max_line.0 as usize,
        })
    }

    /// Whether there is any file at all.
    pub async fn finds_any(&self) -> Result<bool> {
        Ok(!self.files.found().await?.is_empty())
    }
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "file"
    }

    async fn check(&self) -> Result<()> {
        self.files.list().await.map(drop)
    }

    async fn start(&self, task: u32, tasks: u32) -> Result<Position> {
        let mut position = Position::default();
        // By the name's hash, so that tasks that list at different moments agree on whose a file is.
        let names =
            self.files.list().await?.into_iter().filter(|name| xxh3_64(name.as_bytes()) % u64::from(tasks) == u64::from(task));
        for (number, name) in names.enumerate() {
            position.0.insert(name, Place::start(number as u32 * tasks + task).value());
        }
        Ok(position)
    }

    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn trait_of::Source>> {
        let start;
        let position = match position.0.is_empty() {
            true => {
                start = self.start(slice.task, slice.tasks).await?;
                &start
            }
            false => position,
        };
        let mut files = Vec::new();
        for (name, value) in &position.0 {
            let place = Place::read(name, value)?;
            if slice.owns(place.partition) {
                files.push((name.clone(), place));
            }
        }
        files.sort_by_key(|(_, place)| place.partition);
        let settings = Settings {
            files: self.files.clone(),
            format: self.format,
            columns: self.columns.clone(),
            delimiter: self.delimiter,
            compression: self.compression,
            limit: self.limit,
            runtime: Handle::current(),
        };
        Ok(Box::new(Source::new(settings, files)))
    }
}

#[cfg(test)]
mod tests;
