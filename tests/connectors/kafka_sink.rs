//! The Kafka sink against a real broker.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir::batch::{Batch, BatchBuilder, Origin, Rejected};
use weir::error::ErrorKind;
use weir::sink::{CommitInfo, Epoch, Identity, Prepared, SinkConnector, Writer};
use weir::sinks::kafka::Connector;

use super::refused;
use crate::harness::kafka::{Broker, Record, broker};

fn connector(broker: &Broker, mut settings: Value) -> Connector {
    settings["brokers"] = broker.bootstrap().into();
    Connector::new(serde_json::from_value(settings).unwrap(), "kafka", None).unwrap()
}

fn identity() -> Identity {
    let text = |text: &str| text.to_string();
    Identity { pipeline: text("p"), sink: text("kafka"), task: 0, tasks: 1, log_id: text("l"), attempt: text("a") }
}

/// A writer on a runtime of its own.
struct Writing {
    runtime: tokio::runtime::Runtime,
    writer: Box<dyn Writer>,
    connector: Connector,
}

impl Writing {
    fn open(connector: Connector) -> Writing {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let writer = runtime.block_on(connector.writer(&identity(), 0)).unwrap();
        Writing { runtime, writer, connector }
    }

    fn write(&mut self, batch: Batch) -> Vec<Rejected> {
        self.runtime.block_on(self.writer.write(batch)).unwrap()
    }

    fn prepare(&mut self) -> (Option<Prepared>, Vec<Rejected>) {
        self.runtime.block_on(self.writer.prepare(Epoch(1))).unwrap()
    }

    /// Ends an epoch; answers with the rows that the sink counts.
    fn commit(&mut self, prepared: Option<Prepared>) -> u64 {
        let mut committer = self.runtime.block_on(self.connector.committer(&identity())).unwrap();
        let prepared: Vec<Prepared> = prepared.into_iter().collect();
        self.runtime.block_on(committer.commit(Epoch(1), &prepared, &CommitInfo::default())).unwrap().rows
    }
}

fn batch(records: &[Record]) -> Batch {
    let mut builder = BatchBuilder::new(records.len(), 0);
    for (offset, record) in records.iter().enumerate() {
        let origin = Origin { partition: 3, offset: offset as i64, published: record.timestamp.unwrap_or(0) };
        builder.push(record.key.as_deref(), record.value.as_deref(), origin);
        record.headers.iter().for_each(|(name, value)| builder.attribute(name, value.as_deref()));
    }
    builder.finish(0)
}

fn rows(range: std::ops::Range<usize>, bytes: usize) -> Vec<Record> {
    range.map(|i| Record::value(format!("{i:0bytes$}"))).collect()
}

/// The rejected values with their reasons.
fn told(rejected: &[Rejected]) -> Vec<(usize, String)> {
    let each = |rejected: &Rejected| {
        let lengths = (0..rejected.rows.len()).map(|row| rejected.rows.value(row).map_or(0, <[u8]>::len));
        lengths.zip(rejected.reasons.clone()).collect::<Vec<_>>()
    };
    rejected.iter().flat_map(each).collect()
}

#[test]
fn rows_arrive_with_key_value_headers_and_event_time() {
    let broker = broker();
    broker.create_topic("out", 1, &[]);
    let written = [
        Record {
            key: Some(b"k".to_vec()),
            headers: vec![("a".into(), Some(vec![0, 255])), ("a".into(), Some(vec![])), ("é".into(), None)],
            timestamp: Some(1_764_590_400_123),
            ..Record::value("v")
        },
        Record { timestamp: Some(1_764_590_400_124), ..Record::default() },
        Record { key: Some(vec![]), value: Some(vec![]), timestamp: Some(1_764_590_400_125), ..Record::default() },
        Record { headers: vec![("b".into(), Some(b"c".to_vec()))], timestamp: Some(1_764_590_400_126), ..Record::value([0xff]) },
    ];
    let mut writing = Writing::open(connector(broker, json!({"topic": "out", "timestamp": "event_time"})));
    assert!(writing.write(batch(&written)).is_empty());
    let (prepared, rejected) = writing.prepare();
    assert!(rejected.is_empty());
    assert_eq!(writing.commit(prepared), 4);
    let read = broker.consume_all("out");
    let expected = written.iter().zip(0..).map(|(r, offset)| Record { partition: Some(0), offset, ..r.clone() });
    assert_eq!(read, expected.collect::<Vec<_>>());
    assert!(writing.prepare().0.is_none(), "an epoch without rows prepares nothing");
}

