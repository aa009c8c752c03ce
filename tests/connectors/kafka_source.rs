//! The Kafka source against a real broker.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use weir::batch::Batch;
use weir::error::{Error, ErrorKind};
use weir::source::{Position, Slice, Source, SourceConnector};
use weir::sources::kafka::Connector;

use super::refused;
use crate::harness::kafka::{Broker, Record, broker, wait};

/// How long a source may take to hand out what is there, before a test gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// A source with these settings besides the brokers.
fn connector(broker: &Broker, mut settings: Value) -> Connector {
    settings["brokers"] = broker.bootstrap().into();
    Connector::new(serde_json::from_value(settings).unwrap(), "kafka", "tests").unwrap()
}

/// A source that is running, on a runtime of its own.
struct Reading {
    runtime: tokio::runtime::Runtime,
    source: Box<dyn Source>,
}

impl Reading {
    fn slice(connector: &Connector, slice: Slice, position: &Position) -> Result<Reading, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let source = runtime.block_on(connector.open(slice, position))?;
        Ok(Reading { runtime, source })
    }

    fn open(connector: &Connector, position: &Position) -> Result<Reading, Error> {
        Reading::slice(connector, Slice::WHOLE, position)
    }

    /// Opens at the start of a new log.
    fn begin(connector: &Connector) -> Reading {
        let start = wait(connector.start(0, 1)).unwrap();
        Reading::open(connector, &start).unwrap()
    }

    fn next(&mut self) -> Result<Option<Batch>, Error> {
        let next = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.source.next()).await });
        next.expect("the source hands out nothing")
    }

    /// Reads until there are at least `rows`, or the end.
    fn rows(&mut self, rows: usize) -> Batch {
        let mut batches = vec![Batch::empty()];
        while batches.iter().map(Batch::len).sum::<usize>() < rows {
            match self.next().unwrap() {
                Some(batch) => batches.push(batch),
                None => break,
            }
        }
        Batch::concat(&batches).unwrap()
    }

    fn all(&mut self) -> Batch {
        self.rows(usize::MAX)
    }

    fn error(&mut self) -> Error {
        loop {
            match self.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the source ended without an error"),
                Err(error) => return error,
            }
        }
    }

    fn lag(&self) -> u64 {
        self.source.lag().iter().map(|(_, lag)| lag).sum()
    }
}

fn values(batch: &Batch) -> Vec<String> {
    (0..batch.len()).map(|row| String::from_utf8(batch.value(row).unwrap().to_vec()).unwrap()).collect()
}

fn numbered(rows: std::ops::Range<i32>) -> impl Iterator<Item = Record> {
    rows.map(|i| Record::value(i.to_string()).to(i % 4))
}

#[test]
fn reading_goes_on_where_the_position_says_with_nothing_lost_or_doubled() {
    let broker = broker();
    broker.create_topic("resume", 4, &[]);
    broker.produce("resume", numbered(0..1000));
    // Answers of a few messages each.
    let properties = json!({"fetch.message.max.bytes": 500, "fetch.max.bytes": 2000, "message.max.bytes": 2000});
    let connector = connector(broker, json!({"topic": "resume", "until": "latest", "properties": properties}));
    let mut position = wait(connector.start(0, 1)).unwrap();
    assert_eq!(position.0.len(), 4);
    let mut read = Vec::new();
    loop {
        let mut reading = Reading::open(&connector, &position).unwrap();
        let rows = values(&reading.rows(100));
        // The reader is ahead of what was handed out; the position is not.
        position = reading.source.position();
        if rows.is_empty() {
            break;
        }
        read.extend(rows);
    }
    let distinct: BTreeSet<_> = read.iter().collect();
    assert_eq!((read.len(), distinct.len()), (1000, 1000));
    assert_eq!((0..4).map(|p| position.integer(&format!("resume/{p}")).unwrap()).collect::<Vec<_>>(), [250; 4]);
}

#[test]
fn keys_values_headers_and_times_arrive_as_they_were_written() {
    let broker = broker();
    broker.create_topic("whole", 1, &[]);
    let written = [
        Record { key: Some(b"k".to_vec()), timestamp: Some(1_764_590_400_123), ..Record::value("v") },
        Record { key: None, value: None, timestamp: Some(1_764_590_400_456), ..Record::default() },
        Record { key: Some(vec![]), value: Some(vec![]), timestamp: Some(1_764_590_400_789), ..Record::default() },
        Record {
            headers: vec![("a".into(), Some(vec![0, 255])), ("a".into(), Some(vec![])), ("é".into(), None)],
            timestamp: Some(1_764_590_400_000),
            ..Record::value([0xff, 0x00])
        },
    ];
    broker.produce("whole", written.clone());
    let mut reading = Reading::begin(&connector(broker, json!({"topic": "whole", "until": "latest"})));
    let batch = reading.all();
    assert_eq!(batch.len(), 4);
    for (row, record) in written.iter().enumerate() {
        assert_eq!((batch.key(row), batch.value(row)), (record.key.as_deref(), record.value.as_deref()), "row {row}");
        assert_eq!(Some(batch.published[row]), record.timestamp, "row {row}");
        assert_eq!(batch.event_times[row], batch.published[row], "row {row}");
        assert_eq!((batch.partitions[row], batch.offsets[row]), (0, row as i64));
        let headers: Vec<_> = batch.attributes.of(row as u32).map(|(n, v)| (n.to_string(), v.map(<[u8]>::to_vec))).collect();
        assert_eq!(headers, record.headers, "row {row}");
    }
    assert!(batch.received_ms > 1_764_590_400_000);
}

