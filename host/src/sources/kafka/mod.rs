//! Reads Kafka topics by assigned partitions: no consumer group, no rebalance. Positions live in the checkpoint;
//! an offset that the topic doesn't have stops the pipeline, whatever the reason, and is never skipped.

mod partitions;
mod reader;
mod running;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::Offset;
use rdkafka::config::ClientConfig;
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use self::partitions::{Partition, Topics};
use crate::error::{Error, Result};
use crate::kafka::{self, Client, Properties};
use crate::source::{Position, Slice, Source, SourceConnector};
use crate::units::Span;

/// Settings of a Kafka source. Exactly one of `topic`, `topics` and `topic_pattern` is given.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to reach the cluster first: `host:port`, several separated by commas.
    pub brokers: String,
    /// The topic to read. Its partitions keep Kafka's numbers in batches.
    pub topic: Option<String>,
    /// Several topics to read. Taking one away later keeps its position; adding one begins at its beginning.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Read every topic whose whole name this regular expression matches, those that come later included.
    pub topic_pattern: Option<String>,
    /// Where a new log begins. Partitions that come later are always read from their beginning.
    #[serde(default)]
    pub start: Start,
    /// Where to end. Default: never.
    pub until: Option<Until>,
    /// Properties of librdkafka by its own names, for example `security.protocol` and `ssl.ca.location`.
    #[serde(default)]
    pub properties: Properties,
    /// How often to look for new partitions, and for topics that were created anew.
    #[serde(default = "default_new_partitions_interval")]
    pub new_partitions_interval: Span,
    /// A consumer group under which positions are committed after each checkpoint: for tools that show lag.
    /// Never read back.
    pub commit_group: Option<String>,
    /// Name of an attribute that is given the topic of each message.
    pub topic_attribute: Option<String>,
}

fn default_new_partitions_interval() -> Span {
    Span(Duration::from_secs(30))
}

/// Where a new log begins.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the oldest message.
    #[default]
    Earliest,
    /// Behind the newest message.
    Latest,
    /// At the first message of this time or later.
    Timestamp(Moment),
}

/// A moment: `2026-12-01T12:00:00Z`, or milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Moment {
    /// Milliseconds since the Unix epoch.
    Milliseconds(i64),
    /// By RFC 3339.
    Text(String),
}

/// Where reading ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Behind what is the newest message when the source is opened.
    Latest,
}

/// What a person may not set, and why.
const REFUSED: [(&str, &str); 11] = [
    (
        "auto.offset.reset",
        "an offset out of range stops the pipeline, it never skips or repeats; `start` says where a new log begins",
    ),
    ("enable.auto.commit", "positions are kept in the checkpoint; `commit_group` shows them to tools"),
    ("enable.auto.offset.store", "positions are kept in the checkpoint; `commit_group` shows them to tools"),
    ("group.id", "partitions are assigned, without a consumer group; `commit_group` shows positions to tools"),
    ("group.instance.id", "partitions are assigned, without a consumer group"),
    ("group.protocol", "partitions are assigned, without a consumer group"),
    ("partition.assignment.strategy", "partitions are assigned, without a consumer group"),
    ("session.timeout.ms", "partitions are assigned, without a consumer group"),
    ("max.poll.interval.ms", "partitions are assigned, without a consumer group"),
    ("enable.partition.eof", "the end of a partition is found by its offsets"),
    ("allow.auto.create.topics", "reading a topic must not create it"),
];

/// For throughput within bounded memory: each worker holds at most 32 MiB of fetched messages and one answer of 16 MiB.
const DEFAULTS: [(&str, &str); 12] = [
    ("auto.offset.reset", "error"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("isolation.level", "read_committed"),
    ("check.crcs", "true"),
    ("queued.max.messages.kbytes", "32768"),
    ("fetch.max.bytes", "16777216"),
    // A trickle over many partitions is fetched 20 times a second, not once for each message, which costs the brokers and
    // us five times as much. A stream that fills 64 KiB sooner waits for nothing.
    ("fetch.min.bytes", "65536"),
    ("fetch.wait.max.ms", "50"),
    // A full queue is looked at again soon: the default of a second leaves the reader idle.
    ("fetch.queue.backoff.ms", "10"),
    ("fetch.error.backoff.ms", "100"),
    ("statistics.interval.ms", "1000"),
];

/// A configured Kafka source.
#[derive(Clone)]
pub struct Connector {
    name: Arc<str>,
    config: Arc<Config>,
    topics: Topics,
    start: Offset,
    client: ClientConfig,
}

impl Connector {
    /// Checks the settings; connects to nothing. `pipeline` is the pipeline's name.
    pub fn new(config: Config, name: &str, pipeline: &str) -> Result<Connector> {
        let topics = match (&config.topic, config.topics.as_slice(), &config.topic_pattern) {
            (Some(topic), [], None) => Topics::One(topic.clone()),
            (None, topics @ [_, ..], None) => Topics::named(topics.to_vec())?,
            (None, [], Some(pattern)) => Topics::Matching(
                Regex::new(&format!("^(?:{pattern})$"))
                    .map_err(|e| Error::config("`topic_pattern` is not a regular expression").because(e))?,
            ),
            _ => return Err(Error::config("give exactly one of `topic`, `topics` and `topic_pattern`")),
        };
        let start = match &config.start {
            Start::Earliest => Offset::Beginning,
            Start::Latest => Offset::End,
            Start::Timestamp(Moment::Milliseconds(ms)) => Offset::Offset(*ms),
            Start::Timestamp(Moment::Text(text)) => {
                let time = chrono::DateTime::parse_from_rfc3339(text).map_err(|e| {
                    Error::config("not a moment: write for example `2026-12-01T12:00:00Z`").with("timestamp", text).because(e)
                })?;
                Offset::Offset(time.timestamp_millis())
            }
        };
        if matches!(start, Offset::Offset(ms) if ms < 0) {
            return Err(Error::config("`start.timestamp` lies before 1970"));
        }
        if config.new_partitions_interval.0.is_zero() {
            return Err(Error::config("`new_partitions_interval` must be longer than nothing"));
        }
        let mut client = kafka::settings(&config.brokers, &config.properties, &DEFAULTS, &REFUSED)?;
        // librdkafka wants a name of a group for assigned partitions too; nobody joins it.
        client.set("group.id", config.commit_group.clone().unwrap_or_else(|| format!("weir.{pipeline}.{name}")));
        if config.until.is_some() {
            // The end behind aborted transactions is known from the statistics.
            client.set("statistics.interval.ms", "200");
        }
        Ok(Connector { name: name.into(), config: config.into(), topics, start, client })
    }

    /// Runs a question to the brokers where it may block.
    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(Connector) -> Result<T> + Send + 'static) -> Result<T> {
        let connector = self.clone();
        let done = tokio::task::spawn_blocking(move || work(connector)).await;
        done.map_err(|e| Error::bug("a question to Kafka ended early").because(e))?
    }

    /// Where each of the slice's partitions begins in a new log.
    fn beginnings(&self, slice: Slice) -> Result<Position> {
        let client = kafka::ask(&self.client, &self.name)?;
        let partitions = owned(&self.topics.list(&client)?, slice);
        let ask = |moment| offsets(&client, &partitions, moment);
        let mut found = ask(self.start)?;
        if matches!(self.start, Offset::Offset(_)) {
            // Nothing so young yet: what comes next is.
            let ends = ask(Offset::End)?;
            found.iter_mut().filter(|(_, offset)| **offset < 0).for_each(|(place, offset)| *offset = ends[place]);
        }
        let mut position = Position::default();
        for partition in partitions {
            position.set(partition.name(), found[&(partition.topic.to_string(), partition.partition)]);
        }
        Ok(position)
    }
}

