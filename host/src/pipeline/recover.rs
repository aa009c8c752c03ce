//! Start, recovery and restart: reads the newest manifest, settles its epoch with the sinks that it
//! describes, and says where to go on. A first start writes manifest 0 before anything is read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::build::{NamedSink, NamedSource, Pipeline};
use super::lineup::Lineup;
use super::run::Environment;
use super::status::{Phase, Status};
use crate::checkpoint::{
    Claim, Clocks, Created, Log, MANIFEST_VERSION, Manifest, ModuleRef, Settled, SinkWork, StepState, claim, settle,
};
use crate::error::{Error, ErrorKind, Result};
use crate::operators::aggregate::{Back, Settings};
use crate::sink::{CommitInfo, Committer, Epoch, Identity, Prepared, Recovered};
use crate::source::Position;
use crate::watermark;
use crate::worker::{Time, Windows};

/// Where a pipeline goes on.
pub struct Start {
    /// Whose work is written from here on.
    pub log_id: String,
    /// The manifest whose positions hold: what the next one follows.
    pub base: Manifest,
    /// The number that the next manifest takes.
    pub next: Epoch,
    /// Epochs given up, which the next manifest names.
    pub abandoned: Vec<Epoch>,
    /// One committer for each sink, in order: fenced, and done with everything before `next`.
    pub committers: Vec<Box<dyn Committer>>,
    /// What each step runs.
    pub lineup: Lineup,
}

/// What an epoch came to, beside its numbers.
#[derive(Default)]
pub struct Facts {
    /// Where each source goes on.
    pub sources: BTreeMap<String, Position>,
    /// What each sink prepared.
    pub sinks: BTreeMap<String, SinkWork>,
    /// The state of each keyed step.
    pub steps: BTreeMap<String, StepState>,
    /// The clock of each partition.
    pub clocks: Clocks,
    /// What each step ran, and runs next.
    pub modules: BTreeMap<String, ModuleRef>,
}

/// Everything that recovery needs to know of its surroundings.
pub struct Recovery<'a> {
    /// What is to run.
    pub pipeline: &'a Pipeline,
    /// The task's log.
    pub log: &'a Log,
    /// This process's attempt.
    pub attempt: &'a str,
    /// Clock and crash points.
    pub env: &'a dyn Environment,
    /// Told what is being done.
    pub status: &'a Arc<Status>,
}