#[test]
fn rows_carry_the_time_of_writing_unless_told_otherwise() {
    let broker = broker();
    broker.create_topic("now", 1, &[]);
    let mut writing = Writing::open(connector(broker, json!({"topic": "now"})));
    writing.write(batch(&[Record { timestamp: Some(1000), ..Record::value("v") }]));
    writing.prepare();
    assert!(broker.consume_all("now")[0].timestamp > Some(1_764_590_400_000));
}

#[test]
fn a_row_too_large_for_the_topic_is_rejected_and_its_neighbours_are_not() {
    let broker = broker();
    broker.create_topic("small", 1, &[("max.message.bytes", "4000")]);
    let mut writing = Writing::open(connector(broker, json!({"topic": "small", "properties": {"linger.ms": 100}})));
    let mut records = rows(0..100, 20);
    records[50] = Record::value("x".repeat(5000));
    // Together the rows are too large for the topic as well: all are refused at first, and tried again alone.
    records.extend(rows(100..200, 100));
    let mut rejected = writing.write(batch(&records));
    let (prepared, late) = writing.prepare();
    rejected.extend(late);
    let told = told(&rejected);
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, 5000);
    assert!(told[0].1.contains("too large for the topic: raise message.max.bytes"), "{told:?}");
    assert!(told[0].1.contains("topic=small bytes=5000"), "{told:?}");
    assert_eq!(writing.commit(prepared), 199);
    let values: std::collections::BTreeSet<_> = broker.consume_all("small").into_iter().map(|r| r.value).collect();
    assert_eq!((broker.count("small"), values.len()), (199, 199));
}

#[test]
fn a_row_too_large_for_the_client_is_rejected_at_once() {
    let broker = broker();
    broker.create_topic("tiny", 1, &[]);
    let properties = json!({"message.max.bytes": 1000, "batch.size": 1000});
    let mut writing = Writing::open(connector(broker, json!({"topic": "tiny", "properties": properties})));
    let rejected = writing.write(batch(&[Record::value("a"), Record::value("x".repeat(2000)), Record::value("b")]));
    assert_eq!(told(&rejected)[0].0, 2000);
    let (prepared, late) = writing.prepare();
    assert!(late.is_empty());
    assert_eq!((writing.commit(prepared), broker.count("tiny")), (2, 2));
}

#[test]
fn a_row_without_a_key_is_rejected_by_a_compacted_topic() {
    let broker = broker();
    broker.create_topic("compacted", 1, &[("cleanup.policy", "compact")]);
    let mut writing = Writing::open(connector(broker, json!({"topic": "compacted"})));
    let keyed = |value: &str| Record { key: Some(b"k".to_vec()), ..Record::value(value) };
    let mut rejected = writing.write(batch(&[keyed("a"), Record::value("no key"), keyed("b")]));
    let (prepared, late) = writing.prepare();
    rejected.extend(late);
    let told = told(&rejected);
    assert!(told.len() == 1 && told[0].0 == 6 && told[0].1.contains("refused by the topic"), "{told:?}");
    assert_eq!(writing.commit(prepared), 2);
}

/// Java's `Utils.murmur2`, by which its default partitioner places keys.
fn murmur2(data: &[u8]) -> i32 {
    const M: i32 = 0x5bd1_e995;
    let mut h = (0x9747_b28c_u32 as i32) ^ data.len() as i32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = i32::from_le_bytes(chunk.try_into().unwrap()).wrapping_mul(M);
        k ^= ((k as u32) >> 24) as i32;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    for (place, byte) in rest.iter().enumerate().rev() {
        h ^= i32::from(*byte) << (8 * place);
    }
    if !rest.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= ((h as u32) >> 13) as i32;
    h = h.wrapping_mul(M);
    h ^ ((h as u32) >> 15) as i32
}

