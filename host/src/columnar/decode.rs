//! Decodes the JSON messages of a batch into columns, one pass over the bytes. Owns the going through blocks and rows
//! and the reasons for refusing a whole message; values are read in `read`.

use std::ops::Range;

use arrow_array::{Array, BinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::parse::Cursor;
use super::read::Reader;
use super::schema::{Field, Schema};
use super::tree::Group;
use super::unknown::Unknown;
use crate::batch::Batch;
use crate::error::{Error, Result};

/// Bytes that are checked, read and copied together: they should stay in the processor's nearest caches.
const BLOCK: usize = 32 << 10;

/// How messages are decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Infer the types of unknown fields at the top of messages: see [`Decoded::new_fields`].
    pub report_new_fields: bool,
    /// Stop reading a message at the last field of the schema. The rest is neither checked nor counted, so whatever is
    /// decoded this way has to be decoded in full somewhere else.
    pub partial: bool,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Decoded {
    /// The messages that fit the schema, in order.
    pub rows: RecordBatch,
    /// Which message of the batch each of the rows was; ascending.
    pub taken: Vec<u32>,
    /// The other messages of the batch and why they don't fit; ascending.
    pub rejected: Vec<(u32, String)>,
    /// How many fields the messages taken have that the schema doesn't.
    pub unknown_fields: u64,
    /// The first of them.
    pub unknown_sample: Option<String>,
    /// Of them, if [`Options::report_new_fields`] asked for it, those that can become columns: optional, without ids,
    /// of type boolean, long, double or string, as in all messages of the batch.
    pub new_fields: Vec<Field>,
}

/// Decodes batches by one schema. Keeps its buffers' sizes from batch to batch.
pub struct Decoder {
    schema: SchemaRef,
    group: Group,
    options: Options,
    scratch: String,
}

impl Decoder {
    /// A decoder for messages of this schema.
    pub fn new(schema: &Schema, options: Options) -> Result<Decoder> {
        Ok(Decoder { schema: schema.arrow(), group: Group::new(&schema.fields), options, scratch: String::new() })
    }

    /// The schema of the decoded rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Decodes a batch. A message that doesn't fit is in [`Decoded::rejected`]; an error is a mistake of ours.
    pub fn decode(&mut self, batch: &Batch) -> Result<Decoded> {
        let mut unknown = Unknown::new(self.options.report_new_fields);
        let mut out = Rows { taken: Vec::with_capacity(batch.len()), rejected: Vec::new() };
        let values = &batch.values;
        let offsets = values.value_offsets();
        let bytes = values.value_data();
        let mut first = 0;
        while first < values.len() {
            let begin = offsets[first] as usize;
            let mut end = first + 1;
            while end < values.len() && offsets[end + 1] as usize - begin <= BLOCK {
                end += 1;
            }
            let block =
                bytes.get(begin..offsets[end] as usize).ok_or_else(|| Error::bug("a batch's offsets lie outside its data"))?;
            let rows = first..end;
            match simdutf8::basic::from_utf8(block) {
                Ok(block) => self.block(values, rows, block, &mut unknown, &mut out),
                Err(_) => {
                    for row in rows {
                        self.suspect(values, row, &mut unknown, &mut out);
                    }
                }
            }
            first = end;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(out.taken.len()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), self.group.finish()?, &options);
        Ok(Decoded {
            rows: rows.map_err(|e| Error::bug("the decoded columns make no batch").because(e))?,
            taken: out.taken,
            rejected: out.rejected,
            unknown_fields: unknown.count,
            unknown_sample: unknown.sample.take(),
            new_fields: unknown.finish(),
        })
    }
}

/// What became of the rows so far.
struct Rows {
    taken: Vec<u32>,
    rejected: Vec<(u32, String)>,
}

impl Decoder {
    /// Decodes rows whose values lie one behind the other in `block`.
    fn block(&mut self, values: &BinaryArray, rows: Range<usize>, block: &str, unknown: &mut Unknown, out: &mut Rows) {
        let offsets = values.value_offsets();
        let begin = offsets[rows.start] as usize;
        let partial = self.options.partial;
        let mut reader = Reader { cursor: Cursor::new(block), block, base: 0, unknown, scratch: &mut self.scratch, partial };
        for row in rows {
            let (start, end) = (offsets[row] as usize - begin, offsets[row + 1] as usize - begin);
            let read = match block.get(start..end) {
                _ if values.is_null(row) => Err(TOMBSTONE.into()),
                Some(text) => reader.message(&mut self.group, text, start, out.taken.len()).map_err(|fault| fault.into_reason()),
                None => Err(not_utf8(values.value(row))),
            };
            reader.unknown.end_row(read.is_ok());
            match read {
                Ok(()) => out.taken.push(row as u32),
                Err(reason) => {
                    self.group.truncate(out.taken.len());
                    out.rejected.push((row as u32, reason));
                }
            }
        }
        self.group.copy(block);
    }

    /// Decodes one row of a block in which something is not UTF-8.
    fn suspect(&mut self, values: &BinaryArray, row: usize, unknown: &mut Unknown, out: &mut Rows) {
        match std::str::from_utf8(values.value(row)) {
            Ok(text) => self.block(values, row..row + 1, text, unknown, out),
            Err(_) if values.is_null(row) => out.rejected.push((row as u32, TOMBSTONE.into())),
            Err(_) => out.rejected.push((row as u32, not_utf8(values.value(row)))),
        }
    }
}

const TOMBSTONE: &str = "the message has no value (a tombstone)";

#[cold]
fn not_utf8(value: &[u8]) -> String {
    let at = std::str::from_utf8(value).map_or_else(|e| e.valid_up_to(), str::len);
    format!("not UTF-8 at={at}")
}
