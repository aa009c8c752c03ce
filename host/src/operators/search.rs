//! The search for what makes a guest fail: halves of what it was given are tried, in fresh instances, until the culprits
//! stand alone. Has a budget of calls and time; past it the step has failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};
use crate::wasm::Limits;

/// While a culprit is searched, a part gets its share of the deadline, but at least this much.
const DEADLINE_MIN: Duration = Duration::from_millis(200);

/// What the search asks of its caller.
pub enum Found {
    /// Hand these to the guest, and deliver what it makes of them. A guest's error says that a culprit is among them.
    Try {
        /// The first.
        start: usize,
        /// How many.
        length: usize,
        /// The time for it.
        deadline: Duration,
    },
    /// This one alone makes the guest fail.
    Culprit {
        /// Which.
        at: usize,
        /// How.
        failure: Error,
    },
}

/// Searches among `count`, which fail together with `first`. Parts are tried from left to right, so that order is kept.
pub fn search(
    step: &Arc<str>,
    limits: &Limits,
    count: usize,
    first: Error,
    ask: &mut dyn FnMut(Found) -> Result<()>,
) -> Result<()> {
    tracing::warn!(%step, rows = count, error = %first, "the guest failed, searching for the message");
    let began = Instant::now();
    let mut calls = 0;
    // Ranges still to be handled, the leftmost last; with the failure of a range that is known to fail.
    let mut open = vec![(0, count, Some(first))];
    while let Some((start, length, known)) = open.pop() {
        let failure = match known {
            Some(failure) => failure,
            None => {
                calls += 1;
                if calls > limits.search_calls || began.elapsed() > limits.search_time.0 {
                    return Err(Error::guest("too many messages of one batch make the guest fail: replace the module")
                        .with("step", step)
                        .with("calls", calls)
                        .with("seconds", began.elapsed().as_secs()));
                }
                let share = limits.deadline.0.mul_f64(length as f64 / count as f64).max(DEADLINE_MIN);
                match ask(Found::Try { start, length, deadline: share.min(limits.deadline.0) }) {
                    Ok(()) => continue,
                    Err(failure) if failure.kind() == ErrorKind::Guest => failure,
                    Err(other) => return Err(other),
                }
            }
        };
        if length == 1 {
            ask(Found::Culprit { at: start, failure })?;
            continue;
        }
        let half = length / 2;
        open.push((start + half, length - half, None));
        open.push((start, half, None));
    }
    Ok(())
}
