//! Tries a module beside the one that runs, on copies of live batches: both are given the same, what comes out is compared
//! and thrown away. Guests are pure, so the running one is simply run again: the data path only lends its batches.

mod conditions;
mod side;

use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

pub use conditions::Conditions;
use side::{Answer, Side};

use super::build::{Make, Pipeline, StepPlan};
use super::status::Status;
use super::steer::Swapped;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::metrics;
use crate::wasm::beside;

/// Differences that a report shows.
const SAMPLES_MAX: usize = 20;

/// How long a module is tried, and on how much.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// Ends after so many messages.
    pub messages: u64,
    /// Or after so long.
    pub time: Duration,
    /// Of 1: the part of the batches that is looked at.
    pub share: f64,
}

/// What a trial found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// The step.
    pub step: String,
    /// Messages that both modules were given.
    pub messages: u64,
    /// Of these, those of which they made something else.
    pub differing: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The module that runs.
    pub running: SideReport,
    /// The module that was tried.
    pub candidate: SideReport,
    /// The first messages of which they made something else.
    pub samples: Vec<Sample>,
    /// What speaks against it, where conditions were given.
    pub objections: Vec<String>,
    /// The swap, where it met the conditions.
    pub promoted: Option<Swapped>,
}

/// How one module did.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct SideReport {
    /// Its digest.
    pub module: String,
    /// Rows that it made.
    pub rows: u64,
    /// Messages that it refused.
    pub refused: u64,
    /// Messages that made it fail.
    pub failed: u64,
    /// Processor time for each message, in nanoseconds.
    pub cpu_ns_per_message: f64,
    /// Its linear memory at most, in bytes.
    pub memory_bytes_max: u64,
}

/// A message of which the modules made something else.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Sample {
    /// Its partition.
    pub partition: u32,
    /// Its place there.
    pub offset: i64,
    /// What went in.
    pub input: String,
    /// What the running module made of it.
    pub running: String,
    /// What the other one made of it.
    pub candidate: String,
}

/// Tries `bytes` as the module of a step.
pub async fn shadow(
    pipeline: &Arc<Pipeline>,
    status: &Arc<Status>,
    step: &str,
    bytes: &bytes::Bytes,
    trial: Trial,
) -> Result<Report> {
    let refuse = |e: Error| Error::new(e.kind(), "the module can't be tried").with("step", step).because(e);
    let runs = status.plan(step).ok_or_else(|| Error::transient("the pipeline has not started yet").with("step", step))?;
    let (of, name, body, runtime) = (pipeline.clone(), step.to_string(), bytes.clone(), tokio::runtime::Handle::current());
    let work = move || {
        let other = of.plan_with(&name, &body)?;
        let mut sides = [Side::new(&runs)?, Side::new(&other)?];
        let busy = || Error::transient("a module is tried for this step already: try again when that is done");
        let mut batches = runs.tap.open(trial.share).ok_or_else(busy)?;
        let began = Instant::now();
        let mut report = compare(&mut sides, &mut batches, trial, &|batches| {
            let left = trial.time.saturating_sub(began.elapsed());
            runtime.block_on(async { tokio::time::timeout(left, batches.recv()).await.ok().flatten() })
        })?;
        (report.step, report.seconds) = (name, began.elapsed().as_secs_f64());
        Ok(report)
    };
    let ended = tokio::task::spawn_blocking(move || beside(work)).await;
    ended.map_err(|e| Error::bug("a trial ended abruptly").because(e))?.map_err(refuse)
}

type Next<'a> = dyn Fn(&mut Receiver<Batch>) -> Option<Batch> + Sync + 'a;

/// Gives both sides the same batches, and notes where they differ.
fn compare(sides: &mut [Side; 2], batches: &mut Receiver<Batch>, trial: Trial, next: &Next<'_>) -> Result<Report> {
    let (mut messages, mut differing, mut samples, mut turn) = (0, 0, Vec::new(), 0);
    while messages < trial.messages {
        let Some(batch) = next(batches) else { break };
        // In turns, so that neither always finds what the other has left in the processor's caches.
        let (first, second) = (turn % 2, (turn + 1) % 2);
        turn += 1;
        sides[first].run(&batch)?;
        sides[second].run(&batch)?;
        let [running, candidate] = &*sides;
        messages += batch.len() as u64;
        for row in 0..batch.len() {
            let place = (batch.partitions[row], batch.offsets[row]);
            let (ours, theirs) = (running.answer(place), candidate.answer(place));
            if ours == theirs {
                continue;
            }
            differing += 1;
            if samples.len() < SAMPLES_MAX {
                samples.push(Sample {
                    partition: place.0,
                    offset: place.1,
                    input: side::message(batch.key(row), batch.value(row)),
                    running: Answer::told(ours),
                    candidate: Answer::told(theirs),
                });
            }
        }
    }
    let [running, candidate] = [sides[0].report(messages), sides[1].report(messages)];
    let step = sides[0].step().to_string();
    metrics::SHADOW_EVENTS.with_label_values(&[step.as_str(), "compared"]).inc_by(messages);
    metrics::SHADOW_EVENTS.with_label_values(&[step.as_str(), "differing"]).inc_by(differing);
    Ok(Report { step, messages, differing, seconds: 0.0, running, candidate, samples, objections: Vec::new(), promoted: None })
}

/// The settings of a step that can be tried.
fn settings(plan: &StepPlan) -> Result<&crate::operators::transform::Settings> {
    match &plan.make {
        Make::Transform(settings) => Ok(settings),
        Make::Operator(_) => Err(Error::config("the step runs no module")),
        Make::Windows(_) => Err(Error::config(
            "only transforms can be tried beside the running module: what an aggregator does depends on its state",
        )),
    }
}
