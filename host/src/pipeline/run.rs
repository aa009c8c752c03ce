//! The running pipeline: wires sources and workers, and carries each epoch from its barrier to its
//! last commit. Owns the order of the protocol; the decisions in it are `checkpoint`'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::build::{Pipeline, StepPlan};
use super::recover::{Facts, Recovery, Start, at_sink, discard};
use super::source_task::{Command, SourceTask};
use super::status::{Phase, Status};
use super::steer::{OpenSwap, Request, Steering, Stop, SwapRequest, Swapped, Watched};
use crate::checkpoint::{Claim, Clocks, Log, SinkWork, StepState, Version};
use crate::crash;
use crate::error::{Error, ErrorKind, Result};
use crate::exchange::{Barrier, Element, Inputs, inputs};
use crate::metrics;
use crate::operators::aggregate::Front;
use crate::sink::{CommitInfo, Committer, Epoch};
use crate::source::{Position, Slice};
use crate::swap::Swap;
use crate::traces::{EpochTrace, Part};
use crate::waits::Waits;
use crate::window::BEGINNING;
use crate::worker::{Event, Exchange, Keyed, Outlet, SinkPart, SinkWriter, Sinks, Stage};

/// Everything about the surroundings that a simulation replaces.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// The clock that workers read.
    fn clock(&self) -> fn() -> i64;
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

    fn clock(&self) -> fn() -> i64 {
        now_ms
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
    mut steering: Steering,
    status: &Arc<Status>,
) -> Result<Outcome> {
    let mut failures = 0;
    let mut delay = BACKOFF_MIN;
    let mut known = BTreeSet::new();
    loop {
        let mut epochs = 0;
        let error = match attempt(pipeline, env, &mut steering, status, &mut known, &mut epochs).await {
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
        let may_pass = error.kind() == ErrorKind::Transient || steering.failed(&error);
        if !may_pass || failures > pipeline.restarts || *steering.stop.borrow() == Stop::AtBarrier {
            status.enter(Phase::Ended);
            return Err(error);
        }
        tracing::warn!(%error, seconds = delay.as_secs_f64(), failures, "starting again from the checkpoint");
        metrics::RESTARTS.with_label_values(&[pipeline.name.as_str(), error.kind().name()]).inc();
        status.restarted();
        status.enter(Phase::Backoff { error: error.to_string() });
        tokio::select! {
            _ = tokio::time::sleep(delay) => {}
            _ = steering.stop.changed() => {}
        }
        delay = (delay * 2).min(BACKOFF_MAX);
    }
}

/// One life of the pipeline: from recovery to its end or first error. `known` are the attempts whose manifests this process
/// has gone on from or may have written; `epochs` counts what it committed.
async fn attempt(
    pipeline: &Arc<Pipeline>,
    env: &dyn Environment,
    steering: &mut Steering,
    status: &Arc<Status>,
    known: &mut BTreeSet<String>,
    epochs: &mut u64,
) -> Result<Outcome> {
    let log = pipeline.store.log(&pipeline.name, pipeline.task);
    let id = env.new_id();
    let recovery = Recovery { pipeline, log: &log, attempt: &id, env, status };
    if let Some(newest) = log.newest().await? {
        // A process that waited to start again finds that another has gone on: two that take turns get nowhere.
        if !known.is_empty() && !known.contains(&newest.attempt) {
            return Err(recovery.fenced(&newest, Claim::Superseded));
        }
        known.insert(newest.attempt);
    }
    known.insert(id.clone());
    let Some(mut start) = recovery.start().await? else {
        return Ok(Outcome::WasFinished);
    };
    known.insert(start.base.attempt.clone());
    steering.go_back(&mut start.lineup, pipeline, start.next, env.now_ms()).await?;
    steering.settle(&start.lineup);
    status.runs(&start.lineup);
    tracing::info!(pipeline = pipeline.name, epoch = %start.base.epoch, workers = pipeline.workers, "running");
    let mut running = Running::open(&recovery, start, steering).await?;
    status.enter(Phase::Running);
    let interval = pipeline.interval;
    let mut next_barrier = Instant::now() + interval;
    let mut draining = false;
    loop {
        let (mut early, mut asked) = (false, None);
        if running.ended < running.sources_open {
            tokio::select! {
                biased;
                Ok(_) = steering.stop.wait_for(|stop| *stop == Stop::AtBarrier || (*stop == Stop::Drain && !draining)) => {}
                Some(request) = steering.requests.recv() => asked = Some(request),
                event = running.events.recv() => early = running.between(event)?,
                _ = tokio::time::sleep_until(next_barrier) => early = true,
            }
        }
        let (mut swap, mut waiting) = (None, None);
        match asked {
            Some(Request::Checkpoint(answer)) => waiting = Some(answer),
            Some(Request::Swap(request)) => swap = running.accept(*request, steering, env.now_ms()),
            None => {}
        }
        early |= swap.is_some() || waiting.is_some();
        let stop = *steering.stop.borrow();
        if stop == Stop::Drain && !draining {
            draining = true;
            running.tell(Command::End).await;
        }
        let (stopping, last) = (stop == Stop::AtBarrier, running.ended == running.sources_open);
        if !(early || last || stopping) {
            continue;
        }
        next_barrier = Instant::now() + interval;
        let cut = Cut { last: last || stopping, finished: last, swap };
        if running.epoch(&recovery, cut).await? {
            *epochs += 1;
        }
        steering.settle(&running.start.lineup);
        if let Some(answer) = waiting {
            let _ = answer.send(running.start.base.epoch.0);
        }
        if last || stopping {
            running.close().await;
            return Ok(if last { Outcome::Finished } else { Outcome::Stopped });
        }
        status.enter(Phase::Running);
    }
}

/// How an epoch ends.
struct Cut {
    /// Nothing follows in this process.
    last: bool,
    /// Nothing follows at all.
    finished: bool,
    /// What a step runs from here on, and why.
    swap: Option<NextCode>,
}

/// Other code for a step.
struct NextCode {
    plan: StepPlan,
    swap: Arc<Swap>,
    version: Version,
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

/// What sources and workers answered to a barrier.
#[derive(Default)]
struct Answers {
    /// By source.
    positions: Vec<Position>,
    /// By sink what each worker prepared.
    work: Vec<Vec<SinkPart>>,
    /// Runs that hold state; by name, and so in the order of their epochs.
    runs: BTreeSet<Arc<str>>,
    watermark: i64,
    state_version: u32,
    clocks: Clocks,
}

/// A channel from each worker to each worker: the senders of each, and the inputs of each.
fn all_to_all(workers: usize) -> (Vec<Vec<Sender<Element>>>, Vec<Inputs>) {
    let mut to: Vec<Vec<Sender<Element>>> = vec![Vec::new(); workers];
    let receivers = (0..workers).map(|_| {
        let (senders, inputs) = inputs(workers);
        senders.into_iter().enumerate().for_each(|(from, sender)| to[from].push(sender));
        inputs
    });
    let receivers = receivers.collect();
    (to, receivers)
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
    async fn open(recovery: &Recovery<'_>, start: Start, steering: &Steering) -> Result<Running> {
        let pipeline = recovery.pipeline;
        let keyed_step = start.lineup.windows();
        let workers = pipeline.workers as usize;
        let (report, events) = channel(64 + 8 * workers);
        let waits = Arc::new(Waits::new(workers));
        recovery.status.watch(waits.clone());
        // One exchange in front of windows, and one in front of sinks that have their rows spread.
        let mut keyed = keyed_step.map(|_| all_to_all(workers));
        let mut spread = (workers > 1 && pipeline.spreads()?).then(|| all_to_all(workers));
        let mut tasks = JoinSet::new();
        let mut commands = Vec::new();
        for source in &pipeline.sources {
            recovery.begin_source(source, &start.base).await?;
        }
        for worker in 0..workers {
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
                let (attempt, name) = (recovery.attempt.to_string(), source.name.clone());
                let task = SourceTask {
                    number,
                    name: source.name.clone(),
                    source: opened,
                    output,
                    commands: received,
                    events: report.clone(),
                    state,
                    tells_progress: keyed_step.is_some(),
                    log: recovery.log.clone(),
                    state_name: Box::new(move |epoch| Log::state_name(epoch, &attempt, &name, worker as u32, "src")),
                    paused: steering.paused.clone(),
                };
                tasks.spawn(task.run(recovery.status.clone()));
            }
            let busy = metrics::WORKER_BUSY.with_label_values(&[worker.to_string().as_str()]);
            let stage = |inputs, time, windows, steps, outlet| Stage {
                inputs,
                time,
                windows,
                steps,
                outlet,
                busy: busy.clone(),
                now_ms: recovery.env.clock(),
            };
            let (before, after) = start.lineup.operators()?;
            let mut stages = Vec::new();
            // What reads from the sources, up to windows if there are any; then the rest, up to the sinks.
            let (rest_inputs, rest_windows, rest_steps) = match (keyed_step, &mut keyed) {
                (Some(settings), Some((senders, receivers))) => {
                    let outlet = Outlet::Keyed(Box::new(Keyed {
                        worker,
                        senders: std::mem::take(&mut senders[worker]),
                        front: Front::new(settings, workers as u32)?,
                        step: settings.step.clone(),
                        sent: BEGINNING,
                        waits: waits.clone(),
                    }));
                    stages.push(stage(first, Some(recovery.time(&start.base)), None, before, outlet));
                    let windows = recovery.windows(settings, &start.base, worker as u32, workers as u32).await?;
                    (receivers.remove(0), Some(windows), after)
                }
                _ => (first, None, before),
            };
            let sinks = Outlet::Sinks(open_sinks(recovery, &start.log_id, worker as u32).await?);
            match &mut spread {
                None => stages.push(stage(rest_inputs, None, rest_windows, rest_steps, sinks)),
                Some((senders, receivers)) => {
                    let outlet = Outlet::Exchange(Exchange {
                        worker,
                        senders: std::mem::take(&mut senders[worker]),
                        takers: pipeline.takers.clone(),
                        spread: pipeline.distributions()?,
                    });
                    stages.push(stage(rest_inputs, None, rest_windows, rest_steps, outlet));
                    stages.push(stage(receivers.remove(0), None, None, Vec::new(), sinks));
                }
            }
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

    /// Tells every source.
    async fn tell(&mut self, command: Command) {
        for sender in &self.commands {
            // A source task that is gone has reported why.
            let _ = sender.send(command.clone()).await;
        }
    }

    /// Looks whether a swap can be made now. One that can't, or that changes nothing, is answered at once.
    fn accept(&self, request: SwapRequest, steering: &mut Steering, now_ms: i64) -> Option<NextCode> {
        let SwapRequest { plan, swap, why, watched, answer } = request;
        let known = self.start.lineup.modules().get(&*plan.name);
        let (Some(known), Some(module)) = (known, &plan.module) else {
            let _ = answer.send(Err(Error::bug("a swap of a step that runs no module").with("step", &plan.name)));
            return None;
        };
        let version = |plan: &StepPlan| plan.windows().map(|windows| windows.state_version);
        let (before, after) = (self.start.lineup.plan(&plan.name).and_then(version), version(&plan));
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            let refused = Error::config(
                "the module keeps its state in another version: name it in the pipeline file and start again, the state is migrated then",
            );
            let _ = answer.send(Err(refused.with("running", before).with("module", after)));
            return None;
        }
        let since_epoch = self.start.next.next().0;
        let outcome = Swapped {
            step: plan.name.to_string(),
            module: module.digest().to_string(),
            before: known.running.clone(),
            since_epoch,
            changed: known.running != **module.digest(),
        };
        if !outcome.changed {
            let _ = answer.send(Ok(outcome));
            return None;
        }
        let version = Version { digest: outcome.module.clone(), since_epoch, at_ms: now_ms, why };
        steering.watched = Some(Watched { swapped: outcome.clone(), until: Instant::now() + watched });
        steering.open = Some(OpenSwap { outcome, answer });
        Some(NextCode { plan, swap, version })
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
            Some(Event::Position { .. } | Event::Prepared { .. } | Event::State { .. } | Event::Clocks { .. }) => {
                Err(Error::bug("a part answered a barrier that nobody sent"))
            }
        }
    }

    /// Carries one epoch from its barrier to its last commit. False: nothing had happened, nothing was written.
    async fn epoch(&mut self, recovery: &Recovery<'_>, cut: Cut) -> Result<bool> {
        let (began, began_ms) = (Instant::now(), recovery.env.now_ms());
        let Cut { last, finished, swap: next_code } = cut;
        let epoch = self.start.next;
        let swap = next_code.as_ref().map(|code| code.swap.clone());
        let Answers { positions, work, runs, watermark, state_version, clocks } =
            self.barrier(recovery, Barrier { epoch, last, swap }).await?;
        let mut parts = vec![Part { name: "barrier", sink: None, from: Duration::ZERO, to: began.elapsed() }];
        let modules = match &next_code {
            Some(code) => self.start.lineup.with_next(&code.plan.name, code.version.clone()),
            None => self.start.lineup.modules().clone(),
        };
        let mut sources = self.start.base.sources.clone();
        for (source, position) in recovery.pipeline.sources.iter().zip(&positions) {
            sources.entry(source.name.to_string()).or_default().advance(position);
        }
        let steps = self.start.lineup.windows().map(|windows| {
            let runs: Vec<String> = runs.iter().map(|run| run.to_string()).collect();
            (windows.step.to_string(), StepState { shape: windows.shape(), state_version, watermark, runs })
        });
        let steps: BTreeMap<String, StepState> = steps.into_iter().collect();
        let runs_of = |steps: &BTreeMap<String, StepState>| steps.values().flat_map(|step| step.runs.clone()).collect::<Vec<_>>();
        let nothing_new = sources == self.start.base.sources && runs_of(&steps) == runs_of(&self.start.base.steps);
        let nothing_to_show = work.iter().flatten().all(|part| part.prepared.is_none());
        if nothing_new && nothing_to_show && !finished && next_code.is_none() {
            return Ok(false);
        }
        let mut sinks = BTreeMap::new();
        let mut prepared = Vec::new();
        for (sink, parts) in recovery.pipeline.sinks.iter().zip(&work) {
            let of_sink: Vec<_> = parts.iter().filter_map(|part| part.prepared.clone()).collect();
            sinks.insert(sink.name.to_string(), SinkWork { kind: sink.connector.kind().to_string(), prepared: of_sink.clone() });
            prepared.push(of_sink);
        }
        let manifest = recovery.follow(&self.start, Facts { sources, sinks, steps, clocks, modules: modules.clone() }, finished);
        recovery.status.enter(Phase::Manifest);
        let from = began.elapsed();
        match recovery.create(&manifest).await? {
            Claim::Ours => {}
            claim => {
                if claim == Claim::Beaten {
                    discard(&mut self.start.committers, &prepared).await;
                }
                return Err(recovery.fenced(&manifest, claim));
            }
        }
        recovery.status.epoch(epoch);
        parts.push(Part { name: "manifest", sink: None, from, to: began.elapsed() });
        self.commit(recovery, epoch, &work, &prepared, &mut |sink, commit: Instant| {
            let from = commit.saturating_duration_since(began);
            parts.push(Part { name: "commit", sink: Some(sink.to_string()), from, to: began.elapsed() });
        })
        .await?;
        recovery.status.trace(|| EpochTrace {
            pipeline: recovery.pipeline.name.clone(),
            task: recovery.pipeline.task,
            log_id: self.start.log_id.clone(),
            epoch: epoch.0,
            began_ms,
            took: began.elapsed(),
            parts,
        });
        for (sender, position) in self.commands.iter().zip(positions.iter().cycle()) {
            // A source task that is gone has reported why.
            let _ = sender.send(Command::Ack(position.clone())).await;
        }
        recovery.env.point("ack.after").await;
        recovery.sweep(&manifest, &self.start.base).await?;
        let pipeline = recovery.pipeline.name.as_str();
        metrics::CHECKPOINTS.with_label_values(&[pipeline]).inc();
        metrics::CHECKPOINT_EPOCH.with_label_values(&[pipeline]).set(epoch.0 as i64);
        metrics::CHECKPOINT_SECONDS.with_label_values(&[pipeline]).observe(began.elapsed().as_secs_f64());
        self.start.next = epoch.next();
        self.start.abandoned.clear();
        self.start.base = manifest;
        if let Some(NextCode { plan, .. }) = next_code {
            tracing::info!(step = %plan.name, module = modules[&*plan.name].next(), since_epoch = epoch.next().0, "swapped");
            metrics::STEP_SWAPS.with_label_values(&[&*plan.name]).inc();
            self.start.lineup.replace(plan, modules);
            recovery.status.runs(&self.start.lineup);
        }
        Ok(true)
    }

    /// Sends the barrier and collects every answer.
    async fn barrier(&mut self, recovery: &Recovery<'_>, barrier: Barrier) -> Result<Answers> {
        self.tell(Command::Barrier(barrier.clone())).await;
        let mut answers = Answers {
            positions: vec![Position::default(); recovery.pipeline.sources.len()],
            work: recovery.pipeline.sinks.iter().map(|_| Vec::new()).collect(),
            ..Answers::default()
        };
        let with_windows = if self.start.lineup.windows().is_some() { 2 * self.workers } else { 0 };
        let mut missing = self.sources_open + self.workers + with_windows;
        while missing > 0 {
            recovery.status.enter(Phase::Barrier { missing });
            match self.events.recv().await {
                Some(Event::Position { source, epoch, position }) if epoch == barrier.epoch => {
                    answers.positions[source].merge(&position);
                    missing -= 1;
                }
                Some(Event::Prepared { epoch, work: parts }) if epoch == barrier.epoch => {
                    answers.work.iter_mut().zip(parts).for_each(|(sink, part)| sink.push(part));
                    missing -= 1;
                }
                Some(Event::State { epoch, runs, watermark, state_version }) if epoch == barrier.epoch => {
                    answers.runs.extend(runs);
                    // All workers have heard the same senders up to the barrier: they agree.
                    (answers.watermark, answers.state_version) = (watermark, state_version);
                    missing -= 1;
                }
                Some(Event::Clocks { epoch, clocks }) if epoch == barrier.epoch => {
                    for (source, clocks) in recovery.pipeline.sources.iter().zip(clocks) {
                        let known = answers.clocks.entry(source.name.to_string()).or_default();
                        for (partition, time) in clocks {
                            let clock = known.entry(partition).or_insert(time);
                            *clock = time.max(*clock);
                        }
                    }
                    missing -= 1;
                }
                Some(Event::Position { .. } | Event::Prepared { .. } | Event::State { .. } | Event::Clocks { .. }) => {
                    return Err(Error::bug("an answer to another barrier"));
                }
                other => {
                    self.between(other)?;
                }
            }
        }
        Ok(answers)
    }

    /// Makes the epoch visible in every sink.
    async fn commit(
        &mut self,
        recovery: &Recovery<'_>,
        epoch: Epoch,
        work: &[Vec<SinkPart>],
        prepared: &[Vec<crate::sink::Prepared>],
        committed_since: &mut (dyn FnMut(&str, Instant) + Send),
    ) -> Result<()> {
        recovery.env.point("commit.before").await;
        let info = CommitInfo { modules: self.start.lineup.running() };
        let (first, rest): (Vec<_>, Vec<_>) =
            recovery.pipeline.sinks.iter().enumerate().partition(|(_, sink)| sink.connector.commits_first());
        for (number, sink) in first.into_iter().chain(rest) {
            if prepared[number].is_empty() {
                continue;
            }
            recovery.status.enter(Phase::Committing { sink: sink.name.to_string() });
            let began = Instant::now();
            let committer: &mut Box<dyn Committer> = &mut self.start.committers[number];
            let committed = committer.commit(epoch, &prepared[number], &info).await.map_err(|e| at_sink(e, &sink.name))?;
            recovery.env.point("commit.sent").await;
            let label = [&*sink.name];
            committed_since(&sink.name, began);
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

async fn open_sinks(recovery: &Recovery<'_>, log_id: &str, worker: u32) -> Result<Sinks> {
    let mut writers = Vec::new();
    for sink in &recovery.pipeline.sinks {
        let identity = recovery.identity(sink, log_id);
        let writer = sink.connector.writer(&identity, worker).await.map_err(|e| at_sink(e, &sink.name))?;
        writers.push(SinkWriter::new(sink.name.clone(), writer, sink.takes_dead_letters));
    }
    Ok(Sinks {
        writers,
        takers: recovery.pipeline.takers.clone(),
        handed: recovery.status.handed.clone(),
        now_ms: recovery.env.clock(),
    })
}
