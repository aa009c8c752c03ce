//! Properties that hold for whatever bytes and schemas come.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Duration, NaiveDate, NaiveTime};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{batch, schema};
use crate::columnar::{Decoder, Field, Kind, Options, Schema};

fn kinds() -> impl Strategy<Value = Kind> {
    let leaf = prop_oneof![
        Just(Kind::Boolean),
        Just(Kind::Int),
        Just(Kind::Long),
        Just(Kind::Float),
        Just(Kind::Double),
        (1u8..=38)
            .prop_flat_map(|precision| (Just(precision), 0..=precision))
            .prop_map(|(precision, scale)| Kind::Decimal { precision, scale }),
        Just(Kind::Date),
        Just(Kind::Time),
        Just(Kind::Timestamp),
        Just(Kind::Timestamptz),
        Just(Kind::String),
        Just(Kind::Uuid),
        (1u32..9).prop_map(Kind::Fixed),
        Just(Kind::Binary),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let part = |name: &'static str| {
            (inner.clone(), any::<bool>()).prop_map(move |(kind, required)| Box::new(Field::new(name, kind, required)))
        };
        prop_oneof![
            fields(inner.clone()).prop_map(Kind::Struct),
            part("element").prop_map(Kind::List),
            part("value").prop_map(|value| Kind::Map(Box::new(Field::new("key", Kind::String, true)), value)),
        ]
    })
}

fn fields(kinds: impl Strategy<Value = Kind>) -> impl Strategy<Value = Vec<Field>> {
    prop::collection::vec((kinds, any::<bool>()), 1..5).prop_map(|kinds| {
        kinds.into_iter().enumerate().map(|(i, (kind, required))| Field::new(format!("f{i}é\""), kind, required)).collect()
    })
}

/// A value of the field as JSON, in the form in which [`shown`] shows it.
fn values(field: &Field) -> BoxedStrategy<Value> {
    let value = match &field.kind {
        Kind::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Kind::Int => any::<i32>().prop_map(Value::from).boxed(),
        Kind::Long => any::<i64>().prop_map(Value::from).boxed(),
        Kind::Float => prop::num::f32::NORMAL.prop_map(|f| json!(f)).boxed(),
        Kind::Double => prop::num::f64::NORMAL.prop_map(|f| json!(f)).boxed(),
        Kind::Decimal { precision, scale } => {
            let (scale, most) = (*scale, 10i128.pow(u32::from(*precision)) - 1);
            (-most..=most).prop_map(move |unscaled| json!(decimal(unscaled, scale))).boxed()
        }
        Kind::Date => (-700_000i64..2_900_000).prop_map(|days| json!(date(days))).boxed(),
        Kind::Time => (0i64..86_400_000_000).prop_map(|micros| json!(time(micros))).boxed(),
        Kind::Timestamp | Kind::Timestamptz => {
            let zoned = field.kind == Kind::Timestamptz;
            (-62_000_000_000_000_000i64..253_000_000_000_000_000).prop_map(move |micros| json!(instant(micros, zoned))).boxed()
        }
        Kind::String => any::<String>().prop_map(Value::from).boxed(),
        Kind::Uuid => any::<u128>().prop_map(|bits| json!(uuid::Uuid::from_u128(bits).to_string())).boxed(),
        Kind::Fixed(length) => {
            prop::collection::vec(any::<u8>(), *length as usize).prop_map(|bytes| json!(STANDARD.encode(bytes))).boxed()
        }
        Kind::Binary => prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| json!(STANDARD.encode(bytes))).boxed(),
        Kind::Struct(fields) => objects(fields).boxed(),
        Kind::List(element) => prop::collection::vec(values(element), 0..4).prop_map(Value::Array).boxed(),
        Kind::Map(_, value) => prop::collection::hash_map(any::<String>(), values(value), 0..4)
            .prop_map(|entries| Value::Object(entries.into_iter().collect()))
            .boxed(),
    };
    match field.required {
        true => value,
        false => prop_oneof![1 => Just(Value::Null), 4 => value].boxed(),
    }
}

