//! State of keyed windows on one worker: fragments by key group, slice and key; which windows are due; what a
//! checkpoint writes. Pure: guests are called and runs are read by whoever drives it.
//!
//! A checkpoint appends one **run**: what changed since the one before, in sections by key group and slice. So the runs
//! are both the checkpoint and the place where state goes that memory has no room for: a table whose changes are in runs can
//! be dropped from memory (it is *cold* then), and is read back once, when its window fires. Aggregates are never
//! looked up between two firings, so nothing needs an index on disk.

mod fire;
mod record;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use fire::{Firing, Pane, Panes, Timing};
pub use record::{Section, index_bytes, index_of_tail};
use table::Table;

use crate::error::{Error, Result};
use crate::window::{BEGINNING, END, Slot, Windows};

/// Key groups: what state is kept and moved by. Their number is part of the format of a checkpoint.
pub const KEY_GROUPS: u16 = 128;

/// Up to this size accumulators are merged whenever a fragment comes; larger ones when it pays.
const SMALL: usize = 256;
/// Fragments of a large accumulator that are worth a merge.
const MANY: u32 = 16;

/// The hash that decides where a key lives.
pub fn hash(key: Option<&[u8]>) -> u64 {
    match key {
        Some(key) => xxh3_64(key),
        None => xxh3_64_with_seed(b"", 1),
    }
}

/// The key group of a key with this hash.
pub fn key_group(hash: u64) -> u16 {
    (hash % u64::from(KEY_GROUPS)) as u16
}

/// The worker that has a key group.
pub fn owner(group: u16, workers: u32) -> u32 {
    u32::from(group) % workers
}

/// What a batch added to keys and slices: one entry for each, sorted by key group and slot. What travels on the exchange.
#[derive(Clone, Debug)]
pub struct Fragments {
    /// The keys; null where messages had none.
    pub keys: BinaryArray,
    /// Their hashes.
    pub hashes: Vec<u64>,
    /// Where each goes.
    pub slots: Vec<Slot>,
    /// Messages in each.
    pub rows: Vec<u32>,
    /// The guest's bytes.
    pub parts: BinaryArray,
}

impl Fragments {
    /// How many.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

/// Merges lists of fragments: list i is `fragments[ends[i - 1]..ends[i]]`.
pub type Merge<'a> = &'a mut dyn FnMut(&BinaryArray, &[u32]) -> Result<BinaryArray>;

/// How a step's windows behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Which windows.
    pub windows: Windows,
    /// For how long after its end a window still takes messages, in ms.
    pub lateness_ms: i64,
    /// Windows fire before they are due, too.
    pub early: bool,
    /// A pane shows what came since the one before, not everything.
    pub discarding: bool,
}

impl Rules {
    /// Whether a window may fire more than once.
    fn refires(&self) -> bool {
        self.early || self.lateness_ms > 0
    }

    /// Whether keys have windows of their own.
    fn own_windows(&self) -> bool {
        !matches!(self.windows, Windows::Fixed { .. })
    }

    /// Whether state stays in memory whatever its size: any message may change any session, and a window that fires again shows
    /// what has changed since.
    fn stays(&self) -> bool {
        self.own_windows() || self.refires()
    }

    /// When a slice is in no window that could still change.
    fn closes(&self, slot: Slot) -> i64 {
        self.windows.last_end(slot.start).saturating_add(self.lateness_ms)
    }
}

/// The table that holds the windows of all keys where these have windows of their own.
const OWN: Slot = Slot { from: END, start: BEGINNING, end: END };

/// Where a section lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The run.
    pub run: Arc<str>,
    /// What and where in it.
    pub section: Section,
}

/// State of one worker.
pub struct State {
    rules: Rules,
    groups: Vec<BTreeMap<Slot, Table>>,
    watermark: i64,
    /// Memory in tables.
    bytes: usize,
    /// Memory that is in no run yet.
    unwritten: usize,
    jobs: Vec<(u16, Slot, u32)>,
}

impl State {
    /// Empty state.
    pub fn new(rules: Rules, watermark: i64) -> State {
        let groups = (0..KEY_GROUPS).map(|_| BTreeMap::new()).collect();
        State { rules, groups, watermark, bytes: 0, unwritten: 0, jobs: Vec::new() }
    }

