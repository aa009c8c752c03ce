//! The `generator` source: makes JSON messages from a template, as Google's Streaming Data Generator does.
//!
//! Message n of a partition depends on the seed, the partition and n alone, so a position is the next n
//! and what is read again after a crash is the same, byte for byte. Only `timestamp` needs more: with a
//! `rate` it is the moment at which the message was due, counted from the start that the position keeps,
//! and so the same again too; without a rate it is the moment at which the message is made.

mod pointer;
mod random;
mod template;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::random::Random;
use self::template::{Moment, Template};
use crate::batch::{Batch, BatchBuilder, Origin};
use crate::error::{Error, Result};
use crate::source::{self, Position, Slice, SourceConnector};
use crate::units::Size;
use crate::watermark::Progress;

const PARTITIONS_MAX: u32 = 100_000;
/// Bytes that a batch reserves beforehand, at most.
const RESERVED: usize = 16 << 20;
/// With a rate, batches are at least this far apart unless they are full: a batch costs more than a message.
const LINGER: Duration = Duration::from_millis(5);

/// Settings of the `generator` source.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of a template: JSON text with functions in it, such as `{"id": {{integer(1,100)}}, "text": "{{alphaNumeric(20)}}"}`.
    /// Functions: `integer(low,high)`, `double(low,high)`, `alphaNumeric(length)`, `alpha(length)`, `uuid()`, `timestamp()` in
    /// milliseconds, `timestamp(iso)`, `random(a,b,…)`, `bool()`, and `index()`, the message's number.
    #[serde(default)]
    schema: Option<String>,
    /// The template itself, instead of `schema`.
    #[serde(default)]
    template: Option<String>,
    /// Messages per second, over all partitions. Default: as many as the pipeline takes. A message counts as published when it
    /// was due, so that latency shows every delay; after a pause the generator catches up.
    #[serde(default)]
    rate: Option<f64>,
    /// Messages in all, over all partitions; then the input ends. Default: endless.
    #[serde(default)]
    count: Option<u64>,
    /// Another seed makes other messages.
    #[serde(default)]
    seed: u64,
    /// Partitions, which workers and tasks share. A checkpoint can only be resumed with the number it was made with.
    #[serde(default = "default_partitions")]
    partitions: u32,
    /// JSON pointer of the field whose text becomes the message's key, such as `/userId`. Default: messages have no key.
    #[serde(default)]
    key: Option<String>,
    /// What one batch holds.
    #[serde(default)]
    batch: Batching,
}

/// Limits of one batch.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Batching {
    /// Messages at most.
    rows: u32,
    /// Bytes at most; a single message may be longer.
    bytes: Size,
}

impl Default for Batching {
    fn default() -> Self {
        Batching { rows: 1_000, bytes: Size(1 << 20) }
    }
}

fn default_partitions() -> u32 {
    16
}

/// A configured generator.
pub struct Connector {
    plan: Arc<Plan>,
}

/// What every worker's part has in common.
struct Plan {
    template: Template,
    rate: Option<f64>,
    count: Option<u64>,
    seed: u64,
    partitions: u32,
    rows: usize,
    bytes: usize,
}

impl Connector {
    /// Reads and checks the template.
    pub fn new(config: Config, name: impl Into<String>) -> Result<Connector> {
        let name = name.into();
        Connector::build(config)
            .map_err(|e| Error::new(e.kind(), "the generator's settings are wrong").with("source", name).because(e))
    }

    fn build(config: Config) -> Result<Connector> {
        let text = match (&config.schema, &config.template) {
            (None, Some(text)) => text.clone(),
            (Some(path), None) => std::fs::read_to_string(path)
                .map_err(|e| Error::config("cannot read the template").with("schema", path).because(e))?,
            _ => return Err(Error::config("give either `schema`, a file, or `template`, the text itself")),
        };
        let template = Template::parse(&text, config.key.as_deref()).map_err(|e| match &config.schema {
            Some(path) => e.with("schema", path),
            None => e,
        })?;
        if let Some(rate) = config.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(Error::config("`rate` is a number of messages per second above 0").with("rate", rate));
        }
        if !(1..=PARTITIONS_MAX).contains(&config.partitions) {
            return Err(Error::config("`partitions` is out of range")
                .with("partitions", config.partitions)
                .with("limit", PARTITIONS_MAX));
        }
        if config.batch.rows == 0 || config.batch.bytes.0 == 0 {
            return Err(Error::config("a batch needs room for a message: `batch.rows` and `batch.bytes` start at 1"));
        }
        Ok(Connector {
            plan: Arc::new(Plan {
                template,
                rate: config.rate,
                count: config.count,
                seed: config.seed,
                partitions: config.partitions,
                rows: config.batch.rows as usize,
                bytes: config.batch.bytes.0 as usize,
            }),
        })
    }
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "generator"
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn start(&self, task: u32, tasks: u32) -> Result<Position> {
        let start_ms = now_ms();
        let mut position = Position::default();
        for number in (0..self.plan.partitions).filter(|number| number % tasks == task) {
            Partition { number, next: 0, start_ms }.note(&mut position);
        }
        Ok(position)
    }

    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn source::Source>> {
        let mut partitions = Vec::new();
        for (name, value) in &position.0 {
            let partition = Partition::read(name, value)?;
            if partition.number >= self.plan.partitions {
                return Err(Error::config("the checkpoint knows more partitions of the generator: set `partitions` as it was")
                    .with("partitions", self.plan.partitions)
                    .with("found", name));
            }
            if slice.owns(partition.number) {
                partitions.push(partition);
            }
        }
        let start_ms = now_ms();
        for number in (0..self.plan.partitions).filter(|number| slice.owns(*number)) {
            if !position.0.contains_key(&number.to_string()) {
                partitions.push(Partition { number, next: 0, start_ms });
            }
        }
        partitions.sort_by_key(|partition| partition.number);
        Ok(Box::new(Source {
            builder: BatchBuilder::new(0, 0),
            message: Vec::new(),
            plan: self.plan.clone(),
            partitions,
            turn: 0,
            rest_until: None,
        }))
    }
}

