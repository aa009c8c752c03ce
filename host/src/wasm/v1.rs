//! Version 1 of the guest contract: the only file that sees generated bindings. Turns batches into
//! the contract's records and checks everything that comes back: every length, end, count and row
//! number from a guest is hostile until looked at.

use arrow_array::{Array, BinaryArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use super::limits::Limits;
use crate::batch::{Attributes, Batch};
use crate::error::{Error, Result};

pub mod aggregate;
pub mod fuzz;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../guest-sdk/wit",
        world: "transformer-logging",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

pub(super) use bindings::TransformerLogging as Bindings;
pub(super) use bindings::weir::udf::log;
use bindings::weir::udf::types as wit;

/// What one call gave back, checked.
pub struct Output {
    /// The rows; partitions, offsets and publish times are those of the rows that they came from.
    pub rows: Batch,
    /// The route of each row, as the guest numbers them (0 = main); `None`: all main.
    pub routes: Option<Vec<u8>>,
    /// Input rows that the guest refused, ascending, with its reason.
    pub rejected: Vec<(u32, String)>,
    /// Input rows of which nothing came out and which were not refused.
    pub filtered: u64,
}

fn hostile(what: &'static str) -> Error {
    Error::guest("the module answered with a malformed batch").with("fault", what)
}

/// The pieces of a column that have to live while the guest is called.
struct Lent {
    ends: ScalarBuffer<u32>,
    present: Buffer,
}

impl Lent {
    fn new(array: &BinaryArray) -> Lent {
        let offsets = array.value_offsets();
        if array.null_count() == array.len() {
            return Lent { ends: Vec::new().into(), present: Buffer::from(&[0u8; 0]) };
        }
        let ends = match offsets[0] {
            // The offsets buffer itself, seen as unsigned: offsets are never negative.
            0 => ScalarBuffer::new(array.offsets().inner().inner().clone(), 1, array.len()),
            first => offsets[1..].iter().map(|end| (end - first) as u32).collect::<Vec<_>>().into(),
        };
        let present = match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(nulls) => nulls.inner().sliced(),
            None => Buffer::from(&[0u8; 0]),
        };
        Lent { ends, present }
    }

    fn column<'a>(&'a self, array: &'a BinaryArray) -> wit::ColumnParam<'a> {
        let offsets = array.value_offsets();
        let bytes = match self.ends.is_empty() {
            true => &[],
            false => &array.value_data()[offsets[0] as usize..offsets[array.len()] as usize],
        };
        wit::ColumnParam { bytes, ends: &self.ends, present: &self.present }
    }
}

/// Calls `transform` with the batch. The outer error is a trap; the inner one the guest's own refusal or a malformed answer.
pub(super) fn transform<T>(
    bindings: &Bindings,
    store: &mut wasmtime::Store<T>,
    batch: &Batch,
    limits: &Limits,
    routes: usize,
) -> wasmtime::Result<Result<Output>> {
    let lent = lent(batch);
    let answer = bindings.call_transform(store, param(batch, &lent))?;
    Ok(match answer {
        Ok(output) => check(output, batch, limits, routes),
        Err(reason) => Err(Error::guest("the module refused the batch").with("reason", clip(&reason))),
    })
}

/// What the columns of a batch are lent with, in the order that [`param`] takes.
fn lent(batch: &Batch) -> [Lent; 4] {
    [&batch.keys, &batch.values, &batch.attributes.names, &batch.attributes.values].map(Lent::new)
}

/// The batch as the contract has it.
fn param<'a>(batch: &'a Batch, lent: &'a [Lent; 4]) -> wit::BatchParam<'a> {
    wit::BatchParam {
        keys: lent[0].column(&batch.keys),
        values: lent[1].column(&batch.values),
        event_times: &batch.event_times,
        attributes: wit::AttributesParam {
            rows: &batch.attributes.rows,
            names: lent[2].column(&batch.attributes.names),
            values: lent[3].column(&batch.attributes.values),
        },
        received_ms: batch.received_ms,
    }
}