impl Recovery<'_> {
    /// Settles the past. `None`: the log is finished.
    pub async fn start(&self) -> Result<Option<Start>> {
        self.status.enter(Phase::Starting);
        let newest = match self.log.newest().await? {
            Some(manifest) => manifest,
            None => self.begin().await?,
        };
        self.check_shape(&newest)?;
        let mut committers = Vec::new();
        for sink in &self.pipeline.sinks {
            let identity = self.identity(sink, &newest.log_id);
            committers.push(sink.connector.committer(&identity).await.map_err(|e| at_sink(e, &sink.name))?);
        }
        let start = self.settle(newest, committers).await?;
        // Only now: the process may have been killed between the last manifest and its commits.
        if start.base.finished {
            return Ok(None);
        }
        self.adopt_new_sources(start).await.map(Some)
    }

    /// The identity of a sink's work.
    pub fn identity(&self, sink: &NamedSink, log_id: &str) -> Identity {
        Identity {
            pipeline: self.pipeline.name.clone(),
            sink: sink.name.to_string(),
            task: self.pipeline.task,
            tasks: self.pipeline.tasks,
            log_id: log_id.to_string(),
            attempt: self.attempt.to_string(),
        }
    }

    /// Checks and creates what is outside, resolves where the sources start, writes manifest 0.
    async fn begin(&self) -> Result<Manifest> {
        let mut sources = BTreeMap::new();
        for source in &self.pipeline.sources {
            let at = |e: Error| Error::new(e.kind(), "cannot start from the source").with("source", &source.name).because(e);
            source.connector.check().await.map_err(at)?;
            sources.insert(
                source.name.to_string(),
                source.connector.start(self.pipeline.task, self.pipeline.tasks).await.map_err(at)?,
            );
        }
        let log_id = self.env.new_id();
        for sink in &self.pipeline.sinks {
            sink.connector.check().await.map_err(|e| at_sink(e, &sink.name))?;
            sink.connector.create().await.map_err(|e| at_sink(e, &sink.name))?;
            // A mark of another log in the sink refuses the start before this log exists.
            sink.connector.committer(&self.identity(sink, &log_id)).await.map_err(|e| at_sink(e, &sink.name))?;
        }
        let lineup = Lineup::configured(self.pipeline, self.env.now_ms());
        lineup.keep(self.pipeline).await?;
        let manifest = Manifest {
            version: MANIFEST_VERSION,
            pipeline: self.pipeline.name.clone(),
            task: self.pipeline.task,
            tasks: self.pipeline.tasks,
            log_id,
            attempt: self.attempt.to_string(),
            epoch: Epoch(0),
            previous: None,
            abandoned: Vec::new(),
            finished: false,
            created_ms: self.env.now_ms(),
            sources,
            sinks: BTreeMap::new(),
            modules: lineup.modules().clone(),
            steps: BTreeMap::new(),
            clocks: BTreeMap::new(),
        };
        match self.create(&manifest).await? {
            Claim::Ours => Ok(manifest),
            // Another process began the log at the same moment: its positions hold, the next create decides who goes on.
            claim => self.log.newest().await?.ok_or_else(|| self.fenced(&manifest, claim)),
        }
    }

    /// Creates a manifest, or says whose the epoch is instead. Retries what the store left open.
    pub async fn create(&self, manifest: &Manifest) -> Result<Claim> {
        self.env.point("manifest.before").await;
        const TRIES: u32 = 8;
        let mut last = None;
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(50 << attempt)).await;
            }
            // A failed create may have landed: the next one says Exists, and the manifest tells whose it is.
            let created = match self.log.create(manifest).await {
                Ok(created) => created,
                Err(e) if e.kind() == ErrorKind::Transient => {
                    tracing::warn!(error = %e, epoch = %manifest.epoch, "creating the manifest again");
                    last = Some(e);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let facts = async {
                let found = match created {
                    Created::New => None,
                    Created::Exists => self.log.read(manifest.epoch).await?.map(|m| m.attempt),
                };
                Ok::<_, Error>((found, self.log.epochs().await?.pop()))
            };
            let (found, newest) = match facts.await {
                Ok(facts) => facts,
                Err(e) if e.kind() == ErrorKind::Transient => {
                    last = Some(e);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let claim = claim(created, self.attempt, found.as_deref(), manifest.epoch, newest);
            if claim == Claim::Ours {
                self.env.point("manifest.created").await;
            }
            if claim != Claim::Again {
                return Ok(claim);
            }
        }
        let error = Error::transient("the checkpoint store takes no manifest").with("epoch", manifest.epoch);
        Err(match last {
            Some(cause) => error.because(cause),
            None => error,
        })
    }

    /// What a process dies of that another one has replaced.
    pub fn fenced(&self, manifest: &Manifest, claim: Claim) -> Error {
        Error::fenced(match claim {
            Claim::Superseded => "another process runs this pipeline: it has gone on from this one's last epoch",
            _ => "another process runs this pipeline: its epoch was there first",
        })
        .with("pipeline", &self.pipeline.name)
        .with("task", self.pipeline.task)
        .with("epoch", manifest.epoch)
    }

    /// Refuses a file that the checkpoint can't be carried over to.
    fn check_shape(&self, newest: &Manifest) -> Result<()> {
        if newest.tasks != self.pipeline.tasks {
            return Err(Error::config("the checkpoint was written with another number of tasks: set `tasks` as it was")
                .with("tasks", self.pipeline.tasks)
                .with("checkpoint", newest.tasks));
        }
        let known = |name: &String| self.pipeline.sources.iter().any(|s| *s.name == **name);
        if let Some(gone) = newest.sources.keys().find(|name| !known(name)) {
            return Err(Error::config("the checkpoint knows a source that the pipeline file no longer has: name it as before, or give the pipeline a new name")
                .with("source", gone));
        }
        for (name, state) in &newest.steps {
            let windows = self.pipeline.windows().filter(|windows| *windows.step == **name);
            let Some(windows) = windows else {
                return Err(Error::config(
                    "the checkpoint holds state of a step that the pipeline file no longer has: name it as before, or give the pipeline a new name",
                )
                .with("step", name));
            };
            if windows.shape() != state.shape {
                return Err(Error::config(
                    "the checkpoint holds state of other keys or windows: set `key` and `window` as they were, or give the pipeline a new name",
                )
                .with("step", name)
                .with("checkpoint", &state.shape)
                .with("file", windows.shape()));
            }
        }
        for (name, work) in &newest.sinks {
            let found = self.pipeline.sinks.iter().find(|s| *s.name == **name);
            if !work.prepared.is_empty() && found.is_none_or(|s| s.connector.kind() != work.kind) {
                return Err(Error::config(
                    "the last epoch may not be visible in a sink that the pipeline file no longer has: run once with the old file, then change it",
                )
                .with("sink", name)
                .with("kind", &work.kind)
                .with("epoch", newest.epoch));
            }
        }
        Ok(())
    }

    /// Asks every sink what became of the newest epoch, and carries out what follows.
    async fn settle(&self, newest: Manifest, mut committers: Vec<Box<dyn Committer>>) -> Result<Start> {
        let no_work = SinkWork::default();
        let work = |name: &str| newest.sinks.get(name).unwrap_or(&no_work);
        let mut answers = Vec::new();
        for (sink, committer) in self.pipeline.sinks.iter().zip(&mut committers) {
            let prepared = &work(&sink.name).prepared;
            if !prepared.is_empty() {
                let answer = committer.recover(newest.epoch, prepared).await.map_err(|e| at_sink(e, &sink.name))?;
                answers.push((sink.name.to_string(), answer));
            }
        }
        let info = CommitInfo { modules: newest.modules.iter().map(|(step, m)| (step.clone(), m.running.clone())).collect() };
        match settle(newest.epoch, &answers)? {
            Settled::Commit(wanted) => {
                for (sink, committer) in self.pipeline.sinks.iter().zip(&mut committers) {
                    if wanted.iter().any(|name| **name == *sink.name) {
                        tracing::info!(sink = %sink.name, epoch = %newest.epoch, "committing what a former run prepared");
                        committer
                            .commit(newest.epoch, &work(&sink.name).prepared, &info)
                            .await
                            .map_err(|e| at_sink(e, &sink.name))?;
                    }
                    committer.sweep(newest.epoch, &work(&sink.name).prepared).await.map_err(|e| at_sink(e, &sink.name))?;
                }
                let next = newest.epoch.next();
                let lineup = self.lineup(&newest, next).await?;
                Ok(Start { log_id: newest.log_id.clone(), next, abandoned: Vec::new(), base: newest, committers, lineup })
            }
            Settled::Abandon => {
                let lost: Vec<&str> =
                    answers.iter().filter(|(_, r)| *r == Recovered::Lost).map(|(name, _)| name.as_str()).collect();
                tracing::warn!(epoch = %newest.epoch, sinks = lost.join(","), "what the epoch prepared is gone, reading its rows again");
                for (sink, committer) in self.pipeline.sinks.iter().zip(&mut committers) {
                    committer.discard(&work(&sink.name).prepared).await.map_err(|e| at_sink(e, &sink.name))?;
                }
                let missing =
                    || Error::corrupt("the epoch's work is lost and the manifest before it is gone").with("epoch", newest.epoch);
                let previous = newest.previous.ok_or_else(missing)?;
                let base = self.log.read(previous).await?.ok_or_else(missing)?;
                let mut abandoned = newest.abandoned.clone();
                abandoned.push(newest.epoch);
                let next = newest.epoch.next();
                let lineup = self.lineup(&base, next).await?;
                Ok(Start { log_id: newest.log_id.clone(), next, abandoned, base, committers, lineup })
            }
        }
    }

    /// What each step runs from here on; its modules are durable, so that manifests may name them.
    async fn lineup(&self, base: &Manifest, next: Epoch) -> Result<Lineup> {
        if base.finished {
            return Ok(Lineup::configured(self.pipeline, self.env.now_ms()));
        }
        let lineup = Lineup::resume(self.pipeline, base, next, self.env.now_ms()).await?;
        lineup.keep(self.pipeline).await?;
        Ok(lineup)
    }

    /// A source that the checkpoint doesn't know starts now: its position is made durable before it is read.
    async fn adopt_new_sources(&self, mut start: Start) -> Result<Start> {
        let mut added = false;
        for source in &self.pipeline.sources {
            if !start.base.sources.contains_key(&*source.name) {
                let position = source.connector.start(self.pipeline.task, self.pipeline.tasks).await?;
                start.base.sources.insert(source.name.to_string(), position);
                added = true;
            }
        }
        for sink in &self.pipeline.sinks {
            if start.base.epoch > Epoch(0) && !start.base.sinks.contains_key(&*sink.name) {
                sink.connector.create().await.map_err(|e| at_sink(e, &sink.name))?;
            }
        }
        if added {
            let facts = Facts {
                sources: start.base.sources.clone(),
                steps: start.base.steps.clone(),
                clocks: start.base.clocks.clone(),
                modules: start.lineup.modules().clone(),
                ..Facts::default()
            };
            let manifest = self.follow(&start, facts, false);
            match self.create(&manifest).await? {
                Claim::Ours => {}
                claim => return Err(self.fenced(&manifest, claim)),
            }
            start = Start { next: manifest.epoch.next(), abandoned: Vec::new(), base: manifest, ..start };
        }
        Ok(start)
    }

    /// The manifest that follows `start.base`.
    pub fn follow(&self, start: &Start, facts: Facts, finished: bool) -> Manifest {
        Manifest {
            version: MANIFEST_VERSION,
            pipeline: self.pipeline.name.clone(),
            task: self.pipeline.task,
            tasks: self.pipeline.tasks,
            log_id: start.log_id.clone(),
            attempt: self.attempt.to_string(),
            epoch: start.next,
            previous: Some(start.base.epoch),
            abandoned: start.abandoned.clone(),
            finished,
            created_ms: self.env.now_ms(),
            sources: facts.sources,
            sinks: facts.sinks,
            modules: facts.modules,
            steps: facts.steps,
            clocks: facts.clocks,
        }
    }

    /// The clocks of one worker's sources, as a manifest left them.
    pub fn time(&self, base: &Manifest) -> Time {
        let clocks = |source: &NamedSource| {
            let former = base.clocks.get(&*source.name).cloned().unwrap_or_default();
            let mut clocks = watermark::Clocks::new(source.lag_ms, former);
            base.steps.values().for_each(|step| clocks.passed(step.watermark));
            (source.name.clone(), source.event_time.clone(), clocks)
        };
        Time { sources: self.pipeline.sources.iter().map(clocks).collect() }
    }

    /// Begins a life of a source, with the files that its position names.
    pub async fn begin_source(&self, source: &NamedSource, base: &Manifest) -> Result<()> {
        let position = base.sources.get(&*source.name).cloned().unwrap_or_default();
        let mut files = Vec::new();
        for name in position.files() {
            files.push((name.to_string(), self.log.read_state(name).await?));
        }
        let at = |e: Error| Error::new(e.kind(), "cannot go on with the source").with("source", &source.name).because(e);
        source.connector.begin(&position, files).map_err(at)
    }

    /// The windows of one worker, as a manifest left them.
    pub async fn windows(&self, settings: &Settings, base: &Manifest, worker: u32, workers: u32) -> Result<Windows> {
        let former = base.steps.get(&*settings.step);
        let back = Back::open(settings, self.log.clone(), former, worker, workers).await?;
        let (attempt, step) = (self.attempt.to_string(), settings.step.clone());
        Ok(Windows {
            back,
            step: settings.step.clone(),
            tick: Back::tick_ms(settings).map(|ms| std::time::Duration::from_millis(ms as u64)),
            log: self.log.clone(),
            run_name: Box::new(move |epoch| Log::state_name(epoch, &attempt, &step, worker, "run").into()),
        })
    }

    /// Removes manifests that nothing goes back to.
    pub async fn sweep(&self, newest: &Manifest, previous: &Manifest) -> Result<()> {
        let keep: Vec<Epoch> = newest.previous.into_iter().chain([newest.epoch]).collect();
        self.log.sweep(newest.epoch, &keep).await?;
        let files = |manifest: &Manifest| {
            let of_sources = manifest.sources.values().flat_map(|position| position.files().map(str::to_string));
            of_sources.chain(manifest.steps.values().flat_map(|step| step.runs.clone())).collect::<BTreeSet<String>>()
        };
        let (newest_files, mut keep) = (files(newest), files(previous));
        if newest_files.is_empty() && keep.is_empty() {
            return Ok(());
        }
        keep.extend(newest_files);
        self.log.sweep_state(newest.epoch, &keep).await
    }
}

/// Tells which sink an error came from.
pub fn at_sink(error: Error, sink: &str) -> Error {
    Error::new(error.kind(), "a sink failed").with("sink", sink).because(error)
}

/// Removes what a beaten process prepared: no manifest has ever named it, so nobody else will ask for it.
pub async fn discard(committers: &mut [Box<dyn Committer>], work: &[Vec<Prepared>]) {
    for (committer, prepared) in committers.iter_mut().zip(work) {
        if let Err(error) = committer.discard(prepared).await {
            tracing::warn!(%error, "cannot remove what a fenced epoch prepared");
        }
    }
}
