//! Runs an aggregator natively: messages in, rows of the windows out, and the laws of merging looked at.

use std::collections::HashMap;
use std::ops::Range;

use super::{Input, Row, batch, read, values};
use crate::aggregate::{Groups, Lists, Panes, Runner};
use crate::column::ColumnBuilder;
use crate::{Aggregate, Column, guest};

/// The fragment of each key.
type Fragments = HashMap<Option<Vec<u8>>, Vec<u8>>;

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The rows, in order. Their `origin` is the pane: the place of its key in the order of their first messages that were taken.
    pub rows: Vec<Row>,
    /// Messages that were rejected, by their place, with the reason.
    pub rejected: Vec<(usize, String)>,
    /// Panes that could not be emitted, with the reason.
    pub failed: Vec<(usize, String)>,
    /// The accumulator of each pane, written down: what the host keeps.
    pub accumulators: Vec<Vec<u8>>,
}

impl Fired {
    /// The values of all rows as text.
    ///
    /// # Panics
    /// If a row is a tombstone or not UTF-8.
    pub fn values(&self) -> Vec<&str> {
        values(&self.rows)
    }
}

/// An aggregator under test. All messages lie in one window; each key has a pane of its own.
///
/// [`Aggregation::run`] handles the messages in one batch, and then again in many other ways: message by message,
/// with the fragments merged from the left, from the right, in halves. All must give the same rows.
pub struct Aggregation<A: Aggregate> {
    slot: guest::Slot<Runner<A>>,
    routes: Vec<String>,
    /// The window, in milliseconds since the Unix epoch: at first the first minute of 1970.
    pub window: Range<i64>,
    /// What panes see as the time at which they fire.
    pub received_ms: i64,
}

impl<A: Aggregate> Aggregation<A> {
    /// An aggregator with the given configuration, as JSON text. Fails as the pipeline's start would.
    pub fn new(config: &str) -> Result<Self, String> {
        let slot = guest::Slot::new(None);
        let routes = guest::configure_aggregate(&slot, config)?;
        Ok(Aggregation { slot, routes, window: 0..60_000, received_ms: 0 })
    }

    /// Hands messages in and fires each key's window once.
    ///
    /// # Panics
    /// If the rows depend on how the messages were split and merged, or the contract is broken: a route that was not
    /// named, or what was written down and cannot be read.
    pub fn run<M: Into<Input>>(&mut self, messages: impl IntoIterator<Item = M>) -> Fired {
        let messages: Vec<Input> = messages.into_iter().map(Into::into).collect();
        let fired = self.once(&messages);
        self.check_laws(&messages, &fired);
        fired
    }

    /// Like [`Aggregation::run`], without looking at the laws: for what only comes close, and differs within its bounds.
    pub fn run_unchecked<M: Into<Input>>(&mut self, messages: impl IntoIterator<Item = M>) -> Fired {
        let messages: Vec<Input> = messages.into_iter().map(Into::into).collect();
        self.once(&messages)
    }

    /// Rewrites accumulators of an older version.
    pub fn migrate(&mut self, version: u32, accumulators: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
        let column = column(accumulators);
        let migrated = self.with(|runner| runner.migrate(version, column))?;
        Ok(owned(&migrated, accumulators.len()))
    }

