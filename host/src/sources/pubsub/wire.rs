//! The messages of Pub/Sub's subscriber that a source reads and writes, in place: a frame of thousands of messages is read
//! without an allocation for each. Owns the encoding only; field numbers are those of `google/pubsub/v1/pubsub.proto`, the
//! encoding is <https://protobuf.dev/programming-guides/encoding>. Whatever the bytes are, reading ends with an answer.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::pubsub::{put_number, put_text, put_varint};

/// A field of a message: its number and what it holds.
enum Value<'a> {
    Number(u64),
    /// A text, bytes or a message, and where it begins.
    Bytes(&'a [u8], usize),
    /// Of a fixed width, which nothing here has.
    Other,
}

fn broken() -> Error {
    Error::transient("an answer of Pub/Sub is no message of its protocol")
}

/// The fields of a message, in the order in which they stand.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes, at: 0 }
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(broken)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8]> {
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length)).ok_or_else(broken)?;
        let taken = self.bytes.get(self.at..end).ok_or_else(broken)?;
        self.at = end;
        Ok(taken)
    }

    /// The next field; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>> {
        if self.at == self.bytes.len() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = self.varint()?;
                let bytes = self.take(length)?;
                Value::Bytes(bytes, self.at - bytes.len())
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(broken()),
        };
        Ok(Some((tag >> 3, value)))
    }
}

fn text(bytes: &[u8]) -> Result<&str> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| broken())
}

/// A `ReceivedMessage`, as far as it is needed to tell whether it is new.
#[derive(Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// What to acknowledge it by: good for this delivery only.
    pub ack_id: &'a str,
    /// The same at every delivery.
    pub message_id: &'a str,
    /// Messages of one key are handed on in order. Empty without one.
    pub ordering_key: &'a str,
    /// Where its `PubsubMessage` lies in the frame.
    pub message: Range<usize>,
}

/// What a `StreamingPullResponse` says beside its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// The subscription has exactly-once delivery.
    pub exactly_once: bool,
    /// The subscription has message ordering.
    pub ordered: bool,
}

/// Reads a `StreamingPullResponse` or a `PullResponse`, whose messages have the same number. The properties are there only if
/// the answer has them.
pub fn received<'a>(frame: &'a [u8], mut each: impl FnMut(Received<'a>)) -> Result<Option<Properties>> {
    let mut properties = None;
    let mut fields = Fields::new(frame);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(bytes, start)) => {
                if let Some(message) = received_message(bytes, start)? {
                    each(message);
                }
            }
            (4, Value::Bytes(bytes, _)) => {
                let mut found = Properties::default();
                let mut fields = Fields::new(bytes);
                while let Some((number, value)) = fields.next()? {
                    match (number, value) {
                        (1, Value::Number(flag)) => found.exactly_once = flag != 0,
                        (2, Value::Number(flag)) => found.ordered = flag != 0,
                        _ => {}
                    }
                }
                properties = Some(found);
            }
            _ => {}
        }
    }
    Ok(properties)
}

/// `None` without a message or without an ack id: nothing could be made of it, nor acknowledged.
fn received_message(bytes: &[u8], offset: usize) -> Result<Option<Received<'_>>> {
    let mut fields = Fields::new(bytes);
    let mut found = Received { ack_id: "", message_id: "", ordering_key: "", message: 0..0 };
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(id, _)) => found.ack_id = text(id)?,
            (2, Value::Bytes(message, start)) => {
                found.message = offset + start..offset + start + message.len();
                let mut fields = Fields::new(message);
                while let Some((number, value)) = fields.next()? {
                    match (number, value) {
                        (3, Value::Bytes(id, _)) => found.message_id = text(id)?,
                        (5, Value::Bytes(key, _)) => found.ordering_key = text(key)?,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok((!found.ack_id.is_empty() && !found.message_id.is_empty()).then_some(found))
}

/// A `PubsubMessage` that is handed out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload; a message may have attributes only.
    pub data: &'a [u8],
    /// The same at every delivery.
    pub message_id: &'a str,
    /// Empty without one.
    pub ordering_key: &'a str,
    /// When Pub/Sub took it, ms since the Unix epoch.
    pub published_ms: i64,
}

/// Reads a `PubsubMessage`; each attribute is told with its value.
pub fn message<'a>(bytes: &'a [u8], mut attribute: impl FnMut(&'a str, &'a [u8])) -> Result<Message<'a>> {
    let mut found = Message::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(data, _)) => found.data = data,
            (2, Value::Bytes(entry, _)) => {
                let (name, value) = entry_of(entry)?;
                attribute(text(name)?, value);
            }
            (3, Value::Bytes(id, _)) => found.message_id = text(id)?,
            (4, Value::Bytes(time, _)) => found.published_ms = timestamp_ms(time)?,
            (5, Value::Bytes(key, _)) => found.ordering_key = text(key)?,
            _ => {}
        }
    }
    Ok(found)
}

