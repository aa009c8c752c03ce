//! What a subscription has delivered and is not done with: which messages are new, by which ack id each can be acknowledged
//! now, whose leases run out, and which ids have to be remembered. Pure: no I/O, time comes in. Shared by all workers, since a
//! message may come again on any stream.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_128;

/// A message's id, as 128 bits of a hash: two of a million million messages share one with a chance of 10^-15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub u64, pub u64);

impl Id {
    /// The id of a message.
    pub fn of(message_id: &str) -> Id {
        let hash = xxh3_128(message_id.as_bytes());
        Id((hash >> 64) as u64, hash as u64)
    }
}

impl std::hash::Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.1);
    }
}

/// Ids are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// No delivery can be acknowledged: none came in this life, or its lease has run out.
const NONE: u32 = u32::MAX;
/// In no committed group yet.
const OPEN: u32 = u32::MAX;

/// What is known of a message.
#[derive(Clone, Copy)]
struct Entry {
    /// The newest delivery, and its row there.
    delivery: u32,
    row: u32,
    /// The group that was committed with it.
    group: u32,
    /// Its acknowledgement was confirmed.
    confirmed: bool,
}

/// Ack ids of messages, each of one delivery: what a request is made of.
#[derive(Debug, Default)]
pub struct Acks {
    of: Vec<(Id, u32)>,
    text: String,
    ends: Vec<usize>,
}

/// More would make a request longer than the 512 KiB that the service takes
/// (<https://cloud.google.com/pubsub/quotas#resource_limits>).
const ACKS_MAX: usize = 2_000;
const ACK_BYTES_MAX: usize = 400 << 10;

impl Acks {
    fn push(&mut self, id: Id, delivery: u32, ack_id: &str) {
        self.of.push((id, delivery));
        self.text.push_str(ack_id);
        self.ends.push(self.text.len());
    }

    fn full(&self) -> bool {
        self.of.len() >= ACKS_MAX || self.text.len() >= ACK_BYTES_MAX
    }

    fn ack_id(&self, at: usize) -> &str {
        &self.text[if at == 0 { 0 } else { self.ends[at - 1] }..self.ends[at]]
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The ack ids.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.of.len()).map(|at| self.ack_id(at))
    }

    /// Splits by what each ack id comes to.
    pub fn split(self, mut passes: impl FnMut(&str) -> bool) -> (Acks, Acks) {
        let (mut yes, mut no) = (Acks::default(), Acks::default());
        for (at, (id, delivery)) in self.of.iter().enumerate() {
            let ack_id = self.ack_id(at);
            if passes(ack_id) { &mut yes } else { &mut no }.push(*id, *delivery, ack_id);
        }
        (yes, no)
    }
}

/// Adds to the last of the requests, or begins another.
fn add(requests: &mut Vec<Acks>, id: Id, delivery: u32, ack_id: &str) {
    if requests.last().is_none_or(Acks::full) {
        requests.push(Acks::default());
    }
    if let Some(last) = requests.last_mut() {
        last.push(id, delivery, ack_id);
    }
}

/// The messages of one answer: their ack ids stand together, so that there is no allocation for each.
struct Delivery {
    acks: Acks,
    sizes: Vec<u32>,
    /// Rows that can still be acknowledged.
    live: u32,
    /// When the lease runs out, in ms.
    due_ms: i64,
}

/// Messages that one worker handed out between two barriers.
struct Group {
    file: Option<String>,
    worker: u32,
    ids: Vec<Id>,
    /// Whose acknowledgement is not confirmed.
    unconfirmed: usize,
    /// When the last one was.
    confirmed_ms: Option<i64>,
    created_ms: i64,
}

/// What a message that came is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Never seen: hand it out.
    New,
    /// On its way already: the newest ack id counts from here on.
    Underway,
    /// Committed: acknowledge it at once.
    Done,
}

/// How long ids are remembered.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Behind the confirmed acknowledgement, in ms.
    pub window_ms: i64,
    /// Where it was never confirmed, from when they were handed out: the service itself keeps messages no longer, in ms.
    pub retention_ms: i64,
}

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub messages: u64,
    /// Bytes of their payloads and attributes.
    pub bytes: u64,
}

impl Load {
    fn add(&mut self, bytes: u32) {
        self.messages += 1;
        self.bytes += u64::from(bytes);
    }

    fn take(&mut self, bytes: u32) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
    }
}

/// A file that a worker's position names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name.
    pub file: String,
    /// When the last acknowledgement was confirmed, in ms.
    pub confirmed_ms: Option<i64>,
}

/// See the module.
pub struct Ledger {
    memory: Memory,
    entries: HashMap<Id, Entry, BuildHasherDefault<Hashed>>,
    deliveries: BTreeMap<u32, Delivery>,
    next_delivery: u32,
    groups: BTreeMap<u32, Group>,
    next_group: u32,
    /// Files that nothing needs any more, until a checkpoint says so: worker and name.
    gone: Vec<(u32, String)>,
    unacked: Load,
}