#[test]
fn a_source_without_an_end_waits_and_reports_no_lag_once_it_has_caught_up() {
    let broker = broker();
    broker.create_topic("tail", 4, &[]);
    broker.produce("tail", numbered(0..100));
    let mut reading = Reading::begin(&connector(broker, json!({"topic": "tail"})));
    assert_eq!(reading.lag(), 100);
    assert_eq!(reading.rows(100).len(), 100);
    assert_eq!(reading.lag(), 0);
    broker.produce("tail", [Record::value("later")]);
    assert_eq!(values(&reading.rows(1)), ["later"]);
}

#[test]
fn a_dropped_call_of_next_loses_nothing() {
    let broker = broker();
    broker.create_topic("cancel", 1, &[]);
    let mut reading = Reading::begin(&connector(broker, json!({"topic": "cancel"})));
    for i in 0..20 {
        let cancelled = reading
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_millis(1), reading.source.next()).await.is_err() });
        assert!(cancelled);
        broker.produce("cancel", [Record::value(i.to_string())]);
        assert_eq!(values(&reading.rows(1)), [i.to_string()]);
    }
}

#[test]
fn a_new_log_begins_at_the_start_that_was_configured() {
    let broker = broker();
    broker.create_topic("start", 1, &[]);
    let at = |value: &str, time| Record { timestamp: Some(time), ..Record::value(value) };
    broker.produce("start", [at("a", 1_764_590_400_000), at("b", 1_764_590_500_000), at("c", 1_764_590_600_000)]);
    let read = |start: Value| {
        values(&Reading::begin(&connector(broker, json!({"topic": "start", "until": "latest", "start": start}))).all())
    };
    assert_eq!(read(json!("earliest")), ["a", "b", "c"]);
    assert_eq!(read(json!("latest")), [""; 0]);
    assert_eq!(read(json!({"timestamp": "2025-12-01T12:01:00Z"})), ["b", "c"]);
    assert_eq!(read(json!({"timestamp": 1_764_590_600_000_i64})), ["c"]);
    assert_eq!(read(json!({"timestamp": "2100-01-01T00:00:00Z"})), [""; 0]);
    // Before the first message comes, a start behind the newest is a place, not a wish.
    let latest = connector(broker, json!({"topic": "start", "start": "latest"}));
    assert_eq!(wait(latest.start(0, 1)).unwrap().integer("start/0"), Some(3));
}

#[test]
fn new_partitions_are_read_from_their_beginning() {
    let broker = broker();
    broker.create_topic("grows", 2, &[]);
    let settings = json!({"topic": "grows", "start": "latest", "new_partitions_interval": "100ms"});
    let mut reading = Reading::begin(&connector(broker, settings.clone()));
    broker.grow_topic("grows", 4);
    broker.produce("grows", [Record::value("x").to(3), Record::value("y").to(0)]);
    let mut read = values(&reading.rows(2));
    read.sort();
    assert_eq!(read, ["x", "y"]);
    let position = reading.source.position();
    assert_eq!((0..4).map(|p| position.integer(&format!("grows/{p}"))).collect::<Vec<_>>(), [1, 0, 0, 1].map(Some));
    // And those that came while nothing ran.
    drop(reading);
    broker.grow_topic("grows", 5);
    broker.produce("grows", [Record::value("z").to(4)]);
    let mut reading = Reading::open(&connector(broker, settings), &position).unwrap();
    assert_eq!(values(&reading.rows(1)), ["z"]);
}

#[test]
fn messages_lost_to_retention_stop_the_source_loudly() {
    let broker = broker();
    broker.create_topic("retention", 1, &[]);
    broker.produce("retention", (0..100).map(|i| Record::value(i.to_string())));
    let connector = connector(broker, json!({"topic": "retention"}));
    let start = wait(connector.start(0, 1)).unwrap();
    broker.delete_before("retention", 0, 50);
    let words = [
        "the next messages are gone from the topic",
        "retention was shorter",
        "start a new log",
        "topic=retention partition=0 offset=0 low_watermark=50 high_watermark=100",
    ];
    refused(Reading::open(&connector, &start), ErrorKind::Corrupt, &words);
}

