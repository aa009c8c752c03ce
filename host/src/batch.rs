//! A batch of messages, columnar all the way: a few allocations hold thousands of messages, a guest
//! gets the same buffers, and the decoders read from them. Owns nothing but data: no I/O, no clock.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, ArrayRef, BinaryArray, UInt32Array};
use arrow_buffer::ScalarBuffer;

use crate::error::{Error, Result};

/// Messages from one source, in the order in which they were read.
///
/// All columns have the same length. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The message keys; null where a message has none.
    pub keys: BinaryArray,
    /// The payloads; null is a tombstone, which is not the same as empty.
    pub values: BinaryArray,
    /// When the thing that the message tells of happened. The source's own time until a step says otherwise.
    pub event_times: ScalarBuffer<i64>,
    /// When the source's system took the message (Kafka's CreateTime): what latency is measured from.
    pub published: ScalarBuffer<i64>,
    /// The source partition of each message, by the source's own numbering.
    pub partitions: ScalarBuffer<u32>,
    /// The place of each message within its partition (Kafka: the offset; a file: the line).
    pub offsets: ScalarBuffer<i64>,
    /// The clock of each message's partition before the message was read: what it is late by. Empty where the pipeline
    /// has no windows.
    pub clocks: ScalarBuffer<i64>,
    /// Headers and the like. Sparse: most messages have none.
    pub attributes: Attributes,
    /// When the host received the batch: the only clock that a guest sees.
    pub received_ms: i64,
}

/// Named values attached to some messages of a batch, sorted by row.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// The row that each attribute belongs to; ascending.
    pub rows: ScalarBuffer<u32>,
    /// UTF-8 names. Never null.
    pub names: BinaryArray,
    /// Values; null is kept apart from empty, as Kafka's headers do.
    pub values: BinaryArray,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            rows: ScalarBuffer::from(Vec::<u32>::new()),
            names: BinaryArray::from(Vec::<&[u8]>::new()),
            values: BinaryArray::from(Vec::<&[u8]>::new()),
        }
    }
}

impl Attributes {
    /// True where no message has any.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The attributes of one row, in order.
    pub fn of(&self, row: u32) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        let start = self.rows.partition_point(|r| *r < row);
        (start..self.rows.len()).take_while(move |i| self.rows[*i] == row).map(|i| {
            let name = std::str::from_utf8(self.names.value(i)).unwrap_or("");
            (name, self.values.is_valid(i).then(|| self.values.value(i)))
        })
    }

    /// Those of the rows that `wanted` names, renumbered to their places in `wanted`.
    fn take(&self, wanted: &[u32]) -> Result<Attributes> {
        if self.is_empty() {
            return Ok(Attributes::default());
        }
        let mut rows = Vec::new();
        let mut picked = Vec::new();
        for (new, old) in wanted.iter().enumerate() {
            let mut i = self.rows.partition_point(|r| r < old);
            while i < self.rows.len() && self.rows[i] == *old {
                rows.push(new as u32);
                picked.push(i as u32);
                i += 1;
            }
        }
        let picked = UInt32Array::from(picked);
        Ok(Attributes {
            rows: rows.into(),
            names: take_binary(&self.names, &picked)?,
            values: take_binary(&self.values, &picked)?,
        })
    }
}

/// Gathers rows of a byte column.
pub fn take_binary(array: &BinaryArray, rows: &UInt32Array) -> Result<BinaryArray> {
    let taken: ArrayRef =
        arrow_select::take::take(array, rows, None).map_err(|e| Error::bug("cannot gather rows of a batch").because(e))?;
    match taken.as_any().downcast_ref::<BinaryArray>() {
        Some(binary) => Ok(binary.clone()),
        None => Err(Error::bug("gathering rows changed the type of the column")),
    }
}

fn gather<T: Copy + arrow_buffer::ArrowNativeType>(column: &ScalarBuffer<T>, rows: &[u32]) -> ScalarBuffer<T> {
    rows.iter().map(|row| column[*row as usize]).collect::<Vec<T>>().into()
}

impl Batch {
    /// A batch without messages.
    pub fn empty() -> Batch {
        BatchBuilder::new(0, 0).finish(0)
    }

    /// Messages in the batch.
    pub fn len(&self) -> usize {
        self.event_times.len()
    }

    /// True without messages.
    pub fn is_empty(&self) -> bool {
        self.event_times.is_empty()
    }

    /// Bytes of keys, values and attributes: what limits and throughput count.
    pub fn bytes(&self) -> u64 {
        let span = |a: &BinaryArray| (a.value_offsets()[a.len()] - a.value_offsets()[0]) as u64;
        span(&self.keys) + span(&self.values) + span(&self.attributes.names) + span(&self.attributes.values)
    }

