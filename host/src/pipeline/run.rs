//! The running pipeline: wires sources and workers, and carries each epoch from its barrier to its
//! last commit. Owns the order of the protocol; the decisions in it are `checkpoint`'s.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::build::Pipeline;
use super::recover::{Recovery, Start, at_sink, discard};
use super::source_task::{Command, SourceTask};
use super::status::{Phase, Status};
use crate::checkpoint::{Claim, SinkWork};
use crate::crash;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Barrier, Element, inputs};
use crate::metrics;
use crate::sink::{CommitInfo, Committer, Epoch};
use crate::source::{Position, Slice};
use crate::worker::{Event, Exchange, Outlet, SinkPart, SinkWriter, Sinks, Stage, Step};

/// Everything about the surroundings that a simulation replaces.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// A name that nobody drew before.
    fn new_id(&self) -> String;
    /// Runs a worker.
    fn spawn(&self, name: String, worker: BoxFuture<'static, ()>) -> Result<()>;
    /// A named point of the protocol: a simulation may end the process here.
    async fn point(&self, name: &'static str);
}

/// The real surroundings: a thread for each worker, and the machine's clock.
pub struct Live;

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

#[async_trait]
impl Environment for Live {
    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn new_id(&self) -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }

    fn spawn(&self, name: String, worker: BoxFuture<'static, ()>) -> Result<()> {
        // The thread computes; what its futures wait for is driven by the I/O runtime.
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || runtime.block_on(worker))
            .map(drop)
            .map_err(|e| Error::transient("cannot start a worker thread").because(e))
    }

    async fn point(&self, name: &'static str) {
        crash::point(name);
    }
}

/// What a person or signal asks of a running pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing: go on.
    No,
    /// Stop at a barrier, commit, keep everything for the next start.
    AtBarrier,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All input is read and everything is in the sinks.
    Finished,
    /// Stopped at a barrier on request.
    Stopped,
    /// The log said that everything is done: nothing ran.
    WasFinished,
}

const BACKOFF_MIN: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// How long sources may take to acknowledge at the end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Runs the pipeline until its input ends, it is stopped, or it can't go on. Starts again from the
/// checkpoint after errors that may pass.
pub async fn run(
    pipeline: &Arc<Pipeline>,
    env: &dyn Environment,
    mut stop: watch::Receiver<Stop>,
    status: &Arc<Status>,
) -> Result<Outcome> {
    let mut failures = 0;
    let mut delay = BACKOFF_MIN;
    loop {
        let mut epochs = 0;
        let error = match attempt(pipeline, env, stop.clone(), status, &mut epochs).await {
            Ok(outcome) => {
                status.enter(Phase::Ended);
                return Ok(outcome);
            }
            Err(error) => error,
        };
        if epochs > 0 {
            (failures, delay) = (0, BACKOFF_MIN);
        }
        failures += 1;
        if error.kind() != ErrorKind::Transient || failures > pipeline.restarts || *stop.borrow() != Stop::No {
            status.enter(Phase::Ended);
            return Err(error);
        }
        tracing::warn!(%error, seconds = delay.as_secs_f64(), failures, "starting again from the checkpoint");
        metrics::RESTARTS.with_label_values(&[pipeline.name.as_str(), error.kind().name()]).inc();
        status.restarted();
        status.enter(Phase::Backoff { error: error.to_string() });
        tokio::select! {
            _ = tokio::time::sleep(delay) => {}
            _ = stop.changed() => {}
        }
        delay = (delay * 2).min(BACKOFF_MAX);
    }
}

