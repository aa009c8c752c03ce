//! A running Kafka source: opens the slice's partitions, takes what the reader's thread hands over, and knows how
//! far that goes. Talks to the brokers only while it opens.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::{Offset, TopicPartitionList};
use tokio::sync::mpsc;

use super::partitions::{Partition, Table, parse};
use super::reader::{Element, Reader};
use super::{Connector, offsets, owned};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::kafka::{self, Client, Listener};
use crate::source::{Position, Slice, Source};
use crate::watermark::Progress;

/// Batches that wait between the reader and whoever takes them: when they are full, the reader stops.
const HANDED_OVER: usize = 4;

/// A partition with where reading goes on and what there is to read.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Which.
    pub partition: Partition,
    /// Where reading goes on.
    pub next: i64,
    /// The end by the time of opening.
    pub end: i64,
}

/// Opens the slice at `position` and starts to read. Blocks.
pub fn open(connector: &Connector, slice: Slice, position: &Position) -> Result<Running> {
    let name = connector.name.clone();
    let listener = Listener::new(&name, &connector.client);
    let client: Arc<Client> = connector
        .client
        .create_with_context(listener)
        .map(Arc::new)
        .map_err(|e| kafka::explain("cannot make a Kafka client", e))?;
    let opened = places(connector, &client, slice, position)?;
    assign(&client, &opened)?;

    let (sender, elements) = mpsc::channel(HANDED_OVER);
    let ends = Arc::new(Mutex::new(opened.iter().map(|opened| opened.end).collect::<Vec<_>>()));
    let running = Running {
        elements,
        next: opened.iter().map(|opened| (opened.partition.name(), opened.next)).collect(),
        progress: opened.iter().map(|opened| fresh(opened.partition.name(), opened.partition.number)).collect(),
        kept: kept(connector, position),
        ends: ends.clone(),
        commits: connector.config.commit_group.is_some().then(|| Arc::downgrade(&client)),
        ended: false,
    };
    let reader = Reader::new(connector.clone(), slice, client, opened, sender, ends, Instant::now());
    let thread = std::thread::Builder::new().name(format!("{name}-{}", slice.worker)).spawn(move || reader.run());
    thread.map_err(|e| Error::transient("cannot start the thread that reads from Kafka").because(e))?;
    Ok(running)
}

/// Where each partition of the slice goes on, checked against what the topic holds.
fn places(connector: &Connector, client: &Client, slice: Slice, position: &Position) -> Result<Vec<Opened>> {
    let listed = connector.topics.list(client)?;
    for name in position.0.keys() {
        let Some((topic, number)) = parse(name).filter(|(topic, _)| connector.topics.contain(topic)) else { continue };
        if connector.topics.number(topic, number) % slice.tasks != slice.task {
            return Err(Error::config(
                "the log holds a position of a partition that is another task's by now: name the topics as before (`topic` or `topics`)",
            )
            .with("partition", name));
        }
        if !listed.iter().any(|partition| *partition.topic == *topic && partition.partition == number) {
            return Err(Error::corrupt(
                "the log holds a position of a partition that the topic does not have: the topic was deleted or created anew; \
                 to read it from its beginning, start a new log",
            )
            .with("topic", topic)
            .with("partition", number));
        }
    }
    let partitions = owned(&listed, slice);
    let lows = offsets(client, &partitions, Offset::Beginning)?;
    let ends = offsets(client, &partitions, Offset::End)?;
    let opened = partitions.into_iter().map(|partition| {
        let place = (partition.topic.to_string(), partition.partition);
        let (low, end) = (lows[&place], ends[&place]);
        let next = position.integer(&partition.name()).unwrap_or(low);
        if next < low || next > end {
            return Err(out_of_range(&partition, next, low, end));
        }
        Ok(Opened { partition, next, end })
    });
    opened.collect()
}

/// Adds partitions to those that the client reads.
pub fn assign(client: &Client, opened: &[Opened]) -> Result<()> {
    let doing = "cannot assign partitions";
    let mut list = TopicPartitionList::with_capacity(opened.len());
    for Opened { partition, next, .. } in opened {
        list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(*next))
            .map_err(|e| kafka::explain(doing, e))?;
    }
    client.incremental_assign(&list).map_err(|e| kafka::explain(doing, e))
}

