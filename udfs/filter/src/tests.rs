use super::*;
use weir_udf::testing::{Harness, Input, run};

/// Whether a message meets a condition: asked once with `keep` and once with `drop`.
fn met(condition: &str, input: impl Into<Input>) -> bool {
    let input = input.into();
    let kept = |how: &str| run::<Filter>(&format!("{{{how:?}:{condition}}}"), [input.clone()]).rows.len() == 1;
    assert_ne!(kept("keep"), kept("drop"));
    kept("keep")
}

fn refusal(config: &str) -> String {
    Harness::<Filter>::new(config).err().unwrap()
}

const TEXT: &str =
    r#"{"s":"b\u0062","n":9007199254740993,"d":1.50,"t":true,"z":null,"o":{},"list":[{"x":1},{"x":2.0}],"at":"2026-01-02T03"}"#;

#[test]
fn each_test_is_met_by_what_it_says() {
    for (condition, expected) in [
        (r#"{"field":"/s","equals":"bb"}"#, true),
        (r#"{"field":"/s","equals":"b"}"#, false),
        (r#"{"field":"/n","equals":9007199254740993}"#, true),
        (r#"{"field":"/n","equals":9007199254740992}"#, false),
        (r#"{"field":"/d","equals":1.5}"#, true),
        (r#"{"field":"/d","equals":"1.50"}"#, false),
        (r#"{"field":"/t","equals":true}"#, true),
        (r#"{"field":"/t","equals":"true"}"#, false),
        (r#"{"field":"/z","equals":null}"#, true),
        (r#"{"field":"/gone","equals":null}"#, false),
        (r#"{"field":"/s","not_equals":"bb"}"#, false),
        (r#"{"field":"/gone","not_equals":"bb"}"#, true),
        (r#"{"field":"/z","not_equals":null}"#, false),
        (r#"{"field":"/s","in":[1,"bb",null]}"#, true),
        (r#"{"field":"/s","in":[]}"#, false),
        (r#"{"field":"/s","not_in":["bb"]}"#, false),
        (r#"{"field":"/gone","not_in":["bb"]}"#, true),
        (r#"{"field":"/z","exists":true}"#, true),
        (r#"{"field":"/gone","exists":true}"#, false),
        (r#"{"field":"/z","missing":true}"#, false),
        (r#"{"field":"/gone","missing":true}"#, true),
        (r#"{"field":"/n","greater":9007199254740992}"#, true),
        (r#"{"field":"/n","greater":9007199254740993}"#, false),
        (r#"{"field":"/n","greater_or_equal":9007199254740993.0}"#, true),
        (r#"{"field":"/d","less":1.51}"#, true),
        (r#"{"field":"/d","less_or_equal":1.5}"#, true),
        (r#"{"field":"/s","less":5}"#, false),
        (r#"{"field":"/n","less":"x"}"#, false),
        (r#"{"field":"/at","greater_or_equal":"2026-01-02"}"#, true),
        (r#"{"field":"/at","less":"2026-01-02"}"#, false),
        (r#"{"field":"/at","contains":"02T"}"#, true),
        (r#"{"field":"/at","contains":""}"#, true),
        (r#"{"field":"/at","prefix":"2026-"}"#, true),
        (r#"{"field":"/at","suffix":"2026-"}"#, false),
        (r#"{"field":"/n","contains":"9"}"#, false),
        (r#"{"field":"/list/*/x","equals":2}"#, true),
        (r#"{"field":"/list/*/x","greater":2}"#, false),
        (r#"{"field":"/o","equals":"{}"}"#, false),
        (r#"{"field":"/o","exists":true}"#, true),
    ] {
        assert_eq!(met(condition, TEXT), expected, "{condition}");
    }
}

#[test]
fn conditions_combine() {
    let (yes, no) = (r#"{"field":"/t","equals":true}"#, r#"{"field":"/t","equals":false}"#);
    assert!(met(&format!(r#"{{"all":[{yes},{yes}]}}"#), TEXT));
    assert!(!met(&format!(r#"{{"all":[{yes},{no}]}}"#), TEXT));
    assert!(met(&format!(r#"{{"any":[{no},{{"not":{no}}}]}}"#), TEXT));
    assert!(!met(&format!(r#"{{"any":[{no},{no}]}}"#), TEXT));
}

#[test]
fn attributes_and_keys_are_looked_at_as_text_and_as_numbers() {
    let input = Input::new("not JSON").key("order-17").attribute("size", "12.0").attribute("env", "prod");
    for (condition, expected) in [
        (r#"{"attribute":"env","equals":"prod"}"#, true),
        (r#"{"attribute":"size","equals":12}"#, true),
        (r#"{"attribute":"size","greater":9}"#, true),
        (r#"{"attribute":"env","greater":9}"#, false),
        (r#"{"attribute":"none","missing":true}"#, true),
        (r#"{"key":true,"prefix":"order-"}"#, true),
        (r#"{"key":true,"suffix":"-18"}"#, false),
    ] {
        assert_eq!(met(condition, input.clone()), expected, "{condition}");
    }
}

#[test]
fn a_tombstone_has_no_fields_and_what_is_not_json_is_rejected() {
    assert!(met(r#"{"field":"/a","missing":true}"#, Input::tombstone()));
    let rejected = run::<Filter>(r#"{"keep":{"field":"/a","missing":true}}"#, ["nonsense"]);
    assert_eq!(rejected.reason(), "not JSON: expected a value at byte 0");
}

#[test]
fn a_wrong_configuration_is_refused() {
    assert_eq!(refusal("{}"), "config: give one of `keep` and `drop`");
    let one = refusal(r#"{"keep":{"field":"/a"}}"#);
    assert!(one.starts_with("config: a condition is one of `all`, `any` and `not`, or one of `field`"), "{one}");
    assert_eq!(refusal(r#"{"keep":{"field":"/a","attribute":"b","exists":true}}"#), one);
    assert_eq!(refusal(r#"{"keep":{"all":[],"any":[]}}"#), one);
    assert_eq!(refusal(r#"{"keep":{"all":[],"exists":true}}"#), one);
    let two = "config: a condition has one test: put several below `all`";
    assert_eq!(refusal(r#"{"keep":{"field":"/a","less":1,"greater":0}}"#), two);
    assert_eq!(refusal(r#"{"keep":{"field":"/a","less":true}}"#), "config: `less` and `greater` take a number or a string");
    assert_eq!(
        refusal(r#"{"keep":{"field":"/a","equals":[1]}}"#),
        "config: compare with a string, a number, a boolean or null, not with [1]"
    );
    assert!(refusal(r#"{"keep":{"field":"/a","equal":1}}"#).contains("unknown field `equal`"));
}
