//! One worker's writer: hands rows to librdkafka and learns from its reports which were written, which the topic can
//! never take, and which failed. Holds a batch until the last of its rows is confirmed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use super::{Connector, Timestamp, prepared};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::kafka::{self, Listener};
use crate::sink::{Epoch, Prepared, Writer};

/// Batches whose rows may be unconfirmed at a time.
const BATCHES: usize = 1024;
/// How long a full queue is left alone.
const BREATH: Duration = Duration::from_millis(1);
/// Rows that may wait to be tried again alone.
const SUSPECTS: usize = 256;

/// Takes librdkafka's reports on messages. A message is known by the number of its batch and its row.
struct Reports {
    listener: Listener,
    /// Unconfirmed rows of each batch, by the batch's number modulo [`BATCHES`].
    unconfirmed: Vec<AtomicU32>,
    /// Unconfirmed rows of all.
    total: AtomicU64,
    /// Messages that failed, and why.
    failed: Mutex<Vec<(usize, Code)>>,
    /// Told when a message failed, and when nothing is unconfirmed.
    news: Notify,
}

impl Reports {
    fn failed(&self) -> std::sync::MutexGuard<'_, Vec<(usize, Code)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self, batch: usize, rows: u32) {
        self.total.fetch_add(u64::from(rows), Ordering::Relaxed);
        self.unconfirmed[batch % BATCHES].store(rows, Ordering::Relaxed);
    }

    fn is_confirmed(&self, batch: usize) -> bool {
        self.unconfirmed[batch % BATCHES].load(Ordering::Acquire) == 0
    }

    /// A row is out of the way, however.
    fn settle(&self, batch: usize) {
        self.unconfirmed[batch % BATCHES].fetch_sub(1, Ordering::Release);
        if self.total.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.news.notify_one();
        }
    }
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.listener.log(level, facility, message);
    }
    fn error(&self, error: KafkaError, reason: &str) {
        self.listener.error(error, reason);
    }
    fn stats_raw(&self, statistics: &[u8]) {
        self.listener.stats_raw(statistics);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, message: usize) {
        if let Err((error, _)) = result {
            self.failed().push((message, error.rdkafka_error_code().unwrap_or(Code::Fail)));
            self.news.notify_one();
        }
        self.settle(message >> 32);
    }
}

/// One worker's writer.
pub struct Writing {
    producer: ThreadedProducer<Reports>,
    topic: String,
    timestamp: Timestamp,
    /// Number of the next batch.
    next: usize,
    /// Batches with unconfirmed rows, with their numbers.
    held: VecDeque<(usize, Batch)>,
    /// Rows that were refused together with others: each is tried again alone.
    suspects: Vec<Batch>,
    /// Rows that the brokers confirmed or will, since the last epoch.
    rows: u64,
}

impl Writing {
    /// Opens a producer. It connects by itself.
    pub fn open(connector: &Connector) -> Result<Writing> {
        let reports = Reports {
            listener: Listener::new(&connector.name, &connector.client),
            unconfirmed: (0..BATCHES).map(|_| AtomicU32::new(0)).collect(),
            total: AtomicU64::new(0),
            failed: Mutex::default(),
            news: Notify::new(),
        };
        let producer =
            connector.client.create_with_context(reports).map_err(|e| kafka::explain("cannot make a Kafka producer", e))?;
        Ok(Writing {
            producer,
            topic: connector.config.topic.clone(),
            timestamp: connector.config.timestamp,
            next: 0,
            held: VecDeque::new(),
            suspects: Vec::new(),
            rows: 0,
        })
    }

    fn reports(&self) -> &Reports {
        self.producer.client().context()
    }

    /// Hands every row to librdkafka; answers with those that it refuses at once.
    async fn send(&mut self, batch: &Batch) -> Result<Option<Rejected>> {
        let number = self.next;
        while !self.reports().is_confirmed(number) {
            tokio::time::sleep(BREATH).await;
            self.learn()?;
        }
        self.next += 1;
        self.held.push_back((number, batch.clone()));
        self.reports().announce(number, batch.len() as u32);
        let (mut refused, mut attribute) = (Vec::new(), 0);
        for row in 0..batch.len() {
            let first = attribute;
            while batch.attributes.rows.get(attribute).is_some_and(|of| *of as usize == row) {
                attribute += 1;
            }
            loop {
                // Made anew for each attempt: librdkafka takes the headers.
                let record = self.record(batch, row, first..attribute, (number << 32) | row);
                let error = match self.producer.send(record) {
                    Ok(()) => break,
                    Err((error, _)) => error,
                };
                match error.rdkafka_error_code() {
                    Some(Code::QueueFull) => {
                        self.learn()?;
                        tokio::time::sleep(BREATH).await;
                    }
                    Some(code) if is_the_rows_fault(code) => {
                        self.reports().settle(number);
                        refused.push((row as u32, code));
                        break;
                    }
                    _ => return Err(self.failure(error)),
                }
            }
        }
        self.rows += (batch.len() - refused.len()) as u64;
        let rows: Vec<u32> = refused.iter().map(|(row, _)| *row).collect();
        let reasons = refused.iter().map(|(row, code)| self.reason(batch, *row as usize, *code)).collect();
        match rows.is_empty() {
            true => Ok(None),
            false => Ok(Some(Rejected { rows: batch.take(&rows)?, reasons, module: None })),
        }
    }