/// An answer that is being taken in.
pub struct Incoming {
    number: u32,
    acks: Acks,
    sizes: Vec<u32>,
    done: Vec<Acks>,
}

impl Ledger {
    /// A ledger without any message.
    pub fn new(memory: Memory) -> Ledger {
        Ledger {
            memory,
            entries: HashMap::default(),
            deliveries: BTreeMap::new(),
            next_delivery: 0,
            groups: BTreeMap::new(),
            next_group: 0,
            gone: Vec::new(),
            unacked: Load::default(),
        }
    }

    /// Takes up what a former life committed.
    pub fn restore(&mut self, kept: Kept, ids: Vec<Id>, created_ms: i64) {
        let group = self.next_group;
        self.next_group += 1;
        let confirmed = kept.confirmed_ms.is_some();
        for id in &ids {
            self.entries.insert(*id, Entry { delivery: NONE, row: 0, group, confirmed });
        }
        let unconfirmed = if confirmed { 0 } else { ids.len() };
        let Kept { file, confirmed_ms } = kept;
        self.groups.insert(group, Group { file: Some(file), worker: 0, ids, unconfirmed, confirmed_ms, created_ms });
    }

    /// Begins to take in an answer.
    pub fn incoming(&mut self) -> Incoming {
        let number = self.next_delivery;
        self.next_delivery = if number + 1 == NONE { 0 } else { number + 1 };
        Incoming { number, acks: Acks::default(), sizes: Vec::new(), done: Vec::new() }
    }

    /// Takes in a message of an answer.
    pub fn receive(&mut self, incoming: &mut Incoming, id: Id, ack_id: &str, bytes: u32) -> Seen {
        let newest = (incoming.number, incoming.sizes.len() as u32);
        let (known, before) = match self.entries.get_mut(&id) {
            None => {
                let entry = Entry { delivery: newest.0, row: newest.1, group: OPEN, confirmed: false };
                self.entries.insert(id, entry);
                (OPEN, None)
            }
            Some(entry) => {
                let before = (entry.delivery, entry.row);
                (entry.delivery, entry.row) = newest;
                (entry.group, Some(before))
            }
        };
        incoming.acks.push(id, newest.0, ack_id);
        incoming.sizes.push(bytes);
        self.unacked.add(bytes);
        match before {
            None => Seen::New,
            Some((delivery, row)) => {
                self.release(delivery, row, Some(incoming));
                if known == OPEN {
                    return Seen::Underway;
                }
                add(&mut incoming.done, id, newest.0, ack_id);
                Seen::Done
            }
        }
    }

    /// All messages of the answer are taken in; their leases run out at `due_ms`. Answers with what to acknowledge at once.
    pub fn received(&mut self, incoming: Incoming, due_ms: i64) -> Vec<Acks> {
        let Incoming { number, acks, sizes, done } = incoming;
        // The same message twice in one answer: only its last row is live.
        let live = (0..sizes.len()).filter(|row| self.is_live(acks.of[*row].0, number, *row as u32)).count() as u32;
        if live > 0 {
            self.deliveries.insert(number, Delivery { acks, sizes, live, due_ms });
        }
        done
    }

    fn is_live(&self, id: Id, delivery: u32, row: u32) -> bool {
        self.entries.get(&id).is_some_and(|entry| (entry.delivery, entry.row) == (delivery, row))
    }

    /// A delivery of a message counts no more. It may stand in the answer that is being taken in.
    fn release(&mut self, delivery: u32, row: u32, incoming: Option<&Incoming>) {
        if let Some(incoming) = incoming.filter(|incoming| incoming.number == delivery) {
            self.unacked.take(incoming.sizes[row as usize]);
        } else if let Some(found) = self.deliveries.get_mut(&delivery) {
            self.unacked.take(found.sizes[row as usize]);
            found.live -= 1;
            if found.live == 0 {
                self.deliveries.remove(&delivery);
            }
        }
    }

    /// A barrier came: `ids` are what `worker` has handed out since the last one. `file` will hold them.
    pub fn seal(&mut self, worker: u32, file: Option<String>, ids: Vec<Id>, now_ms: i64) -> u32 {
        let group = self.next_group;
        self.next_group += 1;
        let unconfirmed = ids.len();
        self.groups.insert(group, Group { file, worker, ids, unconfirmed, confirmed_ms: None, created_ms: now_ms });
        group
    }

    /// The manifest with the group is durable: answers with what to acknowledge.
    pub fn commit(&mut self, group: u32) -> Vec<Acks> {
        let mut requests = Vec::new();
        let Some(found) = self.groups.get(&group) else { return requests };
        for id in &found.ids {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            entry.group = group;
            // Messages whose lease was lost are acknowledged when they come again.
            let Some(delivery) = self.deliveries.get(&entry.delivery) else { continue };
            add(&mut requests, *id, entry.delivery, delivery.acks.ack_id(entry.row as usize));
        }
        requests
    }

