//! What all workers' parts of a source share while it runs: the streams, the ledger, acknowledgements, leases, and the look for
//! streams that stand still. Ends when the last part is dropped; what no manifest holds is given back then.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use prometheus::{IntCounter, IntGauge};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use xxhash_rust::xxh3::xxh3_64;

use super::ledger::{Acks, Id, Kept, Ledger, Load, Memory, Seen};
use super::running::Parcel;
use super::subscription::Facts;
use super::wire::{self, Failure};
use super::{Promise, Settings};
use crate::error::{Error, Result};
use crate::metrics;
use crate::pubsub::{Failed, PATIENCE, Service};

const STREAMING_PULL: &str = "/google.pubsub.v1.Subscriber/StreamingPull";
const PULL: &str = "/google.pubsub.v1.Subscriber/Pull";
const ACKNOWLEDGE: &str = "/google.pubsub.v1.Subscriber/Acknowledge";
const MODIFY: &str = "/google.pubsub.v1.Subscriber/ModifyAckDeadline";

/// A stream on which nothing is said for 90 s is closed by the service.
const PING_EVERY: Duration = Duration::from_secs(30);
const LEASES_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(20);
/// Acknowledgements under way at once.
const ACKS_AT_ONCE: usize = 8;
/// Answers that wait for a worker.
const PARCELS: usize = 32;
/// How long the end waits for acknowledgements.
const SETTLE_PATIENCE: Duration = Duration::from_secs(8);

/// Milliseconds since the Unix epoch.
pub fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

/// See the module.
pub struct Hub {
    shared: Arc<Shared>,
    inlets: Mutex<Vec<Option<mpsc::Receiver<Result<Parcel>>>>>,
    missing: AtomicU32,
    pending: Mutex<Option<mpsc::UnboundedReceiver<Acks>>>,
    settling: AtomicU32,
    tasks: Mutex<JoinSet<()>>,
}

struct Shared {
    settings: Arc<Settings>,
    facts: Facts,
    service: Service,
    ledger: Mutex<Ledger>,
    workers: Vec<mpsc::Sender<Result<Parcel>>>,
    /// To whoever acknowledges.
    requests: mpsc::UnboundedSender<Acks>,
    streams: usize,
    client_id: String,
    limit: Load,
    /// So much is unacknowledged that nothing more is taken in.
    full: watch::Sender<bool>,
    /// Handed out since the last barrier: messages, and their bytes.
    open: [AtomicU64; 2],
    /// Opens all streams anew when it rises.
    generation: watch::Sender<u64>,
    /// Acknowledgements that have no outcome yet.
    unsettled: watch::Sender<usize>,
    heard_ms: AtomicI64,
    caught_up_ms: AtomicI64,
    counts: Counts,
}

struct Counts {
    duplicates: IntCounter,
    acks: IntCounter,
    acks_retried: IntCounter,
    acks_lost: IntCounter,
    leases: IntCounter,
    leases_lost: IntCounter,
    reopened: IntCounter,
    stalled: IntCounter,
    unacked: IntGauge,
    remembered: IntGauge,
}

impl Counts {
    fn new(source: &str) -> Counts {
        let of = |outcome: &str| metrics::SOURCE_ACKS.with_label_values(&[source, outcome]);
        let lease = |outcome: &str| metrics::SOURCE_LEASES.with_label_values(&[source, outcome]);
        let stream = |cause: &str| metrics::SOURCE_STREAMS.with_label_values(&[source, cause]);
        Counts {
            duplicates: metrics::SOURCE_DUPLICATES.with_label_values(&[source]),
            acks: of("confirmed"),
            acks_retried: of("retried"),
            acks_lost: of("lost"),
            leases: lease("extended"),
            leases_lost: lease("failed"),
            reopened: stream("error"),
            stalled: stream("stalled"),
            unacked: metrics::SOURCE_UNACKED.with_label_values(&[source]),
            remembered: metrics::SOURCE_REMEMBERED.with_label_values(&[source]),
        }
    }
}

