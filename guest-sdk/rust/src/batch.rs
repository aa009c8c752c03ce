//! What crosses the boundary, and a message as one row of it.

use std::ops::Range;

use crate::column::Column;

/// Named values attached to some messages of a batch; one entry for each attribute, not for each message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The row that each attribute belongs to; ascending.
    pub rows: Vec<u32>,
    /// UTF-8 names. Never absent.
    pub names: Column,
    /// Values; absent is kept apart from empty.
    pub values: Column,
}

/// Messages, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The keys; absent where a message has none.
    pub keys: Column,
    /// The payloads; absent is a tombstone.
    pub values: Column,
    /// Milliseconds since the Unix epoch; as many as there are messages.
    pub event_times: Vec<i64>,
    /// The attributes of all messages.
    pub attributes: Attributes,
    /// When the host received the batch: milliseconds since the Unix epoch.
    pub received_ms: i64,
}

impl Batch {
    /// Messages in the batch.
    pub fn len(&self) -> usize {
        self.event_times.len()
    }

    /// True without messages.
    pub fn is_empty(&self) -> bool {
        self.event_times.is_empty()
    }

    /// The message of a row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn message(&self, row: usize) -> Message<'_> {
        assert!(row < self.len(), "no such row");
        let rows = &self.attributes.rows;
        let attributes = match rows.is_empty() {
            true => 0..0,
            false => rows.partition_point(|of| (*of as usize) < row)..rows.partition_point(|of| *of as usize <= row),
        };
        Message { batch: self, row, attributes }
    }

    /// The messages in order.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        let mut next = 0;
        (0..self.len()).map(move |row| {
            let first = next;
            while self.attributes.rows.get(next) == Some(&(row as u32)) {
                next += 1;
            }
            Message { batch: self, row, attributes: first..next }
        })
    }
}

/// Input rows that the guest cannot handle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// The input rows; strictly ascending.
    pub rows: Vec<u32>,
    /// Why, one for each of them.
    pub reasons: Column,
}

/// What became of a batch. The contract (`guest-sdk/wit/udf.wit`) says what each list must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The rows that go on.
    pub batch: Batch,
    /// The input row of each output row; empty: they are the same, one by one.
    pub origins: Vec<u32>,
    /// The route of each output row; empty: all main.
    pub routes: Vec<u8>,
    /// The rows that could not be handled.
    pub rejected: Rejected,
}

/// One message: a view into its batch, cheap to copy around.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    batch: &'a Batch,
    row: usize,
    attributes: Range<usize>,
}

impl<'a> Message<'a> {
    /// What an emitter holds before there is a message at hand.
    pub(crate) fn first(batch: &'a Batch) -> Self {
        Message { batch, row: 0, attributes: 0..0 }
    }

    /// The payload; `None` is a tombstone, which is not the same as empty.
    #[inline]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.batch.values.get(self.row)
    }

    /// The key, if there is one.
    #[inline]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.batch.keys.get(self.row)
    }

    /// When the thing that the message tells of happened: milliseconds since the Unix epoch.
    #[inline]
    pub fn event_time_ms(&self) -> i64 {
        self.batch.event_times[self.row]
    }

    /// When the host received the message: milliseconds since the Unix epoch. The only clock there is.
    #[inline]
    pub fn received_ms(&self) -> i64 {
        self.batch.received_ms
    }

    /// The attributes in order: name, and value if it isn't absent.
    #[inline]
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let attributes = &self.batch.attributes;
        self.attributes.clone().map(move |i| {
            // The host promises UTF-8; a name that breaks it is as good as none.
            let name = attributes.names.get(i).and_then(|name| std::str::from_utf8(name).ok());
            (name.unwrap_or_default(), attributes.values.get(i))
        })
    }

    /// The value of the first attribute with this name, if it has one.
    pub fn attribute(&self, name: &str) -> Option<&'a [u8]> {
        self.attributes().find(|(found, _)| *found == name)?.1
    }

    /// The place within the batch.
    pub(crate) fn row(&self) -> usize {
        self.row
    }
}