    /// The payload of a row; `None` is a tombstone.
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        self.values.is_valid(row).then(|| self.values.value(row))
    }

    /// The key of a row.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        self.keys.is_valid(row).then(|| self.keys.value(row))
    }

    /// Rows `start..start + length` without copying payloads.
    pub fn slice(&self, start: usize, length: usize) -> Batch {
        let (first, end) = (start as u32, (start + length) as u32);
        let from = self.attributes.rows.partition_point(|r| *r < first);
        let to = self.attributes.rows.partition_point(|r| *r < end);
        Batch {
            keys: self.keys.slice(start, length),
            values: self.values.slice(start, length),
            event_times: self.event_times.slice(start, length),
            published: self.published.slice(start, length),
            partitions: self.partitions.slice(start, length),
            offsets: self.offsets.slice(start, length),
            clocks: if self.clocks.is_empty() { self.clocks.clone() } else { self.clocks.slice(start, length) },
            attributes: Attributes {
                rows: self.attributes.rows[from..to].iter().map(|r| r - first).collect::<Vec<_>>().into(),
                names: self.attributes.names.slice(from, to - from),
                values: self.attributes.values.slice(from, to - from),
            },
            received_ms: self.received_ms,
        }
    }

    /// The given rows, in the given order; a row may be named more than once. Copies payloads.
    pub fn take(&self, rows: &[u32]) -> Result<Batch> {
        let picked = UInt32Array::from(rows.to_vec());
        Ok(Batch {
            keys: take_binary(&self.keys, &picked)?,
            values: take_binary(&self.values, &picked)?,
            event_times: gather(&self.event_times, rows),
            published: gather(&self.published, rows),
            partitions: gather(&self.partitions, rows),
            offsets: gather(&self.offsets, rows),
            clocks: if self.clocks.is_empty() { self.clocks.clone() } else { gather(&self.clocks, rows) },
            attributes: self.attributes.take(rows)?,
            received_ms: self.received_ms,
        })
    }

    /// One batch that holds the rows of all, in order. The received time is the newest.
    pub fn concat(batches: &[Batch]) -> Result<Batch> {
        match batches {
            [] => Ok(Batch::empty()),
            [one] => Ok(one.clone()),
            many => {
                let mut builder =
                    BatchBuilder::new(many.iter().map(Batch::len).sum(), many.iter().map(|b| b.bytes() as usize).sum());
                for batch in many {
                    builder.append(batch);
                }
                let received = many.iter().map(|b| b.received_ms).max().unwrap_or(0);
                Ok(builder.finish(received))
            }
        }
    }
}

/// Builds a batch row by row into the final buffers: no allocation per message.
pub struct BatchBuilder {
    keys: BinaryBuilder,
    values: BinaryBuilder,
    event_times: Vec<i64>,
    published: Vec<i64>,
    partitions: Vec<u32>,
    offsets: Vec<i64>,
    attribute_rows: Vec<u32>,
    attribute_names: BinaryBuilder,
    attribute_values: BinaryBuilder,
    bytes: usize,
}

/// Where a message comes from and when: what a source knows of it besides key and value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// Partition by the source's own numbering.
    pub partition: u32,
    /// Place within the partition.
    pub offset: i64,
    /// When the source's system took it, ms since the Unix epoch; also the first event time.
    pub published: i64,
}

impl BatchBuilder {
    /// A builder with room for `rows` messages of `bytes` in all; it grows past that by itself.
    pub fn new(rows: usize, bytes: usize) -> Self {
        BatchBuilder {
            keys: BinaryBuilder::with_capacity(rows, 0),
            values: BinaryBuilder::with_capacity(rows, bytes),
            event_times: Vec::with_capacity(rows),
            published: Vec::with_capacity(rows),
            partitions: Vec::with_capacity(rows),
            offsets: Vec::with_capacity(rows),
            attribute_rows: Vec::new(),
            attribute_names: BinaryBuilder::new(),
            attribute_values: BinaryBuilder::new(),
            bytes: 0,
        }
    }

    /// Adds a message.
    pub fn push(&mut self, key: Option<&[u8]>, value: Option<&[u8]>, origin: Origin) {
        self.bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        self.keys.append_option(key);
        self.values.append_option(value);
        self.event_times.push(origin.published);
        self.published.push(origin.published);
        self.partitions.push(origin.partition);
        self.offsets.push(origin.offset);
    }

