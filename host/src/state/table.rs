//! The keys of one key group and slice: an index, entries, and one buffer for keys and fragments. Nothing is
//! allocated for a key or a fragment.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray};
use hashbrown::HashTable;
use std::collections::BTreeMap;

use super::record::{self, Record, Section};
use super::{Place, Rules};
use crate::error::{Error, Result};
use crate::window::{Slot, Windows};

const NONE: u32 = u32::MAX;
/// Places in a buffer are numbers of 32 bits. A merge may put as much into it again as it holds.
const BUFFER_MAX: usize = (u32::MAX / 2) as usize;
/// A buffer with less than this is not worth tidying.
const TIDY_BYTES: usize = 64 << 10;

/// A key, and its hash.
pub type Key<'a> = (Option<&'a [u8]>, u64);

/// One key in one window.
#[derive(Clone, Debug)]
pub struct Entry {
    hash: u64,
    key_at: u32,
    /// `NONE`: messages without a key.
    key_length: u32,
    /// The window: of fixed ones the slice.
    pub start: i64,
    /// Its end.
    pub end: i64,
    /// Messages.
    pub rows: u64,
    first: u32,
    last: u32,
    /// Fragments, and their bytes.
    count: u32,
    length: u32,
    /// Leading fragments that runs hold.
    kept: u32,
    /// Panes so far.
    pub firings: u32,
    /// When its own window is due.
    pub due: i64,
    /// Where its window began when it was written last.
    stored_start: i64,
    /// A run knows it.
    stored: bool,
    /// A run knows that it has something no pane has shown.
    stored_changed: bool,
    /// In `dirty`.
    is_dirty: bool,
    /// In `changed`: it has something that no pane has shown.
    pub is_changed: bool,
    /// Fragments were taken away since it was written last.
    cleared: bool,
    /// Its own window has fired on time.
    pub fired: bool,
    /// Not there any more; kept until it is written that it isn't.
    pub gone: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    at: u32,
    length: u32,
    next: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Table {
    index: HashTable<u32>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    parts: Vec<Part>,
    free_parts: Vec<u32>,
    buffer: Vec<u8>,
    dead: usize,
    dirty: Vec<u32>,
    changed: Vec<u32>,
    /// Entries by the time at which their own windows are due. What no longer holds is skipped.
    timers: BTreeMap<i64, Vec<u32>>,
    sections: Vec<Place>,
    /// Part of it lies in runs only.
    cold: bool,
}

impl Table {
    /// Keys in memory.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.buffer.capacity()
            + self.entries.capacity() * size_of::<Entry>()
            + self.parts.capacity() * size_of::<Part>()
            + self.index.capacity() * 5
    }

    /// Whether the buffer takes so many bytes more.
    pub fn has_room(&self, more: usize) -> bool {
        has_room(self.buffer.len(), more)
    }

    /// Whether part of it lies in runs only.
    pub fn is_cold(&self) -> bool {
        self.cold
    }

    /// Where it lies in runs, older sections first.
    pub fn sections(&self) -> &[Place] {
        &self.sections
    }

    /// A run holds more of it; a full section stands for all that were before.
    pub fn note_section(&mut self, place: Place) {
        if place.section.full {
            self.sections.clear();
        }
        self.sections.push(place);
    }

    /// Empties the memory: everything is in runs.
    pub fn chill(&mut self) {
        let sections = std::mem::take(&mut self.sections);
        *self = Table { sections, cold: true, ..Table::default() };
    }

    /// An entry.
    pub fn entry(&self, entry: u32) -> &Entry {
        &self.entries[entry as usize]
    }

