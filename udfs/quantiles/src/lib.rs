//! Estimates quantiles of a number in the messages of a key and window.
//!
//! ```yaml
//! steps:
//!   - name: latency
//!     aggregate: quantiles.wasm
//!     key: /service
//!     window: {tumbling: 1m}
//!     config: {field: /duration_ms, quantiles: [0.5, 0.99, 0.999]}
//! ```
//!
//! gives `{"count":1200,"min":0.8,"max":950,"p50":12.1,"p99":240.5,"p99_9":803.2}`. Quantiles come from a DDSketch: each lies within
//! `accuracy` of the true one, whatever the order and grouping of the messages.
//!
//! * `field`: a JSON pointer to a number, or to a string that holds nothing but a number. It is read as a float of 64 bits.
//! * `quantiles`: which, from 0 to 1: `[0.5, 0.95, 0.99]` by default. 0.999 is written as `p99_9`.
//! * `accuracy`: the relative error, 0.001 to 0.1: 0.01 by default. Numbers closer to 0 than 10^-9 count as 0. A key keeps
//!   2048 steps of this width for each sign, at 0.01 from the largest number down to 10^-17 of it; smaller ones fall into the last step.
//! * `missing`: what becomes of a message without the field, with `null` in it, or without a value (a tombstone): `skip`
//!   (default) leaves it out, `reject` sends it to the dead letters.
//! * `invalid`: the same for a field that holds something else, or a number beyond the range of floats. Here `reject` is the default.
//!
//! A message that is not JSON goes to the dead letters. Where no message had the field, all but `count` is null. The state of a key is 9
//! bytes for one number, and at most some kilobytes. Changing `accuracy` of a running pipeline is refused when old state is met.

mod sketch;

use std::io::Write;

use field::{Field, Otherwise};
use serde::Deserialize;
use sketches_ddsketch::Config as Shape;
use weir_udf::{Aggregate, Emitter, Message, Pane, Value};

use sketch::Sketch;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    field: String,
    #[serde(default = "field::skip")]
    missing: Otherwise,
    #[serde(default = "field::reject")]
    invalid: Otherwise,
    #[serde(default = "usual")]
    quantiles: Vec<f64>,
    #[serde(default = "percent")]
    accuracy: f64,
}

fn usual() -> Vec<f64> {
    vec![0.5, 0.95, 0.99]
}

fn percent() -> f64 {
    0.01
}

struct Quantiles {
    field: Field,
    shape: Shape,
    /// Which, and under which name.
    wanted: Vec<(f64, String)>,
    /// Digits of an estimate that mean something.
    digits: usize,
}

/// The name of a quantile: 0.999 is p99_9.
fn name(quantile: f64) -> String {
    // Rounded, since 0.07 times 100 is not 7.
    let percent = (quantile * 1e10).round() / 1e8;
    format!("p{percent}").replace('.', "_")
}

impl Aggregate for Quantiles {
    type Config = Config;
    type Accumulator = Sketch;

    fn new(config: Config) -> Result<Self, String> {
        if config.quantiles.is_empty() || config.quantiles.iter().any(|quantile| !(0.0..=1.0).contains(quantile)) {
            return Err("config: quantiles: one or more numbers from 0 to 1".to_string());
        }
        if !(0.001..=0.1).contains(&config.accuracy) {
            return Err("config: accuracy: 0.001 to 0.1".to_string());
        }
        let wanted = config.quantiles.iter().map(|quantile| (*quantile, name(*quantile))).collect();
        // Two more than the accuracy says: rounding must not add to the error.
        let digits = if config.accuracy < 0.01 { 5 } else { 4 };
        let field = Field::new(config.field, config.missing, config.invalid)?;
        Ok(Quantiles { field, shape: sketch::shape(config.accuracy), wanted, digits })
    }

    fn add(&mut self, sketch: &mut Sketch, message: Message<'_>) -> Result<(), String> {
        let Some(text) = self.field.number(&message)? else { return Ok(()) };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => sketch.add(number, self.shape),
            _ => return self.field.invalid("beyond the range of floats").map(|_: Option<()>| ()),
        }
        Ok(())
    }

    fn encode(&self, sketch: &Sketch, out: &mut Value<'_>) {
        sketch.write(out);
    }

    fn merge(&mut self, sketch: &mut Sketch, encoded: &[u8]) -> Result<(), String> {
        sketch.merge(encoded, self.shape)
    }

    fn clear(&self, sketch: &mut Sketch) {
        sketch.clear();
    }

    fn emit(&mut self, _: Pane<'_>, sketch: &mut Sketch, out: &mut Emitter<'_>) -> Result<(), String> {
        let whole = sketch.whole(self.shape);
        let (min, max) = (whole.min(), whole.max());
        let write = |row: &mut Value<'_>, name: &str, number: Option<f64>| match number {
            Some(number) => write!(row, r#","{name}":{number}"#),
            None => write!(row, r#","{name}":null"#),
        };
        out.try_write(|row| {
            write!(row, r#"{{"count":{}"#, whole.count())?;
            write(row, "min", min)?;
            write(row, "max", max)?;
            for (quantile, name) in &self.wanted {
                let estimate = whole.quantile(*quantile).ok().flatten();
                // Never outside of what there was.
                let within =
                    estimate.zip(min.zip(max)).map(|(estimate, (min, max))| rounded(estimate, self.digits).clamp(min, max));
                write(row, name, within)?;
            }
            row.write_all(b"}")
        })
        .map_err(|e| e.to_string())
    }
}

/// A number with so many digits.
fn rounded(number: f64, digits: usize) -> f64 {
    format!("{number:.*e}", digits - 1).parse().unwrap_or(number)
}

weir_udf::export_aggregator!(Quantiles);

#[cfg(test)]
mod tests;
