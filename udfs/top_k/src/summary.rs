//! Counts of a bounded number of values, as Misra and Gries keep them: when there are too many, all counts are lowered
//! by that of the first that has no place, and those that are left with nothing go. Merged the same way
//! (Agarwal and others, "Mergeable summaries"), so that the bound of the error holds for any grouping.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What is known of the values of a field.
#[derive(Debug, Default)]
pub struct Summary {
    /// In the order of the values, so that one state is always written in the same bytes.
    pub counts: BTreeMap<Vec<u8>, u64>,
    /// Messages that had a value.
    pub total: u64,
    /// By how much each count may be too low.
    pub error: u64,
}

impl Summary {
    /// Counts a value.
    pub fn add(&mut self, value: &[u8], count: u64) {
        match self.counts.get_mut(value) {
            Some(known) => *known += count,
            None => drop(self.counts.insert(value.to_vec(), count)),
        }
    }

    /// Makes room until at most `capacity` values are left.
    pub fn shrink(&mut self, capacity: usize) {
        if self.counts.len() <= capacity {
            return;
        }
        let mut counts: Vec<u64> = self.counts.values().copied().collect();
        // The greatest count without a place: the ones above it all have one.
        let (_, lost, _) = counts.select_nth_unstable_by_key(capacity, |count| Reverse(*count));
        let lost = *lost;
        self.counts.retain(|_, count| {
            *count = count.saturating_sub(lost);
            *count > 0
        });
        self.error += lost;
    }

    /// The most frequent values.
    pub fn top(&self, k: usize) -> Vec<(&[u8], u64)> {
        let mut all: Vec<(&[u8], u64)> = self.counts.iter().map(|(value, count)| (&value[..], *count)).collect();
        // Stable: equally frequent ones stay in the order of their bytes.
        all.sort_by_key(|(_, count)| Reverse(*count));
        all.truncate(k);
        all
    }
}