/// One life of the pipeline: from recovery to its end or first error. `epochs` counts what it committed.
async fn attempt(
    pipeline: &Arc<Pipeline>,
    env: &dyn Environment,
    mut stop: watch::Receiver<Stop>,
    status: &Arc<Status>,
    epochs: &mut u64,
) -> Result<Outcome> {
    let log = pipeline.store.log(&pipeline.name, pipeline.task);
    let id = env.new_id();
    let recovery = Recovery { pipeline, log: &log, attempt: &id, env, status };
    let Some(start) = recovery.start().await? else {
        return Ok(Outcome::WasFinished);
    };
    tracing::info!(pipeline = pipeline.name, epoch = %start.base.epoch, workers = pipeline.workers, "running");
    let mut running = Running::open(&recovery, start).await?;
    status.enter(Phase::Running);
    let interval = pipeline.interval;
    let mut next_barrier = Instant::now() + interval;
    loop {
        let mut early = false;
        let last = running.ended == running.sources_open;
        if !last {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop != Stop::No) => {}
                event = running.events.recv() => early = running.between(event)?,
                _ = tokio::time::sleep_until(next_barrier) => early = true,
            }
        }
        let stopping = *stop.borrow() != Stop::No;
        let last = running.ended == running.sources_open;
        if !(early || last || stopping) {
            continue;
        }
        next_barrier = Instant::now() + interval;
        if running.epoch(&recovery, last || stopping, last).await? {
            *epochs += 1;
        }
        if last || stopping {
            running.close().await;
            return Ok(if last { Outcome::Finished } else { Outcome::Stopped });
        }
        status.enter(Phase::Running);
    }
}

/// The open pipeline, as its coordinator sees it. Dropping it ends sources and workers.
struct Running {
    start: Start,
    commands: Vec<Sender<Command>>,
    events: Receiver<Event>,
    sources_open: usize,
    ended: usize,
    workers: usize,
    tasks: JoinSet<()>,
}

/// Says so when a worker's thread dies of a panic: otherwise the coordinator would wait for it for ever.
struct ReportPanic(Sender<Event>);

impl Drop for ReportPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.try_send(Event::Failed(Error::bug("a worker panicked: its message stands above in the log")));
        }
    }
}

impl Running {
    /// Opens writers and sources and starts the workers.
    async fn open(recovery: &Recovery<'_>, start: Start) -> Result<Running> {
        let pipeline = recovery.pipeline;
        let workers = pipeline.workers as usize;
        let (report, events) = channel(64 + 4 * workers);
        let spread = workers > 1 && pipeline.spreads()?;
        // The channels of the exchange: to[w] are the senders that worker w hands rows to.
        let mut second: Vec<_> = (0..workers).map(|_| None).collect();
        let mut to: Vec<Vec<Sender<Element>>> = vec![Vec::new(); workers];
        if spread {
            for slot in &mut second {
                let (senders, stage_inputs) = inputs(workers);
                *slot = Some(stage_inputs);
                for (from, sender) in senders.into_iter().enumerate() {
                    to[from].push(sender);
                }
            }
        }
        let mut tasks = JoinSet::new();
        let mut commands = Vec::new();
        let mut to = to.into_iter();
        for (worker, second) in second.into_iter().enumerate() {
            let (senders, first) = inputs(pipeline.sources.len());
            for (number, (source, output)) in pipeline.sources.iter().zip(senders).enumerate() {
                let slice = Slice { task: pipeline.task, tasks: pipeline.tasks, worker: worker as u32, workers: workers as u32 };
                let position = start.base.sources.get(&*source.name).cloned().unwrap_or_default();
                let opened = source.connector.open(slice, &position).await;
                let opened =
                    opened.map_err(|e| Error::new(e.kind(), "cannot open the source").with("source", &source.name).because(e))?;
                let (command, received) = channel(8);
                commands.push(command);
                let state = recovery.status.source(&source.name);
                let task = SourceTask {
                    number,
                    name: source.name.clone(),
                    source: opened,
                    output,
                    commands: received,
                    events: report.clone(),
                    state,
                };
                tasks.spawn(task.run(recovery.status.clone()));
            }
            let busy = metrics::WORKER_BUSY.with_label_values(&[worker.to_string().as_str()]);
            let sinks = Outlet::Sinks(open_sinks(recovery, &start, worker as u32).await?);
            let steps = pipeline.operators()?;
            let senders = to.next().unwrap_or_default();
            let stages = match second {
                None => vec![Stage { inputs: first, steps, outlet: sinks, busy }],
                Some(second) => {
                    let spread = pipeline.distributions()?;
                    let exchange = Outlet::Exchange(Exchange { worker, senders, takers: pipeline.takers.clone(), spread });
                    let collect = Stage { inputs: second, steps: Vec::<Step>::new(), outlet: sinks, busy: busy.clone() };
                    vec![Stage { inputs: first, steps, outlet: exchange, busy }, collect]
                }
            };
            let report = report.clone();
            let work = async move {
                let _guard = ReportPanic(report.clone());
                let running = stages.into_iter().map(|stage| stage.run(report.clone()));
                if let Err(error) = futures::future::try_join_all(running).await {
                    let _ = report.send(Event::Failed(error)).await;
                }
            };
            recovery.env.spawn(format!("weir-worker-{worker}"), Box::pin(work))?;
        }
        let sources_open = commands.len();
        Ok(Running { start, commands, events, sources_open, ended: 0, workers, tasks })
    }

