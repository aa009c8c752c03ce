//! Count, sum, minimum, maximum and mean of a number in the messages of a key and window, exactly.
//!
//! ```yaml
//! steps:
//!   - name: revenue
//!     aggregate: stats.wasm
//!     key: /shop
//!     window: {tumbling: 1h}
//!     config: {field: /amount}
//! ```
//!
//! gives `{"count":3,"sum":6.6,"min":1.1,"max":3.3,"mean":2.2}`. No number goes through a float: the sum of ten times
//! 0.1 is 1. Zeros at the end of a fraction are not written.
//!
//! * `field`: a JSON pointer to a number, or to a string that holds nothing but a number.
//! * `mean_digits`: digits behind the point that the mean may have: 6 by default, 0 to 27. One that has more is rounded to
//!   them, a half to the even digit. All else is never rounded.
//! * `missing`: what becomes of a message without the field, with `null` in it, or without a value (a tombstone): `skip`
//!   (default) leaves it out of everything, `reject` sends it to the dead letters.
//! * `invalid`: the same for a field that holds something else, or a number with more than 30 digits before the point
//!   or more than 27 behind it. Here `reject` is the default.
//!
//! A message that is not JSON goes to the dead letters. Where no message had the field, the row is
//! `{"count":0,"sum":0,"min":null,"max":null,"mean":null}`. The state of a key is a few bytes longer than its numbers.

mod decimal;

use std::io::Write;

use ethnum::I256;
use field::{Field, Otherwise};
use serde::Deserialize;
use weir_udf::{Aggregate, Emitter, Message, Pane, Value, varint};

use decimal::{Decimal, SCALE_MAX};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    field: String,
    #[serde(default = "field::skip")]
    missing: Otherwise,
    #[serde(default = "field::reject")]
    invalid: Otherwise,
    #[serde(default = "six")]
    mean_digits: u32,
}

fn six() -> u32 {
    6
}

/// All numbers have the same scale: they stand for themselves times 10^-scale.
#[derive(Default)]
struct Numbers {
    count: u64,
    scale: u32,
    sum: I256,
    min: I256,
    max: I256,
}

impl Numbers {
    /// Brings this and others to one scale.
    fn align(&mut self, scale: u32) -> I256 {
        if scale > self.scale {
            let factor = decimal::power(scale - self.scale);
            self.scale = scale;
            self.sum *= factor;
            self.min *= factor;
            self.max *= factor;
        }
        decimal::power(self.scale - scale)
    }

    fn take(&mut self, count: u64, scale: u32, [sum, min, max]: [I256; 3]) {
        let factor = self.align(scale);
        let (sum, min, max) = (sum * factor, min * factor, max * factor);
        let first = self.count == 0;
        self.sum += sum;
        self.min = if first { min } else { self.min.min(min) };
        self.max = if first { max } else { self.max.max(max) };
        self.count += count;
    }
}

struct Stats {
    field: Field,
    mean_digits: u32,
}

impl Aggregate for Stats {
    type Config = Config;
    type Accumulator = Numbers;

    fn new(config: Config) -> Result<Self, String> {
        if config.mean_digits > SCALE_MAX {
            return Err(format!("config: mean_digits: at most {SCALE_MAX}"));
        }
        Ok(Stats { field: Field::new(config.field, config.missing, config.invalid)?, mean_digits: config.mean_digits })
    }

    fn add(&mut self, numbers: &mut Numbers, message: Message<'_>) -> Result<(), String> {
        let Some(text) = self.field.number(&message)? else { return Ok(()) };
        match Decimal::read(text.as_bytes()) {
            Some(Decimal { number, scale }) => numbers.take(1, scale, [number; 3]),
            None => return self.field.invalid("a number of too many digits").map(|_: Option<()>| ()),
        }
        Ok(())
    }

    fn encode(&self, numbers: &Numbers, out: &mut Value<'_>) {
        out.push(&varint::encode(numbers.count));
        if numbers.count == 0 {
            return;
        }
        out.push(&[numbers.scale as u8]);
        decimal::write(&numbers.sum, out);
        // A single number is its own least and greatest.
        if numbers.count > 1 {
            decimal::write(&numbers.min, out);
            decimal::write(&numbers.max, out);
        }
    }

    fn merge(&mut self, numbers: &mut Numbers, mut encoded: &[u8]) -> Result<(), String> {
        let mut read = || {
            let count = varint::read(&mut encoded)?;
            if count == 0 {
                return Some(());
            }
            let (scale, rest) = encoded.split_first().filter(|(scale, _)| u32::from(**scale) <= SCALE_MAX)?;
            encoded = rest;
            let sum = decimal::take(&mut encoded)?;
            let (min, max) = match count {
                1 => (sum, sum),
                _ => (decimal::take(&mut encoded)?, decimal::take(&mut encoded)?),
            };
            numbers.take(count, u32::from(*scale), [sum, min, max]);
            Some(())
        };
        read().ok_or_else(|| "the accumulator is not one of stats".to_string())
    }

    fn emit(&mut self, _: Pane<'_>, numbers: &mut Numbers, out: &mut Emitter<'_>) -> Result<(), String> {
        let Numbers { count, scale, sum, min, max } = *numbers;
        out.try_write(|value| match count {
            0 => write!(value, r#"{{"count":0,"sum":0,"min":null,"max":null,"mean":null}}"#),
            _ => {
                let [sum, min, max] = [sum, min, max].map(|number| Decimal { number, scale });
                let mean = sum.divided(count, self.mean_digits);
                write!(value, r#"{{"count":{count},"sum":{sum},"min":{min},"max":{max},"mean":{mean}}}"#)
            }
        })
        .map_err(|e| e.to_string())
    }
}

weir_udf::export_aggregator!(Stats);

#[cfg(test)]
mod tests;
