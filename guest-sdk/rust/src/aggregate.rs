//! Aggregators: what an author writes, and how it is run over groups, lists of fragments, and panes.
//! One accumulator is used again and again, so that a group of a single row costs no allocation.

use std::fmt;

use crate::batch::{Batch, Message, Output, Rejected};
use crate::column::{Column, ColumnBuilder};
use crate::emitter::{self, Emitter, Value};

/// Sums up the messages of a key and window. Exported from a module by [`crate::export_aggregator!`].
///
/// What is known of a key and window is bytes that the host keeps: its accumulator. An instance may be
/// thrown away at any time between two calls, and several run side by side, so nothing else may be kept.
///
/// * [`Aggregate::add`] takes one message into an accumulator,
/// * [`Aggregate::encode`] writes one down, [`Aggregate::merge`] adds what was written down to another,
/// * [`Aggregate::emit`] makes rows of one when its window fires.
///
/// Merging must be associative: the host merges what it has when it sees fit, in any grouping, and never
/// what is alone. Within a source partition the order of messages is kept; between partitions there is none.
/// [`crate::testing::Aggregation`] checks that on your own messages.
///
/// ```
/// use weir_udf::{Aggregate, Emitter, Message, Pane, Value, varint};
///
/// /// The length of the longest message.
/// struct Longest;
///
/// impl Aggregate for Longest {
///     type Config = ();
///     type Accumulator = u64;
///
///     fn new(_: ()) -> Result<Self, String> {
///         Ok(Longest)
///     }
///
///     fn add(&mut self, longest: &mut u64, message: Message<'_>) -> Result<(), String> {
///         let value = message.value().ok_or("a tombstone has no length")?;
///         *longest = (*longest).max(value.len() as u64);
///         Ok(())
///     }
///
///     fn encode(&self, longest: &u64, out: &mut Value<'_>) {
///         out.push(&varint::encode(*longest));
///     }
///
///     fn merge(&mut self, longest: &mut u64, mut encoded: &[u8]) -> Result<(), String> {
///         *longest = (*longest).max(varint::read(&mut encoded).ok_or("not a length")?);
///         Ok(())
///     }
///
///     fn emit(&mut self, _: Pane<'_>, longest: &mut u64, out: &mut Emitter<'_>) -> Result<(), String> {
///         out.emit(format!(r#"{{"longest":{longest}}}"#));
///         Ok(())
///     }
/// }
///
/// weir_udf::export_aggregator!(Longest);
///
/// let mut test = weir_udf::testing::Aggregation::<Longest>::new("null").unwrap();
/// assert_eq!(test.run(["a", "abc", "ab"]).values(), [r#"{"longest":3}"#]);
/// ```
pub trait Aggregate: Sized + 'static {
    /// The step's `config`. Use `#[serde(deny_unknown_fields)]` so that a misspelt name is refused, and
    /// `()` for an aggregator without configuration.
    type Config: serde::de::DeserializeOwned;

    /// What is known of a key and window while it is worked on. The default is: no message yet.
    type Accumulator: Default;

    /// The version of what [`Aggregate::encode`] writes: raise it with every change of the encoding.
    const STATE_VERSION: u32 = 1;

    /// Called once for each instance. An error refuses the configuration: the pipeline does not start,
    /// and its author reads the text.
    fn new(config: Self::Config) -> Result<Self, String>;

    /// The outputs besides the main one that rows may be routed to: at most [`crate::ROUTES_MAX`]. Sinks
    /// name them in `from`.
    fn routes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes a message in. An error rejects the message with a reason; the accumulator must then be as before.
    fn add(&mut self, accumulator: &mut Self::Accumulator, message: Message<'_>) -> Result<(), String>;

    /// Writes an accumulator down.
    fn encode(&self, accumulator: &Self::Accumulator, out: &mut Value<'_>);

    /// Takes in what [`Aggregate::encode`] wrote of another accumulator, whose messages came later. Into an
    /// empty one, it reads it back. An error says that the bytes cannot be read, and stops the pipeline.
    fn merge(&mut self, accumulator: &mut Self::Accumulator, encoded: &[u8]) -> Result<(), String>;

    /// Makes rows of a window that fires. A row has the pane's key, and the window's last millisecond as its
    /// event time, unless it is given others. An error sends the pane to the dead letters with the reason.
    fn emit(&mut self, pane: Pane<'_>, accumulator: &mut Self::Accumulator, out: &mut Emitter<'_>) -> Result<(), String>;

    /// Makes an accumulator empty again. To be overridden where buffers are worth keeping.
    fn clear(&self, accumulator: &mut Self::Accumulator) {
        *accumulator = Self::Accumulator::default();
    }

    /// Writes down anew what an older version of [`Aggregate::encode`] wrote. An error refuses the version:
    /// the pipeline does not start, and a swap is not made.
    fn migrate(&mut self, version: u32, encoded: &[u8], out: &mut Value<'_>) -> Result<(), String> {
        let _ = (encoded, out);
        Err(format!("accumulators of version {version} cannot be read: the module writes version {}", Self::STATE_VERSION))
    }
}

/// Why a window fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// Before the watermark passed the window's end.
    Early,
    /// When it did.
    OnTime,
    /// After that, for late messages.
    Late,
}