fn objects(fields: &[Field]) -> BoxedStrategy<Value> {
    let values: Vec<BoxedStrategy<Value>> = fields.iter().map(values).collect();
    let names: Vec<String> = fields.iter().map(|f| f.name.clone()).collect();
    values.prop_map(move |values| Value::Object(names.iter().cloned().zip(values).collect())).boxed()
}

fn decimal(unscaled: i128, scale: u8) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    format!("{}{whole}{}{fraction}", if unscaled < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" })
}

fn date(days: i64) -> String {
    (NaiveDate::default() + Duration::days(days)).format("%Y-%m-%d").to_string()
}

fn time(micros: i64) -> String {
    (NaiveTime::MIN + Duration::microseconds(micros)).format("%H:%M:%S%.6f").to_string()
}

fn instant(micros: i64, zoned: bool) -> String {
    let text = DateTime::from_timestamp_micros(micros).unwrap().naive_utc().format("%Y-%m-%dT%H:%M:%S%.6f");
    format!("{text}{}", if zoned { "Z" } else { "" })
}

/// What a column has in a row, as JSON.
fn shown(field: &Field, array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match &field.kind {
        Kind::Boolean => json!(array.as_boolean().value(row)),
        Kind::Int => json!(array.as_primitive::<Int32Type>().value(row)),
        Kind::Long => json!(array.as_primitive::<Int64Type>().value(row)),
        Kind::Float => json!(array.as_primitive::<Float32Type>().value(row)),
        Kind::Double => json!(array.as_primitive::<Float64Type>().value(row)),
        Kind::Decimal { scale, .. } => json!(decimal(array.as_primitive::<Decimal128Type>().value(row), *scale)),
        Kind::Date => json!(date(i64::from(array.as_primitive::<Date32Type>().value(row)))),
        Kind::Time => json!(time(array.as_primitive::<Time64MicrosecondType>().value(row))),
        Kind::Timestamp => json!(instant(array.as_primitive::<TimestampMicrosecondType>().value(row), false)),
        Kind::Timestamptz => json!(instant(array.as_primitive::<TimestampMicrosecondType>().value(row), true)),
        Kind::String => json!(array.as_string::<i32>().value(row)),
        Kind::Uuid => json!(uuid::Uuid::from_slice(array.as_fixed_size_binary().value(row)).unwrap().to_string()),
        Kind::Fixed(_) => json!(STANDARD.encode(array.as_fixed_size_binary().value(row))),
        Kind::Binary => json!(STANDARD.encode(array.as_binary::<i64>().value(row))),
        Kind::Struct(fields) => {
            let columns = array.as_struct().columns();
            Value::Object(fields.iter().zip(columns).map(|(f, column)| (f.name.clone(), shown(f, column, row))).collect())
        }
        Kind::List(element) => {
            let list = array.as_list::<i32>().value(row);
            (0..list.len()).map(|i| shown(element, &list, i)).collect()
        }
        Kind::Map(key, value) => {
            let entries = array.as_map().value(row);
            let entry =
                |i: usize| (shown(key, entries.column(0), i).as_str().unwrap().to_string(), shown(value, entries.column(1), i));
            Value::Object((0..entries.len()).map(entry).collect::<Map<_, _>>())
        }
    }
}

/// Every message is either taken or rejected, and all columns have the taken ones.
fn check(schema: &Schema, messages: &[impl AsRef<[u8]>]) -> Result<(), TestCaseError> {
    let options = Options { report_new_fields: true, ..Options::default() };
    let decoded = Decoder::new(schema, options).unwrap().decode(&batch(messages)).unwrap();
    prop_assert_eq!(decoded.taken.len() + decoded.rejected.len(), messages.len());
    prop_assert_eq!(decoded.rows.num_rows(), decoded.taken.len());
    for column in decoded.rows.columns() {
        prop_assert_eq!(column.len(), decoded.taken.len());
    }
    prop_assert!(decoded.rejected.iter().all(|(_, reason)| reason.len() < 600));
    Ok(())
}

