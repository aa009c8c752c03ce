//! Schema files: what is read from them, and what is said of a bad one.

use arrow_schema::{DataType, TimeUnit};
use serde_json::{Value, json};

use crate::columnar::{EpochUnit, Field, Kind, Schema};

fn read(json: Value) -> Schema {
    Schema::from_json(json.to_string().as_bytes()).unwrap()
}

fn fault(json: Value) -> String {
    Schema::from_json(json.to_string().as_bytes()).unwrap_err().to_string()
}

/// What is said of an Iceberg schema with this one field.
fn field_fault(field: Value) -> String {
    fault(json!({"type": "struct", "fields": [field]}))
}

fn every_type() -> Value {
    json!({"type": "struct", "schema-id": 3, "identifier-field-ids": [1], "fields": [
        {"id": 1, "name": "id", "required": true, "type": "uuid", "doc": "who"},
        {"id": 2, "name": "a", "required": false, "type": "boolean"},
        {"id": 3, "name": "b", "required": false, "type": "int"},
        {"id": 4, "name": "c", "required": false, "type": "float"},
        {"id": 5, "name": "d", "required": false, "type": "decimal(9,2)"},
        {"id": 6, "name": "e", "required": false, "type": "date"},
        {"id": 7, "name": "f", "required": false, "type": "time"},
        {"id": 8, "name": "g", "required": false, "type": "timestamp"},
        {"id": 9, "name": "h", "required": false, "type": "timestamptz"},
        {"id": 10, "name": "i", "required": false, "type": "fixed[16]"},
        {"id": 11, "name": "j", "required": false, "type": "binary"},
        {"id": 12, "name": "k", "required": false, "type": {"type": "list", "element-id": 15, "element": "string", "element-required": true}},
        {"id": 13, "name": "l", "required": false, "type": {"type": "map", "key-id": 16, "key": "string", "value-id": 17,
            "value": {"type": "struct", "fields": [{"id": 18, "name": "x", "required": false, "type": "double"}]}, "value-required": false}},
        {"id": 14, "name": "m", "required": false, "type": "long"},
    ]})
}

#[test]
fn an_iceberg_schema_is_written_as_it_was_read() {
    assert_eq!(read(every_type()).iceberg_json(), every_type());
}

#[test]
fn arrow_types_are_those_of_iceberg_rust() {
    let arrow = read(every_type()).arrow();
    let types: Vec<&DataType> = arrow.fields().iter().map(|f| f.data_type()).collect();
    assert_eq!(types[0], &DataType::FixedSizeBinary(16));
    assert_eq!(types[4], &DataType::Decimal128(9, 2));
    assert_eq!(types[6], &DataType::Time64(TimeUnit::Microsecond));
    assert_eq!(types[7], &DataType::Timestamp(TimeUnit::Microsecond, None));
    assert_eq!(types[8], &DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())));
    assert_eq!((types[9], types[10]), (&DataType::FixedSizeBinary(16), &DataType::LargeBinary));
    let DataType::List(element) = types[11] else { panic!() };
    assert_eq!(
        (element.name().as_str(), element.is_nullable(), element.metadata()["PARQUET:field_id"].as_str()),
        ("element", false, "15")
    );
    let DataType::Map(entry, false) = types[12] else { panic!() };
    assert_eq!((entry.name().as_str(), entry.is_nullable()), ("key_value", false));
    let DataType::Struct(parts) = entry.data_type() else { panic!() };
    assert_eq!((parts[0].name().as_str(), parts[0].is_nullable(), parts[1].name().as_str()), ("key", false, "value"));
    let id = arrow.field(0);
    assert_eq!(
        (id.metadata()["PARQUET:field_id"].as_str(), id.metadata()["doc"].as_str(), id.is_nullable()),
        ("1", "who", false)
    );
}