/// The slice's part of `partitions`.
fn owned(partitions: &[Partition], slice: Slice) -> Vec<Partition> {
    partitions.iter().filter(|partition| slice.owns(partition.number)).cloned().collect()
}

/// Asks for an offset of each partition.
fn offsets(client: &Client, partitions: &[Partition], moment: Offset) -> Result<HashMap<(String, i32), i64>> {
    kafka::offsets(client, partitions.iter().map(|p| (&*p.topic, p.partition)), moment)
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    async fn check(&self) -> Result<()> {
        self.blocking(|this| this.topics.list(&kafka::ask(&this.client, &this.name)?).map(drop)).await
    }

    async fn start(&self, task: u32, tasks: u32) -> Result<Position> {
        self.blocking(move |this| this.beginnings(Slice { task, tasks, worker: 0, workers: 1 })).await
    }

    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn Source>> {
        let position = position.clone();
        let source = self.blocking(move |this| running::open(&this, slice, &position)).await?;
        Ok(Box::new(source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connector(json: &str) -> Result<Connector> {
        Connector::new(serde_json::from_str(json).unwrap(), "kafka", "clicks")
    }

    fn refusal(json: &str) -> String {
        connector(json).err().expect("refused").to_string()
    }

    #[test]
    fn exactly_one_way_of_naming_topics_is_wanted() {
        for json in [
            r#"{"brokers": "a:1"}"#,
            r#"{"brokers": "a:1", "topic": "t", "topics": ["u"]}"#,
            r#"{"brokers": "a:1", "topics": ["t"], "topic_pattern": "t"}"#,
        ] {
            assert_eq!(refusal(json), "give exactly one of `topic`, `topics` and `topic_pattern`");
        }
        assert!(refusal(r#"{"brokers": "a:1", "topic_pattern": "("}"#).contains("not a regular expression"));
    }

    #[test]
    fn a_start_is_a_word_or_a_moment() {
        let start = |start: &str| connector(&format!(r#"{{"brokers": "a:1", "topic": "t", "start": {start}}}"#)).map(|c| c.start);
        assert_eq!(start(r#""earliest""#).unwrap(), Offset::Beginning);
        assert_eq!(start(r#""latest""#).unwrap(), Offset::End);
        assert_eq!(start(r#"{"timestamp": 1764590400000}"#).unwrap(), Offset::Offset(1_764_590_400_000));
        assert_eq!(start(r#"{"timestamp": "2025-12-01T12:00:00Z"}"#).unwrap(), Offset::Offset(1_764_590_400_000));
        assert!(start(r#"{"timestamp": "yesterday"}"#).unwrap_err().to_string().contains("not a moment"));
        assert!(start(r#"{"timestamp": -5}"#).unwrap_err().to_string().contains("before 1970"));
    }

    #[test]
    fn properties_that_would_break_a_promise_are_refused() {
        for (property, _) in REFUSED {
            let text = refusal(&format!(r#"{{"brokers": "a:1", "topic": "t", "properties": {{"{property}": "x"}}}}"#));
            assert!(text.contains(&format!("this property can't be set property={property}: ")), "{text}");
        }
    }

    #[test]
    fn reading_committed_messages_only_is_a_default_and_stopping_out_of_range_is_not_a_choice() {
        let client = connector(r#"{"brokers": "a:1", "topic": "t", "properties": {"isolation.level": "read_uncommitted"}}"#)
            .unwrap()
            .client;
        assert_eq!(client.get("isolation.level"), Some("read_uncommitted"));
        assert_eq!(client.get("auto.offset.reset"), Some("error"));
        assert_eq!(client.get("group.id"), Some("weir.clicks.kafka"));
    }
}
