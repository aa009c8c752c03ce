//! Runs one worker's part of a source on the I/O runtime: reads, cuts at barriers, acknowledges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender};
use tokio::sync::watch;

use super::status::{SourceState, Status};
use crate::batch::Route;
use crate::checkpoint::Log;
use crate::error::{Error, Result};
use crate::exchange::{Barrier, Element, Target};
use crate::metrics;
use crate::sink::Epoch;
use crate::source::{Position, Source};
use crate::watermark::Progress;
use crate::worker::{Event, dead_letters};

/// What the coordinator tells a source.
#[derive(Clone, Debug)]
pub enum Command {
    /// Cut here.
    Barrier(Barrier),
    /// The checkpoint that holds this position is durable.
    Ack(Position),
    /// Read no more, as if the input had ended here.
    End,
}

/// One worker's part of a source.
pub struct SourceTask {
    /// Its number in the pipeline file.
    pub number: usize,
    /// Its name.
    pub name: Arc<str>,
    /// The running source.
    pub source: Box<dyn Source>,
    /// To the worker.
    pub output: Sender<Element>,
    /// From the coordinator.
    pub commands: Receiver<Command>,
    /// Whether to read nothing for now.
    pub paused: watch::Receiver<bool>,
    /// To the coordinator.
    pub events: Sender<Event>,
    /// What the task is doing.
    pub state: Arc<AtomicU8>,
    /// The pipeline has windows: the worker is told of progress.
    pub tells_progress: bool,
    /// Where its state is kept.
    pub log: Log,
    /// What the state of an epoch is called.
    pub state_name: Box<dyn Fn(Epoch) -> String + Send + Sync>,
}

/// How often the worker is told of partitions that are caught up.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

impl SourceTask {
    /// Runs until the coordinator is gone. An error is reported, and ends the task.
    pub async fn run(mut self, status: Arc<Status>) {
        if let Err(error) = self.read(&status).await {
            let error = Error::new(error.kind(), "a source failed").with("source", &self.name).because(error);
            let _ = self.events.send(Event::Failed(error)).await;
        }
    }

    async fn read(&mut self, status: &Status) -> Result<()> {
        let events = metrics::SOURCE_EVENTS.with_label_values(&[&*self.name]);
        let bytes = metrics::SOURCE_BYTES.with_label_values(&[&*self.name]);
        let refused = metrics::SOURCE_REJECTED.with_label_values(&[&*self.name]);
        let (mut ended, mut stopped, mut asked) = (false, false, false);
        let mut told = Vec::new();
        let mut tick = tokio::time::interval(PROGRESS_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Before the first message: partitions that are not known would not be waited for.
        if !self.tell_progress(&mut told, false).await {
            return Ok(());
        }
        loop {
            let paused = *self.paused.borrow_and_update();
            tokio::select! {
                // Barriers first: an interval is kept however fast the source is.
                biased;
                command = self.commands.recv() => match command {
                    None => return self.source.settle().await,
                    Some(Command::Ack(position)) => {
                        self.source.ack(&position).await?;
                        // A wish from before may have been taken for a part of the epoch that is now over.
                        asked = false;
                        self.ask_for_barrier(&mut asked).await;
                    }
                    Some(Command::End) if ended => {}
                    Some(Command::End) => {
                        ended = true;
                        if !self.end(&mut told).await {
                            return Ok(());
                        }
                    }
                    Some(Command::Barrier(barrier)) => {
                        self.report_lag();
                        stopped |= barrier.last;
                        if !self.answer(barrier.epoch).await || !self.hand_on(Element::Barrier(barrier)).await {
                            return Ok(());
                        }
                    }
                },
                _ = tick.tick(), if self.tells_progress && !ended && !stopped => {
                    if !self.tell_progress(&mut told, false).await {
                        return Ok(());
                    }
                }
                Ok(()) = self.paused.changed() => {}
                batch = self.source.next(), if !ended && !stopped && !paused => match batch? {
                    Some(batch) => {
                        events.inc_by(batch.len() as u64);
                        bytes.inc_by(batch.bytes());
                        status.read(batch.len() as u64, batch.bytes());
                        if !batch.is_empty() && !self.hand_on(Element::Batch(Target::Route(Route::MAIN), batch)).await {
                            return Ok(());
                        }
                        if let Some(rejected) = self.source.rejected() {
                            status.read(rejected.rows.len() as u64, rejected.rows.bytes());
                            refused.inc_by(rejected.rows.len() as u64);
                            let letters = dead_letters(rejected, &self.name);
                            if !self.hand_on(Element::Batch(Target::Route(Route::DEAD_LETTER), letters)).await {
                                return Ok(());
                            }
                        }
                        self.ask_for_barrier(&mut asked).await;
                    }
                    None => {
                        ended = true;
                        if !self.end(&mut told).await {
                            return Ok(());
                        }
                    }
                },
            }
        }
    }

    async fn ask_for_barrier(&mut self, asked: &mut bool) {
        if !*asked && self.source.wants_barrier() {
            *asked = true;
            let _ = self.events.send(Event::WantsBarrier).await;
        }
    }

    /// Answers a barrier with the position, once the state that it names is durable. False when the coordinator is gone.
    async fn answer(&mut self, epoch: Epoch) -> bool {
        let name = (self.state_name)(epoch);
        let state = self.source.state(&name);
        let event = Event::Position { source: self.number, epoch, position: self.source.position() };
        let Some(bytes) = state else { return self.events.send(event).await.is_ok() };
        let (log, events, source) = (self.log.clone(), self.events.clone(), self.name.clone());
        // Meanwhile the barrier goes on, and the source reads on.
        tokio::spawn(async move {
            let kept = log.put_state(&name, &bytes).await;
            let failed =
                |e: Error| Error::new(e.kind(), "cannot keep what a source remembers").with("source", &source).because(e);
            let _ = events.send(kept.map_or_else(|e| Event::Failed(failed(e)), |()| event)).await;
        });
        true
    }

    /// Says that nothing follows. False when the worker is gone.
    async fn end(&mut self, told: &mut Vec<Progress>) -> bool {
        let taken = self.tell_progress(told, true).await;
        self.state.store(SourceState::Ended as u8, Ordering::Relaxed);
        let _ = self.events.send(Event::Ended).await;
        taken
    }

    /// Tells the worker what the source knows of its partitions, if that is new. False when the worker is gone.
    async fn tell_progress(&mut self, told: &mut Vec<Progress>, ended: bool) -> bool {
        if !self.tells_progress {
            return true;
        }
        let mut facts = self.source.progress();
        if ended {
            facts.iter_mut().for_each(|fact| fact.ended = true);
        } else if facts == *told && !facts.is_empty() {
            return true;
        }
        told.clone_from(&facts);
        self.hand_on(Element::Progress(facts, ended)).await
    }

    /// False when the worker is gone, which reports its reason itself.
    async fn hand_on(&mut self, element: Element) -> bool {
        let before = self.state.swap(SourceState::Blocked as u8, Ordering::Relaxed);
        let taken = self.output.send(element).await.is_ok();
        self.state.store(before, Ordering::Relaxed);
        taken
    }

    fn report_lag(&self) {
        for (partition, lag) in self.source.lag() {
            metrics::SOURCE_LAG.with_label_values(&[&*self.name, partition.as_str()]).set(lag as i64);
        }
    }
}