    /// The service has confirmed acknowledgements.
    pub fn confirm(&mut self, acks: &Acks, now_ms: i64) {
        for (id, delivery) in &acks.of {
            let Some(entry) = self.entries.get_mut(id) else { continue };
            let (group, row, first) = (entry.group, entry.row, !entry.confirmed);
            entry.confirmed = true;
            let newest = entry.delivery == *delivery;
            if newest {
                entry.delivery = NONE;
                self.release(*delivery, row, None);
            }
            if let Some(found) = self.groups.get_mut(&group).filter(|_| first) {
                found.unconfirmed -= 1;
                if found.unconfirmed == 0 {
                    found.confirmed_ms = Some(now_ms);
                }
            }
            if newest && self.memory.window_ms == 0 {
                self.entries.remove(id);
            }
        }
    }

    /// Ack ids turned out to be good for nothing: the messages will come again.
    pub fn lose(&mut self, acks: &Acks) {
        for (id, delivery) in &acks.of {
            let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.delivery == *delivery) else { continue };
            let row = entry.row;
            entry.delivery = NONE;
            self.release(*delivery, row, None);
        }
    }

    /// The messages whose leases have to be extended now: those that run out before `before_ms`. They run to `due_ms` then.
    pub fn renew(&mut self, before_ms: i64, due_ms: i64) -> Vec<Acks> {
        let mut requests = Vec::new();
        for (number, delivery) in self.deliveries.iter_mut().filter(|(_, delivery)| delivery.due_ms <= before_ms) {
            delivery.due_ms = due_ms;
            for (row, (id, _)) in delivery.acks.of.iter().enumerate() {
                if self.entries.get(id).is_some_and(|entry| (entry.delivery, entry.row) == (*number, row as u32)) {
                    add(&mut requests, *id, *number, delivery.acks.ack_id(row));
                }
            }
        }
        requests
    }

    /// Leases could not be extended: they are tried again at the next look.
    pub fn not_renewed(&mut self, acks: &Acks, due_ms: i64) {
        for (_, number) in &acks.of {
            if let Some(delivery) = self.deliveries.get_mut(number) {
                delivery.due_ms = delivery.due_ms.min(due_ms);
            }
        }
    }

    /// What is not committed: to be given back when this life ends.
    pub fn uncommitted_acks(&self) -> Vec<Acks> {
        let mut requests = Vec::new();
        for (number, delivery) in &self.deliveries {
            for (row, (id, _)) in delivery.acks.of.iter().enumerate() {
                let live = |entry: &&Entry| (entry.delivery, entry.row) == (*number, row as u32);
                if self.entries.get(id).filter(live).is_some_and(|entry| entry.group == OPEN) {
                    add(&mut requests, *id, *number, delivery.acks.ack_id(row));
                }
            }
        }
        requests
    }

    /// Forgets what need not be remembered at `now_ms`.
    pub fn forget(&mut self, now_ms: i64) {
        let Memory { window_ms, retention_ms } = self.memory;
        let over = |group: &Group| match group.confirmed_ms {
            Some(at) => at.saturating_add(window_ms) <= now_ms,
            None => group.created_ms.saturating_add(retention_ms) <= now_ms,
        };
        let old: Vec<u32> = self.groups.iter().filter(|(_, group)| over(group)).map(|(number, _)| *number).collect();
        for number in old {
            let Some(group) = self.groups.remove(&number) else { continue };
            for id in &group.ids {
                // One that has come again meanwhile is about to be acknowledged: that goes by its ack id.
                if let Some(entry) = self.entries.get(id).copied().filter(|entry| entry.group == number) {
                    self.entries.remove(id);
                    self.release(entry.delivery, entry.row, None);
                }
            }
            self.gone.extend(group.file.map(|file| (group.worker, file)));
        }
    }

    /// The files that a worker's position names.
    pub fn kept(&self, worker: u32) -> impl Iterator<Item = Kept> {
        let of = self.groups.values().filter(move |group| group.worker == worker);
        of.filter_map(|group| Some(Kept { file: group.file.clone()?, confirmed_ms: group.confirmed_ms }))
    }

    /// The files that a worker's position names no more, and its last one may have.
    pub fn gone(&self, worker: u32) -> impl Iterator<Item = &str> {
        self.gone.iter().filter(move |(of, _)| *of == worker).map(|(_, file)| file.as_str())
    }

    /// A checkpoint has said that these files are gone.
    pub fn told_gone(&mut self, told: impl Fn(&str) -> bool) {
        self.gone.retain(|(_, file)| !told(file));
    }

    /// Delivered, and neither acknowledged nor lost.
    pub fn unacked(&self) -> Load {
        self.unacked
    }

    /// Ids in memory.
    pub fn remembered(&self) -> usize {
        self.entries.len()
    }
}
