use super::*;
use std::collections::HashMap;
use weir_udf::testing::Aggregation;

fn message(value: &str) -> String {
    format!(r#"{{"v":{value}}}"#)
}

#[test]
fn the_most_frequent_come_first_and_ties_by_their_bytes() {
    let mut top = Aggregation::<TopK>::new(r#"{"field":"/v","k":3}"#).unwrap();
    let values = [r#""b""#, r#""a""#, "1", r#""\u0062""#, r#""c""#, "1", "{}"];
    let fired = top.run(values.map(message).into_iter().chain(["{}".to_string(), r#"{"v":null}"#.to_string()]));
    assert_eq!(
        fired.values(),
        [r#"{"count":7,"top":[{"value":"b","count":2},{"value":1,"count":2},{"value":"a","count":1}],"error":0}"#]
    );
}

#[test]
fn a_key_without_a_value_has_an_empty_list() {
    let mut top = Aggregation::<TopK>::new(r#"{"field":"/v"}"#).unwrap();
    assert_eq!(top.run(["{}"]).values(), [r#"{"count":0,"top":[],"error":0}"#]);
    let fired = top.run([message(&format!("{:?}", "x".repeat(1024)))]);
    assert_eq!(fired.rejected[0].1, "the field /v is longer than 1024 bytes");
}

/// A stream with few frequent and many rare values.
fn skewed(count: usize) -> Vec<String> {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    (0..count)
        .map(|_| match draw() % 10 {
            0..6 => draw() % 5,
            _ => 100 + draw() % 2000,
        })
        .map(|value| value.to_string())
        .collect()
}

#[test]
fn beyond_the_capacity_counts_are_too_low_by_no_more_than_the_error() {
    let stream = skewed(3000);
    let mut truth: HashMap<&str, u64> = HashMap::new();
    stream.iter().for_each(|value| *truth.entry(value).or_default() += 1);
    let mut top = Aggregation::<TopK>::new(r#"{"field":"/v","k":5,"capacity":50}"#).unwrap();
    let parts: Vec<Vec<u8>> = stream
        .chunks(170)
        .map(|part| top.run_unchecked(part.iter().map(|value| message(value))).accumulators.remove(0))
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let merged = top.merge(&parts).unwrap();
    for state in [merged, top.run_unchecked(stream.iter().map(|value| message(value))).accumulators.remove(0)] {
        let mut summary = Summary::default();
        TopK::new(Config { field: "/v".into(), missing: field::skip(), invalid: field::reject(), k: 5, capacity: Some(50) })
            .unwrap()
            .merge(&mut summary, &state)
            .unwrap();
        assert_eq!(summary.total, 3000);
        assert!(summary.counts.len() <= 50 && summary.error > 0 && summary.error <= 3000 / 51, "{summary:?}");
        let mut names: Vec<&str> = summary.top(5).iter().map(|(value, _)| std::str::from_utf8(value).unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["0", "1", "2", "3", "4"]);
        for (value, count) in &summary.counts {
            let real = truth[std::str::from_utf8(value).unwrap()];
            assert!((real.saturating_sub(summary.error)..=real).contains(count), "{value:?}: {count} of {real}");
        }
    }
}

#[test]
fn wrong_settings_and_foreign_state_are_refused() {
    for config in [r#"{"field":"/v","k":0}"#, r#"{"field":"/v","k":5,"capacity":4}"#, r#"{"k":1}"#, r#"{"field":"/v","n":1}"#] {
        assert!(Aggregation::<TopK>::new(config).is_err(), "{config}");
    }
    let mut top = Aggregation::<TopK>::new(r#"{"field":"/v"}"#).unwrap();
    assert_eq!(top.merge(&[&[1, 0, 1, 9], &[]]).unwrap_err(), "the accumulator is not one of top_k");
}
