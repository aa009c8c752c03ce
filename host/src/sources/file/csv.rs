//! CSV records as JSON objects: each column's name with the field's text. Quoting by RFC 4180. Blocking.

use std::io::Read;

use csv_core::ReadRecordResult;

use crate::batch::{Batch, BatchBuilder, Origin};
use crate::error::{Error, Result};
use crate::sources::lines::{BATCH_BYTES, BATCH_ROWS, Window};

/// Records of a stream.
pub struct Records<R> {
    /// The stream.
    pub window: Window<R>,
    /// Records consumed since the stream's beginning, the header included.
    pub record: u64,
    limit: usize,
    parser: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
    /// For each column what stands before its value: `{"a":`, `,"b":`.
    before: Vec<Vec<u8>>,
    json: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Records of a stream from which `record` records were consumed. `limit` holds for the bytes of one.
    pub fn new(window: Window<R>, record: u64, delimiter: u8, limit: usize) -> Records<R> {
        let parser = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
        Records {
            window,
            record,
            limit,
            parser,
            fields: vec![0; 1 << 10],
            ends: vec![0; 64],
            before: Vec::new(),
            json: Vec::new(),
        }
    }

    /// Names the columns.
    pub fn set_columns(&mut self, columns: &[String]) -> Result<()> {
        self.before.clear();
        for (number, column) in columns.iter().enumerate() {
            if column.is_empty() || columns[..number].contains(column) {
                return Err(Error::config("each column needs a name of its own: mend the header, or set `columns`")
                    .with("column", number + 1)
                    .with("found", format!("`{column}`")));
            }
            let mut text = if number == 0 { b"{".to_vec() } else { b",".to_vec() };
            string(column, &mut text)?;
            text.push(b':');
            self.before.push(text);
        }
        Ok(())
    }

    /// Reads the header: the next record as names.
    pub fn header(&mut self) -> Result<Vec<String>> {
        let Some(count) = self.next()? else {
            return Err(Error::config("the file is empty, where the header was expected: set `columns` if there is none"));
        };
        (0..count).map(|number| self.field(number).map(str::to_string)).collect()
    }

    /// The next records as messages of `partition`; `None` at the end. The offset is the record, the header counted.
    pub fn batch(&mut self, partition: u32, now_ms: i64) -> Result<Option<Batch>> {
        let mut builder = BatchBuilder::new(BATCH_ROWS, BATCH_BYTES);
        while builder.len() < BATCH_ROWS && builder.bytes() < BATCH_BYTES {
            let offset = self.record as i64;
            let Some(count) = self.next()? else { break };
            if count != self.before.len() {
                return Err(self
                    .wrong("the record has another number of fields than there are columns: mend it, or set `columns`")
                    .with("fields", count)
                    .with("columns", self.before.len()));
            }
            let mut json = std::mem::take(&mut self.json);
            json.clear();
            for number in 0..count {
                json.extend_from_slice(&self.before[number]);
                string(self.field(number)?, &mut json)?;
            }
            json.push(b'}');
            builder.push(None, Some(&json), Origin { partition, offset, published: now_ms });
            self.json = json;
        }
        Ok((!builder.is_empty()).then(|| builder.finish(now_ms)))
    }

    /// Parses the next record into `fields` and `ends`: the number of its fields. `None` at the end.
    fn next(&mut self) -> Result<Option<usize>> {
        let (mut written, mut count, mut ended) = (0, 0, false);
        let start = self.window.byte();
        loop {
            if self.window.rest().is_empty() && !ended {
                ended = !self.window.fill().map_err(|e| Error::transient("cannot read").because(e))?;
            }
            let (result, read, wrote, ends) =
                self.parser.read_record(self.window.rest(), &mut self.fields[written..], &mut self.ends[count..]);
            self.window.consume(read);
            (written, count) = (written + wrote, count + ends);
            if self.window.byte() - start > self.limit as u64 {
                return Err(self
                    .wrong("a record is longer than `max_line`: raise it, or look for a quote that is never closed")
                    .with("limit", self.limit));
            }
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record => {
                    self.record += 1;
                    return Ok(Some(count));
                }
                ReadRecordResult::End => return Ok(None),
            }
        }
    }

    fn field(&self, number: usize) -> Result<&str> {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        std::str::from_utf8(&self.fields[start..self.ends[number]]).map_err(|e| {
            // The record was counted already.
            let record = self.record;
            Error::config("the record is not UTF-8: convert the file, for example with iconv")
                .with("record", record)
                .with("field", number + 1)
                .because(e)
        })
    }

    fn wrong(&self, message: &str) -> Error {
        Error::config(message).with("record", self.record)
    }
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, text).map_err(|e| Error::bug("cannot write text as JSON").because(e))
}
