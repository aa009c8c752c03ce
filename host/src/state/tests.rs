//! The state against a naive computation over all events at once: for every kind of window, with disorder and lateness,
//! with and without early panes, while tables are written, evicted, read back and handed to other workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::watermark::{Clocks, Progress};

/// A run of the test's own store.
type Runs = BTreeMap<Arc<str>, Vec<u8>>;

/// Lists of numbers: merging keeps everything, so that what is lost or doubled shows.
fn merge_lists(parts: &BinaryArray, ends: &[u32]) -> Result<BinaryArray> {
    let mut merged = BinaryBuilder::new();
    let mut start = 0;
    for end in ends {
        merged.append_value((start..*end as usize).flat_map(|i| parts.value(i)).copied().collect::<Vec<u8>>());
        start = *end as usize;
    }
    Ok(merged.finish())
}

#[derive(Clone, Debug)]
struct Event {
    partition: u32,
    key: Option<Vec<u8>>,
    time: i64,
    id: u32,
}

struct Shown {
    pane: Pane,
    key: Option<Vec<u8>>,
    ids: Vec<u32>,
}

/// Some workers' state, driven as the running pipeline drives it.
struct World {
    rules: Rules,
    states: Vec<State>,
    clocks: Clocks,
    runs: Runs,
    shown: Vec<Shown>,
    late: Vec<u32>,
    now: i64,
}

impl World {
    fn new(rules: Rules, workers: usize, partitions: u32, lag: i64) -> World {
        let mut clocks = Clocks::new(lag, BTreeMap::new());
        let fact = |number| Progress { number, name: format!("{number}").into(), caught_up_ms: None, ended: false };
        clocks.progress(&(0..partitions).map(fact).collect::<Vec<_>>(), false);
        let states = (0..workers).map(|_| State::new(rules, BEGINNING)).collect();
        World { rules, states, clocks, runs: Runs::new(), shown: Vec::new(), late: Vec::new(), now: 0 }
    }

    /// Events of one batch, each a fragment of its own unless key and slot agree.
    fn feed(&mut self, events: &[Event]) {
        let mut fragments = Gathered::new();
        for event in events {
            let clock = self.clocks.of(event.partition);
            match self.rules.windows.slot(event.time, clock, self.rules.lateness_ms) {
                None => self.late.push(event.id),
                Some(slot) => {
                    let group = key_group(hash(event.key.as_deref()));
                    fragments.entry((group, slot, event.key.clone())).or_default().push(event.id);
                }
            }
            self.clocks.observe(event.partition, event.time);
        }
        let workers = self.states.len();
        for (worker, state) in self.states.iter_mut().enumerate() {
            let (mut keys, mut parts) = (BinaryBuilder::new(), BinaryBuilder::new());
            let (mut hashes, mut slots, mut rows) = (Vec::new(), Vec::new(), Vec::new());
            for ((group, slot, key), ids) in &fragments {
                if owner(*group, workers as u32) as usize == worker {
                    keys.append_option(key.as_deref());
                    hashes.push(hash(key.as_deref()));
                    slots.push(*slot);
                    rows.push(ids.len() as u32);
                    parts.append_value(ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>());
                }
            }
            let fragments = Fragments { keys: keys.finish(), hashes, slots, rows, parts: parts.finish() };
            state.add(&fragments, self.now, &mut merge_lists).unwrap();
        }
    }

    fn advance(&mut self, early: bool) {
        let firing = Firing { watermark: self.clocks.watermark(), now_ms: self.now, early };
        for state in &mut self.states {
            for group in state.due_groups(&firing) {
                let warmed = state.wanted(group, &firing).into_iter().map(|(slot, places)| {
                    let sections: Vec<Vec<u8>> = places.iter().map(|place| section(&self.runs, place)).collect();
                    state.warmed(slot, &sections).unwrap()
                });
                let warmed: Vec<_> = warmed.collect();
                let shown = &mut self.shown;
                let mut take = |mut panes: Panes| {
                    let (keys, parts) = (panes.keys.finish(), panes.parts.finish());
                    let merged = merge_lists(&parts, &panes.ends)?;
                    for (i, pane) in panes.panes.into_iter().enumerate() {
                        let ids = merged.value(i).chunks_exact(4).map(|id| u32::from_le_bytes(id.try_into().unwrap()));
                        let key = keys.is_valid(i).then(|| keys.value(i).to_vec());
                        shown.push(Shown { pane, key, ids: ids.collect() });
                    }
                    Ok(())
                };
                state.fire(group, &firing, &warmed, &mut take).unwrap();
            }
            state.moved(&firing);
        }
    }