    fn record<'a>(
        &'a self,
        batch: &'a Batch,
        row: usize,
        attributes: std::ops::Range<usize>,
        message: usize,
    ) -> BaseRecord<'a, [u8], [u8], usize> {
        let mut record = BaseRecord::with_opaque_to(&self.topic, message);
        (record.key, record.payload) = (batch.key(row), batch.value(row));
        if self.timestamp == Timestamp::EventTime {
            record.timestamp = Some(batch.event_times[row]);
        }
        if !attributes.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(attributes.len());
            for place in attributes {
                let (names, values) = (&batch.attributes.names, &batch.attributes.values);
                let key = std::str::from_utf8(names.value(place)).unwrap_or_default();
                let value = (!arrow_array::Array::is_null(values, place)).then(|| values.value(place));
                headers = headers.insert(Header { key, value });
            }
            record.headers = Some(headers);
        }
        record
    }

    /// Lets go of confirmed batches. Rows that were refused are set aside; any other failure is an error.
    fn learn(&mut self) -> Result<()> {
        // In this order: a failure is told before its row counts as out of the way.
        let confirmed = self.held.iter().take_while(|(number, _)| self.reports().is_confirmed(*number)).count();
        let failed = std::mem::take(&mut *self.reports().failed());
        for (message, code) in failed {
            let held = self.held.iter().find(|(number, _)| *number == message >> 32);
            let (Some((_, batch)), true) = (held, is_the_rows_fault(code) || code == Code::InvalidDifferentRecord) else {
                return Err(self.failure(KafkaError::MessageProduction(code)));
            };
            let row = batch.take(&[message as u32])?;
            self.suspects.push(row);
            self.rows -= 1;
        }
        self.held.drain(..confirmed);
        Ok(())
    }

    /// Waits until every row is confirmed or has failed; answers with the code of the last that failed.
    async fn settle(&mut self) -> Result<Option<Code>> {
        let mut code = None;
        loop {
            let settled = self.reports().total.load(Ordering::Acquire) == 0;
            code = self.reports().failed().last().map(|(_, code)| *code).or(code);
            self.learn()?;
            if settled {
                return Ok(code);
            }
            self.reports().news.notified().await;
        }
    }

    /// A broker refuses messages by the request: one that is too large takes its neighbours with it. Tries each
    /// alone, and rejects those that are refused again.
    async fn try_suspects(&mut self) -> Result<Vec<Rejected>> {
        let mut rejected = Vec::new();
        self.settle().await?;
        for row in std::mem::take(&mut self.suspects) {
            rejected.extend(self.send(&row).await?);
            let code = self.settle().await?;
            if let Some(row) = self.suspects.pop() {
                let reasons = vec![self.reason(&row, 0, code.unwrap_or(Code::Fail))];
                rejected.push(Rejected { rows: row, reasons, module: None });
            }
        }
        Ok(rejected)
    }

    fn reason(&self, batch: &Batch, row: usize, code: Code) -> String {
        let bytes = batch.key(row).map_or(0, <[u8]>::len) + batch.value(row).map_or(0, <[u8]>::len);
        let topic = &self.topic;
        match code {
            Code::MessageSizeTooLarge | Code::MessageBatchTooLarge => format!(
                "too large for the topic: raise message.max.bytes under `properties`, or the topic's max.message.bytes \
                 topic={topic} bytes={bytes}"
            ),
            _ => format!("refused by the topic: {code} topic={topic} bytes={bytes}"),
        }
    }

    fn failure(&self, error: KafkaError) -> Error {
        self.reports().listener.explain("cannot write to the topic", error).with("topic", &self.topic)
    }
}

/// Whether the topic will never take the row.
fn is_the_rows_fault(code: Code) -> bool {
    matches!(
        code,
        Code::MessageSizeTooLarge
            | Code::MessageBatchTooLarge
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::InvalidMessage
    )
}

#[async_trait]
impl Writer for Writing {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        self.learn()?;
        let mut rejected = Vec::new();
        if self.suspects.len() >= SUSPECTS {
            rejected = self.try_suspects().await?;
        }
        rejected.extend(self.send(&batch).await?);
        Ok(rejected)
    }

    async fn prepare(&mut self, _: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        let rejected = self.try_suspects().await?;
        let rows = std::mem::take(&mut self.rows);
        Ok(((rows > 0).then(|| prepared(rows)), rejected))
    }
}
