//! Columns while they are filled. Each can be cut back to an earlier length, so that a message that turns out to be
//! bad in the middle leaves nothing behind. Owns no rule of what a value may be.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray, PrimitiveArray};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer};

use crate::error::{Error, Result};

/// Room that a column begins with; it grows by itself.
const ROWS: usize = 1024;

/// Which values are there. Costs a counter until the first null.
pub fn nulls() -> NullBufferBuilder {
    NullBufferBuilder::new(ROWS)
}

/// What Arrow's own checks refuse would be a mistake of ours.
pub fn bug(e: arrow_schema::ArrowError) -> Error {
    Error::bug("the decoder filled a column wrongly").because(e)
}

/// Values of a fixed size.
pub struct Plain<T> {
    pub values: Vec<T>,
    nulls: NullBufferBuilder,
}

impl<T: Copy + Default> Plain<T> {
    pub fn new() -> Self {
        Plain { values: Vec::new(), nulls: nulls() }
    }

    #[inline(always)]
    pub fn push(&mut self, value: T) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    /// A null, or where the column can't hold one a value that nobody sees.
    pub fn push_absent(&mut self, null: bool) {
        self.values.push(T::default());
        self.nulls.append(!null);
    }

    pub fn truncate(&mut self, length: usize) {
        self.values.truncate(length);
        self.nulls.truncate(length);
    }

    pub fn finish<A: ArrowPrimitiveType<Native = T>>(&mut self) -> PrimitiveArray<A>
    where
        Buffer: From<Vec<T>>,
        T: arrow_buffer::ArrowNativeType,
    {
        let values = std::mem::take(&mut self.values);
        // The next batch is most likely of the same size.
        self.values.reserve(values.len());
        PrimitiveArray::new(values.into(), self.nulls.finish())
    }
}

/// True or false.
pub struct Bits {
    pub values: BooleanBufferBuilder,
    nulls: NullBufferBuilder,
}

impl Bits {
    pub fn new() -> Self {
        Bits { values: BooleanBufferBuilder::new(0), nulls: nulls() }
    }

    #[inline(always)]
    pub fn push(&mut self, value: bool) {
        self.values.append(value);
        self.nulls.append_non_null();
    }

    pub fn push_absent(&mut self, null: bool) {
        self.values.append(false);
        self.nulls.append(!null);
    }

    pub fn truncate(&mut self, length: usize) {
        self.values.truncate(length);
        self.nulls.truncate(length);
    }

    pub fn finish(&mut self) -> ArrayRef {
        Arc::new(BooleanArray::new(self.values.finish(), self.nulls.finish()))
    }
}

/// Byte strings, all of one length.
pub struct FixedBytes {
    pub width: usize,
    pub values: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl FixedBytes {
    pub fn new(width: usize) -> Self {
        FixedBytes { width, values: Vec::new(), nulls: nulls() }
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    #[inline(always)]
    pub fn push(&mut self, value: &[u8]) {
        self.values.extend_from_slice(value);
        self.end();
    }

    /// Ends the value whose bytes have been added to `values`.
    pub fn end(&mut self) {
        self.nulls.append_non_null();
    }

    pub fn push_absent(&mut self, null: bool) {
        self.values.resize(self.values.len() + self.width, 0);
        self.nulls.append(!null);
    }

    pub fn truncate(&mut self, length: usize) {
        self.values.truncate(length * self.width);
        self.nulls.truncate(length);
    }

    pub fn order(&self, a: usize, b: usize) -> Ordering {
        let value = |i: usize| &self.values[i * self.width..(i + 1) * self.width];
        value(a).cmp(value(b))
    }

    pub fn finish(&mut self) -> Result<ArrayRef> {
        let values = Buffer::from(std::mem::take(&mut self.values));
        let array = FixedSizeBinaryArray::try_new(self.width as i32, values, self.nulls.finish());
        Ok(Arc::new(array.map_err(bug)?))
    }
}

/// Byte strings of any length.
pub struct Bytes {
    pub values: Vec<u8>,
    offsets: Vec<i64>,
    nulls: NullBufferBuilder,
}

impl Bytes {
    pub fn new() -> Self {
        Bytes { values: Vec::new(), offsets: vec![0], nulls: nulls() }
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Ends the value whose bytes have been added to `values`.
    pub fn end(&mut self) {
        self.offsets.push(self.values.len() as i64);
        self.nulls.append_non_null();
    }

    pub fn push_absent(&mut self, null: bool) {
        self.offsets.push(self.values.len() as i64);
        self.nulls.append(!null);
    }

    pub fn truncate(&mut self, length: usize) {
        self.offsets.truncate(length + 1);
        self.values.truncate(self.offsets.last().map_or(0, |end| *end as usize));
        self.nulls.truncate(length);
    }

    pub fn order(&self, a: usize, b: usize) -> Ordering {
        let value = |i: usize| &self.values[self.offsets[i] as usize..self.offsets[i + 1] as usize];
        value(a).cmp(value(b))
    }

    pub fn finish(&mut self) -> Result<ArrayRef> {
        let offsets = OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into());
        let values = Buffer::from(std::mem::take(&mut self.values));
        Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, self.nulls.finish()).map_err(bug)?))
    }
}

/// How many values each list or map has.
pub struct Lengths {
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Lengths {
    pub fn new() -> Self {
        Lengths { offsets: vec![0], nulls: nulls() }
    }

    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Where the next list's values begin.
    pub fn end(&self) -> usize {
        self.offsets.last().map_or(0, |end| *end as usize)
    }

    /// Ends a list whose values go to `end`. No message is so large that this could overflow: see `Decoder::decode`.
    pub fn push(&mut self, end: usize) {
        self.offsets.push(end as i32);
        self.nulls.append_non_null();
    }

    pub fn push_absent(&mut self, null: bool) {
        self.offsets.push(self.end() as i32);
        self.nulls.append(!null);
    }

    pub fn truncate(&mut self, length: usize) {
        self.offsets.truncate(length + 1);
        self.nulls.truncate(length);
    }

    pub fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        (OffsetBuffer::new(std::mem::replace(&mut self.offsets, vec![0]).into()), self.nulls.finish())
    }
}
