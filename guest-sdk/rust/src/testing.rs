//! Runs a transform or an aggregator natively, as the host would run the module, for its tests.
//! [`Harness`] is for transforms, [`Aggregation`] for aggregators.
//!
//! ```
//! use weir_udf::testing::{Harness, Input};
//! # struct Upper;
//! # impl weir_udf::Transform for Upper {
//! #     type Config = ();
//! #     fn new(_: ()) -> Result<Self, String> { Ok(Upper) }
//! #     fn transform(&mut self, message: weir_udf::Message<'_>, out: &mut weir_udf::Emitter<'_>) -> Result<(), String> {
//! #         let value = message.value().ok_or("no value")?;
//! #         out.emit(value.to_ascii_uppercase());
//! #         Ok(())
//! #     }
//! # }
//! let mut upper = Harness::<Upper>::new("null").unwrap();
//! let results = upper.run([Input::new("a").key("k").event_time_ms(5), Input::tombstone()]);
//! assert_eq!(results.rows[0].value.as_deref(), Some(&b"A"[..]));
//! assert_eq!(results.rows[0].key.as_deref(), Some(&b"k"[..]));
//! assert_eq!(results.rejected, [(1, "no value".to_string())]);
//! ```

mod aggregation;

pub use aggregation::{Aggregation, Fired};

use crate::column::ColumnBuilder;
use crate::{Attributes, Batch, Output, Transform, guest};

/// A message to be handed in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    event_time_ms: i64,
    attributes: Vec<(String, Option<Vec<u8>>)>,
}

impl Input {
    /// A message with this value, without a key, of event time 0.
    pub fn new(value: impl AsRef<[u8]>) -> Self {
        Input { value: Some(value.as_ref().to_vec()), ..Input::default() }
    }

    /// A message without a value.
    pub fn tombstone() -> Self {
        Input::default()
    }

    /// With this key.
    pub fn key(mut self, key: impl AsRef<[u8]>) -> Self {
        self.key = Some(key.as_ref().to_vec());
        self
    }

    /// With this event time: milliseconds since the Unix epoch.
    pub fn event_time_ms(mut self, event_time_ms: i64) -> Self {
        self.event_time_ms = event_time_ms;
        self
    }

    /// With one more attribute.
    pub fn attribute(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.attributes.push((name.to_string(), Some(value.as_ref().to_vec())));
        self
    }
}

impl<T: AsRef<[u8]>> From<T> for Input {
    fn from(value: T) -> Self {
        Input::new(value)
    }
}

/// A row that came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key, if it has one.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Milliseconds since the Unix epoch.
    pub event_time_ms: i64,
    /// Name and value of each attribute.
    pub attributes: Vec<(String, Option<Vec<u8>>)>,
    /// The message that it was made of, by its place in what was handed in.
    pub origin: usize,
    /// The name of its route; `None`: the main output.
    pub route: Option<String>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// Messages that were rejected, by their place, with the reason.
    pub rejected: Vec<(usize, String)>,
    /// Messages of which nothing came out, by their place.
    pub filtered: Vec<usize>,
}

impl Results {
    /// The values of all rows as text.
    ///
    /// # Panics
    /// If a row is a tombstone or not UTF-8.
    pub fn values(&self) -> Vec<&str> {
        values(&self.rows)
    }

    /// The reason for which the only message was rejected.
    ///
    /// # Panics
    /// If it wasn't.
    pub fn reason(&self) -> &str {
        match &self.rejected[..] {
            [(0, reason)] => reason,
            _ => panic!("not one rejected message: {self:?}"),
        }
    }
}

/// A transform under test.
pub struct Harness<T: Transform> {
    slot: guest::Slot<T>,
    routes: Vec<String>,
    /// What messages see as the time at which they were received.
    pub received_ms: i64,
}

impl<T: Transform> Harness<T> {
    /// A transform with the given configuration, as JSON text. Fails as the pipeline's start would.
    pub fn new(config: &str) -> Result<Self, String> {
        let slot = guest::Slot::new(None);
        let routes = guest::configure(&slot, config)?;
        Ok(Harness { slot, routes, received_ms: 0 })
    }

