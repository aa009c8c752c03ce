//! Kafka through a guest into Kafka on a real Apache Kafka broker, exactly once: whatever is killed, a reader that sees
//! only committed messages finds each message once. What is in the topics is counted by confluent-kafka, not by us.

use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

use crate::harness::kafka::{Broker, Record, broker};
use crate::harness::trial::{fill, more};
use crate::harness::weir::{Job, wait_for};
use crate::harness::{guest, scaled, table};

/// Messages of the tests that kill.
fn rows() -> u64 {
    scaled(100_000, 5_000_000)
}

/// A pipeline `name` from the topic `name` into the topic `name_out`, that ends once it has read what is there now.
fn copy(broker: &Broker, name: &str, extra: &str) -> Job {
    Job::new(&format!(
        "
pipeline: {name}
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources: [kafka: {{brokers: '{brokers}', topic: {name}, until: latest}}]
steps: [{{name: passthrough, transform: {guest}}}]
sinks:
  - kafka: {{brokers: '{brokers}', topic: {name}_out, create: {{partitions: 8}}}}
  {extra}
",
        brokers = broker.bootstrap(),
        guest = guest("passthrough").display(),
    ))
}

/// What confluent-kafka finds in a topic: rows, distinct ids, checksum.
fn found(broker: &Broker, topic: &str) -> Value {
    let reader = [broker.bootstrap(), topic, "id", "logStreamId", "message", "--set", "isolation.level=read_committed"];
    table::python("topic_sum.py", &reader)
}

/// Runs to the end, and asserts that both topics have the same messages, each once.
fn exactly(broker: &Broker, job: &mut Job, name: &str, rows: u64) {
    job.unset("WEIR_CRASH").run().ok();
    let sent = found(broker, name);
    assert_eq!(sent["rows"], rows, "{sent}");
    assert_eq!(sent, found(broker, &format!("{name}_out")), "what was sent and what arrived");
}

/// Messages whose keys say where they belong, and whose values say in which order.
fn ordered(from: u64, to: u64) -> impl Iterator<Item = Record> {
    (from..to).map(|n| Record { key: Some(format!("key-{}", n % 50).into_bytes()), ..Record::value(format!("{n}")) })
}

#[test]
fn killed_at_every_step_each_message_is_in_the_other_topic_once() {
    let broker = broker();
    fill(broker, "copy_steps", 8, 1000);
    // A file beside it: what a lost transaction takes back must not be in there either.
    let mut job = copy(broker, "copy_steps", "- file: {path: copy.jsonl}");
    let (mut rows, ends) = (1000, job.endless());
    for pass in 0..scaled(2, 20) {
        for point in weir::crash::POINTS {
            job.set("WEIR_CRASH", &format!("{point}:1"));
            let ended = job.run();
            assert_eq!(ended.signal, Some(9), "{point}, pass {pass}: {ended:?}");
            // So that the next run has an epoch to be killed in.
            broker.produce("copy_steps", more(point, rows, 3000));
            rows += 3000;
        }
    }
    job.write("pipeline.yaml", ends);
    exactly(broker, &mut job, "copy_steps", rows);
    assert_eq!(job.read("copy.jsonl").lines().count() as u64, rows, "the file has each message once, too");
}

#[test]
fn killed_at_random_moments_each_message_is_in_the_other_topic_once() {
    let broker = broker();
    fill(broker, "copy_random", 8, rows());
    let mut job = copy(broker, "copy_random", "");
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..scaled(3, 20) {
        let running = job.start();
        std::thread::sleep(Duration::from_millis(random.random_range(50..2000)));
        drop(running);
    }
    exactly(broker, &mut job, "copy_random", rows());
}

#[test]
fn of_two_processes_the_one_that_hangs_is_fenced_and_its_transaction_aborted() {
    let broker = broker();
    fill(broker, "copy_zombie", 8, rows());
    let mut job = copy(broker, "copy_zombie", "");
    let first = job.start();
    wait_for("a first commit", || job.path("state/copy_zombie/0").read_dir().is_ok_and(|epochs| epochs.count() > 1));
    first.signal(Signal::SIGSTOP);
    let second = job.start().wait();
    first.signal(Signal::SIGCONT);
    let first = first.wait();
    second.ok();
    assert!(first.code == Some(3) || first.code == Some(0), "{first:?}");
    exactly(broker, &mut job, "copy_zombie", rows());
}

#[test]
fn a_restarted_broker_is_waited_for_and_order_is_kept() {
    let broker = Broker::start();
    broker.create_topic("copy_restart", 4, &[]);
    broker.create_topic("copy_restart_out", 4, &[]);
    let count = scaled(20_000, 200_000);
    broker.produce("copy_restart", ordered(0, count));
    let job = copy(&broker, "copy_restart", "");
    let running = job.start();
    wait_for("a first commit", || job.path("state/copy_restart/0").read_dir().is_ok_and(|epochs| epochs.count() > 1));
    broker.restart();
    running.wait().ok();
    job.run().ok();
    let values = |topic: &str| -> Vec<_> {
        broker.consume_all(topic).into_iter().map(|record| (record.partition, record.key, record.value)).collect()
    };
    let (sent, arrived) = (values("copy_restart"), values("copy_restart_out"));
    assert_eq!(sent.len() as u64, count);
    assert!(sent == arrived, "each partition has the same messages in the same order: {} and {}", sent.len(), arrived.len());
}