/// Key and value of a map's entry.
fn entry_of(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    let mut fields = Fields::new(bytes);
    while let Some((number, found)) = fields.next()? {
        match (number, found) {
            (1, Value::Bytes(bytes, _)) => key = bytes,
            (2, Value::Bytes(bytes, _)) => value = bytes,
            _ => {}
        }
    }
    Ok((key, value))
}

/// A `google.protobuf.Timestamp` in ms since the Unix epoch.
fn timestamp_ms(bytes: &[u8]) -> Result<i64> {
    let (mut seconds, mut nanos) = (0i64, 0i64);
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Number(value)) => seconds = value as i64,
            (2, Value::Number(value)) => nanos = value as i64,
            _ => {}
        }
    }
    seconds.checked_mul(1000).and_then(|ms| ms.checked_add(nanos / 1_000_000)).ok_or_else(broken)
}

/// What a refused `Acknowledge` or `ModifyAckDeadline` of an exactly-once subscription says of one ack id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Try it again.
    Passing,
    /// Its lease has run out, or it was never good.
    Lasting,
}

/// Reads the `google.rpc.Status` that comes with an error: which ack ids failed and how. The others succeeded
/// (<https://cloud.google.com/pubsub/docs/exactly-once-delivery>). Empty where the error is of the whole request.
pub fn failures(details: &[u8]) -> Result<Vec<(&str, Failure)>> {
    let mut found = Vec::new();
    let mut fields = Fields::new(details);
    while let Some((number, value)) = fields.next()? {
        // Status.details is a list of Any: a type and a message. ErrorInfo.metadata is a map, number 3.
        let (3, Value::Bytes(any, _)) = (number, value) else { continue };
        let (kind, info) = entry_of(any)?;
        if !kind.ends_with(b"google.rpc.ErrorInfo") {
            continue;
        }
        let mut fields = Fields::new(info);
        while let Some((number, value)) = fields.next()? {
            let (3, Value::Bytes(entry, _)) = (number, value) else { continue };
            let (ack_id, why) = entry_of(entry)?;
            match text(why)? {
                why if why.starts_with("TRANSIENT_FAILURE_") => found.push((text(ack_id)?, Failure::Passing)),
                why if why.starts_with("PERMANENT_FAILURE_") => found.push((text(ack_id)?, Failure::Lasting)),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// A `Subscription`, as far as it matters to who pulls from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// With exactly-once delivery.
    pub exactly_once: bool,
    /// With message ordering.
    pub ordered: bool,
    /// Its topic doesn't feed it any more.
    pub detached: bool,
    /// Messages are pushed elsewhere.
    pub pushes: bool,
    /// How long it keeps messages, in seconds; 0 where it doesn't say.
    pub retention_seconds: i64,
}

/// Reads a `Subscription`.
pub fn subscription(bytes: &[u8]) -> Result<Subscription> {
    let mut found = Subscription::default();
    let mut fields = Fields::new(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            // push_config.push_endpoint
            (4, Value::Bytes(push, _)) => found.pushes |= !entry_of(push)?.0.is_empty(),
            (8, Value::Bytes(duration, _)) => found.retention_seconds = timestamp_ms(duration)? / 1000,
            (10, Value::Number(flag)) => found.ordered = flag != 0,
            (15, Value::Number(flag)) => found.detached = flag != 0,
            (16, Value::Number(flag)) => found.exactly_once = flag != 0,
            // bigquery_config, cloud_storage_config, bigtable_config
            (18 | 22 | 27, Value::Bytes(_, _)) => found.pushes = true,
            _ => {}
        }
    }
    Ok(found)
}

/// A `Subscription` to create.
pub struct NewSubscription<'a> {
    /// Its full name.
    pub name: &'a str,
    /// The topic's full name.
    pub topic: &'a str,
    /// Its own deadline.
    pub ack_deadline_seconds: u64,
    /// With message ordering.
    pub ordered: bool,
    /// With exactly-once delivery.
    pub exactly_once: bool,
    /// Only messages that pass; empty: all.
    pub filter: &'a str,
    /// Full name of the topic for messages that came too often, and how often that is.
    pub dead_letters: Option<(&'a str, u64)>,
}

impl NewSubscription<'_> {
    /// The message.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        put_text(&mut out, 1, self.name);
        put_text(&mut out, 2, self.topic);
        put_number(&mut out, 5, self.ack_deadline_seconds);
        put_number(&mut out, 10, self.ordered.into());
        // An expiration policy without a time to live: it never expires. Else one without a reader for 31 days is deleted, with its messages.
        put_text(&mut out, 11, "");
        put_text(&mut out, 12, self.filter);
        if let Some((topic, attempts)) = self.dead_letters {
            let mut policy = BytesMut::with_capacity(128);
            put_text(&mut policy, 1, topic);
            put_number(&mut policy, 2, attempts);
            put_varint(&mut out, 13 << 3 | 2);
            put_varint(&mut out, policy.len() as u64);
            out.put_slice(&policy);
        }
        put_number(&mut out, 16, self.exactly_once.into());
        out.freeze()
    }
}