    /// All entries that are there.
    pub fn all(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.entries.len() as u32).filter(|entry| !self.entries[*entry as usize].gone)
    }

    /// An entry's key with its hash.
    pub fn key_of(&self, entry: u32) -> Key<'_> {
        let entry = &self.entries[entry as usize];
        let key =
            (entry.key_length != NONE).then(|| &self.buffer[entry.key_at as usize..(entry.key_at + entry.key_length) as usize]);
        (key, entry.hash)
    }

    /// An entry's fragments, older first.
    pub fn parts_of(&self, entry: u32) -> impl Iterator<Item = &[u8]> {
        let mut next = self.entries[entry as usize].first;
        std::iter::from_fn(move || {
            let part = self.parts.get(next as usize)?;
            next = part.next;
            Some(&self.buffer[part.at as usize..(part.at + part.length) as usize])
        })
    }

    /// The entry of a key, if there is one.
    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        self.index.find(key.1, |entry| self.key_of(*entry) == key).copied()
    }

    fn add(&mut self, key: Key<'_>, start: i64, end: i64, due: i64) -> u32 {
        let key_at = self.buffer.len() as u32;
        self.buffer.extend_from_slice(key.0.unwrap_or_default());
        let entry = Entry {
            hash: key.1,
            key_at,
            key_length: key.0.map_or(NONE, |key| key.len() as u32),
            start,
            end,
            rows: 0,
            first: NONE,
            last: NONE,
            count: 0,
            length: 0,
            kept: 0,
            firings: 0,
            due,
            stored_start: start,
            stored: false,
            stored_changed: false,
            is_dirty: false,
            is_changed: false,
            cleared: false,
            fired: false,
            gone: false,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        self.index.insert_unique(key.1, number, |entry| entries[*entry as usize].hash);
        number
    }

    /// The entry of a key in a fixed window.
    pub fn find_or_add(&mut self, key: Key<'_>, slot: Slot) -> u32 {
        self.find(key).unwrap_or_else(|| self.add(key, slot.start, slot.end, slot.end))
    }

    /// The session that the window of a message makes, with those of the key that it touches.
    pub fn join_session(&mut self, key: Key<'_>, slot: Slot) -> u32 {
        let touches = |entry: &&u32| {
            let found = &self.entries[**entry as usize];
            found.start < slot.end && slot.start < found.end && self.key_of(**entry) == key
        };
        let mut touched: Vec<u32> = self.index.iter_hash(key.1).filter(touches).copied().collect();
        touched.sort_by_key(|entry| self.entries[*entry as usize].start);
        let Some((&into, others)) = touched.split_first() else {
            let entry = self.add(key, slot.start, slot.end, slot.end);
            self.timers.entry(slot.end).or_default().push(entry);
            return entry;
        };
        for other in others {
            self.take_over(into, *other);
        }
        let entry = &mut self.entries[into as usize];
        entry.start = entry.start.min(slot.start);
        let end = entry.end.max(slot.end);
        if end > entry.end || !others.is_empty() {
            (entry.end, entry.due, entry.fired) = (end, end, false);
            self.timers.entry(end).or_default().push(into);
        }
        into
    }

    /// Joins a session into an older one.
    fn take_over(&mut self, into: u32, other: u32) {
        let taken = self.entries[other as usize].clone();
        match taken.first {
            NONE => {}
            first => {
                let last = self.entries[into as usize].last;
                match last {
                    NONE => self.entries[into as usize].first = first,
                    last => self.parts[last as usize].next = first,
                }
                self.entries[into as usize].last = taken.last;
            }
        }
        let entry = &mut self.entries[into as usize];
        entry.end = entry.end.max(taken.end);
        entry.rows += taken.rows;
        entry.count += taken.count;
        entry.length += taken.length;
        entry.firings = entry.firings.max(taken.firings);
        let left = &mut self.entries[other as usize];
        (left.first, left.last, left.count, left.length, left.rows) = (NONE, NONE, 0, 0, 0);
        self.touch(into);
        self.remove(other);
    }

    /// The key's batch.
    pub fn join_batch(&mut self, key: Key<'_>, slot: Slot, due: i64) -> u32 {
        match self.find(key) {
            Some(entry) => {
                let found = &mut self.entries[entry as usize];
                if found.count == 0 {
                    (found.start, found.end, found.due) = (slot.start, slot.end, due);
                    self.timers.entry(due).or_default().push(entry);
                }
                let found = &mut self.entries[entry as usize];
                (found.start, found.end) = (found.start.min(slot.start), found.end.max(slot.end));
                entry
            }
            None => {
                let entry = self.add(key, slot.start, slot.end, due);
                self.timers.entry(due).or_default().push(entry);
                entry
            }
        }
    }

    /// Adds a fragment; `notes` that the entry has changed where that matters.
    pub fn append(&mut self, entry: u32, part: &[u8], rows: u64, notes: bool) {
        self.put_part(entry, part);
        self.entries[entry as usize].rows += rows;
        self.touch(entry);
        if notes && !self.entries[entry as usize].is_changed {
            self.entries[entry as usize].is_changed = true;
            self.changed.push(entry);
        }
    }

    fn put_part(&mut self, entry: u32, part: &[u8]) {
        let new = Part { at: self.buffer.len() as u32, length: part.len() as u32, next: NONE };
        self.buffer.extend_from_slice(part);
        let number = match self.free_parts.pop() {
            Some(number) => {
                self.parts[number as usize] = new;
                number
            }
            None => {
                self.parts.push(new);
                (self.parts.len() - 1) as u32
            }
        };
        let found = &mut self.entries[entry as usize];
        match found.last {
            NONE => found.first = number,
            last => self.parts[last as usize].next = number,
        }
        found.last = number;
        found.count += 1;
        found.length += part.len() as u32;
    }

    fn touch(&mut self, entry: u32) {
        if !self.entries[entry as usize].is_dirty {
            self.entries[entry as usize].is_dirty = true;
            self.dirty.push(entry);
        }
    }

    /// Whether an entry's fragments should be merged now. Where merging only copies, as it does for lists, it waits.
    pub fn is_worth_merging(&self, entry: u32, small: usize, many: u32) -> bool {
        let entry = &self.entries[entry as usize];
        entry.count > 1 && (entry.length as usize <= small || entry.count - entry.kept >= many.max(entry.kept))
    }

    /// Puts one accumulator in the place of an entry's fragments.
    pub fn replace(&mut self, entry: u32, merged: &[u8]) {
        let found = &self.entries[entry as usize];
        let (first, length, kept) = (found.first, found.length as usize, found.kept);
        // Lists don't shrink: what runs hold of them is not written again for a merge.
        let shrinks = merged.len() * 4 < length * 3 || length <= super::SMALL;
        let Some(place) = self.parts.get(first as usize).copied() else { return };
        if !shrinks && kept > 0 {
            return;
        }
        self.drop_parts(place.next);
        self.dead += place.length as usize;
        let at = match merged.len() <= place.length as usize {
            true => {
                self.dead -= merged.len();
                self.buffer[place.at as usize..place.at as usize + merged.len()].copy_from_slice(merged);
                place.at
            }
            false => {
                let at = self.buffer.len() as u32;
                self.buffer.extend_from_slice(merged);
                at
            }
        };
        self.parts[first as usize] = Part { at, length: merged.len() as u32, next: NONE };
        let found = &mut self.entries[entry as usize];
        (found.last, found.count, found.length, found.kept) = (first, 1, merged.len() as u32, 0);
        self.touch(entry);
        self.tidy();
    }

    fn drop_parts(&mut self, first: u32) {
        let mut next = first;
        while let Some(part) = self.parts.get(next as usize) {
            self.dead += part.length as usize;
            self.free_parts.push(next);
            next = part.next;
        }
    }

    /// Takes an entry's fragments away: a pane has shown them.
    pub fn clear(&mut self, entry: u32) {
        let first = self.entries[entry as usize].first;
        self.drop_parts(first);
        let found = &mut self.entries[entry as usize];
        (found.first, found.last, found.count, found.length, found.kept, found.rows) = (NONE, NONE, 0, 0, 0, 0);
        found.cleared = true;
        self.touch(entry);
        self.tidy();
    }

    /// Takes an entry away.
    pub fn remove(&mut self, entry: u32) {
        let (hash, first) = (self.entries[entry as usize].hash, self.entries[entry as usize].first);
        if let Ok(found) = self.index.find_entry(hash, |found| *found == entry) {
            found.remove();
        }
        self.drop_parts(first);
        self.dead += self.key_of(entry).0.map_or(0, <[u8]>::len);
        let found = &mut self.entries[entry as usize];
        (found.first, found.last, found.count, found.length, found.gone) = (NONE, NONE, 0, 0, true);
        self.touch(entry);
        self.tidy();
    }

    /// Rewrites the buffer once half of it is of no use.
    fn tidy(&mut self) {
        if self.dead < TIDY_BYTES || self.dead * 2 < self.buffer.len() {
            return;
        }
        let mut buffer = Vec::with_capacity(self.buffer.len() - self.dead.min(self.buffer.len()) + TIDY_BYTES);
        for entry in &mut self.entries {
            if entry.key_length != NONE {
                let key = entry.key_at as usize..(entry.key_at + entry.key_length) as usize;
                entry.key_at = buffer.len() as u32;
                buffer.extend_from_slice(&self.buffer[key]);
            }
            let mut next = entry.first;
            while let Some(part) = self.parts.get_mut(next as usize) {
                let old = part.at as usize..(part.at + part.length) as usize;
                part.at = buffer.len() as u32;
                buffer.extend_from_slice(&self.buffer[old]);
                next = part.next;
            }
        }
        self.buffer = buffer;
        self.dead = 0;
    }

    /// Entries that changed since the last call, those that are gone left out.
    pub fn take_changed(&mut self) -> Vec<u32> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.retain(|entry| {
            let found = &mut self.entries[*entry as usize];
            std::mem::take(&mut found.is_changed) && !found.gone
        });
        // After a restart it would be shown again.
        for entry in &changed {
            if self.entries[*entry as usize].stored_changed {
                self.touch(*entry);
            }
        }
        changed
    }

    /// Entries that changed since they were taken last.
    pub fn changed(&self) -> impl Iterator<Item = u32> + '_ {
        self.changed.iter().copied().filter(|entry| !self.entries[*entry as usize].gone)
    }

    /// A pane has shown the entry. `before`: the panes that only runs know of.
    pub fn count_firing(&mut self, entry: u32, before: u32) {
        let found = &mut self.entries[entry as usize];
        found.firings = found.firings.max(before) + 1;
        self.touch(entry);
    }

    /// The entry's own window has fired on time.
    pub fn set_fired(&mut self, entry: u32) {
        self.entries[entry as usize].fired = true;
        self.touch(entry);
    }

    /// The first time at which an own window may be due.
    pub fn next_timer(&self) -> Option<i64> {
        self.timers.keys().next().copied()
    }

    /// Whether any entry changed since they were taken last.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Entries whose own windows are due by `time`, in order of that time.
    pub fn take_due(&mut self, time: i64) -> Vec<u32> {
        let later = match time.checked_add(1) {
            Some(after) => self.timers.split_off(&after),
            None => BTreeMap::new(),
        };
        let due = std::mem::replace(&mut self.timers, later);
        let mut found = Vec::new();
        for (time, mut entries) in due {
            entries.sort_unstable();
            entries.dedup();
            entries.retain(|entry| {
                let there = &self.entries[*entry as usize];
                !there.gone && there.due == time
            });
            found.append(&mut entries);
        }
        found
    }

    /// Lets an entry come up again at `time`.
    pub fn set_timer(&mut self, entry: u32, time: i64) {
        self.entries[entry as usize].due = time;
        self.timers.entry(time).or_default().push(entry);
    }

    /// Timers from the entries themselves, after they were read back. A batch waits anew.
    pub fn restart_timers(&mut self, rules: &Rules) {
        self.timers.clear();
        let entries: Vec<u32> = self.all().collect();
        for entry in entries {
            let found = &self.entries[entry as usize];
            match rules.windows {
                Windows::Fixed { .. } => {}
                Windows::Session { .. } if found.fired => self.set_timer(entry, found.end.saturating_add(rules.lateness_ms)),
                Windows::Session { .. } => self.set_timer(entry, found.end),
                Windows::Batch { .. } => self.set_timer(entry, found.due),
            }
        }
    }

    /// Writes what changed since the last call; all of it when that is shorter than what the runs hold.
    pub fn write(&mut self, run: &mut record::Writer, group: u16, slot: Slot, own_windows: bool) -> Option<Section> {
        let stored: u64 = self.sections.iter().map(|place| place.section.length).sum();
        let live = (self.buffer.len() - self.dead.min(self.buffer.len())) as u64;
        let full = !self.cold && (self.sections.len() > 1) && stored > 2 * live + (64 << 10);
        if self.dirty.is_empty() && !full {
            return None;
        }
        run.begin();
        let dirty = std::mem::take(&mut self.dirty);
        if full {
            let all: Vec<u32> = self.all().collect();
            all.iter().for_each(|entry| self.write_entry(run, *entry, true, own_windows));
        }
        for entry in dirty {
            self.entries[entry as usize].is_dirty = false;
            if !full {
                self.write_entry(run, entry, false, own_windows);
            }
            if self.entries[entry as usize].gone {
                // Nobody else can still mean it once its timers and changes are past.
                self.entries[entry as usize].key_length = NONE;
                self.free.push(entry);
            }
        }
        run.end(group, slot, full)
    }

    fn write_entry(&mut self, run: &mut record::Writer, number: u32, full: bool, own_windows: bool) {
        let entry = &self.entries[number as usize];
        let key = self.key_of(number).0;
        if entry.gone {
            if entry.stored && !full {
                run.push(&Record::dropped(key, entry.stored_start), std::iter::empty());
            }
            return;
        }
        let moved = own_windows && entry.stored && entry.stored_start != entry.start;
        if moved && !full {
            run.push(&Record::dropped(key, entry.stored_start), std::iter::empty());
        }
        let adds = !full && !entry.cleared && !moved && (entry.kept > 0 || self.cold);
        let skip = if adds { entry.kept as usize } else { 0 };
        let record = Record {
            kind: if adds { record::ADD } else { record::PUT },
            key,
            start: entry.start,
            end: entry.end,
            rows: entry.rows,
            firings: entry.firings,
            fired: entry.fired,
            changed: entry.is_changed,
            due: entry.due,
            parts: entry.count - skip as u32,
        };
        run.push(&record, self.parts_of(number).skip(skip));
        let entry = &mut self.entries[number as usize];
        (entry.kept, entry.stored, entry.stored_start, entry.cleared) = (entry.count, true, entry.start, false);
        entry.stored_changed = entry.is_changed;
    }

    /// Puts sections back into memory, older ones first.
    pub fn load(&mut self, sections: &[impl AsRef<[u8]>], own_windows: bool) -> Result<()> {
        let places = std::mem::take(&mut self.sections);
        *self = Table { sections: places, ..Table::default() };
        for section in sections {
            let mut reader = record::Reader::new(section.as_ref());
            while let Some((record, parts)) = reader.next()? {
                let key = (record.key, super::hash(record.key));
                let found = match own_windows {
                    false => self.find(key),
                    true => {
                        let same =
                            |entry: &&u32| self.key_of(**entry) == key && self.entries[**entry as usize].start == record.start;
                        self.index.iter_hash(key.1).find(same).copied()
                    }
                };
                if record.kind == record::DROP {
                    if let Some(entry) = found {
                        self.remove(entry);
                    }
                    continue;
                }
                let entry = found.unwrap_or_else(|| self.add(key, record.start, record.end, record.due));
                if record.kind == record::PUT {
                    self.clear(entry);
                }
                for part in parts {
                    self.put_part(entry, part?);
                }
                let there = &mut self.entries[entry as usize];
                there.is_changed = record.changed;
                (there.end, there.rows, there.firings, there.fired, there.due) =
                    (record.end, record.rows, record.firings, record.fired, record.due);
            }
        }
        // All of it is in runs as it is.
        self.dirty.clear();
        self.free.clear();
        self.changed = self.all().filter(|entry| self.entries[*entry as usize].is_changed).collect();
        for (number, entry) in self.entries.iter_mut().enumerate() {
            (entry.kept, entry.stored, entry.stored_start) = (entry.count, true, entry.start);
            (entry.is_dirty, entry.cleared, entry.stored_changed) = (false, false, entry.is_changed);
            if entry.gone {
                entry.key_length = NONE;
                self.free.push(number as u32);
            }
        }
        Ok(())
    }

    /// Rewrites all accumulators.
    pub fn rewrite(&mut self, migrate: &mut dyn FnMut(&BinaryArray) -> Result<BinaryArray>) -> Result<()> {
        let entries: Vec<u32> = self.all().collect();
        for chunk in entries.chunks(1024) {
            let mut old = BinaryBuilder::new();
            let mut counts = Vec::new();
            for entry in chunk {
                self.parts_of(*entry).for_each(|part| old.append_value(part));
                counts.push(self.entries[*entry as usize].count);
            }
            let old = old.finish();
            if old.is_empty() {
                continue;
            }
            let new = migrate(&old)?;
            if new.len() != old.len() {
                return Err(Error::bug("a migration gave another number of accumulators than it got"));
            }
            let mut at = 0;
            for (entry, count) in chunk.iter().zip(counts) {
                let first = self.entries[*entry as usize].first;
                self.drop_parts(first);
                let found = &mut self.entries[*entry as usize];
                (found.first, found.last, found.count, found.length, found.kept) = (NONE, NONE, 0, 0, 0);
                (at..at + count as usize).for_each(|i| self.put_part(*entry, new.value(i)));
                at += count as usize;
                self.touch(*entry);
            }
        }
        self.tidy();
        Ok(())
    }
}

fn has_room(used: usize, more: usize) -> bool {
    used.saturating_add(more) <= BUFFER_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_refused_before_its_places_need_more_than_32_bits() {
        assert!(has_room(0, BUFFER_MAX) && has_room(BUFFER_MAX, 0));
        assert!(!has_room(BUFFER_MAX, 1) && !has_room(1, usize::MAX));
        // As much again by merging, and still a number of 32 bits that isn't `NONE`.
        assert!(2 * BUFFER_MAX < NONE as usize);
    }
}
