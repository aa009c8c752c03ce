//! Fields of messages that the schema doesn't name: counted, one shown, and on demand given a type so that a sink can
//! add columns for them.

use super::number;
use super::parse::{Cursor, Parsed, Text};
use super::schema::{Field, Kind};

/// Most new fields that one batch may bring: a table is not widened by whoever sends random keys.
pub const MAX_NEW_FIELDS: usize = 64;

/// Longest name of a new field, in bytes.
const MAX_NAME: usize = 128;

/// What a batch's unknown fields come to.
pub struct Unknown {
    /// Whether new fields are to be inferred.
    report: bool,
    /// In messages that were taken.
    pub count: u64,
    /// The pointer and value of the first.
    pub sample: Option<String>,
    /// New fields of messages that were taken; the type is none where they differ.
    found: Vec<(String, Option<Kind>)>,
    row_count: u64,
    row_sample: Option<String>,
    row_found: Vec<(String, Kind)>,
}

impl Unknown {
    pub fn new(report: bool) -> Unknown {
        Unknown { report, count: 0, sample: None, found: Vec::new(), row_count: 0, row_sample: None, row_found: Vec::new() }
    }

    /// Goes past the value of an unknown field at the cursor.
    pub fn skip(&mut self, name: Text, cursor: &mut Cursor<'_>) -> Parsed {
        let start = cursor.at();
        let first = cursor.peek();
        cursor.skip()?;
        self.row_count += 1;
        if self.sample.is_none() && self.row_sample.is_none() {
            self.row_sample = Some(format!("pointer={} found={}", cursor.pointer(), cursor.found(start)));
        }
        if self.report
            && cursor.depth() == 1
            && let Some(kind) = infer(first, cursor.slice(start, cursor.at()))
        {
            let mut scratch = String::new();
            let name = cursor.resolve(name, &mut scratch);
            if is_column_name(name) {
                self.row_found.push((name.to_string(), kind));
            }
        }
        Ok(())
    }

    /// Keeps or forgets what the message had.
    #[inline(always)]
    pub fn end_row(&mut self, taken: bool) {
        if self.row_count > 0 {
            self.settle(taken);
        }
    }

    #[inline(never)]
    fn settle(&mut self, taken: bool) {
        let (count, sample) = (std::mem::take(&mut self.row_count), self.row_sample.take());
        let mut found = std::mem::take(&mut self.row_found);
        if taken {
            self.count += count;
            self.sample = self.sample.take().or(sample);
            for (name, kind) in found.drain(..) {
                let full = self.found.len() == MAX_NEW_FIELDS;
                match self.found.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, merged)) => *merged = merged.take().and_then(|known| merge(known, kind)),
                    None if full => {}
                    None => self.found.push((name, Some(kind))),
                }
            }
        }
        found.clear();
        self.row_found = found;
    }

    /// The new fields, optional and without ids; ready for the next batch afterwards.
    pub fn finish(&mut self) -> Vec<Field> {
        let found = std::mem::take(&mut self.found);
        found.into_iter().filter_map(|(name, kind)| Some(Field::new(name, kind?, false))).collect()
    }
}

/// The type of a value, if it has a plain one. A whole number beyond 64 bits has none: a double would change it.
fn infer(first: u8, text: &str) -> Option<Kind> {
    match first {
        b'"' => Some(Kind::String),
        b't' | b'f' => Some(Kind::Boolean),
        b'{' | b'[' | b'n' => None,
        _ if text.contains(['.', 'e', 'E']) => text.parse::<f64>().ok().filter(|d| d.is_finite()).map(|_| Kind::Double),
        _ => number::scaled(text, 0).ok().and_then(|value| i64::try_from(value).ok()).map(|_| Kind::Long),
    }
}

fn merge(a: Kind, b: Kind) -> Option<Kind> {
    match (a, b) {
        (a, b) if a == b => Some(a),
        (Kind::Long | Kind::Double, Kind::Long | Kind::Double) => Some(Kind::Double),
        _ => None,
    }
}

/// Names that every reader of a table can cope with: a dot would look like a path.
fn is_column_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME && !name.contains(|c: char| c == '.' || c.is_control())
}
