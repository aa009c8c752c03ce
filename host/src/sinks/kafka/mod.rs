//! Writes rows to a Kafka topic. Exactly once: an epoch is one transaction for all Kafka sinks of a task, with a record in
//! the control topic as the evidence. At least once: rows are visible as soon as they are written, and an epoch is prepared
//! when the brokers have confirmed all of its rows.

mod committer;
mod control;
mod limits;
mod producer;
mod transaction;
mod writer;

pub use transaction::Transactions;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rdkafka::admin::{AdminClient, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::error::RDKafkaErrorCode as Code;
use schemars::JsonSchema;
use serde::Deserialize;

use self::control::Control;
use super::counted;
use crate::error::{Error, Result};
use crate::kafka::{self, Listener, Properties};
use crate::sink::{Committer, Identity, SinkConnector, Writer};

/// Settings of a Kafka sink. Key, value and attributes of a row become key, value and headers of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where to reach the cluster first: `host:port`, several separated by commas.
    pub brokers: String,
    /// The topic to write to.
    pub topic: String,
    /// How to create the topic where it is missing. Default: a missing topic is an error.
    pub create: Option<Create>,
    /// The time that messages carry.
    #[serde(default)]
    pub timestamp: Timestamp,
    /// Properties of librdkafka by its own names, for example `compression.type` and `linger.ms`.
    #[serde(default)]
    pub properties: Properties,
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Its partitions.
    pub partitions: u16,
    /// Copies of each. Default: the brokers' own.
    pub replication: Option<u16>,
    /// The topic's settings by Kafka's names, for example `max.message.bytes`.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
}

/// The time that messages carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Timestamp {
    /// When they are written.
    #[default]
    Now,
    /// The row's event time.
    EventTime,
}

/// What a person may not set, and why.
const REFUSED: [(&str, &str); 5] = [
    ("enable.idempotence", "without it a retry writes a row twice or out of order"),
    ("acks", "a row counts as written when all replicas in sync have it"),
    ("request.required.acks", "a row counts as written when all replicas in sync have it"),
    ("transactional.id", "it is made from the pipeline's name, the task and the checkpoint's log"),
    ("delivery.report.only.error", "every row is waited for"),
];

/// For throughput within bounded memory: each worker holds at most 64 MiB of unconfirmed messages.
const DEFAULTS: [(&str, &str); 6] = [
    ("enable.idempotence", "true"),
    ("allow.auto.create.topics", "false"),
    // Where Java's client puts a key.
    ("partitioner", "murmur2_random"),
    ("queue.buffering.max.kbytes", "65536"),
    ("queue.buffering.max.messages", "500000"),
    ("statistics.interval.ms", "2000"),
];

/// A configured Kafka sink.
#[derive(Clone)]
pub struct Connector {
    name: Arc<str>,
    config: Arc<Config>,
    /// For writing.
    client: ClientConfig,
    /// For questions: a client for writing would create a topic by asking for it.
    asking: ClientConfig,
    /// Where the pipeline is exactly-once.
    transactions: Option<Arc<Transactions>>,
}

impl Connector {
    /// Checks the settings; connects to nothing. With `transactions` rows are held back until their epoch is committed.
    pub fn new(config: Config, name: &str, transactions: Option<Arc<Transactions>>) -> Result<Connector> {
        if config.topic.is_empty() {
            return Err(Error::config("the topic has no name"));
        }
        if config.create.as_ref().is_some_and(|create| create.partitions == 0 || create.replication == Some(0)) {
            return Err(Error::config("`create.partitions` and `create.replication` start at 1"));
        }
        let client = kafka::settings(&config.brokers, &config.properties, &DEFAULTS, &REFUSED)?;
        let asking = kafka::settings(&config.brokers, &config.properties, &[], &REFUSED)?;
        if let Some(transactions) = &transactions {
            transactions.add(&client, &config.topic)?;
        }
        Ok(Connector { name: name.into(), config: config.into(), client, asking, transactions })
    }