/// The error of an offset that the topic does not have.
pub fn out_of_range(partition: &Partition, wanted: i64, low: i64, end: i64) -> Error {
    let what = match wanted < low {
        true => "the next messages are gone from the topic: its retention was shorter than the pipeline was behind",
        false => "the topic ends before the offset to read next: it was created anew or truncated",
    };
    Error::corrupt(format!("{what}; nothing was skipped; to go on with what the topic holds, start a new log"))
        .with("topic", &partition.topic)
        .with("partition", partition.partition)
        .with("offset", wanted)
        .with("low_watermark", low)
        .with("high_watermark", end)
}

/// Positions of topics that are not read any more: kept, should they come back.
fn kept(connector: &Connector, position: &Position) -> Position {
    let gone = |name: &str| !parse(name).is_some_and(|(topic, _)| connector.topics.contain(topic));
    let kept = position.0.iter().filter(|(name, _)| gone(name));
    Position(kept.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>())
}

/// A running Kafka source.
pub struct Running {
    elements: mpsc::Receiver<Result<Element>>,
    /// Name and next offset of each partition, by the reader's places.
    next: Vec<(String, i64)>,
    /// What the watermark goes by, by the same places.
    progress: Vec<Progress>,
    /// What the position holds besides.
    kept: Position,
    /// Where each partition ends as far as is known, by the same places.
    ends: Arc<Mutex<Vec<i64>>>,
    /// The client, where positions are committed for tools.
    commits: Option<Weak<Client>>,
    ended: bool,
}

#[async_trait]
impl Source for Running {
    async fn next(&mut self) -> Result<Option<Batch>> {
        while !self.ended {
            match self.elements.recv().await {
                Some(Ok(Element::Rows(mut batch, moved))) => {
                    for (place, next) in moved {
                        self.next[place].1 = next;
                        self.progress[place].caught_up_ms = None;
                    }
                    if !batch.is_empty() {
                        batch.received_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
                        return Ok(Some(batch));
                    }
                }
                Some(Ok(Element::Added(partitions))) => {
                    for (name, number, next) in partitions {
                        self.progress.push(fresh(name.clone(), number));
                        self.next.push((name, next));
                    }
                }
                Some(Ok(Element::CaughtUp(places))) => {
                    places.into_iter().for_each(|(place, time)| self.progress[place].caught_up_ms = Some(time));
                }
                Some(Ok(Element::End)) => self.ended = true,
                Some(Err(error)) => return Err(error),
                None => return Err(Error::bug("the thread that reads from Kafka ended early")),
            }
        }
        Ok(None)
    }

    fn position(&self) -> Position {
        let mut position = self.kept.clone();
        self.next.iter().for_each(|(name, next)| position.set(name, *next));
        position
    }

    async fn ack(&mut self, position: &Position) -> Result<()> {
        let Some(client) = self.commits.as_ref().and_then(Weak::upgrade) else { return Ok(()) };
        let mut list = TopicPartitionList::new();
        for (name, _) in &self.next {
            if let (Some((topic, partition)), Some(next)) = (parse(name), position.integer(name)) {
                let added = list.add_partition_offset(topic, partition, Offset::Offset(next));
                added.map_err(|e| kafka::explain("cannot commit positions for tools", e))?;
            }
        }
        // For tools only: a commit that fails costs nothing but their picture.
        if let Err(error) = client.commit(&list, CommitMode::Async) {
            tracing::warn!(%error, "cannot commit positions for tools");
        }
        Ok(())
    }

    fn progress(&self) -> Vec<Progress> {
        self.progress.clone()
    }

    fn lag(&self) -> Vec<(String, u64)> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = self.next.iter().zip(ends.iter());
        lag.map(|((name, next), end)| (name.clone(), (end - next).max(0) as u64)).collect()
    }
}

/// A partition of which nothing is known yet.
fn fresh(name: String, number: u32) -> Progress {
    Progress { number, name: name.into(), caught_up_ms: None, ended: false }
}

/// Where a partition was found out of range, once a fetch said that one was. Blocks.
pub fn find_out_of_range(client: &Client, table: &Table, next: &[i64], reason: &str) -> Error {
    let ask = |moment| offsets(client, table.all(), moment);
    let (lows, ends): (HashMap<_, _>, HashMap<_, _>) = match (ask(Offset::Beginning), ask(Offset::End)) {
        (Ok(lows), Ok(ends)) => (lows, ends),
        (Err(error), _) | (_, Err(error)) => return error,
    };
    for (partition, next) in table.all().iter().zip(next) {
        let place = (partition.topic.to_string(), partition.partition);
        if *next < lows[&place] || *next > ends[&place] {
            return out_of_range(partition, *next, lows[&place], ends[&place]);
        }
    }
    Error::corrupt("the broker says that an offset to read is not in its log, by now it is: was the topic truncated?")
        .because(reason.to_string())
}
