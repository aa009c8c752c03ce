//! What each type accepts.

use arrow_array::{
    Array, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int32Array, Int64Array,
    LargeBinaryArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};

use super::{refusal, value};

fn long(json: &str) -> i64 {
    value::<Int64Array>("long", json).value(0)
}

fn micros(kind: &str, json: &str) -> i64 {
    value::<TimestampMicrosecondArray>(kind, json).value(0)
}

#[test]
fn a_long_is_exact_to_its_last_bit() {
    assert_eq!(long("9223372036854775807"), i64::MAX);
    assert_eq!(long("-9223372036854775808"), i64::MIN);
    assert_eq!(long("9007199254740993"), 9007199254740993, "a float would make it ...992");
    assert_eq!(refusal("long", "9223372036854775808"), "out of range pointer=/v expected=long found=number 9223372036854775808");
    assert!(refusal("long", "1e400000000000000000000").starts_with("out of range"));
}

#[test]
fn an_int_is_refused_beyond_32_bits() {
    assert_eq!(value::<Int32Array>("int", "-2147483648").value(0), i32::MIN);
    assert_eq!(refusal("int", "2147483648"), "out of range pointer=/v expected=int found=number 2147483648");
}

#[test]
fn a_whole_number_may_have_a_point_or_an_exponent() {
    assert_eq!((long("1e3"), long("1.50E2"), long("-0"), long("0.0"), long("100e-2")), (1000, 150, 0, 0, 1));
    assert_eq!(long("0e99999999999999999999"), 0);
    assert_eq!(refusal("long", "1.5"), "not a whole number pointer=/v expected=long found=number 1.5");
    assert!(refusal("long", "1e-99999999999999999999").starts_with("not a whole number"));
}

#[test]
fn a_number_in_a_string_counts_as_that_number() {
    assert_eq!((long("\"123\""), long("\"-7\""), long("\"1e3\""), long("\"\\u0031\"")), (123, -7, 1000, 1));
    assert_eq!(value::<Float64Array>("double", "\"0.5\"").value(0), 0.5);
    for text in ["\"\"", "\" 1\"", "\"1 \"", "\"+1\"", "\"01\"", "\"-\"", "\"0x1\"", "\"abc\"", "\"NaN\"", "\"-01\""] {
        assert_eq!(refusal("long", text), format!("wrong type pointer=/v expected=long found=string {text}"));
    }
}

#[test]
fn a_decimal_keeps_every_digit_and_is_never_rounded() {
    let decimal = |json: &str| value::<Decimal128Array>("decimal(5,2)", json).value_as_string(0);
    assert_eq!((decimal("1.50"), decimal("1.5"), decimal("1.500"), decimal("-999.99"), decimal("\"12\"")), {
        let s = str::to_string;
        (s("1.50"), s("1.50"), s("1.50"), s("-999.99"), s("12.00"))
    });
    assert_eq!(
        refusal("decimal(5,2)", "1.505"),
        "more digits behind the point than the type has pointer=/v expected=decimal(5,2) found=number 1.505"
    );
    assert_eq!(refusal("decimal(5,2)", "1000"), "out of range pointer=/v expected=decimal(5,2) found=number 1000");
    let most = "9".repeat(38);
    assert_eq!(value::<Decimal128Array>("decimal(38,0)", &most).value(0).to_string(), most);
    assert!(refusal("decimal(38,0)", &format!("{most}9")).starts_with("out of range"));
}

