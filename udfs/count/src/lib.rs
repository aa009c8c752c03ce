//! Counts the messages of a key and window.
//!
//! ```yaml
//! steps:
//!   - name: clicks_per_minute
//!     aggregate: count.wasm
//!     key: /userId
//!     window: {tumbling: 1m}
//! ```
//!
//! gives `{"count":5}`. It has no settings. A tombstone is a message like any other. A key's count takes one to ten
//! bytes of state, mostly one.

use std::io::Write;

use weir_udf::{Aggregate, Emitter, Message, Pane, Value, varint};

struct Count;

impl Aggregate for Count {
    type Config = ();
    type Accumulator = u64;

    fn new(_: ()) -> Result<Self, String> {
        Ok(Count)
    }

    fn add(&mut self, count: &mut u64, _: Message<'_>) -> Result<(), String> {
        *count += 1;
        Ok(())
    }

    fn encode(&self, count: &u64, out: &mut Value<'_>) {
        out.push(&varint::encode(*count));
    }

    fn merge(&mut self, count: &mut u64, mut encoded: &[u8]) -> Result<(), String> {
        *count += varint::read(&mut encoded).ok_or("the accumulator is not a count")?;
        Ok(())
    }

    fn emit(&mut self, _: Pane<'_>, count: &mut u64, out: &mut Emitter<'_>) -> Result<(), String> {
        out.try_write(|value| write!(value, "{{\"count\":{count}}}")).map_err(|e| e.to_string())
    }
}

weir_udf::export_aggregator!(Count);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::testing::{Aggregation, Input};

    #[test]
    fn the_messages_of_each_key_are_counted_tombstones_too() {
        let messages = (0..1000).map(|i| Input::new("x").key([b'a' + (i % 3) as u8]));
        let mut counts = Aggregation::<Count>::new("null").unwrap();
        let fired = counts.run(messages.chain([Input::tombstone(), Input::tombstone()]));
        assert_eq!(fired.values(), [r#"{"count":334}"#, r#"{"count":333}"#, r#"{"count":333}"#, r#"{"count":2}"#]);
    }

    #[test]
    fn a_count_of_one_takes_one_byte() {
        let mut counts = Aggregation::<Count>::new("{}").unwrap();
        assert_eq!(counts.run(["x"]).accumulators, [[1]]);
    }

    #[test]
    fn settings_are_refused_and_so_is_state_of_something_else() {
        assert!(Aggregation::<Count>::new(r#"{"field":"/x"}"#).is_err());
        let mut counts = Aggregation::<Count>::new("null").unwrap();
        assert_eq!(counts.merge(&[&[1], &[0x80]]).unwrap_err(), "the accumulator is not a count");
    }
}