/// Where one partition stands.
#[derive(Clone, Debug, PartialEq)]
struct Partition {
    number: u32,
    next: u64,
    start_ms: i64,
}

impl Partition {
    fn read(name: &str, value: &Value) -> Result<Partition> {
        let read = || {
            Some(Partition { number: name.parse().ok()?, next: value["next"].as_u64()?, start_ms: value["start_ms"].as_i64()? })
        };
        read().ok_or_else(|| {
            Error::corrupt(
                "the checkpoint holds no generator's position under this source's name: was it another kind of source before?",
            )
            .with("partition", name)
            .with("position", value)
        })
    }

    fn note(&self, position: &mut Position) {
        position.0.insert(self.number.to_string(), json!({"next": self.next, "start_ms": self.start_ms}));
    }
}

impl Plan {
    /// Messages of a partition in all.
    fn end(&self, partition: u32) -> u64 {
        match self.count {
            None => u64::MAX,
            Some(count) => count.saturating_sub(u64::from(partition)).div_ceil(u64::from(self.partitions)),
        }
    }

    /// The number of a partition's next message among those of all partitions.
    fn index(&self, partition: &Partition) -> u64 {
        partition.next * u64::from(self.partitions) + u64::from(partition.number)
    }

    /// When a partition's next message is due: `now` without a rate.
    fn due_ms(&self, partition: &Partition, now: i64) -> i64 {
        match self.rate {
            None => now,
            Some(rate) => partition.start_ms + (self.index(partition) as f64 * 1_000.0 / rate) as i64,
        }
    }
}

/// One worker's part of a generator.
struct Source {
    plan: Arc<Plan>,
    partitions: Vec<Partition>,
    /// The partition that comes first in the next batch.
    turn: usize,
    builder: BatchBuilder,
    message: Vec<u8>,
    /// With a rate: no batch before this.
    rest_until: Option<Instant>,
}

impl Source {
    /// A batch of what is due at `now`, each partition having its part of the room, and whether more was due.
    fn make(&mut self, now: i64) -> (Batch, bool) {
        let plan = &*self.plan;
        let partitions = self.partitions.len();
        let share = plan.rows.div_ceil(partitions.max(1));
        let mut more = false;
        self.builder = BatchBuilder::new(plan.rows, plan.bytes.min(RESERVED));
        for _ in 0..partitions {
            let partition = &mut self.partitions[self.turn];
            self.turn = (self.turn + 1) % partitions;
            let end = plan.end(partition.number);
            for taken in 0.. {
                let due = plan.due_ms(partition, now);
                if partition.next >= end || due > now {
                    break;
                }
                if taken == share || self.builder.len() >= plan.rows || self.builder.bytes() >= plan.bytes {
                    more = true;
                    break;
                }
                self.message.clear();
                let mut random = Random::of(plan.seed, partition.number, partition.next);
                let moment = Moment { time_ms: due, index: plan.index(partition) };
                let key = plan.template.render(&mut random, moment, &mut self.message);
                let origin = Origin { partition: partition.number, offset: partition.next as i64, published: due };
                self.builder.push(key.map(|key| &self.message[key]), Some(&self.message), origin);
                partition.next += 1;
            }
        }
        (self.builder.finish(now), more)
    }
}

#[async_trait]
impl source::Source for Source {
    async fn next(&mut self) -> Result<Option<Batch>> {
        loop {
            if let Some(until) = self.rest_until {
                tokio::time::sleep_until(until).await;
            }
            let now = now_ms();
            let (batch, more) = self.make(now);
            self.rest_until = (self.plan.rate.is_some() && !more).then(|| Instant::now() + LINGER);
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
            let open = self.partitions.iter().filter(|partition| partition.next < self.plan.end(partition.number));
            let Some(due) = open.map(|partition| self.plan.due_ms(partition, now)).min() else { return Ok(None) };
            let wait = Duration::from_millis(due.saturating_sub(now).max(1) as u64);
            self.rest_until = Some(Instant::now() + wait.max(LINGER));
        }
    }

    fn position(&self) -> Position {
        let mut position = Position::default();
        self.partitions.iter().for_each(|partition| partition.note(&mut position));
        position
    }

    async fn ack(&mut self, _position: &Position) -> Result<()> {
        Ok(())
    }

    fn progress(&self) -> Vec<Progress> {
        let fact = |partition: &Partition| {
            // With a rate a message counts as published when it is due: what is not due yet holds nothing back.
            let now = now_ms();
            let waits = self.plan.rate.is_some() && self.plan.due_ms(partition, now) > now;
            Progress {
                number: partition.number,
                name: partition.number.to_string().into(),
                caught_up_ms: waits.then_some(now),
                ended: partition.next >= self.plan.end(partition.number),
            }
        };
        self.partitions.iter().map(fact).collect()
    }

    fn lag(&self) -> Vec<(String, u64)> {
        let (Some(rate), now) = (self.plan.rate, now_ms()) else { return Vec::new() };
        let behind = |partition: &Partition| {
            let ms = now.saturating_sub(self.plan.due_ms(partition, now)).max(0) as f64;
            let left = self.plan.end(partition.number) - partition.next;
            ((ms * rate / 1_000.0 / f64::from(self.plan.partitions)) as u64).min(left)
        };
        self.partitions.iter().map(|partition| (partition.number.to_string(), behind(partition))).collect()
    }
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

#[cfg(test)]
mod tests;
