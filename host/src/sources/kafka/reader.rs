//! The thread that reads: takes messages from librdkafka one by one, straight into the columns of a batch, and hands
//! full batches over. It stops while nobody takes them, and ends when nobody will.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::Offset;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use tokio::sync::mpsc;

use super::partitions::{Partition, Table};
use super::running::{Opened, assign, find_out_of_range, out_of_range};
use super::{Connector, offsets};
use crate::batch::{Batch, BatchBuilder, Origin};
use crate::error::{Error, ErrorKind, Result};
use crate::kafka::{self, Client, Statistics};
use crate::source::Slice;

/// A batch is handed over at this many bytes …
const BATCH_BYTES: usize = 1 << 20;
/// … or rows …
const BATCH_ROWS: usize = 16 << 10;
/// … or, when no more messages come, this long after its first.
const LINGER: Duration = Duration::from_millis(5);
/// How long a wait for messages lasts before the reader looks around.
const IDLE: Duration = Duration::from_millis(100);

/// What the reader hands over, in order.
// Nearly all are the large one; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub enum Element {
    /// Messages, and where that brings the partitions, by their places. No message means that only offsets without
    /// one were passed: aborted transactions and their marks.
    Rows(Batch, Vec<(usize, i64)>),
    /// Partitions that came up, with what their messages are numbered by and where they begin: the next places.
    Added(Vec<(String, u32, i64)>),
    /// Partitions that had nothing more by a fetch at that time, by their places.
    CaughtUp(Vec<(usize, i64)>),
    /// There is nothing more to come.
    End,
}

/// The reading end of a source.
pub struct Reader {
    connector: Connector,
    slice: Slice,
    client: Arc<Client>,
    sender: mpsc::Sender<Result<Element>>,
    table: Table,
    /// Where each partition goes on, by its place.
    next: Vec<i64>,
    /// Where each partition is done, where the source has an end.
    until: Option<Vec<i64>>,
    /// Where each partition ends as far as is known; shared with whoever reports lag.
    ends: Arc<Mutex<Vec<i64>>>,
    /// Where fetching was by the statistics before.
    fetched: Vec<i64>,
    /// How many fetches had been sent to each broker at which times: the last few statistics, newest last.
    fetches: VecDeque<(i64, HashMap<i32, i64>)>,
    /// Fetches that are sure to be in the queue, until it was found empty.
    settled: Vec<(usize, i64)>,
    builder: BatchBuilder,
    /// Places whose `next` moved since the last hand-over.
    moved: Vec<usize>,
    is_moved: Vec<bool>,
    /// Time of the first row of the batch.
    begun: Instant,
    looked: Instant,
}

impl Reader {
    /// A reader of partitions that are assigned already.
    pub fn new(
        connector: Connector,
        slice: Slice,
        client: Arc<Client>,
        opened: Vec<Opened>,
        sender: mpsc::Sender<Result<Element>>,
        ends: Arc<Mutex<Vec<i64>>>,
        now: Instant,
    ) -> Reader {
        let mut reader = Reader {
            until: connector.config.until.map(|_| Vec::new()),
            connector,
            slice,
            client,
            sender,
            table: Table::default(),
            next: Vec::new(),
            ends,
            fetched: Vec::new(),
            fetches: VecDeque::new(),
            settled: Vec::new(),
            builder: builder(),
            moved: Vec::new(),
            is_moved: Vec::new(),
            begun: now,
            looked: now,
        };
        opened.into_iter().for_each(|opened| reader.add(opened));
        reader
    }

    fn add(&mut self, opened: Opened) {
        self.table.add(opened.partition);
        self.next.push(opened.next);
        self.fetched.push(-1);
        self.is_moved.push(false);
        if let Some(until) = &mut self.until {
            until.push(opened.end);
        }
    }

    /// Reads until there is an end, an error, or nobody who takes.
    pub fn run(mut self) {
        let last = self.read().map(|()| Element::End);
        // Nobody there to take it: then nobody wants to know.
        let _ = self.sender.blocking_send(last);
    }

