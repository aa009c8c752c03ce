//! Clocks of a source's partitions, and the watermark that follows from them. Pure: time comes in with the facts.
//!
//! A partition's clock is the greatest event time that it has shown, less the lag. A partition that is caught up stays in
//! the minimum: each empty fetch at its end lets its clock follow to the time of that fetch, less the lag, but not
//! past the partitions that deliver; if all are caught up, the fetch time alone counts. No timer ever calls a
//! partition idle, so none that is merely slow loses its messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::window::{BEGINNING, END};

/// What a source knows of a partition besides its messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number that its messages carry.
    pub number: u32,
    /// What positions call it.
    pub name: Arc<str>,
    /// When it was last seen to have nothing more, in ms; `None` while it delivers.
    pub caught_up_ms: Option<i64>,
    /// Nothing will ever come of it again.
    pub ended: bool,
}

#[derive(Clone, Debug)]
struct Clock {
    name: Arc<str>,
    time: i64,
    caught_up_ms: Option<i64>,
    ended: bool,
}

/// The clocks of one worker's part of a source.
#[derive(Debug)]
pub struct Clocks {
    lag_ms: i64,
    partitions: BTreeMap<u32, Clock>,
    /// Clocks of a former run, until their partitions are known.
    former: BTreeMap<String, i64>,
    watermark: i64,
    /// Where the clock of a partition begins that nothing is known of.
    floor: i64,
    ended: bool,
}

/// The partition that the watermark waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What positions call it.
    pub partition: Arc<str>,
    /// Its clock.
    pub clock: i64,
}

impl Clocks {
    /// Clocks that go on where a former run left them.
    pub fn new(lag_ms: i64, former: BTreeMap<String, i64>) -> Clocks {
        Clocks { lag_ms, partitions: BTreeMap::new(), former, watermark: BEGINNING, floor: BEGINNING, ended: false }
    }

    /// The watermark that was told of: windows behind it may be closed, so partitions that come up begin there.
    pub fn passed(&mut self, watermark: i64) {
        self.floor = self.floor.max(watermark);
    }

    /// Takes over what the source says, and whether it has ended.
    pub fn progress(&mut self, facts: &[Progress], ended: bool) {
        self.ended |= ended;
        for fact in facts {
            let (former, floor) = (&mut self.former, self.floor);
            let clock = self.partitions.entry(fact.number).or_insert_with(|| Clock {
                name: fact.name.clone(),
                time: former.remove(&*fact.name).unwrap_or(BEGINNING).max(floor),
                caught_up_ms: None,
                ended: false,
            });
            (clock.caught_up_ms, clock.ended) = (fact.caught_up_ms, fact.ended);
        }
        self.follow();
    }

    /// How far clocks stay behind the greatest event time, in ms.
    pub fn lag_ms(&self) -> i64 {
        self.lag_ms
    }

    /// A partition's clock.
    pub fn of(&self, partition: u32) -> i64 {
        self.partitions.get(&partition).map_or(BEGINNING, |clock| clock.time)
    }

    /// A partition has shown a message of this event time.
    pub fn observe(&mut self, partition: u32, time: i64) {
        if let Some(clock) = self.partitions.get_mut(&partition) {
            clock.time = clock.time.max(time.saturating_sub(self.lag_ms));
            clock.caught_up_ms = None;
        }
    }

    /// Shows messages in order: each meets its partition's clock, which is added to `met`, and then moves it.
    pub fn meet(&mut self, partitions: &[u32], times: &[i64], met: &mut Vec<i64>) {
        let mut row = 0;
        while row < partitions.len() {
            let partition = partitions[row];
            let run = partitions[row..].iter().take_while(|found| **found == partition).count();
            match self.partitions.get_mut(&partition) {
                None => met.extend(std::iter::repeat_n(BEGINNING, run)),
                Some(clock) => {
                    clock.caught_up_ms = None;
                    for time in &times[row..row + run] {
                        met.push(clock.time);
                        clock.time = clock.time.max(time.saturating_sub(self.lag_ms));
                    }
                }
            }
            row += run;
        }
    }

    /// Lets the clocks of caught-up partitions follow.
    fn follow(&mut self) {
        let delivering = self.partitions.values().filter(|clock| clock.caught_up_ms.is_none() && !clock.ended);
        let bound = delivering.map(|clock| clock.time).min().unwrap_or(END);
        for clock in self.partitions.values_mut() {
            if let Some(fetched) = clock.caught_up_ms {
                clock.time = clock.time.max(fetched.saturating_sub(self.lag_ms).min(bound));
            }
        }
    }

