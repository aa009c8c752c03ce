//! A byte stream cut into lines, for the sources that read text. Owns the window over the stream, where it
//! stands, and the limit on a line; knows nothing of files. Blocking.

use std::io::{self, Read};

use memchr::memchr;

use crate::batch::{Batch, BatchBuilder, Origin};
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
    /// ends with LF or CRLF, the last one may lack it. Empty lines are counted and skipped.
    pub fn batch(&mut self, partition: u32, now_ms: i64) -> Result<Option<Batch>> {
        let mut builder = BatchBuilder::new(BATCH_ROWS, BATCH_BYTES);
        let failed = |e| Error::transient("cannot read").because(e);
        // Up to where the rest holds no newline.
        let mut searched = 0;
        while builder.len() < BATCH_ROWS && builder.bytes() < BATCH_BYTES {
            if let Some(length) = memchr(b'\n', &self.window.rest()[searched..]) {
                self.take(searched + length, 1, &mut builder, partition, now_ms)?;
                searched = 0;
                continue;
            }
            searched = self.window.rest().len();
            // One more: it may be the CR of a CRLF.
            if searched > self.limit + 1 {
                return Err(self.too_long());
            }
            if self.eager && !builder.is_empty() {
                break;
            }
            if !self.window.fill().map_err(failed)? {
                if searched > 0 {
                    self.take(searched, 0, &mut builder, partition, now_ms)?;
                }
                return Ok((!builder.is_empty()).then(|| builder.finish(now_ms)));
            }
        }
        Ok(Some(builder.finish(now_ms)))
    }

    /// Consumes a line of `length` bytes and its `newline`.
    fn take(&mut self, length: usize, newline: usize, builder: &mut BatchBuilder, partition: u32, now_ms: i64) -> Result<()> {
        let line = &self.window.rest()[..length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.limit {
            return Err(self.too_long());
        }
        if !line.is_empty() {
            builder.push(None, Some(line), Origin { partition, offset: self.line as i64, published: now_ms });
        }
        self.window.consume(length + newline);
        self.line += 1;
        Ok(())
    }

    fn too_long(&self) -> Error {
        Error::config("a line is longer than `max_line`: raise it, or mend the line")
            .with("line", self.line + 1)
            .with("limit", self.limit)
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

    fn all(lines: &mut Lines<Pieces>) -> Vec<(i64, String)> {
        let mut found = Vec::new();
        while let Some(batch) = lines.batch(0, 0).unwrap() {
            found.extend(
                (0..batch.len()).map(|i| (batch.offsets[i], String::from_utf8(batch.value(i).unwrap().to_vec()).unwrap())),
            );
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
            while lines.batch(0, 0).unwrap().is_some() {
                let end = lines.window.byte() as usize;
                assert_eq!(lines.window.tail(), &text[end.saturating_sub(TAIL)..end]);
            }
        }
    }

    #[test]
    fn an_eager_reader_hands_out_a_line_as_soon_as_it_is_there() {
        let mut lines = lines(&[b"a\nb", b"c\nd\n", b"e"], 100, true);
        let mut sizes = Vec::new();
        while let Some(batch) = lines.batch(0, 0).unwrap() {
            sizes.push(batch.len());
        }
        assert_eq!(sizes, [1, 2, 1]);
    }

    #[test]
    fn a_line_over_the_limit_is_named() {
        for pieces in [&[&b"abc\nabcd\n"[..]][..], &[b"abc\nab", b"cd"], &[b"abc\nabcd"]] {
            let mut lines = lines(pieces, 3, false);
            let error = lines.batch(0, 0).unwrap_err();
            assert_eq!(error.to_string(), "a line is longer than `max_line`: raise it, or mend the line line=2 limit=3");
        }
        assert_eq!(all(&mut lines(&[b"abc\r\nabc\r\n"], 3, false)).len(), 2);
    }

    #[test]
    fn a_batch_ends_at_its_rows_and_bytes() {
        let many = "x\n".repeat(BATCH_ROWS + 1);
        let mut small = lines(&[many.as_bytes()], 10, false);
        assert_eq!(small.batch(0, 0).unwrap().unwrap().len(), BATCH_ROWS);
        assert_eq!(small.batch(0, 0).unwrap().unwrap().len(), 1);
        assert!(small.batch(0, 0).unwrap().is_none());
        let long = format!("{}\n", "x".repeat(100_000));
        let pieces: Vec<&[u8]> = vec![long.as_bytes(); 20];
        assert_eq!(lines(&pieces, 200_000, false).batch(0, 0).unwrap().unwrap().len(), BATCH_BYTES.div_ceil(100_000));
    }
}
