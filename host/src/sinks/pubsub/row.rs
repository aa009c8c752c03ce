//! From a row to a message, and which rows no topic takes: what Pub/Sub would refuse is known before it is sent, so that one row
//! does not fail the others of its request. The limits are <https://cloud.google.com/pubsub/quotas#resource_limits>.

use std::collections::HashMap;

use arrow_buffer::Buffer;
use bytes::Bytes;
use google_cloud_pubsub::model::Message;

use crate::batch::Batch;

const MESSAGE_BYTES_MAX: usize = 10_000_000;
const ATTRIBUTES_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 1_024;
const KEY_BYTES_MAX: usize = 1_024;
/// A message's other fields, and a request's.
const OVERHEAD: usize = 4_096;

/// Why no attribute can have this name.
pub fn bad_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("an attribute of a Pub/Sub message has a name"),
        _ if name.len() > NAME_BYTES_MAX => Some("the name of a Pub/Sub attribute has at most 256 bytes"),
        _ if name.starts_with("goog") => Some("names of Pub/Sub attributes that begin with `goog` are Google's"),
        _ => None,
    }
}

/// How keys are written.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// As the ordering key.
    pub ordering: bool,
    /// As the value of this attribute.
    pub attribute: Option<String>,
}

struct Payloads(Buffer);

impl AsRef<[u8]> for Payloads {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The buffer of a batch's payloads, for messages to share.
pub fn payloads(batch: &Batch) -> Bytes {
    Bytes::from_owner(Payloads(batch.values.values().clone()))
}

/// The message of a row, with the bytes that it takes; else why the row can be none. `values` are the batch's payloads.
pub fn message(batch: &Batch, row: usize, values: &Bytes, keys: &Keys) -> Result<(Message, usize), String> {
    let text = |what: &str, bytes: &[u8]| {
        simdutf8::basic::from_utf8(bytes).map(str::to_string).map_err(|_| format!("{what} of a Pub/Sub message is text in UTF-8"))
    };
    let mut attributes: HashMap<String, String> = HashMap::new();
    let mut bytes = OVERHEAD;
    let mut attribute = |name: &str, value: &[u8]| {
        if let Some(why) = bad_name(name) {
            return Err(format!("{why}: {name}"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("the value of a Pub/Sub attribute has at most {VALUE_BYTES_MAX} bytes: {name}"));
        }
        bytes += name.len() + value.len() + 8;
        match attributes.insert(name.to_string(), text("an attribute", value)?) {
            Some(_) => Err(format!("a Pub/Sub message has each attribute once: {name}")),
            None => Ok(()),
        }
    };
    if !batch.attributes.is_empty() {
        for (name, value) in batch.attributes.of(row as u32) {
            attribute(name, value.unwrap_or_default())?;
        }
    }
    let key = batch.key(row);
    if let (Some(name), Some(key)) = (&keys.attribute, key) {
        attribute(name, key)?;
    }
    if attributes.len() > ATTRIBUTES_MAX {
        return Err(format!("a Pub/Sub message has at most {ATTRIBUTES_MAX} attributes"));
    }
    let data = match batch.value(row) {
        Some(_) => {
            let ends = batch.values.value_offsets();
            values.slice(ends[row] as usize..ends[row + 1] as usize)
        }
        None => Bytes::new(),
    };
    if data.is_empty() && attributes.is_empty() {
        return Err("a Pub/Sub message has a payload or an attribute".to_string());
    }
    bytes += data.len();
    let mut message = Message::new().set_data(data).set_attributes(attributes);
    if let (true, Some(key)) = (keys.ordering, key) {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("an ordering key has at most {KEY_BYTES_MAX} bytes"));
        }
        bytes += key.len();
        message = message.set_ordering_key(text("the ordering key", key)?);
    }
    if bytes > MESSAGE_BYTES_MAX {
        return Err(format!("a Pub/Sub message has at most {MESSAGE_BYTES_MAX} bytes"));
    }
    Ok((message, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn one(key: Option<&[u8]>, value: Option<&[u8]>, attributes: &[(&str, &[u8])], keys: &Keys) -> Result<Message, String> {
        let mut builder = BatchBuilder::new(0, 0);
        builder.push(None, Some(b"another"), Origin::default());
        builder.push(key, value, Origin::default());
        attributes.iter().for_each(|(name, value)| builder.attribute(name, Some(value)));
        // A part of a batch: its payloads don't begin where the buffer does.
        let batch = builder.finish(0).slice(1, 1);
        message(&batch, 0, &payloads(&batch), keys).map(|(message, _)| message)
    }

    #[test]
    fn value_attributes_and_key_go_where_they_belong() {
        let plain = one(Some(b"k"), Some(b"v"), &[("a", b"1")], &Keys::default()).unwrap();
        assert_eq!((&plain.data[..], plain.ordering_key.as_str(), plain.attributes.len()), (&b"v"[..], "", 1));
        let keys = Keys { ordering: true, attribute: Some("key".into()) };
        let keyed = one(Some(b"k"), None, &[], &keys).unwrap();
        assert_eq!((keyed.ordering_key.as_str(), keyed.attributes["key"].as_str(), keyed.data.len()), ("k", "k", 0));
    }

    #[test]
    fn what_the_service_would_refuse_is_refused_here_with_the_reason() {
        let keys = Keys { ordering: true, attribute: None };
        let large = vec![0; 10_000_000];
        let refusal = |key, value, attributes: &[(&str, &[u8])]| one(key, value, attributes, &keys).unwrap_err();
        assert!(refusal(None, None, &[]).contains("a payload or an attribute"));
        assert!(refusal(None, Some(b""), &[]).contains("a payload or an attribute"));
        assert!(refusal(Some(&[0xff]), Some(b"v"), &[]).contains("the ordering key of a Pub/Sub message is text"));
        assert!(refusal(Some(&[b'k'; 1025]), Some(b"v"), &[]).contains("at most 1024 bytes"));
        assert!(refusal(None, Some(b"v"), &[("a", &[b'x'; 1025])]).contains("at most 1024 bytes: a"));
        assert!(refusal(None, Some(b"v"), &[("a", &[0xff])]).contains("text in UTF-8"));
        assert!(refusal(None, Some(b"v"), &[("a", b"1"), ("a", b"2")]).contains("each attribute once: a"));
        assert!(refusal(None, Some(b"v"), &[("googclient", b"1")]).contains("are Google's"));
        assert!(refusal(None, Some(&large), &[]).contains("at most 10000000 bytes"));
        let names: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"1"[..])).collect();
        assert!(refusal(None, Some(b"v"), &many).contains("at most 100 attributes"));
    }
}
