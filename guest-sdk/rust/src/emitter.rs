//! Collects what a transform makes of a batch, in the flat buffers that go back to the host. Rows
//! forwarded one after the other are only counted at first and copied as a whole, or, if that is all
//! that ever happened, not at all.

use std::ops::Range;

use crate::Route;
use crate::batch::{Attributes, Batch, Message, Output, Rejected};
use crate::column::ColumnBuilder;

/// Takes what becomes of the message at hand.
#[derive(Debug)]
pub struct Emitter<'a> {
    input: &'a Batch,
    /// The message at hand.
    message: Message<'a>,
    /// Input rows that were forwarded and not copied yet; they follow all rows below.
    run: Range<usize>,
    keys: ColumnBuilder,
    values: ColumnBuilder,
    event_times: Vec<i64>,
    attribute_rows: Vec<u32>,
    attribute_names: ColumnBuilder,
    attribute_values: ColumnBuilder,
    origins: Vec<u32>,
    /// Empty as long as all rows are main.
    routes: Vec<u8>,
    rejected_rows: Vec<u32>,
    reasons: ColumnBuilder,
}

impl<'a> Emitter<'a> {
    fn new(input: &'a Batch) -> Self {
        Emitter {
            input,
            message: Message::first(input),
            run: 0..0,
            keys: ColumnBuilder::default(),
            values: ColumnBuilder::default(),
            event_times: Vec::new(),
            attribute_rows: Vec::new(),
            attribute_names: ColumnBuilder::default(),
            attribute_values: ColumnBuilder::default(),
            origins: Vec::new(),
            routes: Vec::new(),
            rejected_rows: Vec::new(),
            reasons: ColumnBuilder::default(),
        }
    }

    /// Emits a row with this value. Key, event time and attributes are those of the message at hand.
    #[inline]
    pub fn emit(&mut self, value: impl AsRef<[u8]>) {
        self.flush();
        self.values.push(Some(value.as_ref()));
        self.keep_key();
        self.keep_rest();
    }