/// A window of a key that fires.
#[derive(Clone, Copy)]
pub struct Pane<'a> {
    panes: &'a Panes,
    row: usize,
    key: Option<&'a [u8]>,
    accumulator: &'a [u8],
}

impl<'a> Pane<'a> {
    /// The key: the text of the key field as JSON, or the bytes of the message's key or attribute, as the
    /// step says; `None` where the messages had none.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.key
    }

    /// The accumulator as it was written down.
    pub fn encoded(&self) -> &'a [u8] {
        self.accumulator
    }

    /// Where the window begins: milliseconds since the Unix epoch.
    pub fn start_ms(&self) -> i64 {
        self.panes.starts[self.row]
    }

    /// Where the window ends: the first millisecond that is not in it.
    pub fn end_ms(&self) -> i64 {
        self.panes.ends[self.row]
    }

    /// How often the window has fired before.
    pub fn firings(&self) -> u32 {
        self.panes.firings[self.row]
    }

    /// Why it fires.
    pub fn timing(&self) -> Timing {
        match self.panes.timings[self.row] {
            0 => Timing::Early,
            2 => Timing::Late,
            _ => Timing::OnTime,
        }
    }

    /// When the host decided to fire: milliseconds since the Unix epoch. The only clock there is.
    pub fn received_ms(&self) -> i64 {
        self.panes.received_ms
    }
}

impl fmt::Debug for Pane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.map(String::from_utf8_lossy);
        f.debug_struct("Pane")
            .field("key", &key)
            .field("start_ms", &self.start_ms())
            .field("end_ms", &self.end_ms())
            .field("firings", &self.firings())
            .field("timing", &self.timing())
            .finish_non_exhaustive()
    }
}

/// Rows by the group that they belong to: group i is `rows[ends[i - 1]..ends[i]]`.
#[derive(Debug, Default)]
pub struct Groups {
    /// Rows of the batch.
    pub rows: Vec<u32>,
    /// Where each group ends.
    pub ends: Vec<u32>,
}

/// Lists of fragments: list i is `fragments[ends[i - 1]..ends[i]]`.
#[derive(Debug, Default)]
pub struct Lists {
    /// All fragments.
    pub fragments: Column,
    /// Where each list ends.
    pub ends: Vec<u32>,
}

/// Windows that fire, and what the host knows of them. Keys and accumulators are apart.
#[derive(Debug, Default)]
pub struct Panes {
    /// Where each window begins.
    pub starts: Vec<i64>,
    /// Where each window ends.
    pub ends: Vec<i64>,
    /// How often each has fired before.
    pub firings: Vec<u32>,
    /// 0: early, 1: on time, 2: late.
    pub timings: Vec<u8>,
    /// The only clock.
    pub received_ms: i64,
}

/// Reads fragments into an accumulator.
fn gather<'a, A: Aggregate>(
    aggregate: &mut A,
    accumulator: &mut A::Accumulator,
    mut fragments: impl Iterator<Item = &'a [u8]>,
) -> Result<(), String> {
    aggregate.clear(accumulator);
    fragments.try_for_each(|fragment| aggregate.merge(accumulator, fragment))
}

/// An aggregator with the accumulator that it uses again and again.
#[derive(Debug)]
pub struct Runner<A: Aggregate> {
    pub(crate) aggregate: A,
    accumulator: A::Accumulator,
}