#[test]
fn ids_that_are_left_out_are_given_level_by_level_after_the_highest() {
    let schema = read(json!({"type": "struct", "fields": [
        {"name": "a", "type": {"type": "struct", "fields": [{"name": "x", "type": "int"}, {"id": 7, "name": "y", "type": "int"}]}},
        {"name": "b", "type": {"type": "list", "element": "int"}},
    ]}));
    let Kind::Struct(inner) = &schema.fields[0].kind else { panic!() };
    let Kind::List(element) = &schema.fields[1].kind else { panic!() };
    assert_eq!((schema.fields[0].id, schema.fields[1].id, inner[0].id, inner[1].id, element.id), (8, 9, 10, 7, 11));
    assert!(!schema.fields[0].required, "a field is optional unless it says otherwise");
    assert_eq!(Schema::new(vec![Field::new("n", Kind::Long, false)]).fields[0].id, 1);
}

#[test]
fn units_are_read_where_they_fit() {
    let schema = read(json!({"type": "struct", "fields": [
        {"name": "a", "type": "timestamptz", "unit": "ms"},
        {"name": "b", "type": {"type": "list", "element": "date", "element-unit": "days"}},
        {"name": "c", "type": {"type": "map", "key": "string", "value": "time", "value-unit": "us"}},
    ]}));
    assert_eq!(schema.fields[0].unit, Some(EpochUnit::Milliseconds));
    assert!(matches!(&schema.fields[1].kind, Kind::List(e) if e.unit == Some(EpochUnit::Days)));
    assert!(matches!(&schema.fields[2].kind, Kind::Map(_, v) if v.unit == Some(EpochUnit::Microseconds)));
    assert_eq!(
        field_fault(json!({"name": "a", "type": "long", "unit": "ms"})),
        "the unit `ms` does not fit long: date takes `days`; time, timestamp and timestamptz take `s`, `ms`, `us` or `ns` pointer=/fields/0/unit"
    );
    assert!(field_fault(json!({"name": "a", "type": "date", "unit": "s"})).starts_with("the unit `s` does not fit date"));
    assert_eq!(
        field_fault(json!({"name": "a", "type": "time", "unit": "minutes"})),
        "a unit is one of `s`, `ms`, `us`, `ns`, `days` pointer=/fields/0/unit"
    );
}

#[test]
fn a_wrong_type_is_named_with_the_one_that_was_meant() {
    for (wrong, meant) in [
        ("strng", "string"),
        ("bigint", "long"),
        ("Integer", "int"),
        ("timestamptzz", "timestamptz"),
        ("TEXT", "string"),
        ("lng", "long"),
    ] {
        let said = field_fault(json!({"name": "a", "type": wrong}));
        assert!(said.starts_with(&format!("`{wrong}` is no type, did you mean `{meant}`?")), "{said}");
        assert!(said.ends_with(" pointer=/fields/0/type"), "{said}");
    }
    let said = field_fault(json!({"name": "a", "type": "hyperloglog"}));
    assert!(said.starts_with("`hyperloglog` is no type (types: boolean, int,"), "{said}");
}

