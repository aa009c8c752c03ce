//! The running loop of one worker: stages that take elements in, hand batches through their steps,
//! and pass the outcome to other workers or into the sinks. Owns no decision about epochs: it
//! reports to the coordinator what it prepared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tokio::sync::mpsc::Sender;

use crate::batch::{Batch, BatchBuilder, Rejected, Route};
use crate::crash;
use crate::error::{Error, Result};
use crate::exchange::{Barrier, Element, Inputs, Target};
use crate::metrics::{self, Latency};
use crate::operator::{Context, Operator};
use crate::sink::{Distribution, Epoch, Prepared, Writer};
use crate::source::Position;

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
    /// A sink would rather have a barrier now.
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
}

/// Steps between two exchanges, on one worker.
pub struct Stage {
    /// Where elements come from.
    pub inputs: Inputs,
    /// What is done with them, in order.
    pub steps: Vec<Step>,
    /// Where they go.
    pub outlet: Outlet,
    /// Counts the time spent computing.
    pub busy: IntCounter,
}

/// Where a stage's rows go.
pub enum Outlet {
    /// Into this worker's sinks.
    Sinks(Sinks),
    /// To the next stage of all workers.
    Exchange(Exchange),
}

impl Stage {
    /// Runs until the last barrier, or until the pipeline is torn down.
    pub async fn run(mut self, events: Sender<Event>) -> Result<()> {
        while let Some(element) = self.inputs.next().await {
            match element {
                Element::Batch(target, batch) => {
                    let began = Instant::now();
                    let batches = self.process(target, batch)?;
                    self.busy.inc_by(began.elapsed().as_micros() as u64);
                    match &mut self.outlet {
                        Outlet::Exchange(exchange) => exchange.send(batches).await?,
                        Outlet::Sinks(sinks) => {
                            for (target, batch) in batches {
                                sinks.write(target, batch).await?;
                            }
                            if sinks.wants_barrier() {
                                // A full channel means that the coordinator has plenty to hear already.
                                let _ = events.try_send(Event::WantsBarrier);
                            }
                        }
                    }
                }
                Element::Barrier(barrier) => {
                    match &mut self.outlet {
                        Outlet::Exchange(exchange) => exchange.barrier(barrier).await?,
                        Outlet::Sinks(sinks) => {
                            let work = sinks.prepare(barrier.epoch).await?;
                            // The coordinator is gone only when the pipeline is being torn down.
                            let _ = events.send(Event::Prepared { epoch: barrier.epoch, work }).await;
                        }
                    }
                    if barrier.last {
                        break;
                    }
                }
            }
        }
        Ok(())
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
            for sink in self.takers.get(&route).into_iter().flatten() {
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

    async fn barrier(&mut self, barrier: Barrier) -> Result<()> {
        for sender in &self.senders {
            send(sender, Element::Barrier(barrier)).await?;
        }
        Ok(())
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
