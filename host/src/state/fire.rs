//! Which windows are due, and what they hold when they fire.
//!
//! Fixed windows fire in the order of their ends within a key group; each puts the slices that it covers together by key.
//! Keys with windows of their own (sessions, batches) fire by their timers.

use std::collections::BTreeSet;

use arrow_array::builder::BinaryBuilder;
use hashbrown::HashTable;

use super::table::{Key, Table};
use super::{OWN, Place, State};
use crate::error::Result;
use crate::window::{Slot, Windows};

/// Why a window fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Before the watermark passed its end.
    Early = 0,
    /// When it did.
    OnTime = 1,
    /// Afterwards, for messages within the allowed lateness.
    Late = 2,
}

/// What is to fire.
#[derive(Clone, Copy, Debug)]
pub struct Firing {
    /// Windows up to here are due.
    pub watermark: i64,
    /// The processing time.
    pub now_ms: i64,
    /// Windows that are not due and have changed fire early.
    pub early: bool,
}

/// One firing of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pane {
    /// Where the window begins.
    pub start: i64,
    /// Where it ends.
    pub end: i64,
    /// How often it has fired before.
    pub firing: u32,
    /// Why.
    pub timing: Timing,
}

/// Panes that fire: their keys, and lists of fragments.
#[derive(Default)]
pub struct Panes {
    /// One for each pane.
    pub keys: BinaryBuilder,
    /// One for each pane.
    pub panes: Vec<Pane>,
    /// Fragments of all panes.
    pub parts: BinaryBuilder,
    /// Where each pane's list ends.
    pub ends: Vec<u32>,
    /// Bytes so far.
    pub bytes: usize,
    count: u32,
}

impl Panes {
    fn push<'p>(&mut self, key: Option<&[u8]>, pane: Pane, parts: impl Iterator<Item = &'p [u8]>) {
        self.keys.append_option(key);
        self.bytes += key.map_or(0, <[u8]>::len);
        for part in parts {
            self.parts.append_value(part);
            self.bytes += part.len();
            self.count += 1;
        }
        self.ends.push(self.count);
        self.panes.push(pane);
    }

    /// Whether it is time to hand them on.
    fn is_full(&self) -> bool {
        self.panes.len() >= 4096 || self.bytes >= 4 << 20
    }
}

/// Takes panes.
pub type Take<'a> = &'a mut dyn FnMut(Panes) -> Result<()>;

/// Tables put back from runs for one firing: those of a key group that are cold.
pub type Warmed = Vec<(Slot, Table)>;

impl State {
    /// What has to be read from runs before `fire` of a key group: sections of cold tables, in order.
    pub fn wanted(&self, group: u16, firing: &Firing) -> Vec<(Slot, Vec<Place>)> {
        if self.rules.own_windows() {
            return Vec::new();
        }
        let ends = self.due(group, firing);
        let fires = |slot: &Slot| {
            let last = self.rules.windows.last_end(slot.start);
            ends.iter().any(|(end, ..)| slot.from <= *end && *end <= last)
        };
        let tables = self.groups[usize::from(group)].iter();
        tables
            .filter(|(slot, table)| table.is_cold() && fires(slot))
            .map(|(slot, table)| (*slot, table.sections().to_vec()))
            .collect()
    }

    /// A table from sections, for [`State::fire`].
    pub fn warmed(&self, slot: Slot, sections: &[impl AsRef<[u8]>]) -> Result<(Slot, Table)> {
        let mut table = Table::default();
        table.load(sections, false)?;
        Ok((slot, table))
    }

    /// Windows that fire: their ends, why, and whether only keys that changed do. Ascending.
    fn due(&self, group: u16, firing: &Firing) -> BTreeSet<(i64, u8, bool)> {
        let windows = &self.rules.windows;
        let mut ends = BTreeSet::new();
        for (slot, table) in &self.groups[usize::from(group)] {
            let last = windows.last_end(slot.start);
            let mut walk = |from: i64, to: i64, timing: Timing| {
                let mut end = from;
                while end <= to {
                    ends.insert((end, timing as u8, timing != Timing::OnTime));
                    match windows.following(end) {
                        next if next > end => end = next,
                        _ => break,
                    }
                }
            };
            let changed = table.has_changed() && self.rules.refires();
            // A window that closes now has no later chance; one that had closed before can't have changed.
            let lateness = self.rules.lateness_ms;
            let closes = slot.from.saturating_add(lateness) <= firing.watermark;
            let open = windows.next_end(self.watermark.saturating_sub(lateness));
            if changed && self.rules.lateness_ms > 0 && (!self.rules.early || firing.early || closes) {
                walk(slot.from.max(open), last.min(self.watermark), Timing::Late);
            }
            walk(slot.from.max(windows.next_end(self.watermark)), last.min(firing.watermark), Timing::OnTime);
            if changed && firing.early {
                walk(slot.from.max(windows.next_end(firing.watermark)), last, Timing::Early);
            }
        }
        ends
    }