#[test]
fn a_float_is_a_number_or_one_of_three_words() {
    let double = |json: &str| value::<Float64Array>("double", json).value(0);
    assert_eq!((double("0.1"), double("-1e-3"), double("1")), (0.1, -0.001, 1.0));
    assert!(double("\"NaN\"").is_nan());
    assert_eq!((double("\"Infinity\""), double("\"-Infinity\"")), (f64::INFINITY, f64::NEG_INFINITY));
    assert_eq!(value::<Float32Array>("float", "16777217").value(0), 16777216.0);
    assert_eq!(value::<Float32Array>("float", "\"-Infinity\"").value(0), f32::NEG_INFINITY);
    assert_eq!(refusal("double", "1e400"), "out of range pointer=/v expected=double found=number 1e400");
    assert!(refusal("float", "1e39").starts_with("out of range"));
    assert_eq!(refusal("double", "NaN"), "not JSON: NaN and Infinity have to be in quotes pointer=/v at=5");
    assert_eq!(refusal("double", "-Infinity"), "not JSON: NaN and Infinity have to be in quotes pointer=/v at=5");
    assert!(refusal("double", "\"inf\"").starts_with("wrong type"));
}

#[test]
fn a_boolean_is_true_or_false_and_nothing_like_it() {
    assert!(value::<BooleanArray>("boolean", "true").value(0));
    assert!(!value::<BooleanArray>("boolean", "false").value(0));
    for other in ["1", "0", "\"true\"", "[]"] {
        assert!(refusal("boolean", other).starts_with("wrong type pointer=/v expected=boolean found="), "{other}");
    }
    assert_eq!(refusal("boolean", "True"), "not JSON: expected a value pointer=/v at=5");
    assert_eq!(refusal("boolean", "tru"), "not JSON: expected a value pointer=/v at=5");
}

#[test]
fn a_string_column_takes_strings_only() {
    assert_eq!(value::<StringArray>("string", "\"жщ日本\"").value(0), "жщ日本");
    assert_eq!(value::<StringArray>("string", "\"\"").value(0), "");
    assert_eq!(refusal("string", "12.50"), "wrong type pointer=/v expected=string found=number 12.50");
    assert_eq!(refusal("string", "true"), "wrong type pointer=/v expected=string found=boolean true");
    assert_eq!(refusal("string", "{\"a\": [1]}"), "wrong type pointer=/v expected=string found=object {\"a\": [1]}");
}

