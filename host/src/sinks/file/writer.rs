//! One worker's part of a file sink: rows to lines to a file that nobody sees, staged at each barrier.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use flate2::write::GzEncoder;
use serde_json::json;

use super::committer::Work;
use super::local;
use super::path::{Staged, Target};
use super::place::Place;
use crate::batch::{Batch, Rejected};
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::sink::{self, Epoch, Identity, Prepared};
use crate::sinks::encode::{Format, encode};

/// Lines are collected to this many bytes before they are handed to the file.
const CHUNK: usize = 256 << 10;

/// What a writer is made from.
pub struct Settings {
    pub target: Target,
    pub place: Place,
    pub identity: Identity,
    pub worker: u32,
    pub format: Format,
    pub compression: Compression,
    /// Where the file lies until it is staged.
    pub spool: PathBuf,
    /// Ask for a barrier at this many bytes.
    pub limit: Option<u64>,
}

/// See the module.
pub struct Writer {
    settings: Settings,
    open: Option<Open>,
    lines: Vec<u8>,
}

/// The file of the current epoch: there from its first row on.
struct Open {
    out: Encoder,
    path: PathBuf,
    rows: u64,
    bytes: u64,
}

enum Encoder {
    Plain(File),
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

impl Encoder {
    fn new(file: File, compression: Compression) -> std::io::Result<Encoder> {
        Ok(match compression {
            Compression::None => Encoder::Plain(file),
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Compression::Zstd => Encoder::Zstd(zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Encoder::Plain(file) => file.write_all(bytes),
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> std::io::Result<File> {
        match self {
            Encoder::Plain(file) => Ok(file),
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Zstd(encoder) => encoder.finish(),
        }
    }
}

impl Writer {
    pub fn new(settings: Settings) -> Writer {
        Writer { settings, open: None, lines: Vec::new() }
    }

    fn failed(path: &Path, error: std::io::Error) -> Error {
        local::failed("cannot write rows", path, error)
    }

    fn open(&mut self) -> Result<&mut Open> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let path = self.settings.spool.join(Staged::open(&self.settings.identity, self.settings.worker));
                let out = (|| {
                    let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
                    if self.settings.target.remote {
                        // A spool is read back through its handle: without a name it can't be left behind.
                        std::fs::remove_file(&path)?;
                    }
                    Encoder::new(file, self.settings.compression)
                })();
                Open { out: out.map_err(|e| Writer::failed(&path, e))?, path, rows: 0, bytes: 0 }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Hands the collected lines to the file.
    fn flush(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        open.out.write_all(&self.lines).map_err(|e| Writer::failed(&open.path, e))?;
        open.bytes += self.lines.len() as u64;
        self.lines.clear();
        Ok(())
    }
}

#[async_trait]
impl sink::Writer for Writer {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        let rejected = encode(self.settings.format, &batch, &mut self.lines)?;
        let rows = batch.len() as u64 - rejected.iter().map(|rejected| rejected.rows.len() as u64).sum::<u64>();
        if rows > 0 {
            self.open()?.rows += rows;
        }
        if self.lines.len() >= CHUNK {
            self.flush()?;
        }
        Ok(rejected)
    }

    async fn prepare(&mut self, epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        self.flush()?;
        let Some(open) = self.open.take() else { return Ok((None, Vec::new())) };
        let Settings { target, place, identity, worker, .. } = &self.settings;
        let file = open.out.finish().map_err(|e| Writer::failed(&open.path, e))?;
        let staged = Staged::work(identity, epoch, *worker);
        let bytes = place.stage(file, &open.path, &format!("{}/{staged}", Target::staging(identity))).await?;
        let name = target.expand(identity, epoch, *worker);
        let before = match target.has_epoch() {
            true => None,
            false => Some(place.length(&name).await?.unwrap_or(0)),
        };
        let work = Work { folder: target.folder.clone(), staged, target: name, worker: *worker, rows: open.rows, bytes, before };
        Ok((Some(Prepared(json!(work))), Vec::new()))
    }

    fn wants_barrier(&self) -> bool {
        let written = self.open.as_ref().map_or(0, |open| open.bytes);
        self.settings.limit.is_some_and(|limit| written + self.lines.len() as u64 >= limit)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            // Rows of an epoch that will never be: what can't be removed now is swept by the next run.
            let _ = std::fs::remove_file(&open.path);
        }
    }
}
