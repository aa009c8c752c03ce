//! The front of a keyed step: from messages to fragments.

use std::time::{Duration, Instant};

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray, UInt32Array};
use hashbrown::HashTable;
use prometheus::IntCounter;

use super::guest::Guest;
use super::key::Keys;
use super::{Replacement, Settings};
use crate::batch::{Batch, Rejected, Route, take_binary};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics;
use crate::operator::Context;
use crate::operators::search::{Found, search};
use crate::state::{self, Fragments};
use crate::window::{BEGINNING, Slot};

/// Fragments by the worker that has their keys.
pub type Split = Vec<(u32, Fragments)>;

/// A key and slice of the batch at hand.
#[derive(Clone, Copy)]
struct Group {
    hash: u64,
    slot: Slot,
    /// The first row of it.
    row: u32,
    rows: u32,
}

/// See the module.
pub struct Front {
    settings: Settings,
    guest: Guest,
    workers: u32,
    keys: Keys,
    /// The slice of each row; `None`: it is late.
    slots: Vec<Option<Slot>>,
    groups: Vec<Group>,
    index: HashTable<u32>,
    /// The group of each row; `NONE` where it has none.
    of_row: Vec<u32>,
    late: IntCounter,
    late_told: Option<Instant>,
    events: IntCounter,
    rejected: IntCounter,
    failed: IntCounter,
}

const NONE: u32 = u32::MAX;
/// A late message is told of so often.
const LATE_TOLD_EVERY: Duration = Duration::from_secs(60);

/// The clock that a row met.
fn clock(batch: &Batch, row: usize) -> i64 {
    batch.clocks.get(row).copied().unwrap_or(BEGINNING)
}

impl Front {
    /// Starts the front on one of `workers`.
    pub fn new(settings: &Settings, workers: u32) -> Result<Front> {
        let step = [&*settings.step];
        Ok(Front {
            guest: Guest::new(settings)?,
            settings: settings.clone(),
            workers,
            keys: Keys::default(),
            slots: Vec::new(),
            groups: Vec::new(),
            index: HashTable::new(),
            of_row: Vec::new(),
            late: metrics::STEP_LATE.with_label_values(&step),
            late_told: None,
            events: metrics::STEP_EVENTS_IN.with_label_values(&step),
            rejected: metrics::STEP_REJECTED.with_label_values(&[&*settings.step, "refused"]),
            failed: metrics::STEP_REJECTED.with_label_values(&[&*settings.step, "failed"]),
        })
    }

    /// Goes on with other code.
    pub fn replace(&mut self, new: Replacement) {
        (self.settings, self.guest) = (new.settings, new.guest);
    }

    /// Makes fragments of a batch. Late rows and those that can't be taken go aside.
    pub fn process(&mut self, batch: &Batch, cx: &mut Context) -> Result<Split> {
        self.events.inc_by(batch.len() as u64);
        let sifted = self.sift(batch, cx)?;
        let places_known = sifted.is_none();
        let batch = sifted.as_ref().unwrap_or(batch);
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut split = Vec::new();
        match self.accumulate(batch, places_known, self.settings.limits.deadline.0, cx) {
            Ok(parts) => return Ok(parts),
            Err(failure) if failure.kind() == ErrorKind::Guest => {
                let (step, limits) = (self.settings.step.clone(), self.settings.limits);
                search(&step, &limits, batch.len(), failure, &mut |found| match found {
                    Found::Try { start, length, deadline } => {
                        split.extend(self.accumulate(&batch.slice(start, length), false, deadline, cx)?);
                        Ok(())
                    }
                    Found::Culprit { at, failure } => {
                        self.failed.inc();
                        let module = Some(self.settings.digest.clone());
                        cx.rejected.push(Rejected { rows: batch.slice(at, 1), reasons: vec![failure.to_string()], module });
                        Ok(())
                    }
                })?;
            }
            Err(other) => return Err(other),
        }
        Ok(split)
    }

    /// Puts rows aside that are late or have no key. `None`: there are none; else the rest.
    fn sift(&mut self, batch: &Batch, cx: &mut Context) -> Result<Option<Batch>> {
        let (mut bad, mut reasons) = (Vec::new(), Vec::new());
        self.place(batch, |row, reason| {
            bad.push(row);
            reasons.push(reason);
        });
        let keyless = |row: &u32| bad.binary_search(row).is_ok();
        let is_late = |row: &u32| self.slots[*row as usize].is_none();
        let late: Vec<u32> = (0..batch.len() as u32).filter(|row| is_late(row) && !keyless(row)).collect();
        if bad.is_empty() && late.is_empty() {
            return Ok(None);
        }
        if !late.is_empty() {
            self.late.inc_by(late.len() as u64);
            if self.late_told.is_none_or(|told| told.elapsed() >= LATE_TOLD_EVERY) {
                self.late_told = Some(Instant::now());
                let row = late[0] as usize;
                tracing::warn!(
                    step = %self.settings.step,
                    partition = batch.partitions[row],
                    offset = batch.offsets[row],
                    event_time_ms = batch.event_times[row],
                    clock_ms = clock(batch, row),
                    "late: its window was closed (one of them; all go to sinks that take `late`)",
                );
            }
            cx.out.push((Route::LATE, batch.take(&late)?));
        }
        let good: Vec<u32> = (0..batch.len() as u32).filter(|row| !keyless(row) && late.binary_search(row).is_err()).collect();
        if !bad.is_empty() {
            self.rejected.inc_by(bad.len() as u64);
            cx.rejected.push(Rejected { rows: batch.take(&bad)?, reasons, module: None });
        }
        batch.take(&good).map(Some)
    }

