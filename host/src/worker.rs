//! The running loop of one worker: stages that take elements in, hand batches through their steps,
//! and pass the outcome to other workers or into the sinks. Owns no decision about epochs: it
//! reports to the coordinator what it prepared.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Counter, IntCounter};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;

use crate::batch::{Batch, BatchBuilder, Rejected, Route};
use crate::checkpoint::Log;
use crate::crash;
use crate::error::{Error, Result};
use crate::exchange::{Barrier, Element, Inputs, Target};
use crate::metrics::{self, Latency};
use crate::operator::{Context, Operator};
use crate::operators::aggregate::{Back, Checkpointed, Front};
use crate::operators::event_time::EventTime;
use crate::sink::{Distribution, Epoch, Prepared, Writer};
use crate::source::Position;
use crate::swap::Swap;
use crate::tap::Tap;
use crate::waits::Waits;
use crate::watermark::{Clocks, Held};

/// What sources and workers report to the coordinator.
#[derive(Debug)]
pub enum Event {
    /// A source passed a barrier: everything up to here belongs to the epoch.
    Position {
        /// Number of the source.
        source: usize,
        /// The epoch that the barrier ended.
        epoch: Epoch,
        /// The part of the position that this worker's slice knows.
        position: Position,
    },
    /// A source has no more input.
    Ended,
    /// A worker's sinks hold the epoch, durable and not yet visible.
    Prepared {
        /// The epoch.
        epoch: Epoch,
        /// One entry for each sink, in order.
        work: Vec<SinkPart>,
    },
    /// A keyed step's state on one worker is durable.
    State {
        /// The epoch.
        epoch: Epoch,
        /// Names of the runs that hold it.
        runs: Vec<Arc<str>>,
        /// Up to where windows have fired.
        watermark: i64,
        /// The version of the accumulators.
        state_version: u32,
    },
    /// The clocks of the partitions that one worker reads, by source.
    Clocks {
        /// The epoch.
        epoch: Epoch,
        /// One for each source, in order.
        clocks: Vec<BTreeMap<String, i64>>,
    },
    /// A sink would rather have a barrier now, or state a checkpoint.
    WantsBarrier,
    /// A source or worker can't go on.
    Failed(Error),
}

/// What one worker prepared for one sink.
#[derive(Debug, Default)]
pub struct SinkPart {
    /// What the writer prepared; `None` without rows.
    pub prepared: Option<Prepared>,
    /// How many rows were published at which millisecond: for the latency once they are visible.
    pub published: HashMap<i64, u64>,
}

/// A step with its name.
pub struct Step {
    /// As in the pipeline file.
    pub name: Arc<str>,
    /// Its code.
    pub operator: Box<dyn Operator>,
    /// Where copies of what goes in can be had.
    pub tap: Arc<Tap>,
}

/// Steps between two exchanges, on one worker.
pub struct Stage {
    /// Where elements come from.
    pub inputs: Inputs,
    /// The clocks of the sources, where the pipeline has windows and this stage reads from sources.
    pub time: Option<Time>,
    /// The windows that fragments go into, where the stage begins with them.
    pub windows: Option<Windows>,
    /// What is done with messages, in order.
    pub steps: Vec<Step>,
    /// Where they go.
    pub outlet: Outlet,
    /// Counts the time spent computing.
    pub busy: Counter,
    /// The clock.
    pub now_ms: fn() -> i64,
}

/// Where a stage's rows go.
pub enum Outlet {
    /// Into this worker's sinks.
    Sinks(Sinks),
    /// To the next stage of all workers.
    Exchange(Exchange),
    /// To the windows of all workers.
    Keyed(Box<Keyed>),
}

/// Event times and clocks of the sources of one worker.
pub struct Time {
    /// One for each source: its name, where its event times stand, its clocks.
    pub sources: Vec<(Arc<str>, EventTime, Clocks)>,
}