    /// Up to where windows have fired.
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that only a checkpoint can make droppable, in bytes.
    pub fn unwritten(&self) -> usize {
        self.unwritten
    }

    /// Keys with their windows in memory.
    pub fn entries(&self) -> usize {
        self.groups.iter().flat_map(BTreeMap::values).map(Table::len).sum()
    }

    /// Adds fragments. `now_ms` is the processing time.
    pub fn add(&mut self, fragments: &Fragments, now_ms: i64, merge: Merge<'_>) -> Result<()> {
        let mut at = 0;
        while at < fragments.len() {
            let group = key_group(fragments.hashes[at]);
            let slot = self.table_slot(fragments.slots[at]);
            let table = self.groups[usize::from(group)].entry(slot).or_default();
            let before = table.bytes();
            while at < fragments.len() && key_group(fragments.hashes[at]) == group {
                let wanted = fragments.slots[at];
                if !self.rules.own_windows() && wanted != slot {
                    break;
                }
                let key = fragments.keys.is_valid(at).then(|| fragments.keys.value(at));
                let part = fragments.parts.value(at);
                if !table.has_room(part.len() + key.map_or(0, <[u8]>::len)) {
                    return Err(Error::config(
                        "the windows of one key group have outgrown 2 GiB: use shorter windows, smaller accumulators, or a key that spreads better",
                    )
                    .with("key_group", group)
                    .with("keys", table.len()));
                }
                self.unwritten += part.len() + key.map_or(0, <[u8]>::len);
                let found = (key, fragments.hashes[at]);
                let entry = match self.rules.windows {
                    Windows::Fixed { .. } => table.find_or_add(found, wanted),
                    Windows::Session { .. } => table.join_session(found, wanted),
                    Windows::Batch { age_ms, .. } => table.join_batch(found, wanted, now_ms.saturating_add(age_ms)),
                };
                table.append(entry, part, u64::from(fragments.rows[at]), self.rules.stays());
                if table.is_worth_merging(entry, SMALL, MANY) {
                    self.jobs.push((group, slot, entry));
                }
                at += 1;
            }
            self.bytes = self.bytes + table.bytes() - before;
        }
        self.merge_jobs(merge)
    }

    fn table_slot(&self, slot: Slot) -> Slot {
        if self.rules.own_windows() { OWN } else { slot }
    }

    /// Merges what was found worth it, in one call.
    fn merge_jobs(&mut self, merge: Merge<'_>) -> Result<()> {
        let mut jobs = std::mem::take(&mut self.jobs);
        // An entry may have been found several times, or merged into another meanwhile.
        jobs.sort_unstable();
        jobs.dedup();
        jobs.retain(|(group, slot, entry)| {
            self.groups[usize::from(*group)].get(slot).is_some_and(|table| table.parts_of(*entry).nth(1).is_some())
        });
        if !jobs.is_empty() {
            let mut parts = BinaryBuilder::new();
            let mut ends = Vec::with_capacity(jobs.len());
            let mut count = 0;
            for (group, slot, entry) in &jobs {
                if let Some(table) = self.groups[usize::from(*group)].get(slot) {
                    table.parts_of(*entry).for_each(|part| {
                        parts.append_value(part);
                        count += 1;
                    });
                }
                ends.push(count);
            }
            let merged = merge(&parts.finish(), &ends)?;
            if merged.len() != jobs.len() {
                return Err(Error::bug("a merge gave another number of accumulators than it got lists"));
            }
            for (i, (group, slot, entry)) in jobs.iter().enumerate() {
                if let Some(table) = self.groups[usize::from(*group)].get_mut(slot) {
                    let before = table.bytes();
                    table.replace(*entry, merged.value(i));
                    self.bytes = self.bytes + table.bytes() - before;
                }
            }
        }
        jobs.clear();
        self.jobs = jobs;
        Ok(())
    }