    /// Hands messages in as one batch.
    ///
    /// # Panics
    /// If what comes out breaks the contract: a route that was not named.
    pub fn run<M: Into<Input>>(&mut self, messages: impl IntoIterator<Item = M>) -> Results {
        let batch = batch(messages.into_iter().map(Into::into), self.received_ms);
        let count = batch.len();
        match guest::transform(&self.slot, batch) {
            Ok(output) => read(output, count, &self.routes),
            Err(reason) => panic!("the batch was refused: {reason}"),
        }
    }
}

/// Runs a transform once.
///
/// # Panics
/// If it refuses the configuration.
pub fn run<T: Transform>(config: &str, messages: impl IntoIterator<Item = impl Into<Input>>) -> Results {
    match Harness::<T>::new(config) {
        Ok(mut harness) => harness.run(messages),
        Err(reason) => panic!("the configuration was refused: {reason}"),
    }
}

fn values(rows: &[Row]) -> Vec<&str> {
    fn text(row: &Row) -> &str {
        match row.value.as_deref().map(std::str::from_utf8) {
            Some(Ok(text)) => text,
            Some(Err(_)) => panic!("a value is not UTF-8: {:?}", row.value),
            None => panic!("a row is a tombstone"),
        }
    }
    rows.iter().map(text).collect()
}

fn batch(messages: impl Iterator<Item = Input>, received_ms: i64) -> Batch {
    let (mut keys, mut values) = (ColumnBuilder::default(), ColumnBuilder::default());
    let (mut names, mut attribute_values) = (ColumnBuilder::default(), ColumnBuilder::default());
    let (mut event_times, mut rows) = (Vec::new(), Vec::new());
    for message in messages {
        for (name, value) in &message.attributes {
            rows.push(event_times.len() as u32);
            names.push(Some(name.as_bytes()));
            attribute_values.push(value.as_deref());
        }
        keys.push(message.key.as_deref());
        values.push(message.value.as_deref());
        event_times.push(message.event_time_ms);
    }
    let attributes = Attributes { rows, names: names.finish(), values: attribute_values.finish() };
    Batch { keys: keys.finish(), values: values.finish(), event_times, attributes, received_ms }
}

fn read(output: Output, input_rows: usize, names: &[String]) -> Results {
    let Output { batch, origins, routes, rejected } = output;
    let identity = origins.is_empty() && !batch.is_empty();
    assert!(origins.len() == batch.len() || (identity && batch.len() == input_rows && rejected.rows.is_empty()), "origins");
    let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let row = |(row, message): (usize, crate::Message<'_>)| Row {
        key: owned(message.key()),
        value: owned(message.value()),
        event_time_ms: message.event_time_ms(),
        attributes: message.attributes().map(|(name, value)| (name.to_string(), owned(value))).collect(),
        origin: if identity { row } else { origins[row] as usize },
        route: match routes.get(row) {
            None | Some(0) => None,
            Some(number) => match names.get(*number as usize - 1) {
                Some(name) => Some(name.clone()),
                None => panic!("a row went to route {number}, but only {} were named", names.len()),
            },
        },
    };
    let rows: Vec<Row> = batch.messages().enumerate().map(row).collect();
    let reason = |i: usize| String::from_utf8_lossy(rejected.reasons.get(i).unwrap_or_default()).into_owned();
    let rejected: Vec<(usize, String)> = rejected.rows.iter().enumerate().map(|(i, row)| (*row as usize, reason(i))).collect();
    let mut seen = vec![false; input_rows];
    rows.iter().for_each(|row| seen[row.origin] = true);
    rejected
        .iter()
        .for_each(|(row, _)| assert!(!std::mem::replace(&mut seen[*row], true), "a message was both rejected and emitted"));
    let filtered = (0..input_rows).filter(|row| !seen[*row]).collect();
    Results { rows, rejected, filtered }
}