#[test]
fn a_topic_created_anew_stops_the_source_loudly_while_it_runs_and_when_it_opens() {
    let broker = broker();
    broker.create_topic("anew", 1, &[]);
    broker.produce("anew", (0..100).map(|i| Record::value(i.to_string())));
    let connector = connector(broker, json!({"topic": "anew", "new_partitions_interval": "200ms"}));
    let mut reading = Reading::begin(&connector);
    assert_eq!(reading.rows(100).len(), 100);
    let position = reading.source.position();
    broker.delete_topic("anew");
    broker.create_topic("anew", 1, &[]);
    broker.produce("anew", (0..10).map(|i| Record::value(i.to_string())));
    let words = ["the topic ends before the offset to read next", "created anew", "topic=anew partition=0 offset=100"];
    let error = reading.error();
    refused::<()>(Err(error), ErrorKind::Corrupt, &words);
    refused(Reading::open(&connector, &position), ErrorKind::Corrupt, &words);
}

#[test]
fn a_topic_that_is_gone_or_has_lost_partitions_stops_the_source() {
    let broker = broker();
    broker.create_topic("shrunk", 4, &[]);
    let connector = connector(broker, json!({"topic": "shrunk"}));
    let start = wait(connector.start(0, 1)).unwrap();
    broker.delete_topic("shrunk");
    refused(Reading::open(&connector, &start), ErrorKind::Config, &["the topic does not exist", "topic=shrunk"]);
    refused(wait(connector.check()), ErrorKind::Config, &["the topic does not exist", "topic=shrunk"]);
    broker.create_topic("shrunk", 2, &[]);
    refused(Reading::open(&connector, &start), ErrorKind::Corrupt, &["created anew", "topic=shrunk partition=2"]);
}

#[test]
fn aborted_messages_are_hidden_and_their_offsets_passed() {
    let broker = broker();
    broker.create_topic("aborted", 1, &[]);
    let rows = |word: &'static str| (0..5).map(move |i| Record::value(format!("{word}{i}")));
    broker.transaction("aborted", rows("no"), false);
    broker.transaction("aborted", rows("yes"), true);
    broker.transaction("aborted", rows("never"), false);
    // 15 messages and 3 marks; ends although nothing that can be seen stands at the end.
    let mut reading = Reading::begin(&connector(broker, json!({"topic": "aborted", "until": "latest"})));
    assert_eq!(values(&reading.all()), ["yes0", "yes1", "yes2", "yes3", "yes4"]);
    assert_eq!(reading.source.position().integer("aborted/0"), Some(18));
    assert_eq!(reading.lag(), 0);
    let everything = json!({"topic": "aborted", "until": "latest", "properties": {"isolation.level": "read_uncommitted"}});
    assert_eq!(Reading::begin(&connector(broker, everything)).all().len(), 15);
}

#[test]
fn until_latest_ends_at_once_where_there_is_nothing_and_leaves_what_comes_later() {
    let broker = broker();
    broker.create_topic("until", 4, &[]);
    let connector = connector(broker, json!({"topic": "until", "until": "latest"}));
    assert_eq!(Reading::begin(&connector).all().len(), 0);
    broker.produce("until", numbered(0..100));
    let mut reading = Reading::begin(&connector);
    broker.produce("until", numbered(100..200));
    let first = reading.all();
    assert_eq!(first.len(), 100);
    assert!(reading.next().unwrap().is_none(), "the end is for ever");
    let mut reading = Reading::open(&connector, &reading.source.position()).unwrap();
    let second = reading.all();
    let distinct: BTreeSet<_> = values(&first).into_iter().chain(values(&second)).collect();
    assert_eq!((second.len(), distinct.len()), (100, 200));
}

#[test]
fn a_pattern_takes_topics_that_come_later_and_each_message_can_name_its_topic() {
    let broker = broker();
    broker.create_topic("pattern-a", 2, &[]);
    broker.create_topic("not-pattern-a", 1, &[]);
    broker.produce("pattern-a", [Record::value("1")]);
    broker.produce("not-pattern-a", [Record::value("no")]);
    let settings = json!({"topic_pattern": "pattern-.*", "topic_attribute": "topic", "new_partitions_interval": "100ms"});
    let mut reading = Reading::begin(&connector(broker, settings));
    let topic = |batch: &Batch| {
        let attributes: Vec<_> = batch.attributes.of(0).map(|(n, v)| (n.to_string(), v.map(<[u8]>::to_vec))).collect();
        assert_eq!(attributes[0].0, "topic");
        String::from_utf8(attributes[0].1.clone().unwrap()).unwrap()
    };
    let first = reading.rows(1);
    assert_eq!((values(&first), topic(&first)), (vec!["1".to_string()], "pattern-a".to_string()));
    broker.create_topic("pattern-b", 1, &[]);
    broker.produce("pattern-b", [Record::value("2")]);
    let second = reading.rows(1);
    assert_eq!((values(&second), topic(&second)), (vec!["2".to_string()], "pattern-b".to_string()));
    assert_eq!(reading.source.position().integer("pattern-b/0"), Some(1));
}