#[test]
fn keys_go_to_the_partitions_where_javas_client_puts_them() {
    // From the tests of Kafka's own `Utils`.
    let known =
        [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536), ("abc", 479_470_107)];
    known.iter().for_each(|(key, hash)| assert_eq!(murmur2(key.as_bytes()), *hash, "{key}"));
    let broker = broker();
    broker.create_topic("murmur", 7, &[]);
    let records: Vec<Record> =
        (0..200).map(|i| Record { key: Some(format!("key-{}", i * 37).into_bytes()), ..Record::value("v") }).collect();
    let mut writing = Writing::open(connector(broker, json!({"topic": "murmur"})));
    writing.write(batch(&records));
    writing.prepare();
    let read: BTreeMap<_, _> = broker.consume_all("murmur").into_iter().map(|r| (r.key.unwrap(), r.partition.unwrap())).collect();
    assert_eq!(read.len(), 200);
    for (key, partition) in read {
        assert_eq!(partition, (murmur2(&key) & 0x7fff_ffff) % 7, "{}", String::from_utf8_lossy(&key));
    }
}

#[test]
fn a_missing_topic_is_refused_or_created_as_configured() {
    let broker = broker();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let missing = connector(broker, json!({"topic": "missing"}));
    refused(runtime.block_on(missing.check()), ErrorKind::Config, &["the topic does not exist", "topic=missing"]);
    // Looking has not created it.
    refused(runtime.block_on(missing.check()), ErrorKind::Config, &["the topic does not exist"]);
    let create = json!({"partitions": 3, "replication": 1, "config": {"max.message.bytes": "3000"}});
    let created = connector(broker, json!({"topic": "missing", "create": create}));
    runtime.block_on(created.check()).unwrap();
    for _ in 0..2 {
        runtime.block_on(created.create()).unwrap();
        assert_eq!(broker.watermarks("missing").len(), 3);
    }
    let wrong = json!({"topic": "wrong", "create": {"partitions": 1, "config": {"max.message.byte": "3000"}}});
    refused(runtime.block_on(connector(broker, wrong).create()), ErrorKind::Config, &["cannot create the topic", "topic=wrong"]);
    let many = json!({"topic": "many", "create": {"partitions": 1, "replication": 3}});
    refused(runtime.block_on(connector(broker, many).create()), ErrorKind::Config, &["cannot create the topic", "topic=many"]);
}

#[test]
fn more_than_the_queue_holds_waits_for_its_turn() {
    let broker = broker();
    broker.create_topic("queue", 2, &[]);
    let properties = json!({"queue.buffering.max.messages": 500});
    let mut writing = Writing::open(connector(broker, json!({"topic": "queue", "properties": properties})));
    for part in 0..10 {
        assert!(writing.write(batch(&rows(part * 1000..(part + 1) * 1000, 50))).is_empty());
    }
    let (prepared, _) = writing.prepare();
    assert_eq!((writing.commit(prepared), broker.count("queue")), (10_000, 10_000));
}

#[test]
fn a_broker_that_restarts_loses_and_doubles_no_row() {
    let broker = Broker::start();
    broker.create_topic("restarts", 2, &[]);
    let mut writing = Writing::open(connector(&broker, json!({"topic": "restarts"})));
    writing.write(batch(&rows(0..1000, 50)));
    broker.kill9();
    writing.write(batch(&rows(1000..2000, 50)));
    broker.go_on();
    let (prepared, rejected) = writing.prepare();
    assert!(rejected.is_empty());
    assert_eq!(writing.commit(prepared), 2000);
    let values: std::collections::BTreeSet<_> = broker.consume_all("restarts").into_iter().map(|r| r.value).collect();
    assert_eq!((broker.count("restarts"), values.len()), (2000, 2000));
}

#[test]
fn rows_that_cannot_be_delivered_in_time_fail_the_epoch() {
    let broker = Broker::start();
    broker.create_topic("late", 1, &[]);
    let properties = json!({"message.timeout.ms": 1500});
    let mut writing = Writing::open(connector(&broker, json!({"topic": "late", "properties": properties})));
    broker.freeze();
    writing.write(batch(&rows(0..10, 50)));
    let failed = writing.runtime.block_on(writing.writer.prepare(Epoch(1)));
    refused(failed, ErrorKind::Transient, &["cannot write to the topic", "topic=late"]);
    broker.thaw();
}
