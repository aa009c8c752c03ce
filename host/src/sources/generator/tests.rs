//! Tests of the generator as a source: replay, sharing, rates, refusals.

use std::collections::BTreeMap;

use super::*;

const TEMPLATE: &str = r#"{"id": "{{integer(1000001,2000000)}}", "n": {{index()}}, "message": "{{alphaNumeric(100)}}"}"#;

fn connector(more: &str) -> Connector {
    let mut config = json!({"template": TEMPLATE});
    let more: Value = serde_json::from_str(more).unwrap();
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Connector::new(serde_json::from_value(config).unwrap(), "g").unwrap()
}

fn refused(config: Value) -> String {
    match Connector::new(serde_json::from_value(config).unwrap(), "g") {
        Ok(_) => panic!("was taken"),
        Err(error) => error.to_string(),
    }
}

type Rows = BTreeMap<(u32, i64), (Vec<u8>, i64)>;

fn collect(batch: &Batch, rows: &mut Rows) {
    for row in 0..batch.len() {
        let place = (batch.partitions[row], batch.offsets[row]);
        let value = (batch.value(row).unwrap().to_vec(), batch.published[row]);
        assert!(rows.insert(place, value).is_none(), "{place:?} came twice");
    }
}

async fn all(connector: &Connector, slice: Slice, position: &Position, rows: &mut Rows) {
    let mut source = connector.open(slice, position).await.unwrap();
    while let Some(batch) = source.next().await.unwrap() {
        assert!(batch.len() <= connector.plan.rows);
        collect(&batch, rows);
    }
    assert!(source.next().await.unwrap().is_none());
}