    fn read(&mut self) -> Result<()> {
        // Shared, so that messages can be borrowed from it while the rest of the reader changes.
        let client = self.client.clone();
        while !self.sender.is_closed() {
            match client.poll(Duration::ZERO) {
                Some(Ok(message)) => self.take(&message)?,
                Some(Err(error)) => self.heed(error)?,
                None => {
                    let wait = match self.builder.is_empty() {
                        true => IDLE,
                        false => LINGER.saturating_sub(self.begun.elapsed()),
                    };
                    let heard = client.context().heard();
                    match client.poll(wait) {
                        Some(Ok(message)) => self.take(&message)?,
                        Some(Err(error)) => self.heed(error)?,
                        None => {
                            // A poll that served an event says nothing about the queue.
                            if client.context().heard() == heard {
                                self.settle();
                            }
                            self.hand_over();
                            if self.done() {
                                return Ok(());
                            }
                        }
                    }
                    self.look_around()?;
                }
            }
        }
        Ok(())
    }

    /// Adds a message to the batch.
    fn take(&mut self, message: &BorrowedMessage<'_>) -> Result<()> {
        let (partition, offset) = (message.partition(), message.offset());
        let Some(place) = self.table.find(|| message.topic(), partition) else {
            return Err(Error::bug("a message of a partition that is not assigned")
                .with("topic", message.topic())
                .with("partition", partition));
        };
        if offset >= self.end(place) {
            // Whatever came before has been taken; this and what follows is for another time.
            if self.next[place] < self.end(place) {
                self.moved_to(place, self.end(place));
            }
            return Ok(());
        }
        if self.builder.is_empty() {
            self.begun = Instant::now();
        }
        let published = message.timestamp().to_millis().unwrap_or(0);
        let origin = Origin { partition: self.table.all()[place].number, offset, published };
        self.builder.push(message.key(), message.payload(), origin);
        if let Some(name) = &self.connector.config.topic_attribute {
            self.builder.attribute(name, Some(message.topic().as_bytes()));
        }
        if let Some(headers) = message.headers() {
            headers.iter().for_each(|header| self.builder.attribute(header.key, header.value));
        }
        self.moved_to(place, offset + 1);
        if self.builder.bytes() >= BATCH_BYTES || self.builder.len() >= BATCH_ROWS {
            self.hand_over();
            self.look_around()?;
        }
        Ok(())
    }

    /// Where a partition is done.
    fn end(&self, place: usize) -> i64 {
        self.until.as_ref().map_or(i64::MAX, |until| until[place])
    }

    fn moved_to(&mut self, place: usize, next: i64) {
        self.next[place] = next;
        if !self.is_moved[place] {
            self.is_moved[place] = true;
            self.moved.push(place);
        }
    }

    /// Hands over what there is. Waits while those before are not taken.
    fn hand_over(&mut self) {
        if self.moved.is_empty() {
            return;
        }
        let batch = match self.builder.is_empty() {
            true => Batch::empty(),
            false => std::mem::replace(&mut self.builder, builder()).finish(0),
        };
        let moved = self.moved.drain(..).map(|place| {
            self.is_moved[place] = false;
            (place, self.next[place])
        });
        let element = Element::Rows(batch, moved.collect());
        // An error says that nobody is there any more, which the loop sees for itself.
        let _ = self.sender.blocking_send(Ok(element));
    }

    /// The queue is empty: whatever was fetched before the last statistics has been taken. Moves over offsets that
    /// hold no message for us, so that lag ends and retention of them does not matter.
    fn settle(&mut self) {
        for (place, fetched) in std::mem::take(&mut self.settled) {
            let passed = fetched.min(self.end(place));
            if passed > self.next[place] {
                self.moved_to(place, passed);
            }
        }
    }

    fn done(&self) -> bool {
        let Some(until) = &self.until else { return false };
        self.next.iter().zip(until).all(|(next, until)| next >= until)
    }

    /// What is done from time to time: statistics and new partitions.
    fn look_around(&mut self) -> Result<()> {
        if let Some(statistics) = self.client.context().take_statistics() {
            self.learn(&statistics);
        }
        if self.until.is_none() && self.looked.elapsed() >= self.connector.config.new_partitions_interval.0 {
            self.looked = Instant::now();
            self.refresh()?;
        }
        Ok(())
    }

