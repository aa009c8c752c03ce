//! Windows over event time: which one a message belongs to, when one is due, and when a message is late. Pure
//! arithmetic; times are milliseconds since the Unix epoch, and a window is `start..end`.
//!
//! Fixed windows are kept as **slices**: pieces as long as the greatest common divisor of size and step, so that a
//! message of a sliding window is kept once, however many windows it is in. A tumbling window is its own slice.
//!
//! A message is late by the clock of its own partition, never by those of others: what is late then depends on the
//! order within each partition only, and is the same in every run, with any number of workers. Since the watermark is the least of
//! all clocks, a window that a message may still go to has never been closed.

/// The time before all times: the clock of a partition that has shown nothing yet.
pub const BEGINNING: i64 = i64::MIN;
/// The time after all times: the clock of a partition that has ended.
pub const END: i64 = i64::MAX;

/// How messages of a key are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// Windows of `size_ms` that begin every `every_ms`, the first at `offset_ms`. With both equal they tumble.
    Fixed {
        /// Length.
        size_ms: i64,
        /// Distance between two beginnings: at most the length.
        every_ms: i64,
        /// Where one of the windows begins.
        offset_ms: i64,
    },
    /// Windows that end when nothing came for `gap_ms`.
    Session {
        /// The gap.
        gap_ms: i64,
    },
    /// Whatever comes until there are `rows` messages, or until the first has waited for `age_ms` of processing time.
    Batch {
        /// Messages.
        rows: u64,
        /// Processing time.
        age_ms: i64,
    },
}

/// The place of a message in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Where the first window that counts the message ends. Windows that ended before were closed for it.
    pub from: i64,
    /// Where the slice, or the session so far, begins.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
}

impl Windows {
    /// Where a message goes, by its time and its partition's clock. `None`: it is late.
    pub fn slot(&self, time: i64, clock: i64, lateness_ms: i64) -> Option<Slot> {
        let closed = |end: i64| end.saturating_add(lateness_ms) <= clock;
        match *self {
            Windows::Fixed { size_ms, every_ms, offset_ms } => {
                let slice = self.slice_ms();
                // Windows end where they begin, a length later.
                let ends_ms = offset_ms.saturating_add(size_ms);
                let start = floor(time, slice, offset_ms);
                let end = start.saturating_add(slice);
                let mut from = floor(time, every_ms, ends_ms).saturating_add(every_ms);
                let last = self.last_end(start);
                if closed(from) && from < last {
                    let open = clock.saturating_sub(lateness_ms);
                    from = floor(open, every_ms, ends_ms).saturating_add(every_ms).max(from);
                }
                (from <= last && !closed(from)).then_some(Slot { from, start, end })
            }
            // By its own time: a session that is closed ended before that, so the message could not have joined it.
            Windows::Session { gap_ms } => (time.saturating_add(lateness_ms) >= clock).then(|| {
                let end = time.saturating_add(gap_ms);
                Slot { from: end, start: time, end }
            }),
            Windows::Batch { .. } => Some(Slot { from: END, start: time, end: time.saturating_add(1) }),
        }
    }

    /// The length of a slice of fixed windows.
    pub fn slice_ms(&self) -> i64 {
        match *self {
            Windows::Fixed { size_ms, every_ms, .. } => gcd(size_ms, every_ms),
            Windows::Session { gap_ms } => gap_ms,
            Windows::Batch { .. } => 1,
        }
    }

    /// The end of the last fixed window that holds the slice that begins at `start`.
    pub fn last_end(&self, start: i64) -> i64 {
        match *self {
            Windows::Fixed { size_ms, every_ms, offset_ms } => {
                floor(start.saturating_add(size_ms), every_ms, offset_ms.saturating_add(size_ms))
            }
            _ => END,
        }
    }

    /// The end of the first fixed window after `time`.
    pub fn next_end(&self, time: i64) -> i64 {
        match *self {
            Windows::Fixed { size_ms, every_ms, offset_ms } => {
                floor(time, every_ms, offset_ms.saturating_add(size_ms)).saturating_add(every_ms)
            }
            _ => END,
        }
    }

    /// The end of the fixed window behind the one that ends at `end`.
    pub fn following(&self, end: i64) -> i64 {
        match *self {
            Windows::Fixed { every_ms, .. } => end.saturating_add(every_ms),
            _ => END,
        }
    }

    /// Where the fixed window that ends at `end` begins.
    pub fn start_of(&self, end: i64) -> i64 {
        match *self {
            Windows::Fixed { size_ms, .. } => end.saturating_sub(size_ms),
            _ => BEGINNING,
        }
    }
}

/// The greatest `offset + n * step` that is at most `time`.
fn floor(time: i64, step: i64, offset: i64) -> i64 {
    let (time, step, offset) = (i128::from(time), i128::from(step), i128::from(offset));
    let floor = (time - offset).div_euclid(step) * step + offset;
    floor.clamp(i128::from(BEGINNING), i128::from(END)) as i64
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All windows that hold a time, by trying each.
    fn naive(size: i64, every: i64, offset: i64, time: i64) -> Vec<i64> {
        let mut ends: Vec<i64> = Vec::new();
        let mut start = floor(time, every, offset);
        while start + size > time {
            ends.push(start + size);
            start -= every;
        }
        ends.reverse();
        ends
    }

    proptest! {
        #[test]
        fn a_slice_lies_in_exactly_the_windows_that_hold_its_messages(
            every in 1i64..50, more in 0i64..200, offset in -60i64..60, time in -500i64..500, clock in -600i64..600, lateness in 0i64..100) {
            let windows = Windows::Fixed { size_ms: every + more, every_ms: every, offset_ms: offset };
            let open: Vec<i64> = naive(every + more, every, offset, time).into_iter().filter(|end| end + lateness > clock).collect();
            let slot = windows.slot(time, clock, lateness);
            match slot {
                None => prop_assert!(open.is_empty(), "{open:?}"),
                Some(slot) => {
                    prop_assert!(slot.start <= time && time < slot.end);
                    let mut ends = Vec::new();
                    let mut end = slot.from;
                    while end <= windows.last_end(slot.start) {
                        prop_assert!(windows.start_of(end) <= slot.start && slot.end <= end);
                        ends.push(end);
                        end = windows.following(end);
                    }
                    prop_assert_eq!(ends, open);
                }
            }
        }
    }

    #[test]
    fn windows_before_the_epoch_and_at_the_ends_of_time_are_windows_too() {
        let minute = Windows::Fixed { size_ms: 60_000, every_ms: 60_000, offset_ms: 0 };
        assert_eq!(minute.slot(-1, BEGINNING, 0), Some(Slot { from: 0, start: -60_000, end: 0 }));
        for windows in [minute, Windows::Fixed { size_ms: 90, every_ms: 60, offset_ms: 7 }, Windows::Session { gap_ms: 5 }] {
            // No overflow; where the end can't be told, late is as good an answer as any.
            windows.slot(i64::MAX, BEGINNING, 5);
            windows.slot(i64::MIN, BEGINNING, 5);
            windows.slot(0, i64::MAX - 1, i64::MAX);
        }
        assert_eq!(minute.slot(0, END, 0), None, "everything is late once the partition has ended");
    }

    #[test]
    fn a_session_takes_what_is_not_behind_its_partitions_clock() {
        let session = Windows::Session { gap_ms: 10 };
        assert!(session.slot(100, 100, 0).is_some());
        assert!(session.slot(99, 100, 0).is_none());
        assert!(session.slot(99, 100, 1).is_some());
    }
}
