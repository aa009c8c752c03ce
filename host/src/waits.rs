//! Why the watermark does not move: which partition of which source it waits for, and since when. Written by workers, once
//! a batch; read by whoever asks.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::watermark::Held;
use crate::window::{BEGINNING, END};

/// A watermark that has not moved for so long is told of in the log.
const LONG: Duration = Duration::from_secs(30);

/// What the watermark of one worker waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waiting {
    /// The worker.
    pub worker: usize,
    /// The watermark, ms since the Unix epoch; `None` before the first and after the last message.
    pub watermark_ms: Option<i64>,
    /// The source.
    pub source: String,
    /// The partition that is behind all others.
    pub partition: String,
    /// For how long the watermark has stood, in seconds.
    pub seconds: u64,
}

struct Worker {
    watermark: AtomicI64,
    follows: AtomicBool,
    standing: Mutex<Standing>,
}

/// A watermark that stands.
struct Standing {
    since: Instant,
    /// When the log told of it last.
    told: Instant,
    /// The source, and its partition that is behind all others.
    held: Option<(Arc<str>, Held)>,
}

impl Standing {
    fn new() -> Standing {
        Standing { since: Instant::now(), told: Instant::now(), held: None }
    }
}

/// The watermarks of all workers of a pipeline.
pub struct Waits {
    workers: Vec<Worker>,
}

impl Waits {
    /// For so many workers.
    pub fn new(workers: usize) -> Waits {
        let worker = || Worker {
            watermark: AtomicI64::new(BEGINNING),
            follows: AtomicBool::new(false),
            standing: Mutex::new(Standing::new()),
        };
        Waits { workers: (0..workers).map(|_| worker()).collect() }
    }

    /// A worker without partitions follows the others: the least of their watermarks.
    pub fn follow(&self, worker: usize) -> i64 {
        self.workers[worker].follows.store(true, Ordering::SeqCst);
        let leaders = self.workers.iter().filter(|other| !other.follows.load(Ordering::SeqCst));
        leaders.map(|other| other.watermark.load(Ordering::SeqCst)).min().unwrap_or(BEGINNING)
    }

    /// A worker has partitions.
    pub fn lead(&self, worker: usize) {
        self.workers[worker].follows.store(false, Ordering::SeqCst);
    }

    /// A worker's watermark is this. `held` is asked only when it has stood for a while.
    pub fn note(&self, worker: usize, watermark: i64, held: impl FnOnce() -> Option<(Arc<str>, Held)>) {
        let this = &self.workers[worker];
        if this.watermark.swap(watermark, Ordering::SeqCst) != watermark {
            *this.standing.lock().unwrap_or_else(PoisonError::into_inner) = Standing::new();
            return;
        }
        let mut standing = this.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let Standing { since, told, held: partition } = &mut *standing;
        if since.elapsed() < Duration::from_secs(1) {
            return;
        }
        *partition = held();
        if let Some((source, held)) = partition
            && told.elapsed() >= LONG
            && watermark != END
        {
            *told = Instant::now();
            tracing::warn!(
                worker,
                %source,
                partition = %held.partition,
                seconds = since.elapsed().as_secs(),
                "the watermark does not move: this partition has shown nothing newer and is not known to be at its end",
            );
        }
    }

    /// What each worker waits for, where it waits.
    pub fn all(&self) -> Vec<Waiting> {
        let waiting = |(worker, this): (usize, &Worker)| {
            let standing = this.standing.lock().unwrap_or_else(PoisonError::into_inner);
            let (source, held) = standing.held.clone()?;
            let watermark = this.watermark.load(Ordering::Relaxed);
            Some(Waiting {
                worker,
                watermark_ms: (watermark != BEGINNING && watermark != END).then_some(watermark),
                source: source.to_string(),
                partition: held.partition.to_string(),
                seconds: standing.since.elapsed().as_secs(),
            })
        };
        self.workers.iter().enumerate().filter_map(waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_watermark_that_stands_is_waited_for() {
        let waits = Waits::new(2);
        let held = || Some(("kafka".into(), Held { partition: "t/3".into(), clock: 7 }));
        waits.note(0, 5, held);
        waits.note(0, 5, held);
        assert_eq!(waits.all(), [], "it has stood for no time");
        waits.workers[0].standing.lock().unwrap().since = Instant::now() - Duration::from_secs(5);
        waits.note(0, 5, held);
        let all = waits.all();
        assert_eq!((all.len(), all[0].partition.as_str(), all[0].watermark_ms), (1, "t/3", Some(5)));
        assert!(all[0].seconds >= 5);
        waits.note(0, 6, held);
        assert_eq!(waits.all(), []);
    }
}
