//! Iceberg tables as the sink makes and fills them, read back by PyIceberg and DuckDB.

use serde_json::{Value, json};

use crate::harness::table;
use crate::harness::weir::Job;

/// JSON lines into a table with a SQLite catalog.
fn job(schema: &Value, sink: &str, lines: &[Value]) -> Job {
    let job = Job::new(&format!(
        "
pipeline: tables
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources: [file: {{path: in.jsonl, format: lines}}]
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: web.clicks,
              schema: schema.json, {sink}}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
"
    ));
    job.write("schema.json", schema.to_string());
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    job.write("in.jsonl", lines);
    job
}

fn read(job: &Job, extra: &[&str]) -> Value {
    let mut arguments: Vec<String> = table::sqlite(job.folder.path()).to_vec();
    arguments.extend(["--table", "web.clicks"].iter().chain(extra).map(|s| s.to_string()));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    table::python("read_table.py", &arguments)
}

fn dead(job: &Job) -> String {
    if job.path("dead.jsonl").exists() { job.read("dead.jsonl") } else { String::new() }
}

#[test]
fn every_type_is_read_back_as_it_was_sent() {
    let field = |id: i32, name: &str, kind: Value| json!({"id": id, "name": name, "required": false, "type": kind});
    let schema = json!({"type": "struct", "fields": [
        field(1, "boolean", json!("boolean")), field(2, "int", json!("int")), field(3, "long", json!("long")),
        field(4, "float", json!("float")), field(5, "double", json!("double")), field(6, "decimal", json!("decimal(20, 2)")),
        field(7, "date", json!("date")), field(8, "time", json!("time")), field(9, "timestamp", json!("timestamp")),
        field(10, "timestamptz", json!("timestamptz")), field(11, "string", json!("string")), field(12, "uuid", json!("uuid")),
        field(13, "binary", json!("binary")), field(14, "fixed", json!("fixed[3]")),
        field(15, "struct", json!({"type": "struct", "fields": [field(16, "a", json!("long")), field(17, "b", json!("string"))]})),
        field(18, "list", json!({"type": "list", "element-id": 19, "element": "long", "element-required": false})),
        field(20, "map", json!({"type": "map", "key-id": 21, "key": "string", "value-id": 22, "value": "long", "value-required": false})),
        field(23, "small", json!("decimal(5, 3)")), field(24, "middle", json!("decimal(15, 3)")),
    ]});
    let full = json!({"boolean": true, "int": -7, "long": 9007199254740993i64, "float": 1.5, "double": -2.25, "decimal": "123456789012345678.90",
        "date": "2026-12-01", "time": "12:34:56.789", "timestamp": "2026-12-01T12:34:56.789", "timestamptz": "2026-12-01T12:34:56+02:00",
        "string": "é\u{1F600}", "uuid": "123e4567-e89b-12d3-a456-426614174000", "binary": "AAEC", "fixed": "AAEC",
        "struct": {"a": 1, "b": "x"}, "list": [1, null, 3], "map": {"k": 5}, "small": "1.5", "middle": "-99.125"});
    let job = job(&schema, "sort_order: ['long desc'], bloom_filters: [string], compression: snappy", &[full, json!({})]);
    job.run().ok();
    assert_eq!(dead(&job), "");
    let found = read(&job, &["--first", "2"]);
    assert_eq!(found["rows"], 2);
    let rows = found["first"].as_array().unwrap();
    let row = rows.iter().find(|row| row["boolean"] == true).unwrap();
    let expected = json!({"boolean": true, "int": -7, "long": 9007199254740993i64, "float": 1.5, "double": -2.25, "decimal": "123456789012345678.90",
        "date": "2026-12-01", "time": "12:34:56.789000", "timestamp": "2026-12-01 12:34:56.789000", "timestamptz": "2026-12-01 10:34:56+00:00",
        "string": "é\u{1F600}", "uuid": "123e4567-e89b-12d3-a456-426614174000", "struct": {"a": 1, "b": "x"}, "list": [1, null, 3],
        "small": "1.500", "middle": "-99.125"});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{name} in {row}");
    }
    assert!(row["binary"].to_string().contains("x01"), "{}", row["binary"]);
    let empty = rows.iter().find(|row| row["boolean"].is_null()).unwrap();
    assert!(empty.as_object().unwrap().values().all(Value::is_null), "{empty}");
}