impl<A: Aggregate> Runner<A> {
    pub(crate) fn new(aggregate: A) -> Self {
        Runner { aggregate, accumulator: A::Accumulator::default() }
    }

    /// A fragment for each group; none for a group that took no message.
    pub(crate) fn accumulate(&mut self, batch: &Batch, groups: &Groups) -> (Column, Rejected) {
        let Runner { aggregate, accumulator } = self;
        let mut fragments = ColumnBuilder::with_capacity(groups.ends.len(), groups.ends.len() * 8);
        let mut rejected: Vec<(u32, String)> = Vec::new();
        let mut start = 0;
        for end in &groups.ends {
            let rows = &groups.rows[start..*end as usize];
            start = *end as usize;
            aggregate.clear(accumulator);
            let mut took = false;
            for row in rows {
                match aggregate.add(accumulator, batch.message(*row as usize)) {
                    Ok(()) => took = true,
                    Err(reason) => rejected.push((*row, reason)),
                }
            }
            match took {
                true => {
                    aggregate.encode(accumulator, &mut Value(fragments.open()));
                    fragments.end_row();
                }
                false => fragments.push(None),
            }
        }
        rejected.sort_by_key(|(row, _)| *row);
        let mut reasons = ColumnBuilder::default();
        rejected.iter().for_each(|(_, reason)| reasons.push(Some(reason.as_bytes())));
        let rows = rejected.into_iter().map(|(row, _)| row).collect();
        (fragments.finish(), Rejected { rows, reasons: reasons.finish() })
    }

    /// One accumulator for each list.
    pub(crate) fn merge(&mut self, lists: &Lists) -> Result<Column, String> {
        let Runner { aggregate, accumulator } = self;
        let mut merged = ColumnBuilder::with_capacity(lists.ends.len(), lists.fragments.bytes.len());
        let fragment = |i: usize| lists.fragments.get(i).unwrap_or_default();
        let mut start = 0;
        for end in lists.ends.iter().map(|end| *end as usize) {
            // What is alone means the same as it is.
            if end - start == 1 {
                merged.push(Some(fragment(start)));
            } else {
                gather(aggregate, accumulator, (start..end).map(fragment))?;
                aggregate.encode(accumulator, &mut Value(merged.open()));
                merged.end_row();
            }
            start = end;
        }
        Ok(merged.finish())
    }

    /// Merges, also what is alone.
    pub(crate) fn join<'a>(&mut self, fragments: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, String> {
        gather(&mut self.aggregate, &mut self.accumulator, fragments)?;
        let mut joined = Vec::new();
        self.aggregate.encode(&self.accumulator, &mut Value(&mut joined));
        Ok(joined)
    }

    /// Rows of panes. The emitter works on a batch of the panes' keys and accumulators.
    pub(crate) fn emit(&mut self, panes: &Panes, keys: Column, accumulators: Column) -> Output {
        let Runner { aggregate, accumulator } = self;
        let batch = Batch {
            keys,
            values: accumulators,
            event_times: panes.ends.iter().map(|end| end.saturating_sub(1)).collect(),
            received_ms: panes.received_ms,
            ..Batch::default()
        };
        emitter::run(batch, |message, out| {
            let row = message.row();
            let pane = Pane { panes, row, key: message.key(), accumulator: message.value().unwrap_or_default() };
            gather(aggregate, accumulator, std::iter::once(pane.accumulator))?;
            aggregate.emit(pane, accumulator, out)
        })
    }

    /// Accumulators of an older version in the present one.
    pub(crate) fn migrate(&mut self, version: u32, accumulators: Column) -> Result<Column, String> {
        if version == A::STATE_VERSION {
            return Ok(accumulators);
        }
        let mut migrated = ColumnBuilder::with_capacity(accumulators.ends.len(), accumulators.bytes.len());
        for row in 0..accumulators.ends.len() {
            let encoded = accumulators.get(row).unwrap_or_default();
            self.aggregate.migrate(version, encoded, &mut Value(migrated.open()))?;
            migrated.end_row();
        }
        Ok(migrated.finish())
    }
}

#[cfg(test)]
#[path = "aggregate_tests.rs"]
mod tests;
