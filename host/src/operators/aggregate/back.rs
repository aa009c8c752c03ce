//! The back of a keyed step: keeps fragments, fires windows as the watermark passes, turns panes into rows.

use std::sync::Arc;

use arrow_array::{Array, BinaryArray};
use bytes::Bytes;
use prometheus::{Gauge, IntCounter, IntGauge};
use tokio::sync::oneshot;

use super::columns::with_columns;
use super::guest::Guest;
use super::{Replacement, Settings};
use crate::batch::{Batch, BatchBuilder, Origin, Rejected};
use crate::checkpoint::{Log, StepState};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::operator::Context;
use crate::operators::routes::by_route;
use crate::operators::search::{Found, search};
use crate::state::{self, Firing, Fragments, Place, State};
use crate::wasm::{Outcome, Panes};
use crate::window::{BEGINNING, Windows};

/// What a checkpoint of one worker's state comes to.
pub struct Checkpointed {
    /// The run to be made durable, if anything changed.
    pub run: Option<(Arc<str>, Bytes)>,
    /// Names of all runs that are still needed.
    pub live: Vec<Arc<str>>,
    /// Up to where windows have fired.
    pub watermark: i64,
    /// The version of the accumulators.
    pub state_version: u32,
}

/// See the module.
pub struct Back {
    state: State,
    log: Log,
    /// The watermark of each sender.
    senders: Vec<i64>,
    early_at: Option<i64>,
    state_version: u32,
    /// Says when the last run is durable: what left the memory lies there.
    written: Option<oneshot::Receiver<()>>,
    emitter: Emitter,
    meters: Meters,
}

struct Meters {
    watermark: Gauge,
    bytes: IntGauge,
    keys: IntGauge,
}

impl Back {
    /// The back on worker `worker` of `workers`, as the checkpoint left its key groups.
    pub async fn open(settings: &Settings, log: Log, former: Option<&StepState>, worker: u32, workers: u32) -> Result<Back> {
        let at = |e: Error| Error::new(e.kind(), "cannot take up the state").with("step", &settings.step).because(e);
        let mut guest = Guest::new(settings)?;
        let state_version = guest.call(|guest| Ok(guest.state_version()))?;
        let mut state = State::new(settings.rules, former.map_or(BEGINNING, |former| former.watermark));
        if let Some(former) = former {
            for run in &former.runs {
                let name: Arc<str> = run.as_str().into();
                let index = log.run_index(run).await.map_err(at)?;
                state.adopt(&name, index, |group| state::owner(group, workers) == worker).map_err(at)?;
            }
            // What is not read now is read once, when its windows fire. An encoding that changed is rewritten at once.
            let migrates = former.state_version != state_version;
            let room = if migrates { usize::MAX } else { settings.memory / 2 };
            for (group, slot, places) in state.to_warm(room) {
                let sections = read(&log, &places).await.map_err(at)?;
                state.warm(group, slot, &sections).map_err(at)?;
            }
            if migrates {
                tracing::info!(step = %settings.step, from = former.state_version, to = state_version, "migrating the state");
                state
                    .rewrite(&mut |old| guest.call(|guest| guest.migrate(former.state_version, old)))
                    .map_err(|e| refuse_migration(e, settings, former.state_version, state_version))?;
            }
        }
        let label = worker.to_string();
        let labels = [&*settings.step, label.as_str()];
        let step = [&*settings.step];
        Ok(Back {
            senders: vec![BEGINNING; workers as usize],
            early_at: None,
            state_version,
            written: None,
            meters: Meters {
                watermark: metrics::STEP_WATERMARK.with_label_values(&labels),
                bytes: metrics::STATE_BYTES.with_label_values(&labels),
                keys: metrics::STATE_KEYS.with_label_values(&labels),
            },
            emitter: Emitter {
                guest,
                settings: settings.clone(),
                worker,
                emitted: 0,
                panes: metrics::STEP_PANES.with_label_values(&step),
                rows: metrics::STEP_EVENTS_OUT.with_label_values(&step),
                failed: metrics::STEP_REJECTED.with_label_values(&[&*settings.step, "failed"]),
                refused: metrics::STEP_REJECTED.with_label_values(&[&*settings.step, "refused"]),
            },
            state,
            log,
        })
    }

