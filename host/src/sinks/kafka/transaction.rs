//! The transactions of a task: one for each epoch, for all its Kafka sinks and workers, opened at the epoch's first row.
//!
//! librdkafka can't finish a transaction that another process began: what a process prepared is lost when it dies before its
//! commit. So Kafka is committed before any other sink, and a lost epoch is read again. Rows of the next epoch can't be in
//! the same transaction: from a writer's `prepare` until the commit its next row waits.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::Producer as _;
use serde_json::json;
use tokio::sync::watch;

use super::Connector;
use super::control::{self, Control, Mark};
use super::limits::{self, Limits};
use super::producer::{NOBODYS, Producer};
use crate::error::{Error, Result};
use crate::kafka;
use crate::sink::{Epoch, Identity, Prepared, Recovered};

/// The shortest time after which the brokers give up a transaction, unless a person says otherwise.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);
/// In how many intervals of checkpoints an epoch is over, with time to spare.
const INTERVALS: u32 = 4;
/// How long the aborting of a transaction may take that is of no use any more.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);
/// What librdkafka and brokers call it when another producer has taken over the transactional id.
const FENCED: [Code; 3] = [Code::Fenced, Code::ProducerFenced, Code::InvalidProducerEpoch];

/// What the Kafka sinks of an exactly-once pipeline share.
pub struct Transactions {
    interval: Duration,
    members: Mutex<Members>,
    current: Mutex<Option<Arc<Transaction>>>,
    /// Held while a process takes over.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Members {
    /// Settings of the producer, as the first sink has them.
    client: Option<ClientConfig>,
    topics: HashSet<String>,
}

impl Transactions {
    /// For a pipeline whose epochs take about `interval`.
    pub fn new(interval: Duration) -> Transactions {
        Transactions { interval, members: Mutex::default(), current: Mutex::default(), opening: tokio::sync::Mutex::default() }
    }

    /// Takes up a sink. All must be able to write with one producer.
    pub fn add(&self, client: &ClientConfig, topic: &str) -> Result<()> {
        if self.timeout(client) <= self.interval {
            return Err(Error::config(
                "the brokers would give up each transaction before its checkpoint: raise transaction.timeout.ms",
            )
            .with("transaction.timeout.ms", self.timeout(client).as_millis())
            .with("checkpoint.interval", format!("{:?}", self.interval)));
        }
        let mut members = lock(&self.members);
        if members.client.get_or_insert_with(|| client.clone()).config_map() != client.config_map() {
            return Err(Error::config(
                "the Kafka sinks of an exactly-once pipeline write in one transaction: give them the same `brokers` and `properties`",
            ));
        }
        members.topics.insert(topic.to_string());
        Ok(())
    }

    /// After how long the brokers give up a transaction.
    fn timeout(&self, client: &ClientConfig) -> Duration {
        let set = client.get("transaction.timeout.ms").and_then(|ms| ms.parse().ok());
        set.map_or(TIMEOUT_MIN.max(self.interval * INTERVALS), Duration::from_millis)
    }

    /// Refuses a timeout that the brokers don't allow.
    pub async fn check(&self, connector: &Connector) -> Result<()> {
        let timeout = self.timeout(&connector.client);
        let admin = control::admin(&connector.asking, &connector.name)?;
        match limits::max_transaction_ms(&admin, kafka::ask(&connector.asking, &connector.name)?).await {
            Some(max) if u128::from(max) < timeout.as_millis() => Err(too_long(timeout).with("transaction.max.timeout.ms", max)),
            _ => Ok(()),
        }
    }

    /// The transactions of this process. The first call fences every older one: what that had not committed is aborted.
    pub async fn open(&self, connector: &Connector, identity: &Identity) -> Result<Arc<Transaction>> {
        let _one = self.opening.lock().await;
        if let Some(transaction) = lock(&self.current).as_ref().filter(|transaction| transaction.attempt == identity.attempt) {
            return Ok(transaction.clone());
        }
        let topics = lock(&self.members).topics.clone();
        let transaction = Arc::new(Transaction::open(connector, identity, topics, self.timeout(&connector.client)).await?);
        *lock(&self.current) = Some(transaction.clone());
        Ok(transaction)
    }