    /// Adds an attribute to the message pushed last.
    pub fn attribute(&mut self, name: &str, value: Option<&[u8]>) {
        self.bytes += name.len() + value.map_or(0, <[u8]>::len);
        self.attribute_rows.push((self.event_times.len() - 1) as u32);
        self.attribute_names.append_value(name.as_bytes());
        self.attribute_values.append_option(value);
    }

    /// Adds all rows of another batch.
    pub fn append(&mut self, batch: &Batch) {
        for row in 0..batch.len() {
            self.append_row(batch, row);
        }
    }

    /// Adds one row of another batch, its attributes included.
    pub fn append_row(&mut self, batch: &Batch, row: usize) {
        let origin = Origin { partition: batch.partitions[row], offset: batch.offsets[row], published: batch.published[row] };
        self.push(batch.key(row), batch.value(row), origin);
        if let Some(last) = self.event_times.last_mut() {
            *last = batch.event_times[row];
        }
        if !batch.attributes.is_empty() {
            for (name, value) in batch.attributes.of(row as u32) {
                self.attribute(name, value);
            }
        }
    }

    /// Messages so far.
    pub fn len(&self) -> usize {
        self.event_times.len()
    }

    /// True before the first message.
    pub fn is_empty(&self) -> bool {
        self.event_times.is_empty()
    }

    /// Bytes of keys, values and attributes so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The batch; the builder is empty afterwards and may be used again.
    pub fn finish(&mut self, received_ms: i64) -> Batch {
        self.bytes = 0;
        Batch {
            keys: self.keys.finish(),
            values: self.values.finish(),
            event_times: std::mem::take(&mut self.event_times).into(),
            published: std::mem::take(&mut self.published).into(),
            partitions: std::mem::take(&mut self.partitions).into(),
            offsets: std::mem::take(&mut self.offsets).into(),
            clocks: Vec::new().into(),
            attributes: Attributes {
                rows: std::mem::take(&mut self.attribute_rows).into(),
                names: self.attribute_names.finish(),
                values: self.attribute_values.finish(),
            },
            received_ms,
        }
    }
}

/// Where a batch goes once a step has handled it. Steps handle [`Route::MAIN`] only; the others
/// travel past them, and each sink takes the routes that its `from` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route(pub u8);

impl Route {
    /// What flows from step to step and, at the end, into the sinks.
    pub const MAIN: Route = Route(0);
    /// Rows that could not be handled, untouched, with the reason as attributes.
    pub const DEAD_LETTER: Route = Route(1);
    /// Rows that came after their windows were closed, untouched.
    pub const LATE: Route = Route(2);
    /// The first number that a pipeline gives to a route named by a guest.
    pub const FIRST_NAMED: u8 = 3;
}

/// Rows that a step or a sink could not take.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The rows as they came, nothing changed.
    pub rows: Batch,
    /// Why, one for each row.
    pub reasons: Vec<String>,
    /// The digest of the module that refused or failed, if one did.
    pub module: Option<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        let mut builder = BatchBuilder::new(4, 16);
        for (i, value) in [Some(&b"a"[..]), None, Some(&b""[..]), Some(&b"dd"[..])].into_iter().enumerate() {
            builder.push(
                (i % 2 == 0).then_some(&b"k"[..]),
                value,
                Origin { partition: 7, offset: i as i64, published: 100 + i as i64 },
            );
            if i > 1 {
                builder.attribute("h", Some(&[i as u8]));
            }
        }
        builder.finish(5)
    }

    #[test]
    fn a_tombstone_is_not_an_empty_message() {
        let batch = sample();
        assert_eq!(batch.value(1), None);
        assert_eq!(batch.value(2), Some(&b""[..]));
        assert_eq!(batch.bytes(), 2 + 3 + 2 + 2);
    }

    #[test]
    fn slicing_and_taking_keep_every_column_in_step() {
        let batch = sample();
        let sliced = batch.slice(2, 2);
        assert_eq!(sliced.value(1), Some(&b"dd"[..]));
        assert_eq!(sliced.attributes.of(1).collect::<Vec<_>>(), [("h", Some(&[3u8][..]))]);
        let taken = batch.take(&[3, 3, 0]).unwrap();
        assert_eq!((taken.offsets[0], taken.offsets[1], taken.offsets[2]), (3, 3, 0));
        assert_eq!(taken.attributes.rows.to_vec(), [0, 1]);
        let joined = Batch::concat(&[sliced, taken]).unwrap();
        assert_eq!(joined.len(), 5);
        assert_eq!(joined.event_times.to_vec(), [102, 103, 103, 103, 100]);
        assert_eq!(joined.attributes.rows.to_vec(), [0, 1, 2, 3]);
    }
}