    fn checkpoint(&mut self, epoch: u32, evict: Option<usize>) {
        for (worker, state) in self.states.iter_mut().enumerate() {
            let name: Arc<str> = format!("{epoch}-{worker}").into();
            if let Some(run) = state.checkpoint(&name) {
                self.runs.insert(name, run);
            }
            if let Some(most) = evict {
                state.evict(most);
            }
        }
        let live: BTreeSet<Arc<str>> = self.states.iter().flat_map(State::live_runs).collect();
        self.runs.retain(|name, _| live.contains(name));
    }

    /// Starts again from the runs with another number of workers.
    fn restart(&mut self, workers: usize, room: usize) {
        let watermark = self.states[0].watermark();
        self.states = (0..workers).map(|_| State::new(self.rules, watermark)).collect();
        let mut runs: Vec<_> = self.runs.keys().cloned().collect();
        runs.sort_by_key(|name| name.split('-').map(|n| n.parse::<u32>().unwrap()).collect::<Vec<_>>());
        for (worker, state) in self.states.iter_mut().enumerate() {
            for name in &runs {
                let owned = |group| owner(group, workers as u32) as usize == worker;
                state.adopt(name, index_of_tail(&self.runs[name]).unwrap(), owned).unwrap();
            }
            for (group, slot, places) in state.to_warm(room) {
                let sections: Vec<Vec<u8>> = places.iter().map(|place| section(&self.runs, place)).collect();
                state.warm(group, slot, &sections).unwrap();
            }
        }
    }
}

fn section(runs: &Runs, place: &Place) -> Vec<u8> {
    let (start, end) = (place.section.offset as usize, (place.section.offset + place.section.length) as usize);
    let bytes = runs[&place.run][start..end].to_vec();
    place.section.check(&bytes).unwrap();
    bytes
}

/// A key's window: the key, where the window begins, where it ends.
type Spot = (Option<Vec<u8>>, i64, i64);
type Content = BTreeMap<Spot, BTreeSet<u32>>;
/// Ids by key group, slot and key.
type Gathered = BTreeMap<(u16, Slot, Option<Vec<u8>>), Vec<u32>>;

/// What windows hold by trying all of them on all events that are not late.
fn naive(events: &[Event], late: &BTreeSet<u32>, windows: Windows, clocks_at: &BTreeMap<u32, i64>, lateness: i64) -> Content {
    let mut content = Content::new();
    let taken = events.iter().filter(|event| !late.contains(&event.id));
    match windows {
        Windows::Fixed { size_ms, every_ms, offset_ms } => {
            for event in taken {
                let mut start = (event.time - offset_ms).div_euclid(every_ms) * every_ms + offset_ms;
                while start + size_ms > event.time {
                    if start + size_ms + lateness > clocks_at[&event.id] {
                        content.entry((event.key.clone(), start, start + size_ms)).or_default().insert(event.id);
                    }
                    start -= every_ms;
                }
            }
        }
        Windows::Session { gap_ms } => {
            let mut by_key: BTreeMap<_, Vec<&Event>> = BTreeMap::new();
            taken.for_each(|event| by_key.entry(event.key.clone()).or_default().push(event));
            for (key, mut events) in by_key {
                events.sort_by_key(|event| event.time);
                let mut open: Option<(i64, i64, BTreeSet<u32>)> = None;
                for event in events {
                    match &mut open {
                        Some((_, end, ids)) if event.time < *end => {
                            *end = event.time + gap_ms;
                            ids.insert(event.id);
                        }
                        _ => {
                            if let Some((start, end, ids)) = open.take() {
                                content.insert((key.clone(), start, end), ids);
                            }
                            open = Some((event.time, event.time + gap_ms, BTreeSet::from([event.id])));
                        }
                    }
                }
                if let Some((start, end, ids)) = open {
                    content.insert((key.clone(), start, end), ids);
                }
            }
        }
        Windows::Batch { .. } => unreachable!("batches depend on when things come"),
    }
    content
}