    /// Fires what is due in a key group. `warmed` holds what [`State::wanted`] asked for.
    pub fn fire(&mut self, group: u16, firing: &Firing, warmed: &Warmed, take: Take<'_>) -> Result<()> {
        let mut panes = Panes::default();
        match self.rules.own_windows() {
            true => self.fire_own(group, firing, &mut panes, take)?,
            false => {
                for (end, timing, changed_only) in self.due(group, firing) {
                    let timing = [Timing::Early, Timing::OnTime, Timing::Late][usize::from(timing)];
                    self.fire_fixed(group, end, timing, changed_only, warmed, &mut panes, take)?;
                }
                self.close(group, firing);
            }
        }
        if !panes.panes.is_empty() {
            take(panes)?;
        }
        Ok(())
    }

    /// The watermark has been fired for.
    pub fn moved(&mut self, firing: &Firing) {
        self.watermark = self.watermark.max(firing.watermark);
    }

    #[allow(clippy::too_many_arguments)]
    fn fire_fixed(
        &mut self,
        group: u16,
        end: i64,
        timing: Timing,
        changed_only: bool,
        warmed: &Warmed,
        panes: &mut Panes,
        take: Take<'_>,
    ) -> Result<()> {
        let rules = self.rules;
        let start = rules.windows.start_of(end);
        let within = |slot: &Slot| slot.from <= end && start <= slot.start && slot.end <= end;
        let tables = &mut self.groups[usize::from(group)];
        let mut changed: HashTable<(Slot, u32)> = HashTable::new();
        if changed_only {
            for (slot, table) in tables.iter().filter(|(slot, _)| within(slot)) {
                for entry in table.changed() {
                    let key = table.key_of(entry);
                    let same = |(slot, entry): &(Slot, u32)| tables[slot].key_of(*entry) == key;
                    if changed.find(key.1, same).is_none() {
                        changed.insert_unique(key.1, (*slot, entry), |(slot, entry)| tables[slot].key_of(*entry).1);
                    }
                }
            }
        }
        // The fragments of a window lie in the tables in memory and, of cold ones, in what was read back.
        let cold = warmed.iter().filter(|(slot, _)| within(slot)).map(|(_, table)| table);
        let sources: Vec<&Table> = cold.chain(tables.iter().filter(|(slot, _)| within(slot)).map(|(_, table)| table)).collect();
        let wanted =
            |key: Key<'_>| !changed_only || changed.find(key.1, |(slot, entry)| tables[slot].key_of(*entry) == key).is_some();
        let mut fired: Vec<(Vec<u8>, bool, u64)> = Vec::new();
        let mut seen: HashTable<(u32, u32)> = HashTable::new();
        let mut lists: Vec<Vec<(u32, u32)>> = Vec::new();
        let mut order: Vec<u32> = Vec::new();
        let single = sources.len() == 1;
        for (number, table) in sources.iter().enumerate() {
            for entry in table.all().filter(|entry| wanted(table.key_of(*entry))) {
                if single {
                    order.push(entry);
                    continue;
                }
                let key = table.key_of(entry);
                let of = |list: u32| {
                    let (table, entry) = lists[list as usize][0];
                    sources[table as usize].key_of(entry)
                };
                let found = seen.find(key.1, |(list, _)| of(*list) == key).copied();
                match found {
                    Some((list, _)) => lists[list as usize].push((number as u32, entry)),
                    None => {
                        let list = lists.len() as u32;
                        lists.push(vec![(number as u32, entry)]);
                        let hash_of = |(list, _): &(u32, u32)| {
                            let (table, entry) = lists[*list as usize][0];
                            sources[table as usize].key_of(entry).1
                        };
                        seen.insert_unique(key.1, (list, 0), hash_of);
                    }
                }
            }
        }
        let first = Slot { from: end, start: end.saturating_sub(rules.windows.slice_ms()), end };
        let mut show = |members: &[(u32, u32)]| -> Result<()> {
            let key = sources[members[0].0 as usize].key_of(members[0].1);
            let mut parts = members.iter().flat_map(|(table, entry)| sources[*table as usize].parts_of(*entry)).peekable();
            if parts.peek().is_none() {
                return Ok(());
            }
            let firing = match rules.refires() {
                false => 0,
                true => {
                    let count = |table: Option<&Table>| Some(table?.entry(table?.find(key)?).firings);
                    let before = warmed.iter().find(|(slot, _)| *slot == first).map(|(_, table)| table);
                    fired.push((key.0.unwrap_or_default().to_vec(), key.0.is_some(), key.1));
                    count(tables.get(&first)).filter(|n| *n > 0).or_else(|| count(before)).unwrap_or(0)
                }
            };
            panes.push(key.0, Pane { start, end, firing, timing }, parts);
            if panes.is_full() {
                take(std::mem::take(panes))?;
            }
            Ok(())
        };
        for entry in &order {
            show(&[(0, *entry)])?;
        }
        for members in &lists {
            show(members)?;
        }
        for (key, present, hash) in fired {
            let key = (present.then_some(&key[..]), hash);
            let known = warmed.iter().find(|(slot, _)| *slot == first).and_then(|(_, table)| {
                let entry = table.find(key)?;
                Some(table.entry(entry).firings)
            });
            self.count_firing(group, first, key, known.unwrap_or(0));
        }
        Ok(())
    }

