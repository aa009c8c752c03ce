//! CSV records as JSON objects: each column's name with the field's text. Quoting by RFC 4180. What is no record is told
//! apart line by line, untouched. Blocking.

use std::io::Read;

use csv_core::ReadRecordResult;

use crate::batch::Origin;
use crate::error::{Error, Result};
use crate::sources::lines::{Part, PartBuilder, Window};

/// What comes next in the stream.
enum Record {
    /// A record of so many fields.
    Fields(usize),
    /// Something that is none, and why.
    Broken(String),
    End,
}

/// Records of a stream.
pub struct Records<R> {
    /// The stream.
    pub window: Window<R>,
    /// Records consumed since the stream's beginning, the header included.
    pub record: u64,
    delimiter: u8,
    limit: usize,
    /// Bytes of the window that the record parsed last takes.
    length: usize,
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
            delimiter,
            limit,
            length: 0,
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
        let count = match self.next()? {
            Record::Fields(count) => count,
            Record::Broken(why) => return Err(Error::config(format!("the header can't be read: {why}"))),
            Record::End => {
                return Err(Error::config("the file is empty, where the header was expected: set `columns` if there is none"));
            }
        };
        let names: std::result::Result<_, _> = (0..count).map(|number| self.field(number).map(str::to_string)).collect();
        self.window.consume(self.length);
        self.record += 1;
        names.map_err(|why| Error::config(format!("the header can't be read: {why}")))
    }

    /// The next records as messages of `partition`; `None` at the end. The offset is the record, the header counted.
    pub fn part(&mut self, partition: u32, now_ms: i64) -> Result<Option<Part>> {
        let mut part = PartBuilder::new();
        while !part.is_full() {
            let origin = Origin { partition, offset: self.record as i64, published: now_ms };
            match self.next()? {
                Record::End => break,
                Record::Broken(why) => {
                    // Where it would have ended nobody can tell: its first line is given up, the next one begins a record.
                    let (line, _) = self.window.skip_line(self.limit).map_err(unreadable)?;
                    self.parser.reset();
                    part.refuse(line.strip_suffix(b"\r").unwrap_or(&line), origin, self.reason(&why));
                }
                Record::Fields(count) => {
                    match self.object(count)? {
                        Ok(()) => part.push(&self.json, origin),
                        Err(why) => {
                            let record = self.window.rest()[..self.length].trim_ascii_end();
                            part.refuse(record, origin, self.reason(&why));
                        }
                    }
                    self.window.consume(self.length);
                }
            }
            self.record += 1;
        }
        Ok(part.finish(now_ms))
    }

    /// Writes the fields into `json`, or says why they are none.
    fn object(&mut self, count: usize) -> Result<std::result::Result<(), String>> {
        if count != self.before.len() {
            let columns = self.before.len();
            return Ok(Err(format!(
                "the record has another number of fields than there are columns: fields={count} columns={columns}"
            )));
        }
        let mut json = std::mem::take(&mut self.json);
        json.clear();
        for number in 0..count {
            json.extend_from_slice(&self.before[number]);
            match self.field(number) {
                Ok(text) => string(text, &mut json)?,
                Err(why) => return Ok(Err(why)),
            }
        }
        json.push(b'}');
        self.json = json;
        Ok(Ok(()))
    }

    /// Parses the next record into `fields` and `ends`. It stays in the window: `length` is what it takes there.
    fn next(&mut self) -> Result<Record> {
        self.skip_blank_lines()?;
        let (mut written, mut count, mut ended) = (0, 0, false);
        self.length = 0;
        loop {
            if self.window.rest().len() == self.length && !ended {
                ended = !self.window.fill().map_err(unreadable)?;
            }
            let rest = &self.window.rest()[self.length..];
            let (result, read, wrote, ends) = self.parser.read_record(rest, &mut self.fields[written..], &mut self.ends[count..]);
            self.length += read;
            (written, count) = (written + wrote, count + ends);
            if self.length > self.limit {
                return Ok(Record::Broken(format!(
                    "the record is longer than `max_line`, or a quote is never closed; here is its first line: limit={}",
                    self.limit
                )));
            }
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::Record if ended && self.is_open() => {
                    return Ok(Record::Broken("a quote is never closed; here is the record's first line".to_string()));
                }
                ReadRecordResult::Record => return Ok(Record::Fields(count)),
                ReadRecordResult::End => return Ok(Record::End),
            }
        }
    }

    /// Whether the record parsed last ends within quotes, which only the end of the input makes of it.
    fn is_open(&self) -> bool {
        let (mut open, mut field_begins) = (false, true);
        let mut bytes = self.window.rest()[..self.length].iter().peekable();
        while let Some(byte) = bytes.next() {
            if open {
                open = *byte != b'"' || bytes.next_if_eq(&&b'"').is_some();
            } else {
                open = field_begins && *byte == b'"';
                field_begins = *byte == self.delimiter;
            }
        }
        open
    }

    /// Empty lines are no records, nor part of the next one.
    fn skip_blank_lines(&mut self) -> Result<()> {
        loop {
            let blank = self.window.rest().iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.window.consume(blank);
            if !self.window.rest().is_empty() || !self.window.fill().map_err(unreadable)? {
                return Ok(());
            }
        }
    }

    fn field(&self, number: usize) -> std::result::Result<&str, String> {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        std::str::from_utf8(&self.fields[start..self.ends[number]])
            .map_err(|_| format!("the record is not UTF-8: convert the file, for example with iconv: field={}", number + 1))
    }

    fn reason(&self, why: &str) -> String {
        format!("{why} record={}", self.record + 1)
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::transient("cannot read").because(error)
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    serde_json::to_writer(out, text).map_err(|e| Error::bug("cannot write text as JSON").because(e))
}
