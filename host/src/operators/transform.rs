//! A step whose code is a guest. Owns what happens when the guest fails: the instance is thrown
//! away, the batch is halved in fresh ones until the failing messages stand alone, these go to the
//! dead letters untouched, and the good rows go on, in order, in the same epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter, IntGauge};

use super::routes::by_route;
use super::search::{Found, search};
use crate::batch::{Batch, Rejected, Route};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::operator::{Context, Operator};
use crate::wasm::{Grants, Instance, Limits, Module, Outcome};

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

impl Settings {
    /// A configured instance of the guest.
    pub fn instance(&self) -> Result<Instance> {
        Instance::new(&self.module, &self.limits, self.grants, &self.config, &self.step)
            .map_err(|e| Error::new(e.kind(), "cannot start the step").with("step", &self.step).because(e))
    }
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
        let instance = Some(settings.instance()?);
        Ok(Transform { settings, instance, meters })
    }

    /// One call into the guest; the instance is gone afterwards if the call failed.
    fn call(&mut self, batch: &Batch, deadline: Duration) -> Result<Outcome> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => {
                self.meters.after_failure.inc();
                self.settings.instance()?
            }
        };
        let began = Instant::now();
        let outcome = instance.transform(batch, deadline)?;
        self.meters.seconds.observe(began.elapsed().as_secs_f64());
        let memory = instance.memory_bytes();
        self.meters.memory.set(memory as i64);
        if memory > self.settings.limits.recycle.0 {
            self.meters.recycled.inc();
            self.instance = Some(self.settings.instance()?);
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
        cx.out.extend(by_route(outcome.rows, outcome.routes.as_deref(), &self.settings.routes)?);
        Ok(())
    }

    /// Finds the messages that make the guest fail: they go to the dead letters, the others on.
    fn search(&mut self, batch: &Batch, first: Error, cx: &mut Context) -> Result<()> {
        let (step, limits) = (self.settings.step.clone(), self.settings.limits);
        search(&step, &limits, batch.len(), first, &mut |found| match found {
            Found::Try { start, length, deadline } => {
                let part = batch.slice(start, length);
                let outcome = self.call(&part, deadline)?;
                self.deliver(&part, outcome, cx)
            }
            Found::Culprit { at, failure } => {
                self.meters.failed.inc();
                let module = Some(self.settings.module.digest().clone());
                cx.rejected.push(Rejected { rows: batch.slice(at, 1), reasons: vec![failure.to_string()], module });
                Ok(())
            }
        })
    }
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
