//! What a topic takes and how long the brokers allow a transaction, as their settings say. Within a transaction it must be
//! known beforehand: a row that a broker refuses spoils everything that was written with it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::consumer::Consumer;

use super::Timestamp;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kafka::{self, Client, Listener};

/// What a record batch and a record need at most beside keys, values and headers, in bytes: the batch's head (61), and the
/// lengths and differences of the record, each a number of variable length.
const FRAME: usize = 61 + 36;
/// The lengths of a header's name and value.
const HEADER: usize = 10;
/// A broker's clock may differ from ours by this.
const CLOCKS_DIFFER_MS: i64 = 60_000;

/// What a topic takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    topic: Arc<str>,
    /// Of a record batch, in bytes; `None` where the brokers don't tell.
    max_bytes: Option<usize>,
    /// The topic is compacted: every row needs a key.
    needs_key: bool,
    /// How far a time may lie behind and ahead of the brokers' clock, in ms.
    window_ms: Option<(i64, i64)>,
}

impl Limits {
    /// None.
    pub fn unknown(topic: &str) -> Limits {
        Limits { topic: topic.into(), max_bytes: None, needs_key: false, window_ms: None }
    }

    fn of(topic: &str, settings: &HashMap<String, String>) -> Limits {
        let number = |name: &str| settings.get(name)?.parse::<i64>().ok();
        let create_time = settings.get("message.timestamp.type").is_none_or(|kind| kind == "CreateTime");
        // Before Kafka 3.6 there was one setting for both directions.
        let before = number("message.timestamp.before.max.ms").or(number("message.timestamp.difference.max.ms"));
        let after = number("message.timestamp.after.max.ms").or(number("message.timestamp.difference.max.ms"));
        Limits {
            topic: topic.into(),
            max_bytes: number("max.message.bytes").and_then(|bytes| usize::try_from(bytes).ok()),
            needs_key: settings.get("cleanup.policy").is_some_and(|policy| policy.contains("compact")),
            window_ms: create_time.then(|| before.zip(after)).flatten(),
        }
    }

    /// Of a record batch, in bytes, where it is known.
    pub fn max_bytes(&self) -> Option<usize> {
        self.max_bytes
    }

    /// Why the topic would refuse the row, if it would. `attributes` are the places of the row's attributes.
    pub fn refuse(&self, batch: &Batch, row: usize, attributes: Range<usize>, timestamp: Timestamp) -> Option<String> {
        let topic = &self.topic;
        let (key, value) = (batch.key(row), batch.value(row));
        let (names, values) = (&batch.attributes.names, &batch.attributes.values);
        let headers = attributes.map(|place| HEADER + names.value(place).len() + values.value(place).len());
        let bytes = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + headers.sum::<usize>();
        if self.max_bytes.is_some_and(|max| bytes + FRAME > max) {
            return Some(format!("too large for the topic: raise the topic's max.message.bytes topic={topic} bytes={bytes}"));
        }
        if self.needs_key && key.is_none() {
            return Some(format!("the topic is compacted, and the row has no key topic={topic}"));
        }
        let (before, after) = self.window_ms.filter(|_| timestamp == Timestamp::EventTime)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let ahead = batch.event_times[row].saturating_sub(now);
        let outside = ahead > after.saturating_sub(CLOCKS_DIFFER_MS).max(0)
            || ahead.saturating_neg() > before.saturating_sub(CLOCKS_DIFFER_MS).max(0);
        outside.then(|| {
            format!(
                "the event time is too far from now for the topic: see its message.timestamp.before.max.ms and \
                 message.timestamp.after.max.ms topic={topic} event_time={}",
                batch.event_times[row]
            )
        })
    }
}

/// The settings of a topic or broker. An error where nobody may see them.
async fn settings(admin: &AdminClient<Listener>, of: ResourceSpecifier<'_>) -> Result<HashMap<String, String>> {
    let doing = "cannot see the settings";
    let options = AdminOptions::new().request_timeout(Some(kafka::PATIENCE));
    let answers = admin.describe_configs([&of], &options).await.map_err(|e| admin.inner().context().explain(doing, e))?;
    match answers.into_iter().next() {
        Some(Ok(found)) => Ok(found.entries.into_iter().filter_map(|entry| Some((entry.name, entry.value?))).collect()),
        Some(Err(code)) => Err(kafka::meaning(doing, code).because(code.to_string())),
        None => Err(Error::transient(doing)),
    }
}

/// What a topic takes.
pub async fn of_topic(admin: &AdminClient<Listener>, topic: &str) -> Limits {
    match settings(admin, ResourceSpecifier::Topic(topic)).await {
        Ok(settings) => Limits::of(topic, &settings),
        Err(error) => {
            tracing::warn!(%error, topic, "rows that the topic refuses will stop the pipeline instead of becoming dead letters");
            Limits::unknown(topic)
        }
    }
}

/// How a topic cleans up, where one may see it.
pub async fn cleanup_policy(admin: &AdminClient<Listener>, topic: &str) -> Option<String> {
    settings(admin, ResourceSpecifier::Topic(topic)).await.ok()?.remove("cleanup.policy")
}

/// How long the brokers allow a transaction to be open, in ms, where one may see it. The brokers' defaults are taken for
/// the same on all of them.
pub async fn max_transaction_ms(admin: &AdminClient<Listener>, client: Client) -> Option<u64> {
    let broker = tokio::task::spawn_blocking(move || {
        let metadata = client.fetch_metadata(None, kafka::PATIENCE).ok()?;
        metadata.brokers().first().map(|broker| broker.id())
    });
    let found = settings(admin, ResourceSpecifier::Broker(broker.await.ok()??)).await.ok()?;
    found.get("transaction.max.timeout.ms")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn limits(settings: &[(&str, &str)]) -> Limits {
        Limits::of("t", &settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    fn refusal(limits: &Limits, key: Option<&[u8]>, value: usize, header: usize, event_time: i64) -> Option<String> {
        let mut builder = BatchBuilder::new(1, 1);
        builder.push(key, Some(&vec![b'x'; value]), Origin { partition: 0, offset: 0, published: event_time });
        builder.attribute("name", Some(&vec![b'y'; header]));
        limits.refuse(&builder.finish(0), 0, 0..1, Timestamp::EventTime)
    }

    #[test]
    fn what_a_topic_would_refuse_is_known_beforehand() {
        let small = limits(&[("max.message.bytes", "1000"), ("cleanup.policy", "delete")]);
        assert_eq!(refusal(&small, None, 800, 10, 0), None);
        let reason = refusal(&small, None, 800, 200, 0).unwrap();
        assert_eq!(reason, "too large for the topic: raise the topic's max.message.bytes topic=t bytes=1014");
        let compacted = limits(&[("cleanup.policy", "compact,delete")]);
        assert_eq!(refusal(&compacted, Some(b"k"), 8, 0, 0), None);
        assert!(refusal(&compacted, None, 8, 0, 0).unwrap().contains("no key"));
    }

    #[test]
    fn a_time_too_far_from_now_is_refused_where_the_topic_keeps_the_times_of_messages() {
        let window = [("message.timestamp.before.max.ms", "9223372036854775807"), ("message.timestamp.after.max.ms", "3600000")];
        assert_eq!(refusal(&limits(&window), None, 1, 0, 1000), None);
        assert!(refusal(&limits(&window), None, 1, 0, i64::MAX).unwrap().contains("message.timestamp.after.max.ms"));
        let appended = [window[1], ("message.timestamp.type", "LogAppendTime")];
        assert_eq!(refusal(&limits(&appended), None, 1, 0, i64::MAX), None);
    }
}
