//! One worker's writer: hands rows to librdkafka and learns from its reports which were written, which the topic can
//! never take, and which failed. Holds a batch until the last of its rows is confirmed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use super::limits::Limits;
use super::producer::{Place, Producer, Sent};
use super::transaction::{Seat, Transaction};
use super::{Connector, Timestamp};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::sink::{Epoch, Prepared, Writer};

/// How long a full queue is left alone.
const BREATH: Duration = Duration::from_millis(1);
/// Rows that may wait to be tried again alone.
const SUSPECTS: usize = 256;

/// What makes a writer one of an exactly-once pipeline.
struct Held {
    /// When it may write.
    seat: Seat,
    /// What the topic takes: a row that a broker refuses spoils the whole transaction, so none is sent.
    limits: Limits,
}

/// One worker's writer.
pub struct Writing {
    producer: Producer,
    /// Its number with the producer.
    number: usize,
    sent: Arc<Sent>,
    held_back: Option<Held>,
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
    /// Opens a writer with a producer of its own, whose rows are visible once they are written.
    pub fn open(connector: &Connector) -> Result<Writing> {
        Writing::with(connector, Producer::open(&connector.client, &connector.name)?, None)
    }

    /// Opens a writer within the transactions of its task.
    pub fn within(connector: &Connector, transaction: Arc<Transaction>) -> Result<Writing> {
        let limits = transaction.limits(&connector.config.topic);
        let producer = transaction.producer().clone();
        Writing::with(connector, producer, Some(Held { seat: Seat::take(transaction), limits }))
    }

    fn with(connector: &Connector, producer: Producer, held_back: Option<Held>) -> Result<Writing> {
        let (number, sent) = producer.enlist()?;
        Ok(Writing {
            producer,
            number,
            sent,
            held_back,
            topic: connector.config.topic.clone(),
            timestamp: connector.config.timestamp,
            next: 0,
            held: VecDeque::new(),
            suspects: Vec::new(),
            rows: 0,
        })
    }

    /// Hands every row to librdkafka; answers with those that it refuses at once, or that the topic would.
    async fn send(&mut self, batch: &Batch) -> Result<Option<Rejected>> {
        let number = self.next;
        while !self.sent.is_confirmed(number) {
            tokio::time::sleep(BREATH).await;
            self.learn()?;
        }
        self.next = Place::next(number);
        self.held.push_back((number, batch.clone()));
        self.sent.announce(number, batch.len() as u32);
        let (mut refused, mut reasons, mut attribute) = (Vec::new(), Vec::new(), 0);
        for row in 0..batch.len() {
            let first = attribute;
            while batch.attributes.rows.get(attribute).is_some_and(|of| *of as usize == row) {
                attribute += 1;
            }
            let limits = self.held_back.as_ref().map(|held| &held.limits);
            let reason = match limits.and_then(|limits| limits.refuse(batch, row, first..attribute, self.timestamp)) {
                Some(reason) => Some(reason),
                None => self.send_row(batch, row, first..attribute, number).await?,
            };
            if let Some(reason) = reason {
                self.sent.settle(number);
                refused.push(row as u32);
                reasons.push(reason);
            }
        }
        self.rows += (batch.len() - refused.len()) as u64;
        match refused.is_empty() {
            true => Ok(None),
            false => Ok(Some(Rejected { rows: batch.take(&refused)?, reasons, module: None })),
        }
    }

    /// Hands a row to librdkafka; answers with the reason if it refuses the row.
    async fn send_row(
        &mut self,
        batch: &Batch,
        row: usize,
        attributes: std::ops::Range<usize>,
        number: usize,
    ) -> Result<Option<String>> {
        let place = Place { writer: self.number, batch: number, row };
        loop {
            // Made anew for each attempt: librdkafka takes the headers.
            let record = self.record(batch, row, attributes.clone(), place);
            let error = match self.producer.inner().send(record) {
                Ok(()) => return Ok(None),
                Err((error, _)) => error,
            };
            match error.rdkafka_error_code() {
                Some(Code::QueueFull) => {
                    self.learn()?;
                    tokio::time::sleep(BREATH).await;
                }
                Some(code) if is_the_rows_fault(code) => return Ok(Some(self.reason(batch, row, code))),
                _ => {
                    // A row that failed before tells more than that the transaction is of no use any more.
                    self.learn()?;
                    return Err(self.failure(error));
                }
            }
        }
    }

    fn record<'a>(
        &'a self,
        batch: &'a Batch,
        row: usize,
        attributes: std::ops::Range<usize>,
        place: Place,
    ) -> BaseRecord<'a, [u8], [u8], usize> {
        let mut record = BaseRecord::with_opaque_to(&self.topic, place.pack());
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

    /// Lets go of confirmed batches. Rows that were refused are set aside; any other failure is an error, and within a
    /// transaction any failure: it can't be committed any more.
    fn learn(&mut self) -> Result<()> {
        // In this order: a failure is told before its row counts as out of the way.
        let confirmed = self.held.iter().take_while(|(number, _)| self.sent.is_confirmed(*number)).count();
        let failed = std::mem::take(&mut *self.sent.failed());
        for (place, code) in failed {
            let held = self.held.iter().find(|(number, _)| *number == place.batch);
            let known = is_the_rows_fault(code) || code == Code::InvalidDifferentRecord;
            let (Some((_, batch)), true, None) = (held, known, &self.held_back) else {
                return Err(self.failure(KafkaError::MessageProduction(code)));
            };
            let row = batch.take(&[place.row as u32])?;
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
            let settled = self.sent.is_settled();
            code = self.sent.failed().last().map(|(_, code)| *code).or(code);
            self.learn()?;
            if settled {
                return Ok(code);
            }
            self.sent.news().await;
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
        let doing = "cannot write to the topic";
        let error = match &self.held_back {
            Some(held) => held.seat.transaction().failure(doing, error),
            None => self.producer.explain(doing, error),
        };
        error.with("topic", &self.topic)
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
        if let Some(held) = &self.held_back {
            held.seat.may_write().await?;
        }
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
        let prepared = match &mut self.held_back {
            Some(held) => held.seat.prepared(rows),
            None => Prepared(serde_json::json!({ "rows": rows })),
        };
        Ok(((rows > 0).then_some(prepared), rejected))
    }
}