fn events(rng: &mut StdRng, partitions: u32, count: u32) -> Vec<Event> {
    let mut heads = vec![0i64; partitions as usize];
    (0..count)
        .map(|id| {
            let partition = rng.random_range(0..partitions);
            let head = &mut heads[partition as usize];
            *head += rng.random_range(0..20);
            let back = if rng.random_bool(0.1) { rng.random_range(0..400) } else { rng.random_range(0..8) };
            let key = rng.random_bool(0.95).then(|| format!("k{}", rng.random_range(0..12)).into_bytes());
            Event { partition, key, time: *head - back - 300, id }
        })
        .collect()
}

fn play(seed: u64) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let windows = match rng.random_range(0..4) {
        0 => Windows::Fixed { size_ms: 100, every_ms: 100, offset_ms: rng.random_range(-30..30) },
        1 => Windows::Fixed { size_ms: 150, every_ms: 60, offset_ms: rng.random_range(-30..30) },
        2 => Windows::Fixed { size_ms: 120, every_ms: 40, offset_ms: 0 },
        _ => Windows::Session { gap_ms: rng.random_range(5..60) },
    };
    let overlap = matches!(windows, Windows::Fixed { size_ms, every_ms, .. } if size_ms != every_ms);
    let early = rng.random_bool(0.3);
    let discarding = early && !overlap && rng.random_bool(0.5);
    let lateness_ms = if rng.random_bool(0.4) { rng.random_range(1..150) } else { 0 };
    let rules = Rules { windows, lateness_ms, early, discarding };
    let (partitions, count) = (rng.random_range(1..4), rng.random_range(50..600));
    let mut world = World::new(rules, rng.random_range(1..4), partitions, rng.random_range(0..40));
    let events = events(rng, partitions, count);
    let mut clocks_at = BTreeMap::new();
    let (mut at, mut epoch) = (0, 0);
    while at < events.len() {
        let length = rng.random_range(1..30).min(events.len() - at);
        // The clocks that each event meets, for the naive computation.
        let mut own: BTreeMap<u32, i64> = (0..partitions).map(|p| (p, world.clocks.of(p))).collect();
        let lag = world.clocks.lag_ms();
        for event in &events[at..at + length] {
            clocks_at.insert(event.id, own[&event.partition]);
            let clock = own.get_mut(&event.partition).unwrap();
            *clock = (*clock).max(event.time - lag);
        }
        world.feed(&events[at..at + length]);
        at += length;
        world.now += 10;
        if rng.random_bool(0.7) {
            world.advance(early && rng.random_bool(0.4));
        }
        if rng.random_bool(0.3) {
            epoch += 1;
            let evict = rng.random_bool(0.4).then(|| rng.random_range(0..4_000));
            world.checkpoint(epoch, evict);
            if rng.random_bool(0.3) {
                let (workers, room) = (rng.random_range(1..4), if rng.random_bool(0.5) { 0 } else { 1 << 20 });
                world.restart(workers, room);
            }
        }
    }
    let end: Vec<Progress> = (0..partitions)
        .map(|number| Progress { number, name: format!("{number}").into(), caught_up_ms: None, ended: true })
        .collect();
    world.clocks.progress(&end, true);
    world.advance(early);

    let late: BTreeSet<u32> = world.late.iter().copied().collect();
    let mut expected = naive(&events, &late, windows, &clocks_at, lateness_ms);
    expected.retain(|_, ids| !ids.is_empty());
    let mut content = Content::new();
    let mut firings: BTreeMap<Spot, Vec<u32>> = BTreeMap::new();
    for Shown { pane, key, ids } in &world.shown {
        let set: BTreeSet<u32> = ids.iter().copied().collect();
        assert_eq!(set.len(), ids.len(), "seed {seed}: a message twice in a pane {pane:?} {ids:?} {rules:?}");
        let place = (key.clone(), pane.start, pane.end);
        let fixed = matches!(windows, Windows::Fixed { .. });
        if !fixed {
            // A session that grew has shown less before, under another window.
            content.retain(|(k, start, end), _| !(k == key && *start < pane.end && pane.start < *end && !discarding));
        }
        if rules.discarding {
            let known = content.entry(place.clone()).or_default();
            assert!(known.is_disjoint(&set), "seed {seed}: a message in two discarding panes");
            known.extend(set);
        } else {
            content.insert(place.clone(), set);
        }
        firings.entry(place).or_default().push(pane.firing);
    }
    if discarding && matches!(windows, Windows::Session { .. }) {
        // The windows of a session's panes grow with it; all together show each message once.
        let all: Vec<u32> = world.shown.iter().flat_map(|shown| shown.ids.clone()).collect();
        let wanted: BTreeSet<u32> = expected.values().flatten().copied().collect();
        assert_eq!(all.len(), wanted.len(), "seed {seed}");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), wanted, "seed {seed}");
        return;
    }
    let places: BTreeSet<_> = content.keys().chain(expected.keys()).collect();
    for place in places {
        assert_eq!(content.get(place), expected.get(place), "seed {seed}: {place:?} {rules:?}");
    }
    if matches!(windows, Windows::Fixed { .. }) {
        for (place, numbers) in firings {
            assert_eq!(numbers, (0..numbers.len() as u32).collect::<Vec<_>>(), "seed {seed}: panes of {place:?} are counted");
            assert!(numbers.len() == 1 || rules.refires(), "seed {seed}: a window fired twice");
        }
    }
    assert!(world.states.iter().all(|state| state.entries() == 0), "seed {seed}: windows that have closed take no room");
}

