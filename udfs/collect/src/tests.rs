use super::*;
use weir_udf::testing::{Aggregation, Fired, Input};

fn run(config: &str, messages: &[&str]) -> Fired {
    Aggregation::<Collect>::new(config).unwrap().run(messages)
}

#[test]
fn messages_stand_in_one_row_as_they_are() {
    let fired = run("null", &[r#"{"a": 1.50}"#, " [] ", "null"]);
    assert_eq!(fired.values(), [r#"{"count":3,"messages":[{"a": 1.50},[],null],"dropped":0}"#]);
    let fired = Aggregation::<Collect>::new("null").unwrap().run([Input::tombstone()]);
    assert_eq!(fired.values(), [r#"{"count":1,"messages":[null],"dropped":0}"#]);
}

#[test]
fn what_is_not_json_is_rejected_or_taken_as_text() {
    let fired = run("null", &["1", "{\"a\":", "2"]);
    assert_eq!(fired.values(), [r#"{"count":2,"messages":[1,2],"dropped":0}"#]);
    assert!(fired.rejected[0].1.starts_with("not JSON"));
    let fired = run(r#"{"messages":"text"}"#, &["say \"hi\"\n", ""]);
    assert_eq!(fired.values(), [r#"{"count":2,"messages":["say \"hi\"\n",""],"dropped":0}"#]);
    let fired = Aggregation::<Collect>::new(r#"{"messages":"text"}"#).unwrap().run([&b"\xff"[..]]);
    assert_eq!(fired.rejected[0].1, "the message is not UTF-8");
}

#[test]
fn beyond_the_count_the_first_messages_stay_and_the_others_are_counted() {
    let messages: Vec<String> = (0..50).map(|i| i.to_string()).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let fired = run(r#"{"max_count":3}"#, &messages);
    assert_eq!(fired.values(), [r#"{"count":3,"messages":[0,1,2],"dropped":47}"#]);
}

#[test]
fn beyond_the_bytes_a_row_ends_at_the_first_message_that_does_not_fit() {
    // The third would fit again, but must not jump the queue.
    let fired = run(r#"{"max_bytes":10}"#, &["12345", "678901", "2", "3"]);
    assert_eq!(fired.values(), [r#"{"count":1,"messages":[12345],"dropped":3}"#]);
    let fired = run(r#"{"max_bytes":10}"#, &["1", "12345678901"]);
    assert_eq!(fired.rejected, [(1, "the message has 11 bytes: max_bytes is 10".to_string())]);
}

#[test]
fn the_state_of_a_flood_stays_within_bounds_and_its_row_the_same() {
    let messages: Vec<String> = (1000..1400).map(|i| i.to_string()).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let fired = run(r#"{"max_bytes":40}"#, &messages);
    let first: Vec<String> = (1000..1010).map(|i| i.to_string()).collect();
    assert_eq!(fired.values(), [format!(r#"{{"count":10,"messages":[{}],"dropped":390}}"#, first.join(","))]);
    assert!(fired.accumulators[0].len() <= 2 * 40 + 64, "{}", fired.accumulators[0].len());
}

#[test]
fn merging_puts_bytes_behind_bytes() {
    let mut collect = Aggregation::<Collect>::new("null").unwrap();
    let [a, b] = ["[1]", "{}"].map(|message| collect.run([message]).accumulators.remove(0));
    assert_eq!(collect.merge(&[&a, &b]).unwrap(), [a, b].concat());
    assert_eq!(list::measure(&[200], Limits { count: 1, bytes: 1 }).unwrap_err(), "the accumulator is not one of collect");
}

#[test]
fn limits_of_nothing_are_refused() {
    assert!(Aggregation::<Collect>::new(r#"{"max_count":0}"#).is_err());
    assert!(Aggregation::<Collect>::new(r#"{"max_bytes":0}"#).is_err());
    assert!(Aggregation::<Collect>::new(r#"{"max_size":1}"#).is_err());
}
