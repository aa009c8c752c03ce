//! Watches a module for a while after it was swapped in, and rolls it back when it does badly. Owns the limits and the
//! verdict; what is done about it is a swap like any other.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::build::Pipeline;
use super::status::Status;
use super::steer::{Handle, Swapped};
use crate::metrics;

/// How well a module must do after a swap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// For how long it is watched, in seconds. 0: not at all.
    pub watch_seconds: u64,
    /// Part of the messages, of 1, that may make it fail (a trap, the deadline, the memory).
    pub failed: f64,
    /// Part of the messages, of 1, that it may refuse beyond what the module before it did.
    pub refused: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { watch_seconds: 60, failed: 0.001, refused: 0.1 }
    }
}

/// Fewer messages tell nothing.
const EVENTS_MIN: u64 = 100;
/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a step has done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    events: u64,
    failed: u64,
    refused: u64,
}

impl Counts {
    pub fn of(step: &str) -> Counts {
        let rejected = |cause| metrics::STEP_REJECTED.with_label_values(&[step, cause]).get();
        let events = metrics::STEP_EVENTS_IN.with_label_values(&[step]).get();
        Counts { events, failed: rejected("failed"), refused: rejected("refused") }
    }

    fn since(self, before: Counts) -> Counts {
        let Counts { events, failed, refused } = before;
        Counts {
            events: self.events.saturating_sub(events),
            failed: self.failed.saturating_sub(failed),
            refused: self.refused.saturating_sub(refused),
        }
    }

    fn share(self, count: u64) -> f64 {
        count as f64 / self.events.max(1) as f64
    }
}

/// Why the module must go, if it must: the metric's word for it, and a sentence.
fn verdict(limits: &Limits, before: Counts, now: Counts) -> Option<(&'static str, String)> {
    let told = |what: &str, count: u64, limit: f64| {
        format!("{count} of {} messages {what}, {:.3} % where {:.3} % may", now.events, now.share(count) * 100.0, limit * 100.0)
    };
    let refused = before.share(before.refused) + limits.refused;
    match () {
        _ if now.events < EVENTS_MIN => None,
        _ if now.share(now.failed) > limits.failed => Some(("failed", told("made it fail", now.failed, limits.failed))),
        _ if now.share(now.refused) > refused => Some(("refused", told("were refused", now.refused, refused))),
        _ => None,
    }
}

/// Watches what was swapped in, until its time is over or something else runs.
pub(super) async fn watch(
    handle: Arc<Handle>,
    pipeline: Arc<Pipeline>,
    status: Arc<Status>,
    swapped: Swapped,
    limits: Limits,
    before: Counts,
) {
    let (began, until) = (Counts::of(&swapped.step), Instant::now() + Duration::from_secs(limits.watch_seconds));
    while Instant::now() < until {
        tokio::time::sleep(LOOK_EVERY).await;
        if status.modules().get(&swapped.step).is_none_or(|module| module.running != swapped.module) {
            return;
        }
        let Some((cause, told)) = verdict(&limits, before, Counts::of(&swapped.step).since(began)) else { continue };
        tracing::warn!(step = swapped.step, module = swapped.module, "rolling back: {told}");
        match handle.roll_back(&pipeline, &swapped.step, &swapped.before, format!("rolled back by itself: {told}")).await {
            Ok(_) => return metrics::STEP_ROLLBACKS.with_label_values(&[&*swapped.step, cause]).inc(),
            // Another swap may be under way, or the pipeline starts again: the next look tells.
            Err(error) => tracing::warn!(%error, step = swapped.step, "cannot roll back yet"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(events: u64, failed: u64, refused: u64) -> Counts {
        Counts { events, failed, refused }
    }

    #[test]
    fn a_module_must_go_when_too_many_of_enough_messages_fail_or_are_refused() {
        let limits = Limits::default();
        let cause = |before, now| verdict(&limits, before, now).map(|(cause, _)| cause);
        let good = counts(1000, 0, 0);
        assert_eq!(cause(good, counts(99, 99, 0)), None, "too few to tell");
        assert_eq!(cause(good, counts(1000, 1, 100)), None, "as many as may");
        assert_eq!(cause(good, counts(1000, 2, 0)), Some("failed"));
        assert_eq!(cause(good, counts(1000, 0, 101)), Some("refused"));
        assert_eq!(cause(counts(1000, 0, 500), counts(1000, 0, 550)), None, "the module before refused half of them, too");
        assert_eq!(cause(counts(1000, 0, 500), counts(1000, 0, 601)), Some("refused"));
        let (_, told) = verdict(&limits, good, counts(1000, 10, 0)).unwrap();
        assert_eq!(told, "10 of 1000 messages made it fail, 1.000 % where 0.100 % may");
    }
}
