//! By what messages are put together: fields, an attribute, or the message's own key.

use crate::batch::Batch;
use crate::columnar::Extractor;
use crate::error::Result;

/// See the module.
#[derive(Clone, Debug)]
pub enum Key {
    /// All messages have the same.
    None,
    /// Fields of a JSON message: the text of one as it is written, or a JSON array of several.
    Fields {
        /// Their JSON pointers.
        pointers: Vec<String>,
        /// Finds them.
        extractor: Extractor,
    },
    /// The bytes of an attribute.
    Attribute(String),
    /// The bytes of the message's key; messages without one are together.
    Message,
}

impl Key {
    /// A key of fields.
    pub fn fields(pointers: Vec<String>) -> Result<Key> {
        let extractor = Extractor::new(pointers.iter().map(String::as_str))?;
        Ok(Key::Fields { pointers, extractor })
    }
}

/// The keys of a batch in one buffer.
#[derive(Default)]
pub struct Keys {
    bytes: Vec<u8>,
    /// Where each key ends; `None`: the message has no key.
    spans: Vec<Option<(u32, u32)>>,
}

impl Keys {
    /// The key of a row.
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        self.spans[row].map(|(start, end)| &self.bytes[start as usize..end as usize])
    }

    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() as u32;
        write(&mut self.bytes);
        self.spans.push(Some((start, self.bytes.len() as u32)));
    }

    /// Finds the keys of all rows; `reject` takes those that have none, with the reason.
    pub fn find(&mut self, key: &Key, batch: &Batch, mut reject: impl FnMut(u32, String)) {
        self.bytes.clear();
        self.spans.clear();
        match key {
            Key::None => self.spans.resize(batch.len(), None),
            Key::Message => {
                (0..batch.len()).for_each(|row| match batch.key(row) {
                    Some(key) => self.push(|out| out.extend_from_slice(key)),
                    None => self.spans.push(None),
                });
            }
            Key::Attribute(name) => {
                for row in 0..batch.len() {
                    match batch.attributes.of(row as u32).find(|(found, _)| found == name) {
                        Some((_, Some(value))) => self.push(|out| out.extend_from_slice(value)),
                        _ => {
                            self.spans.push(None);
                            reject(row as u32, format!("the message has no key: no attribute {name}"));
                        }
                    }
                }
            }
            Key::Fields { pointers, extractor } => extractor.each(batch, |row, found| match found {
                Err(reason) => {
                    self.spans.push(None);
                    reject(row as u32, reason);
                }
                Ok(found) => match found.iter().position(|text| text.is_none_or(|text| text.starts_with(['{', '[']))) {
                    Some(bad) => {
                        self.spans.push(None);
                        let what = if found[bad].is_none() { "missing or null" } else { "an object or array" };
                        reject(row as u32, format!("the message has no key: the field is {what} pointer={}", pointers[bad]));
                    }
                    None => self.push(|out| match found {
                        [Some(one)] => canonical(one, out),
                        several => {
                            for (i, text) in several.iter().enumerate() {
                                out.push(if i == 0 { b'[' } else { b',' });
                                canonical(text.unwrap_or("null"), out);
                            }
                            out.push(b']');
                        }
                    }),
                },
            }),
        }
    }
}

/// A scalar's JSON text; of strings with escapes the shortest, so that the same string is the same key.
fn canonical(text: &str, out: &mut Vec<u8>) {
    if text.contains('\\')
        && let Ok(plain) = serde_json::from_str::<String>(text)
        && let Ok(short) = serde_json::to_string(&plain)
    {
        out.extend_from_slice(short.as_bytes());
        return;
    }
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    #[test]
    fn keys_are_the_text_of_their_fields() {
        let mut builder = BatchBuilder::new(8, 0);
        for message in [r#"{"a":"x","b":1}"#, r#"{"b":2,"a":"\u0078"}"#, r#"{"a":null,"b":3}"#, r#"{"a":{},"b":4}"#, "nonsense"] {
            builder.push(Some(b"own"), Some(message.as_bytes()), Origin::default());
        }
        let batch = builder.finish(0);
        let (mut keys, mut rejected) = (Keys::default(), Vec::new());
        keys.find(&Key::fields(vec!["/a".into()]).unwrap(), &batch, |row, reason| rejected.push((row, reason)));
        assert_eq!((keys.get(0), keys.get(1)), (Some(&b"\"x\""[..]), Some(&b"\"x\""[..])), "however it is escaped");
        let reasons: Vec<&str> = rejected.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(rejected[0].0, 2);
        assert!(reasons[0].ends_with("the field is missing or null pointer=/a"), "{reasons:?}");
        assert!(reasons[1].contains("an object or array") && reasons[2].contains("not JSON"), "{reasons:?}");
        keys.find(&Key::fields(vec!["/a".into(), "/b".into()]).unwrap(), &batch, |_, _| {});
        assert_eq!(keys.get(1), Some(&b"[\"x\",2]"[..]));
        keys.find(&Key::Message, &batch, |_, _| panic!());
        assert_eq!(keys.get(4), Some(&b"own"[..]));
    }
}
