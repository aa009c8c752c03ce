//! Messages as a whole: objects, nesting, and what a bad message leaves behind.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ListArray, MapArray, StringArray, StructArray};

use super::{batch, decode, refusal, schema, try_value, value};
use crate::batch::{BatchBuilder, Origin};
use crate::columnar::{Decoder, Kind, MAX_DEPTH, Options};

/// The reason for which a message is refused by a schema of `id: required long, name: string`.
fn reason(message: impl AsRef<[u8]>) -> String {
    let schema = schema(r#"{"name":"id","required":true,"type":"long"},{"name":"name","type":"string"}"#);
    let decoded = decode(&schema, &[message.as_ref()]);
    assert_eq!((decoded.rows.num_rows(), decoded.rejected.len()), (0, 1));
    decoded.rejected[0].1.clone()
}

#[test]
fn a_message_has_to_be_one_object() {
    assert_eq!(reason(""), "the message is empty");
    assert_eq!(reason(" \n"), "the message is empty");
    assert_eq!(reason("\u{feff}{}"), "the message begins with a byte order mark");
    assert_eq!(reason("[1, 2]"), "wrong type expected=object found=array [1, 2]");
    assert_eq!(reason("\"x\""), "wrong type expected=object found=string \"x\"");
    assert_eq!(reason("null"), "wrong type expected=object found=null");
    assert_eq!(reason("hello"), "not JSON: expected a value at=0");
    assert_eq!(reason("{\"id\":1} x"), "not JSON: something follows the message's object at=9");
    assert_eq!(reason("{\"id\":1}{\"id\":2}"), "not JSON: something follows the message's object at=8");
}

#[test]
fn a_tombstone_is_refused_for_what_it_is() {
    let schema = schema(r#"{"name":"id","type":"long"}"#);
    let mut builder = BatchBuilder::new(2, 0);
    builder.push(Some(b"k"), None, Origin::default());
    builder.push(Some(b"k"), Some(b"{}"), Origin::default());
    let decoded = Decoder::new(&schema, Options::default()).unwrap().decode(&builder.finish(0)).unwrap();
    assert_eq!(decoded.rejected, [(0, "the message has no value (a tombstone)".to_string())]);
    assert_eq!(decoded.taken, [1]);
}

#[test]
fn broken_json_is_refused_with_its_place() {
    for (message, expected) in [
        ("{\"id\":1", "not JSON: expected `,` or `}` at=7"),
        ("{\"id\":1 \"name\":\"x\"}", "not JSON: expected `,` or `}` at=8"),
        ("{\"id\":1,}", "not JSON: expected a key in quotes at=8"),
        ("{id:1}", "not JSON: expected a key in quotes at=1"),
        ("{'id':1}", "not JSON: expected a key in quotes at=1"),
        ("{\"id\" 1}", "not JSON: expected `:` pointer=/id at=6"),
        ("{\"id\":}", "not JSON: expected a value pointer=/id at=6"),
        ("{\"id\":", "not JSON: it ends where a value should be pointer=/id at=6"),
        ("{\"id\":01}", "not JSON: a number with a leading zero pointer=/id at=7"),
        ("{\"id\":1.}", "not JSON: a number without the digits that its point or exponent needs pointer=/id at=8"),
        ("{\"id\":1e}", "not JSON: a number without the digits that its point or exponent needs pointer=/id at=8"),
        ("{\"id\":+1}", "not JSON: expected a value pointer=/id at=6"),
        ("{\"id\":-}", "not JSON: expected a value pointer=/id at=6"),
        ("{\"name\":\"abc", "not JSON: a string without its closing quote pointer=/name at=12"),
        ("{\"other\":[1,2}", "not JSON: expected `,` or `]` pointer=/other at=13"),
        ("{\"other\":[1,]}", "not JSON: expected a value pointer=/other/1 at=12"),
        ("{\"other\":nul}", "not JSON: expected a value pointer=/other at=9"),
        ("{\"id\":1}\u{b}", "not JSON: something follows the message's object at=8"),
    ] {
        assert_eq!(reason(message), expected, "{message}");
    }
}

#[test]
fn what_is_not_utf8_is_refused_and_its_neighbours_are_not() {
    let schema = schema(r#"{"name":"name","type":"string"}"#);
    let good = "{\"name\":\"ж\"}".as_bytes();
    let mut cut = good.to_vec();
    cut.truncate(10);
    let mut rest = vec![good[10]];
    rest.extend_from_slice(b"{}");
    let decoded = decode(&schema, &[good, b"{\"name\":\"\xff\"}", good]);
    assert_eq!(decoded.taken, [0, 2]);
    assert_eq!(decoded.rejected, [(1, "not UTF-8 at=9".to_string())]);
    // Two messages that only together are UTF-8: the character is cut between them.
    let decoded = decode(&schema, &[good, &cut[..], &rest[..], good]);
    assert_eq!(decoded.taken, [0, 3]);
    assert_eq!(decoded.rejected, [(1, "not UTF-8 at=9".to_string()), (2, "not UTF-8 at=0".to_string())]);
}

#[test]
fn required_fields_have_to_be_there_and_optional_ones_need_not() {
    assert_eq!(reason("{}"), "a required field is missing pointer=/id expected=long");
    assert_eq!(reason("{\"id\":null}"), "null in a required field pointer=/id expected=long found=null");
    let schema = schema(r#"{"name":"a","type":"long"},{"name":"b","type":"string"}"#);
    let decoded = decode(&schema, &["{\"b\":\"x\"}", "{\"a\":null}", "{ }"]);
    assert_eq!(decoded.taken, [0, 1, 2]);
    assert_eq!((decoded.rows.column(0).null_count(), decoded.rows.column(1).null_count()), (3, 2));
}

#[test]
fn a_key_that_is_there_twice_refuses_the_message() {
    assert_eq!(reason("{\"id\":1,\"id\":2}"), "the field is there twice pointer=/id");
    assert_eq!(reason("{\"id\":1,\"name\":null,\"\\u006eame\":\"x\"}"), "the field is there twice pointer=/name");
}

#[test]
fn fields_come_in_any_order_and_with_any_white_space() {
    let schema = schema(r#"{"name":"a","type":"long"},{"name":"b","type":"long"},{"name":"c \"q\"","type":"long"}"#);
    let messages = [
        "{\"a\":1,\"b\":2,\"c \\\"q\\\"\":3}",
        "\t{ \"c \\\"q\\\"\" : 3 ,\r\n \"b\" :2, \"a\": 1 } \n",
        "{\"\\u0063 \\u0022q\\\"\":3,\"a\":1,\"b\":2}",
    ];
    let decoded = decode(&schema, &messages);
    assert_eq!(decoded.rejected, []);
    for (i, column) in decoded.rows.columns().iter().enumerate() {
        assert_eq!(column.as_primitive::<Int64Type>().values().to_vec(), [i as i64 + 1; 3]);
    }
}

#[test]
fn unknown_fields_are_checked_counted_and_shown() {
    let schema =
        schema(r#"{"name":"a","type":{"type":"struct","fields":[{"name":"x","type":"long"}]}},{"name":"b","type":"long"}"#);
    let decoded = decode(
        &schema,
        &[
            "{\"lost\":1,\"a\":{\"x\":true}}",
            "{\"a\":{\"x\":1,\"y/z\":[1,{\"k\":null}]},\"more\":\"x\",\"b\":2}",
            "{\"bad\":[1 2]}",
        ],
    );
    assert_eq!(decoded.taken, [1]);
    assert_eq!(decoded.unknown_fields, 2, "those of messages that were refused go with them");
    assert_eq!(decoded.unknown_sample.unwrap(), "pointer=/a/y~1z found=array [1,{\"k\":null}]");
    assert_eq!(decoded.rejected[1].1, "not JSON: expected `,` or `]` pointer=/bad at=10");
}

#[test]
fn a_message_may_nest_64_deep_and_no_deeper() {
    let nested = |depth: usize| format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let schema = schema(r#"{"name":"id","type":"long"}"#);
    let decoded = decode(&schema, &[nested(MAX_DEPTH), nested(MAX_DEPTH + 1), nested(100_000)]);
    assert_eq!(decoded.taken, [0]);
    assert!(decoded.rejected[1].1.starts_with("objects and arrays nest deeper than 64 pointer=/x/0/0"));
}

#[test]
fn structs_may_be_null_and_their_fields_required() {
    let kind = r#"{"type":"struct","fields":[{"name":"x","required":true,"type":"long"},{"name":"y","type":"string"}]}"#;
    let present = value::<StructArray>(kind, "{\"y\":\"s\",\"x\":1}");
    assert_eq!(present.column(0).as_primitive::<Int64Type>().value(0), 1);
    let absent = value::<StructArray>(kind, "null");
    assert!(absent.is_null(0));
    assert_eq!(refusal(kind, "{}"), "a required field is missing pointer=/v/x expected=long");
    assert_eq!(refusal(kind, "{\"x\":\"s\"}"), "wrong type pointer=/v/x expected=long found=string \"s\"");
    assert_eq!(refusal(kind, "[]"), "wrong type pointer=/v expected=struct found=array []");
}

#[test]
fn lists_hold_their_elements_and_refuse_null_where_it_is_required() {
    let list = value::<ListArray>(r#"{"type":"list","element":"long"}"#, "[1, null ,3]");
    assert_eq!(list.value(0).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    assert_eq!(value::<ListArray>(r#"{"type":"list","element":"long"}"#, "[ ]").value_length(0), 0);
    let required = r#"{"type":"list","element":"long","element-required":true}"#;
    assert_eq!(refusal(required, "[1,null]"), "null in a required field pointer=/v/1 expected=long found=null");
    assert_eq!(refusal(required, "{}"), "wrong type pointer=/v expected=list found=object {}");
}

#[test]
fn a_map_is_an_object_or_a_list_of_entries() {
    let kind = r#"{"type":"map","key":"string","value":"long"}"#;
    for json in ["{\"a\":1,\"\\u0062\":null}", "[{\"key\":\"a\",\"value\":1},{\"value\":null,\"key\":\"b\"}]"] {
        let map = value::<MapArray>(kind, json);
        let entries = map.value(0);
        let keys = entries.column(0).as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(keys.iter().flatten().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(entries.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(1), None]);
    }
    let twice = "{\"a\":1,\"b\":2,\"\\u0061\":3}";
    assert_eq!(refusal(kind, twice), "a key of the map is there twice pointer=/v");
    assert_eq!(refusal(kind, "[{\"key\":\"a\",\"value\":1},{\"key\":\"a\"}]"), "a key of the map is there twice pointer=/v");
    assert_eq!(refusal(kind, "[{\"value\":1}]"), "a required field is missing pointer=/v/0/key expected=string");
    assert_eq!(refusal(kind, "[1]"), "wrong type pointer=/v/0 expected=object of key and value found=number 1");
    assert_eq!(refusal(kind, "{\"a\":true}"), "wrong type pointer=/v/a expected=long found=boolean true");
    let dated = r#"{"type":"map","key":"date","value":"long"}"#;
    assert!(try_value(dated, "{\"2026-01-31\":1}").is_ok());
    assert!(refusal(dated, "{\"x\":1}").starts_with("not a date or time of this form pointer=/v/x"));
    assert!(refusal(r#"{"type":"map","key":"long","value":"long"}"#, "{\"1\":1,\"1.0\":2}").starts_with("a key of the map"));
}

#[test]
fn a_message_that_is_bad_in_its_last_byte_leaves_nothing_behind() {
    let schema = schema(
        r#"{"name":"s","type":{"type":"struct","fields":[{"name":"t","type":"string"},{"name":"n","type":"long"}]}},
           {"name":"l","type":{"type":"list","element":{"type":"list","element":"string"}}},
           {"name":"m","type":{"type":"map","key":"string","value":"binary"}},
           {"name":"d","type":"decimal(9,2)"},{"name":"b","type":"boolean"},{"name":"u","type":"uuid"}"#,
    );
    let whole = r#"{"s":{"t":"x","n":1},"l":[["a","b\n"],[],null],"m":{"k":"aGk="},"d":1.5,"b":true,"u":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}"#;
    let clean = decode(&schema, &[whole, whole]);
    assert_eq!(clean.rejected, []);
    for end in 0..whole.len() {
        let mixed = decode(&schema, &[whole, &whole[..end], whole, &whole[..end]]);
        assert_eq!(mixed.taken, [0, 2]);
        assert_eq!(mixed.rows, clean.rows, "cut at {end}");
    }
}

#[test]
fn a_decoder_is_as_good_as_new_after_each_batch() {
    let schema = schema(r#"{"name":"a","type":"string"},{"name":"b","type":"boolean"}"#);
    let mut decoder = Decoder::new(&schema, Options::default()).unwrap();
    let first = decoder.decode(&batch(&["{\"a\":\"x\",\"c\":1}", "{\"a\":\"\\n\",\"b\":true}", "{"])).unwrap();
    let second = decoder.decode(&batch(&["{\"a\":\"x\",\"c\":1}", "{\"a\":\"\\n\",\"b\":true}", "{"])).unwrap();
    assert_eq!(first.rows, second.rows);
    assert_eq!((first.unknown_fields, second.unknown_fields), (1, 1));
    let empty = decoder.decode(&batch::<&str>(&[])).unwrap();
    assert_eq!((empty.rows.num_rows(), empty.rows.num_columns()), (0, 2));
}

#[test]
fn a_slice_of_a_batch_is_decoded_by_its_own_rows() {
    let schema = schema(r#"{"name":"a","type":"long"}"#);
    let messages: Vec<String> = (0..100).map(|i| format!("{{\"a\":{i}}}")).collect();
    let sliced = batch(&messages).slice(40, 3);
    let decoded = Decoder::new(&schema, Options::default()).unwrap().decode(&sliced).unwrap();
    assert_eq!(decoded.rows.column(0).as_primitive::<Int64Type>().values().to_vec(), [40, 41, 42]);
    assert_eq!(decoded.taken, [0, 1, 2]);
}

#[test]
fn batches_larger_than_a_block_lose_nothing_at_its_edges() {
    let schema = schema(r#"{"name":"a","type":"string"}"#);
    let text = |i: usize| format!("{}{}\n", "ж".repeat(i % 3000), i);
    let messages: Vec<String> = (0..200).map(|i| serde_json::json!({"a": text(i * 37)}).to_string()).collect();
    let decoded = decode(&schema, &messages);
    let column = decoded.rows.column(0).as_any().downcast_ref::<StringArray>().unwrap();
    assert_eq!(column.len(), 200);
    for i in 0..200 {
        assert_eq!(column.value(i), text(i * 37));
    }
}

#[test]
fn a_part_of_the_schema_is_decoded_without_a_look_at_the_rest() {
    let whole = schema(
        r#"{"name":"id","required":true,"type":"long"},{"name":"a","type":{"type":"struct","fields":[{"name":"x","type":"long"},{"name":"y","type":"long"}]}},
           {"name":"z","required":true,"type":"string"}"#,
    );
    let part = whole.sub(&["a.y", "id"]).unwrap();
    assert_eq!(part.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["id", "a"]);
    assert!(matches!(&part.fields[1].kind, Kind::Struct(fields) if fields.len() == 1 && fields[0].name == "y"));
    let mut decoder = Decoder::new(&part, Options { partial: true, ..Options::default() }).unwrap();
    let decoded = decoder.decode(&batch(&["{\"id\":1,\"a\":{\"x\":1,\"y\":2},broken", "{\"a\":null}"])).unwrap();
    assert_eq!(decoded.taken, [0]);
    assert_eq!(decoded.rejected[0].1, "a required field is missing pointer=/id expected=long");
    let unknown = whole.sub(&["nope"]).unwrap_err().to_string();
    assert_eq!(unknown, "the schema has no such field field=nope fields=id,a,z");
}

#[test]
fn a_schema_without_fields_still_counts_rows() {
    let decoded = decode(&crate::columnar::Schema::new(Vec::new()), &["{}", "{\"a\":1}", "x"]);
    assert_eq!((decoded.rows.num_rows(), decoded.taken.len(), decoded.unknown_fields), (2, 2, 1));
}

#[test]
fn new_fields_are_inferred_from_the_messages_that_were_taken() {
    let schema = schema(r#"{"name":"id","type":"long"}"#);
    let mut decoder = Decoder::new(&schema, Options { report_new_fields: true, ..Options::default() }).unwrap();
    let decoded = decoder
        .decode(&batch(&[
            r#"{"id":1,"flag":true,"count":5,"ratio":1,"name":"x","nothing":null,"nested":{"a":1},"list":[],"a.b":1,"":1}"#,
            r#"{"id":2,"ratio":1.5,"mixed":1,"late":"y","huge":99999999999999999999}"#,
            r#"{"id":3,"mixed":"x"}"#,
            r#"{"id":true,"refused":1}"#,
        ]))
        .unwrap();
    let fields: Vec<(&str, &Kind, bool)> = decoded.new_fields.iter().map(|f| (f.name.as_str(), &f.kind, f.required)).collect();
    assert_eq!(
        fields,
        [
            ("flag", &Kind::Boolean, false),
            ("count", &Kind::Long, false),
            ("ratio", &Kind::Double, false),
            ("name", &Kind::String, false),
            ("late", &Kind::String, false),
        ]
    );
    assert_eq!(decoded.unknown_fields, 14);
    let many = format!("{{{}}}", (0..1000).map(|i| format!("\"f{i}\":1")).collect::<Vec<_>>().join(","));
    assert_eq!(decoder.decode(&batch(&[many])).unwrap().new_fields.len(), 64);
    let off = decode(&schema, &["{\"x\":1}"]);
    assert!(off.new_fields.is_empty());
}
