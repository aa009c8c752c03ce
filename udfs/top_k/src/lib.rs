//! The most frequent values of a field in the messages of a key and window.
//!
//! ```yaml
//! steps:
//!   - name: top_pages
//!     aggregate: top_k.wasm
//!     key: /site
//!     window: {tumbling: 1h}
//!     config: {field: /page, k: 3}
//! ```
//!
//! gives `{"count":90,"top":[{"value":"/","count":50},{"value":"/cart","count":21},{"value":"/help","count":9}],"error":0}`:
//! the messages that had the field, and its values, the most frequent first, of equally frequent ones in the order of their bytes.
//!
//! * `field`: a JSON pointer. Strings are equal if their text is; other values, if they are written alike (1 and 1.0 differ).
//! * `k`: how many values: 10 by default.
//! * `capacity`: how many different values a key may keep: 1000 by default, at least `k`. As long as there are no more, counts are exact
//!   and `error` is 0. With more, the rarest make room (Misra and Gries), and each count may be too low by up to
//!   `error`, which is at most `count` divided by `capacity` plus one. A value more frequent than `error` is never missed.
//! * `missing`: what becomes of a message without the field, with `null` in it, or without a value (a tombstone): `skip`
//!   (default) leaves it out, `reject` sends it to the dead letters.
//! * `invalid`: the same for a value of more than 1024 bytes. Here `reject` is the default.
//!
//! A message that is not JSON goes to the dead letters. The state of a key is its values, with two to four bytes for each.

mod summary;

use field::{Field, Otherwise};
use serde::Deserialize;
use weir_udf::{Aggregate, Emitter, Message, Pane, Value, varint};

use summary::Summary;

/// The longest value that is kept, in bytes.
const VALUE_MAX: usize = 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    field: String,
    #[serde(default = "field::skip")]
    missing: Otherwise,
    #[serde(default = "field::reject")]
    invalid: Otherwise,
    #[serde(default = "ten")]
    k: usize,
    capacity: Option<usize>,
}

fn ten() -> usize {
    10
}

struct TopK {
    field: Field,
    k: usize,
    capacity: usize,
}

impl Aggregate for TopK {
    type Config = Config;
    type Accumulator = Summary;

    fn new(config: Config) -> Result<Self, String> {
        let capacity = config.capacity.unwrap_or(1000.max(config.k));
        if config.k == 0 || capacity < config.k {
            return Err("config: k must be above 0, and capacity at least k".to_string());
        }
        Ok(TopK { field: Field::new(config.field, config.missing, config.invalid)?, k: config.k, capacity })
    }

    fn add(&mut self, summary: &mut Summary, message: Message<'_>) -> Result<(), String> {
        let Some(value) = self.field.value(&message)? else { return Ok(()) };
        if value.len() > VALUE_MAX {
            let why = format!("longer than {VALUE_MAX} bytes");
            return self.field.invalid(&why).map(|_: Option<()>| ());
        }
        summary.total += 1;
        summary.add(value, 1);
        summary.shrink(self.capacity);
        Ok(())
    }

    fn encode(&self, summary: &Summary, out: &mut Value<'_>) {
        out.push(&varint::encode(summary.total));
        out.push(&varint::encode(summary.error));
        for (value, count) in &summary.counts {
            out.push(&varint::encode(*count));
            out.push(&varint::encode(value.len() as u64));
            out.push(value);
        }
    }

    fn merge(&mut self, summary: &mut Summary, mut encoded: &[u8]) -> Result<(), String> {
        let mut read = || {
            let (total, error) = (varint::read(&mut encoded)?, varint::read(&mut encoded)?);
            while !encoded.is_empty() {
                let (count, length) = (varint::read(&mut encoded)?, varint::read(&mut encoded)?);
                let (value, rest) = encoded.split_at_checked(usize::try_from(length).ok()?)?;
                encoded = rest;
                summary.add(value, count);
            }
            summary.total += total;
            summary.error += error;
            Some(())
        };
        read().ok_or("the accumulator is not one of top_k")?;
        summary.shrink(self.capacity);
        Ok(())
    }

    fn emit(&mut self, _: Pane<'_>, summary: &mut Summary, out: &mut Emitter<'_>) -> Result<(), String> {
        out.write(|row| {
            row.push(format!(r#"{{"count":{},"top":["#, summary.total).as_bytes());
            for (i, (value, count)) in summary.top(self.k).into_iter().enumerate() {
                row.push(if i > 0 { br#",{"value":"# } else { br#"{"value":"# });
                row.push(value);
                row.push(format!(r#","count":{count}}}"#).as_bytes());
            }
            row.push(format!(r#"],"error":{}}}"#, summary.error).as_bytes());
        });
        Ok(())
    }
}

weir_udf::export_aggregator!(TopK);

#[cfg(test)]
mod tests;