    /// Like [`Emitter::emit`], with a value that is written piece by piece into the output's buffer.
    #[inline]
    pub fn write(&mut self, write: impl FnOnce(&mut Value<'_>)) {
        self.flush();
        write(&mut Value(self.values.open()));
        self.values.end_row();
        self.keep_key();
        self.keep_rest();
    }

    /// Like [`Emitter::write`], for what may fail: after an error nothing has been emitted.
    #[inline]
    pub fn try_write<E>(&mut self, write: impl FnOnce(&mut Value<'_>) -> Result<(), E>) -> Result<(), E> {
        self.flush();
        if let Err(error) = write(&mut Value(self.values.open())) {
            self.values.undo_open();
            return Err(error);
        }
        self.values.end_row();
        self.keep_key();
        self.keep_rest();
        Ok(())
    }

    /// Passes the message at hand on, unchanged.
    #[inline]
    pub fn forward(&mut self) {
        let row = self.message.row();
        if self.run.end != row || self.run.is_empty() {
            self.flush();
            self.run = row..row;
        }
        self.run.end = row + 1;
    }

    /// Passes the message at hand on, unchanged, to a route.
    #[inline]
    pub fn forward_to(&mut self, route: Route) {
        match route {
            Route::MAIN => self.forward(),
            _ => self.row().to(route).emit(),
        }
    }

    /// A row to be changed and then emitted; it begins as the message at hand, bound for the main output.
    pub fn row(&mut self) -> Row<'_, 'a> {
        self.flush();
        let message = self.message.clone();
        Row {
            key: message.key(),
            value: message.value(),
            event_time_ms: message.event_time_ms(),
            keep_attributes: true,
            new_attributes: self.attribute_rows.len(),
            route: Route::MAIN,
            emitter: self,
        }
    }

    #[inline]
    fn keep_key(&mut self) {
        self.keys.push(self.message.key());
    }

    /// Ends a row whose key and value are there: everything else is the message's, the output the main one.
    #[inline]
    fn keep_rest(&mut self) {
        let row = self.event_times.len() as u32;
        for (name, value) in self.message.attributes() {
            self.attribute_rows.push(row);
            self.attribute_names.push(Some(name.as_bytes()));
            self.attribute_values.push(value);
        }
        self.end(self.message.event_time_ms(), Route::MAIN);
    }

    #[inline]
    fn end(&mut self, event_time_ms: i64, route: Route) {
        if !self.routes.is_empty() || route != Route::MAIN {
            self.routes.resize(self.event_times.len(), Route::MAIN.number());
            self.routes.push(route.number());
        }
        self.event_times.push(event_time_ms);
        self.origins.push(self.message.row() as u32);
    }

    /// Makes ready for a row that is not just forwarded.
    #[inline]
    fn flush(&mut self) {
        if !self.run.is_empty() || self.event_times.capacity() == 0 {
            self.copy_run();
        }
    }

    /// Copies the rows that were only counted.
    #[cold]
    fn copy_run(&mut self) {
        let (input, from, to) = (self.input, self.run.start, self.run.end);
        self.run = 0..0;
        let first = self.event_times.len();
        if self.event_times.capacity() == 0 {
            self.reserve();
        }
        self.keys.extend(&input.keys, from, to);
        self.values.extend(&input.values, from, to);
        self.event_times.extend_from_slice(&input.event_times[from..to]);
        self.origins.extend(from as u32..to as u32);
        if !self.routes.is_empty() {
            self.routes.resize(self.event_times.len(), Route::MAIN.number());
        }
        let attributes = &input.attributes;
        let begin = attributes.rows.partition_point(|row| (*row as usize) < from);
        let end = attributes.rows.partition_point(|row| (*row as usize) < to);
        self.attribute_rows.extend(attributes.rows[begin..end].iter().map(|row| row - from as u32 + first as u32));
        self.attribute_names.extend(&attributes.names, begin, end);
        self.attribute_values.extend(&attributes.values, begin, end);
    }

    /// Room for as much as came in.
    fn reserve(&mut self) {
        let input = self.input;
        self.keys = ColumnBuilder::with_capacity(input.keys.ends.len(), input.keys.bytes.len());
        self.values = ColumnBuilder::with_capacity(input.len(), input.values.bytes.len() + input.len() * 16);
        self.event_times.reserve(input.len());
        self.origins.reserve(input.len());
    }

    /// Undoes what the message at hand emitted.
    fn undo(&mut self) {
        let row = self.message.row();
        if self.run.end == row + 1 && !self.run.is_empty() {
            self.run.end = row;
        }
        // Only the message at hand emits with its own number, so its rows are the last ones.
        let kept = self.origins.iter().rposition(|origin| *origin as usize != row).map_or(0, |last| last + 1);
        self.keys.truncate(kept);
        self.values.truncate(kept);
        self.event_times.truncate(kept);
        self.origins.truncate(kept);
        self.routes.truncate(kept);
        self.keep_attributes(self.attribute_rows.partition_point(|row| (*row as usize) < kept));
    }

    fn reject(&mut self, reason: &str) {
        self.rejected_rows.push(self.message.row() as u32);
        self.reasons.push(Some(reason.as_bytes()));
    }

    /// All that came out, or `None` if that is the input as it came in.
    fn finish(mut self) -> Option<Output> {
        if self.event_times.is_empty() && self.rejected_rows.is_empty() && self.run == (0..self.input.len()) {
            return None;
        }
        self.flush();
        let in_order = || self.origins.iter().enumerate().all(|(row, origin)| row == *origin as usize);
        if self.rejected_rows.is_empty() && self.origins.len() == self.input.len() && in_order() {
            self.origins = Vec::new();
        }
        let attributes = Attributes {
            rows: self.attribute_rows,
            names: self.attribute_names.finish(),
            values: self.attribute_values.finish(),
        };
        Some(Output {
            batch: Batch {
                keys: self.keys.finish(),
                values: self.values.finish(),
                event_times: self.event_times,
                attributes,
                received_ms: self.input.received_ms,
            },
            origins: self.origins,
            routes: self.routes,
            rejected: Rejected { rows: self.rejected_rows, reasons: self.reasons.finish() },
        })
    }

    /// Drops the last attributes until `count` are left.
    fn keep_attributes(&mut self, count: usize) {
        self.attribute_rows.truncate(count);
        self.attribute_names.truncate(count);
        self.attribute_values.truncate(count);
    }
}

/// The value of a row while it is written: behind the values of the rows before it, in the buffer that
/// goes back to the host. Also an [`std::io::Write`], which never fails.
#[derive(Debug)]
pub struct Value<'b>(pub(crate) &'b mut Vec<u8>);

impl Value<'_> {
    /// Appends bytes.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl std::io::Write for Value<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A row on its way: see [`Emitter::row`]. Dropped without [`Row::emit`], nothing comes out.
#[must_use = "call emit()"]
#[derive(Debug)]
pub struct Row<'e, 'a> {
    key: Option<&'e [u8]>,
    value: Option<&'e [u8]>,
    event_time_ms: i64,
    keep_attributes: bool,
    /// Where this row's new attributes begin among the emitter's.
    new_attributes: usize,
    route: Route,
    emitter: &'e mut Emitter<'a>,
}

impl<'e> Row<'e, '_> {
    /// With this key.
    pub fn key(mut self, key: &'e (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Without a key.
    pub fn without_key(mut self) -> Self {
        self.key = None;
        self
    }

    /// With this value.
    pub fn value(mut self, value: &'e (impl AsRef<[u8]> + ?Sized)) -> Self {
        self.value = Some(value.as_ref());
        self
    }

    /// Without a value: a tombstone.
    pub fn without_value(mut self) -> Self {
        self.value = None;
        self
    }

    /// With this event time: milliseconds since the Unix epoch.
    pub fn event_time_ms(mut self, event_time_ms: i64) -> Self {
        self.event_time_ms = event_time_ms;
        self
    }

    /// With this attribute, in place of those of the message that have the same name.
    pub fn attribute(self, name: &str, value: Option<&[u8]>) -> Self {
        let emitter = &mut *self.emitter;
        emitter.attribute_rows.push(emitter.event_times.len() as u32);
        emitter.attribute_names.push(Some(name.as_bytes()));
        emitter.attribute_values.push(value);
        self
    }

    /// Without the attributes of the message; those set by [`Row::attribute`] stay.
    pub fn without_attributes(mut self) -> Self {
        self.keep_attributes = false;
        self
    }

    /// To this route in place of the main output.
    pub fn to(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// Emits the row.
    pub fn emit(self) {
        let (new, set) = (self.new_attributes, self.emitter.attribute_rows.len());
        let emitter = &mut *self.emitter;
        if self.keep_attributes {
            let row = emitter.event_times.len() as u32;
            for (name, value) in emitter.message.attributes() {
                if (new..set).any(|i| emitter.attribute_names.row(i) == Some(name.as_bytes())) {
                    continue;
                }
                emitter.attribute_rows.push(row);
                emitter.attribute_names.push(Some(name.as_bytes()));
                emitter.attribute_values.push(value);
            }
        }
        emitter.keys.push(self.key);
        emitter.values.push(self.value);
        emitter.end(self.event_time_ms, self.route);
    }
}

impl Drop for Row<'_, '_> {
    fn drop(&mut self) {
        // Attributes of a row that was never emitted.
        let rows = self.emitter.event_times.len();
        let kept = self.emitter.attribute_rows.partition_point(|row| (*row as usize) < rows);
        self.emitter.keep_attributes(kept);
    }
}

/// Hands the messages of a batch, with an emitter, to a function whose error rejects the message at hand.
pub(crate) fn run<F>(input: Batch, mut handle: F) -> Output
where
    F: FnMut(Message<'_>, &mut Emitter<'_>) -> Result<(), String>,
{
    let mut out = Emitter::new(&input);
    for message in input.messages() {
        out.message = message.clone();
        if let Err(reason) = handle(message, &mut out) {
            out.undo();
            out.reject(&reason);
        }
    }
    match out.finish() {
        Some(output) => output,
        None => Output { batch: input, ..Output::default() },
    }
}

#[cfg(test)]
#[path = "emitter_tests.rs"]
mod tests;
