//! The Pub/Sub source in whole pipelines, against Google's own fake server: whatever is killed, lost or repeated, every message is
//! in the file once. What Google's fake does not show (lost answers, ack ids that are no longer good, short leases, streams that
//! stand still) is set as a fault on the server, each as Google documents it: `tests/peers/pubsub/faults.go`.

use std::collections::HashMap;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::pubsub::PubSub;
use crate::harness::weir::{Ended, Job, Running, wait_for};
use crate::harness::{guest, scaled};

/// Messages of most tests.
fn rows() -> u64 {
    scaled(20_000, 200_000)
}

/// A pipeline from a subscription, made on request, through `map` into a file. `create` and `source` are keys of theirs.
fn job(server: &PubSub, create: &str, source: &str, top: &str) -> Job {
    let mut job = Job::new(&format!(
        "
pipeline: clicks
workers: 2
{top}
sources:
  - pubsub: {{project: p, subscription: s, create: {{topic: t, {create}}}, {source}}}
steps:
  - name: map
    transform: {}
    config: {{fields: {{/id: /id, /stream: {{from: /logStreamId, cast: integer}}, /message: /message}}}}
sinks:
  - file: {{path: out.jsonl}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
        guest("map").display(),
    ));
    job.set("PUBSUB_EMULATOR_HOST", &server.host());
    job
}

const EVERY_200MS: &str = "checkpoint: {store: ./state, interval: 200ms}";

/// Runs once without messages, so that topic and subscription are there before any is published.
fn create(job: &Job) {
    let running = job.start();
    wait_for("the log's first manifest", || job.path("state/clicks/0/0000000000000000.json").exists());
    stop(running).ok();
}

fn stop(running: Running) -> Ended {
    running.signal(Signal::SIGTERM);
    running.wait()
}

/// Runs until all messages are acknowledged, and stops.
fn finish(job: &Job, server: &PubSub, rows: u64) -> Ended {
    let running = job.start();
    server.wait_for_acks(rows);
    stop(running).ok()
}

/// How often each message is in the file.
fn written(job: &Job) -> HashMap<u64, u64> {
    let mut times = HashMap::new();
    for line in job.read("out.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let id: u64 = row["id"].as_str().unwrap().parse().unwrap();
        assert_eq!(row["stream"], 1_000_001 + id, "{row}");
        *times.entry(id).or_default() += 1;
    }
    times
}

/// Asserts that each message is in the file once, none is among the dead letters, and each is acknowledged.
fn exactly(job: &Job, server: &PubSub, rows: u64) {
    let times = written(job);
    assert_eq!(times.len() as u64, rows, "messages in the file");
    let twice: Vec<_> = times.iter().filter(|(_, count)| **count > 1).take(5).collect();
    assert!(twice.is_empty(), "written more than once: {twice:?}");
    assert!(!job.path("dead.jsonl").exists() || job.read("dead.jsonl").is_empty());
    assert_eq!(server.stats().acked, rows, "acknowledged");
}

#[test]
fn a_subscription_is_created_on_request_and_every_message_is_in_the_file_once_and_acknowledged() {
    let server = PubSub::start();
    let job = job(&server, "", "", EVERY_200MS);
    create(&job);
    server.publish(0, rows(), 0);
    finish(&job, &server, rows());
    exactly(&job, &server, rows());
    let stats = server.stats();
    assert_eq!(stats.deliveries, rows(), "nothing came twice: {stats:?}");
    // What is confirmed is not remembered.
    let state = std::fs::read_dir(job.path("state/clicks/0/state")).map(|files| files.count()).unwrap_or(0);
    assert!(state <= 4, "files of ids are swept: {state}");
}

#[test]
fn killed_at_every_step_of_the_commit_nothing_is_lost_or_doubled() {
    for (create_keys, rows) in [("exactly_once: true", rows() * 2), ("exactly_once: false", rows())] {
        let server = PubSub::start();
        let mut job = job(&server, create_keys, "lease: 10s, max_outstanding_messages: 2000", EVERY_200MS);
        create(&job);
        server.publish(0, rows, 0);
        let mut killed = 0;
        for point in weir::crash::POINTS {
            killed += u64::from(job.set("WEIR_CRASH", point).run().signal == Some(9));
        }
        assert_eq!(killed, weir::crash::POINTS.len() as u64, "{create_keys}");
        job.unset("WEIR_CRASH");
        finish(&job, &server, rows);
        exactly(&job, &server, rows);
        assert!(server.stats().deliveries > rows, "messages came again, and were dropped");
    }
}

#[test]
fn at_least_once_nothing_is_lost_and_duplicates_are_few() {
    let server = PubSub::start();
    let rows = rows();
    let top = format!("delivery: at-least-once\n{EVERY_200MS}");
    let mut job = job(&server, "", "lease: 10s, max_outstanding_messages: 2000", &top);
    create(&job);
    server.publish(0, rows, 0);
    for point in ["manifest.created", "commit.after", "ack.after"] {
        assert_eq!(job.set("WEIR_CRASH", point).run().signal, Some(9));
    }
    job.unset("WEIR_CRASH");
    finish(&job, &server, rows);
    let times = written(&job);
    assert_eq!(times.len() as u64, rows, "nothing is lost");
    let duplicates = times.values().sum::<u64>() - rows;
    // What was out when the process was killed, three times.
    assert!(duplicates <= 3 * 2 * 2000, "{duplicates} duplicates");
}

#[test]
fn acknowledgements_that_fail_or_whose_answers_are_lost_are_sent_again() {
    let server = PubSub::start();
    let job = job(&server, "", "", EVERY_200MS);
    create(&job);
    server.fault("method=Acknowledge&code=14&times=2&after=1");
    server.publish(0, rows(), 0);
    let running = job.start();
    wait_for("acknowledgements", || server.stats().acked > 0);
    server.fault("method=Acknowledge&code=4&times=2");
    server.fault("transient=1&times=2");
    server.wait_for_acks(rows());
    let ended = stop(running).ok();
    assert!(ended.stderr.contains("acknowledgements failed"), "{}", ended.stderr);
    exactly(&job, &server, rows());
}

#[test]
fn a_lease_that_runs_out_brings_a_message_again_which_is_dropped_and_acknowledged_by_its_newest_ack_id() {
    for create_keys in ["exactly_once: true", "exactly_once: false"] {
        let server = PubSub::start();
        // An epoch takes longer than a lease, which the server cuts short, so that messages come again while they are underway.
        let job = job(&server, create_keys, "lease: 10s", "checkpoint: {store: ./state, interval: 4s}");
        create(&job);
        server.fault("lease=1");
        server.fault("invalid=1");
        server.publish(0, rows(), 0);
        finish(&job, &server, rows());
        exactly(&job, &server, rows());
        assert!(server.stats().deliveries > rows(), "some came again");
    }
}

#[test]
fn a_stream_that_the_service_closes_is_opened_again() {
    let server = PubSub::start();
    let job = job(&server, "", "", EVERY_200MS);
    create(&job);
    let running = job.start();
    for part in 0..5 {
        server.fault("method=StreamingPull&code=14&times=1");
        server.publish(part * rows() / 5, rows() / 5, 0);
        server.wait_for_acks((part + 1) * rows() / 5);
    }
    stop(running).ok();
    exactly(&job, &server, rows());
}

#[test]
fn streams_that_stand_still_while_messages_wait_are_opened_anew() {
    let server = PubSub::start();
    let job = job(&server, "", "stall_after: 1s", EVERY_200MS);
    create(&job);
    let running = job.start();
    server.publish(0, 100, 0);
    server.wait_for_acks(100);
    server.fault("stall=1");
    server.publish(100, 1000, 0);
    server.wait_for_acks(1100);
    let ended = stop(running).ok();
    assert!(ended.stderr.contains("messages wait but the streams bring none, opening them anew"), "{}", ended.stderr);
    exactly(&job, &server, 1100);
}

#[test]
fn of_two_processes_on_one_log_and_one_subscription_the_one_that_hangs_is_fenced() {
    let server = PubSub::start();
    let job = job(&server, "", "lease: 10s, max_outstanding_messages: 2000", EVERY_200MS);
    create(&job);
    server.publish(0, rows(), 0);
    let first = job.start();
    wait_for("a first acknowledgement", || server.stats().acked > 0);
    first.signal(Signal::SIGSTOP);
    let second = job.start();
    server.wait_for_acks(rows());
    stop(second).ok();
    first.signal(Signal::SIGCONT);
    // It finds out at its next epoch, which it may have nothing for.
    server.publish(rows(), 1, 0);
    let ended = first.wait();
    assert!(ended.code == Some(3) && ended.stderr.contains("another process runs this pipeline"), "{ended:?}");
    finish(&job, &server, rows() + 1);
    exactly(&job, &server, rows() + 1);
}

#[test]
fn a_full_window_of_unacknowledged_messages_ends_the_epoch_early() {
    let server = PubSub::start();
    // Without early barriers nothing would be acknowledged for an hour.
    let job = job(&server, "", "max_outstanding_messages: 1000", "checkpoint: {store: ./state, interval: 1h}");
    create(&job);
    server.publish(0, 10_500, 0);
    let running = job.start();
    server.wait_for_acks(10_000);
    stop(running).ok();
    // Of the rest it has what had arrived when it was stopped; the subscription keeps what had not.
    exactly(&job, &server, server.stats().acked);
}

#[test]
fn messages_of_a_key_stay_in_order_whatever_is_killed() {
    let server = PubSub::start();
    let (rows, keys) = (scaled(2_000, 10_000), 20);
    let mut job = job(&server, "ordering: true", "lease: 10s", EVERY_200MS);
    create(&job);
    server.publish(0, rows, keys);
    for point in ["manifest.created", "ack.after"] {
        assert_eq!(job.set("WEIR_CRASH", point).run().signal, Some(9));
    }
    job.unset("WEIR_CRASH");
    finish(&job, &server, rows);
    exactly(&job, &server, rows);
    let mut last = HashMap::new();
    for line in job.read("out.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let id: u64 = row["id"].as_str().unwrap().parse().unwrap();
        let before = last.insert(id % keys, id);
        assert!(before.is_none_or(|before| before < id), "{id} behind {before:?}");
    }
}

#[test]
fn what_a_person_can_mend_is_named_with_the_remedy() {
    let server = PubSub::start();
    let mut plain = Job::new(
        "{pipeline: x, checkpoint: {store: ./state, interval: 1s}, sources: [pubsub: {project: p, subscription: gone}], sinks: [blackhole: {}]}",
    );
    plain.set("PUBSUB_EMULATOR_HOST", &server.host());
    plain.run().refused(2, &["there is no such subscription", "create", "projects/p/subscriptions/gone"]);
    plain.weir(&["check", "pipeline.yaml"]).refused(2, &["there is no such subscription"]);

    let job = job(&server, "", "lease: 10s", EVERY_200MS);
    for (code, words) in [
        (7, ["the account may not", "roles/pubsub.subscriber"]),
        (16, ["the credentials are refused", "gcloud auth application-default login"]),
    ] {
        server.fault(&format!("method=GetSubscription&code={code}&times=1"));
        job.run().refused(2, &words);
    }
    // Refused while it runs, too: nothing is lost.
    create(&job);
    server.publish(0, 100, 0);
    server.fault("method=Acknowledge&code=7&times=1");
    job.run().refused(2, &["cannot acknowledge messages", "the account may not"]);
    finish(&job, &server, 100);
    exactly(&job, &server, 100);

    let tasks = Job::new(
        "{pipeline: x, tasks: 2, checkpoint: {store: ./state, interval: 1s}, sources: [pubsub: {project: p, subscription: s}], sinks: [blackhole: {}]}",
    );
    tasks.weir(&["check", "pipeline.yaml"]).refused(2, &["tasks that share a subscription", "at-least-once"]);
}