impl Time {
    /// Sets event times, and notes for each message its partition's clock.
    fn stamp(&mut self, source: usize, batch: Batch) -> Result<(Batch, Option<Batch>)> {
        let (name, event_time, clocks) = &mut self.sources[source];
        let (batch, rejected) = event_time.stamp(batch)?;
        let mut met = Vec::with_capacity(batch.len());
        clocks.meet(&batch.partitions, &batch.event_times, &mut met);
        Ok((Batch { clocks: met.into(), ..batch }, rejected.map(|rejected| dead_letters(rejected, name))))
    }

    /// `None`: no source has a partition here yet.
    fn watermark(&mut self) -> Option<i64> {
        let with_partitions = self.sources.iter_mut().filter(|(_, _, clocks)| !clocks.follows());
        with_partitions.map(|(_, _, clocks)| clocks.watermark()).min()
    }

    /// Which source and partition the watermark waits for.
    fn held(&self) -> Option<(Arc<str>, Held)> {
        let held = self.sources.iter().filter_map(|(name, _, clocks)| Some((name.clone(), clocks.held()?)));
        held.min_by_key(|(_, held)| held.clock)
    }
}

/// The windows of a keyed step on one worker.
pub struct Windows {
    /// The step.
    pub back: Back,
    /// The step's name.
    pub step: Arc<str>,
    /// How often it looks at the clock, where its windows go by processing time.
    pub tick: Option<Duration>,
    /// Where its state is kept.
    pub log: Log,
    /// What runs of an epoch are called.
    pub run_name: Box<dyn Fn(Epoch) -> Arc<str> + Send>,
}

/// The sending side of a keyed step's exchange.
pub struct Keyed {
    /// This worker's number.
    pub worker: usize,
    /// One for each worker.
    pub senders: Vec<Sender<Element>>,
    /// Makes fragments.
    pub front: Front,
    /// The step's name.
    pub step: Arc<str>,
    /// The watermark that was sent last.
    pub sent: i64,
    /// Told what the watermark waits for.
    pub waits: Arc<Waits>,
}

impl Keyed {
    async fn send(&mut self, batches: Vec<(Target, Batch)>) -> Result<()> {
        for (target, batch) in batches {
            if target != Target::Route(Route::MAIN) {
                send(&self.senders[self.worker], Element::Batch(target, batch)).await?;
                continue;
            }
            let mut cx = Context::default();
            let front = self.front.process(&batch, &mut cx);
            let split = front.map_err(|e| Error::new(e.kind(), "a step failed").with("step", &self.step).because(e))?;
            for (worker, fragments) in split {
                if !fragments.is_empty() {
                    send(&self.senders[worker as usize], Element::Fragments(fragments)).await?;
                }
            }
            for (route, batch) in cx.out {
                send(&self.senders[self.worker], Element::Batch(Target::Route(route), batch)).await?;
            }
            for rejected in cx.rejected {
                let letters = dead_letters(rejected, &self.step);
                send(&self.senders[self.worker], Element::Batch(Target::Route(Route::DEAD_LETTER), letters)).await?;
            }
        }
        Ok(())
    }

    /// Passes the watermark on, behind everything that it holds for.
    async fn watermark(&mut self, time: &mut Time) -> Result<()> {
        let watermark = match time.watermark() {
            Some(watermark) => {
                self.waits.lead(self.worker);
                watermark
            }
            None => self.waits.follow(self.worker),
        };
        self.waits.note(self.worker, watermark, || time.held());
        if watermark > self.sent {
            self.sent = watermark;
            time.sources.iter_mut().for_each(|(_, _, clocks)| clocks.passed(watermark));
            for sender in &self.senders {
                send(sender, Element::Watermark(watermark)).await?;
            }
        }
        Ok(())
    }
}