    fn learn(&mut self, statistics: &Statistics) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        self.settled.clear();
        for (place, partition) in self.table.all().iter().enumerate() {
            let Some(state) = statistics.partition(&partition.topic, partition.partition) else { continue };
            if let Some(end) = state.end() {
                ends[place] = end;
            }
            // librdkafka moves a fetch's offset a moment before it queues the messages: believe the one before.
            if state.fetch == self.fetched[place] {
                self.settled.push((place, state.fetch));
            }
            self.fetched[place] = state.fetch;
        }
        drop(ends);
        self.find_caught_up(statistics);
    }

    /// Tells of partitions that are read to their ends, and since when that is known: since a moment behind which a whole
    /// fetch was sent and answered. The ends in the statistics are those of the last answer.
    fn find_caught_up(&mut self, statistics: &Statistics) {
        const KEPT: usize = 16;
        let sent = statistics.fetches();
        let mut caught_up = Vec::new();
        for (place, partition) in self.table.all().iter().enumerate() {
            let Some(state) = statistics.partition(&partition.topic, partition.partition) else { continue };
            let (Some(end), Some(now)) = (state.end(), sent.get(&state.leader)) else { continue };
            if self.next[place] < end || self.is_moved[place] {
                continue;
            }
            // A broker has one fetch of ours at a time: two more were sent, so the first of them was answered.
            let before = |(_, counts): &&(i64, HashMap<i32, i64>)| counts.get(&state.leader).is_some_and(|then| now - then >= 2);
            if let Some((time, _)) = self.fetches.iter().rev().find(before) {
                caught_up.push((place, *time));
            }
        }
        self.fetches.push_back((now_ms(), sent));
        if self.fetches.len() > KEPT {
            self.fetches.pop_front();
        }
        if !caught_up.is_empty() {
            let _ = self.sender.blocking_send(Ok(Element::CaughtUp(caught_up)));
        }
    }

    /// Finds partitions that came up, and topics that were created anew. Only what it finds is an error.
    fn refresh(&mut self) -> Result<()> {
        let partitions = match self.connector.topics.list(&self.client) {
            Ok(partitions) => partitions,
            Err(error) => {
                tracing::warn!(name = %self.connector.name, %error, "cannot look for new partitions");
                return Ok(());
            }
        };
        let mut fresh = super::owned(&partitions, self.slice);
        let lows = offsets(&self.client, &fresh, Offset::Beginning);
        let ends = offsets(&self.client, &fresh, Offset::End);
        let (Ok(lows), Ok(ends)) = (lows, ends) else { return Ok(()) };
        let place = |partition: &Partition| (partition.topic.to_string(), partition.partition);
        for (partition, next) in self.table.all().iter().zip(&self.next) {
            // Behind the beginning is no matter yet: the messages may wait in the queue.
            let (Some(low), Some(end)) = (lows.get(&place(partition)), ends.get(&place(partition))) else { continue };
            if next > end {
                return Err(out_of_range(partition, *next, *low, *end));
            }
        }
        fresh.retain(|partition| !self.table.contains(partition));
        let opened: Vec<Opened> = fresh
            .into_iter()
            .map(|partition| {
                let next = lows[&place(&partition)];
                Opened { partition, next, end: next }
            })
            .collect();
        if opened.is_empty() {
            return Ok(());
        }
        tracing::info!(name = %self.connector.name, partitions = opened.len(), first = opened[0].partition.name(), "new partitions");
        assign(&self.client, &opened)?;
        self.hand_over();
        let added = opened.iter().map(|opened| (opened.partition.name(), opened.partition.number, opened.next)).collect();
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).extend(opened.iter().map(|opened| opened.end));
        opened.into_iter().for_each(|opened| self.add(opened));
        let _ = self.sender.blocking_send(Ok(Element::Added(added)));
        Ok(())
    }

    /// Tells errors that librdkafka recovers from by itself from those that would lose messages.
    fn heed(&mut self, error: KafkaError) -> Result<()> {
        let Some(code) = error.rdkafka_error_code() else { return Ok(()) };
        match code {
            Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation => {
                Err(find_out_of_range(&self.client, &self.table, &self.next, &error.to_string()))
            }
            // Connections come back, leaders are found again; the group is never joined.
            Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::Authentication
            | Code::SSL
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::TimedOutQueue
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::GroupAuthorizationFailed => Ok(()),
            // Opening again tells what a person has to do, if anything.
            _ => Err(kafka::explain("cannot read", error).as_kind(ErrorKind::Transient)),
        }
    }
}

/// Milliseconds since the Unix epoch.
fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

fn builder() -> BatchBuilder {
    BatchBuilder::new(1024, BATCH_BYTES + BATCH_BYTES / 16)
}
