use super::*;
use weir_udf::testing::Aggregation;

fn messages(numbers: impl IntoIterator<Item = f64>) -> Vec<String> {
    numbers.into_iter().map(|number| format!(r#"{{"n":{number}}}"#)).collect()
}

/// The numbers of a row, by name.
fn numbers(row: &str) -> Vec<(String, f64)> {
    let members = row.trim_matches(['{', '}']).split(',');
    members.map(|member| member.split_once(':').unwrap()).map(|(k, v)| (k.trim_matches('"').into(), v.parse().unwrap())).collect()
}

#[test]
fn quantiles_lie_within_the_accuracy_and_no_grouping_changes_them() {
    let mut test = Aggregation::<Quantiles>::new(r#"{"field":"/n","quantiles":[0,0.07,0.5,0.999,1]}"#).unwrap();
    for count in [1, 2, 15, 16, 17, 18, 200] {
        let fired = test.run(messages((0..count).map(|i| ((i * 7919) % count + 1) as f64)));
        for (name, number) in numbers(fired.values()[0]) {
            let rank = |quantile: f64| (quantile * (f64::from(count) - 1.0)).floor() + 1.0;
            let expected = match &name[..] {
                "count" | "max" | "p100" => f64::from(count),
                "min" | "p0" => 1.0,
                "p7" => rank(0.07),
                "p50" => rank(0.5),
                "p99_9" => rank(0.999),
                other => panic!("{other}"),
            };
            assert!((number - expected).abs() <= expected * 0.0101, "{count} {name}: {number} is not {expected}");
        }
    }
}

#[test]
fn negative_numbers_zero_and_strings_are_numbers() {
    let mut test = Aggregation::<Quantiles>::new(r#"{"field":"/n","quantiles":[0.5]}"#).unwrap();
    let fired = test.run([r#"{"n":-2.5}"#, r#"{"n":"-2.5"}"#, r#"{"n":0}"#, "{}", r#"{"n":1e999}"#, r#"{"n":"x"}"#]);
    assert_eq!(fired.values(), [r#"{"count":3,"min":-2.5,"max":0,"p50":-2.484}"#]);
    assert_eq!(fired.rejected[0].1, "the field /n is beyond the range of floats");
    assert_eq!(fired.rejected[1].1, "the field /n is no number");
    assert_eq!(test.run(["{}"]).values(), [r#"{"count":0,"min":null,"max":null,"p50":null}"#]);
}

#[test]
fn the_state_of_one_number_is_nine_bytes_and_of_many_some_kilobytes() {
    let mut test = Aggregation::<Quantiles>::new(r#"{"field":"/n"}"#).unwrap();
    assert_eq!(test.run(messages([1.5])).accumulators[0].len(), 9);
    let many = test.run_unchecked(messages((1..20_000).map(|i| f64::from(i) * 0.01)));
    assert!(many.accumulators[0].len() < 4000, "{}", many.accumulators[0].len());
}

#[test]
fn wrong_settings_and_foreign_state_are_refused() {
    for config in
        ["{}", r#"{"field":"/n","quantiles":[]}"#, r#"{"field":"/n","quantiles":[1.1]}"#, r#"{"field":"/n","accuracy":0}"#]
    {
        assert!(Aggregation::<Quantiles>::new(config).is_err(), "{config}");
    }
    let mut fine = Aggregation::<Quantiles>::new(r#"{"field":"/n","accuracy":0.001}"#).unwrap();
    let state = fine.run(messages((0..20).map(f64::from))).accumulators.remove(0);
    let mut coarse = Aggregation::<Quantiles>::new(r#"{"field":"/n"}"#).unwrap();
    assert!(coarse.merge(&[&state, &state]).unwrap_err().contains("of another `accuracy`"));
    for foreign in [&b"\x07"[..], b"\0\x01", b"\x01junk", b""] {
        assert!(coarse.merge(&[foreign, foreign]).unwrap_err().contains("not one of quantiles"), "{foreign:?}");
    }
}
