//! A guest's answer made of arbitrary bytes: what no compiler of ours would let a guest hand back.

use arrow_array::{Array, BinaryArray};

use super::aggregate::{self, windows};
use super::{Lent, Limits, check, column, wit};
use crate::batch::{Batch, BatchBuilder, Origin};

/// Rows of the batch that is being answered.
const INPUT_ROWS: usize = 4;

/// Bytes as numbers and lists. Runs on as zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// Mostly small; 255 says that four bytes follow.
    fn number(&mut self) -> u32 {
        match self.byte() {
            u8::MAX => u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
            small => u32::from(small),
        }
    }

    fn list<T>(&mut self, item: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.byte() % 16).map(|_| item(self)).collect()
    }

    fn column(&mut self) -> wit::ColumnResult {
        wit::ColumnResult { bytes: self.list(Self::byte), ends: self.list(Self::number), present: self.list(Self::byte) }
    }

    fn output(&mut self) -> wit::Output {
        wit::Output {
            origins: self.list(Self::number),
            routes: self.list(Self::byte),
            batch: wit::BatchResult {
                event_times: self.list(|bytes| i64::from(bytes.number())),
                keys: self.column(),
                values: self.column(),
                attributes: wit::AttributesResult { rows: self.list(Self::number), names: self.column(), values: self.column() },
                received_ms: 0,
            },
            rejected: self.rejected(),
        }
    }

    fn rejected(&mut self) -> wit::Rejected {
        wit::Rejected { rows: self.list(Self::number), reasons: self.column() }
    }

    fn accumulated(&mut self) -> windows::Accumulated {
        windows::Accumulated { fragments: self.column(), rejected: self.rejected() }
    }
}

/// Checks answers made of `bytes`: one of a transform, and those of an aggregator.
pub fn entry(bytes: &[u8]) {
    let mut builder = BatchBuilder::new(INPUT_ROWS, INPUT_ROWS);
    for row in 0..INPUT_ROWS {
        builder.push(Some(b"k"), Some(b"v"), Origin { offset: row as i64, ..Origin::default() });
    }
    let input = builder.finish(0);
    output(Bytes(bytes).output(), &input);
    accumulated(Bytes(bytes).accumulated(), &input);
    if let Ok(column) = aggregate::whole(Ok(Bytes(bytes).column()), INPUT_ROWS, &Limits::default()) {
        assert_eq!((column.len(), column.null_count()), (INPUT_ROWS, 0));
        lend(&column);
    }
}

/// What passes has to be sound: every row can be read, taken, and lent to the next guest.
fn output(output: wit::Output, input: &Batch) {
    let times = output.batch.event_times.clone();
    let Ok(good) = check(output, input, &Limits::default(), 2) else { return };
    let rows = good.rows.len();
    assert_eq!(rows, times.len());
    assert!(good.routes.is_none_or(|routes| routes.len() == rows && routes.iter().all(|route| *route <= 2)));
    assert!(good.rejected.len() as u64 + good.filtered <= INPUT_ROWS as u64);
    assert!(good.rows.offsets.iter().all(|offset| (0..INPUT_ROWS as i64).contains(offset)));
    let attributes: usize = (0..rows).map(|row| good.rows.attributes.of(row as u32).count()).sum();
    assert_eq!(attributes, good.rows.attributes.rows.len());
    let all: Vec<u32> = (0..rows as u32).collect();
    for batch in [good.rows.take(&all), Ok(good.rows.slice(rows / 2, rows - rows / 2))] {
        let Ok(batch) = batch else { panic!("rows that passed can't be taken") };
        [&batch.keys, &batch.values, &batch.attributes.names, &batch.attributes.values].into_iter().for_each(lend);
    }
}

/// Two groups of the batch: rows 0 and 1, rows 2 and 3.
fn accumulated(accumulated: windows::Accumulated, input: &Batch) {
    let Ok(good) = aggregate::checked(accumulated, input, &[0, 1, 2, 3], &[2, 4], &Limits::default()) else { return };
    assert_eq!(good.fragments.len(), 2);
    let refused: Vec<u32> = good.rejected.iter().map(|(row, _)| *row).collect();
    assert!(input.take(&refused).is_ok_and(|rows| rows.len() == refused.len()));
    lend(&good.fragments);
}

/// A column that is lent to a guest and handed back is the same.
fn lend(array: &BinaryArray) {
    let lent = Lent::new(array);
    let param = lent.column(array);
    let back = wit::ColumnResult { bytes: param.bytes.to_vec(), ends: param.ends.to_vec(), present: param.present.to_vec() };
    assert!(column(back, array.len(), "lent").is_ok_and(|back| back == *array), "{array:?}");
}