    /// Writes what changed since the last call, as the run `name`. `None`: nothing did.
    pub fn checkpoint(&mut self, name: &Arc<str>) -> Option<Vec<u8>> {
        let mut run = record::Writer::default();
        for (group, tables) in self.groups.iter_mut().enumerate() {
            for (slot, table) in tables {
                let before = table.bytes();
                if let Some(section) = table.write(&mut run, group as u16, *slot, self.rules.own_windows()) {
                    table.note_section(Place { run: name.clone(), section });
                }
                if table.is_cold() {
                    // It would be there twice when it is read back.
                    table.chill();
                }
                self.bytes = self.bytes + table.bytes() - before;
            }
        }
        self.unwritten = 0;
        run.finish()
    }

    /// The runs that are still needed.
    pub fn live_runs(&self) -> Vec<Arc<str>> {
        let tables = self.groups.iter().flat_map(BTreeMap::values);
        let mut runs: Vec<Arc<str>> = tables.flat_map(|table| table.sections().iter().map(|place| place.run.clone())).collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Drops tables from memory, the largest first, until at most `most` bytes are left. Only right after a checkpoint:
    /// everything is in runs then. Nothing is dropped where windows may fire more than once, or are a key's own.
    pub fn evict(&mut self, most: usize) {
        if self.bytes <= most || self.rules.stays() {
            return;
        }
        let mut sizes: Vec<(usize, usize, Slot)> = Vec::new();
        for (group, tables) in self.groups.iter().enumerate() {
            sizes.extend(tables.iter().map(|(slot, table)| (table.bytes(), group, *slot)));
        }
        sizes.sort_unstable();
        while let Some((bytes, group, slot)) = sizes.pop()
            && self.bytes > most
        {
            if let Some(table) = self.groups[group].get_mut(&slot) {
                table.chill();
                self.bytes = self.bytes + table.bytes() - bytes;
            }
        }
    }

    /// Takes over the sections of a run that a checkpoint names, older runs first. `owned` says which key groups are ours.
    pub fn adopt(&mut self, run: &Arc<str>, sections: Vec<Section>, owned: impl Fn(u16) -> bool) -> Result<()> {
        for section in sections {
            if section.group >= KEY_GROUPS {
                return Err(Error::corrupt("a run of the state has a key group that there is none of").with("run", run));
            }
            let closed = !self.rules.own_windows() && self.rules.closes(section.slot) <= self.watermark;
            if owned(section.group) && !closed {
                let table = self.groups[usize::from(section.group)].entry(section.slot).or_default();
                table.note_section(Place { run: run.clone(), section });
                table.chill();
            }
        }
        Ok(())
    }

    /// Tables that lie in runs only, as far as `most` bytes reach: what to read back after [`State::adopt`].
    pub fn to_warm(&self, most: usize) -> Vec<(u16, Slot, Vec<Place>)> {
        let mut room = most as u64;
        let mut wanted = Vec::new();
        for (group, tables) in self.groups.iter().enumerate() {
            for (slot, table) in tables {
                let bytes: u64 = table.sections().iter().map(|place| place.section.length).sum();
                if self.rules.stays() || bytes <= room {
                    room = room.saturating_sub(bytes);
                    wanted.push((group as u16, *slot, table.sections().to_vec()));
                }
            }
        }
        wanted
    }

    /// Puts a table back into memory, from its sections in order.
    pub fn warm(&mut self, group: u16, slot: Slot, sections: &[impl AsRef<[u8]>]) -> Result<()> {
        if let Some(table) = self.groups[usize::from(group)].get_mut(&slot) {
            let before = table.bytes();
            table.load(sections, self.rules.own_windows())?;
            table.restart_timers(&self.rules);
            self.bytes = self.bytes + table.bytes() - before;
        }
        Ok(())
    }

    /// Rewrites every accumulator that is in memory: for a guest whose encoding has changed. All tables have to be warm.
    pub fn rewrite(&mut self, migrate: &mut dyn FnMut(&BinaryArray) -> Result<BinaryArray>) -> Result<()> {
        for tables in &mut self.groups {
            for table in tables.values_mut() {
                let before = table.bytes();
                table.rewrite(migrate)?;
                self.bytes = self.bytes + table.bytes() - before;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
