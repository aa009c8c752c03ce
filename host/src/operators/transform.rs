//! A step whose code is a guest. Owns what happens when the guest fails: the instance is thrown
//! away, the batch is halved in fresh ones until the failing messages stand alone, these go to the
//! dead letters untouched, and the good rows go on, in order, in the same epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter, IntGauge};

use crate::batch::{Batch, Rejected, Route};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::operator::{Context, Operator};
use crate::wasm::{Grants, Instance, Limits, Module, Outcome};

/// While a failing message is searched, a part of a batch gets its share of the deadline, but at least this much.
const SEARCH_DEADLINE_MIN: Duration = Duration::from_millis(200);

/// What a transform step is made of.
#[derive(Clone)]
pub struct Settings {
    /// The step's name.
    pub step: Arc<str>,
    /// The guest.
    pub module: Module,
    /// Its configuration: JSON text.
    pub config: String,
    /// What it may use.
    pub limits: Limits,
    /// What it may import.
    pub grants: Grants,
    /// The pipeline's number of each route, in the order in which `configure` names them.
    pub routes: Vec<Route>,
}

/// The step on one worker, with its one instance.
pub struct Transform {
    settings: Settings,
    instance: Option<Instance>,
    meters: Meters,
}

struct Meters {
    events_in: IntCounter,
    events_out: IntCounter,
    filtered: IntCounter,
    rejected: IntCounter,
    failed: IntCounter,
    seconds: Histogram,
    memory: IntGauge,
    after_failure: IntCounter,
    recycled: IntCounter,
}

impl Transform {
    /// Starts the step; the first instance is made and configured here, so that a bad module or config is refused at once.
    pub fn new(settings: Settings) -> Result<Transform> {
        let step = [&*settings.step];
        let labels = |label| [&*settings.step, label];
        let meters = Meters {
            events_in: metrics::STEP_EVENTS_IN.with_label_values(&step),
            events_out: metrics::STEP_EVENTS_OUT.with_label_values(&step),
            filtered: metrics::STEP_FILTERED.with_label_values(&step),
            rejected: metrics::STEP_REJECTED.with_label_values(&labels("refused")),
            failed: metrics::STEP_REJECTED.with_label_values(&labels("failed")),
            seconds: metrics::GUEST_SECONDS.with_label_values(&step),
            memory: metrics::GUEST_MEMORY.with_label_values(&step),
            after_failure: metrics::GUEST_INSTANCES.with_label_values(&labels("failure")),
            recycled: metrics::GUEST_INSTANCES.with_label_values(&labels("recycled")),
        };
        metrics::GUEST_INSTANCES.with_label_values(&labels("start")).inc();
        let instance = Some(make(&settings)?);
        Ok(Transform { settings, instance, meters })
    }

    /// One call into the guest; the instance is gone afterwards if the call failed.
    fn call(&mut self, batch: &Batch, deadline: Duration) -> Result<Outcome> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => {
                self.meters.after_failure.inc();
                make(&self.settings)?
            }
        };
        let began = Instant::now();
        let outcome = instance.transform(batch, deadline)?;
        self.meters.seconds.observe(began.elapsed().as_secs_f64());
        let memory = instance.memory_bytes();
        self.meters.memory.set(memory as i64);
        if memory > self.settings.limits.recycle.0 {
            self.meters.recycled.inc();
            self.instance = Some(make(&self.settings)?);
        } else {
            self.instance = Some(instance);
        }
        Ok(outcome)
    }

    fn deliver(&self, input: &Batch, outcome: Outcome, cx: &mut Context) -> Result<()> {
        self.meters.filtered.inc_by(outcome.filtered);
        self.meters.events_out.inc_by(outcome.rows.len() as u64);
        if !outcome.rejected.is_empty() {
            self.meters.rejected.inc_by(outcome.rejected.len() as u64);
            let (rows, reasons): (Vec<u32>, Vec<String>) = outcome.rejected.into_iter().unzip();
            cx.rejected.push(Rejected { rows: input.take(&rows)?, reasons, module: Some(self.settings.module.digest().clone()) });
        }
        match outcome.routes {
            _ if outcome.rows.is_empty() => {}
            None => cx.out.push((Route::MAIN, outcome.rows)),
            Some(numbers) => {
                for number in 0..=self.settings.routes.len() as u8 {
                    let rows: Vec<u32> = (0..numbers.len() as u32).filter(|row| numbers[*row as usize] == number).collect();
                    let route = match number {
                        0 => Route::MAIN,
                        n => self.settings.routes[n as usize - 1],
                    };
                    if rows.len() == numbers.len() {
                        cx.out.push((route, outcome.rows.clone()));
                    } else if !rows.is_empty() {
                        cx.out.push((route, outcome.rows.take(&rows)?));
                    }
                }
            }
        }
        Ok(())
    }

    /// Halves the batch until what fails stands alone. Parts are handled from left to right, so that order is kept.
    fn search(&mut self, batch: &Batch, first: Error, cx: &mut Context) -> Result<()> {
        let limits = self.settings.limits;
        tracing::warn!(step = %self.settings.step, rows = batch.len(), error = %first, "the guest failed, searching for the message");
        let began = Instant::now();
        let mut calls = 0;
        // Ranges still to be handled, the leftmost last; with the failure of a range that is known to fail.
        let mut open = Vec::new();
        open.push((0, batch.len(), Some(first)));
        while let Some((start, length, known)) = open.pop() {
            let part = batch.slice(start, length);
            let failure = match known {
                Some(failure) => failure,
                None => {
                    calls += 1;
                    if calls > limits.search_calls || began.elapsed() > limits.search_time.0 {
                        return Err(Error::guest("too many messages of one batch make the guest fail: replace the module")
                            .with("step", &self.settings.step)
                            .with("calls", calls)
                            .with("seconds", began.elapsed().as_secs()));
                    }
                    let share = limits.deadline.0.mul_f64(length as f64 / batch.len() as f64).max(SEARCH_DEADLINE_MIN);
                    match self.call(&part, share.min(limits.deadline.0)) {
                        Ok(outcome) => {
                            self.deliver(&part, outcome, cx)?;
                            continue;
                        }
                        Err(failure) if failure.kind() == ErrorKind::Guest => failure,
                        Err(other) => return Err(other),
                    }
                }
            };
            if length == 1 {
                self.meters.failed.inc();
                let module = Some(self.settings.module.digest().clone());
                cx.rejected.push(Rejected { rows: part, reasons: vec![failure.to_string()], module });
                continue;
            }
            let half = length / 2;
            open.push((start + half, length - half, None));
            open.push((start, half, None));
        }
        Ok(())
    }
}

fn make(settings: &Settings) -> Result<Instance> {
    Instance::new(&settings.module, &settings.limits, settings.grants, &settings.config, &settings.step)
        .map_err(|e| Error::new(e.kind(), "cannot start the step").with("step", &settings.step).because(e))
}

impl Operator for Transform {
    fn process(&mut self, batch: Batch, cx: &mut Context) -> Result<()> {
        self.meters.events_in.inc_by(batch.len() as u64);
        match self.call(&batch, self.settings.limits.deadline.0) {
            Ok(outcome) => self.deliver(&batch, outcome, cx),
            Err(failure) if failure.kind() == ErrorKind::Guest && !batch.is_empty() => self.search(&batch, failure, cx),
            Err(other) => Err(other),
        }
    }
}