/// The first `StreamingPullRequest` of a stream.
pub struct Opening<'a> {
    /// Its full name.
    pub subscription: &'a str,
    /// How long a message is ours, in seconds.
    pub lease_seconds: u64,
    /// Messages that may be out unacknowledged on this stream.
    pub messages_max: u64,
    /// Their bytes.
    pub bytes_max: u64,
    /// The same for all streams of a process: keeps ordering keys with it.
    pub client_id: &'a str,
}

impl Opening<'_> {
    /// The request. Its `protocol_version` asks for empty answers while there are no messages, so that a dead stream is told from a quiet one.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        put_text(&mut out, 1, self.subscription);
        put_number(&mut out, 5, self.lease_seconds);
        put_text(&mut out, 6, self.client_id);
        put_number(&mut out, 7, self.messages_max);
        put_number(&mut out, 8, self.bytes_max);
        put_number(&mut out, 10, 1);
        out.freeze()
    }
}

/// A `PullRequest` for what is there now, at most `messages`.
pub fn pull(subscription: &str, messages: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    put_text(&mut out, 1, subscription);
    put_number(&mut out, 2, 1);
    put_number(&mut out, 3, messages);
    out.freeze()
}

/// An `AcknowledgeRequest`.
pub fn acknowledge<'a>(subscription: &str, ack_ids: impl Iterator<Item = &'a str>) -> Bytes {
    let mut out = BytesMut::with_capacity(64 << 10);
    put_text(&mut out, 1, subscription);
    ack_ids.for_each(|id| put_text(&mut out, 2, id));
    out.freeze()
}

