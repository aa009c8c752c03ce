//! The guests of `examples/languages` inside the real host: that each language's does the same, down to the reasons; and what the
//! host does with modules of stock toolchains.

use serde_json::{Value, json};

use crate::harness::guest;
use crate::harness::weir::Job;

/// The languages whose modules `make languages` builds.
const LANGUAGES: [&str; 6] = ["c", "zig", "assemblyscript", "go", "js", "python"];

const ORDERS: [&str; 12] = [
    r#"{"id":1,"email":"ann@example.com","amount":499,"ts":1700000000000,"note":"first"}"#,
    r#"{"id":2,"email":"bob@example.com","amount":500,"note":"grüße"}"#,
    r#"{"id":3,"deleted":true}"#,
    r#"{ "note" : null , "ts":null, "amount" : 7, "email":"x@y", "id" : -4 }"#,
    "not an order",
    "[]",
    "{}",
    r#"{"id":"5"}"#,
    r#"{"id":6,"email":"nobody","amount":1}"#,
    r#"{"id":7,"email":"a@b","amount":-1}"#,
    r#"{"id":8,"email":"a@b","amount":1,"ts":"now"}"#,
    r#"{"id":9,"deleted":1}"#,
];

/// A pipeline: a file through one guest into a file, its route and dead letters into others.
fn job(module: &str, step: &str, route: &str, lines: &[&str]) -> Job {
    let job = Job::new(&format!(
        "
pipeline: languages
workers: 1
checkpoint: {{store: ./state, interval: 100ms}}
sources: [file: {{path: in.jsonl, format: lines}}]
steps: [{{name: step, transform: {}, {step}}}]
sinks:
  - file: {{path: out.jsonl, format: envelope}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
{route}",
        guest(module).display()
    ));
    job.write("in.jsonl", lines.join("\n") + "\n");
    job
}

fn rows(job: &Job, name: &str) -> Vec<Value> {
    job.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn orders_are_checked_masked_and_routed_the_same_in_each_language() {
    for language in LANGUAGES {
        let large = "  - file: {name: large, path: large.jsonl, format: envelope, from: large}";
        let job = job(&format!("{language}_transform"), "config: {large_from: 500}", large, &ORDERS);
        job.run().ok();
        let out = rows(&job, "out.jsonl");
        assert_eq!(out.len(), 3, "{language}: {out:?}");
        let value = |row: &Value| serde_json::from_str::<Value>(row["value"].as_str().unwrap()).unwrap();
        let first = json!({"id": 1, "email": "a***@example.com", "amount": 499, "size": "small", "note": "first"});
        assert_eq!(value(&out[0]), first, "{language}");
        assert_eq!((&out[0]["key"], &out[0]["event_time_ms"]), (&json!("1"), &json!(1_700_000_000_000i64)), "{language}");
        assert_eq!(out[0]["attributes"], json!([{"name": "size", "value": "small"}]), "{language}");
        assert_eq!((&out[1]["key"], &out[1]["value"]), (&json!("3"), &Value::Null), "{language}: a tombstone");
        let spaced = json!({"id": -4, "email": "x***@y", "amount": 7, "size": "small", "note": ""});
        assert_eq!(value(&out[2]), spaced, "{language}");
        let large = rows(&job, "large.jsonl");
        assert_eq!(value(&large[0])["note"], "grüße", "{language}");
        let reasons: Vec<Value> = rows(&job, "dead.jsonl").iter().map(|letter| letter["reason"].clone()).collect();
        assert_eq!(
            reasons,
            [
                "not a JSON object",
                "not a JSON object",
                "id: expected a whole number",
                "id: expected a whole number",
                "email: expected an address",
                "amount: expected a whole number of cents",
                "ts: expected milliseconds",
                "deleted: expected true or false",
            ],
            "{language}"
        );
    }
}

#[test]
fn a_wrong_limit_is_refused_with_the_guests_own_words_in_each_language() {
    for language in LANGUAGES {
        let job = job(&format!("{language}_transform"), "config: {large_from: 0}", "", &["{}"]);
        job.run().refused(2, &["large_from: expected a whole number of at least 1"]);
    }
}

#[test]
fn passthrough_changes_nothing_in_each_language() {
    // More than one batch, with empty and long values.
    let long = "x".repeat(1 << 20);
    let lines: Vec<String> = (0..5000).map(|i| "é".repeat(i % 7) + &i.to_string()).chain([long]).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    for language in LANGUAGES {
        let job = job(&format!("{language}_passthrough"), "config: {}", "", &lines);
        job.run().ok();
        let found: Vec<Value> = rows(&job, "out.jsonl").into_iter().map(|mut row| row["value"].take()).collect();
        assert!(found == lines, "{language}");
    }
}

#[test]
fn totals_of_keyed_windows_are_the_same_in_each_language_as_those_of_stats() {
    let amount = |i: usize| (i * 7919) % 1000;
    let line = |i: usize| format!(r#"{{"user":"u{}","amount":{},"ts":{}}}"#, i % 7, amount(i), i * 100);
    let wrong = r#"{"user":"u0","amount":"x","ts":0}"#.to_string();
    let lines: Vec<String> = std::iter::once(wrong).chain((0..3000).map(line)).collect();
    // By user and minute: how many, and their sum.
    let mut expected = std::collections::BTreeMap::new();
    for i in 0..3000 {
        let total = expected.entry((format!("u{}", i % 7), i / 600)).or_insert((0, 0));
        *total = (total.0 + 1, total.1 + amount(i));
    }
    let expected: Vec<String> =
        expected.into_iter().map(|((user, minute), (count, sum))| format!("{user} {minute} {count} {sum}")).collect();
    let modules = LANGUAGES.map(|language| (format!("{language}_aggregate"), "amount"));
    for (module, field) in modules.into_iter().chain([("stats".to_string(), "/amount")]) {
        let job = Job::new(&format!(
            "
pipeline: totals
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources: [file: {{path: in.jsonl, format: lines, event_time: {{field: /ts, format: ms}}}}]
steps: [{{name: totals, aggregate: {}, key: /user, window: {{tumbling: 1m}}, config: {{field: {field}}}}}]
sinks:
  - file: {{path: out.jsonl}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
  - file: {{name: late, path: late.jsonl, from: late}}",
            guest(&module).display()
        ));
        job.write("in.jsonl", lines.join("\n") + "\n");
        job.run().ok();
        let minute = |row: &Value| row["window_start"].as_str().unwrap()[14..16].parse::<usize>().unwrap();
        let shown = |row: &Value| format!("{} {} {} {}", row["user"].as_str().unwrap(), minute(row), row["count"], row["sum"]);
        let mut found: Vec<String> = rows(&job, "out.jsonl").iter().map(shown).collect();
        found.sort();
        assert_eq!(found, expected, "{module}");
        let letters = rows(&job, "dead.jsonl");
        assert_eq!(letters.len(), 1, "{module}: {letters:?}");
    }
}

/// A module as a C compiler for WASI makes them: prints in `configure`, and begins a line in `transform` before it fails.
const PRINTING: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "configured\0a")
  (data (i32.const 96) "about to fail")
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 65536))
  (func $print (param $fd i32) (param $at i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $length))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "configure") (param i32 i32) (result i32)
    (call $print (i32.const 1) (i32.const 64) (i32.const 11))
    (i32.const 1024))
  (func (export "transform") (param i32) (result i32)
    (call $print (i32.const 2) (i32.const 96) (i32.const 13))
    unreachable))"#;

#[test]
fn what_a_module_prints_reaches_the_log_of_a_step_that_grants_it() {
    for (step, seen) in [("grants: [log]", true), ("config: {}", false)] {
        let job = Job::new(&format!(
            "
pipeline: printing
workers: 1
checkpoint: {{store: ./state, interval: 100ms}}
sources: [file: {{path: in.jsonl, format: lines}}]
steps: [{{name: step, transform: ./printing.wasm, {step}}}]
sinks:
  - file: {{path: out.jsonl}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}"
        ));
        job.write("printing.wasm", wat::parse_str(PRINTING).unwrap()).write("in.jsonl", "x\n");
        let ended = job.run().ok();
        assert_eq!(ended.stderr.contains("configured"), seen, "{}", ended.stderr);
        assert_eq!(ended.stderr.contains("about to fail"), seen, "{}", ended.stderr);
        assert!(rows(&job, "dead.jsonl")[0]["reason"].as_str().unwrap().contains("unreachable"));
    }
}
