//! The control topic: a compacted topic with a partition for each task, in which the newest record of a task names the
//! newest epoch that is committed. It is written within the transaction of that epoch, and is the only evidence of it.

use std::time::Instant;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message;
use rdkafka::producer::BaseRecord;
use rdkafka::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::{create_topic, limits};
use crate::error::{Error, Result};
use crate::kafka::{self, Client, Listener};
use crate::sink::{Epoch, Identity};

/// How many records are read first: the newest of a task is nearly always among them.
const TAIL: i64 = 1000;
/// Settings of the topic: small segments, so that cleaning keeps up.
const SETTINGS: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.bytes", "4194304"), ("min.cleanable.dirty.ratio", "0.1")];

/// What a record says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Whose epoch it is.
    pub log_id: String,
    /// The epoch that this transaction made visible.
    pub epoch: Epoch,
    /// The process that committed it. For people only.
    pub attempt: String,
}

/// The place of one task's record.
#[derive(Clone, Debug)]
pub struct Control {
    /// The topic.
    pub topic: String,
    partition: i32,
    key: String,
    tasks: u32,
}

impl Control {
    /// Where the task of this identity has its record.
    pub fn of(identity: &Identity) -> Control {
        Control {
            topic: format!("weir.{}", identity.pipeline),
            partition: identity.task as i32,
            key: identity.task.to_string(),
            tasks: identity.tasks,
        }
    }

    /// A record for the producer.
    pub fn record<'a>(&'a self, mark: &'a str, message: usize) -> BaseRecord<'a, str, str, usize> {
        BaseRecord::with_opaque_to(&self.topic, message).partition(self.partition).key(self.key.as_str()).payload(mark)
    }

    /// Creates the topic where it is missing, and refuses one that can't keep the records.
    pub async fn ensure(&self, client: &ClientConfig, admin: &AdminClient<Listener>, name: &str) -> Result<()> {
        let at = |e: Error| e.with("topic", &self.topic);
        let began = Instant::now();
        loop {
            match self.partitions(client, name).await? {
                Some(found) if found >= self.tasks as i32 => break,
                Some(found) if began.elapsed() > kafka::PATIENCE => {
                    return Err(at(Error::config(
                        "the control topic has too few partitions for the tasks of the pipeline: give it as many as tasks",
                    ))
                    .with("partitions", found)
                    .with("tasks", self.tasks));
                }
                // A topic that was created a moment ago may not be known everywhere.
                Some(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                None => {
                    let mut topic = NewTopic::new(&self.topic, self.tasks as i32, TopicReplication::Fixed(-1));
                    topic.config = SETTINGS.to_vec();
                    create_topic(admin, topic).await.map_err(at)?;
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            }
        }
        match limits::cleanup_policy(admin, &self.topic).await {
            Some(policy) if policy != "compact" => {
                Err(at(Error::config("the control topic would lose its records: set its cleanup.policy to compact"))
                    .with("cleanup.policy", policy))
            }
            _ => Ok(()),
        }
    }

    async fn partitions(&self, client: &ClientConfig, name: &str) -> Result<Option<i32>> {
        let (client, name, topic) = (client.clone(), name.to_string(), self.topic.clone());
        blocking(move || kafka::partitions(&kafka::ask(&client, &name)?, &topic)).await
    }

    /// The newest mark of the task that can be seen; `None` where there is none, or no topic.
    pub async fn look(&self, client: &ClientConfig, name: &str) -> Result<Option<Mark>> {
        self.ask(client, name, false).await
    }

    /// The newest mark of the task, once no transaction of the task is open: its older processes are fenced.
    pub async fn read(&self, client: &ClientConfig, name: &str) -> Result<Option<Mark>> {
        self.ask(client, name, true).await
    }

    async fn ask(&self, client: &ClientConfig, name: &str, fenced: bool) -> Result<Option<Mark>> {
        let (client, name, this) = (client.clone(), name.to_string(), self.clone());
        blocking(move || this.read_blocking(&client, &name, fenced).map_err(|e| e.with("topic", &this.topic))).await
    }

    fn read_blocking(&self, client: &ClientConfig, name: &str, fenced: bool) -> Result<Option<Mark>> {
        let doing = "cannot read the control topic";
        let mut config = client.clone();
        config.set("isolation.level", "read_uncommitted");
        let everything = kafka::ask(&config, name)?;
        if kafka::partitions(&everything, &self.topic)?.is_none() {
            return Ok(None);
        }
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true").set("group.id", &self.topic);
        config.set("enable.auto.commit", "false").set("auto.offset.reset", "error");
        let client: Client = config
            .create_with_context(Listener::new(name, &config))
            .map_err(|e| kafka::explain("cannot make a Kafka client", e))?;
        let ends = |client: &Client| {
            let ends = client.fetch_watermarks(&self.topic, self.partition, kafka::PATIENCE);
            ends.map_err(|e| client.context().explain(doing, e))
        };
        let (low, high) = ends(&everything)?;
        let began = Instant::now();
        // What lies behind an open transaction can't be seen yet. Ours is ended: whose it is instead, the brokers end in time.
        while fenced && ends(&client)?.1 < high {
            if began.elapsed() > 3 * kafka::PATIENCE {
                return Err(Error::transient(
                    "a transaction on the control topic is still open: another process writes there, or one has died and the brokers give its transaction up after its timeout",
                ));
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let tail = low.max(high - TAIL);
        match self.newest(&client, tail)? {
            None if tail > low => self.newest(&client, low),
            found => Ok(found),
        }
    }

    /// The last mark of the task from an offset on.
    fn newest(&self, client: &Client, from: i64) -> Result<Option<Mark>> {
        let doing = "cannot read the control topic";
        let mut list = TopicPartitionList::new();
        let assigned = list.add_partition_offset(&self.topic, self.partition, Offset::Offset(from));
        assigned.and_then(|()| client.assign(&list)).map_err(|e| kafka::explain(doing, e))?;
        let (mut found, mut heard) = (None, Instant::now());
        loop {
            match client.poll(std::time::Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    if message.key() == Some(self.key.as_bytes()) {
                        found = message.payload().map(serde_json::from_slice::<Mark>);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                // Connections come and go; the brokers that matter answer in the end.
                Some(Err(error)) if error.rdkafka_error_code() != Some(Code::AutoOffsetReset) => {
                    tracing::debug!(%error, "while reading the control topic");
                }
                Some(Err(error)) => return Err(client.context().explain(doing, error)),
                None => {}
            }
            if heard.elapsed() > 3 * kafka::PATIENCE {
                return Err(client.context().explain(doing, KafkaError::Global(Code::OperationTimedOut)));
            }
        }
        found.transpose().map_err(|e| Error::corrupt("the newest record of the control topic is none of ours").because(e))
    }
}

/// What every question to the brokers does meanwhile.
async fn blocking<T: Send + 'static>(ask: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(ask).await.map_err(|e| Error::bug("a question to Kafka ended early").because(e))?
}

/// A client for such questions.
pub fn admin(client: &ClientConfig, name: &str) -> Result<AdminClient<Listener>> {
    client.create_with_context(Listener::new(name, client)).map_err(|e| kafka::explain("cannot make a Kafka client", e))
}

/// How long they may take.
pub fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(kafka::PATIENCE)).operation_timeout(Some(kafka::PATIENCE))
}
