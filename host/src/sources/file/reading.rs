//! One file on its way: opened at a position, checked to be the file that the position is of, read batch by batch. Blocking.

use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::runtime::Handle;
use xxhash_rust::xxh3::xxh3_64;

use super::Format;
use super::csv::Records;
use super::store::Files;
use crate::compression::Compression;
use crate::error::{Error, ErrorKind, Result};
use crate::sources::lines::{Lines, Part, TAIL, Window};

type Stream = Box<dyn Read + Send>;

/// How files are read: the same for all of a source.
#[derive(Clone)]
pub struct Settings {
    pub files: Files,
    pub format: Format,
    pub columns: Option<Vec<String>>,
    pub delimiter: u8,
    pub compression: Option<Compression>,
    pub limit: usize,
    pub runtime: Handle,
}

/// Where reading a file goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The file's number as a partition.
    pub partition: u32,
    /// Lines or records consumed.
    pub line: u64,
    /// Bytes consumed, after decompression.
    pub byte: u64,
    /// A hash of the last [`TAIL`] bytes before `byte`.
    pub tail: u64,
    /// Read to its end.
    pub done: bool,
}

impl Place {
    /// The beginning of a file.
    pub fn start(partition: u32) -> Place {
        Place { partition, line: 0, byte: 0, tail: xxh3_64(&[]), done: false }
    }

    /// Reads a place from a checkpoint.
    pub fn read(name: &str, value: &Value) -> Result<Place> {
        let read = || {
            Some(Place {
                partition: value["partition"].as_u64()?.try_into().ok()?,
                line: value["line"].as_u64()?,
                byte: value["byte"].as_u64()?,
                tail: value["tail"].as_u64()?,
                done: value["done"].as_bool()?,
            })
        };
        read().ok_or_else(|| {
            Error::corrupt(
                "the checkpoint holds no file's position under this source's name: was it another kind of source before?",
            )
            .with("file", name)
            .with("position", value)
        })
    }

    /// The place as a checkpoint keeps it.
    pub fn value(&self) -> Value {
        json!({"partition": self.partition, "line": self.line, "byte": self.byte, "tail": self.tail, "done": self.done})
    }
}

/// An open file.
pub struct Reading {
    name: String,
    partition: u32,
    stream: Cut,
}

/// By format.
// One for each open file.
#[allow(clippy::large_enum_variant)]
enum Cut {
    Lines(Lines<Stream>),
    Records(Records<Stream>),
}

impl Reading {
    /// Opens a file at `place`.
    pub fn open(settings: &Settings, name: &str, place: &Place) -> Result<Reading> {
        Reading::open_at(settings, name, place)
            .map_err(|e| Error::new(e.kind(), "cannot read the file").with("file", name).because(e))
    }

    fn open_at(settings: &Settings, name: &str, place: &Place) -> Result<Reading> {
        let window = window(settings, name, place)?;
        let stream = match settings.format {
            Format::Lines => Cut::Lines(Lines { window, line: place.line, limit: settings.limit, eager: false }),
            Format::Csv => {
                let mut records = Records::new(window, place.line, settings.delimiter, settings.limit);
                let columns = match &settings.columns {
                    Some(columns) => columns.clone(),
                    None if place.line == 0 => records.header()?,
                    None => {
                        let start = window_at_start(settings, name)?;
                        Records::new(start, 0, settings.delimiter, settings.limit).header()?
                    }
                };
                records.set_columns(&columns)?;
                Cut::Records(records)
            }
        };
        Ok(Reading { name: name.to_string(), partition: place.partition, stream })
    }