    /// Finds key and slice of each row.
    fn place(&mut self, batch: &Batch, reject: impl FnMut(u32, String)) {
        self.keys.find(&self.settings.key, batch, reject);
        let rules = &self.settings.rules;
        let slot = |row: usize| rules.windows.slot(batch.event_times[row], clock(batch, row), rules.lateness_ms);
        self.slots.clear();
        self.slots.extend((0..batch.len()).map(slot));
    }

    /// One call into the guest with rows that all have a key and a window.
    fn accumulate(&mut self, batch: &Batch, places_known: bool, deadline: Duration, cx: &mut Context) -> Result<Split> {
        if !places_known {
            self.place(batch, |_, _| {});
        }
        self.group(batch);
        let order = self.order();
        let (rows, ends) = self.rows(&order);
        let accumulated = self.guest.call(|guest| guest.accumulate(batch, &rows, &ends, deadline))?;
        if !accumulated.rejected.is_empty() {
            self.rejected.inc_by(accumulated.rejected.len() as u64);
            for (row, _) in &accumulated.rejected {
                let group = self.of_row[*row as usize] as usize;
                self.groups[group].rows -= 1;
            }
            let (rows, reasons): (Vec<u32>, Vec<String>) = accumulated.rejected.into_iter().unzip();
            let module = Some(self.settings.digest.clone());
            cx.rejected.push(Rejected { rows: batch.take(&rows)?, reasons, module });
        }
        if accumulated.fragments.len() != order.len() {
            return Err(Error::bug("the guest gave another number of fragments than there are groups"));
        }
        self.split(&order, &accumulated.fragments)
    }

    /// Finds the groups of the rows.
    fn group(&mut self, batch: &Batch) {
        self.groups.clear();
        self.index.clear();
        self.of_row.clear();
        for row in 0..batch.len() {
            let Some(slot) = self.slots[row] else {
                self.of_row.push(NONE);
                continue;
            };
            let key = self.keys.get(row);
            let hash = state::hash(key);
            let (groups, keys) = (&self.groups, &self.keys);
            let same = |group: &u32| {
                let found = &groups[*group as usize];
                found.hash == hash && found.slot == slot && keys.get(found.row as usize) == key
            };
            let group = match self.index.find(hash, same) {
                Some(group) => *group,
                None => {
                    let group = self.groups.len() as u32;
                    self.groups.push(Group { hash, slot, row: row as u32, rows: 0 });
                    let groups = &self.groups;
                    self.index.insert_unique(hash, group, |group| groups[*group as usize].hash);
                    group
                }
            };
            self.groups[group as usize].rows += 1;
            self.of_row.push(group);
        }
    }

    /// The groups by owner, key group and slot: as state takes them.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.groups.len() as u32).collect();
        order.sort_unstable_by_key(|group| {
            let found = &self.groups[*group as usize];
            let key_group = state::key_group(found.hash);
            (state::owner(key_group, self.workers), key_group, found.slot, *group)
        });
        order
    }

    /// The rows by group, and where each group ends.
    fn rows(&self, order: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let mut next = vec![0u32; self.groups.len()];
        let mut ends = Vec::with_capacity(order.len());
        let mut total = 0;
        for group in order {
            next[*group as usize] = total;
            total += self.groups[*group as usize].rows;
            ends.push(total);
        }
        let mut rows = vec![0u32; total as usize];
        for (row, group) in self.of_row.iter().enumerate().filter(|(_, group)| **group != NONE) {
            let place = &mut next[*group as usize];
            rows[*place as usize] = row as u32;
            *place += 1;
        }
        (rows, ends)
    }

    /// Hands each worker its part of the fragments.
    fn split(&self, order: &[u32], fragments: &BinaryArray) -> Result<Split> {
        let mut split = Split::new();
        let owner = |at: usize| state::owner(state::key_group(self.groups[order[at] as usize].hash), self.workers);
        let mut start = 0;
        while start < order.len() {
            let worker = owner(start);
            let end = (start..order.len()).find(|at| owner(*at) != worker).unwrap_or(order.len());
            let there: Vec<u32> = (start as u32..end as u32).filter(|at| fragments.is_valid(*at as usize)).collect();
            let groups = || there.iter().map(|at| &self.groups[order[*at as usize] as usize]);
            let mut keys = BinaryBuilder::with_capacity(there.len(), 0);
            groups().for_each(|group| keys.append_option(self.keys.get(group.row as usize)));
            split.push((
                worker,
                Fragments {
                    keys: keys.finish(),
                    hashes: groups().map(|group| group.hash).collect(),
                    slots: groups().map(|group| group.slot).collect(),
                    rows: groups().map(|group| group.rows).collect(),
                    parts: match there.len() == fragments.len() {
                        true => fragments.clone(),
                        false => take_binary(fragments, &UInt32Array::from(there.clone()))?,
                    },
                },
            ));
            start = end;
        }
        Ok(split)
    }
}
