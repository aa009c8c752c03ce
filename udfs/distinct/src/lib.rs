//! Estimates how many different values a field has in the messages of a key and window.
//!
//! ```yaml
//! steps:
//!   - name: visitors
//!     aggregate: distinct.wasm
//!     key: /page
//!     window: {tumbling: 1d}
//!     config: {field: /visitor}
//! ```
//!
//! gives `{"distinct":48210}`. Up to a few hundred values the number is exact but for a chance of one in millions; beyond, it is an estimate by
//! HyperLogLog (of Apache DataSketches), whatever the order and grouping of the messages.
//!
//! * `field`: a JSON pointer. Strings are equal if their text is; other values, if they are written alike (1 and 1.0 differ).
//! * `precision`: 4 to 21, 12 by default. The estimate's standard error is 1.04 divided by the root of 2^`precision`: 1.6 %
//!   for 12. The state of a key is 12 bytes for one value and at most about 2^`precision` / 2 bytes: 2 KiB for 12.
//! * `missing`: what becomes of a message without the field, with `null` in it, or without a value (a tombstone): `skip`
//!   (default) leaves it out, `reject` sends it to the dead letters.
//!
//! A message that is not JSON goes to the dead letters. State of another `precision` is read and goes on with the smaller one.

use std::io::Write;

use datasketches::hash::value::raw_bytes;
use datasketches::hll::{HllSketch, HllType, HllUnion};
use field::{Field, Otherwise};
use serde::Deserialize;
use weir_udf::{Aggregate, Emitter, Message, Pane, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    field: String,
    #[serde(default = "field::skip")]
    missing: Otherwise,
    #[serde(default = "twelve")]
    precision: u8,
}

fn twelve() -> u8 {
    12
}

struct Distinct {
    field: Field,
    empty: HllUnion,
}

impl Aggregate for Distinct {
    type Config = Config;
    /// Nothing as long as there is no value.
    type Accumulator = Option<HllUnion>;

    fn new(config: Config) -> Result<Self, String> {
        if !(4..=21).contains(&config.precision) {
            return Err("config: precision: 4 to 21".to_string());
        }
        let empty = HllUnion::new(config.precision).map_err(|e| format!("config: precision: {e}"))?;
        Ok(Distinct { field: Field::new(config.field, config.missing, field::reject())?, empty })
    }

    fn add(&mut self, seen: &mut Option<HllUnion>, message: Message<'_>) -> Result<(), String> {
        if let Some(value) = self.field.value(&message)? {
            seen.get_or_insert_with(|| self.empty.clone()).update_value(raw_bytes::from_slice(value));
        }
        Ok(())
    }

    fn encode(&self, seen: &Option<HllUnion>, out: &mut Value<'_>) {
        if let Some(seen) = seen {
            // Half a byte for each register: the host keeps it far longer than it is worked on.
            out.push(&seen.to_sketch(HllType::Hll4).serialize());
        }
    }

    fn merge(&mut self, seen: &mut Option<HllUnion>, encoded: &[u8]) -> Result<(), String> {
        if !encoded.is_empty() {
            let sketch = HllSketch::deserialize(encoded).map_err(|e| format!("the accumulator is not one of distinct: {e}"))?;
            seen.get_or_insert_with(|| self.empty.clone()).update(&sketch);
        }
        Ok(())
    }

    fn emit(&mut self, _: Pane<'_>, seen: &mut Option<HllUnion>, out: &mut Emitter<'_>) -> Result<(), String> {
        // Not the estimate that depends on the order.
        let distinct = seen.as_ref().map_or(0.0, HllUnion::composite_estimate).round() as u64;
        out.try_write(|value| write!(value, r#"{{"distinct":{distinct}}}"#)).map_err(|e| e.to_string())
    }
}

weir_udf::export_aggregator!(Distinct);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::testing::{Aggregation, Fired};

    fn values(range: std::ops::Range<u64>) -> impl Iterator<Item = String> {
        range.map(|value| format!(r#"{{"v":"visitor-{value}"}}"#))
    }

    fn distinct(fired: &Fired) -> u64 {
        fired.values()[0].trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
    }

    #[test]
    fn few_values_are_counted_exactly_however_often_they_come() {
        let mut test = Aggregation::<Distinct>::new(r#"{"field":"/v"}"#).unwrap();
        let mixed = [r#"{"v":1}"#, r#"{"v":1}"#, r#"{"v":"1"}"#, r#"{"v":"\u0031"}"#, "{}", r#"{"v":null}"#];
        assert_eq!(test.run(mixed).values(), [r#"{"distinct":2}"#]);
        assert_eq!(test.run(["{}"]).values(), [r#"{"distinct":0}"#]);
        assert_eq!(distinct(&test.run(values(0..150).chain(values(50..200)))), 200);
        assert_eq!(test.run(values(0..1)).accumulators[0].len(), 12);
    }

    #[test]
    fn many_values_are_estimated_within_the_error_whatever_the_grouping() {
        let mut test = Aggregation::<Distinct>::new(r#"{"field":"/v"}"#).unwrap();
        let whole = test.run_unchecked(values(0..30_000));
        let estimate = distinct(&whole);
        assert!((29_000..31_000).contains(&estimate), "{estimate}");
        assert!(whole.accumulators[0].len() < 2200, "{}", whole.accumulators[0].len());
        let parts: Vec<Vec<u8>> =
            (0..30).map(|i| test.run_unchecked(values(i * 1000..(i + 1) * 1000)).accumulators.remove(0)).collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut seen = None;
        let config = Config { field: "/v".to_string(), missing: field::skip(), precision: 12 };
        let mut aggregate = Distinct::new(config).unwrap();
        aggregate.merge(&mut seen, &test.merge(&parts).unwrap()).unwrap();
        assert_eq!(seen.unwrap().composite_estimate().round() as u64, estimate);
    }

    #[test]
    fn the_laws_hold_where_few_values_become_many() {
        let mut test = Aggregation::<Distinct>::new(r#"{"field":"/v","precision":8}"#).unwrap();
        test.run(values(0..120));
    }

    #[test]
    fn wrong_settings_and_foreign_state_are_refused() {
        for config in [r#"{"field":"/v","precision":3}"#, r#"{"field":"/v","precision":22}"#, "{}", r#"{"field":"/v","k":1}"#] {
            assert!(Aggregation::<Distinct>::new(config).is_err(), "{config}");
        }
        let mut test = Aggregation::<Distinct>::new(r#"{"field":"/v"}"#).unwrap();
        assert!(test.merge(&[b"x", b"y"]).unwrap_err().starts_with("the accumulator is not one of distinct"));
    }
}