#[test]
fn windows_hold_what_a_computation_over_all_events_finds() {
    let seeds = match std::env::var("WEIR_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..1_500,
    };
    for seed in seeds {
        play(seed);
    }
}

#[test]
fn a_batch_fires_once_it_has_enough_or_has_waited_long_enough() {
    let rules = Rules { windows: Windows::Batch { rows: 3, age_ms: 50 }, lateness_ms: 0, early: false, discarding: false };
    let mut world = World::new(rules, 2, 1, 0);
    let event = |key: &str, id: u32| Event { partition: 0, key: Some(key.into()), time: i64::from(id), id };
    world.feed(&[event("a", 0), event("a", 1), event("b", 2)]);
    world.advance(false);
    assert!(world.shown.is_empty());
    world.feed(&[event("a", 3)]);
    world.advance(false);
    assert_eq!(world.shown.pop().unwrap().ids, [0, 1, 3]);
    world.checkpoint(1, None);
    world.restart(1, 0);
    world.now = 49;
    world.advance(false);
    assert!(world.shown.is_empty());
    world.now = 50;
    world.advance(false);
    let shown = world.shown.pop().unwrap();
    assert_eq!((shown.ids, shown.pane.start, shown.pane.end), (vec![2], 2, 3));
    assert_eq!(world.states[0].entries(), 0);
}

#[test]
fn a_window_is_written_once_however_many_checkpoints_it_lives_through() {
    let windows = Windows::Fixed { size_ms: 1_000_000, every_ms: 1_000_000, offset_ms: 0 };
    let rules = Rules { windows, lateness_ms: 0, early: false, discarding: false };
    let mut world = World::new(rules, 1, 1, 0);
    let mut written = 0;
    for epoch in 0..200u32 {
        let events: Vec<Event> = (0..100)
            .map(|n| Event {
                partition: 0,
                key: Some(format!("key{n}").into_bytes()),
                time: i64::from(epoch),
                id: epoch * 100 + n,
            })
            .collect();
        world.feed(&events);
        let before: usize = world.runs.values().map(Vec::len).sum();
        world.checkpoint(epoch, Some(0));
        written += world.runs.values().map(Vec::len).sum::<usize>() - before;
    }
    // 20,000 fragments of 4 bytes with their keys: each once.
    assert!(written < 20_000 * 60, "{written} bytes");
    assert!(world.states[0].bytes() < 1 << 20, "what is in runs is not in memory");
    world.clocks.progress(&[Progress { number: 0, name: "0".into(), caught_up_ms: None, ended: true }], true);
    world.advance(false);
    assert_eq!(world.shown.len(), 100);
    assert!(world.shown.iter().all(|shown| shown.ids.len() == 200));
    world.checkpoint(1_000, None);
    assert!(world.runs.is_empty(), "runs of closed windows are not needed any more");
}
