use super::*;
use weir_udf::testing::{Harness, Input, run};

fn mapped(config: &str, input: impl Into<Input>) -> String {
    let results = run::<Map>(config, [input.into()]);
    assert_eq!(results.rejected, []);
    results.values()[0].to_string()
}

fn refusal(config: &str) -> String {
    Harness::<Map>::new(config).err().unwrap()
}

#[test]
fn fields_are_picked_renamed_moved_and_cast_in_the_order_given() {
    let config =
        r#"{"fields":{"/log/id":{"from":"/logStreamId","cast":"integer"},"/body":"/message","/log/deep":"/a/0/b","/id":"/id"}}"#;
    let text = r#"{"id":"u-1","logStreamId":"1234567","message":"x\ny","a":[{"b":1e400}],"z":0}"#;
    assert_eq!(mapped(config, text), r#"{"log":{"id":1234567,"deep":1e400},"body":"x\ny","id":"u-1"}"#);
}

#[test]
fn constants_keys_attributes_and_times_become_fields() {
    let config = r#"{"fields":{"/c":{"value":0.10},"/n":{"value":null},"/k":{"take":"key"},"/a":{"attribute":"n","cast":"integer"},
        "/t":{"take":"event_time_ms"},"/s":{"take":"event_time_ms","cast":"string"},"/r":{"take":"received_ms"}}}"#;
    let input = Input::new("{}").key("k\"1").attribute("n", "42").event_time_ms(-1_700_000_000_000);
    let expected = r#"{"c":0.10,"n":null,"k":"k\"1","a":42,"t":-1700000000000,"s":"-1700000000000","r":0}"#;
    assert_eq!(mapped(config, input), expected);
}

