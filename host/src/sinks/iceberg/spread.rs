//! Which worker owns a row: rows of one table partition meet in one worker's files. Reads only the columns
//! that decide; the rest of each message stays as it is.

use super::partition::Partitioner;
use super::table::Layout;
use crate::batch::{Batch, Rejected};
use crate::columnar::{Decoder, Options, Schema};
use crate::error::Result;
use crate::sink::Distribution;

/// Past so many table partitions their numbers are drawn anew, which bounds the memory.
const MOST_KNOWN: usize = 100_000;

/// Spreads rows by their table partition.
pub struct Spread {
    decoder: Decoder,
    partitioner: Partitioner,
    numbers: Vec<u32>,
}

impl Spread {
    pub(super) fn new(layout: &Layout) -> Result<Spread> {
        let partitioner = Partitioner::new(layout)?;
        let wanted: Vec<&str> = partitioner.columns().collect();
        let fields = layout.columns.fields.iter().filter(|f| wanted.contains(&f.name.as_str())).cloned().collect();
        // The owner of a row decodes it in full, and rejects what is bad behind these columns.
        let decoder = Decoder::new(&Schema::new(fields), Options { partial: true, ..Options::default() })?;
        Ok(Spread { decoder, partitioner, numbers: Vec::new() })
    }
}

impl Distribution for Spread {
    fn split(&mut self, batch: Batch, workers: u32) -> Result<(Vec<(u32, Batch)>, Vec<Rejected>)> {
        if self.partitioner.len() > MOST_KNOWN {
            self.partitioner.forget();
        }
        let decoded = self.decoder.decode(&batch)?;
        self.numbers.clear();
        self.partitioner.number(&decoded.rows, &mut self.numbers)?;
        let mut rows = vec![Vec::new(); workers as usize];
        for (i, number) in self.numbers.iter().enumerate() {
            let worker = self.partitioner.place(*number) % u64::from(workers);
            rows[worker as usize].push(decoded.taken.get(i).copied().unwrap_or(i as u32));
        }
        let rejected = super::writer::rejected(&batch, decoded.rejected)?;
        let mut parts = Vec::with_capacity(rows.len());
        for (worker, rows) in rows.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let part = if rows.len() == batch.len() { batch.clone() } else { batch.take(&rows)? };
            parts.push((worker as u32, part));
        }
        Ok((parts, rejected))
    }
}