/// JSON that may have been damaged in a place or two.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let schema = Schema::new(vec![
        Field::new(
            "f0é\"",
            Kind::Struct(vec![Field::new("a", Kind::String, false), Field::new("b", Kind::Double, false)]),
            false,
        ),
        Field::new("f1é\"", Kind::List(Box::new(Field::new("element", Kind::String, false))), false),
        Field::new("f2é\"", Kind::Long, false),
    ]);
    let bytes = prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\u0eE.-+ntf\x00\x1f \n".to_vec())];
    (objects(&schema.fields), any::<bool>(), prop::collection::vec((any::<prop::sample::Index>(), 0..3, bytes), 0..3)).prop_map(
        |(value, pretty, edits)| {
            let mut text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
            for (at, edit, byte) in edits {
                if text.is_empty() {
                    break;
                }
                let at = at.index(text.len());
                match edit {
                    0 => text[at] = byte,
                    1 => text.insert(at, byte),
                    _ => drop(text.remove(at)),
                }
            }
            text
        },
    )
}

/// Bits of JSON in any order.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let bits = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\":",
        "\"\"",
        "\"x\\n\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\",
        "1",
        "-0",
        "01",
        "1.5e3",
        "1.",
        "-",
        "true",
        "null",
        "nul",
        " ",
        "\n",
        "\u{feff}",
        "{\"a\":1}",
        "[1,2]",
        "é",
        "\"",
        "\t",
        "\u{1}",
    ];
    prop::collection::vec(prop::sample::select(bits.to_vec()), 0..12)
        .prop_map(|bits| format!("{{\"k\":{}}}", bits.concat()).into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_bytes_come_they_are_taken_or_rejected(
        messages in prop::collection::vec(prop_oneof![prop::collection::vec(any::<u8>(), 0..80), damaged(), soup()], 0..8),
        fields in fields(kinds()),
    ) {
        check(&Schema::new(fields), &messages)?;
    }

    #[test]
    fn what_serde_json_writes_is_read_the_same(
        (fields, rows) in fields(kinds()).prop_flat_map(|f| { let rows = prop::collection::vec(objects(&f), 1..5); (Just(f), rows) }),
        pretty in any::<bool>(),
        bad in any::<prop::sample::Index>(),
    ) {
        let schema = Schema::new(fields);
        let write = |row: &Value| if pretty { serde_json::to_vec_pretty(row) } else { serde_json::to_vec(row) }.unwrap();
        let mut messages: Vec<Vec<u8>> = rows.iter().map(write).collect();
        // A message cut short among them changes nothing for the others.
        let bad = bad.index(messages.len());
        let cut = messages[bad][..messages[bad].len() - 1].to_vec();
        messages.insert(bad, cut);
        let decoded = Decoder::new(&schema, Options::default()).unwrap().decode(&batch(&messages)).unwrap();
        prop_assert_eq!(decoded.rejected.len(), 1, "{:?}", decoded.rejected);
        for (i, row) in rows.iter().enumerate() {
            for (field, column) in schema.fields.iter().zip(decoded.rows.columns()) {
                prop_assert_eq!(&shown(field, column, i), &row[&field.name]);
            }
        }
        let schema_again = Schema::from_iceberg(&schema.iceberg_json()).unwrap();
        prop_assert_eq!(schema_again.arrow(), schema.arrow());
    }

    #[test]
    fn json_is_what_serde_json_takes_for_json(message in prop_oneof![damaged(), soup()]) {
        let schema = schema(r#"{"name":"none of these","type":"long"}"#);
        let decoded = Decoder::new(&schema, Options::default()).unwrap().decode(&batch(&[&message])).unwrap();
        let theirs = serde_json::from_slice::<Value>(&message);
        match theirs {
            Ok(value) => prop_assert_eq!(value.is_object(), decoded.rejected.is_empty(), "{:?}", decoded.rejected),
            // Ours does not read a number that nobody asked for.
            Err(e) if e.to_string().starts_with("number out of range") => {}
            Err(e) => prop_assert!(!decoded.rejected.is_empty(), "{} {}", e, String::from_utf8_lossy(&message)),
        }
    }

    #[test]
    fn no_message_makes_the_fuzz_entry_panic(schema in prop::collection::vec(any::<u8>(), 0..40), message in damaged()) {
        crate::columnar::fuzz_entry(&schema, &message);
        crate::columnar::fuzz_entry(br#"{"type":"record","fields":[{"name":"f2","type":"long"}]}"#, &message);
    }
}
