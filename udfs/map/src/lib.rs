//! Gives JSON messages another shape: picks, renames, moves and casts fields, adds constants, and lifts
//! the key, an attribute or a time into a field.
//!
//! ```yaml
//! steps:
//!   - name: shape
//!     transform: map.wasm
//!     config:
//!       fields:
//!         /id: /id                                             # as it is
//!         /log_stream_id: {from: /logStreamId, cast: integer}
//!         /request/path: {from: /http/0/path, missing: reject} # moved, into an object of its own
//!         /origin: {value: web}
//!         /trace: {attribute: traceparent}
//!         /customer: {take: key}
//!         /at: {take: event_time_ms}
//!       others: drop
//!       missing: omit
//!       invalid: reject
//! ```
//!
//! `fields`: where each field of the new message comes from, in the order in which they will stand. The
//! name is a JSON pointer: steps after the first lie in objects of their own. `""` makes the field the whole
//! message. A bare string is short for `from`. One of:
//!
//! * `from`: a JSON pointer into the message (no `*`). The value is copied as it stands; of a name that
//!   occurs twice the last counts.
//! * `value`: any JSON value.
//! * `attribute`: the text of the message's attribute of that name.
//! * `take`: `key` (text), `event_time_ms` or `received_ms` (milliseconds since the Unix epoch).
//!
//! `cast` (not with `value`): `string`, `integer`, `decimal` or `boolean`. Digits are never rounded: no
//! number goes through a float. A string becomes a number if it is one (`"007"` is 7, `"+1.50"` is 1.50); a
//! number becomes an `integer` if nothing but zeros follow its point; anything becomes a `string`. `null`
//! stays `null`.
//!
//! `missing`, for all fields or for one: what becomes of a field whose source is not there. `omit`
//! (default), `null`, or `reject`, which sends the message to the dead letters.
//!
//! `invalid`: what becomes of a field that cannot be cast: `reject` (default) or `null`.
//!
//! `others`: what becomes of all other fields. `drop` (default), or `keep`: they stay as and where they
//! are, moved ones are taken out, and the new ones, which must be top-level, come behind. A new field
//! replaces an old one of the same name, unless it is missing and omitted.
//!
//! A message that is not JSON goes to the dead letters, and so does, with `others: keep`, one that is no
//! object. A tombstone goes on.

mod cast;
mod config;
mod shape;

use weir_udf::json::{Found, Paths, quote};
use weir_udf::{Emitter, Message, Transform, Value};

use cast::Cast;
use config::{Invalid, Missing};
use shape::Piece;

/// Where a field comes from.
enum Origin {
    /// The pointer with this number.
    Path(usize),
    /// JSON text.
    Constant(Vec<u8>),
    Attribute(String),
    Key,
    EventTime,
    Received,
}

/// One field of the new message.
struct Field {
    /// The pointer of the new field, for reasons.
    to: String,
    origin: Origin,
    cast: Option<Cast>,
    missing: Missing,
    /// The pointer of the old field of this name, if other fields are kept.
    old: Option<usize>,
}

struct Map {
    fields: Vec<Field>,
    invalid: Invalid,
    paths: Paths,
    shape: Vec<Piece>,
    keep: bool,
    work: Work,
}

/// Buffers that are used again for each message.
#[derive(Default)]
struct Work {
    found: Found,
    /// Where the value of each pointer lies; an empty span: nowhere.
    spans: Vec<(usize, usize)>,
    scratch: Vec<u8>,
}

impl Transform for Map {
    type Config = config::Config;

    fn new(config: config::Config) -> Result<Self, String> {
        config.build()
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        let Some(text) = message.value() else {
            out.forward();
            return Ok(());
        };
        let Work { found, spans, .. } = &mut self.work;
        self.paths.find(text, found)?;
        spans.fill((0, 0));
        for hit in &found.hits {
            spans[hit.path] = (hit.start, hit.end);
        }
        out.try_write(|value| match self.keep {
            true => self.keep(&message, text, value),
            false => self.shape(&message, text, value),
        })
    }
}

