//! Dead letters: found again by what is known of them, and replayed once each, whatever dies on the way.

use serde_json::Value;

use crate::harness::kafka::broker;
use crate::harness::versions::Steered;
use crate::harness::weir::{Job, wait_for};
use crate::harness::{guest, scaled};

/// A pipeline whose step rejects what says so.
fn job(source: &str) -> Job {
    let job = Job::new(&format!(
        "
pipeline: letters
workers: 2
checkpoint: {{store: ./state, interval: 50ms}}
sources: [{source}]
steps:
  - {{name: same, transform: {}}}
  - {{name: check, transform: {}, grants: [log]}}
sinks:
  - file: {{name: out, path: out.jsonl}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
        guest("passthrough").display(),
        guest("evil").display()
    ));
    job.write("in.jsonl", "fine 1\nreject 2\nfine 3\nreject 4\n");
    job
}

const FILE: &str = "file: {path: in.jsonl, format: lines}";

/// Has the step `check` take everything from here on.
fn mend(job: &Job) {
    let text = job.read("pipeline.yaml");
    job.write("pipeline.yaml", text.replace(guest("evil").to_str().unwrap(), guest("passthrough").to_str().unwrap()));
}

fn dlq(job: &Job, arguments: &[&str]) -> Value {
    let all = [&["dlq", arguments[0], "pipeline.yaml"], &arguments[1..], &["--json"]].concat();
    serde_json::from_str(&job.weir(&all).ok().stdout).unwrap()
}

fn lines(job: &Job, name: &str) -> Vec<String> {
    let mut lines: Vec<String> = job.read(name).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn letters_are_found_by_what_is_known_of_them() {
    let job = job(FILE);
    let none = dlq(&job, &["list"]);
    assert_eq!(none["total"], 0, "before anything ran there are none: {none}");
    job.run().ok();
    let found = dlq(&job, &["list"]);
    assert_eq!((&found["total"], &found["open"], &found["by_step"]["check"]), (&2.into(), &2.into(), &2.into()), "{found}");
    let letter = &found["letters"][0];
    let count = |arguments: &[&str]| dlq(&job, &[&["list"], arguments].concat())["total"].as_u64().unwrap();
    let (digest, reason) = (letter["module"].as_str().unwrap(), letter["reason"].as_str().unwrap());
    for (both, neither) in [
        (["--step", "check"], ["--step", "same"]),
        (["--module", &digest[..8]], ["--module", "0123456789"]),
        (["--reason", &reason[..5]], ["--reason", "no such reason"]),
        (["--since", "1h"], ["--since", "2100-01-01T00:00:00Z"]),
        (["--until", "2100-01-01T00:00:00Z"], ["--until", "1h"]),
    ] {
        assert_eq!((count(&both), count(&neither)), (2, 0), "{both:?} {neither:?}");
    }
    let id = letter["id"].as_str().unwrap();
    assert_eq!(count(&["--id", id]), 1);
    let shown = job.weir(&["dlq", "show", "pipeline.yaml", id]).ok().stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["value"], &shown["reason"]), (&"reject 2".into(), &reason.into()));
    assert!(job.weir(&["dlq", "list", "pipeline.yaml", "-n", "1"]).ok().stdout.contains("2 of them not replayed; 1 shown"));
    job.weir(&["dlq", "show", "pipeline.yaml", "nothing"]).refused(2, &["no such dead letter", "id=nothing"]);
    job.weir(&["dlq", "list", "pipeline.yaml", "--since", "yesterday"]).refused(2, &["two hours ago", "time=yesterday"]);
}

#[test]
fn a_replay_goes_through_the_mended_step_once_and_rejects_what_is_still_bad() {
    let job = job(FILE);
    job.run().ok();
    let found = dlq(&job, &["list"]);
    // Not mended: it is a new letter, and the old one is done.
    let first = found["letters"][0]["id"].as_str().unwrap().to_string();
    let done = dlq(&job, &["replay", "--id", &first]);
    assert_eq!((&done["letters"], &done["rejected"]), (&1.into(), &1.into()), "{done}");
    let found = dlq(&job, &["list"]);
    assert_eq!((&found["total"], &found["open"]), (&3.into(), &2.into()), "{found}");
    mend(&job);
    let done = dlq(&job, &["replay", "--step", "check"]);
    assert_eq!((&done["letters"], &done["rejected"]), (&2.into(), &0.into()), "{done}");
    assert_eq!(lines(&job, "out.replay-2.jsonl"), ["reject 2", "reject 4"]);
    for _ in 0..2 {
        assert!(job.weir(&["dlq", "replay", "pipeline.yaml"]).ok().stdout.contains("nothing to replay"));
    }
    assert!(!job.path("out.replay-3.jsonl").exists());
    assert_eq!(dlq(&job, &["list"])["open"], 0);
}