    /// The watermark: no message that is not late by its partition's clock will come from before it. Never goes back.
    pub fn watermark(&mut self) -> i64 {
        let open = self.partitions.values().filter(|clock| !clock.ended);
        let least = match self.partitions.is_empty() && !self.ended {
            true => BEGINNING,
            false => open.map(|clock| clock.time).min().unwrap_or(END),
        };
        self.watermark = self.watermark.max(least);
        self.watermark
    }

    /// Whether there are no partitions, though there may be some day: the watermark is that of others then.
    pub fn follows(&self) -> bool {
        self.partitions.is_empty() && !self.ended
    }

    /// Which partition the watermark waits for.
    pub fn held(&self) -> Option<Held> {
        let open = self.partitions.values().filter(|clock| !clock.ended);
        open.min_by_key(|clock| clock.time).map(|clock| Held { partition: clock.name.clone(), clock: clock.time })
    }

    /// All clocks that show anything, by the names of their partitions: for the manifest.
    pub fn all(&self) -> BTreeMap<String, i64> {
        let known = self.partitions.values().filter(|clock| clock.time > BEGINNING);
        self.former.clone().into_iter().chain(known.map(|clock| (clock.name.to_string(), clock.time))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(number: u32, caught_up_ms: Option<i64>, ended: bool) -> Progress {
        Progress { number, name: format!("t/{number}").into(), caught_up_ms, ended }
    }

    fn clocks(partitions: u32) -> Clocks {
        let mut clocks = Clocks::new(5, BTreeMap::new());
        clocks.progress(&(0..partitions).map(|n| fact(n, None, false)).collect::<Vec<_>>(), false);
        clocks
    }

    #[test]
    fn the_watermark_is_that_of_the_slowest_partition_less_the_lag_and_never_goes_back() {
        let mut clocks = clocks(2);
        clocks.observe(0, 100);
        assert_eq!(clocks.watermark(), BEGINNING, "partition 1 has shown nothing");
        clocks.observe(1, 50);
        assert_eq!(clocks.watermark(), 45);
        clocks.observe(1, 40);
        assert_eq!(clocks.watermark(), 45, "a regression of event time moves nothing");
        clocks.progress(&[fact(2, None, false)], false);
        assert_eq!(clocks.watermark(), 45, "a partition that came up neither");
        assert_eq!(clocks.held().unwrap().partition, "t/2".into());
        clocks.passed(45);
        clocks.progress(&[fact(3, None, false)], false);
        assert_eq!(clocks.of(3), 45, "what is behind the watermark is late there too");
    }

    #[test]
    fn a_partition_that_never_had_a_message_follows_the_others_and_not_the_wall_clock() {
        let mut clocks = clocks(2);
        // Last year's data is replayed; partition 1 is empty.
        clocks.observe(0, 1_000);
        clocks.progress(&[fact(0, None, false), fact(1, Some(9_000_000), false)], false);
        assert_eq!(clocks.watermark(), 995);
        clocks.observe(0, 2_000);
        clocks.progress(&[fact(0, None, false), fact(1, Some(9_000_100), false)], false);
        assert_eq!(clocks.watermark(), 1_995);
        // All caught up: the time of the fetches counts.
        clocks.progress(&[fact(0, Some(9_000_200), false), fact(1, Some(9_000_300), false)], false);
        assert_eq!(clocks.watermark(), 9_000_195);
    }

    #[test]
    fn a_busy_partition_is_never_passed_over_however_long_it_is_silent() {
        let mut clocks = clocks(2);
        clocks.observe(0, 100);
        clocks.observe(1, 100);
        for time in 0..100 {
            clocks.progress(&[fact(0, None, false), fact(1, Some(1_000_000 + time), false)], false);
        }
        assert_eq!(clocks.watermark(), 95, "partition 0 has not said that it is at its end");
    }

    #[test]
    fn ended_partitions_wait_for_nothing_and_clocks_outlive_a_restart() {
        let mut clocks = clocks(2);
        clocks.observe(0, 100);
        clocks.observe(1, 70);
        clocks.progress(&[fact(1, None, true)], false);
        assert_eq!(clocks.watermark(), 95);
        let kept = clocks.all();
        clocks.progress(&[fact(0, None, true)], false);
        assert_eq!(clocks.watermark(), END);
        let mut none = Clocks::new(5, BTreeMap::new());
        assert!(none.follows());
        none.progress(&[], true);
        assert!(!none.follows() && none.watermark() == END);
        let mut again = Clocks::new(5, kept);
        again.progress(&[fact(0, None, false), fact(1, None, false)], false);
        assert_eq!((again.of(0), again.of(1), again.watermark()), (95, 65, 65));
    }
}
