//! A byte stream cut into lines, for the sources that read text. Owns the window over the stream, where it
//! stands, the limit on a line, and the lines that can be no messages; knows nothing of files. Blocking.

use std::io::{self, Read};

use memchr::memchr;

use crate::batch::{Batch, BatchBuilder, Origin, Rejected};
use crate::error::{Error, Result};

/// Messages in one batch, at most.
pub const BATCH_ROWS: usize = 4_096;
/// Bytes in one batch, at most; a single message may be longer.
pub const BATCH_BYTES: usize = 1 << 20;
/// Bytes that are asked of the stream at a time.
const CHUNK: usize = 256 << 10;
/// Bytes before the position that are kept to recognise the stream by.
pub const TAIL: usize = 256;

/// The part of a stream that is in memory: what was read and not yet consumed.
pub struct Window<R> {
    reader: R,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes consumed since the stream's beginning.
    byte: u64,
    tail: Vec<u8>,
    /// Consumed bytes up to here are in `tail`.
    noted: usize,
}

impl<R: Read> Window<R> {
    /// A window at byte `byte` of a stream; `tail` is what stands before it.
    pub fn new(reader: R, byte: u64, tail: Vec<u8>) -> Window<R> {
        Window { reader, bytes: Vec::new(), start: 0, end: 0, byte, tail, noted: 0 }
    }