#[test]
fn every_fault_of_an_iceberg_schema_is_named_with_its_pointer() {
    for (field, expected) in [
        (json!(1), "expected an object pointer=/fields/0"),
        (json!({"type": "int"}), "a field needs a name pointer=/fields/0/name"),
        (json!({"name": "a"}), "the field `a` needs a type pointer=/fields/0/type"),
        (json!({"name": "a", "type": 1}), "expected the name of a type, or an object with `type` pointer=/fields/0/type"),
        (
            json!({"name": "a", "type": "int", "requierd": true}),
            "unknown key `requierd`, did you mean `required`? pointer=/fields/0/requierd",
        ),
        (json!({"name": "a", "type": "int", "required": 1}), "expected true or false pointer=/fields/0/required"),
        (
            json!({"name": "a", "type": "int", "id": -1}),
            "a field id has to be a number from 0 to 2147483647 pointer=/fields/0/id",
        ),
        (
            json!({"name": "a", "type": "decimal"}),
            "`decimal` needs its precision and scale, as in `decimal(9,2)` pointer=/fields/0/type",
        ),
        (json!({"name": "a", "type": "decimal(9)"}), "`decimal(9)` should be like `decimal(9,2)` pointer=/fields/0/type"),
        (
            json!({"name": "a", "type": "decimal(39,0)"}),
            "decimal(39,0) needs a precision of 1 to 38 and a scale not above it pointer=/fields/0/type",
        ),
        (
            json!({"name": "a", "type": "decimal(2,3)"}),
            "decimal(2,3) needs a precision of 1 to 38 and a scale not above it pointer=/fields/0/type",
        ),
        (json!({"name": "a", "type": "fixed"}), "`fixed` needs its length in bytes, as in `fixed[16]` pointer=/fields/0/type"),
        (json!({"name": "a", "type": "fixed[x]"}), "`fixed[x]` should be like `fixed[16]` pointer=/fields/0/type"),
        (json!({"name": "a", "type": "fixed[0]"}), "fixed[0] needs a length of 1 to 65536 bytes pointer=/fields/0/type"),
        (
            json!({"name": "a", "type": "list"}),
            "`list` is written as an object: {\"type\": \"list\", ...} pointer=/fields/0/type",
        ),
        (
            json!({"name": "a", "type": "timestamptz_ns"}),
            "`timestamptz_ns` needs Iceberg format 3: use `timestamptz`, in microseconds pointer=/fields/0/type",
        ),
        (json!({"name": "a", "type": {"type": "list"}}), "`element` is missing: the type of it pointer=/fields/0/type"),
        (
            json!({"name": "a", "type": {"type": "map", "key": {"type": "list", "element": "int"}, "value": "int"}}),
            "a map's key can't be a struct, list or map pointer=/fields/0/type/key",
        ),
        (
            json!({"name": "a", "type": {"type": "struct", "fields": []}}),
            "expected a list of at least one field pointer=/fields/0/type/fields",
        ),
    ] {
        assert_eq!(field_fault(field.clone()), expected, "{field}");
    }
    let twice = |a: Value, b: Value| fault(json!({"type": "struct", "fields": [a, b]}));
    assert_eq!(
        twice(json!({"name": "a", "type": "int"}), json!({"name": "a", "type": "int"})),
        "the name `a` is used twice pointer=/fields/1/name"
    );
    assert_eq!(
        twice(json!({"id": 1, "name": "a", "type": "int"}), json!({"id": 1, "name": "b", "type": "int"})),
        "the field id 1 is used twice pointer=/fields/1/id"
    );
    assert_eq!(fault(json!({"type": "struct"})), "expected a list of at least one field pointer=/fields");
    assert_eq!(
        fault(json!({"type": "struct", "identifier-field-ids": [9], "fields": [{"name": "a", "type": "int"}]})),
        "no field has the id 9 pointer=/identifier-field-ids"
    );
    assert!(fault(json!({"fields": []})).starts_with("the schema has to be an object with `\"type\": \"struct\"`"));
    assert!(Schema::from_json(b"{").unwrap_err().to_string().starts_with("the schema is no JSON: EOF"));
}

#[test]
fn types_may_not_nest_deeper_than_messages() {
    let mut kind = json!("int");
    for _ in 0..64 {
        kind = json!({"type": "list", "element": kind});
    }
    let said = field_fault(json!({"name": "a", "type": kind}));
    assert!(said.starts_with("types nest deeper than 63 pointer=/fields/0/type/element"), "{said}");
}

#[test]
fn a_file_that_is_not_there_or_not_right_is_named() {
    let said = Schema::load(std::path::Path::new("/nowhere/clicks.schema.json")).unwrap_err().to_string();
    assert!(
        said.starts_with("cannot use the schema file path=/nowhere/clicks.schema.json: it can't be read: No such file"),
        "{said}"
    );
}