impl Stage {
    /// Runs until the last barrier, or until the pipeline is torn down.
    pub async fn run(mut self, events: Sender<Event>) -> Result<()> {
        let mut tick = self.windows.as_ref().and_then(|windows| windows.tick).map(tokio::time::interval);
        if let Some(tick) = &mut tick {
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            let ticked = async {
                match &mut tick {
                    Some(tick) => tick.tick().await,
                    None => std::future::pending().await,
                }
            };
            let element = tokio::select! {
                biased;
                element = self.inputs.next() => element,
                _ = ticked => {
                    if let Some(windows) = &mut self.windows {
                        let fired = windows.back.tick((self.now_ms)()).await;
                        self.fired(fired, &events).await?;
                    }
                    continue;
                }
            };
            let Some((sender, element)) = element else { return Ok(()) };
            match element {
                Element::Batch(target, batch) => {
                    let began = Instant::now();
                    let mut batches = Vec::new();
                    let mut batch = batch;
                    if let Some(time) = &mut self.time {
                        let (stamped, rejected) = time.stamp(sender, batch)?;
                        batch = stamped;
                        batches.extend(rejected.map(|letters| (Target::Route(Route::DEAD_LETTER), letters)));
                    }
                    batches.extend(self.process(target, batch)?);
                    self.busy.inc_by(began.elapsed().as_secs_f64());
                    self.hand_on(batches, &events).await?;
                    self.pass_watermark().await?;
                }
                Element::Progress(facts, ended) => {
                    if let Some((_, _, clocks)) = self.time.as_mut().and_then(|time| time.sources.get_mut(sender)) {
                        clocks.progress(&facts, ended);
                    }
                    self.pass_watermark().await?;
                }
                Element::Fragments(fragments) => {
                    let began = Instant::now();
                    if let Some(windows) = &mut self.windows {
                        let added = windows.back.add(&fragments, (self.now_ms)());
                        added.map_err(|e| Error::new(e.kind(), "a step failed").with("step", &windows.step).because(e))?;
                        if windows.back.wants_barrier() {
                            let _ = events.try_send(Event::WantsBarrier);
                        }
                    }
                    self.busy.inc_by(began.elapsed().as_secs_f64());
                }
                Element::Watermark(watermark) => {
                    if let Some(windows) = &mut self.windows {
                        let fired = windows.back.advance(sender, watermark, (self.now_ms)()).await;
                        self.fired(fired, &events).await?;
                    }
                }
                Element::Barrier(barrier) => {
                    if let Some(windows) = &mut self.windows {
                        windows.checkpoint(barrier.epoch, &events);
                    }
                    if let Some(time) = &self.time {
                        let clocks = time.sources.iter().map(|(_, _, clocks)| clocks.all()).collect();
                        // The coordinator is gone only when the pipeline is being torn down.
                        let _ = events.send(Event::Clocks { epoch: barrier.epoch, clocks }).await;
                    }
                    match &mut self.outlet {
                        Outlet::Exchange(exchange) => send_all(&exchange.senders, &barrier).await?,
                        Outlet::Keyed(keyed) => send_all(&keyed.senders, &barrier).await?,
                        Outlet::Sinks(sinks) => {
                            let work = sinks.prepare(barrier.epoch).await?;
                            let _ = events.send(Event::Prepared { epoch: barrier.epoch, work }).await;
                        }
                    }
                    if barrier.last {
                        return Ok(());
                    }
                    if let Some(swap) = &barrier.swap {
                        self.replace(swap)?;
                    }
                }
            }
        }
    }

    /// Takes the new code of a step that runs here.
    fn replace(&mut self, swap: &Swap) -> Result<()> {
        if let Some(step) = self.steps.iter_mut().find(|step| step.name == *swap.step()) {
            step.operator = swap.operator()?;
        }
        if let Some(windows) = self.windows.as_mut().filter(|windows| windows.step == *swap.step()) {
            windows.back.replace(swap.guest()?);
        }
        if let Outlet::Keyed(keyed) = &mut self.outlet
            && keyed.step == *swap.step()
        {
            keyed.front.replace(swap.guest()?);
        }
        Ok(())
    }

    /// Sends the watermark on, if it has moved.
    async fn pass_watermark(&mut self) -> Result<()> {
        match (&mut self.outlet, &mut self.time) {
            (Outlet::Keyed(keyed), Some(time)) => keyed.watermark(time).await,
            _ => Ok(()),
        }
    }