#[test]
fn tombstones_headers_and_times_arrive_and_what_the_topic_refuses_is_a_dead_letter() {
    let broker = broker();
    broker.create_topic("copy_odd", 1, &[]);
    broker.create_topic("copy_odd_out", 1, &[("max.message.bytes", "2000"), ("cleanup.policy", "compact")]);
    let keyed = |key: &str, value: Option<&str>| Record {
        key: Some(key.into()),
        value: value.map(|value| value.as_bytes().to_vec()),
        headers: vec![("trace".to_string(), Some(b"7".to_vec()))],
        timestamp: Some(1_700_000_000_000),
        ..Record::value("")
    };
    let large = "x".repeat(3000);
    broker.produce("copy_odd", [keyed("a", Some("1")), keyed("b", None), keyed("c", Some(&large)), Record::value("no key")]);
    let job = copy(broker, "copy_odd", "- file: {name: dead, path: dead.jsonl, from: dead_letter}");
    let file = job.read("pipeline.yaml").replace("topic: copy_odd_out", "topic: copy_odd_out, timestamp: event_time");
    job.write("pipeline.yaml", file).run().ok();
    let arrived = broker.consume_all("copy_odd_out");
    let keys: Vec<_> = arrived.iter().map(|record| (record.key.as_deref().unwrap(), record.value.as_deref())).collect();
    assert_eq!(keys, [(&b"a"[..], Some(&b"1"[..])), (b"b", None)]);
    for record in &arrived {
        assert_eq!((record.timestamp, &record.headers[0].0), (Some(1_700_000_000_000), &"trace".to_string()));
    }
    let dead = job.read("dead.jsonl");
    assert_eq!(dead.lines().count(), 2, "{dead}");
    assert!(dead.contains("too large for the topic") && dead.contains("the row has no key"), "{dead}");
}

#[test]
fn all_kafka_sinks_of_a_pipeline_are_one_transaction() {
    let broker = broker();
    fill(broker, "copy_both", 4, 20_000);
    let second =
        format!("- kafka: {{name: more, brokers: '{}', topic: copy_both_more, create: {{partitions: 2}}}}", broker.bootstrap());
    let mut job = copy(broker, "copy_both", &second);
    let (mut rows, ends) = (20_000, job.endless());
    for point in ["manifest.created:1", "commit.before:1", "commit.sent:1", "commit.sent:2"] {
        job.set("WEIR_CRASH", point);
        assert_eq!(job.run().signal, Some(9), "{point}");
        // Whatever is there, is in both.
        let (one, other) = (broker.consume_all("copy_both_out").len(), broker.consume_all("copy_both_more").len());
        assert_eq!(one, other, "{point}");
        broker.produce("copy_both", more("copy_both", rows, 3000));
        rows += 3000;
    }
    job.write("pipeline.yaml", ends);
    exactly(broker, &mut job, "copy_both", rows);
    assert_eq!(found(broker, "copy_both_more"), found(broker, "copy_both"));
}

#[test]
fn what_can_never_be_one_transaction_is_refused_with_what_to_do() {
    let broker = broker();
    broker.create_topic("copy_refused", 1, &[]);
    let refused = |from: &str, to: &str, words: &[&str]| {
        let job = copy(broker, "copy_refused", "");
        let file = job.read("pipeline.yaml").replace("100ms", "5s");
        let changed = file.replace(from, to);
        assert_ne!(file, changed);
        job.write("pipeline.yaml", changed);
        job.weir(&["check", "pipeline.yaml"]).refused(2, words);
    };
    let timeout = |ms: u64| format!("create: {{partitions: 8}}, properties: {{transaction.timeout.ms: {ms}}}");
    refused("create: {partitions: 8}", &timeout(1000), &["raise transaction.timeout.ms"]);
    refused("create: {partitions: 8}", &timeout(7_200_000), &["transaction.max.timeout.ms=900000"]);
    let acks = "create: {partitions: 8}, properties: {transactional.id: mine}";
    refused("create: {partitions: 8}", acks, &["transactional.id", "this property can't be set"]);
    let other = format!(
        "sinks:\n  - kafka: {{name: more, brokers: '{}', topic: copy_refused, properties: {{linger.ms: 7}}}}",
        broker.bootstrap()
    );
    refused("sinks:", &other, &["write in one transaction", "give them the same `brokers` and `properties`"]);
}

#[test]
fn rows_of_another_log_refuse_the_start() {
    let broker = broker();
    broker.create_topic("copy_lost", 1, &[]);
    broker.produce("copy_lost", ordered(0, 100));
    let job = copy(broker, "copy_lost", "");
    job.run().ok();
    std::fs::remove_dir_all(job.path("state")).unwrap();
    job.run().refused(2, &["another log of a pipeline with this name", "topic=weir.copy_lost"]);
    assert_eq!(broker.consume_all("copy_lost_out").len(), 100);
}
