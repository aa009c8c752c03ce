//! The format of a run: sections of records, then an index, then its length. All numbers are little-endian or LEB128.
//!
//! ```text
//! run     = section* index length:u64 "WEIRRUN1"
//! index   = count:u32 (group:u16 full:u8 from:i64 start:i64 end:i64 offset:u64 length:u64 hash:u64)*
//! section = record*
//! record  = kind:u8 key start end due rows firings flags:u8 parts part*
//! key     = 0, or 1 + length, then the bytes
//! part    = length, then the bytes
//! flags   = 1: has fired on time, 2: has changed since its last pane
//! ```
//! A section's hash is XXH3 of its bytes: a damaged run is told, never read as something else.

use crate::error::{Error, Result};
use crate::window::Slot;
use xxhash_rust::xxh3::xxh3_64;

/// The record replaces what older sections say of the key.
pub const PUT: u8 = 0;
/// Its fragments follow those of older sections.
pub const ADD: u8 = 1;
/// The key's window is gone.
pub const DROP: u8 = 2;

const MAGIC: &[u8; 8] = b"WEIRRUN1";
const INDEX_ENTRY: usize = 2 + 1 + 6 * 8;

/// One section of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Key group.
    pub group: u16,
    /// It holds everything: older sections don't count.
    pub full: bool,
    /// Which slice.
    pub slot: Slot,
    /// Where in the run.
    pub offset: u64,
    /// How long, in bytes.
    pub length: u64,
    /// Of its bytes.
    pub hash: u64,
}

impl Section {
    /// Whether these are the section's bytes.
    pub fn check(&self, bytes: &[u8]) -> Result<()> {
        match bytes.len() as u64 == self.length && xxh3_64(bytes) == self.hash {
            true => Ok(()),
            false => Err(damaged("a section's bytes are not those that were written")),
        }
    }
}

fn damaged(what: &str) -> Error {
    Error::corrupt("a run of the state is damaged: restore it, or start a new log").with("fault", what)
}

/// One record without its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `PUT`, `ADD` or `DROP`.
    pub kind: u8,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The window.
    pub start: i64,
    /// Its end.
    pub end: i64,
    /// When it is due.
    pub due: i64,
    /// Messages.
    pub rows: u64,
    /// Panes so far.
    pub firings: u32,
    /// It has fired on time.
    pub fired: bool,
    /// It has something that no pane has shown.
    pub changed: bool,
    /// Fragments that follow.
    pub parts: u32,
}

impl<'a> Record<'a> {
    /// A record that takes a window away.
    pub fn dropped(key: Option<&'a [u8]>, start: i64) -> Record<'a> {
        Record { kind: DROP, key, start, end: start, due: start, rows: 0, firings: 0, fired: false, changed: false, parts: 0 }
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number << 1 ^ number >> 63) as u64);
}

/// Writes a run.
#[derive(Default)]
pub struct Writer {
    out: Vec<u8>,
    index: Vec<Section>,
    begun: usize,
}

impl Writer {
    /// Begins a section.
    pub fn begin(&mut self) {
        self.begun = self.out.len();
    }

    /// Adds a record.
    pub fn push<'p>(&mut self, record: &Record<'_>, parts: impl Iterator<Item = &'p [u8]>) {
        let out = &mut self.out;
        out.push(record.kind);
        put(out, record.key.map_or(0, |key| 1 + key.len() as u64));
        out.extend_from_slice(record.key.unwrap_or_default());
        put_signed(out, record.start);
        put_signed(out, record.end);
        put_signed(out, record.due);
        put(out, record.rows);
        put(out, u64::from(record.firings));
        out.push(u8::from(record.fired) | u8::from(record.changed) << 1);
        put(out, u64::from(record.parts));
        for part in parts {
            put(out, part.len() as u64);
            out.extend_from_slice(part);
        }
    }

    /// Ends the section. `None`: nothing was written.
    pub fn end(&mut self, group: u16, slot: Slot, full: bool) -> Option<Section> {
        let bytes = &self.out[self.begun..];
        if bytes.is_empty() && !full {
            return None;
        }
        let (offset, length) = (self.begun as u64, bytes.len() as u64);
        let section = Section { group, full, slot, offset, length, hash: xxh3_64(bytes) };
        self.index.push(section);
        Some(section)
    }

    /// The run. `None`: there are no sections.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        if self.index.is_empty() {
            return None;
        }
        let begun = self.out.len();
        self.out.extend((self.index.len() as u32).to_le_bytes());
        for section in &self.index {
            self.out.extend(section.group.to_le_bytes());
            self.out.push(u8::from(section.full));
            for number in [section.slot.from, section.slot.start, section.slot.end] {
                self.out.extend(number.to_le_bytes());
            }
            for number in [section.offset, section.length, section.hash] {
                self.out.extend(number.to_le_bytes());
            }
        }
        let length = (self.out.len() - begun) as u64;
        self.out.extend(length.to_le_bytes());
        self.out.extend_from_slice(MAGIC);
        Some(self.out)
    }
}

/// From the last bytes of a run: how many of them its index takes, all in all. `None`: they are no run's.
pub fn index_bytes(tail: &[u8]) -> Option<u64> {
    let (rest, magic) = tail.split_last_chunk::<8>()?;
    let (_, length) = rest.split_last_chunk::<8>()?;
    (magic == MAGIC).then(|| u64::from_le_bytes(*length).saturating_add(16))
}