#[test]
fn several_topics_are_read_as_one_and_one_taken_away_keeps_its_position() {
    let broker = broker();
    for topic in ["several-a", "several-b"] {
        broker.create_topic(topic, 2, &[]);
        broker.produce(topic, [Record::value(topic)]);
    }
    let both = connector(broker, json!({"topics": ["several-b", "several-a"], "until": "latest"}));
    let mut reading = Reading::begin(&both);
    let mut read = values(&reading.all());
    read.sort();
    assert_eq!(read, ["several-a", "several-b"]);
    let position = reading.source.position();
    let one = connector(broker, json!({"topics": ["several-a"], "until": "latest"}));
    let mut reading = Reading::open(&one, &position).unwrap();
    assert_eq!(reading.all().len(), 0);
    assert_eq!(reading.source.position(), position);
}

#[test]
fn tasks_and_workers_share_the_partitions() {
    let broker = broker();
    broker.create_topic("shared", 8, &[]);
    broker.produce("shared", (0..80).map(|i| Record::value(i.to_string()).to(i % 8)));
    let connector = connector(broker, json!({"topic": "shared", "until": "latest"}));
    let (mut read, mut seen) = (Vec::new(), Vec::new());
    for task in 0..2 {
        let start = wait(connector.start(task, 2)).unwrap();
        assert_eq!(start.0.len(), 4);
        for worker in 0..2 {
            let slice = Slice { task, tasks: 2, worker, workers: 2 };
            let batch = Reading::slice(&connector, slice, &start).unwrap().all();
            let partitions: BTreeSet<u32> = batch.partitions.iter().copied().collect();
            assert!(partitions.iter().all(|partition| slice.owns(*partition)));
            seen.extend(partitions);
            read.extend(values(&batch));
        }
    }
    seen.sort();
    assert_eq!(seen, (0..8).collect::<Vec<_>>());
    assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), 80);
    // A log whose partitions have become another task's is not gone on with.
    let other = wait(connector.start(1, 2)).unwrap();
    let slice = Slice { task: 0, tasks: 2, worker: 0, workers: 1 };
    refused(Reading::slice(&connector, slice, &other), ErrorKind::Config, &["another task's", "partition=shared/1"]);
}

#[test]
fn positions_are_committed_for_tools_when_a_group_is_named() {
    let broker = broker();
    broker.create_topic("tools", 1, &[]);
    broker.produce("tools", (0..10).map(|i| Record::value(i.to_string())));
    let mut reading = Reading::begin(&connector(broker, json!({"topic": "tools", "commit_group": "shown"})));
    assert_eq!(reading.rows(10).len(), 10);
    let position = reading.source.position();
    reading.runtime.block_on(reading.source.ack(&position)).unwrap();
    crate::harness::kafka::until("the position to be committed", || broker.committed("shown", "tools", 0) == Some(10));
}

#[test]
fn brokers_that_stop_are_waited_for() {
    // A broker of its own: the others go on meanwhile.
    let broker = Broker::start();
    broker.create_topic("waits", 4, &[]);
    broker.produce("waits", numbered(0..100));
    let connector = connector(&broker, json!({"topic": "waits", "new_partitions_interval": "500ms"}));
    let mut reading = Reading::begin(&connector);
    let mut read = values(&reading.rows(100));
    broker.restart();
    broker.produce("waits", numbered(100..200));
    read.extend(values(&reading.rows(100)));
    broker.kill9();
    std::thread::sleep(Duration::from_secs(1));
    broker.go_on();
    broker.produce("waits", numbered(200..300));
    read.extend(values(&reading.rows(100)));
    let distinct: BTreeSet<_> = read.iter().collect();
    assert_eq!((read.len(), distinct.len()), (300, 300));
    // Nobody there when it opens: for now, and it says who was asked.
    let position = reading.source.position();
    broker.stop();
    let words = ["no broker answers", &format!("brokers={}", broker.bootstrap())];
    refused(Reading::open(&connector, &position), ErrorKind::Transient, &words);
}

#[test]
fn a_name_that_nobody_knows_is_told() {
    let config = json!({"brokers": "nowhere.invalid:9092", "topic": "t"});
    let connector = Connector::new(serde_json::from_value(config).unwrap(), "kafka", "tests").unwrap();
    refused(wait(connector.check()), ErrorKind::Transient, &["the name of a broker is not known", "nowhere.invalid:9092"]);
}