impl Hub {
    /// Takes up what a former life committed. The streams are opened when every worker has joined.
    pub fn new(settings: Arc<Settings>, facts: Facts, restored: Vec<(Kept, Vec<Id>, i64)>, workers: u32) -> Result<Arc<Hub>> {
        let repeats = settings.promise == Promise::ExactlyOnce && facts.repeats();
        let window_ms = if repeats { settings.config.dedupe_window.0.as_millis() as i64 } else { 0 };
        let mut ledger = Ledger::new(Memory { window_ms, retention_ms: facts.retention.as_millis() as i64 });
        for (kept, ids, created_ms) in restored {
            ledger.restore(kept, ids, created_ms);
        }
        // Two streams might bring messages of one key at the same moment.
        let streams = if facts.ordered { 1 } else { settings.config.streams.unwrap_or(workers as usize) };
        let service = settings.access.service(&format!("subscription={}", settings.subscription), streams + 1)?;
        let (senders, inlets): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::channel(PARCELS)).unzip();
        let (requests, pending) = mpsc::unbounded_channel();
        let limit = Load { messages: settings.config.max_outstanding_messages, bytes: settings.config.max_outstanding_bytes.0 };
        let counts = Counts::new(&settings.name);
        let shared = Shared {
            settings,
            facts,
            service,
            ledger: Mutex::new(ledger),
            workers: senders,
            requests,
            streams,
            client_id: uuid::Uuid::new_v4().to_string(),
            limit,
            full: watch::Sender::new(false),
            open: [AtomicU64::new(0), AtomicU64::new(0)],
            generation: watch::Sender::new(0),
            unsettled: watch::Sender::new(0),
            heard_ms: AtomicI64::new(now_ms()),
            caught_up_ms: AtomicI64::new(0),
            counts,
        };
        Ok(Arc::new(Hub {
            shared: Arc::new(shared),
            inlets: Mutex::new(inlets.into_iter().map(Some).collect()),
            missing: AtomicU32::new(workers),
            pending: Mutex::new(Some(pending)),
            settling: AtomicU32::new(workers),
            tasks: Mutex::new(JoinSet::new()),
        }))
    }

    /// A worker's inlet. The last one to join starts the streams.
    pub fn join(&self, worker: u32) -> Result<mpsc::Receiver<Result<Parcel>>> {
        let inlet = lock(&self.inlets).get_mut(worker as usize).and_then(Option::take);
        let inlet = inlet.ok_or_else(|| Error::bug("a worker opened a subscription twice").with("worker", worker))?;
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut tasks = lock(&self.tasks);
            for number in 0..self.shared.streams {
                tasks.spawn(self.shared.clone().pull(number));
            }
            if let Some(pending) = lock(&self.pending).take() {
                tasks.spawn(self.shared.clone().acknowledge_all(pending));
            }
            tasks.spawn(self.shared.clone().extend_leases());
            tasks.spawn(self.shared.clone().watch_for_stalls());
        }
        Ok(inlet)
    }

    /// What the source was configured with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The ledger; held for the work on one batch.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.shared.ledger)
    }

    /// A worker has handed out messages.
    pub fn handed_out(&self, load: Load) {
        self.shared.open[0].fetch_add(load.messages, Ordering::Relaxed);
        self.shared.open[1].fetch_add(load.bytes, Ordering::Relaxed);
    }

    /// A barrier came to a worker behind messages that it had handed out.
    pub fn cut(&self, load: Load) {
        self.shared.open[0].fetch_sub(load.messages, Ordering::Relaxed);
        self.shared.open[1].fetch_sub(load.bytes, Ordering::Relaxed);
    }

    /// Whether half of what may be unacknowledged was handed out since the last barrier.
    pub fn crowded(&self) -> bool {
        let [messages, bytes] = &self.shared.open;
        let limit = self.shared.limit;
        messages.load(Ordering::Relaxed) >= limit.messages.div_ceil(2) || bytes.load(Ordering::Relaxed) >= limit.bytes.div_ceil(2)
    }

    /// When the subscription was last seen to have nothing more.
    pub fn caught_up_ms(&self) -> Option<i64> {
        Some(self.shared.caught_up_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0)
    }

    /// Has acknowledgements sent, until each has an outcome.
    pub fn acknowledge(&self, requests: Vec<Acks>) {
        self.shared.acknowledge(requests);
    }

    /// The last part to come here waits for every acknowledgement and gives back what was not handed out.
    pub async fn settle(&self) {
        if self.settling.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let mut unsettled = self.shared.unsettled.subscribe();
        let settled = async {
            let _ = unsettled.wait_for(|unsettled| *unsettled == 0).await;
            lock(&self.tasks).abort_all();
            let back = lock(&self.shared.ledger).uncommitted_acks();
            self.shared.clone().give_back(back).await;
        };
        if tokio::time::timeout(SETTLE_PATIENCE, settled).await.is_err() {
            let left = *self.shared.unsettled.borrow();
            tracing::warn!(source = %self.shared.settings.name, left, "acknowledgements have no answer at the end: the messages come again, and are dropped then");
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        lock(&self.tasks).abort_all();
        let back = lock(&self.shared.ledger).uncommitted_acks();
        if let (false, Ok(runtime)) = (back.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(self.shared.clone().give_back(back));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits longer each time, and never quite as long as another who waits.
struct Backoff(Duration);

impl Backoff {
    fn new() -> Backoff {
        Backoff(BACKOFF_MIN)
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.0.mul_f64(rand::random_range(0.5..1.0))).await;
        self.0 = (self.0 * 2).min(BACKOFF_MAX);
    }
}

impl Shared {
    /// One stream, opened again and again.
    async fn pull(self: Arc<Self>, number: usize) {
        let mut generation = self.generation.subscribe();
        let mut backoff = Backoff::new();
        let mut complained = false;
        loop {
            generation.mark_unchanged();
            let ended = tokio::select! {
                ended = self.stream(number, &mut backoff, &mut complained) => ended,
                _ = generation.changed() => continue,
            };
            match ended {
                Ok(()) => {}
                Err(failed) if failed.passes() => {
                    self.counts.reopened.inc();
                    // The service ends streams now and then, to move them.
                    match std::mem::replace(&mut complained, true) {
                        false => tracing::debug!(source = %self.settings.name, %failed, "a stream ended, opening it again"),
                        true => tracing::warn!(source = %self.settings.name, %failed, "cannot open a stream, trying again"),
                    }
                }
                Err(failed) => return self.fail("cannot pull messages", &failed).await,
            }
            backoff.wait().await;
        }
    }

    /// One stream until it ends.
    async fn stream(&self, number: usize, backoff: &mut Backoff, complained: &mut bool) -> Result<(), Failed> {
        let share = |limit: u64| (limit / self.streams as u64).max(1);
        let opening = wire::Opening {
            subscription: &self.settings.subscription,
            lease_seconds: self.settings.config.lease.0.as_secs(),
            messages_max: share(self.limit.messages),
            bytes_max: share(self.limit.bytes),
            client_id: &self.client_id,
        };
        // An empty request now and then keeps the stream alive.
        let requests = unfold(Some(opening.encode()), |first| async {
            if first.is_none() {
                tokio::time::sleep(PING_EVERY).await;
            }
            Some((first.unwrap_or_default(), None))
        });
        let mut answers = self.service.stream(STREAMING_PULL, requests, number + 1).await?;
        let mut full = self.full.subscribe();
        loop {
            // What is not read is not sent: the transport's own flow control holds the rest back.
            let _ = full.wait_for(|full| !full).await;
            let Some(frame) = answers.message().await.map_err(Failed::Status)? else { return Ok(()) };
            (*backoff, *complained) = (Backoff::new(), false);
            if self.take_in(frame).await? {
                self.heard_ms.store(now_ms(), Ordering::Relaxed);
                self.caught_up_ms.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Hands on what is new in an answer, and acknowledges what was done before. True: there were messages.
    async fn take_in(&self, frame: Bytes) -> Result<bool, Failed> {
        let mut parcels: Vec<Vec<(Range<usize>, Id)>> = vec![Vec::new(); self.workers.len()];
        let idle = self.most_idle();
        let due_ms = now_ms() + self.lease_ms();
        let (mut messages, mut duplicates) = (0, 0);
        let (read, done) = {
            let mut ledger = lock(&self.ledger);
            let mut incoming = ledger.incoming();
            let read = wire::received(&frame, |message| {
                messages += 1;
                let id = Id::of(message.message_id);
                if ledger.receive(&mut incoming, id, message.ack_id, message.message.len() as u32) == Seen::New {
                    let worker = match message.ordering_key {
                        key if key.is_empty() || !self.facts.ordered => idle,
                        key => (xxh3_64(key.as_bytes()) % self.workers.len() as u64) as usize,
                    };
                    parcels[worker].push((message.message, id));
                } else {
                    duplicates += 1;
                }
            });
            (read, ledger.received(incoming, due_ms))
        };
        self.counts.duplicates.inc_by(duplicates);
        self.acknowledge(done);
        for (sender, rows) in self.workers.iter().zip(parcels) {
            if !rows.is_empty() {
                let _ = sender.send(Ok(Parcel { frame: frame.clone(), rows })).await;
            }
        }
        // What stands before a fault is handed on all the same; the rest comes again.
        read.map(|_| messages > 0).map_err(Failed::Answer)
    }

    fn lease_ms(&self) -> i64 {
        self.settings.config.lease.0.as_millis() as i64
    }

    fn most_idle(&self) -> usize {
        (0..self.workers.len()).max_by_key(|worker| self.workers[*worker].capacity()).unwrap_or(0)
    }

    /// Says how full the window is.
    fn weigh(&self) {
        let (unacked, remembered) = {
            let ledger = lock(&self.ledger);
            (ledger.unacked(), ledger.remembered())
        };
        let full = unacked.messages >= self.limit.messages || unacked.bytes >= self.limit.bytes;
        self.full.send_if_modified(|was| std::mem::replace(was, full) != full);
        self.counts.unacked.set(unacked.messages as i64);
        self.counts.remembered.set(remembered as i64);
    }

    /// Has acknowledgements sent, until each has an outcome.
    fn acknowledge(&self, requests: Vec<Acks>) {
        let count: usize = requests.iter().map(Acks::len).sum();
        self.unsettled.send_modify(|unsettled| *unsettled += count);
        for acks in requests {
            let _ = self.requests.send(acks);
        }
        self.weigh();
    }

    /// Sends acknowledgements as they come, several at once.
    async fn acknowledge_all(self: Arc<Self>, mut pending: mpsc::UnboundedReceiver<Acks>) {
        let mut under_way = JoinSet::new();
        while let Some(acks) = pending.recv().await {
            while under_way.len() >= ACKS_AT_ONCE {
                under_way.join_next().await;
            }
            let shared = self.clone();
            under_way.spawn(async move { shared.settle_acks(acks).await });
            while under_way.try_join_next().is_some() {}
        }
    }

    /// Sends one acknowledgement until each of its ids is confirmed, or known to be good for nothing.
    async fn settle_acks(&self, mut left: Acks) {
        let mut backoff = Backoff::new();
        loop {
            let body = wire::acknowledge(&self.settings.subscription, left.iter());
            let answer = self.service.unary(ACKNOWLEDGE, body, PATIENCE).await;
            let (confirmed, lost, again) = match &answer {
                Ok(_) => (left, Acks::default(), Acks::default()),
                Err(failed) => match outcomes(left, failed) {
                    Some(outcomes) => outcomes,
                    None => return self.fail("cannot acknowledge messages", failed).await,
                },
            };
            if let Err(failed) = &answer {
                self.counts.acks_retried.inc_by(again.len() as u64);
                self.counts.acks_lost.inc_by(lost.len() as u64);
                let (retried, lost) = (again.len(), lost.len());
                tracing::warn!(source = %self.settings.name, retried, lost, %failed, "acknowledgements failed: what is lost comes again and is dropped then");
            }
            self.counts.acks.inc_by(confirmed.len() as u64);
            {
                let mut ledger = lock(&self.ledger);
                ledger.confirm(&confirmed, now_ms());
                ledger.lose(&lost);
            }
            self.unsettled.send_modify(|unsettled| *unsettled -= confirmed.len() + lost.len());
            self.weigh();
            if again.is_empty() {
                return;
            }
            left = again;
            backoff.wait().await;
        }
    }

    /// Extends the leases of everything that is not acknowledged, for as long as it takes.
    async fn extend_leases(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LEASES_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut under_way = JoinSet::new();
        loop {
            tick.tick().await;
            let now = now_ms();
            let requests = {
                let mut ledger = lock(&self.ledger);
                ledger.forget(now);
                ledger.renew(now + self.lease_ms() / 2, now + self.lease_ms())
            };
            self.weigh();
            for acks in requests {
                while under_way.len() >= ACKS_AT_ONCE {
                    under_way.join_next().await;
                }
                let shared = self.clone();
                under_way.spawn(async move { shared.extend(acks).await });
            }
            while under_way.try_join_next().is_some() {}
        }
    }

    async fn extend(&self, acks: Acks) {
        let seconds = self.settings.config.lease.0.as_secs();
        let body = wire::modify(&self.settings.subscription, acks.iter(), seconds);
        let Err(failed) = self.service.unary(MODIFY, body, PATIENCE).await else {
            return self.counts.leases.inc_by(acks.len() as u64);
        };
        let Some((extended, lost, again)) = outcomes(acks, &failed) else {
            return self.fail("cannot extend the leases of messages", &failed).await;
        };
        self.counts.leases.inc_by(extended.len() as u64);
        self.counts.leases_lost.inc_by((lost.len() + again.len()) as u64);
        let (lost_count, retried) = (lost.len(), again.len());
        tracing::warn!(source = %self.settings.name, lost = lost_count, retried, %failed, "leases are not extended: what is lost comes again and is dropped then");
        let mut ledger = lock(&self.ledger);
        ledger.lose(&lost);
        ledger.not_renewed(&again, now_ms());
    }

    /// Gives messages back, so that they come again at once and not when their leases end. Best effort.
    async fn give_back(self: Arc<Self>, requests: Vec<Acks>) {
        for acks in requests {
            let body = wire::modify(&self.settings.subscription, acks.iter(), 0);
            if let Err(failed) = self.service.unary(MODIFY, body, PATIENCE).await {
                tracing::debug!(source = %self.settings.name, %failed, "cannot give messages back");
                return;
            }
        }
    }

    /// Looks, while the streams are silent, whether there are messages: none means caught up, some twice in a row that the
    /// streams stand still, which is mended by opening them anew.
    async fn watch_for_stalls(self: Arc<Self>) {
        let half = self.settings.config.stall_after.0 / 2;
        let mut found_before = false;
        loop {
            tokio::time::sleep(half).await;
            let silent_ms = now_ms() - self.heard_ms.load(Ordering::Relaxed);
            if *self.full.borrow() || silent_ms < half.as_millis() as i64 {
                found_before = false;
                continue;
            }
            let asked_ms = now_ms();
            let body = wire::pull(&self.settings.subscription, 1);
            let found = match self.service.unary(PULL, body, PATIENCE).await {
                Ok(frame) => self.take_in(frame).await.unwrap_or(false),
                Err(failed) => {
                    tracing::debug!(source = %self.settings.name, %failed, "cannot look whether messages wait");
                    continue;
                }
            };
            if !found {
                self.caught_up_ms.store(asked_ms, Ordering::Relaxed);
            } else if found_before {
                let seconds = silent_ms / 1000;
                tracing::warn!(source = %self.settings.name, seconds, "messages wait but the streams bring none, opening them anew");
                self.counts.stalled.inc();
                self.generation.send_modify(|generation| *generation += 1);
            }
            found_before = found && !found_before;
        }
    }

    /// Something that trying again does not mend.
    async fn fail(&self, doing: &str, failed: &Failed) {
        let error = self.service.explain(doing, failed);
        if let Some(first) = self.workers.first() {
            let _ = first.send(Err(error)).await;
        }
    }
}

/// What each ack id of a failed request came to: done, lost, to be tried again. `None`: nothing mends the request.
fn outcomes(acks: Acks, failed: &Failed) -> Option<(Acks, Acks, Acks)> {
    let named: HashMap<&str, Failure> = wire::failures(failed.details()).unwrap_or_default().into_iter().collect();
    if named.is_empty() {
        return failed.passes().then(|| (Acks::default(), Acks::default(), acks));
    }
    let (failures, done) = acks.split(|ack_id| named.contains_key(ack_id));
    let (lost, again) = failures.split(|ack_id| named.get(ack_id) == Some(&Failure::Lasting));
    Some((done, lost, again))
}