#[test]
fn a_replay_that_dies_goes_on_by_its_own_log_and_does_nothing_twice() {
    for point in ["manifest.before", "manifest.created", "commit.before", "commit.sent", "commit.after", "ack.after"] {
        let mut job = job(FILE);
        job.run().ok();
        mend(&job);
        // The first manifest of its log is number 0.
        job.set("WEIR_CRASH", point);
        let died = job.weir(&["dlq", "replay", "pipeline.yaml"]);
        assert_ne!(died.code, Some(0), "{point}: {died:?}");
        job.unset("WEIR_CRASH");
        job.weir(&["dlq", "replay", "pipeline.yaml"]).ok();
        assert_eq!(lines(&job, "out.replay-1.jsonl"), ["reject 2", "reject 4"], "{point}");
        assert!(job.weir(&["dlq", "replay", "pipeline.yaml"]).ok().stdout.contains("nothing to replay"), "{point}");
    }
}

#[test]
fn what_a_sink_refused_goes_into_that_sink_alone() {
    let job = Job::new(&format!(
        "
pipeline: letters
checkpoint: {{store: ./state, interval: 50ms}}
sources: [generator: {{template: \"[1,\\n{{{{index()}}}}]\", count: 3}}]
steps: [{{name: same, transform: {}}}]
sinks:
  - file: {{name: lines, path: 'lines-{{epoch}}.jsonl'}}
  - file: {{name: copy, path: copy.jsonl, format: envelope}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
        guest("passthrough").display()
    ));
    job.run().ok();
    assert_eq!(lines(&job, "copy.jsonl").len(), 3);
    assert_eq!(dlq(&job, &["list", "--step", "lines"])["open"], 3);
    let text = job.read("pipeline.yaml").replace("{name: lines,", "{name: lines, format: envelope,");
    job.write("pipeline.yaml", text);
    let done = dlq(&job, &["replay"]);
    assert_eq!((&done["letters"], &done["rejected"]), (&3.into(), &0.into()), "{done}");
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    let names: Vec<String> = std::fs::read_dir(job.folder.path()).unwrap().map(|entry| name(entry.unwrap())).collect();
    let replayed: Vec<&String> = names.iter().filter(|name| name.starts_with("lines-replay-1-")).collect();
    assert_eq!(replayed.len(), 1, "{names:?}");
    let values: Vec<Value> = lines(&job, replayed[0]).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(values.iter().all(|row| row["value"].as_str().unwrap().starts_with("[1,\n")), "{values:?}");
    assert_eq!(values.len(), 3);
    assert!(!names.iter().any(|name| name.starts_with("copy.replay")), "the other sink had them: {names:?}");
}

#[test]
fn a_running_pipeline_replays_through_the_module_that_was_swapped_in() {
    let job = job("generator: {template: '\"reject {{index()}}\"', rate: 2000, partitions: 4}");
    let steered = Steered::start(&job, &[]);
    let open = || steered.get("/v1/dead-letters?limit=1")["open"].as_u64().unwrap();
    wait_for("dead letters", || open() > 10);
    let module = std::fs::read(guest("passthrough")).unwrap();
    let (status, answer) = steered.post("/v1/steps/check/swap", &module).unwrap();
    assert_eq!(status, 200, "{answer}");
    let (status, done) = steered.post("/v1/dead-letters/replay?step=check", b"").unwrap();
    assert_eq!(status, 200, "{done}");
    assert!(done["letters"].as_u64().unwrap() > 10 && done["rejected"] == 0, "{done}");
    assert_eq!(open(), 0, "the module that refuses ran no longer");
    let (_, again) = steered.post("/v1/dead-letters/replay", b"").unwrap();
    assert_eq!(again["letters"], 0, "{again}");
    assert_eq!(lines(&job, "out.replay-1.jsonl").len() as u64, done["letters"].as_u64().unwrap());
    let (status, refused) = steered.post("/v1/dead-letters/replay?since=never", b"").unwrap();
    assert_eq!(status, 422, "{refused}");
    steered.stop();
}

#[test]
fn letters_that_cannot_be_replayed_say_so() {
    let text = |sinks: &str, step: &str| {
        format!(
            "
pipeline: letters
checkpoint: {{store: ./state, interval: 50ms}}
sources: [file: {{path: in.jsonl, format: lines}}]
steps: [{step}]
sinks: [{sinks}]
"
        )
    };
    let out = "file: {name: out, path: out.jsonl}";
    let job = Job::new(&text(out, ""));
    job.weir(&["dlq", "list", "pipeline.yaml"]).refused(2, &["keeps no dead letters that can be read again"]);
    let blackhole = format!("{out}, blackhole: {{name: dead, from: dead_letter}}").replace(", black", "}, {black");
    job.write("pipeline.yaml", text(&format!("{{{blackhole}}}"), ""));
    job.weir(&["dlq", "list", "pipeline.yaml"]).refused(2, &["from a file sink", "sink=dead", "kind=blackhole"]);
    let dead = format!("{{{out}}}, {{file: {{name: dead, path: dead.jsonl, from: dead_letter}}}}");
    let step = format!("{{name: per_hour, aggregate: {}, key: /user, window: {{tumbling: 1h}}}}", guest("count").display());
    job.write("pipeline.yaml", text(&dead, &step)).write("in.jsonl", "broken\n");
    job.run().ok();
    job.weir(&["dlq", "replay", "pipeline.yaml"]).refused(2, &["would go into windows", "step=per_hour"]);
    job.write("dead.jsonl", "no letter\n");
    job.weir(&["dlq", "list", "pipeline.yaml"]).refused(2, &["a line is no dead letter", "file=dead.jsonl line=1"]);
}

#[test]
fn tables_and_topics_get_a_replays_rows_once_whatever_dies() {
    let broker = broker();
    let all = ["manifest.created", "commit.sent:1", "ack.after", "prepare.after", "commit.sent:2"];
    for (number, point) in all[..scaled(3, 5)].iter().enumerate() {
        let topic = format!("replayed_{number}");
        broker.create_topic(&topic, 2, &[]);
        let mut job = Job::new(&format!(
            "
pipeline: replayed_{number}
workers: 2
checkpoint: {{store: ./state, interval: 50ms}}
sources: [{FILE}]
steps: [{{name: mask, transform: {}, config: {{fields: [/email], missing: reject}}}}]
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: a.b, schema: schema.json}}
  - kafka: {{brokers: '{}', topic: {topic}}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
            guest("mask").display(),
            broker.bootstrap()
        ));
        job.write("schema.json", r#"{"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"}, {"id": 2, "name": "email", "required": false, "type": "string"}]}"#);
        job.write("in.jsonl", "{\"id\": 1, \"email\": \"a\"}\n{\"id\": 2}\n{\"id\": 3, \"email\": \"b\"}\n{\"id\": 4}\n");
        job.run().ok();
        job.write("pipeline.yaml", job.read("pipeline.yaml").replace("missing: reject", "missing: ignore"));
        let died = job.set("WEIR_CRASH", point).weir(&["dlq", "replay", "pipeline.yaml"]);
        assert_eq!(died.signal, Some(9), "{point}: {died:?}");
        job.unset("WEIR_CRASH").weir(&["dlq", "replay", "pipeline.yaml"]).ok();
        assert!(job.weir(&["dlq", "replay", "pipeline.yaml"]).ok().stdout.contains("nothing to replay"), "{point}");
        let ids = |texts: Vec<String>| {
            let mut ids: Vec<i64> =
                texts.iter().map(|text| serde_json::from_str::<Value>(text).unwrap()["id"].as_i64().unwrap()).collect();
            ids.sort_unstable();
            ids
        };
        let records = broker.consume_all(&topic).into_iter().map(|record| String::from_utf8(record.value.unwrap()).unwrap());
        assert_eq!(ids(records.collect()), [1, 2, 3, 4], "{point}: the topic");
        let rows = job.weir(&["head", "pipeline.yaml", "-n", "100"]).ok().stdout;
        let mut shown: Vec<&str> = rows.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
        shown.sort_unstable();
        assert_eq!(shown, ["1", "2", "3", "4"], "{point}: the table: {rows}");
    }
}

#[test]
fn whoever_replays_at_the_same_moment_each_letter_takes_effect_once() {
    for _ in 0..scaled(3, 20) {
        let job = job(FILE);
        let letters: Vec<String> = (100..400).map(|n| format!("reject {n}")).collect();
        job.write("in.jsonl", letters.join("\n"));
        job.run().ok();
        mend(&job);
        // Filters that overlap, so that neither's letters are the other's.
        let ask = |until: &str| job.start_with(&["dlq", "replay", "pipeline.yaml", "--until", until]);
        let asked = ["2100-01-01T00:00:00Z", "2101-01-01T00:00:00Z", "2102-01-01T00:00:00Z"].map(ask);
        for ended in asked.map(crate::harness::weir::Running::wait) {
            // Who comes upon a replay that another one carries out may be fenced by it.
            assert!([Some(0), Some(3)].contains(&ended.code), "{ended:?}");
        }
        job.weir(&["dlq", "replay", "pipeline.yaml"]).ok();
        assert_eq!(dlq(&job, &["list"])["open"], 0);
        let mut replayed = Vec::new();
        for entry in std::fs::read_dir(job.folder.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.starts_with("out.replay-") {
                replayed.extend(lines(&job, &name));
            }
        }
        replayed.sort();
        assert_eq!(replayed, letters);
    }
}