    /// Goes on with other code, whose accumulators are of the same version.
    pub fn replace(&mut self, new: Replacement) {
        (self.emitter.settings, self.emitter.guest) = (new.settings, new.guest);
    }

    /// Adds fragments that came over the exchange.
    pub fn add(&mut self, fragments: &Fragments, now_ms: i64) -> Result<()> {
        let guest = &mut self.emitter.guest;
        self.state.add(fragments, now_ms, &mut |parts, ends| guest.call(|guest| guest.merge(parts, ends)))
    }

    /// A sender's watermark has moved. What fires comes out.
    pub async fn advance(&mut self, sender: usize, watermark: i64, now_ms: i64) -> Result<Context> {
        self.senders[sender] = self.senders[sender].max(watermark);
        let least = self.senders.iter().copied().min().unwrap_or(BEGINNING);
        if least <= self.state.watermark() {
            return Ok(Context::default());
        }
        self.fire(least, now_ms).await
    }

    /// Processing time has passed. What fires comes out.
    pub async fn tick(&mut self, now_ms: i64) -> Result<Context> {
        self.fire(self.state.watermark(), now_ms).await
    }

    /// How often [`Back::tick`] is wanted, in ms: where windows go by processing time.
    pub fn tick_ms(settings: &Settings) -> Option<i64> {
        match settings.rules.windows {
            Windows::Batch { age_ms, .. } => Some((age_ms / 10).clamp(1, 1_000)),
            _ => match settings.early_ms {
                Some(early) => Some((early / 4).clamp(1, 1_000)),
                // A late message moves no watermark.
                None => (settings.rules.lateness_ms > 0).then_some(100),
            },
        }
    }

    async fn fire(&mut self, watermark: i64, now_ms: i64) -> Result<Context> {
        let early = match (self.emitter.settings.early_ms, self.early_at) {
            (Some(every), None) => {
                self.early_at = Some(now_ms.saturating_add(every));
                false
            }
            (Some(every), Some(at)) if now_ms >= at => {
                self.early_at = Some(now_ms.saturating_add(every));
                true
            }
            _ => false,
        };
        let firing = Firing { watermark, now_ms, early };
        let mut cx = Context::default();
        for group in self.state.due_groups(&firing) {
            let mut warmed = Vec::new();
            for (slot, places) in self.state.wanted(group, &firing) {
                if let Some(written) = self.written.take() {
                    written.await.map_err(|_| Error::transient("the last run of the state was not written"))?;
                }
                let sections = read(&self.log, &places).await.map_err(taken_over)?;
                warmed.push(self.state.warmed(slot, &sections)?);
            }
            let emitter = &mut self.emitter;
            self.state.fire(group, &firing, &warmed, &mut |panes| emitter.emit(panes, now_ms, &mut cx))?;
        }
        self.state.moved(&firing);
        self.meters.watermark.set(self.state.watermark() as f64 / 1000.0);
        Ok(cx)
    }

    /// Whether a checkpoint is wanted now, so that state may leave the memory.
    pub fn wants_barrier(&self) -> bool {
        self.state.unwritten() > self.emitter.settings.memory / 4
    }

    /// What has to become durable for the epoch, as the run `name`; `written` says when it is. Tables beyond the limit
    /// leave the memory.
    pub fn checkpoint(&mut self, name: Arc<str>, written: oneshot::Receiver<()>) -> Checkpointed {
        let run = self.state.checkpoint(&name).map(|bytes| (name, Bytes::from(bytes)));
        self.written = run.is_some().then_some(written);
        if self.state.bytes() > self.emitter.settings.memory {
            self.state.evict(self.emitter.settings.memory / 2);
        }
        self.meters.bytes.set(self.state.bytes() as i64);
        self.meters.keys.set(self.state.entries() as i64);
        Checkpointed { run, live: self.state.live_runs(), watermark: self.state.watermark(), state_version: self.state_version }
    }
}

/// The sections of a table.
async fn read(log: &Log, places: &[Place]) -> Result<Vec<Bytes>> {
    let mut sections = Vec::with_capacity(places.len());
    for Place { run, section } in places {
        let bytes = log.read_run(run, section.offset, section.length).await?;
        section.check(&bytes).map_err(|e| e.with("run", run))?;
        sections.push(bytes);
    }
    Ok(sections)
}

