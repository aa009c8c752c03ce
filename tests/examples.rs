//! Every folder of `examples` is run: what comes out is in its `expected.jsonl`, or is looked at by a test named here.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::harness::kafka::{Record, broker};
use crate::harness::pubsub::PubSub;
use crate::harness::weir::{Job, wait_for};
use crate::harness::{root, table};

/// Examples that need more than a file to compare with, and where they are run.
const ELSEWHERE: [(&str, &str); 5] = [
    ("kafka-to-iceberg", "kafka_to_iceberg_fills_its_table"),
    ("kafka-to-kafka", "kafka_to_kafka_copies_its_topic"),
    ("languages", "languages"),
    ("pubsub-to-iceberg", "pubsub_to_iceberg_fills_its_table"),
    ("quickstart", "the_quickstart_fills_its_table"),
];

/// A folder in which an example's paths lead to the repository, and what it writes does not.
fn apart(example: &str) -> Job {
    let job = Job::new("");
    for name in ["examples", "target"] {
        symlink(root().join(name), job.path(name)).unwrap();
    }
    let file = std::fs::read_to_string(root().join("examples").join(example).join("pipeline.yaml")).unwrap();
    job.write("pipeline.yaml", file);
    job
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

fn examples() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("examples")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_example_gives_what_it_says_straight_or_killed_and_resumed_with_other_workers() {
    for example in examples() {
        let expected = Path::new(&root()).join("examples").join(&example).join("expected.jsonl");
        if !expected.exists() {
            assert!(ELSEWHERE.iter().any(|(name, _)| *name == example), "{example} has no expected.jsonl and no test of its own");
            continue;
        }
        let expected = sorted(&std::fs::read_to_string(expected).unwrap());
        let out = format!("demo-data/{example}/out.jsonl");
        let straight = apart(&example);
        straight.weir(&["run", "pipeline.yaml", "--set", "workers=1", "--json"]).ok();
        assert_eq!(sorted(&straight.read(&out)), expected, "{example}");
        let mut killed = apart(&example);
        // The first epoch with rows passes both points, however few rows there are.
        for (point, workers) in [(Some("prepare.after:1"), 2), (Some("manifest.created:1"), 2), (None, 3)] {
            match point {
                None => killed.unset("WEIR_CRASH"),
                Some(point) => killed.set("WEIR_CRASH", point),
            };
            let workers = format!("workers={workers}");
            let ended = killed.weir(&["run", "pipeline.yaml", "--set", &workers, "--set", "checkpoint.interval=5ms", "--json"]);
            assert_eq!(ended.signal, point.map(|_| 9), "{example} {point:?}: {ended:?}");
        }
        assert_eq!(sorted(&killed.read(&out)), expected, "{example}, killed and resumed");
    }
}

#[test]
fn the_quickstart_fills_its_table() {
    let job = apart("quickstart");
    job.weir(&["run", "pipeline.yaml", "--set", "sources.0.generator.count=5000"]).ok();
    let head = job.weir(&["head", "pipeline.yaml"]).ok();
    assert!(head.stdout.lines().count() > 5, "{}", head.stdout);
    let warehouse = job.path("demo-data/warehouse");
    let uri = format!("sqlite:///{}", warehouse.join("catalog.db").display());
    let place = format!("file://{}", warehouse.display());
    let found = table::python("read_table.py", &["--catalog", "sql", &uri, &place, "--table", "demo.events"]);
    assert_eq!(found["rows"], 5000);
}

#[test]
fn kafka_to_iceberg_fills_its_table() {
    let broker = broker();
    broker.create_topic("example_events", 2, &[]);
    let message = |n: i64| {
        let id = format!("id-{n}");
        Record::value(json!({"id": id, "logStreamId": 1_000_001 + n, "message": "m", "ts": "2026-12-03T04:34:00Z", "email": "a@example.org"}).to_string())
    };
    broker.produce("example_events", (0..1000).map(|n| message(n).to((n % 2) as i32)));
    let mut job = apart("kafka-to-iceberg");
    job.set("KAFKA_BROKERS", broker.bootstrap()).set("KAFKA_TOPIC", "example_events");
    job.weir(&["run", "pipeline.yaml", "--set", "sources.0.kafka.until=latest"]).ok();
    let warehouse = job.path("demo-data/kafka-to-iceberg/warehouse");
    let uri = format!("sqlite:///{}", warehouse.join("catalog.db").display());
    let place = format!("file://{}", warehouse.display());
    let found = table::python("read_table.py", &["--catalog", "sql", &uri, &place, "--table", "web.events", "--distinct", "id"]);
    assert_eq!((&found["rows"], &found["distinct"]), (&json!(1000), &json!(1000)));
}

#[test]
fn pubsub_to_iceberg_fills_its_table() {
    let server = PubSub::start();
    let mut job = apart("pubsub-to-iceberg");
    job.set("PUBSUB_EMULATOR_HOST", &server.host()).set("PUBSUB_PROJECT", "p").set("PUBSUB_TOPIC", "t");
    let running = job.start_with(&["run", "pipeline.yaml", "--set", "checkpoint.interval=200ms", "--json"]);
    wait_for("the log", || job.path("demo-data/pubsub-to-iceberg/state/pubsub-to-iceberg/0/0000000000000000.json").exists());
    server.publish(0, 1000, 0);
    server.wait_for_acks(1000);
    running.signal(nix::sys::signal::Signal::SIGTERM);
    running.wait().ok();
    let warehouse = job.path("demo-data/pubsub-to-iceberg/warehouse");
    let uri = format!("sqlite:///{}", warehouse.join("catalog.db").display());
    let place = format!("file://{}", warehouse.display());
    let found = table::python("read_table.py", &["--catalog", "sql", &uri, &place, "--table", "web.events", "--distinct", "id"]);
    assert_eq!((&found["rows"], &found["distinct"]), (&json!(1000), &json!(1000)));
}

#[test]
fn kafka_to_kafka_copies_its_topic() {
    let broker = broker();
    broker.create_topic("example_in", 2, &[]);
    let good = (0..100).map(|n| Record::value(json!({"id": n, "email": "a@example.org"}).to_string()));
    broker.produce("example_in", good.chain([Record::value("no JSON")]));
    let mut job = apart("kafka-to-kafka");
    job.set("KAFKA_BROKERS", broker.bootstrap()).set("KAFKA_TOPIC", "example_in").set("KAFKA_OUT", "example_out");
    job.set("KAFKA_DEAD", "example_dead").weir(&["run", "pipeline.yaml", "--set", "sources.0.kafka.until=latest"]).ok();
    let (masked, dead) = (broker.consume_all("example_out"), broker.consume_all("example_dead"));
    assert_eq!(masked.len(), 100);
    assert!(masked.iter().all(|record| !String::from_utf8_lossy(record.value.as_deref().unwrap()).contains("example.org")));
    assert_eq!(dead.iter().map(|record| record.value.as_deref()).collect::<Vec<_>>(), [Some(&b"no JSON"[..])]);
    assert!(dead[0].headers.iter().any(|(name, _)| name == "weir.reason"), "{:?}", dead[0].headers);
}