#[tokio::test]
async fn the_same_seed_makes_the_same_messages_and_another_makes_others() {
    let start = connector("{}").start(0, 1).await.unwrap();
    let (mut a, mut b, mut c) = (Rows::new(), Rows::new(), Rows::new());
    all(&connector(r#"{"count": 2500}"#), Slice::WHOLE, &start, &mut a).await;
    all(&connector(r#"{"count": 2500, "batch": {"rows": 7}}"#), Slice::WHOLE, &start, &mut b).await;
    all(&connector(r#"{"count": 2500, "seed": 1}"#), Slice::WHOLE, &start, &mut c).await;
    let values = |rows: &Rows| rows.iter().map(|(place, (value, _))| (*place, value.clone())).collect::<Vec<_>>();
    assert_eq!(a.len(), 2500);
    assert_eq!(values(&a), values(&b));
    assert_ne!(values(&a), values(&c));
}

#[tokio::test]
async fn reading_on_from_a_position_gives_what_was_left() {
    let connector = connector(r#"{"count": 1000, "partitions": 3, "batch": {"rows": 50}}"#);
    let start = connector.start(0, 1).await.unwrap();
    let mut whole = Rows::new();
    all(&connector, Slice::WHOLE, &start, &mut whole).await;
    let mut parts = Rows::new();
    let mut source = connector.open(Slice::WHOLE, &start).await.unwrap();
    for _ in 0..5 {
        collect(&source.next().await.unwrap().unwrap(), &mut parts);
    }
    let position = source.position();
    assert_eq!(position, source.position());
    let stored: Position = serde_json::from_str(&serde_json::to_string(&position).unwrap()).unwrap();
    all(&connector, Slice::WHOLE, &stored, &mut parts).await;
    let values = |rows: &Rows| rows.iter().map(|(place, (value, _))| (*place, value.clone())).collect::<Vec<_>>();
    assert_eq!(values(&whole), values(&parts));
}

#[tokio::test]
async fn workers_and_tasks_share_the_partitions_without_gap_or_overlap() {
    let connector = connector(r#"{"count": 1003, "partitions": 7}"#);
    let mut rows = Rows::new();
    for task in 0..2 {
        let start = connector.start(task, 2).await.unwrap();
        for worker in 0..3 {
            all(&connector, Slice { task, tasks: 2, worker, workers: 3 }, &start, &mut rows).await;
        }
    }
    let mut indexes: Vec<u64> =
        rows.values().map(|(value, _)| serde_json::from_slice::<Value>(value).unwrap()["n"].as_u64().unwrap()).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..1003).collect::<Vec<_>>());
}

#[tokio::test]
async fn with_a_rate_messages_are_published_when_they_were_due_and_again_the_same() {
    let connector = connector(r#"{"count": 40, "rate": 2000, "partitions": 2, "template": "{\"t\": {{timestamp()}}}"}"#);
    let start = connector.start(0, 1).await.unwrap();
    let start_ms = start.0["0"]["start_ms"].as_i64().unwrap();
    let (mut a, mut b) = (Rows::new(), Rows::new());
    all(&connector, Slice::WHOLE, &start, &mut a).await;
    all(&connector, Slice::WHOLE, &start, &mut b).await;
    assert_eq!(a, b);
    for ((partition, offset), (value, published)) in a {
        let index = offset * 2 + i64::from(partition);
        assert_eq!(published, start_ms + index / 2);
        assert_eq!(value, format!("{{\"t\": {published}}}").into_bytes());
    }
}

#[tokio::test]
async fn what_is_due_and_not_read_is_the_lag() {
    let connector = connector(r#"{"count": 40, "rate": 1000, "partitions": 2}"#);
    let mut position = Position::default();
    for number in 0..2 {
        Partition { number, next: 0, start_ms: 0 }.note(&mut position);
    }
    let source = connector.open(Slice::WHOLE, &position).await.unwrap();
    assert_eq!(source.lag(), [("0".to_string(), 20), ("1".to_string(), 20)]);
}

#[tokio::test]
async fn a_batch_keeps_to_its_bytes() {
    let connector = connector(r#"{"count": 100, "batch": {"bytes": "1KB"}}"#);
    let mut source = connector.open(Slice::WHOLE, &connector.start(0, 1).await.unwrap()).await.unwrap();
    while let Some(batch) = source.next().await.unwrap() {
        assert!(batch.bytes() < 1_000 + 200, "{}", batch.bytes());
    }
}

#[tokio::test]
async fn a_message_has_the_key_that_the_pointer_names() {
    let connector = connector(r#"{"count": 10, "key": "/id"}"#);
    let mut source = connector.open(Slice::WHOLE, &connector.start(0, 1).await.unwrap()).await.unwrap();
    let batch = source.next().await.unwrap().unwrap();
    for row in 0..batch.len() {
        let value: Value = serde_json::from_slice(batch.value(row).unwrap()).unwrap();
        assert_eq!(value["id"].as_str().unwrap().as_bytes(), batch.key(row).unwrap());
    }
}

#[tokio::test]
async fn a_checkpoint_of_more_partitions_or_of_another_source_is_refused() {
    let start = connector(r#"{"partitions": 8}"#).start(0, 1).await.unwrap();
    let fewer = connector(r#"{"partitions": 4}"#).open(Slice::WHOLE, &start).await.err().unwrap();
    assert!(fewer.to_string().contains("set `partitions` as it was"), "{fewer}");
    let mut position = Position::default();
    position.set("0", 5);
    let other = connector("{}").open(Slice::WHOLE, &position).await.err().unwrap();
    assert!(other.to_string().contains("another kind of source"), "{other}");
}

#[test]
fn wrong_settings_say_what_to_write() {
    for (config, part) in [
        (json!({}), "either `schema`"),
        (json!({"schema": "a", "template": "{}"}), "either `schema`"),
        (json!({"schema": "/nowhere/t.json"}), "cannot read the template schema=/nowhere/t.json"),
        (json!({"template": "{}", "rate": 0}), "above 0"),
        (json!({"template": "{}", "partitions": 0}), "out of range"),
        (json!({"template": "{}", "batch": {"rows": 0}}), "start at 1"),
        (json!({"template": "{\"a\": \"{{uid()}}\"}"}), "did you mean `uuid`?"),
    ] {
        let text = refused(config.clone());
        assert!(text.contains(part) && text.contains("source=g"), "{config}: {text}");
    }
    let unknown = serde_json::from_value::<Config>(json!({"template": "{}", "qps": 3})).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `qps`"), "{unknown}");
}