    /// Merges accumulators as the host does, in one call.
    pub fn merge(&mut self, accumulators: &[&[u8]]) -> Result<Vec<u8>, String> {
        let lists = Lists { fragments: column(accumulators), ends: vec![accumulators.len() as u32] };
        let merged = self.with(|runner| runner.merge(&lists))?;
        Ok(merged.get(0).unwrap_or_default().to_vec())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Runner<A>) -> Result<R, String>) -> Result<R, String> {
        guest::with_runner(&self.slot, f)
    }

    fn once(&self, messages: &[Input]) -> Fired {
        let (mut fragments, rejected) = self.accumulate(messages);
        let taken = (0..messages.len()).filter(|row| rejected.iter().all(|(rejected, _)| rejected != row));
        let panes = taken.filter_map(|row| Some((messages[row].key.clone(), fragments.remove(&messages[row].key)?)));
        let (keys, fragments): (Vec<_>, Vec<_>) = panes.unzip();
        self.fire(&keys, fragments, rejected)
    }

    /// The fragment of each key, and the rejected messages.
    fn accumulate(&self, messages: &[Input]) -> (Fragments, Vec<(usize, String)>) {
        let mut rows: HashMap<Option<Vec<u8>>, Vec<u32>> = HashMap::new();
        for (row, message) in messages.iter().enumerate() {
            rows.entry(message.key.clone()).or_default().push(row as u32);
        }
        let mut groups = Groups::default();
        for rows in rows.values() {
            groups.rows.extend(rows);
            groups.ends.push(groups.rows.len() as u32);
        }
        let batch = batch(messages.iter().cloned(), self.received_ms);
        let (fragments, rejected) = match self.with(|runner| Ok(runner.accumulate(&batch, &groups))) {
            Ok(done) => done,
            Err(reason) => panic!("the batch was refused: {reason}"),
        };
        let of_keys = rows.into_keys().enumerate();
        let fragments = of_keys.filter_map(|(group, key)| Some((key, fragments.get(group)?.to_vec()))).collect();
        let reason = |i| String::from_utf8_lossy(rejected.reasons.get(i).unwrap_or_default()).into_owned();
        let rejected = rejected.rows.iter().enumerate().map(|(i, row)| (*row as usize, reason(i))).collect();
        (fragments, rejected)
    }

    fn fire(&self, keys: &[Option<Vec<u8>>], accumulators: Vec<Vec<u8>>, rejected: Vec<(usize, String)>) -> Fired {
        let count = keys.len();
        let mut key_column = ColumnBuilder::default();
        keys.iter().for_each(|key| key_column.push(key.as_deref()));
        let panes = Panes {
            starts: vec![self.window.start; count],
            ends: vec![self.window.end; count],
            firings: vec![0; count],
            timings: vec![1; count],
            received_ms: self.received_ms,
        };
        let column = column(&accumulators);
        match self.with(|runner| Ok(runner.emit(&panes, key_column.finish(), column))) {
            Ok(output) => {
                let results = read(output, count, &self.routes);
                Fired { rows: results.rows, rejected, failed: results.rejected, accumulators }
            }
            Err(reason) => panic!("the panes were refused: {reason}"),
        }
    }

    /// Splits and merges in every other way.
    fn check_laws(&self, messages: &[Input], expected: &Fired) {
        let good: Vec<Input> = (0..messages.len())
            .filter(|row| expected.rejected.iter().all(|(rejected, _)| rejected != row))
            .map(|row| messages[row].clone())
            .collect();
        let compare = |how: &str, fired: &Fired| {
            let same = fired.rows == expected.rows && fired.failed == expected.failed;
            assert!(same, "{how} gives other rows:\n{:#?}\nthan one batch:\n{:#?}", fired.rows, expected.rows);
        };
        compare("the same without the rejected messages", &self.once(&good));

        let mut keys: Vec<Option<Vec<u8>>> = Vec::new();
        let mut pieces: Vec<Vec<Vec<u8>>> = Vec::new();
        for (row, message) in messages.iter().enumerate() {
            let (mut fragments, rejected) = self.accumulate(std::slice::from_ref(message));
            let known = expected.rejected.iter().find(|(rejected, _)| *rejected == row).map(|(_, reason)| reason);
            assert_eq!(rejected.first().map(|(_, reason)| reason), known, "message {row} by itself is judged otherwise");
            let Some(fragment) = fragments.remove(&message.key) else { continue };
            match keys.iter().position(|key| *key == message.key) {
                Some(place) => pieces[place].push(fragment),
                None => {
                    keys.push(message.key.clone());
                    pieces.push(vec![fragment]);
                }
            }
        }
        // The bytes may differ, the rows may not.
        type Merge<'a> = &'a dyn Fn(&[Vec<u8>]) -> Vec<u8>;
        let ways: [(&str, Merge<'_>); 4] = [
            ("merging message by message at once", &|list| self.join(list)),
            ("merging from the left", &|list| self.leftwards(list)),
            ("merging from the right", &|list| self.rightwards(list)),
            ("merging in halves", &|list| self.halves(list)),
        ];
        for (how, merge) in ways {
            let merged = pieces.iter().map(|list| merge(list)).collect();
            compare(how, &self.fire(&keys, merged, Vec::new()));
        }
        let alone = expected.accumulators.iter().map(|accumulator| self.join(std::slice::from_ref(accumulator))).collect();
        compare("writing down what was read", &self.fire(&keys, alone, Vec::new()));
    }

    /// All in one go; also of one fragment, which the exported `merge` passes on as it is.
    fn join(&self, list: &[Vec<u8>]) -> Vec<u8> {
        let joined = self.with(|runner| runner.join(list.iter().map(Vec::as_slice)));
        joined.unwrap_or_else(|reason| panic!("what was written down cannot be merged: {reason}"))
    }

    fn leftwards(&self, list: &[Vec<u8>]) -> Vec<u8> {
        list[1..].iter().fold(list[0].clone(), |left, right| self.join(&[left, right.clone()]))
    }

    fn rightwards(&self, list: &[Vec<u8>]) -> Vec<u8> {
        let (last, rest) = (&list[list.len() - 1], &list[..list.len() - 1]);
        rest.iter().rev().fold(last.clone(), |right, left| self.join(&[left.clone(), right]))
    }

    fn halves(&self, list: &[Vec<u8>]) -> Vec<u8> {
        match list.len() {
            1 => list[0].clone(),
            count => self.join(&[self.halves(&list[..count / 2]), self.halves(&list[count / 2..])]),
        }
    }
}

fn column(rows: &[impl AsRef<[u8]>]) -> Column {
    let mut builder = ColumnBuilder::default();
    rows.iter().for_each(|row| builder.push(Some(row.as_ref())));
    builder.finish()
}

fn owned(column: &Column, rows: usize) -> Vec<Vec<u8>> {
    (0..rows).map(|row| column.get(row).unwrap_or_default().to_vec()).collect()
}