    /// What windows fired goes through the steps behind them.
    async fn fired(&mut self, fired: Result<Context>, events: &Sender<Event>) -> Result<()> {
        let step = self.windows.as_ref().map(|windows| windows.step.clone()).unwrap_or_default();
        let cx = fired.map_err(|e| Error::new(e.kind(), "a step failed").with("step", &step).because(e))?;
        let began = Instant::now();
        let mut batches = Vec::new();
        for rejected in cx.rejected {
            batches.push((Target::Route(Route::DEAD_LETTER), dead_letters(rejected, &step)));
        }
        for (route, batch) in cx.out {
            batches.extend(self.process(Target::Route(route), batch)?);
        }
        self.busy.inc_by(began.elapsed().as_secs_f64());
        self.hand_on(batches, events).await
    }

    /// Passes batches on to where they go.
    async fn hand_on(&mut self, batches: Vec<(Target, Batch)>, events: &Sender<Event>) -> Result<()> {
        match &mut self.outlet {
            Outlet::Exchange(exchange) => exchange.send(batches).await,
            Outlet::Keyed(keyed) => keyed.send(batches).await,
            Outlet::Sinks(sinks) => {
                for (target, batch) in batches {
                    sinks.write(target, batch).await?;
                }
                if sinks.wants_barrier() {
                    // A full channel means that the coordinator has plenty to hear already.
                    let _ = events.try_send(Event::WantsBarrier);
                }
                Ok(())
            }
        }
    }

    /// Hands a batch through the steps. What leaves the main route on the way goes past the rest of them.
    fn process(&mut self, target: Target, batch: Batch) -> Result<Vec<(Target, Batch)>> {
        if target != Target::Route(Route::MAIN) {
            return Ok(vec![(target, batch)]);
        }
        let mut aside = Vec::new();
        let mut main = vec![batch];
        for step in &mut self.steps {
            let mut cx = Context::default();
            for batch in main.drain(..) {
                step.tap.offer(&batch);
                step.operator
                    .process(batch, &mut cx)
                    .map_err(|e| Error::new(e.kind(), "a step failed").with("step", &step.name).because(e))?;
            }
            for (route, batch) in cx.out {
                match route {
                    Route::MAIN => main.push(batch),
                    other => aside.push((Target::Route(other), batch)),
                }
            }
            for rejected in cx.rejected {
                aside.push((Target::Route(Route::DEAD_LETTER), dead_letters(rejected, &step.name)));
            }
        }
        aside.extend(main.into_iter().map(|batch| (Target::Route(Route::MAIN), batch)));
        Ok(aside)
    }
}

/// Rejected rows as they go to the dead letters: untouched, with the reason, the step and the module as attributes.
pub fn dead_letters(rejected: Rejected, step: &str) -> Batch {
    let Rejected { rows, reasons, module } = rejected;
    let mut builder = BatchBuilder::new(rows.len(), rows.bytes() as usize);
    for (row, reason) in reasons.iter().enumerate() {
        builder.append_row(&rows, row);
        builder.attribute("weir.step", Some(step.as_bytes()));
        builder.attribute("weir.reason", Some(reason.as_bytes()));
        if let Some(module) = &module {
            builder.attribute("weir.module", Some(module.as_bytes()));
        }
    }
    builder.finish(rows.received_ms)
}

/// Each sink by its name, and how it spreads rows, if it does.
pub type Spreads = Vec<(Arc<str>, Option<Box<dyn Distribution>>)>;

/// The sending side of an exchange: spreads the rows of each sink that asks for it, leaves the others on this worker.
pub struct Exchange {
    /// This worker's number.
    pub worker: usize,
    /// One for each worker.
    pub senders: Vec<Sender<Element>>,
    /// The sinks' numbers by the route that they take.
    pub takers: HashMap<Route, Vec<usize>>,
    /// Each sink's name, and how it spreads rows, if it does.
    pub spread: Spreads,
}

