//! A librdkafka producer, and what it tells of each message to the writer that sent it. One writer may have a producer
//! of its own, or several share one. Knows no rows and no transactions.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use crate::error::{Error, Result};
use crate::kafka::{self, Listener};

/// Batches of a writer whose rows may be unconfirmed at a time.
pub const BATCHES: usize = 1024;
/// Writers of one producer.
const WRITERS: usize = 1 << 10;
/// Batches are numbered below this, and then from 0 again.
const NUMBERS: usize = 1 << 22;
/// A message that no writer sent.
pub const NOBODYS: usize = usize::MAX;

/// What librdkafka calls a message by: its writer, batch and row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The writer's number.
    pub writer: usize,
    /// The batch's number.
    pub batch: usize,
    /// The row in the batch.
    pub row: usize,
}

impl Place {
    /// As one number.
    pub fn pack(self) -> usize {
        (self.writer << 54) | (self.batch << 32) | self.row
    }

    fn unpack(packed: usize) -> Place {
        Place { writer: packed >> 54, batch: (packed >> 32) % NUMBERS, row: packed as u32 as usize }
    }

    /// The number of the batch behind `batch`.
    pub fn next(batch: usize) -> usize {
        (batch + 1) % NUMBERS
    }
}

/// The messages of one writer that are under way.
pub struct Sent {
    /// Unconfirmed rows of each batch, by the batch's number modulo [`BATCHES`].
    unconfirmed: Vec<AtomicU32>,
    /// Unconfirmed rows of all.
    total: AtomicU64,
    /// Messages that failed, and why.
    failed: Mutex<Vec<(Place, Code)>>,
    /// Told when a message failed, and when nothing is unconfirmed.
    news: Notify,
}

impl Sent {
    fn new() -> Sent {
        Sent {
            unconfirmed: (0..BATCHES).map(|_| AtomicU32::new(0)).collect(),
            total: AtomicU64::new(0),
            failed: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// Messages that have failed and that nobody has taken yet.
    pub fn failed(&self) -> MutexGuard<'_, Vec<(Place, Code)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rows of a batch are about to be sent.
    pub fn announce(&self, batch: usize, rows: u32) {
        self.total.fetch_add(u64::from(rows), Ordering::Relaxed);
        self.unconfirmed[batch % BATCHES].store(rows, Ordering::Relaxed);
    }

    /// No row of the batch is under way.
    pub fn is_confirmed(&self, batch: usize) -> bool {
        self.unconfirmed[batch % BATCHES].load(Ordering::Acquire) == 0
    }

    /// Nothing is under way.
    pub fn is_settled(&self) -> bool {
        self.total.load(Ordering::Acquire) == 0
    }

    /// Waits until a message fails or nothing is under way.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// A row is out of the way, however.
    pub fn settle(&self, batch: usize) {
        self.unconfirmed[batch % BATCHES].fetch_sub(1, Ordering::Release);
        if self.total.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.news.notify_one();
        }
    }
}

/// Takes librdkafka's reports on messages.
pub struct Reports {
    listener: Listener,
    writers: Box<[OnceLock<Arc<Sent>>]>,
    enlisted: AtomicUsize,
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
        if message == NOBODYS {
            return;
        }
        let place = Place::unpack(message);
        let Some(sent) = self.writers.get(place.writer).and_then(OnceLock::get) else { return };
        if let Err((error, _)) = result {
            sent.failed().push((place, error.rdkafka_error_code().unwrap_or(Code::Fail)));
            sent.news.notify_one();
        }
        sent.settle(place.batch);
    }
}

/// A producer. Its clones are the same one.
#[derive(Clone)]
pub struct Producer(ThreadedProducer<Reports>);

impl Producer {
    /// Opens one. It connects by itself.
    pub fn open(config: &ClientConfig, name: &str) -> Result<Producer> {
        let reports = Reports {
            listener: Listener::new(name, config),
            writers: (0..WRITERS).map(|_| OnceLock::new()).collect(),
            enlisted: AtomicUsize::new(0),
        };
        let producer = config.create_with_context(reports).map_err(|e| kafka::explain("cannot make a Kafka producer", e))?;
        Ok(Producer(producer))
    }

    /// A place for one more writer: its number, and where it hears of its messages.
    pub fn enlist(&self) -> Result<(usize, Arc<Sent>)> {
        let reports = self.0.client().context();
        let number = reports.enlisted.fetch_add(1, Ordering::Relaxed);
        // The last number would look like nobody's.
        match reports.writers[..WRITERS - 1].get(number) {
            Some(place) => Ok((number, place.get_or_init(|| Arc::new(Sent::new())).clone())),
            None => Err(Error::config("too many Kafka sinks for so many workers: at most 1023 of one times the other")),
        }
    }

    /// librdkafka's own.
    pub fn inner(&self) -> &ThreadedProducer<Reports> {
        &self.0
    }

    /// What `error` means, with the reason that librdkafka told apart from it.
    pub fn explain(&self, doing: &str, error: KafkaError) -> Error {
        self.0.client().context().listener.explain(doing, error)
    }

    /// The code of an error that the producer can't get over, if there was one.
    pub fn fatal(&self) -> Option<Code> {
        self.0.client().fatal_error().map(|(code, _)| code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_number_and_back() {
        for place in [
            Place { writer: 0, batch: 0, row: 0 },
            Place { writer: 1022, batch: NUMBERS - 1, row: u32::MAX as usize },
            Place { writer: 3, batch: 5, row: 7 },
        ] {
            assert_eq!(Place::unpack(place.pack()), place);
            assert_ne!(place.pack(), NOBODYS);
        }
        assert_eq!((Place::next(0), Place::next(NUMBERS - 1)), (1, 0));
    }
}
