//! How a running pipeline is steered from outside: stop, drain, pause, checkpoint, swap. Owns what is asked and what is
//! answered; it is carried out at barriers by `run`.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch as channel};
use tokio::time::Instant;

use super::build::{Pipeline, StepPlan};
use super::lineup::{Lineup, kept_module};
use super::status::Status;
use super::watch::{self, Counts, Limits};
use crate::checkpoint::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::sink::Epoch;
use crate::swap::Swap;
use crate::wasm::beside;

/// What a person or signal asks of a running pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Nothing: go on.
    No,
    /// Stop at a barrier, commit, keep everything for the next start.
    AtBarrier,
    /// Read no more, fire all windows, commit, and mark the log as finished.
    Drain,
}

/// What a swap came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Swapped {
    /// The step.
    pub step: String,
    /// Digest of the module that it runs now.
    pub module: String,
    /// Digest of the one that it ran before.
    pub before: String,
    /// The first epoch whose messages the new module handles.
    pub since_epoch: u64,
    /// False when the step ran this module already: nothing was done.
    pub changed: bool,
}

/// What waits for a barrier.
pub(super) enum Request {
    /// Wants an epoch now; answered with the newest epoch once everything before it is visible.
    Checkpoint(oneshot::Sender<u64>),
    /// Wants other code for a step.
    Swap(Box<SwapRequest>),
}

/// Other code for a step, ready to run.
pub(super) struct SwapRequest {
    pub plan: StepPlan,
    pub swap: Arc<Swap>,
    pub why: String,
    /// For how long a step that fails altogether is rolled back instead of ending the pipeline.
    pub watched: Duration,
    pub answer: oneshot::Sender<Result<Swapped>>,
}

/// The end that asks.
pub struct Handle {
    requests: mpsc::Sender<Request>,
    stop: channel::Sender<Stop>,
    paused: channel::Sender<bool>,
    one_swap: tokio::sync::Mutex<()>,
}

/// The end that the running pipeline holds.
pub struct Steering {
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) stop: channel::Receiver<Stop>,
    pub(super) paused: channel::Receiver<bool>,
    /// A swap whose barrier is on its way: if this life of the pipeline ends, the next one knows what became of it.
    pub(super) open: Option<OpenSwap>,
    /// The last swap, while its module is watched.
    pub(super) watched: Option<Watched>,
    /// How the step failed that goes back.
    pub(super) failure: Option<String>,
}

/// A module that has to prove itself.
pub(super) struct Watched {
    pub swapped: Swapped,
    pub until: Instant,
}

/// Who waits for the outcome of a swap.
pub(super) struct OpenSwap {
    pub outcome: Swapped,
    pub answer: oneshot::Sender<Result<Swapped>>,
}

/// Both ends.
pub fn steering() -> (Arc<Handle>, Steering) {
    let (requests, received) = mpsc::channel(16);
    let ((stop, stopped), (paused, pausing)) = (channel::channel(Stop::No), channel::channel(false));
    let handle = Handle { requests, stop, paused, one_swap: tokio::sync::Mutex::default() };
    (Arc::new(handle), Steering { requests: received, stop: stopped, paused: pausing, open: None, watched: None, failure: None })
}

fn ended() -> Error {
    Error::transient("the pipeline has ended, or ends now")
}

impl Handle {
    /// Asks for the end.
    pub fn stop(&self, how: Stop) {
        self.stop.send_replace(how);
    }

