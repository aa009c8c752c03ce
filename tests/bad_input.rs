//! What a person can get wrong, and what the surroundings can refuse: each ends in an error that names the
//! thing and the remedy, with nothing lost.

use std::process::Command;

use crate::harness::guest;
use crate::harness::weir::Job;

const SCHEMA: &str = r#"{"type": "struct", "fields": [
  {"id": 1, "name": "id", "required": true, "type": "string"},
  {"id": 2, "name": "n", "required": false, "type": "long"}]}"#;

const GENERATOR: &str = r#"{"id": "{{uuid()}}", "n": {{integer(1,100)}}}"#;

/// Generator into an Iceberg table with a SQLite catalog.
fn iceberg(extra: &str) -> Job {
    let job = Job::new(&format!(
        "
pipeline: bad_input
workers: 2
restarts: 1
checkpoint: {{store: ./state, interval: 100ms}}
sources: [generator: {{schema: template.json, count: 2000, partitions: 2}}]
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: web.clicks,
              schema: schema.json, partition_by: ['bucket(id, 4)'], {extra}}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
"
    ));
    job.write("schema.json", SCHEMA).write("template.json", GENERATOR);
    job
}

fn edit(job: &Job, from: &str, to: &str) {
    let text = job.read("pipeline.yaml");
    assert!(text.contains(from), "{text}");
    job.write("pipeline.yaml", text.replace(from, to));
}

#[test]
fn a_wrong_key_in_the_file_names_its_place_and_the_nearest() {
    let job = iceberg("");
    edit(&job, "partition_by", "partitioned_by");
    job.weir(&["check", "pipeline.yaml"]).refused(2, &["partitioned_by", "did you mean `partition_by`?", "sinks[0].iceberg"]);
}

#[test]
fn a_missing_file_is_named() {
    let job = iceberg("");
    job.weir(&["run", "nope.yaml"]).refused(2, &["cannot read the pipeline file", "nope.yaml"]);
    edit(&job, "schema.json", "other.json");
    job.weir(&["check", "pipeline.yaml"]).refused(2, &["other.json", "sinks[0].iceberg"]);
    let job = Job::new(
        "pipeline: x\ncheckpoint: {store: ./state}\nsources: [stdin: {}]\nsteps: [{name: s, transform: gone.wasm}]\nsinks: [blackhole: {}]\n",
    );
    job.run().refused(2, &["cannot read the module", "gone.wasm"]);
}

#[test]
fn stdin_and_stdout_need_at_least_once_and_check_says_why() {
    let job = Job::new("pipeline: x\ncheckpoint: {store: ./state}\nsources: [stdin: {}]\nsinks: [stdout: {}]\n");
    job.weir(&["check", "pipeline.yaml"]).refused(2, &["can't be read again", "delivery: at-least-once"]);
    let file = job.read("pipeline.yaml") + "delivery: at-least-once\n";
    job.write("pipeline.yaml", file);
    assert!(job.weir(&["check", "pipeline.yaml"]).ok().stdout.contains("would start"));
}

#[test]
fn an_unreachable_broker_is_named_and_check_ends() {
    let job = Job::new(
        "pipeline: x\ncheckpoint: {store: ./state}\nsources: [kafka: {brokers: '127.0.0.1:1', topic: clicks}]\nsinks: [blackhole: {}]\n",
    );
    job.weir(&["check", "pipeline.yaml"]).refused(1, &["127.0.0.1:1"]);
}

#[test]
fn an_unreachable_catalog_is_named() {
    let job = iceberg("");
    edit(&job, "type: sql, uri: 'sqlite:./warehouse/catalog.db'", "type: rest, uri: 'http://127.0.0.1:1'");
    job.weir(&["check", "pipeline.yaml"]).refused(1, &["http://127.0.0.1:1", "cannot open the catalog"]);
}

#[test]
fn a_schema_that_does_not_match_the_table_says_every_mismatch_at_once() {
    let job = iceberg("");
    job.run().ok();
    job.write(
        "schema.json",
        SCHEMA
            .replace("\"long\"", "\"boolean\"")
            .replace("\"id\": 2,", "\"id\": 3,")
            .replace("]}", ", {\"id\": 9, \"name\": \"extra\", \"required\": false, \"type\": \"date\"}]}"),
    );
    edit(&job, "bucket(id, 4)", "bucket(id, 8)");
    job.weir(&["check", "pipeline.yaml"]).refused(
        2,
        &["`n` is long in the table, but boolean by the schema", "`extra` is missing in the table", "bucket[8]", "bucket[4]"],
    );
}

#[test]
fn a_table_of_another_log_is_refused_and_nothing_is_written() {
    let job = iceberg("");
    job.run().ok();
    std::fs::remove_dir_all(job.path("state")).unwrap();
    job.run().refused(2, &["another log", "weir.bad_input.iceberg.0", "web.clicks"]);
}

#[test]
fn a_row_that_does_not_fit_is_a_dead_letter_with_pointer_expected_and_found() {
    let job = iceberg("");
    edit(
        &job,
        "sources: [generator: {schema: template.json, count: 2000, partitions: 2}]",
        "sources: [file: {path: in.jsonl, format: lines}]",
    );
    job.write("in.jsonl", "{\"id\": \"a\", \"n\": 1}\n{\"id\": \"b\", \"n\": \"x\"}\n{\"n\": 3}\nnope\n{\"id\": \"c\", \"n\": 9223372036854775808}\n{\"id\": \"d\", \"u\": 1}\n");
    let summary = job.run().ok().summary();
    assert_eq!(summary["sinks"]["iceberg"]["rows"], 2, "{summary}");
    let dead = job.read("dead.jsonl");
    assert_eq!(dead.lines().count(), 4, "{dead}");
    for word in ["pointer=/n", "expected=long", "pointer=/id", "9223372036854775808"] {
        assert!(dead.contains(word), "`{word}` is not in {dead}");
    }
}