    /// This process's attempt is over: who waits for its commits need not wait any longer.
    pub fn end(&self, attempt: &str) {
        let ended = lock(&self.current).take_if(|transaction| transaction.attempt == attempt);
        if let Some(transaction) = ended {
            transaction.turn.send_modify(|turn| turn.over = true);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn too_long(timeout: Duration) -> Error {
    Error::config(
        "an epoch may take longer than the brokers allow a transaction: lower checkpoint.interval, or raise the brokers' transaction.max.timeout.ms",
    )
    .with("transaction.timeout.ms", timeout.as_millis())
}

/// Where the epoch stands.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Writers.
    seats: u64,
    /// Of these, how many have prepared the epoch, and their rows.
    prepared: u64,
    rows: u64,
    /// Epochs that are over: committed, or without a row.
    closed: u64,
    /// Since when a transaction is open.
    open: Option<Instant>,
    /// The newest epoch that the control topic has.
    marked: Option<Epoch>,
    /// Nothing will be committed any more.
    over: bool,
}

/// The transactions of one attempt.
pub struct Transaction {
    producer: Producer,
    control: Control,
    log_id: String,
    attempt: String,
    timeout: Duration,
    limits: HashMap<String, Limits>,
    turn: watch::Sender<Turn>,
    /// Held while a transaction is opened or committed.
    calls: tokio::sync::Mutex<()>,
}

impl Transaction {
    async fn open(connector: &Connector, identity: &Identity, topics: HashSet<String>, timeout: Duration) -> Result<Transaction> {
        let (asking, name) = (&connector.asking, &*connector.name);
        let admin = control::admin(asking, name)?;
        let control = Control::of(identity);
        control.ensure(asking, &admin, name).await?;
        let mut limits = HashMap::new();
        for topic in topics {
            let found = limits::of_topic(&admin, &topic).await;
            limits.insert(topic, found);
        }
        let mut config = connector.client.clone();
        config.set("transactional.id", format!("{}.{}.{}", control.topic, identity.task, identity.log_id));
        config.set("transaction.timeout.ms", timeout.as_millis().to_string());
        // Brokers refuse whole batches: none is larger than the smallest limit.
        if let Some(bytes) = limits.values().filter_map(Limits::max_bytes).min()
            && config.get("batch.size").is_none()
        {
            config.set("batch.size", bytes.clamp(1, 1_000_000).to_string());
        }
        let producer = Producer::open(&config, name)?;
        let fencing = producer.clone();
        blocking(move || {
            let began = Instant::now();
            loop {
                match fencing.inner().init_transactions(kafka::PATIENCE) {
                    Ok(()) => return Ok(()),
                    // What a predecessor has just committed or aborted is still being written out.
                    Err(KafkaError::Transaction(error)) if error.is_retriable() && began.elapsed() < TIMEOUT_MIN => {}
                    Err(error) if error.rdkafka_error_code() == Some(Code::InvalidTransactionTimeout) => {
                        return Err(too_long(timeout));
                    }
                    Err(error) => return Err(fencing.explain("cannot take over the transactions", error)),
                }
            }
        })
        .await?;
        let marked = control.read(asking, name).await?;
        let marked = marked.map(|mark| own(mark, &identity.log_id, &control.topic)).transpose()?;
        Ok(Transaction {
            producer,
            control,
            log_id: identity.log_id.clone(),
            attempt: identity.attempt.clone(),
            timeout,
            limits,
            turn: watch::Sender::new(Turn { marked, ..Turn::default() }),
            calls: tokio::sync::Mutex::default(),
        })
    }

    /// The producer that all share.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// What a topic takes.
    pub fn limits(&self, topic: &str) -> Limits {
        self.limits.get(topic).cloned().unwrap_or_else(|| Limits::unknown(topic))
    }

    /// Makes the epoch visible, unless another sink of the task already has.
    pub async fn commit(self: &Arc<Self>, epoch: Epoch) -> Result<()> {
        let _one = self.calls.lock().await;
        if self.turn.borrow().marked.is_some_and(|marked| marked >= epoch) {
            return Ok(());
        }
        let mark = Mark { log_id: self.log_id.clone(), epoch, attempt: self.attempt.clone() };
        let mark = serde_json::to_string(&mark).map_err(|e| Error::bug("cannot write a mark as JSON").because(e))?;
        let this = self.clone();
        blocking(move || this.commit_blocking(&mark)).await?;
        self.turn.send_modify(|turn| {
            (turn.open, turn.marked) = (None, Some(epoch));
            turn.closed += 1;
        });
        Ok(())
    }

    fn commit_blocking(&self, mark: &str) -> Result<()> {
        let doing = "cannot commit the transaction";
        let began = Instant::now();
        let retries = |began: Instant| began.elapsed() < self.timeout;
        loop {
            match self.producer.inner().send(self.control.record(mark, NOBODYS)) {
                Ok(()) => break,
                Err((error, _)) if error.rdkafka_error_code() == Some(Code::QueueFull) && retries(began) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(self.failure(doing, error)),
            }
        }
        loop {
            match self.producer.inner().commit_transaction(kafka::PATIENCE) {
                Ok(()) => return Ok(()),
                // The outcome is open: asked again, librdkafka goes on where it was.
                Err(KafkaError::Transaction(error)) if error.is_retriable() && retries(began) => {
                    tracing::warn!(%error, "committing the transaction again");
                }
                Err(KafkaError::Flush(_)) if self.producer.fatal().is_none() && retries(began) => {}
                Err(error) => return Err(self.failure(doing, error)),
            }
        }
    }

    /// What became of an epoch that this log's last process prepared. That process is fenced: nothing changes any more.
    pub fn settled(&self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered> {
        let marked = self.turn.borrow().marked;
        if marked == Some(epoch) {
            return Ok(Recovered::Committed);
        }
        let before: Option<Epoch> = prepared.iter().find_map(|part| part.0["after"].as_u64()).map(Epoch);
        if marked == before {
            return Ok(Recovered::Lost);
        }
        let shown = |epoch: Option<Epoch>| epoch.map_or_else(|| "none".to_string(), |epoch| epoch.to_string());
        Err(Error::corrupt(
            "the control topic and the checkpoint contradict each other: one of them was deleted, or put back to what it was earlier",
        )
        .with("topic", &self.control.topic)
        .with("epoch", epoch)
        .with("marked", shown(marked))
        .with("expected", shown(before)))
    }

    /// What an error means: a process that has a successor must stop, one that was too slow may try again.
    pub fn failure(&self, doing: &str, error: KafkaError) -> Error {
        let code = self.producer.fatal().or(error.rdkafka_error_code());
        if !code.is_some_and(|code| FENCED.contains(&code)) {
            return self.producer.explain(doing, error);
        }
        let open = self.turn.borrow().open;
        match open.is_some_and(|since| since.elapsed() >= self.timeout) {
            true => Error::transient(
                "the brokers gave up a transaction that was open for too long: raise transaction.timeout.ms under `properties`, or lower checkpoint.interval",
            )
            .with("transaction.timeout.ms", self.timeout.as_millis()),
            false => Error::fenced("another process runs this pipeline: it has taken over the transactions"),
        }
        .because(error)
    }

    /// Aborts what is open: nothing of it will be committed.
    pub async fn abort(self: &Arc<Self>) -> Result<()> {
        let _one = self.calls.lock().await;
        if self.turn.borrow().open.is_none() {
            return Ok(());
        }
        let producer = self.producer.clone();
        blocking(move || {
            let aborted = producer.inner().abort_transaction(ABORT_PATIENCE);
            aborted.map_err(|e| producer.explain("cannot abort the transaction", e))
        })
        .await?;
        self.turn.send_modify(|turn| turn.open = None);
        Ok(())
    }
}

/// What is open when nobody is left to commit it would keep readers waiting until its timeout.
impl Drop for Transaction {
    fn drop(&mut self) {
        let producer = self.producer.clone();
        if let (Some(_), Ok(runtime)) = (self.turn.borrow().open, tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || {
                if let Err(error) = producer.inner().abort_transaction(ABORT_PATIENCE) {
                    tracing::debug!(%error, "a transaction is left to its timeout");
                }
            });
        }
    }
}

/// The epoch of a mark, if it is of this log.
pub fn own(mark: Mark, log_id: &str, topic: &str) -> Result<Epoch> {
    if mark.log_id == log_id {
        return Ok(mark.epoch);
    }
    Err(Error::config(
        "the cluster has rows of another log of a pipeline with this name: its checkpoint was lost or lies elsewhere. Point checkpoint.store at it, or give the pipeline a new name (rows that are there already would come again), or delete the control topic",
    )
    .with("topic", topic)
    .with("log", log_id)
    .with("found", mark.log_id))
}

/// One writer's place in the transactions.
pub struct Seat {
    transaction: Arc<Transaction>,
    /// Epochs that it has prepared.
    prepared: u64,
}

impl Seat {
    /// Takes a place. All writers take theirs before the first epoch ends.
    pub fn take(transaction: Arc<Transaction>) -> Seat {
        transaction.turn.send_modify(|turn| turn.seats += 1);
        let prepared = transaction.turn.borrow().closed;
        Seat { transaction, prepared }
    }

    /// The transactions.
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// Waits until the epochs that this writer has prepared are over, and opens a transaction where none is.
    pub async fn may_write(&self) -> Result<()> {
        let transaction = &self.transaction;
        let mut turns = transaction.turn.subscribe();
        let ended = || Error::transient("the pipeline has ended meanwhile");
        let turn = *turns.wait_for(|turn| turn.over || turn.closed >= self.prepared).await.map_err(|_| ended())?;
        if turn.over {
            return Err(ended());
        }
        if turn.open.is_some() {
            return Ok(());
        }
        let _one = transaction.calls.lock().await;
        if transaction.turn.borrow().open.is_some() {
            return Ok(());
        }
        // Asks no broker: those hear of a transaction with its first row.
        let begun = transaction.producer.inner().begin_transaction();
        begun.map_err(|e| transaction.failure("cannot open a transaction", e))?;
        transaction.turn.send_modify(|turn| turn.open = Some(Instant::now()));
        Ok(())
    }

    /// Notes that the writer has prepared an epoch of so many rows. An epoch in which no writer has rows is over without a
    /// commit, which nobody would ask for.
    pub fn prepared(&mut self, rows: u64) -> Prepared {
        self.prepared += 1;
        self.transaction.turn.send_modify(|turn| {
            turn.prepared += 1;
            turn.rows += rows;
            if turn.prepared == turn.seats {
                turn.closed += u64::from(turn.rows == 0);
                (turn.prepared, turn.rows) = (0, 0);
            }
        });
        let marked = self.transaction.turn.borrow().marked;
        Prepared(json!({ "rows": rows, "after": marked }))
    }
}

/// Transaction calls block: they run where that is allowed.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(call).await.map_err(|e| Error::bug("a call of Kafka ended early").because(e))?
}
