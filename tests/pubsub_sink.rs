//! The Pub/Sub sink against Google's own fake server, with faults on request: nothing is lost, a key's messages stay in order, and
//! what no topic takes becomes a dead letter.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::harness::pubsub::PubSub;
use crate::harness::scaled;
use crate::harness::weir::Job;

const TOPIC: &str = "projects/p/topics/out";

fn rows() -> u64 {
    scaled(20_000, 200_000)
}

/// A pipeline of made-up messages, of 50 keys, into a topic.
fn job(server: &PubSub, sink: &str) -> Job {
    let mut job = Job::new(&format!(
        "
pipeline: publish
delivery: at-least-once
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources:
  - generator: {{template: '{{\"id\":{{{{index()}}}},\"key\":\"{{{{integer(1,50)}}}}\"}}', count: {}, partitions: 1, key: /key}}
sinks:
  - pubsub: {{project: p, topic: out, {sink}}}
",
        rows()
    ));
    job.set("PUBSUB_EMULATOR_HOST", &server.host());
    job
}

fn id(message: &Value) -> u64 {
    serde_json::from_str::<Value>(message["Data"].as_str().unwrap()).unwrap()["id"].as_u64().unwrap()
}

/// Asserts that nothing is lost, and says how many came twice.
fn complete(messages: &[Value]) -> u64 {
    let distinct: HashSet<u64> = messages.iter().map(id).collect();
    assert_eq!(distinct.len() as u64, rows(), "nothing is lost");
    messages.len() as u64 - rows()
}

/// Asserts that a key's messages come in order: a repetition begins again further up, and skips nothing.
fn in_order(messages: &[Value]) {
    let mut by_key: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for message in messages {
        by_key.entry(message["Key"].as_str().unwrap()).or_default().push(id(message));
    }
    assert_eq!(by_key.len(), 50);
    for (key, ids) in by_key {
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let place = |id: u64| sorted.binary_search(&id).unwrap();
        let mut last = 0;
        for (at, id) in ids.iter().enumerate() {
            assert!(place(*id) <= last + 1, "key {key}: {id} skips messages at {at}");
            last = place(*id);
        }
    }
}

#[test]
fn rows_are_published_with_their_keys_in_order_and_a_missing_topic_is_created_on_request() {
    let server = PubSub::start();
    job(&server, "").run().refused(2, &["there is no such topic", "create: true", TOPIC]);
    let summary = job(&server, "create: true, ordering: true, key_attribute: key").run().ok().summary();
    assert_eq!(summary["sinks"]["pubsub"]["rows"], rows());
    let messages = server.published(TOPIC);
    assert_eq!(complete(&messages), 0);
    in_order(&messages);
    for message in &messages {
        assert_eq!(message["Attributes"]["key"], message["Key"]);
    }
}

#[test]
fn killed_at_every_step_nothing_is_lost_and_a_key_stays_in_order() {
    let mut twice = 0;
    for point in weir::crash::POINTS {
        let server = PubSub::start();
        let mut job = job(&server, "create: true, ordering: true");
        assert_eq!(job.set("WEIR_CRASH", point).run().signal, Some(9), "{point}");
        job.unset("WEIR_CRASH").run().ok();
        let messages = server.published(TOPIC);
        twice += complete(&messages);
        in_order(&messages);
    }
    assert!(twice > 0, "it is at-least-once, and says so");
}

#[test]
fn what_fails_is_published_again_and_no_key_stays_stuck() {
    let server = PubSub::start();
    let mut trial = job(&server, "create: true, ordering: true");
    // Passing: Google's publisher tries again. Lost answers make messages come twice.
    server.fault("method=Publish&code=14&times=3&after=1");
    trial.run().ok();
    let messages = server.published(TOPIC);
    assert!(complete(&messages) > 0);
    in_order(&messages);

    // Lasting: it stops and says why, and goes on from its checkpoint when that is mended.
    let server = PubSub::start();
    trial = job(&server, "create: true, ordering: true");
    server.fault("method=Publish&code=7&times=1");
    trial.run().refused(2, &["cannot publish", "the account may not", "roles/pubsub.publisher"]);
    trial.run().ok();
    let messages = server.published(TOPIC);
    complete(&messages);
    in_order(&messages);
}

#[test]
fn a_row_that_no_topic_takes_is_a_dead_letter_and_fails_no_other() {
    let server = PubSub::start();
    let mut job = Job::new(
        "
pipeline: bad
delivery: at-least-once
checkpoint: {store: ./state, interval: 100ms}
sources:
  - file: {path: in.txt, max_line: 20MiB}
sinks:
  - pubsub: {project: p, topic: out, create: true}
  - file: {path: dead.jsonl, from: dead_letter}
",
    );
    job.set("PUBSUB_EMULATOR_HOST", &server.host());
    job.write("in.txt", format!("{{\"id\":1}}\n{}\n{{\"id\":2}}\n", "x".repeat(10_000_001)));
    job.run().ok();
    let ids: Vec<u64> = server.published(TOPIC).iter().map(id).collect();
    assert_eq!(ids, [1, 2]);
    let dead = job.read("dead.jsonl");
    assert_eq!(dead.lines().count(), 1);
    assert!(dead.contains("a Pub/Sub message has at most 10000000 bytes"));
}

#[test]
fn an_exactly_once_pipeline_refuses_the_sink_with_what_to_do() {
    let job = Job::new(
        "{pipeline: x, checkpoint: {store: ./state, interval: 1s}, sources: [generator: {template: '{}'}], sinks: [pubsub: {project: p, topic: out}]}",
    );
    job.weir(&["check", "pipeline.yaml"]).refused(2, &["can't take part in exactly-once", "delivery: at-least-once", "pubsub"]);
}
