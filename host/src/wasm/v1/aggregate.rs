//! The world `aggregator` of version 1: groups, fragments and panes over the boundary, and the checks of what comes back.

use arrow_array::{Array, BinaryArray};

use super::{Lent, Output, check, clip, column, hostile, rejections, wit};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::wasm::limits::Limits;

mod bindings {
    wasmtime::component::bindgen!({
        path: "../guest-sdk/wit",
        world: "aggregator-logging",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: {
            "weir:udf/types": crate::wasm::v1::bindings::weir::udf::types,
            "weir:udf/log": crate::wasm::v1::bindings::weir::udf::log,
        },
    });
}

pub use bindings::AggregatorLogging as Bindings;
pub(super) use bindings::weir::udf::windows;

/// What a batch added to its groups, checked.
pub struct Accumulated {
    /// One for each group; null where the group's rows left nothing.
    pub fragments: BinaryArray,
    /// Rows that the guest refused, ascending, with its reason.
    pub rejected: Vec<(u32, String)>,
}

/// Windows that fire.
#[derive(Clone, Debug)]
pub struct Panes {
    /// One row for each pane: its key, and its accumulator as the value.
    pub rows: Batch,
    /// Where each window begins, in ms.
    pub starts: Vec<i64>,
    /// Where each window ends, in ms.
    pub ends: Vec<i64>,
    /// How often it has fired before.
    pub firings: Vec<u32>,
    /// 0 early, 1 on time, 2 late.
    pub timings: Vec<u8>,
}

impl Panes {
    /// Panes `start..start + length`.
    pub fn slice(&self, start: usize, length: usize) -> Panes {
        let range = start..start + length;
        Panes {
            rows: self.rows.slice(start, length),
            starts: self.starts[range.clone()].to_vec(),
            ends: self.ends[range.clone()].to_vec(),
            firings: self.firings[range.clone()].to_vec(),
            timings: self.timings[range].to_vec(),
        }
    }
}

/// Calls `accumulate`. The outer error is a trap.
pub fn accumulate<T>(
    bindings: &Bindings,
    store: &mut wasmtime::Store<T>,
    batch: &Batch,
    rows: &[u32],
    ends: &[u32],
    limits: &Limits,
) -> wasmtime::Result<Result<Accumulated>> {
    let lent = super::lent(batch);
    let input = super::param(batch, &lent);
    let answer = bindings.call_accumulate(store, input, windows::Groups { rows, ends })?;
    Ok(match answer {
        Ok(accumulated) => checked(accumulated, batch, rows, ends, limits),
        Err(reason) => Err(Error::guest("the module refused the batch").with("reason", clip(&reason))),
    })
}

pub(super) fn checked(
    accumulated: windows::Accumulated,
    batch: &Batch,
    rows: &[u32],
    ends: &[u32],
    limits: &Limits,
) -> Result<Accumulated> {
    let fragments = column(accumulated.fragments, ends.len(), "fragments")?;
    fits(&fragments, limits)?;
    let rejected = rejections(accumulated.rejected, batch.len())?;
    if !rejected.is_empty() {
        // A group of which all rows were refused has none that could be in a fragment.
        let refused = |row: &u32| rejected.binary_search_by_key(row, |(row, _)| *row).is_ok();
        let mut start = 0;
        for (group, end) in ends.iter().enumerate() {
            if fragments.is_valid(group) && rows[start..*end as usize].iter().all(refused) {
                return Err(hostile("fragments: there is one of a group whose rows were all refused"));
            }
            start = *end as usize;
        }
    }
    Ok(Accumulated { fragments, rejected })
}

/// Calls `merge`: list i is `fragments[ends[i - 1]..ends[i]]`.
pub fn merge<T>(
    bindings: &Bindings,
    store: &mut wasmtime::Store<T>,
    fragments: &BinaryArray,
    ends: &[u32],
    limits: &Limits,
) -> wasmtime::Result<Result<BinaryArray>> {
    let lent = Lent::new(fragments);
    let answer = bindings.call_merge(store, windows::Lists { fragments: lent.column(fragments), ends })?;
    Ok(whole(answer, ends.len(), limits))
}

/// Calls `migrate`.
pub fn migrate<T>(
    bindings: &Bindings,
    store: &mut wasmtime::Store<T>,
    version: u32,
    accumulators: &BinaryArray,
    limits: &Limits,
) -> wasmtime::Result<Result<BinaryArray>> {
    let lent = Lent::new(accumulators);
    let answer = bindings.call_migrate(store, version, lent.column(accumulators))?;
    Ok(whole(answer, accumulators.len(), limits))
}

/// Accumulators, none absent.
pub(super) fn whole(
    answer: std::result::Result<wit::ColumnResult, String>,
    count: usize,
    limits: &Limits,
) -> Result<BinaryArray> {
    let answer = answer.map_err(|reason| Error::guest("the module refused accumulators").with("reason", clip(&reason)))?;
    let accumulators = column(answer, count, "accumulators")?;
    if accumulators.null_count() > 0 {
        return Err(hostile("accumulators: none absent"));
    }
    fits(&accumulators, limits)?;
    Ok(accumulators)
}

fn fits(column: &BinaryArray, limits: &Limits) -> Result<()> {
    match column.value_data().len() as u64 {
        bytes if bytes > limits.output.0 => {
            Err(Error::guest("the module handed back too many bytes: raise limits.output or keep smaller accumulators")
                .with("bytes", bytes)
                .with("limit", limits.output))
        }
        _ => Ok(()),
    }
}

/// Calls `emit`: origins of the rows are panes.
pub fn emit<T>(
    bindings: &Bindings,
    store: &mut wasmtime::Store<T>,
    panes: &Panes,
    limits: &Limits,
    routes: usize,
) -> wasmtime::Result<Result<Output>> {
    let (keys, values) = (Lent::new(&panes.rows.keys), Lent::new(&panes.rows.values));
    let input = windows::Panes {
        keys: keys.column(&panes.rows.keys),
        starts: &panes.starts,
        ends: &panes.ends,
        accumulators: values.column(&panes.rows.values),
        firings: &panes.firings,
        timings: &panes.timings,
        received_ms: panes.rows.received_ms,
    };
    Ok(match bindings.call_emit(store, input)? {
        Ok(output) => check(output, &panes.rows, limits, routes),
        Err(reason) => Err(Error::guest("the module refused the panes").with("reason", clip(&reason))),
    })
}