/// The sections of a run, from its last bytes: at least as many as [`index_bytes`] tells.
pub fn index_of_tail(tail: &[u8]) -> Result<Vec<Section>> {
    let short = || damaged("it is cut short");
    let length = index_bytes(tail).ok_or_else(|| damaged("it does not end as a run does"))?;
    let begun = (tail.len() as u64).checked_sub(length).ok_or_else(short)? as usize;
    let index = tail.get(begun..tail.len() - 16).ok_or_else(short)?;
    let (count, entries) = index.split_first_chunk::<4>().ok_or_else(short)?;
    if entries.len() != u32::from_le_bytes(*count) as usize * INDEX_ENTRY {
        return Err(damaged("its index has another length than it says"));
    }
    let section = |entry: &[u8]| {
        let number = |i: usize| -> [u8; 8] { std::array::from_fn(|byte| entry[3 + i * 8 + byte]) };
        let (signed, unsigned) = (|i| i64::from_le_bytes(number(i)), |i| u64::from_le_bytes(number(i)));
        Section {
            group: u16::from_le_bytes([entry[0], entry[1]]),
            full: entry[2] == 1,
            slot: Slot { from: signed(0), start: signed(1), end: signed(2) },
            offset: unsigned(3),
            length: unsigned(4),
            hash: unsigned(5),
        }
    };
    Ok(entries.chunks_exact(INDEX_ENTRY).map(section).collect())
}

/// Reads the records of a section.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the first record.
    pub fn new(section: &'a [u8]) -> Reader<'a> {
        Reader { rest: section }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or_else(|| damaged("a record is cut short"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(damaged("a number has too many bytes"))
    }

    fn signed(&mut self) -> Result<i64> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The next record with its fragments.
    #[allow(clippy::type_complexity)]
    pub fn next(&mut self) -> Result<Option<(Record<'a>, impl Iterator<Item = Result<&'a [u8]>> + use<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let kind = self.take(1)?[0];
        if kind > DROP {
            return Err(damaged("a record of an unknown kind"));
        }
        let key = match self.number()? {
            0 => None,
            length => Some(self.take(length - 1)?),
        };
        let (start, end, due) = (self.signed()?, self.signed()?, self.signed()?);
        let rows = self.number()?;
        let firings = u32::try_from(self.number()?).map_err(|_| damaged("a number of panes is too large"))?;
        let flags = self.take(1)?[0];
        let (fired, changed) = (flags & 1 != 0, flags & 2 != 0);
        let parts = u32::try_from(self.number()?).map_err(|_| damaged("a number of fragments is too large"))?;
        let record = Record { kind, key, start, end, due, rows, firings, fired, changed, parts };
        // The fragments are read twice: here to get past them, and by whoever wants them.
        let mut inside = Reader { rest: self.rest };
        for _ in 0..parts {
            let length = self.number()?;
            self.take(length)?;
        }
        let parts = (0..parts).map(move |_| {
            let length = inside.number()?;
            inside.take(length)
        });
        Ok(Some((record, parts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_is_read_as_it_was_written(
            keys in prop::collection::vec((prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), any::<i64>(), any::<u64>(),
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4)), 1..20)) {
            let mut writer = Writer::default();
            let slot = Slot { from: 3, start: -7, end: i64::MAX };
            writer.begin();
            for (key, time, rows, parts) in &keys {
                let record = Record { kind: PUT, key: key.as_deref(), start: *time, end: !*time, due: *time / 3, rows: *rows,
                    firings: 9, fired: rows % 2 == 0, changed: rows % 3 == 0, parts: parts.len() as u32 };
                writer.push(&record, parts.iter().map(Vec::as_slice));
            }
            let section = writer.end(5, slot, true).unwrap();
            let run = writer.finish().unwrap();
            prop_assert_eq!(index_of_tail(&run).unwrap(), vec![section]);
            let bytes = &run[section.offset as usize..(section.offset + section.length) as usize];
            section.check(bytes).unwrap();
            let mut reader = Reader::new(bytes);
            for (key, time, rows, parts) in &keys {
                let (record, read) = reader.next().unwrap().unwrap();
                prop_assert_eq!((record.key, record.start, record.end, record.rows), (key.as_deref(), *time, !*time, *rows));
                let read: Vec<Vec<u8>> = read.map(|part| part.unwrap().to_vec()).collect();
                prop_assert_eq!(&read, parts);
            }
            prop_assert!(reader.next().unwrap().is_none());
        }

        #[test]
        fn damaged_runs_are_refused_and_never_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300, flip in 0usize..300) {
            let _ = index_of_tail(&bytes);
            let mut reader = Reader::new(&bytes);
            while let Ok(Some((_, parts))) = reader.next() { parts.for_each(drop); }
            let mut writer = Writer::default();
            writer.begin();
            writer.push(&Record::dropped(Some(b"key"), 7), std::iter::empty());
            let section = writer.end(1, Slot { from: 0, start: 0, end: 0 }, false).unwrap();
            let mut run = writer.finish().unwrap();
            prop_assert!(index_of_tail(&run[..cut.min(run.len() - 1)]).is_err());
            let flip = flip % section.length as usize;
            run[flip] ^= 1;
            prop_assert!(section.check(&run[..section.length as usize]).is_err());
        }
    }
}