impl Exchange {
    async fn send(&mut self, batches: Vec<(Target, Batch)>) -> Result<()> {
        // The first batch last, so that popping keeps the order.
        let mut open: Vec<_> = batches.into_iter().rev().collect();
        while let Some((target, batch)) = open.pop() {
            let Target::Route(route) = target else {
                return Err(Error::bug("a batch for one sink came before the exchange"));
            };
            let takers = match self.takers.get(&route) {
                Some(takers) => takers,
                None if route == Route::DEAD_LETTER => return Err(no_dead_letters(&batch)),
                None => return Err(Error::bug("a route that no sink takes").with("route", route.0)),
            };
            for sink in takers {
                let (name, Some(spread)) = &mut self.spread[*sink] else {
                    send(&self.senders[self.worker], Element::Batch(Target::Sink(*sink), batch.clone())).await?;
                    continue;
                };
                let (parts, rejected) = spread.split(batch.clone(), self.senders.len() as u32)?;
                for (worker, part) in parts {
                    send(&self.senders[worker as usize], Element::Batch(Target::Sink(*sink), part)).await?;
                }
                for rejected in rejected {
                    open.push((Target::Route(Route::DEAD_LETTER), dead_letters(rejected, name)));
                }
            }
        }
        Ok(())
    }
}

async fn send_all(senders: &[Sender<Element>], barrier: &Barrier) -> Result<()> {
    for sender in senders {
        send(sender, Element::Barrier(barrier.clone())).await?;
    }
    Ok(())
}

impl Windows {
    /// Writes the state of an epoch in the background, and reports once it is durable.
    fn checkpoint(&mut self, epoch: Epoch, events: &Sender<Event>) {
        let (done, written) = oneshot::channel();
        let Checkpointed { run, live, watermark, state_version } = self.back.checkpoint((self.run_name)(epoch), written);
        let (log, events, step) = (self.log.clone(), events.clone(), self.step.clone());
        tokio::spawn(async move {
            let put = match &run {
                Some((name, bytes)) => {
                    metrics::STATE_RUN_BYTES.with_label_values(&[&*step]).inc_by(bytes.len() as u64);
                    log.put_state(name, bytes).await
                }
                None => Ok(()),
            };
            let event = match put {
                Ok(()) => Event::State { epoch, runs: live, watermark, state_version },
                Err(e) => Event::Failed(Error::new(e.kind(), "cannot keep the state").with("step", step).because(e)),
            };
            if matches!(event, Event::State { .. }) {
                let _ = done.send(());
            }
            let _ = events.send(event).await;
        });
    }
}

async fn send(sender: &Sender<Element>, element: Element) -> Result<()> {
    // The other side is gone when its worker failed, which it reports itself with the reason.
    sender.send(element).await.map_err(|_| Error::transient("another worker has ended"))
}

/// One sink's writer on this worker.
pub struct SinkWriter {
    /// As in the pipeline file.
    pub name: Arc<str>,
    /// The open writer.
    pub writer: Box<dyn Writer>,
    /// Takes dead letters: prepares last, and a row that it refuses has nowhere left to go.
    pub takes_dead_letters: bool,
    published: HashMap<i64, u64>,
    meters: SinkMeters,
}

struct SinkMeters {
    events: IntCounter,
    bytes: IntCounter,
    rejected: IntCounter,
}

impl SinkWriter {
    /// A writer with its counters.
    pub fn new(name: Arc<str>, writer: Box<dyn Writer>, takes_dead_letters: bool) -> SinkWriter {
        let label = [&*name];
        let meters = SinkMeters {
            events: metrics::SINK_EVENTS.with_label_values(&label),
            bytes: metrics::SINK_BYTES.with_label_values(&label),
            rejected: metrics::SINK_REJECTED.with_label_values(&label),
        };
        SinkWriter { name, writer, takes_dead_letters, published: HashMap::new(), meters }
    }

    /// Notes when the rows were published; neighbours mostly share a millisecond.
    fn note_published(&mut self, batch: &Batch) {
        let mut rest = &batch.published[..];
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|time| *time == first).count();
            *self.published.entry(*first).or_default() += run as u64;
            rest = &rest[run..];
        }
    }
}

/// The sinks of one worker.
pub struct Sinks {
    /// In the order of the pipeline file.
    pub writers: Vec<SinkWriter>,
    /// The sinks' numbers by the route that they take.
    pub takers: HashMap<Route, Vec<usize>>,
    /// From a message's arrival to its being handed to a sink.
    pub handed: Arc<Latency>,
    /// The clock that arrival was read from.
    pub now_ms: fn() -> i64,
}

