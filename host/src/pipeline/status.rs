//! What the running pipeline is doing: for the progress line, the summary, `/v1/status`, and the one
//! line that says why it waits. Owns facts only; decides nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use super::build::StepPlan;
use super::lineup::Lineup;
use crate::checkpoint::ModuleRef;
use crate::metrics::{self, Latency, Percentiles, Recent};
use crate::sink::{Committed, Epoch};
use crate::traces::EpochTrace;
use crate::waits::{Waiting, Waits};

/// What the coordinator is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// Opening sources and sinks, settling the last epoch.
    Starting,
    /// Messages flow.
    Running,
    /// A barrier is on its way through the workers.
    Barrier {
        /// Sources and workers that have not answered.
        missing: usize,
    },
    /// The manifest is being written.
    Manifest,
    /// A sink makes the epoch visible.
    Committing {
        /// Which.
        sink: String,
    },
    /// Waits before it starts again.
    Backoff {
        /// The error that it ended with.
        error: String,
    },
    /// Stopped or finished.
    Ended,
}

/// What one worker's part of a source is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum SourceState {
    /// Waits for the outside system.
    Reading = 0,
    /// Waits for the worker to take a batch.
    Blocked = 1,
    /// At its end.
    Ended = 2,
}

/// Shared by the parts that report and those that show.
pub struct Status {
    pipeline: String,
    began: Instant,
    state: Mutex<State>,
    /// Messages read, bytes read.
    events_in: AtomicU64,
    bytes_in: AtomicU64,
    sources: Mutex<Vec<(String, Arc<AtomicU8>)>>,
    waits: Mutex<Arc<Waits>>,
    lineup: Mutex<Option<Lineup>>,
    traces: OnceLock<mpsc::Sender<EpochTrace>>,
    /// From a message's arrival to its being handed to a sink.
    pub handed: Arc<Latency>,
}

struct State {
    phase: Phase,
    since: Instant,
    epoch: Option<Epoch>,
    epochs: u64,
    restarts: u64,
    sinks: BTreeMap<String, SinkState>,
}

#[derive(Default)]
struct SinkState {
    committed: Committed,
    commits: u64,
    latency: Arc<Latency>,
    recent: Recent,
}

/// What a run did: printed at its end, and by `--json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// The pipeline's name.
    pub pipeline: String,
    /// Wall-clock time in seconds.
    pub seconds: f64,
    /// Processor time of the whole process, user and system, in seconds.
    pub cpu_seconds: f64,
    /// Messages read.
    pub events_in: u64,
    /// Bytes of keys and values read.
    pub bytes_in: u64,
    /// Messages that steps or sinks rejected.
    pub rejected: u64,
    /// Messages that steps dropped on purpose.
    pub filtered: u64,
    /// Messages that came after their windows were closed.
    pub late: u64,
    /// Processor seconds for each GiB read.
    pub cpu_seconds_per_gib: Option<f64>,
    /// Epochs whose manifest was written.
    pub epochs: u64,
    /// The newest epoch.
    pub epoch: Option<u64>,
    /// Restarts from the checkpoint.
    pub restarts: u64,
    /// Largest resident memory, in bytes.
    pub memory_bytes_max: u64,
    /// From arrival to being handed to a sink.
    pub handed: Percentiles,
    /// By sink.
    pub sinks: BTreeMap<String, SinkSummary>,
}

/// What a run did in one sink.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SinkSummary {
    /// Rows made visible.
    pub rows: u64,
    /// Commits that had rows.
    pub commits: u64,
    /// Files made visible.
    pub files: u64,
    /// Their bytes.
    pub file_bytes: u64,
    /// From publish time to visible.
    pub latency: Percentiles,
    /// The same of the last five to ten seconds.
    pub latency_recent: Percentiles,
}