#[test]
fn rows_lie_in_the_table_partitions_of_iceberg_and_bounds_find_them() {
    let schema = json!({"type": "struct", "fields": [
        {"id": 1, "name": "id", "required": true, "type": "string"},
        {"id": 2, "name": "ts", "required": true, "type": "timestamptz", "unit": "ms"},
        {"id": 3, "name": "country", "required": false, "type": "string"},
        {"id": 4, "name": "n", "required": true, "type": "long"}]});
    let lines: Vec<Value> = (0..500)
        .map(|i| json!({"id": format!("id-{i}"), "ts": 1_764_547_200_000i64 + i * 600_000, "country": (["de", "fr"].get(i as usize % 3)), "n": i}))
        .collect();
    let job = job(&schema, "partition_by: ['bucket(id, 4)', 'day(ts)', country, 'truncate(n, 100)'], distribution: hash", &lines);
    job.run().ok();
    assert_eq!(dead(&job), "");
    let all = read(&job, &["--distinct", "id"]);
    assert_eq!((all["rows"].as_u64(), all["distinct"].as_u64()), (Some(500), Some(500)));
    assert_eq!(all["partition_by"], json!(["bucket[4](id)", "day(ts)", "identity(country)", "truncate[100](n)"]));
    // PyIceberg prunes by partition values and by bounds: were ours wrong, rows would be missing.
    for (filter, rows) in [
        ("id == 'id-77'", 1),
        ("n >= 100 and n < 200", 100),
        ("country == 'fr'", 167),
        ("country is null", 166),
        ("ts >= '2025-12-02T00:00:00+00:00'", 356),
    ] {
        assert_eq!(read(&job, &["--where", filter])["rows"], rows, "{filter}");
    }
    for file in all["files"].as_array().unwrap() {
        assert!(file["columns_with_bounds"].as_array().map_or(0, Vec::len) >= 3, "{file}");
    }
}

#[test]
fn a_message_that_brings_a_column_keeps_its_value() {
    let schema = json!({"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}]});
    let mut lines: Vec<Value> = (0..50).map(|i| json!({"id": i})).collect();
    lines.push(json!({"id": 50, "fresh": "first", "flag": true, "count": 7}));
    lines.push(json!({"id": 51, "fresh": "second"}));
    let job = job(&schema, "add_columns: true, partition_by: ['bucket(id, 2)']", &lines);
    job.run().ok();
    assert_eq!(dead(&job), "");
    let found = read(&job, &["--first", "100", "--distinct", "id"]);
    assert_eq!(found["rows"], 52);
    let row = |id: i64| found["first"].as_array().unwrap().iter().find(|row| row["id"] == id).unwrap().clone();
    assert_eq!(row(50), json!({"id": 50, "fresh": "first", "flag": true, "count": 7}));
    assert_eq!(row(51)["fresh"], "second");
    assert_eq!(row(3)["fresh"], Value::Null);
    // Without being asked, the table stays as it is, and the fields are counted.
}

#[test]
fn unknown_fields_are_left_out_counted_and_said_once() {
    let schema = json!({"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}]});
    let job = job(&schema, "", &[json!({"id": 1, "extra": {"x": 1}}), json!({"id": 2, "extra": 5})]);
    let ended = job.run().ok();
    assert_eq!(ended.stderr.matches("fields that the schema doesn't name").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("extra"), "{}", ended.stderr);
    let found = read(&job, &[]);
    assert_eq!((found["rows"].as_u64(), found["schema"].as_array().map(Vec::len)), (Some(2), Some(1)));
}

#[test]
fn snapshots_are_expired_with_the_commit_that_asks_for_it_and_the_mark_stays() {
    let schema = json!({"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}]});
    let job = job(&schema, "expire_snapshots: {older_than: 1ms, retain_last: 1}, commit_rows: 100", &[]);
    let often = job.read("pipeline.yaml").replace("interval: 100ms", "interval: 20ms");
    job.write("pipeline.yaml", often);
    let lines: String = (0..400_000).map(|i| format!("{{\"id\": {i}}}\n")).collect();
    job.write("in.jsonl", lines);
    let summary = job.run().ok().summary();
    let commits = summary["sinks"]["iceberg"]["commits"].as_u64().unwrap();
    let found = read(&job, &["--distinct", "id"]);
    let snapshots = found["snapshots"].as_array().unwrap().len() as u64;
    assert!(commits > 2 && snapshots <= 2, "{commits} commits, {snapshots} snapshots left");
    assert_eq!(found["distinct"], 400_000);
    let epoch = summary["epoch"].as_u64().unwrap();
    let mark = found["properties"]["weir.tables.iceberg.0"].as_str().unwrap().to_string();
    assert!(mark.rsplit(':').next().unwrap().parse::<u64>().unwrap() <= epoch, "{mark}");
}

#[test]
fn an_existing_table_is_filled_by_its_own_schema_when_none_is_declared() {
    let schema = json!({"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}]});
    let job = job(&schema, "", &[json!({"id": 1})]);
    job.run().ok();
    let again = job.read("pipeline.yaml").replace("schema: schema.json, ", "").replace("pipeline: tables", "pipeline: again");
    job.write("pipeline.yaml", again);
    job.run().ok();
    assert_eq!(read(&job, &[])["rows"], 2);
}
