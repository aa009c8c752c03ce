//! The main job against a real Apache Kafka broker and real catalogs: whatever is killed, every message is in the
//! table exactly once. What is in it is counted by PyIceberg, not by us.

use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::harness::kafka::{Broker, Record, broker};
use crate::harness::trial::{Place, Trial, fill, killed_at_every_step, of_two_one_hangs};
use crate::harness::weir::wait_for;
use crate::harness::{rest, scaled, table};

/// Rows of the tests that kill.
fn rows() -> u64 {
    scaled(200_000, 5_000_000)
}

#[test]
fn every_message_is_in_the_table_once_through_a_rest_catalog_and_read_by_two_programs() {
    let (broker, rows) = (broker(), rows());
    fill(broker, "plain", 8, rows);
    let mut trial = Trial::new("plain", "plain", broker, &Place::rest(rest::catalog()), "");
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

#[test]
fn killed_at_every_step_of_the_commit_nothing_is_lost_or_doubled_in_a_sqlite_catalog() {
    killed_at_every_step("steps_sqlite", &Place::sqlite(), rows());
}

#[test]
fn killed_at_every_step_of_the_commit_nothing_is_lost_or_doubled_in_a_rest_catalog() {
    killed_at_every_step("steps_rest", &Place::rest(rest::catalog()), rows());
}

#[test]
fn killed_at_random_moments_nothing_is_lost_or_doubled() {
    let (broker, rows) = (broker(), rows());
    fill(broker, "random", 8, rows);
    let mut trial = Trial::new("random", "random", broker, &Place::sqlite(), "commit_rows: 5000");
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
    of_two_one_hangs("zombie", &Place::sqlite(), rows());
}

#[test]
fn a_restarted_broker_is_waited_for() {
    // A broker of its own: the others go on meanwhile.
    let broker = Broker::start();
    let rows = rows() / 2;
    fill(&broker, "restart", 4, rows);
    let mut trial = Trial::new("restart", "restart", &broker, &Place::sqlite(), "commit_rows: 2000");
    let running = trial.job.start();
    trial.wait_for_a_commit();
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
    let mut trial = Trial::new("foreign", "foreign", broker, &Place::rest(rest::catalog()), "commit_rows: 2000");
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
    let mut trial = Trial::new("faults", "faults", broker, &Place::rest(&catalog), "");
    let until = trial.job.endless();
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
    let mut trial = Trial::new("recreated", "recreated", broker, &Place::sqlite(), "");
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