impl Status {
    /// For a pipeline that is about to start.
    pub fn new(pipeline: &str) -> Status {
        Status {
            pipeline: pipeline.to_string(),
            began: Instant::now(),
            state: Mutex::new(State {
                phase: Phase::Starting,
                since: Instant::now(),
                epoch: None,
                epochs: 0,
                restarts: 0,
                sinks: BTreeMap::new(),
            }),
            events_in: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            sources: Mutex::new(Vec::new()),
            waits: Mutex::new(Arc::new(Waits::new(0))),
            lineup: Mutex::default(),
            traces: OnceLock::new(),
            handed: Arc::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change of phase.
    pub fn enter(&self, phase: Phase) {
        let mut state = self.state();
        if state.phase != phase {
            state.phase = phase;
            state.since = Instant::now();
        }
    }

    /// The phase, and for how long.
    pub fn phase(&self) -> (Phase, Duration) {
        let state = self.state();
        (state.phase.clone(), state.since.elapsed())
    }

    /// Whether messages flow: what `/readyz` answers.
    pub fn ready(&self) -> bool {
        !matches!(self.phase().0, Phase::Starting | Phase::Backoff { .. } | Phase::Ended)
    }

    /// Notes a restart.
    pub fn restarted(&self) {
        self.state().restarts += 1;
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A new part of a source; its task keeps the state current.
    pub fn source(&self, name: &str) -> Arc<AtomicU8> {
        let state = Arc::new(AtomicU8::new(SourceState::Reading as u8));
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_string(), state.clone()));
        state
    }

    /// Where workers tell what their watermarks wait for, from now on.
    pub fn watch(&self, waits: Arc<Waits>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    /// What watermarks wait for, where they wait.
    pub fn watermarks_wait_for(&self) -> Vec<Waiting> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// Notes which module each step runs.
    pub(super) fn runs(&self, lineup: &Lineup) {
        *self.lineup.lock().unwrap_or_else(PoisonError::into_inner) = Some(lineup.clone());
    }

    /// A step as it runs, once the pipeline has started.
    pub(super) fn plan(&self, step: &str) -> Option<StepPlan> {
        self.lineup.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.plan(step).cloned()
    }

    /// Which module each step runs and has run, once the pipeline has started.
    pub fn modules(&self) -> BTreeMap<String, ModuleRef> {
        let lineup = self.lineup.lock().unwrap_or_else(PoisonError::into_inner);
        lineup.as_ref().map(|lineup| lineup.modules().clone()).unwrap_or_default()
    }

    /// Where each epoch is told of from here on. The first one counts.
    pub fn trace_to(&self, traces: mpsc::Sender<EpochTrace>) {
        let _ = self.traces.set(traces);
    }

    /// Tells of an epoch, if anybody wants to hear of it. One that comes while too many wait is left out.
    pub(super) fn trace(&self, epoch: impl FnOnce() -> EpochTrace) {
        if let Some(traces) = self.traces.get() {
            let _ = traces.try_send(epoch());
        }
    }

    /// What each part of each source is doing.
    pub fn source_states(&self) -> Vec<(String, SourceState)> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |state: u8| match state {
            1 => SourceState::Blocked,
            2 => SourceState::Ended,
            _ => SourceState::Reading,
        };
        sources.iter().map(|(name, now)| (name.clone(), state(now.load(Ordering::Relaxed)))).collect()
    }

    /// Notes messages read.
    pub fn read(&self, events: u64, bytes: u64) {
        self.events_in.fetch_add(events, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Messages read so far.
    pub fn events_in(&self) -> u64 {
        self.events_in.load(Ordering::Relaxed)
    }

    /// Bytes read so far.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// Notes an epoch whose manifest is written.
    pub fn epoch(&self, epoch: Epoch) {
        let mut state = self.state();
        state.epoch = Some(epoch);
        state.epochs += 1;
    }

    /// Notes a commit. `published` holds how many rows were published when.
    pub fn committed(&self, sink: &str, committed: Committed, published: impl Iterator<Item = (i64, u64)>, now_ms: i64) {
        let published: Vec<(i64, u64)> = published.filter(|(_, count)| *count > 0).collect();
        let took = |time: i64| Duration::from_millis(now_ms.saturating_sub(time).max(0) as u64);
        let latency = {
            let now = self.began.elapsed();
            let mut state = self.state();
            let entry = state.sinks.entry(sink.to_string()).or_default();
            entry.committed.rows += committed.rows;
            entry.committed.files += committed.files;
            entry.committed.bytes += committed.bytes;
            entry.commits += u64::from(committed.rows > 0);
            published.iter().for_each(|(time, count)| entry.recent.record(now, took(*time), *count));
            entry.latency.clone()
        };
        published.iter().for_each(|(time, count)| latency.record(took(*time), *count));
        metrics::LATENCY_SECONDS.show(sink, &latency);
    }

    /// Why nothing moves, if nothing moves: one line for a person.
    pub fn waits_for(&self) -> Option<String> {
        match self.phase().0 {
            Phase::Starting => Some("starting: opening sources and sinks".into()),
            Phase::Barrier { missing } => {
                Some(format!("a barrier is on its way: {missing} sources or workers are still busy with what came before it"))
            }
            Phase::Manifest => Some("writing the manifest to the checkpoint store".into()),
            Phase::Committing { sink } => Some(format!("sink `{sink}` is committing")),
            Phase::Backoff { error } => Some(format!("will start again from the checkpoint after: {error}")),
            Phase::Ended => None,
            Phase::Running => {
                let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
                let in_state =
                    |wanted: SourceState| sources.iter().filter(move |(_, s)| s.load(Ordering::Relaxed) == wanted as u8);
                if in_state(SourceState::Blocked).next().is_some() {
                    return Some("steps or sinks are slower than the sources".into());
                }
                let mut names: Vec<&str> = in_state(SourceState::Reading).map(|(name, _)| name.as_str()).collect();
                names.dedup();
                (!names.is_empty()).then(|| format!("no messages from: {}", names.join(", ")))
            }
        }
    }

    /// What the run did so far.
    pub fn summary(&self) -> Summary {
        let (cpu_seconds, memory_bytes_max) = usage();
        let bytes_in = self.bytes_in();
        let total = |name: &str| {
            let families = metrics::REGISTRY.gather();
            let sum =
                |f: &prometheus::proto::MetricFamily| f.get_metric().iter().map(|m| m.get_counter().get_value()).sum::<f64>();
            families.iter().filter(|f| f.name() == name).map(sum).sum::<f64>() as u64
        };
        let now = self.began.elapsed();
        let mut state = self.state();
        let sink = |(name, s): (&String, &mut SinkState)| {
            let summary = SinkSummary {
                rows: s.committed.rows,
                commits: s.commits,
                files: s.committed.files,
                file_bytes: s.committed.bytes,
                latency: s.latency.percentiles(),
                latency_recent: s.recent.percentiles(now),
            };
            (name.clone(), summary)
        };
        Summary {
            pipeline: self.pipeline.clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            cpu_seconds,
            events_in: self.events_in(),
            bytes_in,
            rejected: total("weir_source_rejected_events_total")
                + total("weir_step_rejected_events_total")
                + total("weir_sink_rejected_events_total"),
            filtered: total("weir_step_filtered_events_total"),
            late: total("weir_step_late_events_total"),
            cpu_seconds_per_gib: (bytes_in > 0).then(|| cpu_seconds * (1u64 << 30) as f64 / bytes_in as f64),
            epochs: state.epochs,
            epoch: state.epoch.map(|e| e.0),
            restarts: state.restarts,
            memory_bytes_max,
            handed: self.handed.percentiles(),
            sinks: state.sinks.iter_mut().map(sink).collect(),
        }
    }
}

/// Processor seconds (user and system) and the largest resident memory in bytes of this process.
fn usage() -> (f64, u64) {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return (0.0, 0) };
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    // Linux counts the memory of whoever started the process into `max_rss`; its own is in /proc.
    let own = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    });
    (seconds(usage.user_time()) + seconds(usage.system_time()), own.unwrap_or(usage.max_rss() as u64) * 1024)
}