impl Map {
    /// Writes a message of nothing but the fields.
    fn shape(&mut self, message: &Message<'_>, text: &[u8], value: &mut Value<'_>) -> Result<(), String> {
        let Map { fields, invalid, shape, work, .. } = self;
        // At the start of an object no comma is due.
        let mut comma = false;
        for piece in shape.iter() {
            match piece {
                Piece::Open(name) => {
                    push_name(name, comma, value);
                    value.push(b"{");
                    comma = false;
                }
                Piece::Close => {
                    value.push(b"}");
                    comma = true;
                }
                Piece::Field(number, name) => {
                    comma |= fields[*number].write(name, comma, message, text, *invalid, work, value)?;
                }
                Piece::Whole(number) => {
                    if !fields[*number].write(b"", false, message, text, *invalid, work, value)? {
                        return Err("the field that is to be the whole message is missing".to_string());
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the message without what is moved or replaced, and the fields behind it.
    fn keep(&mut self, message: &Message<'_>, text: &[u8], value: &mut Value<'_>) -> Result<(), String> {
        let text = text.trim_ascii();
        let Map { fields, invalid, shape, work, .. } = self;
        let offset = message.value().map_or(0, |all| all.len() - all.trim_ascii_start().len());
        if text.first() != Some(&b'{') {
            return Err("the message is no object: other fields cannot be kept".to_string());
        }
        // Up to the closing brace; cuts and spans count from the start of the whole message.
        let close = text.len() - 1;
        let (mut at, mut comma) = (1, false);
        value.push(b"{");
        for cut in &work.found.cuts {
            let piece = &text[at..cut.start - offset];
            comma |= !piece.trim_ascii().is_empty();
            value.push(piece);
            at = cut.end - offset;
        }
        let piece = text[at..close].trim_ascii_end();
        comma |= !piece.is_empty();
        value.push(piece);
        for piece in shape.iter() {
            if let Piece::Field(number, name) = piece {
                comma |= fields[*number].write(name, comma, message, message.value().unwrap_or(text), *invalid, work, value)?;
            }
        }
        value.push(b"}");
        Ok(())
    }
}

/// Writes a member's name, which has its quotes and colon already.
#[inline]
fn push_name(name: &[u8], comma: bool, value: &mut Value<'_>) {
    if comma {
        value.push(b",");
    }
    value.push(name);
}

impl Field {
    /// Writes the field behind its name. False: it is missing and was omitted.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        name: &[u8],
        comma: bool,
        message: &Message<'_>,
        text: &[u8],
        invalid: Invalid,
        work: &mut Work,
        value: &mut Value<'_>,
    ) -> Result<bool, String> {
        let span = |path: usize| Some(work.spans[path]).filter(|(start, end)| start < end);
        let result = match &self.origin {
            Origin::Path(path) => match span(*path) {
                Some((start, end)) => {
                    push_name(name, comma, value);
                    match self.cast {
                        None => {
                            value.push(&text[start..end]);
                            return Ok(true);
                        }
                        Some(cast) => cast.json(&text[start..end], &mut work.scratch, value),
                    }
                }
                None => return self.missing(name, comma, text, work, value),
            },
            Origin::Constant(constant) => {
                push_name(name, comma, value);
                value.push(constant);
                return Ok(true);
            }
            Origin::Attribute(attribute) => match message.attribute(attribute) {
                Some(bytes) => self.text(name, comma, bytes, value)?,
                None => return self.missing(name, comma, text, work, value),
            },
            Origin::Key => match message.key() {
                Some(bytes) => self.text(name, comma, bytes, value)?,
                None => return self.missing(name, comma, text, work, value),
            },
            Origin::EventTime => self.time(name, comma, message.event_time_ms(), value),
            Origin::Received => self.time(name, comma, message.received_ms(), value),
        };
        match result {
            Ok(()) => Ok(true),
            Err(_) if invalid == Invalid::Null => {
                value.push(b"null");
                Ok(true)
            }
            Err(why) => Err(format!("the field {} cannot be made: {why}", self.to)),
        }
    }

    /// Text that is not JSON: as a string, or cast.
    fn text(&self, name: &[u8], comma: bool, bytes: &[u8], value: &mut Value<'_>) -> Result<cast::Outcome, String> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Err(format!("the field {} cannot be made: not UTF-8", self.to));
        };
        push_name(name, comma, value);
        Ok(match self.cast {
            None | Some(Cast::String) => {
                quote(text, |piece| value.push(piece));
                Ok(())
            }
            Some(cast) => cast.text(bytes, value),
        })
    }

    fn time(&self, name: &[u8], comma: bool, time_ms: i64, value: &mut Value<'_>) -> cast::Outcome {
        push_name(name, comma, value);
        let mut digits = itoa::Buffer::new();
        let number = digits.format(time_ms).as_bytes();
        match self.cast {
            None => {
                value.push(number);
                Ok(())
            }
            Some(cast) => cast.json(number, &mut Vec::new(), value),
        }
    }

    fn missing(&self, name: &[u8], comma: bool, text: &[u8], work: &Work, value: &mut Value<'_>) -> Result<bool, String> {
        match self.missing {
            Missing::Reject => Err(format!("the source of the field {} is missing", self.to)),
            Missing::Null => {
                push_name(name, comma, value);
                value.push(b"null");
                Ok(true)
            }
            Missing::Omit => match self.old.map(|path| work.spans[path]) {
                Some((start, end)) if start < end => {
                    push_name(name, comma, value);
                    value.push(&text[start..end]);
                    Ok(true)
                }
                _ => Ok(false),
            },
        }
    }
}

weir_udf::export!(Map);

#[cfg(test)]
mod tests;
