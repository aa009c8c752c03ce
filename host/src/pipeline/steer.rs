//! How a running pipeline is steered from outside: stop, drain, pause, checkpoint, swap. Owns what is asked and what is
//! answered; it is carried out at barriers by `run`.

use std::sync::Arc;

use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use super::build::{Pipeline, StepPlan};
use super::lineup::{Lineup, kept_module};
use crate::error::{Error, Result};
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
    pub answer: oneshot::Sender<Result<Swapped>>,
}

/// The end that asks.
pub struct Handle {
    requests: mpsc::Sender<Request>,
    stop: watch::Sender<Stop>,
    paused: watch::Sender<bool>,
    one_swap: tokio::sync::Mutex<()>,
}

/// The end that the running pipeline holds.
pub struct Steering {
    pub(super) requests: mpsc::Receiver<Request>,
    pub(super) stop: watch::Receiver<Stop>,
    pub(super) paused: watch::Receiver<bool>,
    /// A swap whose barrier is on its way: if this life of the pipeline ends, the next one knows what became of it.
    pub(super) open: Option<OpenSwap>,
}

/// Who waits for the outcome of a swap.
pub(super) struct OpenSwap {
    pub outcome: Swapped,
    pub answer: oneshot::Sender<Result<Swapped>>,
}

/// Both ends.
pub fn steering() -> (Arc<Handle>, Steering) {
    let (requests, received) = mpsc::channel(16);
    let ((stop, stopped), (paused, pausing)) = (watch::channel(Stop::No), watch::channel(false));
    let handle = Handle { requests, stop, paused, one_swap: tokio::sync::Mutex::default() };
    (Arc::new(handle), Steering { requests: received, stop: stopped, paused: pausing, open: None })
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
    pub async fn swap(&self, pipeline: &Arc<Pipeline>, step: &str, bytes: bytes::Bytes, why: String) -> Result<Swapped> {
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
        let request = SwapRequest { plan, swap, why, answer };
        self.requests.send(Request::Swap(Box::new(request))).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?.map_err(refuse)
    }

    /// Has a step run a module again that it ran before.
    pub async fn roll_back(&self, pipeline: &Arc<Pipeline>, step: &str, to: &str, why: String) -> Result<Swapped> {
        let bytes = kept_module(pipeline, to).await?;
        self.swap(pipeline, step, bytes, why).await
    }
}

impl Steering {
    /// After a restart: what the log says of a swap that was under way.
    pub(super) fn settle(&mut self, lineup: &Lineup) {
        let Some(OpenSwap { outcome, answer }) = self.open.take() else { return };
        let runs = lineup.modules().get(&outcome.step).is_some_and(|module| module.running == outcome.module);
        let _ = answer.send(match runs {
            true => Ok(outcome),
            false => Err(Error::transient("the pipeline failed before the swap was committed and goes on as before: try again")),
        });
    }
}