/// A guest's text, short enough for a log line or an attribute.
pub(super) fn clip(text: &str) -> &str {
    const LONGEST: usize = 1000;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

fn check(output: wit::Output, input: &Batch, limits: &Limits, names: usize) -> Result<Output> {
    let wit::Output { batch, origins, routes, rejected } = output;
    let rows = batch.event_times.len();
    if rows as u64 > limits.output_rows {
        return Err(Error::guest("the module handed back too many rows: raise limits.output_rows or emit less")
            .with("rows", rows)
            .with("limit", limits.output_rows));
    }
    let keys = column(batch.keys, rows, "keys")?;
    let values = column(batch.values, rows, "values")?;
    let attributes = attributes(batch.attributes, rows)?;
    let rejected = rejections(rejected, input.len())?;
    if !routes.is_empty() && (routes.len() != rows || routes.iter().any(|route| *route as usize > names)) {
        return Err(hostile("routes: one for each row, none above the names that configure returned"));
    }
    let bytes = keys.value_data().len() + values.value_data().len() + attributes.values.value_data().len();
    if bytes as u64 > limits.output.0 {
        return Err(Error::guest("the module handed back too many bytes: raise limits.output or emit less")
            .with("bytes", bytes)
            .with("limit", limits.output));
    }
    let mut seen = vec![false; input.len()];
    for (row, _) in &rejected {
        seen[*row as usize] = true;
    }
    let identity = origins.is_empty() && rows > 0;
    if identity {
        if rows != input.len() || !rejected.is_empty() {
            return Err(hostile("origins: empty, but the rows are not those of the input one by one"));
        }
    } else {
        if origins.len() != rows {
            return Err(hostile("origins: one for each row"));
        }
        let refused = seen.clone();
        for origin in &origins {
            match refused.get(*origin as usize) {
                None => return Err(hostile("origins: beyond the input")),
                Some(true) => return Err(hostile("origins: a row was both refused and handed back")),
                Some(false) => seen[*origin as usize] = true,
            }
        }
    }
    let filtered = if identity { 0 } else { seen.iter().filter(|seen| !**seen).count() as u64 };
    let rows = Batch {
        keys,
        values,
        event_times: batch.event_times.into(),
        published: by_origin(&input.published, &origins, identity),
        partitions: by_origin(&input.partitions, &origins, identity),
        offsets: by_origin(&input.offsets, &origins, identity),
        clocks: if input.clocks.is_empty() { input.clocks.clone() } else { by_origin(&input.clocks, &origins, identity) },
        attributes,
        received_ms: input.received_ms,
    };
    Ok(Output { rows, routes: (!routes.is_empty()).then_some(routes), rejected, filtered })
}

fn by_origin<T: Copy + arrow_buffer::ArrowNativeType>(
    column: &ScalarBuffer<T>,
    origins: &[u32],
    identity: bool,
) -> ScalarBuffer<T> {
    match identity {
        true => column.clone(),
        false => origins.iter().map(|origin| column[*origin as usize]).collect::<Vec<T>>().into(),
    }
}

fn rejections(rejected: wit::Rejected, input_rows: usize) -> Result<Vec<(u32, String)>> {
    let reasons = column(rejected.reasons, rejected.rows.len(), "reasons")?;
    let ascending = rejected.rows.windows(2).all(|pair| pair[0] < pair[1]);
    if !ascending || rejected.rows.last().is_some_and(|last| *last as usize >= input_rows) {
        return Err(hostile("rejected rows: ascending, each once, none beyond the input"));
    }
    let reason = |i: usize| match reasons.is_valid(i) {
        true => clip(&String::from_utf8_lossy(reasons.value(i))).to_string(),
        false => "no reason given".to_string(),
    };
    Ok(rejected.rows.iter().enumerate().map(|(i, row)| (*row, reason(i))).collect())
}

fn attributes(attributes: wit::AttributesResult, rows: usize) -> Result<Attributes> {
    let count = attributes.rows.len();
    let ascending = attributes.rows.windows(2).all(|pair| pair[0] <= pair[1]);
    if !ascending || attributes.rows.last().is_some_and(|last| *last as usize >= rows) {
        return Err(hostile("attribute rows: ascending, none beyond the rows"));
    }
    let names = column(attributes.names, count, "attribute names")?;
    if names.null_count() > 0 || (0..count).any(|i| std::str::from_utf8(names.value(i)).is_err()) {
        return Err(hostile("attribute names: present and UTF-8"));
    }
    Ok(Attributes { rows: attributes.rows.into(), names, values: column(attributes.values, count, "attribute values")? })
}

/// A column of exactly `rows` rows, or what is wrong with it.
fn column(column: wit::ColumnResult, rows: usize, what: &'static str) -> Result<BinaryArray> {
    let fault = |fault: &'static str| hostile(fault).with("column", what);
    if column.ends.is_empty() {
        // Every row is absent.
        return Ok(BinaryArray::new_null(rows));
    }
    if column.ends.len() != rows {
        return Err(fault("ends: one for each row"));
    }
    let mut offsets = Vec::with_capacity(rows + 1);
    offsets.push(0i32);
    let mut last = 0u32;
    for end in column.ends {
        if end < last {
            return Err(fault("ends: ascending"));
        }
        last = end;
        offsets.push(end as i32);
    }
    if last as usize > column.bytes.len() || last > i32::MAX as u32 {
        return Err(fault("ends: none beyond the bytes"));
    }
    let nulls = match column.present.is_empty() {
        true => None,
        false if column.present.len() == rows.div_ceil(8) => {
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(column.present), 0, rows)))
        }
        false => return Err(fault("present: one bit for each row, rounded up to bytes")),
    };
    BinaryArray::try_new(OffsetBuffer::new(offsets.into()), Buffer::from_vec(column.bytes), nulls)
        .map_err(|e| fault("not a column of byte strings").because(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_answer_of_a_guest_is_taken_unchecked(bytes in prop::collection::vec(prop_oneof![0u8..6, any::<u8>()], 0..200)) {
            fuzz::entry(&bytes);
        }
    }

    #[test]
    fn a_column_goes_out_and_comes_back_the_same() {
        let array = BinaryArray::from(vec![
            None,
            Some(&b"ab"[..]),
            Some(b""),
            None,
            Some(b"c"),
            Some(b"dd"),
            None,
            Some(b"e"),
            Some(b"f"),
            None,
        ]);
        for (start, length) in [(0, 10), (1, 8), (3, 1), (2, 5)] {
            let part = array.slice(start, length);
            let lent = Lent::new(&part);
            let param = lent.column(&part);
            let back =
                wit::ColumnResult { bytes: param.bytes.to_vec(), ends: param.ends.to_vec(), present: param.present.to_vec() };
            assert_eq!(column(back, length, "values").unwrap(), part);
        }
    }
}
