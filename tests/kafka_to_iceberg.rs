//! The main job against a real Apache Kafka broker and real catalogs: whatever is killed, every message is in the
//! table exactly once. What is in it is counted by PyIceberg, not by us.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

use crate::harness::kafka::{Broker, Record, broker};
use crate::harness::weir::{Ended, Job, wait_for};
use crate::harness::{guest, rest, scaled, table};

const SCHEMA: &str = r#"{"type": "struct", "fields": [
  {"id": 1, "name": "id", "required": true, "type": "string"},
  {"id": 2, "name": "stream", "required": true, "type": "long"},
  {"id": 3, "name": "message", "required": true, "type": "string"}]}"#;

/// Rows of the tests that kill.
fn rows() -> u64 {
    scaled(200_000, 5_000_000)
}

/// Which catalog a job uses.
enum Catalog<'a> {
    Sqlite,
    Rest(&'a rest::Catalog),
}

struct Trial<'a> {
    job: Job,
    catalog: Catalog<'a>,
    table: String,
    topic: String,
    brokers: String,
}

impl Trial<'_> {
    /// A pipeline from a topic through `map` into a table, that ends once it has read what is there now.
    fn new<'a>(name: &str, topic: &str, broker: &Broker, catalog: Catalog<'a>, extra: &str) -> Trial<'a> {
        let table = format!("{name}.clicks");
        let place = match &catalog {
            Catalog::Sqlite => "catalog: {type: sql, uri: 'sqlite:./warehouse/catalog.db'}, warehouse: ./warehouse".to_string(),
            Catalog::Rest(rest) => format!("catalog: {{type: rest, uri: '{}'}}", rest.uri()),
        };
        let job = Job::new(&format!(
            "
pipeline: {name}
workers: 2
checkpoint: {{store: ./state, interval: 200ms}}
sources: [kafka: {{brokers: '{brokers}', topic: {topic}, until: latest}}]
steps:
  - name: map
    transform: {map}
    config: {{fields: {{/id: /id, /stream: {{from: /logStreamId, cast: integer}}, /message: /message}}}}
sinks:
  - iceberg: {{{place}, table: {table}, schema: schema.json, partition_by: ['bucket(id, 8)'], distribution: hash, {extra}}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
            brokers = broker.bootstrap(),
            map = guest("map").display(),
        ));
        job.write("schema.json", SCHEMA);
        Trial { job, catalog, table, topic: topic.to_string(), brokers: broker.bootstrap().to_string() }
    }

    fn arguments(&self) -> Vec<String> {
        match &self.catalog {
            Catalog::Sqlite => table::sqlite(self.job.folder.path()).to_vec(),
            Catalog::Rest(rest) => vec!["--catalog".into(), "rest".into(), rest.uri().to_string(), String::new()],
        }
    }

    /// What PyIceberg finds in the table where `filter` holds.
    fn read(&self, filter: &str) -> Value {
        let mut arguments = self.arguments();
        arguments.extend(["--table".into(), self.table.clone()]);
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--where", filter, "--distinct", "id", "--checksum", "id", "stream", "message"]);
        table::python("read_table.py", &arguments)
    }

    /// What confluent-kafka finds in the topic: the same facts, made without us.
    fn sent(&self) -> Value {
        table::python("topic_sum.py", &[&self.brokers, &self.topic, "id", "logStreamId", "message"])
    }

    /// Has another program change the table.
    fn foreign(&self, action: &str) -> Value {
        let mut arguments = self.arguments();
        arguments.extend(["--table".into(), self.table.clone(), "--action".into(), action.to_string()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        table::python("foreign_writer.py", &arguments)
    }

    /// Asserts that each of `rows` messages is in the table once, with every value as sent, and none among the dead
    /// letters. Rows of other writers are left out.
    fn exactly(&self, rows: u64) -> Value {
        let (sent, found) = (self.sent(), self.read("id not like 'foreign-%'"));
        assert_eq!(sent["rows"], rows, "messages in the topic: {sent}");
        for fact in ["rows", "distinct", "checksum"] {
            assert_eq!(found[fact], sent[fact], "{fact} of the table and of the topic");
        }
        assert!(!self.job.path("dead.jsonl").exists() || self.job.read("dead.jsonl").is_empty());
        found
    }

    /// Runs until it has read everything, whatever state the last run left.
    fn finish(&mut self) -> Ended {
        self.job.unset("WEIR_CRASH").run().ok()
    }
}

/// Fills a topic with messages by Weir's own generator, with ids that are all different.
fn fill(broker: &Broker, topic: &str, partitions: i32, rows: u64) {
    broker.create_topic(topic, partitions, &[]);
    let job = Job::new(&format!(
        "
pipeline: fill_{topic}
delivery: at-least-once
checkpoint: {{store: ./state, interval: 1s}}
sources: [generator: {{schema: template.json, count: {rows}, partitions: 4}}]
sinks: [kafka: {{brokers: '{}', topic: {topic}}}]
",
        broker.bootstrap()
    ));
    job.write(
        "template.json",
        r#"{"id":"{{uuid()}}","logStreamId":"{{integer(1000001,2000000)}}","message":"{{alphaNumeric(115)}}"}"#,
    );
    job.run().ok();
    assert_eq!(broker.count(topic), rows);
}

#[test]
fn every_message_is_in_the_table_once_through_a_rest_catalog_and_read_by_two_programs() {
    let (broker, rows) = (broker(), rows());
    fill(broker, "plain", 8, rows);
    let mut trial = Trial::new("plain", "plain", broker, Catalog::Rest(rest::catalog()), "");
    let summary = trial.finish().summary();
    assert_eq!(summary["sinks"]["iceberg"]["rows"], rows);
    let found = trial.exactly(rows);
    let metadata = found["metadata_location"].as_str().unwrap().trim_start_matches("file://").to_string();
    let duck = table::python("duck_table.py", &[&metadata, "id"]);
    assert_eq!(duck["rows"], rows, "DuckDB counts the same: {duck}");
    assert_eq!(duck["distinct"], rows, "{duck}");
    // The snapshot says where its rows come from.
    let last = &found["snapshots"].as_array().unwrap().last().unwrap()["summary"];
    assert_eq!(last["weir.pipeline"], "plain", "{last}");
    assert_eq!(last["weir.module.map"].as_str().map(str::len), Some(64), "{last}");
    // Running it again reads nothing twice.
    trial.job.run().ok();
    trial.exactly(rows);
}

/// Kills the process at each named step of the protocol, at its first and second pass, one after the other.
fn killed_at_every_step(name: &str, catalog: Catalog<'_>) {
    let (broker, rows) = (broker(), rows());
    fill(broker, name, 8, rows);
    let mut trial = Trial::new(name, name, broker, catalog, "commit_rows: 5000");
    let mut killed = Vec::new();
    for pass in ["1", "2"] {
        for point in weir::crash::POINTS {
            trial.job.set("WEIR_CRASH", &format!("{point}:{pass}"));
            let ended = trial.job.run();
            match ended.signal {
                Some(9) => killed.push(point),
                _ => {
                    ended.ok();
                }
            }
        }
    }
    for point in weir::crash::POINTS {
        assert!(killed.contains(&point), "the run was never killed at {point}: {killed:?}");
    }
    trial.finish();
    trial.exactly(rows);
}

#[test]
fn killed_at_every_step_of_the_commit_nothing_is_lost_or_doubled_in_a_sqlite_catalog() {
    killed_at_every_step("steps_sqlite", Catalog::Sqlite);
}

#[test]
fn killed_at_every_step_of_the_commit_nothing_is_lost_or_doubled_in_a_rest_catalog() {
    killed_at_every_step("steps_rest", Catalog::Rest(rest::catalog()));
}

#[test]
fn killed_at_random_moments_nothing_is_lost_or_doubled() {
    let (broker, rows) = (broker(), rows());
    fill(broker, "random", 8, rows);
    let mut trial = Trial::new("random", "random", broker, Catalog::Sqlite, "commit_rows: 5000");
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..scaled(3, 20) {
        let running = trial.job.start();
        std::thread::sleep(Duration::from_millis(random.random_range(50..2500)));
        drop(running);
    }
    trial.finish();
    trial.exactly(rows);
}

#[test]
fn of_two_processes_the_one_that_hangs_is_fenced_when_it_wakes_up() {
    let (broker, rows) = (broker(), rows());
    fill(broker, "zombie", 8, rows);
    let mut trial = Trial::new("zombie", "zombie", broker, Catalog::Sqlite, "commit_rows: 2000");
    let first = trial.job.start();
    let manifests = |folder: &Path| std::fs::read_dir(folder.join("state/zombie/0")).map_or(0, |files| files.count());
    wait_for("a first commit", || manifests(trial.job.folder.path()) > 1);
    first.signal(Signal::SIGSTOP);
    let second = trial.job.start().wait();
    first.signal(Signal::SIGCONT);
    let first = first.wait();
    // Whichever lost the race for the next epoch says so; it never goes on beside the other.
    second.ok();
    assert!(first.code == Some(3) || first.code == Some(0), "{first:?}");
    if first.code == Some(3) {
        assert!(first.stderr.contains("another process runs this pipeline"), "{}", first.stderr);
    }
    trial.finish();
    trial.exactly(rows);
}

#[test]
fn a_restarted_broker_is_waited_for() {
    // A broker of its own: the others go on meanwhile.
    let broker = Broker::start();
    let rows = rows() / 2;
    fill(&broker, "restart", 4, rows);
    let mut trial = Trial::new("restart", "restart", &broker, Catalog::Sqlite, "commit_rows: 2000");
    let running = trial.job.start();
    let manifests = |folder: &Path| std::fs::read_dir(folder.join("state/restart/0")).map_or(0, |files| files.count());
    wait_for("a first commit", || manifests(trial.job.folder.path()) > 1);
    broker.restart();
    running.wait().ok();
    trial.finish();
    trial.exactly(rows);
}

#[test]
fn other_writers_commit_compact_and_expire_in_between() {
    // More than the five epochs that are killed take, so that the last run has something left.
    let (broker, rows) = (broker(), rows() * 3);
    fill(broker, "foreign", 8, rows);
    let mut trial = Trial::new("foreign", "foreign", broker, Catalog::Rest(rest::catalog()), "commit_rows: 2000");
    // Killed right after the commit was sent: the mark must still be found after all that follows.
    for (point, action) in
        [("commit.sent:1", "append"), ("commit.sent:2", "expire"), ("manifest.created:1", "append"), ("commit.sent:1", "compact")]
    {
        trial.job.set("WEIR_CRASH", point);
        assert_eq!(trial.job.run().signal, Some(9), "{point}");
        trial.foreign(action);
    }
    // And one that commits all the time while the pipeline does.
    trial.job.unset("WEIR_CRASH");
    let mut running = trial.job.start();
    let mut appended = 2;
    while running.runs() && appended < 12 {
        trial.foreign("append");
        appended += 1;
    }
    running.wait().ok();
    trial.exactly(rows);
    assert_eq!(trial.read("id like 'foreign-%'")["rows"], appended, "each foreign append is one row");
}

#[test]
fn lost_replies_and_server_errors_around_a_commit_lose_and_double_nothing() {
    let broker = broker();
    broker.create_topic("faults", 4, &[]);
    // A catalog of its own: the faults are for this test alone.
    let catalog = rest::Catalog::start();
    let mut trial = Trial::new("faults", "faults", broker, Catalog::Rest(&catalog), "");
    let until = trial.job.read("pipeline.yaml");
    trial.job.write("pipeline.yaml", until.replace(", until: latest", ""));
    let mut running = trial.job.start();
    // 0 hangs up without an answer. Eight in a row are more than a commit is tried: the pipeline restarts from its checkpoint.
    let faults = [
        ("before", 503, 1),
        ("after", 503, 1),
        ("before", 0, 1),
        ("after", 0, 1),
        ("after", 500, 2),
        ("after", 504, 3),
        ("before", 409, 2),
        ("after", 409, 1),
        ("before", 503, 8),
        ("after", 0, 8),
    ];
    let mut sent = 0;
    for (when, status, count) in faults {
        catalog.fail(when, status, count);
        while running.runs() && catalog.faults_left() > 0 {
            let record = |n| Record::value(format!(r#"{{"id":"id-{n}","logStreamId":"{n}","message":"{when} {status}"}}"#));
            broker.produce("faults", (sent..sent + 100).map(record));
            sent += 100;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    running.signal(Signal::SIGTERM);
    let ended = running.wait().ok();
    assert_eq!(catalog.faults_left(), 0, "{}", ended.stderr);
    assert!(ended.stderr.contains("committing again"), "{}", ended.stderr);
    assert!(ended.summary()["restarts"].as_u64() > Some(0), "{}", ended.stdout);
    // What was sent last.
    trial.job.write("pipeline.yaml", until);
    trial.finish();
    trial.exactly(sent);
}

#[test]
fn a_recreated_topic_stops_loudly() {
    let broker = broker();
    fill(broker, "recreated", 4, 20_000);
    let mut trial = Trial::new("recreated", "recreated", broker, Catalog::Sqlite, "");
    trial.finish();
    // `until: latest` has ended the log: without it the pipeline would go on reading.
    let file = trial.job.read("pipeline.yaml").replace(", until: latest", "");
    trial.job.write(
        "pipeline.yaml",
        file.replace("pipeline: recreated", "pipeline: recreated_2").replace("recreated.clicks", "recreated.again"),
    );
    let running = trial.job.start();
    wait_for("all rows", || trial.job.path("state/recreated_2/0").exists());
    std::thread::sleep(Duration::from_secs(3));
    running.signal(Signal::SIGTERM);
    running.wait().ok();
    broker.delete_topic("recreated");
    broker.create_topic("recreated", 4, &[]);
    trial.job.run().refused(1, &["recreated", "offset", "recreated"]);
}