    /// What is there to be consumed.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Reads more behind what is there; false at the end of the stream.
    pub fn fill(&mut self) -> io::Result<bool> {
        self.note();
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        (self.start, self.noted) = (0, 0);
        if self.bytes.len() < self.end + CHUNK {
            // Doubling, so that a long line is not copied for each of its chunks.
            let wanted = (self.bytes.len() * 2).max(self.end + CHUNK);
            self.bytes.resize(wanted, 0);
        }
        loop {
            match self.reader.read(&mut self.bytes[self.end..]) {
                Ok(length) => {
                    self.end += length;
                    return Ok(length > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes `length` bytes off the front.
    pub fn consume(&mut self, length: usize) {
        self.start += length;
        self.byte += length as u64;
    }

    /// Takes off the mark that some programs put at the beginning of UTF-8 text. Reads no further than it takes to tell.
    pub fn skip_byte_order_mark(&mut self) -> io::Result<()> {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        while self.rest().len() < MARK.len() && MARK.starts_with(self.rest()) && self.fill()? {}
        if self.rest().starts_with(MARK) {
            self.consume(MARK.len());
        }
        Ok(())
    }

    /// Consumes a line and its newline, however long: its first `keep` bytes, and how many it has.
    pub fn skip_line(&mut self, keep: usize) -> io::Result<(Vec<u8>, u64)> {
        let (mut head, mut length) = (Vec::new(), 0);
        loop {
            let newline = memchr(b'\n', self.rest());
            let line = &self.rest()[..newline.unwrap_or(self.rest().len())];
            head.extend_from_slice(&line[..line.len().min(keep - head.len())]);
            let taken = line.len();
            length += taken as u64;
            self.consume(taken + usize::from(newline.is_some()));
            if newline.is_some() || !self.fill()? {
                return Ok((head, length));
            }
        }
    }

    /// Bytes consumed since the stream's beginning.
    pub fn byte(&self) -> u64 {
        self.byte
    }

    /// The last bytes consumed, at most [`TAIL`].
    pub fn tail(&mut self) -> &[u8] {
        self.note();
        &self.tail
    }

    fn note(&mut self) {
        let fresh = &self.bytes[self.noted..self.start];
        let fresh = &fresh[fresh.len().saturating_sub(TAIL)..];
        let surplus = (self.tail.len() + fresh.len()).saturating_sub(TAIL);
        self.tail.drain(..surplus.min(self.tail.len()));
        self.tail.extend_from_slice(fresh);
        self.noted = self.start;
    }
}

/// What was read at a time: messages, and what can be none.
pub struct Part {
    /// The messages.
    pub batch: Batch,
    /// What stood between them.
    pub rejected: Option<Rejected>,
}

/// Builds a part.
pub struct PartBuilder {
    messages: BatchBuilder,
    refused: BatchBuilder,
    reasons: Vec<String>,
}

impl PartBuilder {
    /// Without anything yet.
    pub fn new() -> PartBuilder {
        let (messages, refused) = (BatchBuilder::new(BATCH_ROWS, BATCH_BYTES), BatchBuilder::new(0, 0));
        PartBuilder { messages, refused, reasons: Vec::new() }
    }

    /// Adds a message.
    pub fn push(&mut self, value: &[u8], origin: Origin) {
        self.messages.push(None, Some(value), origin);
    }

    /// Adds what is no message, and why.
    pub fn refuse(&mut self, value: &[u8], origin: Origin, reason: String) {
        self.refused.push(None, Some(value), origin);
        self.reasons.push(reason);
    }

    /// True before anything was added.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.refused.is_empty()
    }

    /// True once a batch is full.
    pub fn is_full(&self) -> bool {
        self.messages.len() + self.refused.len() >= BATCH_ROWS || self.messages.bytes() + self.refused.bytes() >= BATCH_BYTES
    }

    /// The part, unless it is empty.
    pub fn finish(mut self, now_ms: i64) -> Option<Part> {
        if self.is_empty() {
            return None;
        }
        let rows = self.refused.finish(now_ms);
        let rejected = (!rows.is_empty()).then_some(Rejected { rows, reasons: self.reasons, module: None });
        Some(Part { batch: self.messages.finish(now_ms), rejected })
    }
}

/// Lines of a stream.
pub struct Lines<R> {
    /// The stream.
    pub window: Window<R>,
    /// Lines consumed since the stream's beginning.
    pub line: u64,
    /// Bytes that a line may have.
    pub limit: usize,
    /// Hand out what there is rather than wait for a full batch.
    pub eager: bool,
}

impl<R: Read> Lines<R> {
    /// The next lines as messages of `partition`; `None` at the end. The offset is the line, counted from 0. A line
    /// ends with LF or CRLF, the last one may lack it. Empty lines are counted and skipped, too long ones rejected.
    pub fn part(&mut self, partition: u32, now_ms: i64) -> Result<Option<Part>> {
        let mut part = PartBuilder::new();
        let failed = |e| Error::transient("cannot read").because(e);
        // Up to where the rest holds no newline.
        let mut searched = 0;
        while !part.is_full() {
            let origin = Origin { partition, offset: self.line as i64, published: now_ms };
            if let Some(length) = memchr(b'\n', &self.window.rest()[searched..]) {
                self.take(searched + length, 1, &mut part, origin);
                searched = 0;
                continue;
            }
            searched = self.window.rest().len();
            if self.eager && !part.is_empty() {
                break;
            }
            // One more: it may be the CR of a CRLF.
            if searched > self.limit + 1 {
                let byte = self.window.byte();
                let (head, length) = self.window.skip_line(self.limit).map_err(failed)?;
                part.refuse(&head, origin, self.too_long(byte, length));
                self.line += 1;
                searched = 0;
            } else if !self.window.fill().map_err(failed)? {
                if searched > 0 {
                    self.take(searched, 0, &mut part, origin);
                }
                break;
            }
        }
        Ok(part.finish(now_ms))
    }

    /// Consumes a line of `length` bytes and its `newline`.
    fn take(&mut self, length: usize, newline: usize, part: &mut PartBuilder, origin: Origin) {
        let line = &self.window.rest()[..length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.limit {
            part.refuse(&line[..self.limit], origin, self.too_long(self.window.byte(), line.len() as u64));
        } else if !line.is_empty() {
            part.push(line, origin);
        }
        self.window.consume(length + newline);
        self.line += 1;
    }

    fn too_long(&self, byte: u64, length: u64) -> String {
        let (line, limit) = (self.line + 1, self.limit);
        format!(
            "the line is longer than `max_line`, and only its beginning is here: line={line} byte={byte} bytes={length} limit={limit}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out its bytes in pieces.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            out[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn lines(pieces: &[&[u8]], limit: usize, eager: bool) -> Lines<Pieces> {
        let reader = Pieces(pieces.iter().map(|piece| piece.to_vec()).collect());
        let mut window = Window::new(reader, 0, Vec::new());
        window.skip_byte_order_mark().unwrap();
        Lines { window, line: 0, limit, eager }
    }

    fn values(batch: &Batch) -> Vec<(i64, String)> {
        (0..batch.len()).map(|i| (batch.offsets[i], String::from_utf8(batch.value(i).unwrap().to_vec()).unwrap())).collect()
    }

    fn all(lines: &mut Lines<Pieces>) -> Vec<(i64, String)> {
        let mut found = Vec::new();
        while let Some(part) = lines.part(0, 0).unwrap() {
            found.extend(values(&part.batch));
        }
        found
    }

    #[test]
    fn lines_are_the_same_however_the_stream_is_cut() {
        let text = "\u{feff}one\r\n\r\n\ntwo ü\nthree".as_bytes();
        for size in 1..text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            let mut lines = lines(&pieces, 100, false);
            assert_eq!(all(&mut lines), [(0, "one".into()), (3, "two ü".into()), (4, "three".into())], "{size}");
            assert_eq!((lines.window.byte(), lines.line), (text.len() as u64, 5));
            assert_eq!(lines.window.tail(), text);
        }
    }

    #[test]
    fn the_tail_is_what_was_consumed_last() {
        let text: Vec<u8> = (0..300).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for size in [1, 7, 255, 256, 257, 5_000] {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            let mut lines = lines(&pieces, 100, true);
            while lines.part(0, 0).unwrap().is_some() {
                let end = lines.window.byte() as usize;
                assert_eq!(lines.window.tail(), &text[end.saturating_sub(TAIL)..end]);
            }
        }
    }

    #[test]
    fn an_eager_reader_hands_out_a_line_as_soon_as_it_is_there() {
        let mut lines = lines(&[b"a\nb", b"c\nd\n", b"e"], 100, true);
        let mut sizes = Vec::new();
        while let Some(part) = lines.part(0, 0).unwrap() {
            sizes.push(part.batch.len());
        }
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn a_line_over_the_limit_is_rejected_and_the_next_ones_are_read() {
        for pieces in [&[&b"abc\nabcdef\nx"[..]][..], &[b"abc\nab", b"cde", b"f\nx"], &[b"abc\nabc", b"d", b"ef\n", b"x\n"]] {
            let mut lines = lines(pieces, 3, false);
            let part = lines.part(0, 0).unwrap().unwrap();
            assert_eq!(values(&part.batch), [(0, "abc".into()), (2, "x".into())]);
            let rejected = part.rejected.unwrap();
            assert_eq!(values(&rejected.rows), [(1, "abc".into())]);
            let reason = "the line is longer than `max_line`, and only its beginning is here: line=2 byte=4 bytes=6 limit=3";
            assert_eq!(rejected.reasons, [reason]);
            assert!(lines.part(0, 0).unwrap().is_none());
            assert_eq!(lines.line, 3);
        }
        assert_eq!(all(&mut lines(&[b"abc\r\nabc\r\n"], 3, false)).len(), 2);
        let last = lines(&[b"abcd"], 3, false).part(0, 0).unwrap().unwrap();
        assert_eq!((last.batch.len(), values(&last.rejected.unwrap().rows)), (0, vec![(0, "abc".into())]));
    }

    #[test]
    fn a_batch_ends_at_its_rows_and_bytes() {
        let many = "x\n".repeat(BATCH_ROWS + 1);
        let mut small = lines(&[many.as_bytes()], 10, false);
        assert_eq!(small.part(0, 0).unwrap().unwrap().batch.len(), BATCH_ROWS);
        assert_eq!(small.part(0, 0).unwrap().unwrap().batch.len(), 1);
        assert!(small.part(0, 0).unwrap().is_none());
        let long = format!("{}\n", "x".repeat(100_000));
        let pieces: Vec<&[u8]> = vec![long.as_bytes(); 20];
        assert_eq!(lines(&pieces, 200_000, false).part(0, 0).unwrap().unwrap().batch.len(), BATCH_BYTES.div_ceil(100_000));
    }
}