#[test]
fn a_missing_source_is_omitted_null_or_a_rejection() {
    let config = |missing: &str| format!(r#"{{"fields":{{"/a":"/x","/b/c":"/y","/b/d":"/z"}},"missing":"{missing}"}}"#);
    assert_eq!(mapped(&config("omit"), r#"{"z":1}"#), r#"{"b":{"d":1}}"#);
    assert_eq!(mapped(&config("omit"), r#"{}"#), r#"{"b":{}}"#);
    assert_eq!(mapped(&config("null"), r#"{"z":1}"#), r#"{"a":null,"b":{"c":null,"d":1}}"#);
    assert_eq!(run::<Map>(&config("reject"), [r#"{"x":1}"#]).reason(), "the source of the field /b/c is missing");
    let one = r#"{"fields":{"/a":{"take":"key","missing":"reject"},"/b":"/b"},"missing":"null"}"#;
    assert_eq!(run::<Map>(one, ["{}"]).reason(), "the source of the field /a is missing");
}

#[test]
fn what_cannot_be_cast_is_a_rejection_or_null() {
    let config =
        |invalid: &str| format!(r#"{{"fields":{{"/n":{{"from":"/n","cast":"integer"}},"/m":"/m"}},"invalid":"{invalid}"}}"#);
    let text = r#"{"n":"1.5","m":2}"#;
    assert_eq!(run::<Map>(&config("reject"), [text]).reason(), "the field /n cannot be made: not an integer");
    assert_eq!(mapped(&config("null"), text), r#"{"n":null,"m":2}"#);
    let attribute = Input::new("{}").attribute("a", [0xff]);
    let config = r#"{"fields":{"/a":{"attribute":"a"}}}"#;
    assert_eq!(run::<Map>(config, [attribute]).reason(), "the field /a cannot be made: not UTF-8");
}

#[test]
fn other_fields_can_be_kept() {
    let config =
        r#"{"fields":{"/user_id":{"from":"/uid","cast":"integer"},"/city":"/address/city","/v":{"value":2}},"others":"keep"}"#;
    let text = " { \"uid\":\"7\", \"x\": 1.50 , \"address\":{\"city\":\"B\",\"zip\":\"0\"}, \"v\":1 }\n";
    assert_eq!(
        mapped(config, text),
        r#"{"x": 1.50 , "address":{"zip":"0"},"user_id":7,"city":"B","v":2}"#.replacen("{\"x", "{ \"x", 1)
    );
    assert_eq!(mapped(config, r#"{"uid":1}"#), r#"{"user_id":1,"v":2}"#);
    assert_eq!(mapped(config, r#"{}"#), r#"{"v":2}"#);
    // What is missing and omitted does not take the old field of that name away.
    assert_eq!(mapped(config, r#"{"user_id":5}"#), r#"{"user_id":5,"v":2}"#);
    assert_eq!(run::<Map>(config, ["[]"]).reason(), "the message is no object: other fields cannot be kept");
    // In place: cast under the same name.
    assert_eq!(
        mapped(r#"{"fields":{"/n":{"from":"/n","cast":"string"}},"others":"keep"}"#, r#"{"n":1,"m":2}"#),
        r#"{"m":2,"n":"1"}"#
    );
}

#[test]
fn a_field_can_become_the_whole_message() {
    let config = r#"{"fields":{"":"/payload"}}"#;
    assert_eq!(mapped(config, r#"{"payload":[1, 2]}"#), "[1, 2]");
    assert_eq!(run::<Map>(config, ["{}"]).reason(), "the field that is to be the whole message is missing");
    assert_eq!(mapped(r#"{"fields":{"/all":""}}"#, " [1] "), r#"{"all":[1]}"#);
}

#[test]
fn of_a_name_that_occurs_twice_the_last_counts() {
    assert_eq!(mapped(r#"{"fields":{"/a":"/a"}}"#, r#"{"a":1,"a":2}"#), r#"{"a":2}"#);
}

#[test]
fn a_message_that_is_not_json_is_rejected_and_leaves_no_trace() {
    let results = run::<Map>(r#"{"fields":{"/a":"/a"}}"#, ["{\"a\":1}", "{\"a\":", "{\"a\":3}"]);
    assert_eq!(results.rejected, [(1, "not JSON: expected a value at byte 5".to_string())]);
    assert_eq!(results.values(), [r#"{"a":1}"#, r#"{"a":3}"#]);
    let tombstone = run::<Map>(r#"{"fields":{"/a":"/a"}}"#, [Input::tombstone()]);
    assert_eq!(tombstone.rows[0].value, None);
}

#[test]
fn a_wrong_configuration_is_refused() {
    let fields = |fields: &str| refusal(&format!(r#"{{"fields":{fields}}}"#));
    assert_eq!(fields("{}"), "config: fields: name at least one field");
    assert_eq!(fields(r#"{"/a":{}}"#), "config: fields: /a: give one of `from`, `value`, `attribute`, `take`");
    assert_eq!(
        fields(r#"{"/a":{"from":"/b","take":"key"}}"#),
        "config: fields: /a: give one of `from`, `value`, `attribute`, `take`"
    );
    assert_eq!(
        fields(r#"{"/a":{"value":1,"cast":"string"}}"#),
        "config: fields: /a: `value` is not cast: write it as it is meant"
    );
    assert_eq!(fields(r#"{"/a":"/b/*"}"#), "config: fields: /a: `from` names one value: `*` may stand for many");
    assert_eq!(fields(r#"{"/a":"b"}"#), "`b` is no JSON pointer: it begins with `/`, as in `/user/name`");
    assert_eq!(fields(r#"{"a":"/b"}"#), "config: fields: `a` is no JSON pointer: it begins with `/`, as in `/user/name`");
    assert_eq!(fields(r#"{"/*":"/b"}"#), "config: fields: `/*` names one new field: `*` may stand for many");
    let clash = |pointer: &str| format!("config: fields: `{pointer}` lies in, around or at the place of another field");
    assert_eq!(fields(r#"{"/a":"/x","/a/b":"/y"}"#), clash("/a/b"));
    assert_eq!(fields(r#"{"/a/b":"/x","/a":"/y"}"#), clash("/a"));
    assert_eq!(fields(r#"{"/a":"/x","":"/y"}"#), clash(""));
    let keep = |fields: &str| refusal(&format!(r#"{{"fields":{fields},"others":"keep"}}"#));
    assert_eq!(keep(r#"{"/a/b":"/x"}"#), "config: fields: /a/b: with `others: keep` new fields are top-level, as in `/name`");
    assert_eq!(keep(r#"{"/a":""}"#), "config: fields: /a: with `others: keep` the whole message can't be a field of itself");
}