/// While it runs, a run that is gone says that another process went on from it: a restart tells for certain.
fn taken_over(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Corrupt => Error::transient("a run of the state is gone: another process may have taken over").because(error),
        _ => error,
    }
}

fn refuse_migration(error: Error, settings: &Settings, from: u32, to: u32) -> Error {
    Error::config("the module can't read the state that the checkpoint holds: use the module that wrote it, or give the pipeline a new name")
        .with("step", &settings.step)
        .with("state_version", from)
        .with("module", to)
        .because(error)
}

/// Turns panes into rows.
struct Emitter {
    guest: Guest,
    settings: Settings,
    worker: u32,
    emitted: i64,
    panes: IntCounter,
    rows: IntCounter,
    failed: IntCounter,
    refused: IntCounter,
}

impl Emitter {
    fn emit(&mut self, mut fired: state::Panes, now_ms: i64, cx: &mut Context) -> Result<()> {
        self.panes.inc_by(fired.panes.len() as u64);
        let parts = fired.parts.finish();
        let accumulators = match parts.len() == fired.panes.len() {
            true => parts,
            false => self.guest.call(|guest| guest.merge(&parts, &fired.ends))?,
        };
        let panes = self.panes_of(&fired.keys.finish(), &accumulators, &fired.panes, now_ms);
        match self.call(&panes, self.settings.limits.deadline.0, cx) {
            Err(failure) if failure.kind() == ErrorKind::Guest => {
                let (step, limits) = (self.settings.step.clone(), self.settings.limits);
                search(&step, &limits, panes.starts.len(), failure, &mut |found| match found {
                    Found::Try { start, length, deadline } => self.call(&panes.slice(start, length), deadline, cx),
                    Found::Culprit { at, failure } => {
                        self.failed.inc();
                        let module = Some(self.settings.digest.clone());
                        cx.rejected.push(Rejected { rows: panes.rows.slice(at, 1), reasons: vec![failure.to_string()], module });
                        Ok(())
                    }
                })
            }
            other => other,
        }
    }

    fn panes_of(&mut self, keys: &BinaryArray, accumulators: &BinaryArray, panes: &[state::Pane], now_ms: i64) -> Panes {
        let mut rows = BatchBuilder::new(panes.len(), accumulators.value_data().len());
        for (i, _) in panes.iter().enumerate() {
            let key = keys.is_valid(i).then(|| keys.value(i));
            rows.push(
                key,
                Some(accumulators.value(i)),
                Origin { partition: self.worker, offset: self.emitted, published: now_ms },
            );
            self.emitted += 1;
        }
        let mut rows = rows.finish(now_ms);
        rows.event_times = panes.iter().map(|pane| pane.end.saturating_sub(1)).collect::<Vec<_>>().into();
        Panes {
            rows,
            starts: panes.iter().map(|pane| pane.start).collect(),
            ends: panes.iter().map(|pane| pane.end).collect(),
            firings: panes.iter().map(|pane| pane.firing).collect(),
            timings: panes.iter().map(|pane| pane.timing as u8).collect(),
        }
    }

    fn call(&mut self, panes: &Panes, deadline: std::time::Duration, cx: &mut Context) -> Result<()> {
        let Outcome { mut rows, routes, rejected, .. } = self.guest.call(|guest| guest.emit(panes, deadline))?;
        if self.settings.columns && !rows.is_empty() {
            // Rows carry the place of their pane as the offset.
            let first = panes.rows.offsets[0];
            let origins = rows.offsets.iter().map(|offset| (offset - first) as usize);
            let rules = &self.settings.rules;
            let values = with_columns(&rows.values, origins, panes, &self.settings.key, rules.early || rules.lateness_ms > 0);
            rows = Batch { values, ..rows };
        }
        if !rejected.is_empty() {
            self.refused.inc_by(rejected.len() as u64);
            let (bad, reasons): (Vec<u32>, Vec<String>) = rejected.into_iter().unzip();
            let module = Some(self.settings.digest.clone());
            cx.rejected.push(Rejected { rows: panes.rows.take(&bad)?, reasons, module });
        }
        self.rows.inc_by(rows.len() as u64);
        for (route, rows) in by_route(rows, routes.as_deref(), &self.settings.routes)? {
            cx.out.push((route, rows));
        }
        Ok(())
    }
}