    /// Whether the topic is there.
    async fn exists(&self) -> Result<bool> {
        let this = self.clone();
        let asked = tokio::task::spawn_blocking(move || {
            Ok(kafka::partitions(&kafka::ask(&this.asking, &this.name)?, &this.config.topic)?.is_some())
        });
        asked.await.map_err(|e| Error::bug("a question to Kafka ended early").because(e))?
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn transactional(&self) -> bool {
        self.transactions.is_some()
    }

    fn commits_first(&self) -> bool {
        self.transactions.is_some()
    }

    async fn check(&self) -> Result<()> {
        if let Some(transactions) = &self.transactions {
            transactions.check(self).await?;
        }
        match self.exists().await? || self.config.create.is_some() {
            true => Ok(()),
            false => Err(Error::config("the topic does not exist: create it, or say how with `create: {partitions: …}`")
                .with("topic", &self.config.topic)),
        }
    }

    async fn create(&self) -> Result<()> {
        let Some(create) = &self.config.create else { return Ok(()) };
        if self.exists().await? {
            return Ok(());
        }
        let replication = TopicReplication::Fixed(create.replication.map_or(-1, i32::from));
        let mut topic = NewTopic::new(&self.config.topic, i32::from(create.partitions), replication);
        topic.config = create.config.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let created = create_topic(&control::admin(&self.asking, &self.name)?, topic).await;
        created.map_err(|e| e.with("topic", &self.config.topic))
    }

    async fn writer(&self, identity: &Identity, _worker: u32) -> Result<Box<dyn Writer>> {
        Ok(Box::new(match &self.transactions {
            Some(transactions) => writer::Writing::within(self, transactions.open(self, identity).await?)?,
            None => writer::Writing::open(self)?,
        }))
    }

    async fn committer(&self, identity: &Identity) -> Result<Box<dyn Committer>> {
        let Some(transactions) = &self.transactions else { return Ok(Box::new(counted::Committer)) };
        // Nothing is fenced by looking: a mark of another log refuses the start.
        let control = Control::of(identity);
        if let Some(mark) = control.look(&self.asking, &self.name).await? {
            transaction::own(mark, &identity.log_id, &control.topic)?;
        }
        Ok(Box::new(committer::Committer::new(self, transactions, identity)))
    }
}

/// Creates a topic, unless it is there by now.
async fn create_topic(admin: &AdminClient<Listener>, topic: NewTopic<'_>) -> Result<()> {
    let doing = "cannot create the topic";
    let answers = admin.create_topics([&topic], &control::options()).await;
    match answers.map_err(|e| admin.inner().context().explain(doing, e))?.into_iter().next() {
        Some(Ok(_) | Err((_, Code::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(kafka::meaning(doing, code).because(code.to_string())),
        None => Err(Error::transient(doing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        Connector::new(serde_json::from_str(json).unwrap(), "kafka", None).err().expect("refused").to_string()
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        assert_eq!(refusal(r#"{"brokers": "a:1", "topic": ""}"#), "the topic has no name");
        let text = refusal(r#"{"brokers": "a:1", "topic": "t", "create": {"partitions": 0}}"#);
        assert_eq!(text, "`create.partitions` and `create.replication` start at 1");
    }

    #[test]
    fn properties_that_would_break_a_promise_are_refused() {
        for (property, _) in REFUSED {
            let text = refusal(&format!(r#"{{"brokers": "a:1", "topic": "t", "properties": {{"{property}": "x"}}}}"#));
            assert!(text.contains(&format!("this property can't be set property={property}: ")), "{text}");
        }
    }

    #[test]
    fn a_key_goes_where_javas_client_puts_it_unless_told_otherwise() {
        let partitioner = |properties: &str| {
            let json = format!(r#"{{"brokers": "a:1", "topic": "t", "properties": {properties}}}"#);
            let connector = Connector::new(serde_json::from_str(&json).unwrap(), "kafka", None).unwrap();
            connector.client.get("partitioner").map(str::to_string)
        };
        assert_eq!(partitioner("{}").as_deref(), Some("murmur2_random"));
        assert_eq!(partitioner(r#"{"partitioner": "consistent"}"#).as_deref(), Some("consistent"));
    }
}