    /// Has sources read no more until told otherwise. Epochs, windows by processing time and swaps go on.
    pub fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Whether sources are paused.
    pub fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    /// Ends the epoch now. The newest epoch, once everything read so far is visible in the sinks.
    pub async fn checkpoint(&self) -> Result<u64> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Checkpoint(answer)).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())
    }

    /// Has a step run another module from one barrier on. Compiled, checked and configured before that barrier, beside the
    /// data path; answered when the manifest that names it is committed. An error has changed nothing.
    pub async fn swap(
        &self,
        pipeline: &Arc<Pipeline>,
        step: &str,
        bytes: bytes::Bytes,
        why: String,
        watched: Duration,
    ) -> Result<Swapped> {
        let Ok(_one) = self.one_swap.try_lock() else {
            return Err(Error::transient("another swap is under way: try again when it is done").with("step", step));
        };
        let (of, name) = (pipeline.clone(), step.to_string());
        let made = move || {
            let plan = of.plan_with(&name, &bytes)?;
            let swap = plan.swap(of.workers)?;
            Ok((plan, Arc::new(swap)))
        };
        let made = tokio::task::spawn_blocking(move || beside(made));
        let made = made.await.map_err(|e| Error::bug("the preparation of a swap ended abruptly").because(e))?;
        let refuse = |e: Error| Error::new(e.kind(), "the swap is refused").with("step", step).because(e);
        let (plan, swap) = made.map_err(refuse)?;
        if let Some(module) = &plan.module {
            pipeline.store.keep_module(&pipeline.name, module.digest(), module.bytes()).await?;
        }
        let (answer, answered) = oneshot::channel();
        let request = SwapRequest { plan, swap, why, watched, answer };
        self.requests.send(Request::Swap(Box::new(request))).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?.map_err(refuse)
    }

    /// Has a step run a module again that it ran before.
    pub async fn roll_back(&self, pipeline: &Arc<Pipeline>, step: &str, to: &str, why: String) -> Result<Swapped> {
        let bytes = kept_module(pipeline, to).await?;
        self.swap(pipeline, step, bytes, why, Duration::ZERO).await
    }

    /// A swap whose module is rolled back by itself when it does badly.
    pub async fn swap_watched(
        self: &Arc<Self>,
        pipeline: &Arc<Pipeline>,
        status: &Arc<Status>,
        step: &str,
        bytes: bytes::Bytes,
        why: String,
        limits: Limits,
    ) -> Result<Swapped> {
        let before = Counts::of(step);
        let swapped = self.swap(pipeline, step, bytes, why, Duration::from_secs(limits.watch_seconds)).await?;
        if swapped.changed && limits.watch_seconds > 0 {
            let (handle, pipeline, status) = (self.clone(), pipeline.clone(), status.clone());
            tokio::spawn(watch::watch(handle, pipeline, status, swapped.clone(), limits, before));
        }
        Ok(swapped)
    }
}

impl Steering {
    /// A guest has failed altogether. True: while a module is watched, so that the next start goes back to the one before.
    pub(super) fn failed(&mut self, error: &Error) -> bool {
        let watched = self.watched.as_ref().is_some_and(|watched| Instant::now() < watched.until);
        let goes_back = watched && error.kind() == ErrorKind::Guest;
        self.failure = goes_back.then(|| error.to_string());
        goes_back
    }

    /// Goes back to the module before the one that is watched, where that has failed and the log has it run.
    pub(super) async fn go_back(&mut self, lineup: &mut Lineup, pipeline: &Pipeline, next: Epoch, now_ms: i64) -> Result<()> {
        let Some(failure) = self.failure.take() else { return Ok(()) };
        let Some(Watched { swapped, .. }) = self.watched.take() else { return Ok(()) };
        if lineup.modules().get(&swapped.step).is_none_or(|module| module.running != swapped.module) {
            return Ok(());
        }
        let why = format!("rolled back by itself: {failure}");
        let version = Version { digest: swapped.before, since_epoch: next.0, at_ms: now_ms, why };
        lineup.go_back(pipeline, &swapped.step, version).await?;
        metrics::STEP_ROLLBACKS.with_label_values(&[&*swapped.step, "stopped"]).inc();
        Ok(())
    }

    /// After a restart: what the log says of a swap that was under way.
    pub(super) fn settle(&mut self, lineup: &Lineup) {
        let Some(OpenSwap { outcome, answer }) = self.open.take() else { return };
        let runs = lineup.modules().get(&outcome.step).is_some_and(|module| module.running == outcome.module);
        let _ = answer.send(match runs {
            true => Ok(outcome),
            false => Err(Error::transient(
                "the pipeline failed before the swap was committed, or the module did at once: it goes on as before",
            )),
        });
    }
}