    /// Lets the sources carry out what they were told last, then ends them.
    async fn close(mut self) {
        self.commands.clear();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CLOSE_PATIENCE, ended).await.is_err() {
            tracing::warn!("a source does not end, leaving it");
        }
    }

    /// An event outside an epoch's end. True: a barrier is wanted now.
    fn between(&mut self, event: Option<Event>) -> Result<bool> {
        match event {
            None => Err(Error::bug("all sources and workers have ended")),
            Some(Event::Failed(error)) => Err(error),
            Some(Event::Ended) => {
                self.ended += 1;
                Ok(false)
            }
            Some(Event::WantsBarrier) => Ok(true),
            Some(Event::Position { .. } | Event::Prepared { .. }) => {
                Err(Error::bug("a part answered a barrier that nobody sent"))
            }
        }
    }

    /// Carries one epoch from its barrier to its last commit. False: nothing had happened, nothing was written.
    async fn epoch(&mut self, recovery: &Recovery<'_>, last: bool, finished: bool) -> Result<bool> {
        let began = Instant::now();
        let epoch = self.start.next;
        let (positions, work) = self.barrier(recovery, Barrier { epoch, last }).await?;
        let mut sources = self.start.base.sources.clone();
        for (source, position) in recovery.pipeline.sources.iter().zip(&positions) {
            sources.entry(source.name.to_string()).or_default().merge(position);
        }
        let idle = sources == self.start.base.sources && work.iter().flatten().all(|part| part.prepared.is_none());
        if idle && !finished {
            return Ok(false);
        }
        let mut sinks = BTreeMap::new();
        let mut prepared = Vec::new();
        for (sink, parts) in recovery.pipeline.sinks.iter().zip(&work) {
            let of_sink: Vec<_> = parts.iter().filter_map(|part| part.prepared.clone()).collect();
            sinks.insert(sink.name.to_string(), SinkWork { kind: sink.connector.kind().to_string(), prepared: of_sink.clone() });
            prepared.push(of_sink);
        }
        let manifest = recovery.follow(&self.start, sources, sinks, finished);
        recovery.status.enter(Phase::Manifest);
        match recovery.create(&manifest).await? {
            Claim::Ours => {}
            Claim::Beaten => {
                discard(&mut self.start.committers, &prepared).await;
                return Err(recovery.fenced(&manifest));
            }
            Claim::Superseded | Claim::Again => return Err(recovery.fenced(&manifest)),
        }
        recovery.status.epoch(epoch);
        self.commit(recovery, epoch, &work, &prepared).await?;
        for (sender, position) in self.commands.iter().zip(positions.iter().cycle()) {
            // A source task that is gone has reported why.
            let _ = sender.send(Command::Ack(position.clone())).await;
        }
        recovery.env.point("ack.after").await;
        recovery.sweep(&manifest).await?;
        let pipeline = recovery.pipeline.name.as_str();
        metrics::CHECKPOINTS.with_label_values(&[pipeline]).inc();
        metrics::CHECKPOINT_EPOCH.with_label_values(&[pipeline]).set(epoch.0 as i64);
        metrics::CHECKPOINT_SECONDS.with_label_values(&[pipeline]).observe(began.elapsed().as_secs_f64());
        self.start.next = epoch.next();
        self.start.abandoned.clear();
        self.start.base = manifest;
        Ok(true)
    }

    /// Sends the barrier and collects every answer: by source the position, by sink what each worker prepared.
    async fn barrier(&mut self, recovery: &Recovery<'_>, barrier: Barrier) -> Result<(Vec<Position>, Vec<Vec<SinkPart>>)> {
        for command in &self.commands {
            let _ = command.send(Command::Barrier(barrier)).await;
        }
        let mut positions = vec![Position::default(); recovery.pipeline.sources.len()];
        let mut work: Vec<Vec<SinkPart>> = recovery.pipeline.sinks.iter().map(|_| Vec::new()).collect();
        let mut missing = self.sources_open + self.workers;
        while missing > 0 {
            recovery.status.enter(Phase::Barrier { missing });
            match self.events.recv().await {
                Some(Event::Position { source, epoch, position }) if epoch == barrier.epoch => {
                    positions[source].merge(&position);
                    missing -= 1;
                }
                Some(Event::Prepared { epoch, work: parts }) if epoch == barrier.epoch => {
                    work.iter_mut().zip(parts).for_each(|(sink, part)| sink.push(part));
                    missing -= 1;
                }
                Some(Event::Position { .. } | Event::Prepared { .. }) => return Err(Error::bug("an answer to another barrier")),
                other => {
                    self.between(other)?;
                }
            }
        }
        Ok((positions, work))
    }

    /// Makes the epoch visible in every sink.
    async fn commit(
        &mut self,
        recovery: &Recovery<'_>,
        epoch: Epoch,
        work: &[Vec<SinkPart>],
        prepared: &[Vec<crate::sink::Prepared>],
    ) -> Result<()> {
        recovery.env.point("commit.before").await;
        let info = CommitInfo { modules: recovery.pipeline.modules().into_iter().map(|(step, m)| (step, m.running)).collect() };
        for (number, sink) in recovery.pipeline.sinks.iter().enumerate() {
            if prepared[number].is_empty() {
                continue;
            }
            recovery.status.enter(Phase::Committing { sink: sink.name.to_string() });
            let began = Instant::now();
            let committer: &mut Box<dyn Committer> = &mut self.start.committers[number];
            let committed = committer.commit(epoch, &prepared[number], &info).await.map_err(|e| at_sink(e, &sink.name))?;
            recovery.env.point("commit.sent").await;
            let label = [&*sink.name];
            metrics::COMMIT_SECONDS.with_label_values(&label).observe(began.elapsed().as_secs_f64());
            metrics::SINK_COMMITTED.with_label_values(&label).inc_by(committed.rows);
            metrics::SINK_FILES.with_label_values(&label).inc_by(committed.files);
            metrics::SINK_FILE_BYTES.with_label_values(&label).inc_by(committed.bytes);
            let mut published: HashMap<i64, u64> = HashMap::new();
            for (time, count) in work[number].iter().flat_map(|part| &part.published) {
                *published.entry(*time).or_default() += count;
            }
            recovery.status.committed(&sink.name, committed, published.into_iter(), recovery.env.now_ms());
        }
        recovery.env.point("commit.after").await;
        Ok(())
    }
}

async fn open_sinks(recovery: &Recovery<'_>, start: &Start, worker: u32) -> Result<Sinks> {
    let mut writers = Vec::new();
    for sink in &recovery.pipeline.sinks {
        let identity = recovery.identity(sink, &start.log_id);
        let writer = sink.connector.writer(&identity, worker).await.map_err(|e| at_sink(e, &sink.name))?;
        writers.push(SinkWriter::new(sink.name.clone(), writer, sink.takes_dead_letters));
    }
    Ok(Sinks { writers, takers: recovery.pipeline.takers.clone(), handed: recovery.status.handed.clone(), now_ms })
}
