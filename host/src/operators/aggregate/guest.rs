//! The guest of a keyed step on one worker: made anew after a failure, and once its memory has grown.

use std::time::Instant;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::Settings;
use crate::error::{Error, Result};
use crate::metrics;
use crate::operator::Aggregate;

/// See the module.
pub struct Guest {
    settings: Settings,
    instance: Option<Box<dyn Aggregate>>,
    seconds: Histogram,
    memory: IntGauge,
    after_failure: IntCounter,
    recycled: IntCounter,
}

impl Guest {
    /// Makes the first instance, so that a bad module is refused at once.
    pub fn new(settings: &Settings) -> Result<Guest> {
        let labels = |label| [&*settings.step, label];
        metrics::GUEST_INSTANCES.with_label_values(&labels("start")).inc();
        let mut guest = Guest {
            settings: settings.clone(),
            instance: None,
            seconds: metrics::GUEST_SECONDS.with_label_values(&[&*settings.step]),
            memory: metrics::GUEST_MEMORY.with_label_values(&[&*settings.step]),
            after_failure: metrics::GUEST_INSTANCES.with_label_values(&labels("failure")),
            recycled: metrics::GUEST_INSTANCES.with_label_values(&labels("recycled")),
        };
        guest.instance = Some(guest.make()?);
        Ok(guest)
    }

    fn make(&self) -> Result<Box<dyn Aggregate>> {
        (self.settings.make)()
            .map_err(|e| Error::new(e.kind(), "cannot start the step").with("step", &self.settings.step).because(e))
    }

    /// One call; the instance is gone afterwards if it failed.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut dyn Aggregate) -> Result<T>) -> Result<T> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => {
                self.after_failure.inc();
                self.make()?
            }
        };
        let began = Instant::now();
        let outcome = call(&mut *instance)?;
        self.seconds.observe(began.elapsed().as_secs_f64());
        let memory = instance.memory_bytes();
        self.memory.set(memory as i64);
        if memory > self.settings.limits.recycle.0 {
            self.recycled.inc();
            instance = self.make()?;
        }
        self.instance = Some(instance);
        Ok(outcome)
    }
}