    /// What comes next, and where reading goes on after it; without anything the file is done.
    pub fn next(&mut self) -> Result<(Option<Part>, Place)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let part = match &mut self.stream {
            Cut::Lines(lines) => lines.part(self.partition, now),
            Cut::Records(records) => records.part(self.partition, now),
        };
        let mut part = part.map_err(|e| {
            let kind = damaged(&e).unwrap_or(e.kind());
            Error::new(kind, "cannot read the file").with("file", &self.name).because(e)
        })?;
        for reason in part.iter_mut().flat_map(|part| &mut part.rejected).flat_map(|rejected| &mut rejected.reasons) {
            reason.push_str(" file=");
            reason.push_str(&self.name);
        }
        let (line, window) = match &mut self.stream {
            Cut::Lines(lines) => (lines.line, &mut lines.window),
            Cut::Records(records) => (records.record, &mut records.window),
        };
        let tail = xxh3_64(window.tail());
        let place = Place { partition: self.partition, line, byte: window.byte(), tail, done: part.is_none() };
        Ok((part, place))
    }
}

/// A compressed file that is damaged or cut short, and an object that changed, stay so: trying again is no use.
fn damaged(error: &Error) -> Option<ErrorKind> {
    let cause = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    match cause.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => Some(ErrorKind::Corrupt),
        // How zstd tells of a frame that isn't one.
        io::ErrorKind::Other if cause.get_ref().is_none_or(|inner| !inner.is::<object_store::Error>()) => {
            Some(ErrorKind::Corrupt)
        }
        _ => None,
    }
}

fn gone(name: &str) -> Error {
    Error::corrupt("the file is gone, and was not read to its end: put it back, or give the pipeline a new name to begin anew")
        .with("file", name)
}

fn changed() -> Error {
    Error::corrupt(
        "the file is not the one that was read so far, or was cut short: put back what it was, or give the pipeline a new name to begin anew",
    )
}

fn window_at_start(settings: &Settings, name: &str) -> Result<Window<Stream>> {
    let (stream, _) = settings.files.open(name, 0, &settings.runtime)?.ok_or_else(|| gone(name))?;
    let mut window = Window::new(decompress(settings.compression(name), stream)?, 0, Vec::new());
    window.skip_byte_order_mark().map_err(|e| Error::transient("cannot read").because(e)).map_err(|e| match damaged(&e) {
        Some(kind) => e.as_kind(kind),
        None => e,
    })?;
    Ok(window)
}

/// The stream at a place, after a look at what stands before it.
fn window(settings: &Settings, name: &str, place: &Place) -> Result<Window<Stream>> {
    if place.byte == 0 {
        return window_at_start(settings, name);
    }
    let before = place.byte.min(TAIL as u64);
    let from = place.byte - before;
    let compression = settings.compression(name);
    let plain = compression == Compression::None;
    let (stream, length) =
        settings.files.open(name, if plain { from } else { 0 }, &settings.runtime)?.ok_or_else(|| gone(name))?;
    let mut stream = decompress(compression, stream)?;
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => changed().because(e),
        _ => Error::transient("cannot read").because(e),
    };
    if !plain {
        let skipped = io::copy(&mut stream.by_ref().take(from), &mut io::sink()).map_err(failed)?;
        if skipped < from {
            return Err(changed().with("byte", place.byte));
        }
    }
    let mut tail = vec![0; before as usize];
    stream.read_exact(&mut tail).map_err(failed)?;
    if xxh3_64(&tail) != place.tail {
        return Err(changed().with("byte", place.byte));
    }
    // A record may have been taken at the CR of its CRLF.
    let finished = tail.last() == Some(&b'\n') || (settings.format == Format::Csv && tail.last() == Some(&b'\r'));
    if plain && length > place.byte && !finished {
        return Err(Error::corrupt(
            "the file's last line was read unfinished, and has grown since: let only finished files be read",
        )
        .with("line", place.line));
    }
    Ok(Window::new(stream, place.byte, tail))
}

impl Settings {
    fn compression(&self, name: &str) -> Compression {
        self.compression.unwrap_or_else(|| Compression::of(name))
    }
}

fn decompress(compression: Compression, stream: Stream) -> Result<Stream> {
    Ok(match compression {
        Compression::None => stream,
        Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(stream)),
        Compression::Zstd => {
            Box::new(zstd::Decoder::new(stream).map_err(|e| Error::transient("cannot start to decompress").because(e))?)
        }
    })
}