    /// Notes that a window has fired, in the entry of its own slice.
    fn count_firing(&mut self, group: u16, slot: Slot, key: Key<'_>, before: u32) {
        let table = self.groups[usize::from(group)].entry(slot).or_default();
        let bytes = table.bytes();
        let entry = table.find_or_add(key, slot);
        table.count_firing(entry, before);
        if self.rules.discarding {
            table.clear(entry);
        }
        self.bytes = self.bytes + table.bytes() - bytes;
    }

    /// Drops slices that are in no window that could still change.
    fn close(&mut self, group: u16, firing: &Firing) {
        let rules = self.rules;
        let late = !rules.early || firing.early;
        let before = self.watermark;
        let mut freed = 0;
        self.groups[usize::from(group)].retain(|slot, table| {
            let open = rules.closes(*slot) > firing.watermark;
            if !open {
                freed += table.bytes();
            } else if late || (before < slot.from && slot.from <= firing.watermark) {
                // Shown by now: by this pass, or with its window on time.
                table.take_changed();
            }
            open
        });
        self.bytes -= freed;
    }

    /// Fires keys that have windows of their own.
    fn fire_own(&mut self, group: u16, firing: &Firing, panes: &mut Panes, take: Take<'_>) -> Result<()> {
        let rules = self.rules;
        let Some(table) = self.groups[usize::from(group)].get_mut(&OWN) else { return Ok(()) };
        let before = table.bytes();
        let mut show = |table: &mut Table, entry: u32, timing: Timing| -> Result<()> {
            let found = table.entry(entry);
            let pane = Pane { start: found.start, end: found.end, firing: found.firings, timing };
            if table.parts_of(entry).next().is_some() {
                panes.push(table.key_of(entry).0, pane, table.parts_of(entry));
                table.count_firing(entry, 0);
                if rules.discarding {
                    table.clear(entry);
                }
            }
            if panes.is_full() {
                take(std::mem::take(panes))?;
            }
            Ok(())
        };
        match rules.windows {
            Windows::Batch { rows, .. } => {
                let changed = table.take_changed();
                let full: Vec<u32> = changed.iter().copied().filter(|entry| table.entry(*entry).rows >= rows).collect();
                for entry in full {
                    show(table, entry, Timing::OnTime)?;
                    table.remove(entry);
                }
                // At the end of all input what waits is shown as it is.
                let time = if firing.watermark == crate::window::END { crate::window::END } else { firing.now_ms };
                for entry in table.take_due(time) {
                    show(table, entry, Timing::OnTime)?;
                    table.remove(entry);
                }
            }
            _ => {
                if rules.refires() && (!rules.early || firing.early) {
                    for entry in table.take_changed() {
                        let (end, fired) = (table.entry(entry).end, table.entry(entry).fired);
                        match (fired, end <= firing.watermark) {
                            (true, _) => show(table, entry, Timing::Late)?,
                            (false, false) if firing.early => show(table, entry, Timing::Early)?,
                            _ => {}
                        }
                    }
                }
                for entry in table.take_due(firing.watermark) {
                    if !table.entry(entry).fired {
                        show(table, entry, Timing::OnTime)?;
                        table.set_fired(entry);
                    } else if table.entry(entry).is_changed {
                        // It closes now and has no later chance.
                        show(table, entry, Timing::Late)?;
                    }
                    let closes = table.entry(entry).end.saturating_add(rules.lateness_ms);
                    match closes <= firing.watermark {
                        true => table.remove(entry),
                        false => table.set_timer(entry, closes),
                    }
                }
            }
        }
        self.bytes = self.bytes + table.bytes() - before;
        Ok(())
    }

    /// Key groups in which something may be due.
    pub fn due_groups(&self, firing: &Firing) -> Vec<u16> {
        let some = |group: &u16| {
            let tables = &self.groups[usize::from(*group)];
            match self.rules.own_windows() {
                true => tables.get(&OWN).is_some_and(|table| {
                    let time = if matches!(self.rules.windows, Windows::Batch { .. }) { firing.now_ms } else { firing.watermark };
                    table.has_changed() || table.next_timer().is_some_and(|due| due <= time.max(firing.watermark))
                }),
                false => {
                    let refires = self.rules.refires() && (!self.rules.early || firing.early);
                    tables.iter().any(|(slot, table)| {
                        let due = slot.from.max(self.rules.windows.next_end(self.watermark)) <= firing.watermark;
                        let closes = slot.from.saturating_add(self.rules.lateness_ms) <= firing.watermark;
                        due || self.rules.closes(*slot) <= firing.watermark || ((refires || closes) && table.has_changed())
                    })
                }
            }
        };
        (0..super::KEY_GROUPS).filter(some).collect()
    }
}
