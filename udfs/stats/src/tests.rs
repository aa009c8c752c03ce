use super::*;
use weir_udf::testing::{Aggregation, Input};

const CONFIG: &str = r#"{"field":"/n"}"#;

fn row(config: &str, numbers: &[&str]) -> String {
    let messages = numbers.iter().map(|number| format!(r#"{{"n":{number}}}"#));
    let fired = Aggregation::<Stats>::new(config).unwrap().run(messages);
    assert_eq!(fired.rejected, []);
    fired.values()[0].to_string()
}

#[test]
fn sums_of_decimals_are_exact() {
    assert_eq!(row(CONFIG, &["0.1"; 10]), r#"{"count":10,"sum":1,"min":0.1,"max":0.1,"mean":0.1}"#);
    assert_eq!(row(CONFIG, &["1.10", "2.2", "3.300"]), r#"{"count":3,"sum":6.6,"min":1.1,"max":3.3,"mean":2.2}"#);
    assert_eq!(
        row(CONFIG, &["9007199254740993", "-0.5", "1e3"]),
        r#"{"count":3,"sum":9007199254741992.5,"min":-0.5,"max":9007199254740993,"mean":3002399751580664.166667}"#
    );
    assert_eq!(row(CONFIG, &["\"12.50\"", "-12.5"]), r#"{"count":2,"sum":0,"min":-12.5,"max":12.5,"mean":0}"#);
}

#[test]
fn the_widest_numbers_fit_and_wider_ones_are_rejected() {
    let wide = "999999999999999999999999999999.999999999999999999999999999";
    let digits = wide.replace('.', "");
    assert_eq!(
        row(CONFIG, &[wide, &format!("-{wide}"), &format!("{digits}e-27")]),
        format!(r#"{{"count":3,"sum":{wide},"min":-{wide},"max":{wide},"mean":333333333333333333333333333333.333333}}"#)
    );
    let mut stats = Aggregation::<Stats>::new(CONFIG).unwrap();
    let fired = stats.run([r#"{"n":1e30}"#, r#"{"n":1e-28}"#, r#"{"n":1e999999999999999999999}"#, r#"{"n":2}"#, r#"{"n":0e99}"#]);
    assert_eq!(fired.values(), [r#"{"count":2,"sum":2,"min":0,"max":2,"mean":1}"#]);
    assert_eq!(fired.rejected.len(), 3);
    assert_eq!(fired.rejected[0].1, "the field /n is a number of too many digits");
}

#[test]
fn the_mean_is_rounded_half_to_even_to_the_digits_asked_for() {
    let mean = |digits: u32, numbers: &[&str]| {
        let row = row(&format!(r#"{{"field":"/n","mean_digits":{digits}}}"#), numbers);
        row.rsplit_once(':').unwrap().1.trim_end_matches('}').to_string()
    };
    assert_eq!(mean(0, &["1", "2"]), "2");
    assert_eq!(mean(0, &["2", "3"]), "2");
    assert_eq!(mean(0, &["-1", "-2"]), "-2");
    assert_eq!(mean(0, &["-2", "-3"]), "-2");
    assert_eq!(mean(0, &["0", "-1"]), "0");
    assert_eq!(mean(1, &["0.15", "0.15"]), "0.2");
    assert_eq!(mean(1, &["0.25", "0.25"]), "0.2");
    assert_eq!(mean(3, &["2", "0", "0"]), "0.667");
    assert_eq!(mean(27, &["1", "0", "0"]), "0.333333333333333333333333333");
    assert_eq!(mean(2, &["1", "0", "0"]), "0.33");
    assert!(Aggregation::<Stats>::new(r#"{"field":"/n","mean_digits":28}"#).is_err());
    assert!(Aggregation::<Stats>::new(r#"{"feild":"/n"}"#).is_err());
}

#[test]
fn what_is_missing_is_left_out_and_what_is_wrong_rejected() {
    let mut stats = Aggregation::<Stats>::new(CONFIG).unwrap();
    let messages = ["{}", r#"{"n":null}"#, r#"{"n":true}"#, "junk"].map(Input::new);
    let fired = stats.run(messages.into_iter().chain([Input::tombstone()]));
    assert_eq!(fired.values(), [r#"{"count":0,"sum":0,"min":null,"max":null,"mean":null}"#]);
    assert_eq!(fired.rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn numbers_of_every_size_and_sign_survive_being_written_down() {
    let mut stats = Aggregation::<Stats>::new(CONFIG).unwrap();
    for digits in 1..30 {
        for number in ["1", "9", "5"].map(|digit| digit.repeat(digits)) {
            for sign in ["", "-"] {
                let number = format!("{sign}{number}");
                let fired = stats.run([format!(r#"{{"n":{number}}}"#), r#"{"n":0}"#.to_string()]);
                assert!(fired.values()[0].contains(&format!(r#""sum":{number},"#)), "{number}");
            }
        }
    }
    for number in -300..300 {
        let fired = stats.run([format!(r#"{{"n":{number}}}"#)]);
        assert!(fired.values()[0].contains(&format!(r#""sum":{number},"#)), "{number}");
    }
    assert_eq!(stats.run([r#"{"n":5}"#]).accumulators, [[1, 0, 1, 5]]);
    assert_eq!(stats.merge(&[&[1], &[1]]).unwrap_err(), "the accumulator is not one of stats");
}
