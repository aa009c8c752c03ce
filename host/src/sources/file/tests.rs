//! Tests of the file source as a whole: formats, resuming, changed files, sharing, refusals.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutPayload};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::error::ErrorKind;

/// A source of files in a folder, with more settings.
fn connector(folder: &TempDir, path: &str, more: Value) -> Connector {
    let mut config = json!({"path": folder.path().join(path).display().to_string()});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Connector::new(serde_json::from_value(config).unwrap(), "f").unwrap()
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

async fn read(connector: &Connector, slice: Slice, position: &Position) -> Result<Vec<String>> {
    let mut source = connector.open(slice, position).await?;
    let mut rows = Vec::new();
    while let Some(batch) = source.next().await? {
        rows.extend((0..batch.len()).map(|row| String::from_utf8(batch.value(row).unwrap().to_vec()).unwrap()));
    }
    assert!(source.next().await?.is_none());
    Ok(rows)
}

async fn all(connector: &Connector) -> Result<Vec<String>> {
    read(connector, Slice::WHOLE, &connector.start(0, 1).await?).await
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    zstd::encode_all(content, 1).unwrap()
}

/// More than one batch of numbered lines.
fn many() -> String {
    (0..10_000).map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_names_whatever_their_compression() {
    let folder = folder(&[
        ("b.jsonl.gz", &[gzip(b"2\n"), gzip(b"3")].concat()),
        ("a.jsonl", "\u{feff}0\r\n\n1".as_bytes()),
        ("c.jsonl.zst", &[zstd(b"4\n"), zstd("ü\n".as_bytes())].concat()),
        ("d.txt", b"no\n"),
        ("sub/e.jsonl", b"no\n"),
    ]);
    let connector = connector(&folder, "*.jsonl*", json!({}));
    connector.check().await.unwrap();
    let mut source = connector.open(Slice::WHOLE, &Position::default()).await.unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = source.next().await.unwrap() {
        for row in 0..batch.len() {
            let value = String::from_utf8(batch.value(row).unwrap().to_vec()).unwrap();
            rows.push((batch.partitions[row], batch.offsets[row], value));
        }
    }
    let expected = [(0, 0, "0"), (0, 2, "1"), (1, 0, "2"), (1, 1, "3"), (2, 0, "4"), (2, 1, "ü")];
    assert_eq!(rows, expected.map(|(partition, offset, value)| (partition, offset, value.to_string())));
    assert!(source.position().0.values().all(|place| place["done"] == true));
}

#[tokio::test]
async fn reading_on_from_any_position_gives_what_was_left() {
    let text = many();
    let csv = format!("n,text\n{}", (0..10_000).map(|n| format!("{n},\"a \"\"b\"\"\n,ü\"\r\n")).collect::<String>());
    for (name, content) in [
        ("a.jsonl", text.clone().into_bytes()),
        ("a.jsonl.gz", gzip(text.as_bytes())),
        ("a.jsonl.zst", zstd(text.as_bytes())),
        ("a.csv", csv.clone().into_bytes()),
        ("a.csv.gz", gzip(csv.as_bytes())),
    ] {
        let folder = folder(&[(name, &content), ("b", b"last")]);
        let connector = connector(&folder, name, json!({}));
        let whole = all(&connector).await.unwrap();
        assert_eq!(whole.len(), 10_000, "{name}");
        let mut source = connector.open(Slice::WHOLE, &connector.start(0, 1).await.unwrap()).await.unwrap();
        let mut handed = 0;
        while let Some(batch) = source.next().await.unwrap() {
            handed += batch.len();
            let stored = serde_json::from_str(&serde_json::to_string(&source.position()).unwrap()).unwrap();
            assert_eq!(read(&connector, Slice::WHOLE, &stored).await.unwrap(), whole[handed..], "{name} {handed}");
        }
        assert_eq!(read(&connector, Slice::WHOLE, &source.position()).await.unwrap(), [""; 0]);
    }
}

#[tokio::test]
async fn csv_records_become_objects_of_strings() {
    let text = "id,\"na\"\"me\",note\r\n1,Zoë,\"a, \"\"b\"\"\nc\"\n\n2,,\t\n";
    let source = folder(&[("a.csv", text.as_bytes()), ("b.tsv", b"1\t\"x\ty\"\n")]);
    let rows = all(&connector(&source, "a.csv", json!({}))).await.unwrap();
    assert_eq!(rows, [r#"{"id":"1","na\"me":"Zoë","note":"a, \"b\"\nc"}"#, r#"{"id":"2","na\"me":"","note":"\t"}"#]);
    let rows =
        all(&connector(&source, "b.tsv", json!({"format": "csv", "columns": ["a", "b"], "delimiter": "\t"}))).await.unwrap();
    assert_eq!(rows, [r#"{"a":"1","b":"x\ty"}"#]);
}

#[tokio::test]
async fn a_header_that_is_wrong_stops_and_names_the_file() {
    for (content, part) in [
        (&b""[..], "the file is empty"),
        (b"a,a\n", "each column needs a name of its own: mend the header, or set `columns` column=2 found=`a`"),
        (b"a,\n", "column=2 found=``"),
        (b"a,\xff\n1,2\n", "the header can't be read: the record is not UTF-8"),
        (b"a,\"b\n1,2\n", "the header can't be read: a quote is never closed"),
        (b"a-header-of-24-characters\n1\n", "the header can't be read: the record is longer than `max_line`"),
    ] {
        let folder = folder(&[("a.csv", content)]);
        let error = all(&connector(&folder, "a.csv", json!({"max_line": "20B"}))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(part) && error.to_string().contains("file=a.csv"), "{error}");
    }
}

/// Messages, and the rows rejected, each with its offset and reason.
async fn sorted_out(connector: &Connector) -> (Vec<String>, Vec<(i64, Vec<u8>, String)>) {
    let mut source = connector.open(Slice::WHOLE, &connector.start(0, 1).await.unwrap()).await.unwrap();
    let (mut messages, mut refused) = (Vec::new(), Vec::new());
    while let Some(batch) = source.next().await.unwrap() {
        messages.extend((0..batch.len()).map(|row| String::from_utf8(batch.value(row).unwrap().to_vec()).unwrap()));
        let rejected = source.rejected();
        for (row, reason) in rejected.iter().flat_map(|r| r.reasons.iter().enumerate().map(move |(i, reason)| ((r, i), reason))) {
            refused.push((row.0.rows.offsets[row.1], row.0.rows.value(row.1).unwrap().to_vec(), reason.clone()));
        }
        assert!(source.rejected().is_none(), "each is told once");
    }
    (messages, refused)
}

#[tokio::test]
async fn a_csv_record_that_is_wrong_is_rejected_as_it_stands_and_the_others_are_read() {
    let bad = |offset: i64, value: &[u8], reason: &str| (offset, value.to_vec(), format!("{reason} file=a.csv"));
    for (content, messages, refused) in [
        (
            &b"a,b\n1,2\n\n3\n4,5,6\r\n7,8\n"[..],
            vec![r#"{"a":"1","b":"2"}"#, r#"{"a":"7","b":"8"}"#],
            vec![
                bad(2, b"3", "the record has another number of fields than there are columns: fields=1 columns=2 record=3"),
                bad(3, b"4,5,6", "the record has another number of fields than there are columns: fields=3 columns=2 record=4"),
            ],
        ),
        (
            b"a\n\xff\nx\n",
            vec![r#"{"a":"x"}"#],
            vec![bad(1, b"\xff", "the record is not UTF-8: convert the file, for example with iconv: field=1 record=2")],
        ),
        (
            b"a,b\r\n1,\"x\r\n3,4\r\n5,6\r\n",
            vec![r#"{"a":"3","b":"4"}"#, r#"{"a":"5","b":"6"}"#],
            vec![bad(1, b"1,\"x", "a quote is never closed; here is the record's first line record=2")],
        ),
        (
            b"a\nx\"y\n\"",
            vec![r#"{"a":"x\"y"}"#],
            vec![bad(2, b"\"", "a quote is never closed; here is the record's first line record=3")],
        ),
        (
            b"a\n\"never closed, on and on\nand on and on and on\nx\n",
            vec![r#"{"a":"and on and on and on"}"#, r#"{"a":"x"}"#],
            vec![bad(
                1,
                b"\"never closed, on and",
                "the record is longer than `max_line`, or a quote is never closed; here is its first line: limit=21 record=2",
            )],
        ),
    ] {
        let folder = folder(&[("a.csv", content)]);
        let found = sorted_out(&connector(&folder, "a.csv", json!({"max_line": "21B"}))).await;
        assert_eq!(
            found,
            (messages.into_iter().map(str::to_string).collect(), refused),
            "{:?}",
            String::from_utf8_lossy(content)
        );
    }
}

#[tokio::test]
async fn a_line_that_is_too_long_is_rejected_with_its_file_and_place() {
    let folder = folder(&[("a.jsonl", b"1\n22222\n3\n")]);
    let (messages, refused) = sorted_out(&connector(&folder, "a.jsonl", json!({"max_line": "3B"}))).await;
    assert_eq!(messages, ["1", "3"]);
    let reason = "the line is longer than `max_line`, and only its beginning is here: line=2 byte=2 bytes=5 limit=3 file=a.jsonl";
    assert_eq!(refused, [(1, b"222".to_vec(), reason.to_string())]);
}

#[tokio::test]
async fn workers_and_tasks_share_the_files_without_gap_or_overlap() {
    let files: Vec<(String, String)> = (0..40).map(|n| (format!("d{}/{n}.txt", n % 3), format!("{n}\n"))).collect();
    let folder = folder(&files.iter().map(|(name, content)| (name.as_str(), content.as_bytes())).collect::<Vec<_>>());
    let connector = connector(&folder, "**/*.txt", json!({}));
    let mut rows = Vec::new();
    for task in 0..3 {
        let start = connector.start(task, 3).await.unwrap();
        assert!(!start.0.is_empty());
        for worker in 0..2 {
            rows.extend(read(&connector, Slice { task, tasks: 3, worker, workers: 2 }, &start).await.unwrap());
        }
    }
    assert_eq!(rows.len(), 40);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), 40);
}

#[tokio::test]
async fn the_files_are_those_of_the_first_start() {
    let folder = folder(&[("a.txt", b"a\n"), ("b.txt", b"b\n")]);
    let connector = connector(&folder, "*.txt", json!({}));
    let start = connector.start(0, 1).await.unwrap();
    fs::write(folder.path().join("0.txt"), "later\n").unwrap();
    assert_eq!(read(&connector, Slice::WHOLE, &start).await.unwrap(), ["a", "b"]);
}

/// Reads the first batch, lets the file be changed, and reads on.
async fn read_on_after(name: &str, content: &[u8], change: impl Fn(&Path)) -> Error {
    let folder = folder(&[(name, content)]);
    let connector = connector(&folder, name, json!({}));
    let mut source = connector.open(Slice::WHOLE, &Position::default()).await.unwrap();
    source.next().await.unwrap().unwrap();
    let position = source.position();
    drop(source);
    change(&folder.path().join(name));
    read(&connector, Slice::WHOLE, &position).await.unwrap_err()
}

#[tokio::test]
async fn a_file_changed_cut_short_or_gone_since_stops_with_a_remedy() {
    let text = many();
    let changed = text.replace("1", "2");
    for (name, content, other, short) in [
        ("a", text.clone().into_bytes(), changed.clone().into_bytes(), text.as_bytes()[..1_000].to_vec()),
        ("a.gz", gzip(text.as_bytes()), gzip(changed.as_bytes()), gzip(&text.as_bytes()[..1_000])),
        ("a.zst", zstd(text.as_bytes()), zstd(changed.as_bytes()), zstd(&text.as_bytes()[..1_000])),
    ] {
        for new in [&other, &short] {
            let error = read_on_after(name, &content, |path| fs::write(path, new).unwrap()).await;
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(
                error.to_string().contains("not the one that was read so far") && error.to_string().contains(name),
                "{error}"
            );
        }
        let error = read_on_after(name, &content, |path| fs::remove_file(path).unwrap()).await;
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("the file is gone") && error.to_string().contains(name), "{error}");
    }
    let error = read_on_after("a", b"one\ntw", |path| fs::write(path, "one\ntwo\n").unwrap()).await;
    assert!(error.to_string().contains("has grown since"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_done_is_not_looked_at_again() {
    let folder = folder(&[("a.txt", b"a\n"), ("b.txt", b"b\n")]);
    let connector = connector(&folder, "*.txt", json!({}));
    let mut source = connector.open(Slice::WHOLE, &Position::default()).await.unwrap();
    source.next().await.unwrap().unwrap();
    source.next().await.unwrap().unwrap();
    let position = source.position();
    assert_eq!((&position.0["a.txt"]["done"], &position.0["b.txt"]["done"]), (&json!(true), &json!(false)));
    fs::remove_file(folder.path().join("a.txt")).unwrap();
    assert_eq!(read(&connector, Slice::WHOLE, &position).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_damaged_or_cut_compressed_file_is_corrupt_and_named() {
    let text = many();
    for (name, content) in [("a.gz", gzip(text.as_bytes())), ("a.zst", zstd(text.as_bytes()))] {
        let half = &content[..content.len() / 2];
        for content in [half, b"this is not compressed at all"] {
            let folder = folder(&[(name, content)]);
            let error = all(&connector(&folder, name, json!({}))).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}

#[tokio::test]
async fn dropping_next_loses_nothing() {
    let text = many();
    let folder = folder(&[("a", text.as_bytes())]);
    let connector = connector(&folder, "a", json!({}));
    let mut source = connector.open(Slice::WHOLE, &Position::default()).await.unwrap();
    let mut rows = 0;
    loop {
        tokio::select! {
            biased;
            batch = source.next() => match batch.unwrap() {
                Some(batch) => rows += batch.len(),
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(rows, 10_000);
}

#[tokio::test]
async fn objects_are_read_as_files_are() {
    let store = Arc::new(InMemory::new());
    let text = many();
    let large = format!("{text}{}\n", "x".repeat(9 << 20));
    for (name, content) in [("in/a.txt", large.clone().into_bytes()), ("in/b/c.txt", b"c".to_vec()), ("in/d.md", b"d".to_vec())] {
        store.put(&name.into(), PutPayload::from(content)).await.unwrap();
    }
    let folder = folder(&[("a", b"")]);
    let mut on_objects = connector(&folder, "a", json!({}));
    on_objects.files = Files::on(store.clone(), "in", "**/*.txt");
    let start = on_objects.start(0, 1).await.unwrap();
    assert_eq!(start.0.keys().collect::<Vec<_>>(), ["a.txt", "b/c.txt"]);
    let mut source = on_objects.open(Slice::WHOLE, &start).await.unwrap();
    let first = source.next().await.unwrap().unwrap().len();
    let position = source.position();
    let rest = read(&on_objects, Slice::WHOLE, &position).await.unwrap();
    assert_eq!(first + rest.len(), 10_002);
    assert_eq!(rest.last().unwrap(), "c");
    store.put(&"in/a.txt".into(), PutPayload::from(large.replace('1', "2").into_bytes())).await.unwrap();
    let error = read(&on_objects, Slice::WHOLE, &position).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    on_objects.files = Files::on(store, "in", "nothing.txt");
    let error = on_objects.check().await.unwrap_err();
    assert!(error.to_string().contains("no file is there by that path"), "{error}");
}

#[tokio::test]
async fn a_path_without_files_a_folder_and_a_foreign_checkpoint_are_refused() {
    let folder = folder(&[("sub/a.txt", b"a\n"), ("[x].txt", b"literal\n")]);
    for (path, part) in [
        ("*.csv", "no file is there by that path"),
        ("none.txt", "no file is there by that path"),
        ("none/*.txt", "no file is there by that path"),
        ("sub", "the path is a folder"),
        ("sub/a.txt/b", "leads through a file"),
    ] {
        let error = connector(&folder, path, json!({})).check().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(part), "{path}: {error}");
    }
    assert_eq!(all(&connector(&folder, "[x].txt", json!({}))).await.unwrap(), ["literal"]);
    let mut position = Position::default();
    position.set("0", 5);
    let error = connector(&folder, "sub/a.txt", json!({})).open(Slice::WHOLE, &position).await.err().unwrap();
    assert!(error.to_string().contains("another kind of source"), "{error}");
}

#[test]
fn wrong_settings_say_what_to_write() {
    for (config, part) in [
        (json!({"path": ""}), "add a file name or a pattern"),
        (json!({"path": "a/"}), "add a file name or a pattern"),
        (json!({"path": "a", "columns": ["x"]}), "add `format: csv`"),
        (json!({"path": "a", "delimiter": ";"}), "add `format: csv`"),
        (json!({"path": "a.csv", "columns": []}), "leave it out"),
        (json!({"path": "a.csv", "delimiter": "ü"}), "one ASCII character"),
        (json!({"path": "a.csv", "delimiter": "\""}), "one ASCII character"),
        (json!({"path": "a", "max_line": "0B"}), "from 1B to 1GiB"),
    ] {
        let error = Connector::new(serde_json::from_value(config).unwrap(), "in").err().unwrap();
        assert!(error.to_string().contains(part) && error.to_string().contains("source=in"), "{error}");
    }
    let unknown = serde_json::from_value::<Config>(json!({"path": "a", "glob": "*"})).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `glob`"), "{unknown}");
    let format = serde_json::from_value::<Config>(json!({"path": "a", "format": "parquet"})).unwrap_err().to_string();
    assert!(format.contains("unknown variant `parquet`"), "{format}");
}
