//! What aggregators of a field have in common: the settings `field`, `missing` and `invalid`, and what they do.
//!
//! * `field`: a JSON pointer into the message (no `*`); of a name that occurs twice the last counts.
//! * `missing`: what becomes of a message without the field, with `null` in it, or without a value (a tombstone):
//!   `skip` (default) leaves it out, `reject` sends it to the dead letters.
//! * `invalid`: the same for a field that holds something else than the aggregator takes; here `reject` is the default.
//!
//! A message that is not JSON goes to the dead letters in any case.

use serde::Deserialize;
use weir_udf::Message;
use weir_udf::json::{self, inner, is_number, quote, unescape};

/// What becomes of a message that cannot be taken.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Otherwise {
    /// It is left out.
    Skip,
    /// It goes to the dead letters.
    Reject,
}

/// The default of `missing`.
pub fn skip() -> Otherwise {
    Otherwise::Skip
}

/// The default of `invalid`.
pub fn reject() -> Otherwise {
    Otherwise::Reject
}

/// A field that is looked up in messages.
#[derive(Debug)]
pub struct Field {
    pointer: json::Field,
    /// The pointer as it is written.
    name: String,
    missing: Otherwise,
    invalid: Otherwise,
    scratch: Vec<u8>,
    text: Vec<u8>,
}

impl Field {
    /// From the settings.
    pub fn new(name: String, missing: Otherwise, invalid: Otherwise) -> Result<Field, String> {
        let pointer = json::Field::new(&name).map_err(|why| format!("config: field: {why}"))?;
        if name.split('/').any(|step| step == "*") {
            return Err(format!("config: field: `{name}` must lead to one value: it cannot hold `*`"));
        }
        Ok(Field { pointer, name, missing, invalid, scratch: Vec::new(), text: Vec::new() })
    }

    /// The field's value as it stands; `None` for a message that is left out.
    fn find<'a>(&mut self, message: &Message<'a>) -> Result<Option<&'a [u8]>, String> {
        let found = match message.value() {
            Some(text) => self.pointer.find(text)?,
            None => None,
        };
        match found.filter(|value| *value != b"null") {
            None if self.missing == Otherwise::Reject => Err(format!("the field {} is missing", self.name)),
            found => Ok(found),
        }
    }

    /// The field's number as text; a string that holds nothing but a number is one. `None` for a message that is left out.
    pub fn number<'a>(&mut self, message: &Message<'a>) -> Result<Option<&'a str>, String> {
        let Some(value) = self.find(message)? else { return Ok(None) };
        let text = inner(value).unwrap_or(value);
        match std::str::from_utf8(text) {
            Ok(number) if is_number(text) => Ok(Some(number)),
            _ => self.invalid("no number"),
        }
    }

    /// The field's value as JSON text, so that equal values are equal bytes: escapes in strings are written in one
    /// way. Numbers are as they stand, so 1 and 1.0 differ. `None` for a message that is left out.
    pub fn value<'s, 'a: 's>(&'s mut self, message: &Message<'a>) -> Result<Option<&'s [u8]>, String> {
        let Some(value) = self.find(message)? else { return Ok(None) };
        let Some(escaped) = inner(value).filter(|inner| inner.contains(&b'\\')) else { return Ok(Some(value)) };
        let Field { scratch, text, .. } = self;
        text.clear();
        quote(&String::from_utf8_lossy(unescape(escaped, scratch)), |piece| text.extend_from_slice(piece));
        Ok(Some(text))
    }

    /// What becomes of a message whose field is not what it should be.
    pub fn invalid<T>(&self, why: &str) -> Result<Option<T>, String> {
        match self.invalid {
            Otherwise::Skip => Ok(None),
            Otherwise::Reject => Err(format!("the field {} is {why}", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::{Batch, Column};

    fn field(missing: Otherwise, invalid: Otherwise) -> Field {
        Field::new("/x".to_string(), missing, invalid).unwrap()
    }

    /// Runs a look-up on a message of this text; an absent one is a tombstone.
    fn with<R>(text: Option<&str>, look: impl FnOnce(&Message<'_>) -> R) -> R {
        let bytes = text.unwrap_or_default().as_bytes().to_vec();
        let ends = text.map(|text| text.len() as u32).into_iter().collect();
        let values = Column { bytes, ends, present: vec![] };
        look(&Batch { values, event_times: vec![0], ..Batch::default() }.message(0))
    }

    #[test]
    fn numbers_are_taken_from_numbers_and_strings() {
        let mut field = field(Otherwise::Skip, Otherwise::Reject);
        let mut number = |text| with(text, |message| field.number(message).map(|n| n.map(str::to_string)));
        assert_eq!(number(Some(r#"{"x":-1.50}"#)), Ok(Some("-1.50".to_string())));
        assert_eq!(number(Some(r#"{"x":"12e3"}"#)), Ok(Some("12e3".to_string())));
        for nothing in [Some("{}"), Some(r#"{"x":null}"#), Some("1"), None] {
            assert_eq!(number(nothing), Ok(None), "{nothing:?}");
        }
        for wrong in [r#"{"x":"1 "}"#, r#"{"x":true}"#, r#"{"x":[1]}"#, r#"{"x":""}"#] {
            assert_eq!(number(Some(wrong)), Err("the field /x is no number".to_string()), "{wrong}");
        }
        assert!(number(Some("{")).unwrap_err().starts_with("not JSON"));
    }

    #[test]
    fn the_settings_say_what_becomes_of_the_others() {
        let mut strict = field(Otherwise::Reject, Otherwise::Skip);
        let mut number = |text| with(text, |message| strict.number(message).map(|n| n.map(str::to_string)));
        assert_eq!(number(None), Err("the field /x is missing".to_string()));
        assert_eq!(number(Some("{}")), Err("the field /x is missing".to_string()));
        assert_eq!(number(Some(r#"{"x":true}"#)), Ok(None));
        let refusal = |name: &str| Field::new(name.to_string(), skip(), reject()).unwrap_err();
        assert!(refusal("/a/*").contains("cannot hold `*`"));
        assert!(refusal("a").contains("is no JSON pointer"));
    }

    #[test]
    fn equal_strings_are_equal_bytes_however_they_are_escaped() {
        let mut field = field(Otherwise::Skip, Otherwise::Reject);
        let mut value = |text| with(Some(text), |message| field.value(message).map(|v| v.map(<[u8]>::to_vec)));
        let plain = value(r#"{"x":"a/\"b"}"#).unwrap();
        assert_eq!(plain.as_deref(), Some(&br#""a/\"b""#[..]));
        assert_eq!(value(r#"{"x":"\u0061\/\"b"}"#).unwrap(), plain);
        assert_eq!(value(r#"{"x":{"y":1}}"#).unwrap().as_deref(), Some(&br#"{"y":1}"#[..]));
        assert_eq!(value(r#"{"x":null}"#).unwrap(), None);
    }
}