/// A `ModifyAckDeadlineRequest`; with 0 seconds, messages are given back.
pub fn modify<'a>(subscription: &str, ack_ids: impl Iterator<Item = &'a str>, seconds: u64) -> Bytes {
    let mut out = BytesMut::with_capacity(64 << 10);
    put_text(&mut out, 1, subscription);
    put_number(&mut out, 3, seconds);
    ack_ids.for_each(|id| put_text(&mut out, 4, id));
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put_bytes(out: &mut BytesMut, field: u64, value: &[u8]) {
        put_varint(out, field << 3 | 2);
        put_varint(out, value.len() as u64);
        out.put_slice(value);
    }

    fn built(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
        let mut out = BytesMut::new();
        write(&mut out);
        out
    }

    fn pubsub_message(data: &[u8], attributes: &[(String, String)], id: &str, seconds: i64, nanos: i64, key: &str) -> BytesMut {
        built(|out| {
            put_bytes(out, 1, data);
            for (name, value) in attributes {
                let entry = built(|out| {
                    put_text(out, 1, name);
                    put_text(out, 2, value);
                });
                put_bytes(out, 2, &entry);
            }
            put_text(out, 3, id);
            let time = built(|out| {
                put_number(out, 1, seconds as u64);
                put_number(out, 2, nanos as u64);
            });
            put_bytes(out, 4, &time);
            put_text(out, 5, key);
        })
    }

    proptest! {
        #[test]
        fn what_a_subscription_sends_is_read_whole(
            messages in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(("[a-z]{1,9}", ".{0,20}"), 0..3),
                "[0-9]{1,20}", 0i64..4_000_000_000, 0i64..1_000_000_000, "[a-z]{0,5}"), 0..5),
            exactly_once in any::<bool>(),
        ) {
            let frame = built(|out| {
                for (number, (data, attributes, id, seconds, nanos, key)) in messages.iter().enumerate() {
                    let received = built(|out| {
                        put_text(out, 1, &format!("ack-{number}"));
                        put_bytes(out, 2, &pubsub_message(data, attributes, id, *seconds, *nanos, key));
                        put_number(out, 3, 1);
                    });
                    put_bytes(out, 1, &received);
                }
                put_bytes(out, 4, &built(|out| put_number(out, 1, exactly_once.into())));
            });
            let mut found = Vec::new();
            let properties = received(&frame, |message| found.push(message)).unwrap();
            prop_assert_eq!(properties, Some(Properties { exactly_once, ordered: false }));
            prop_assert_eq!(found.len(), messages.len());
            for (number, (one, (data, attributes, id, seconds, nanos, key))) in found.iter().zip(&messages).enumerate() {
                prop_assert_eq!(one.ack_id, format!("ack-{number}"));
                prop_assert_eq!((one.message_id, one.ordering_key), (id.as_str(), key.as_str()));
                let mut read = Vec::new();
                let whole = message(&frame[one.message.clone()], |name, value| {
                    read.push((name.to_string(), String::from_utf8(value.to_vec()).unwrap()));
                }).unwrap();
                prop_assert_eq!(whole, Message { data, message_id: id, ordering_key: key, published_ms: seconds * 1000 + nanos / 1_000_000 });
                prop_assert_eq!(&read, attributes);
            }
        }

        #[test]
        fn reading_arbitrary_bytes_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = received(&bytes, |one| { let _ = message(&bytes[one.message], |_, _| {}); });
            let _ = message(&bytes, |_, _| {});
            let _ = failures(&bytes);
        }
    }

    #[test]
    fn of_a_refused_acknowledgement_the_ids_that_failed_are_told_and_how() {
        let details = built(|out| {
            put_number(out, 1, 9);
            put_text(out, 2, "Some acknowledgement ids in the request were invalid.");
            let info = built(|out| {
                put_text(out, 1, "EXACTLY_ONCE_ACKID_FAILURE");
                for (id, why) in [("a", "PERMANENT_FAILURE_INVALID_ACK_ID"), ("b", "TRANSIENT_FAILURE_UNORDERED_ACK_ID")] {
                    let entry = built(|out| {
                        put_text(out, 1, id);
                        put_text(out, 2, why);
                    });
                    put_bytes(out, 3, &entry);
                }
            });
            let any = built(|out| {
                put_text(out, 1, "type.googleapis.com/google.rpc.ErrorInfo");
                put_bytes(out, 2, &info);
            });
            put_bytes(out, 3, &any);
        });
        assert_eq!(failures(&details).unwrap(), [("a", Failure::Lasting), ("b", Failure::Passing)]);
        assert_eq!(failures(b"").unwrap(), []);
    }

    #[test]
    fn a_subscription_that_is_created_reads_as_it_was_asked_for() {
        let dead_letters = Some(("projects/p/topics/d", 20));
        let new = NewSubscription {
            name: "s",
            topic: "t",
            ack_deadline_seconds: 60,
            ordered: true,
            exactly_once: true,
            filter: "",
            dead_letters,
        };
        let found = subscription(&new.encode()).unwrap();
        assert_eq!(found, Subscription { exactly_once: true, ordered: true, ..Subscription::default() });
        let pushes = built(|out| put_bytes(out, 4, &built(|out| put_text(out, 1, "https://example.com"))));
        assert!(subscription(&pushes).unwrap().pushes);
    }

    #[test]
    fn a_number_that_is_cut_off_or_too_long_is_refused() {
        assert!(received(&[0x0a, 0x80], |_| {}).is_err());
        assert!(received(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], |_| {}).is_err());
        // A length beyond the end, and one beyond the address space.
        assert!(received(&[0x0a, 0x05, 0x01], |_| {}).is_err());
        assert!(received(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], |_| {}).is_err());
    }
}