/// Runs `weir run` where a shell has prepared the surroundings.
fn run_in(job: &Job, preparation: &str) -> (i32, String) {
    let script = format!(
        "set -e; cd {}; {preparation}; exec {} run pipeline.yaml --json",
        job.folder.path().display(),
        crate::harness::weir::binary().display()
    );
    let done = Command::new("unshare").args(["--mount", "bash", "-c", &script]).output().unwrap();
    (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn a_read_only_warehouse_is_named_and_the_rows_come_once_it_is_writable() {
    let job = iceberg("");
    edit(&job, "sqlite:./warehouse/catalog.db", "sqlite:./catalog.db");
    std::fs::create_dir(job.path("warehouse")).unwrap();
    let (code, said) = run_in(&job, "mount --bind warehouse warehouse; mount -o remount,ro,bind warehouse");
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("warehouse") && said.contains("writable"), "{said}");
    assert_eq!(job.run().ok().summary()["sinks"]["iceberg"]["rows"], 2000);
}

#[test]
fn a_full_disk_is_named_and_nothing_is_lost_once_there_is_space() {
    let job = iceberg("");
    edit(&job, "count: 2000", "count: 40000");
    edit(&job, "sqlite:./warehouse/catalog.db", "sqlite:./catalog.db");
    std::fs::create_dir(job.path("warehouse")).unwrap();
    // What fitted before the disk was full is kept, as on a real disk that is then made larger.
    let keep = "mount -t tmpfs -o size=300k none warehouse; trap 'cp -a warehouse/. kept/' EXIT; mkdir -p kept";
    let script = format!(
        "cd {}; {keep}; {} run pipeline.yaml --json; code=$?; exit $code",
        job.folder.path().display(),
        crate::harness::weir::binary().display()
    );
    let done = Command::new("unshare").args(["--mount", "bash", "-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left") && said.contains("free some space"), "{said}");
    std::fs::remove_dir(job.path("warehouse")).unwrap();
    std::fs::rename(job.path("kept"), job.path("warehouse")).unwrap();
    job.run().ok();
    let shown = job.weir(&["head", "pipeline.yaml", "-n", "100000"]).ok().stdout;
    assert_eq!(shown.lines().count(), 40_001, "every row once, under one line of names");
}

#[test]
fn a_module_of_another_world_is_refused_with_what_a_transform_exports() {
    let job = Job::new(
        "pipeline: x\ncheckpoint: {store: ./state}\nsources: [generator: {template: '{}', count: 1}]\nsteps: [{name: s, transform: other.wasm}]\nsinks: [blackhole: {}]\n",
    );
    job.write("other.wasm", b"\0asm\x0d\0\x01\0");
    job.run().refused(2, &["other.wasm", "another world", "configure", "transform"]);
    let mask = guest("mask");
    let job = Job::new(&format!(
        "pipeline: x\ncheckpoint: {{store: ./state}}\nsources: [generator: {{template: '{{}}', count: 1}}]\nsteps: [{{name: s, transform: {}, config: {{feilds: []}}}}]\nsinks: [blackhole: {{}}]\n",
        mask.display()
    ));
    job.run().refused(2, &["refuses its config", "feilds"]);
}

#[test]
fn rows_that_can_be_no_messages_become_dead_letters_and_without_a_place_for_them_the_pipeline_stops() {
    let job = Job::new(
        "
pipeline: ragged
workers: 2
checkpoint: {store: ./state, interval: 100ms}
sources: [file: {name: orders, path: orders.csv}]
sinks:
  - file: {path: out.jsonl}
",
    );
    job.write("orders.csv", "id,name\n1,a\n2\n3,c\n");
    job.run().refused(2, &["no sink takes dead letters", "step=orders", "offset=2", "record=3 file=orders.csv"]);
    let file = job.read("pipeline.yaml") + "  - file: {name: dead, path: dead.jsonl, from: dead_letter}\n";
    job.write("pipeline.yaml", file);
    let summary = job.run().ok().summary();
    assert_eq!((&summary["rejected"], &summary["events_in"]), (&1.into(), &3.into()));
    assert_eq!(job.read("out.jsonl"), "{\"id\":\"1\",\"name\":\"a\"}\n{\"id\":\"3\",\"name\":\"c\"}\n");
    let letter: serde_json::Value = serde_json::from_str(job.read("dead.jsonl").trim()).unwrap();
    assert_eq!((&letter["value"], &letter["step"], &letter["offset"]), (&"2".into(), &"orders".into(), &2.into()));
    assert!(letter["reason"].as_str().unwrap().contains("fields=1 columns=2 record=3 file=orders.csv"), "{letter}");
}

#[test]
fn a_row_that_a_spreading_sink_rejects_is_not_dropped_for_want_of_a_place() {
    let job = Job::new(
        "
pipeline: spread
workers: 2
checkpoint: {store: ./state, interval: 100ms}
sources: [file: {path: in.jsonl}]
sinks:
  - iceberg: {catalog: {type: sql, uri: 'sqlite:./warehouse/catalog.db'}, warehouse: ./warehouse, table: web.rows,
              schema: schema.json, partition_by: ['bucket(id, 4)'], distribution: hash}
",
    );
    job.write("schema.json", r#"{"type": "struct", "fields": [{"name": "id", "type": "long", "required": true}]}"#);
    job.write("in.jsonl", "{\"id\": 1}\n{\"id\": \"x\"}\n{\"id\": 3}\n");
    job.run().refused(2, &["no sink takes dead letters", "step=iceberg", "offset=1", "wrong type pointer=/id"]);
}