#[test]
fn escapes_are_resolved_and_surrogates_have_to_be_in_pairs() {
    let json = r#""\"\\\/\b\f\n\r\tA\u0416\ud83d\ude00 plain""#;
    assert_eq!(value::<StringArray>("string", json).value(0), "\"\\/\u{8}\u{c}\n\r\tA\u{416}\u{1F600} plain");
    for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\ud83d""#, r#""\ud83dxxxxxx""#, r#""\ud83d\n""#] {
        assert_eq!(refusal("string", lone), "a lone surrogate in a string, which is no character pointer=/v at=6", "{lone}");
    }
    assert_eq!(refusal("string", r#""\x""#), "not JSON: an unknown escape in a string pointer=/v at=6");
    assert_eq!(refusal("string", r#""\u12g4""#), "not JSON: `\\u` needs four hexadecimal digits pointer=/v at=6");
}

#[test]
fn control_characters_in_strings_are_refused_wherever_they_are() {
    for at in [0, 7, 8, 31, 32, 33, 100] {
        let json = format!("\"{}\u{1f}{}\"", "x".repeat(at), "y".repeat(50));
        assert_eq!(refusal("string", &json), format!("not JSON: a control character in a string pointer=/v at={}", at + 6));
    }
    assert!(value::<StringArray>("string", "\"\u{7f}\u{80}\"").value(0).len() == 3, "DEL and above are allowed");
}

#[test]
fn a_date_is_a_day_of_the_calendar() {
    let date = |json: &str| value::<Date32Array>("date", json).value(0);
    assert_eq!((date("\"1970-01-01\""), date("\"2024-02-29\""), date("\"1969-12-31\"")), (0, 19782, -1));
    assert_eq!(
        refusal("date", "\"2023-02-29\""),
        "no such day pointer=/v expected=date like 2026-01-31 found=string \"2023-02-29\""
    );
    for bad in ["\"2023-13-01\"", "\"2023-00-01\"", "\"2023-01-00\"", "\"1900-02-29\""] {
        assert!(refusal("date", bad).starts_with("no such day"));
    }
    for bad in ["\"2023-1-01\"", "\"20230101\"", "\"2023-01-01T00:00:00\"", "\"+2023-01-01\"", "\"\""] {
        assert!(refusal("date", bad).starts_with("not a date or time of this form"));
    }
}

#[test]
fn a_number_for_a_date_needs_the_unit_days() {
    assert_eq!(
        refusal("date", "19782"),
        "a number without a unit: declare `\"unit\": \"days\"` in the schema pointer=/v expected=date found=number 19782"
    );
    assert_eq!(value::<Date32Array>("\"date\",\"unit\":\"days\"", "19782").value(0), 19782);
    assert_eq!(value::<Date32Array>("\"date\",\"unit\":\"days\"", "\"2024-02-29\"").value(0), 19782);
    assert!(refusal("\"date\",\"unit\":\"days\"", "0.5").starts_with("not a whole number of days"));
}

#[test]
fn a_time_is_of_one_day() {
    let time = |kind: &str, json: &str| value::<Time64MicrosecondArray>(kind, json).value(0);
    assert_eq!(time("time", "\"23:59:59.999999\""), 86_399_999_999);
    assert_eq!((time("time", "\"00:00:01\""), time("time", "\"00:00:00.5\"")), (1_000_000, 500_000));
    for bad in ["\"24:00:00\"", "\"23:60:00\"", "\"23:59:60\""] {
        assert!(refusal("time", bad).starts_with("no such time of day pointer=/v expected=time like"));
    }
    for bad in ["\"23:59\"", "\"23:59:59.\"", "\"23:59:59Z\"", "\"1:00:00\""] {
        assert!(refusal("time", bad).starts_with("not a date or time of this form"));
    }
    assert_eq!(time("\"time\",\"unit\":\"ms\"", "1500"), 1_500_000);
    assert!(refusal("\"time\",\"unit\":\"ms\"", "86400000").starts_with("out of range"));
    assert!(refusal("\"time\",\"unit\":\"ms\"", "-1").starts_with("out of range"));
    assert!(refusal("time", "1500").starts_with("a number without a unit: declare `\"unit\": \"ms\"`"));
}

#[test]
fn a_timestamp_has_no_offset_and_a_timestamptz_needs_one() {
    assert_eq!(micros("timestamp", "\"1970-01-02T00:00:00.25\""), 86_400_250_000);
    assert_eq!(micros("timestamp", "\"1970-01-02 00:00:00\""), 86_400_000_000);
    assert_eq!(
        refusal("timestamp", "\"1970-01-02T00:00:00Z\""),
        "a timestamp without time zone can't have an offset pointer=/v expected=timestamp like 2026-01-31T23:59:59.999999 found=string \"1970-01-02T00:00:00Z\""
    );
    assert_eq!(micros("timestamptz", "\"1970-01-01T01:30:00+01:30\""), 0);
    assert_eq!(micros("timestamptz", "\"1969-12-31T19:00:00-05:00\""), 0);
    assert_eq!(micros("timestamptz", "\"1970-01-01T00:00:00z\""), 0);
    assert!(
        refusal("timestamptz", "\"1970-01-02T00:00:00\"")
            .starts_with("an instant needs its offset, `Z` or like `+01:00` pointer=/v expected=timestamptz like")
    );
    assert!(refusal("timestamptz", "\"1970-01-02T00:00:00+24:00\"").starts_with("no such offset"));
    for bad in ["\"1970-01-02\"", "\"1970-01-02T00:00\"", "\"1970-01-02T00:00:00+0100\"", "\"1970-01-02T00:00:00ZZ\"", "\"0\""] {
        assert!(refusal("timestamptz", bad).starts_with("not a date or time of this form"), "{bad}");
    }
}

#[test]
fn digits_finer_than_microseconds_are_refused_unless_zero() {
    assert_eq!(micros("timestamp", "\"1970-01-01T00:00:00.123456000\""), 123_456);
    assert!(refusal("timestamp", "\"1970-01-01T00:00:00.123456789\"").starts_with("finer than microseconds"));
    assert_eq!(micros("\"timestamp\",\"unit\":\"ns\"", "1000"), 1);
    assert!(refusal("\"timestamp\",\"unit\":\"ns\"", "1001").starts_with("finer than microseconds"));
}

#[test]
fn an_epoch_number_means_what_its_unit_says() {
    let at = |unit: &str, json: &str| micros(&format!("\"timestamptz\",\"unit\":\"{unit}\""), json);
    assert_eq!((at("s", "1700000000"), at("ms", "1700000000000")), (1_700_000_000_000_000, 1_700_000_000_000_000));
    assert_eq!((at("us", "-1"), at("s", "1.5"), at("ms", "1e3")), (-1, 1_500_000, 1_000_000));
    assert_eq!(
        refusal("timestamptz", "1700000000"),
        "a number without a unit: declare `\"unit\": \"ms\"` (or s, us, ns) in the schema pointer=/v expected=timestamptz found=number 1700000000"
    );
    let most = refusal("\"timestamptz\",\"unit\":\"s\"", "9223372036854775807");
    assert!(most.starts_with("out of range"), "{most}");
    assert!(refusal("\"timestamptz\",\"unit\":\"s\"", "999999999999999999").starts_with("out of range"));
    assert!(refusal("\"timestamptz\",\"unit\":\"s\"", "\"1700000000\"").starts_with("not a date or time of this form"));
}

#[test]
fn a_uuid_is_hyphenated_in_either_case() {
    let uuid = value::<FixedSizeBinaryArray>("uuid", "\"F81D4FAE-7dec-11d0-a765-00a0c91e6bf6\"");
    assert_eq!(uuid.value(0)[..4], [0xf8, 0x1d, 0x4f, 0xae]);
    for bad in ["\"f81d4fae7dec11d0a76500a0c91e6bf6\"", "\"f81d4fae-7dec-11d0-a765-00a0c91e6bfx\"", "\"\""] {
        assert!(refusal("uuid", bad).starts_with("not a UUID of the form 8-4-4-4-12 pointer=/v expected=uuid"));
    }
}

#[test]
fn binary_and_fixed_are_base64() {
    let binary = |json: &str| value::<LargeBinaryArray>("binary", json).value(0).to_vec();
    assert_eq!((binary("\"aGk=\""), binary("\"aGk\""), binary("\"\"")), (b"hi".to_vec(), b"hi".to_vec(), vec![]));
    assert!(refusal("binary", "\"a-_=\"").starts_with("not base64 pointer=/v expected=binary"));
    assert_eq!(value::<FixedSizeBinaryArray>("fixed[2]", "\"aGk=\"").value(0), b"hi");
    assert!(refusal("fixed[3]", "\"aGk=\"").starts_with("base64 of another length pointer=/v expected=fixed[3]"));
    assert!(refusal("fixed[3]", "\"***\"").starts_with("not base64"));
}

#[test]
fn what_is_found_is_clipped_in_the_reason() {
    let reason = refusal("long", &format!("\"{}\"", "я".repeat(500)));
    assert_eq!(reason, format!("wrong type pointer=/v expected=long found=string \"{}...", "я".repeat(29)));
}

#[test]
fn null_is_a_value_of_every_optional_type() {
    for kind in ["boolean", "int", "decimal(9,2)", "date", "timestamptz", "string", "uuid", "fixed[4]", "binary"] {
        let column = super::try_value(kind, "null").unwrap();
        assert!(column.is_null(0) && column.len() == 1, "{kind}");
    }
}
