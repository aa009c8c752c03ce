//! One of two modules that are compared: runs it on a batch, and keeps what it made of each message in a form that can be
//! held against the other's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

use super::{SideReport, StepPlan, settings};
use crate::batch::{Batch, Route};
use crate::error::{ErrorKind, Result};
use crate::operators::search::{Found, search};
use crate::operators::transform::Settings;
use crate::wasm::{Instance, Outcome};

/// Characters of a message that a report shows.
const SHOWN_CHARS_MAX: usize = 500;

/// Partition and offset: where a message came from.
pub type Place = (u32, i64);

/// What became of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// These rows.
    Rows(Vec<Row>),
    /// It was refused, for this reason.
    Refused(String),
    /// It made the module fail.
    Failed(String),
}

/// A row that came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    route: Route,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    event_time: i64,
    attributes: Vec<(String, Option<Vec<u8>>)>,
}

/// A message as a report shows it.
pub fn message(key: Option<&[u8]>, value: Option<&[u8]>) -> String {
    let text = |bytes: Option<&[u8]>| match bytes {
        None => "null".to_string(),
        Some(bytes) => String::from_utf8_lossy(bytes).chars().take(SHOWN_CHARS_MAX).collect(),
    };
    match key {
        None => text(value),
        Some(_) => format!("{} = {}", text(key), text(value)),
    }
}

impl Answer {
    /// As a report shows it. `None`: nothing came out.
    pub fn told(answer: Option<&Answer>) -> String {
        let row = |row: &Row| {
            let text = message(row.key.as_deref(), row.value.as_deref());
            match row.route {
                Route::MAIN => text,
                Route(number) => format!("route {number}: {text}"),
            }
        };
        match answer {
            None => "dropped".to_string(),
            Some(Answer::Rows(rows)) => rows.iter().map(row).collect::<Vec<_>>().join("\n"),
            Some(Answer::Refused(reason)) => format!("refused: {reason}"),
            Some(Answer::Failed(reason)) => format!("failed: {reason}"),
        }
    }
}

/// See the module.
pub struct Side {
    settings: Settings,
    step: Arc<str>,
    instance: Option<Instance>,
    answers: HashMap<Place, Answer>,
    report: SideReport,
    spent: Duration,
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time =
        |value: nix::sys::time::TimeVal| Duration::from_micros((value.tv_sec() * 1_000_000 + value.tv_usec()).max(0) as u64);
    getrusage(UsageWho::RUSAGE_THREAD).map_or(Duration::ZERO, |usage| time(usage.user_time()) + time(usage.system_time()))
}

impl Side {
    /// The module of a step.
    pub fn new(plan: &StepPlan) -> Result<Side> {
        let mut settings = settings(plan)?.clone();
        // In the log, so that nobody takes it for the step itself.
        settings.step = format!("{} (tried)", plan.name).into();
        let instance = Some(settings.instance()?);
        let report = SideReport { module: settings.module.digest().to_string(), ..SideReport::default() };
        Ok(Side { settings, step: plan.name.clone(), instance, answers: HashMap::new(), report, spent: Duration::ZERO })
    }

    /// The step's name.
    pub fn step(&self) -> &str {
        &self.step
    }

    /// What became of a message of the last batch. `None`: nothing came out.
    pub fn answer(&self, place: Place) -> Option<&Answer> {
        self.answers.get(&place)
    }

    /// Runs a batch. Messages that make the module fail are found as in the step itself.
    pub fn run(&mut self, batch: &Batch) -> Result<()> {
        self.answers.clear();
        let began = thread_time();
        let deadline = self.settings.limits.deadline.0;
        match self.call(batch, deadline) {
            Err(failure) if failure.kind() == ErrorKind::Guest => {
                let (step, limits) = (self.settings.step.clone(), self.settings.limits);
                search(&step, &limits, batch.len(), failure, &mut |found| match found {
                    Found::Try { start, length, deadline } => self.call(&batch.slice(start, length), deadline),
                    Found::Culprit { at, failure } => {
                        self.report.failed += 1;
                        self.answers.insert((batch.partitions[at], batch.offsets[at]), Answer::Failed(failure.to_string()));
                        Ok(())
                    }
                })?;
            }
            other => other?,
        }
        self.spent += thread_time().saturating_sub(began);
        Ok(())
    }

    fn call(&mut self, batch: &Batch, deadline: Duration) -> Result<()> {
        let mut instance = match self.instance.take() {
            Some(instance) => instance,
            None => self.settings.instance()?,
        };
        let outcome = instance.transform(batch, deadline)?;
        let memory = instance.memory_bytes();
        self.report.memory_bytes_max = self.report.memory_bytes_max.max(memory);
        self.instance = (memory <= self.settings.limits.recycle.0).then_some(instance);
        let counted = thread_time();
        self.note(batch, outcome);
        // What it takes to compare is not the module's.
        self.spent = self.spent.saturating_sub(thread_time().saturating_sub(counted));
        Ok(())
    }

    fn note(&mut self, batch: &Batch, outcome: Outcome) {
        let Outcome { rows, routes, rejected, .. } = outcome;
        self.report.rows += rows.len() as u64;
        self.report.refused += rejected.len() as u64;
        for row in 0..rows.len() {
            let number = routes.as_ref().map_or(0, |routes| routes[row]);
            let found = Row {
                route: if number == 0 { Route::MAIN } else { self.settings.routes[usize::from(number) - 1] },
                key: rows.key(row).map(<[u8]>::to_vec),
                value: rows.value(row).map(<[u8]>::to_vec),
                event_time: rows.event_times[row],
                attributes: rows
                    .attributes
                    .of(row as u32)
                    .map(|(name, value)| (name.to_string(), value.map(<[u8]>::to_vec)))
                    .collect(),
            };
            let place = (rows.partitions[row], rows.offsets[row]);
            match self.answers.entry(place).or_insert_with(|| Answer::Rows(Vec::new())) {
                Answer::Rows(list) => list.push(found),
                // A step before this one may have made several messages of one: then one that fails stands for all.
                Answer::Refused(_) | Answer::Failed(_) => {}
            }
        }
        for (row, reason) in rejected {
            self.answers.insert((batch.partitions[row as usize], batch.offsets[row as usize]), Answer::Refused(reason));
        }
    }

    /// How it did on so many messages.
    pub fn report(&self, messages: u64) -> SideReport {
        let cpu_ns_per_message = if messages == 0 { 0.0 } else { self.spent.as_nanos() as f64 / messages as f64 };
        SideReport { cpu_ns_per_message, ..self.report.clone() }
    }
}