impl Sinks {
    async fn write(&mut self, target: Target, batch: Batch) -> Result<()> {
        let mut open = vec![(target, batch)];
        while let Some((target, batch)) = open.pop() {
            let one;
            let takers: &[usize] = match target {
                Target::Sink(sink) => {
                    one = [sink];
                    &one
                }
                Target::Route(route) => match self.takers.get(&route) {
                    Some(takers) => takers,
                    None if route == Route::DEAD_LETTER => return Err(no_dead_letters(&batch)),
                    // Counted and told of where they were found.
                    None if route == Route::LATE => continue,
                    None => return Err(Error::bug("a route that no sink takes").with("route", route.0)),
                },
            };
            let waited = Duration::from_millis((self.now_ms)().saturating_sub(batch.received_ms).max(0) as u64);
            for number in takers {
                let sink = &mut self.writers[*number];
                sink.meters.events.inc_by(batch.len() as u64);
                sink.meters.bytes.inc_by(batch.bytes());
                sink.note_published(&batch);
                self.handed.record(waited, batch.len() as u64);
                let rejected = sink.writer.write(batch.clone()).await.map_err(|e| named(e, &sink.name))?;
                for rejected in rejected {
                    open.push(sink.refused(rejected)?);
                }
            }
        }
        Ok(())
    }

    /// Prepares all sinks, those for dead letters last: the others may still reject rows.
    async fn prepare(&mut self, epoch: Epoch) -> Result<Vec<SinkPart>> {
        crash::point("prepare.before");
        let mut work: Vec<SinkPart> = self.writers.iter().map(|_| SinkPart::default()).collect();
        let (last, first): (Vec<usize>, Vec<usize>) = (0..work.len()).partition(|n| self.writers[*n].takes_dead_letters);
        for number in first.into_iter().chain(last) {
            let sink = &mut self.writers[number];
            let (prepared, rejected) = sink.writer.prepare(epoch).await.map_err(|e| named(e, &sink.name))?;
            work[number].prepared = prepared;
            for rejected in rejected {
                let (target, letters) = self.writers[number].refused(rejected)?;
                self.write(target, letters).await?;
            }
        }
        crash::point("prepare.after");
        for (part, sink) in work.iter_mut().zip(&mut self.writers) {
            part.published = std::mem::take(&mut sink.published);
        }
        Ok(work)
    }

    fn wants_barrier(&self) -> bool {
        self.writers.iter().any(|sink| sink.writer.wants_barrier())
    }
}

impl SinkWriter {
    /// Turns rows that the sink refused into dead letters.
    fn refused(&mut self, rejected: Rejected) -> Result<(Target, Batch)> {
        self.meters.rejected.inc_by(rejected.rows.len() as u64);
        for time in rejected.rows.published.iter() {
            if let Some(count) = self.published.get_mut(time) {
                *count = count.saturating_sub(1);
            }
        }
        if self.takes_dead_letters {
            let reason = rejected.reasons.first().cloned().unwrap_or_default();
            return Err(Error::config(
                "the sink of the dead letters refuses one, and there is nowhere left to put it: mend that sink",
            )
            .with("sink", &self.name)
            .with("reason", reason));
        }
        Ok((Target::Route(Route::DEAD_LETTER), dead_letters(rejected, &self.name)))
    }
}

fn named(error: Error, sink: &str) -> Error {
    Error::new(error.kind(), "a sink failed").with("sink", sink).because(error)
}

/// What a person reads who has configured no place for dead letters.
fn no_dead_letters(batch: &Batch) -> Error {
    let attribute = |name: &str| {
        let found = batch.attributes.of(0).find(|(n, _)| *n == name).and_then(|(_, value)| value);
        String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
    };
    Error::config("a message was rejected and no sink takes dead letters: add a sink with `from: [dead_letter]`")
        .with("step", attribute("weir.step"))
        .with("partition", batch.partitions[0])
        .with("offset", batch.offsets[0])
        .with("reason", attribute("weir.reason"))
}
