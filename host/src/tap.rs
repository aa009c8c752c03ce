//! Where a copy of what goes into a step can be had while it runs: closed, it costs a look at a flag for each batch. Whoever
//! listens too slowly misses batches; the stream never waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::batch::Batch;

/// Batches that may wait for the listener.
const WAITING_BATCHES: usize = 4;

/// See the module.
#[derive(Default)]
pub struct Tap {
    open: AtomicBool,
    listener: Mutex<Option<Listener>>,
}

struct Listener {
    batches: Sender<Batch>,
    /// Of 1: which part of the batches is wanted.
    share: f64,
    /// What is due of it; a batch is handed out when it reaches 1.
    due: f64,
}

impl Tap {
    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens it for a share of the batches. `None`: somebody listens already.
    pub fn open(&self, share: f64) -> Option<Receiver<Batch>> {
        let mut listener = self.listener();
        if listener.as_ref().is_some_and(|listener| !listener.batches.is_closed()) {
            return None;
        }
        let (batches, receiver) = channel(WAITING_BATCHES);
        *listener = Some(Listener { batches, share: share.clamp(0.0, 1.0), due: 0.0 });
        self.open.store(true, Ordering::Relaxed);
        Some(receiver)
    }

    /// Shows a batch to the listener, if there is one who has room for it. Closes once nobody listens any more.
    pub fn offer(&self, batch: &Batch) {
        if !self.open.load(Ordering::Relaxed) || batch.is_empty() {
            return;
        }
        let mut place = self.listener();
        let Some(listener) = place.as_mut() else { return };
        listener.due += listener.share;
        if listener.due >= 1.0 {
            listener.due -= 1.0;
            // The columns are shared, not copied.
            if let Err(TrySendError::Closed(_)) = listener.batches.try_send(batch.clone()) {
                *place = None;
                self.open.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn batch() -> Batch {
        let mut builder = BatchBuilder::new(1, 1);
        builder.push(None, Some(b"x"), Origin::default());
        builder.finish(0)
    }

    #[test]
    fn a_share_of_the_batches_is_shown_to_one_listener_who_never_holds_anybody_up() {
        let tap = Tap::default();
        tap.offer(&batch());
        let mut seen = tap.open(0.5).unwrap();
        assert!(tap.open(1.0).is_none(), "one listener at a time");
        (0..6).for_each(|_| tap.offer(&batch()));
        assert_eq!(std::iter::from_fn(|| seen.try_recv().ok()).count(), 3);
        (0..100).for_each(|_| tap.offer(&batch()));
        assert_eq!(std::iter::from_fn(|| seen.try_recv().ok()).count(), WAITING_BATCHES, "the rest is missed");
        drop(seen);
        (0..4).for_each(|_| tap.offer(&batch()));
        assert!(!tap.open.load(Ordering::Relaxed));
        assert!(tap.open(1.0).is_some());
    }
}