#[test]
fn an_avro_record_becomes_the_same_schema() {
    let schema = read(json!({"type": "record", "name": "Click", "namespace": "web", "connect.version": 1, "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}, "doc": "who"},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}], "default": null},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "x", "type": ["string", "null"]},
        {"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["LOW", "HIGH"]}},
        {"name": "levels", "type": {"type": "array", "items": ["null", "web.Level"]}},
        {"name": "by_name", "type": {"type": "map", "values": {"type": "record", "name": "P", "fields": [{"name": "n", "type": "double"}]}}},
        {"name": "p", "type": "P"},
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 4}},
        {"name": "raw", "type": "bytes"},
        {"name": "beside", "type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": false},
        {"name": "odd", "type": {"type": "long", "logicalType": "duration-of-something"}},
    ]}));
    let shown: Vec<String> = schema
        .fields
        .iter()
        .map(|f| {
            format!(
                "{}{} {}{}",
                f.name,
                if f.required { "!" } else { "?" },
                f.kind,
                f.unit.map_or(String::new(), |u| format!(" {u:?}"))
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "id! uuid",
            "ts! timestamptz Milliseconds",
            "local? timestamp Microseconds",
            "day! date Days",
            "at! time Milliseconds",
            "price! decimal(9,2)",
            "x? string",
            "level! string",
            "levels! list",
            "by_name! map",
            "p! struct",
            "hash! fixed[4]",
            "raw! binary",
            "beside! timestamp Microseconds",
            "odd! long",
        ]
    );
    assert_eq!(schema.fields[0].doc.as_deref(), Some("who"));
    assert!(matches!(&schema.fields[8].kind, Kind::List(e) if e.kind == Kind::String && !e.required && e.name == "element"));
    assert_eq!(Schema::from_iceberg(&schema.iceberg_json()).unwrap().iceberg_json(), schema.iceberg_json());
}

#[test]
fn every_fault_of_an_avro_record_is_named_with_its_pointer() {
    let of = |kind: Value| fault(json!({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}));
    assert_eq!(
        of(json!(["null", "int", "string"])),
        "a union has to be of `null` and one other type: a column has one type pointer=/fields/0/type"
    );
    assert_eq!(of(json!("null")), "`null` alone is no type of a column: write `[\"null\", TYPE]` pointer=/fields/0/type");
    assert!(of(json!(["null", "strin"])).starts_with("`strin` is no type, did you mean `string`?"));
    assert_eq!(of(json!("R")), "`R` contains itself, which no column can pointer=/fields/0/type");
    assert_eq!(of(json!({"type": "array"})), "`items` is missing: the type of the element pointer=/fields/0/type");
    assert_eq!(of(json!({"type": "fixed", "name": "F"})), "`fixed` needs its `size` in bytes pointer=/fields/0/type");
    assert_eq!(of(json!({"type": "bytes", "logicalType": "decimal"})), "`decimal` needs its `precision` pointer=/fields/0/type");
    assert_eq!(of(json!(true)), "expected the name of a type, a union or an object with `type` pointer=/fields/0/type");
    assert_eq!(of(json!({"type": "record", "name": "S"})), "expected a list of at least one field pointer=/fields/0/type/fields");
    let twice = json!({"type": "record", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]});
    assert_eq!(fault(twice), "the name `a` is used twice pointer=/fields/1/name");
}

#[test]
fn names_that_stand_for_ever_more_fields_are_stopped() {
    let mut fields =
        vec![json!({"name": "f0", "type": {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "int"}]}})];
    for i in 1..40 {
        let inner: Vec<Value> = ["a", "b"].iter().map(|n| json!({"name": n, "type": format!("T{}", i - 1)})).collect();
        fields.push(json!({"name": format!("f{i}"), "type": {"type": "record", "name": format!("T{i}"), "fields": inner}}));
    }
    let said = fault(json!({"type": "record", "name": "R", "fields": fields}));
    assert!(said.starts_with("the schema has more than 10000 fields pointer=/fields/"), "{said}");
}

#[test]
fn the_schemas_in_the_documentation_are_read() {
    let page = include_str!("../../../../docs/schemas.md");
    let examples: Vec<&str> = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        assert!(Schema::from_json(example.as_bytes()).unwrap().fields.len() >= 4);
    }
}
