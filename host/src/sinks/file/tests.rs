//! Tests of the file sink as a whole: what is visible when, and after which crash.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use object_store::memory::InMemory;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::batch::{Batch, BatchBuilder, Origin};
use crate::error::ErrorKind;
use crate::sink::{CommitInfo, Committed, Epoch, Prepared, Recovered};

fn identity(attempt: &str) -> Identity {
    Identity { pipeline: "p".into(), sink: "file".into(), task: 0, tasks: 1, log_id: "log".into(), attempt: attempt.into() }
}

fn rows(values: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(0, 0);
    for value in values {
        builder.push(None, Some(value.as_bytes()), Origin::default());
    }
    builder.finish(0)
}

fn connector(path: impl std::fmt::Display) -> Connector {
    let config = serde_json::from_value(json!({"path": path.to_string()})).unwrap();
    Connector::new(config, "file", Format::Lines).unwrap()
}

/// The sink on an object store that lives in memory.
fn in_memory(name: &str, store: &Arc<InMemory>, spool: &Path) -> Connector {
    Connector {
        target: Target { folder: "s3://bucket/a".into(), name: name.into(), remote: true },
        place: Place::Remote { store: store.clone(), prefix: "a".into() },
        format: Format::Lines,
        compression: Compression::None,
        limit: None,
        spool: spool.to_path_buf(),
    }
}

/// Lets each worker prepare its rows.
async fn prepare(connector: &Connector, attempt: &str, epoch: u64, workers: &[&[&str]]) -> Vec<Prepared> {
    let mut prepared = Vec::new();
    for (worker, values) in workers.iter().enumerate() {
        let mut writer = connector.writer(&identity(attempt), worker as u32).await.unwrap();
        assert!(writer.write(rows(values)).await.unwrap().is_empty());
        prepared.extend(writer.prepare(Epoch(epoch)).await.unwrap().0);
    }
    // As the coordinator has them: in the order in which they were ready.
    prepared.reverse();
    prepared
}

async fn commit(connector: &Connector, epoch: u64, prepared: &[Prepared]) -> Result<Committed> {
    let mut committer = connector.committer(&identity("b")).await?;
    committer.commit(Epoch(epoch), prepared, &CommitInfo::default()).await
}

async fn recover(connector: &Connector, epoch: u64, prepared: &[Prepared]) -> Result<Recovered> {
    connector.committer(&identity("b")).await?.recover(Epoch(epoch), prepared).await
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// What lies staged.
fn staged(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path().join(".weir/p.file.0"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn one_file_grows_by_an_epoch_at_its_commit_in_the_order_of_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let connector = connector(path.display());
    connector.check().await.unwrap();
    let first = prepare(&connector, "a", 1, &[&["1", "2"], &["3"]]).await;
    assert!(!path.exists());
    assert_eq!(staged(&folder), ["1-a-0", "1-a-1"]);
    let committed = commit(&connector, 1, &first).await.unwrap();
    assert_eq!(committed, Committed { rows: 3, files: 0, bytes: 6 });
    assert_eq!(text(&path), "1\n2\n3\n");
    let second = prepare(&connector, "a", 2, &[&["4"], &[]]).await;
    assert_eq!(second.len(), 1);
    commit(&connector, 2, &second).await.unwrap();
    assert_eq!(text(&path), "1\n2\n3\n4\n");
    assert_eq!(staged(&folder), ["2.commit"]);
}

#[tokio::test]
async fn an_epoch_has_its_own_file_that_appears_whole() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("day/{epoch}.jsonl").display());
    let prepared = prepare(&connector, "a", 7, &[&["1"], &["2"], &["3"]]).await;
    let committed = commit(&connector, 7, &prepared).await.unwrap();
    assert_eq!(committed, Committed { rows: 3, files: 1, bytes: 6 });
    assert_eq!(text(folder.path().join("day/00000007.jsonl")), "1\n2\n3\n");
}

#[tokio::test]
async fn each_worker_may_have_its_own_files_in_folders_made_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("{task}/{epoch}/{worker}").display());
    let prepared = prepare(&connector, "a", 7, &[&["1"], &["2"]]).await;
    assert_eq!(commit(&connector, 7, &prepared).await.unwrap().files, 2);
    assert_eq!(text(folder.path().join("0/00000007/0")), "1\n");
    assert_eq!(text(folder.path().join("0/00000007/1")), "2\n");
}

#[tokio::test]
async fn committing_again_changes_nothing_whatever_came_between() {
    for name in ["out", "{epoch}", "{epoch}-{worker}"] {
        let folder = tempfile::tempdir().unwrap();
        let connector = connector(folder.path().join(name).display());
        let prepared = prepare(&connector, "a", 1, &[&["1"], &["2"]]).await;
        let first = commit(&connector, 1, &prepared).await.unwrap();
        assert_eq!(commit(&connector, 1, &prepared).await.unwrap(), first);
        assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Committed);
        let of_all: String = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(text)
            .collect();
        assert_eq!(of_all.len(), 4, "{name}");
        // A reader takes the files away: the epoch is committed all the same.
        fs::read_dir(folder.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| p.is_file())
            .for_each(|p| fs::remove_file(p).unwrap());
        assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Committed);
    }
}

#[tokio::test]
async fn a_crash_before_the_commit_leaves_everything_to_be_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let connector = connector(path.display());
    let prepared = prepare(&connector, "a", 1, &[&["1"], &["2"]]).await;
    assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::NeedsCommit);
    assert!(!path.exists());
    commit(&connector, 1, &prepared).await.unwrap();
    assert_eq!(text(&path), "1\n2\n");
}

/// The folder as it is at each moment of a commit, by what is durable by then.
#[tokio::test]
async fn a_crash_within_a_commit_is_carried_to_its_end() {
    let all = "first\nsecond\nthird\n";
    for cut in 6..=all.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let connector = connector(path.display());
        commit(&connector, 1, &prepare(&connector, "a", 1, &[&["first"]]).await).await.unwrap();
        let prepared = prepare(&connector, "a", 2, &[&["second"], &["third"]]).await;
        let mark = json!({"log_id": "log", "bases": {"out": 6}}).to_string();
        fs::write(folder.path().join(".weir/p.file.0/2.commit"), mark).unwrap();
        fs::write(&path, &all[..cut]).unwrap();
        assert_eq!(recover(&connector, 2, &prepared).await.unwrap(), Recovered::Committed, "{cut}");
        assert_eq!(text(&path), all);
        // The first part removed, the second not yet.
        fs::write(folder.path().join(".weir/p.file.0/2-a-1"), "third\n").unwrap();
        assert_eq!(recover(&connector, 2, &prepared).await.unwrap(), Recovered::Committed);
        assert_eq!(text(&path), all);
        assert_eq!(staged(&folder), ["1.commit", "2.commit"]);
    }
}

#[tokio::test]
async fn a_crash_while_an_epochs_file_is_joined_is_carried_to_its_end() {
    for joined in ["1\n", "1\n2", "1\n2\n"] {
        let folder = tempfile::tempdir().unwrap();
        let connector = connector(folder.path().join("{epoch}").display());
        let prepared = prepare(&connector, "a", 3, &[&["1"], &["2"]]).await;
        fs::write(folder.path().join(".weir/p.file.0/3.commit"), json!({"log_id": "log", "bases": {}}).to_string()).unwrap();
        fs::write(folder.path().join(".weir/p.file.0/3-a-0"), joined).unwrap();
        assert_eq!(recover(&connector, 3, &prepared).await.unwrap(), Recovered::Committed);
        assert_eq!(text(folder.path().join("00000003")), "1\n2\n");
    }
}

#[tokio::test]
async fn what_was_prepared_and_is_gone_is_lost() {
    for name in ["out", "{epoch}"] {
        let folder = tempfile::tempdir().unwrap();
        let connector = connector(folder.path().join(name).display());
        commit(&connector, 1, &prepare(&connector, "a", 1, &[&["0"]]).await).await.unwrap();
        let prepared = prepare(&connector, "a", 2, &[&["1"], &["2"]]).await;
        fs::write(folder.path().join(".weir/p.file.0/2-a-1"), "").unwrap();
        assert_eq!(recover(&connector, 2, &prepared).await.unwrap(), Recovered::Lost);
        fs::remove_file(folder.path().join(".weir/p.file.0/2-a-1")).unwrap();
        assert_eq!(recover(&connector, 2, &prepared).await.unwrap(), Recovered::Lost);
        let error = commit(&connector, 2, &prepared).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("gone or cut short") && error.to_string().contains("2-a-1"), "{error}");
        let mut committer = connector.committer(&identity("b")).await.unwrap();
        committer.discard(&prepared).await.unwrap();
        committer.discard(&prepared).await.unwrap();
        assert_eq!(staged(&folder), ["1.commit"]);
    }
}

#[tokio::test]
async fn without_the_staging_folder_the_files_themselves_tell() {
    for name in ["out", "{epoch}"] {
        let folder = tempfile::tempdir().unwrap();
        let connector = connector(folder.path().join(name).display());
        let prepared = prepare(&connector, "a", 1, &[&["1"], &["2"]]).await;
        commit(&connector, 1, &prepared).await.unwrap();
        fs::remove_dir_all(folder.path().join(".weir")).unwrap();
        assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Committed);
        let file = folder.path().join(name.replace("{epoch}", "00000001"));
        fs::remove_file(&file).unwrap();
        assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Lost);
        if name == "out" {
            fs::write(&file, "1\n2").unwrap();
            let error = recover(&connector, 1, &prepared).await.unwrap_err();
            assert!(error.to_string().contains("restore the staging folder"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_path_changed_before_the_last_epoch_was_settled_is_refused() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let prepared = prepare(&connector(folder.path().join("out").display()), "a", 1, &[&["1"]]).await;
    let error = recover(&connector(other.path().join("out").display()), 1, &prepared).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("run once with the path as it was"), "{error}");
    // Moved as a whole, it is found.
    let moved = other.path().join("moved");
    fs::rename(folder.path(), &moved).unwrap();
    assert_eq!(recover(&connector(moved.join("out").display()), 1, &prepared).await.unwrap(), Recovered::NeedsCommit);
}

#[tokio::test]
async fn lines_of_others_stay_and_come_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let connector = connector(path.display());
    fs::write(&path, "theirs\n").unwrap();
    let prepared = prepare(&connector, "a", 1, &[&["ours"]]).await;
    fs::write(&path, "theirs\nand more\n").unwrap();
    commit(&connector, 1, &prepared).await.unwrap();
    assert_eq!(text(&path), "theirs\nand more\nours\n");
    // A file rotated away begins anew.
    fs::rename(&path, folder.path().join("old")).unwrap();
    commit(&connector, 2, &prepare(&connector, "a", 2, &[&["new"]]).await).await.unwrap();
    assert_eq!(text(&path), "new\n");
}

#[tokio::test]
async fn a_file_touched_in_the_middle_of_a_commit_stops_with_a_remedy() {
    for (content, part) in [("th", "shorter than it was"), ("theirs\nmore lines of theirs\n", "something else has written")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let connector = connector(path.display());
        let prepared = prepare(&connector, "a", 1, &[&["ours"]]).await;
        let mark = json!({"log_id": "log", "bases": {"out": 7}}).to_string();
        fs::write(folder.path().join(".weir/p.file.0/1.commit"), mark).unwrap();
        fs::write(&path, content).unwrap();
        let error = recover(&connector, 1, &prepared).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains(part) && error.to_string().contains("/out"), "{error}");
        assert_eq!(text(&path), content);
    }
}

#[tokio::test]
async fn a_file_of_that_name_that_is_not_ours_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("{epoch}").display());
    let prepared = prepare(&connector, "a", 1, &[&["ours"]]).await;
    fs::write(folder.path().join("00000001"), "theirs").unwrap();
    let error = commit(&connector, 1, &prepared).await.unwrap_err();
    assert!(error.to_string().contains("move it away file="), "{error}");
    fs::remove_file(folder.path().join("00000001")).unwrap();
    commit(&connector, 1, &prepared).await.unwrap();
}

#[tokio::test]
async fn another_logs_mark_and_a_later_epoch_refuse_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("out").display());
    let prepared = prepare(&connector, "a", 5, &[&["1"]]).await;
    commit(&connector, 5, &prepared).await.unwrap();
    let error = recover(&connector, 4, &prepared).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("later epoch than the log knows") && error.to_string().contains("found=5"), "{error}");
    let other = Identity { log_id: "other".into(), ..identity("a") };
    let error = connector.committer(&other).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("another log of this pipeline"), "{error}");
}

#[tokio::test]
async fn two_processes_at_one_commit_make_it_visible_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let connector = connector(path.display());
    let prepared = prepare(&connector, "a", 1, &[&["1"], &["2"]]).await;
    let both = futures::future::join_all((0..8).map(|_| commit(&connector, 1, &prepared))).await;
    assert!(both.iter().any(|done| done.is_ok()), "{both:?}");
    assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Committed);
    assert_eq!(text(&path), "1\n2\n");
}

#[tokio::test]
async fn sweeping_takes_the_leavings_of_the_dead_and_nothing_that_may_be_needed() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("out").display());
    commit(&connector, 3, &prepare(&connector, "a", 3, &[&["1"]]).await).await.unwrap();
    let kept = prepare(&connector, "a", 4, &[&["2"]]).await;
    let dead = prepare(&connector, "dead", 4, &[&["3"]]).await;
    let later = prepare(&connector, "later", 5, &[&["4"]]).await;
    fs::write(folder.path().join(".weir/p.file.0/open-dead-0"), "half").unwrap();
    fs::write(folder.path().join(".weir/p.file.0/open-b-0"), "ours").unwrap();
    fs::write(folder.path().join(".weir/p.file.0/README"), "a person's").unwrap();
    let mut committer = connector.committer(&identity("b")).await.unwrap();
    committer.sweep(Epoch(4), &kept).await.unwrap();
    assert_eq!(staged(&folder), ["3.commit", "4-a-0", "5-later-0", "README", "open-b-0"]);
    drop((dead, later));
}

#[tokio::test]
async fn a_writer_that_never_prepares_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("out").display());
    let mut writer = connector.writer(&identity("a"), 0).await.unwrap();
    assert_eq!(writer.prepare(Epoch(1)).await.unwrap().0, None);
    writer.write(rows(&["1"])).await.unwrap();
    assert_eq!(staged(&folder), ["open-a-0"]);
    drop(writer);
    assert!(staged(&folder).is_empty());
}

#[tokio::test]
async fn compressed_files_of_several_workers_and_epochs_read_as_one() {
    for (name, decode) in [
        ("out.gz", (|bytes| Box::new(flate2::read::MultiGzDecoder::new(bytes))) as fn(&[u8]) -> Box<dyn Read + '_>),
        ("out.zst", |bytes| Box::new(zstd::Decoder::new(bytes).unwrap())),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let connector = connector(folder.path().join(name).display());
        for epoch in 1..=2 {
            let prepared = prepare(&connector, "a", epoch, &[&["1", "2"], &["3"]]).await;
            commit(&connector, epoch, &prepared).await.unwrap();
        }
        let bytes = fs::read(folder.path().join(name)).unwrap();
        let mut text = String::new();
        decode(&bytes).read_to_string(&mut text).unwrap();
        assert_eq!(text, "1\n2\n3\n1\n2\n3\n");
    }
}

#[tokio::test]
async fn enough_bytes_ask_for_a_barrier() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({"path": folder.path().join("out").display().to_string(), "max_bytes": "10B"});
    let connector = Connector::new(serde_json::from_value(config).unwrap(), "file", Format::Lines).unwrap();
    let mut writer = connector.writer(&identity("a"), 0).await.unwrap();
    writer.write(rows(&["1234"])).await.unwrap();
    assert!(!writer.wants_barrier());
    writer.write(rows(&["6789"])).await.unwrap();
    assert!(writer.wants_barrier());
    writer.prepare(Epoch(1)).await.unwrap();
    assert!(!writer.wants_barrier());
}

#[tokio::test]
async fn rows_that_a_line_cannot_hold_are_rejected_and_the_others_written() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("out").display());
    let mut writer = connector.writer(&identity("a"), 0).await.unwrap();
    let rejected = writer.write(rows(&["a", "b\nc"])).await.unwrap();
    assert_eq!(rejected[0].rows.len(), 1);
    let prepared = writer.prepare(Epoch(1)).await.unwrap().0.unwrap();
    assert_eq!((&prepared.0["rows"], &prepared.0["bytes"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn an_object_is_staged_then_copied_and_the_same_crashes_are_survived() {
    let (store, spool) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let connector = in_memory("{epoch}-{worker}", &store, spool.path());
    connector.check().await.unwrap();
    let names = async || {
        use futures::TryStreamExt;
        use object_store::ObjectStore;
        let mut names: Vec<String> = store.list(None).map_ok(|meta| meta.location.to_string()).try_collect().await.unwrap();
        names.sort();
        names
    };
    let prepared = prepare(&connector, "a", 1, &[&["1"], &["2"]]).await;
    assert_eq!(names().await, ["a/.weir/p.file.0/1-a-0", "a/.weir/p.file.0/1-a-1"]);
    assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::NeedsCommit);
    let committed = commit(&connector, 1, &prepared).await.unwrap();
    assert_eq!(committed, Committed { rows: 2, files: 2, bytes: 4 });
    assert_eq!(names().await, ["a/.weir/p.file.0/1.commit", "a/00000001-0", "a/00000001-1"]);
    assert_eq!(commit(&connector, 1, &prepared).await.unwrap(), committed);
    assert_eq!(recover(&connector, 1, &prepared).await.unwrap(), Recovered::Committed);
    // Larger than one part.
    let large = "x".repeat(9 << 20);
    let prepared = prepare(&connector, "a", 2, &[&[&large]]).await;
    connector.committer(&identity("b")).await.unwrap().discard(&prepared).await.unwrap();
    assert_eq!(recover(&connector, 2, &prepared).await.unwrap(), Recovered::Lost);
    let prepared = prepare(&connector, "b", 3, &[&[&large]]).await;
    assert_eq!(commit(&connector, 3, &prepared).await.unwrap().bytes, (9 << 20) + 1);
    assert_eq!(fs::read_dir(spool.path().join(".weir/p.file.0")).unwrap().count(), 0);
    let error = connector.writer(&Identity { tasks: 2, ..identity("a") }, 0).await.err().unwrap();
    assert!(error.to_string().contains("`{task}`"), "{error}");
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_refused_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let through = connector(folder.path().join("file/out").display());
    let error = through.check().await.unwrap_err();
    assert!(error.to_string().contains("leads through a file"), "{error}");
    let error = through.writer(&identity("a"), 0).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("change `path`") && error.to_string().contains("file/.weir"), "{error}");
    let error = connector(folder.path().display()).check().await.unwrap_err();
    assert!(error.to_string().contains("add a file name"), "{error}");
    for (kind, wanted, part) in [
        (std::io::ErrorKind::StorageFull, ErrorKind::Transient, "the disk is full: free some space"),
        (std::io::ErrorKind::ReadOnlyFilesystem, ErrorKind::Config, "read-only"),
        (std::io::ErrorKind::PermissionDenied, ErrorKind::Config, "let this user write there"),
    ] {
        let error = local::failed("cannot write rows", Path::new("/a/b"), kind.into());
        assert_eq!(error.kind(), wanted);
        assert!(error.to_string().contains(part) && error.to_string().contains("path=/a/b"), "{error}");
    }
}

#[tokio::test]
async fn work_that_no_file_sink_prepared_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let connector = connector(folder.path().join("out").display());
    for (work, part) in [
        (json!({"rows": 1}), "no work of a file sink"),
        (
            json!({"folder": "", "staged": "../1-a-0", "target": "out", "worker": 0, "rows": 1, "bytes": 1, "before": 0}),
            "outside of",
        ),
        (
            json!({"folder": "", "staged": "1-a-0", "target": "../out", "worker": 0, "rows": 1, "bytes": 1, "before": 0}),
            "outside of",
        ),
    ] {
        let error = recover(&connector, 1, &[Prepared(work)]).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn wrong_settings_say_what_to_write() {
    for (config, part) in [
        (json!({"path": "a/"}), "add a file name"),
        (json!({"path": "s3://b/a"}), "`{epoch}`"),
        (json!({"path": "a", "max_bytes": "0B"}), "256MiB is a fair size"),
    ] {
        let error = Connector::new(serde_json::from_value(config).unwrap(), "dead", Format::Lines).err().unwrap();
        assert!(error.to_string().contains(part) && error.to_string().contains("sink=dead"), "{error}");
    }
    let unknown = serde_json::from_value::<Config>(json!({"path": "a", "compress": "gz"})).unwrap_err().to_string();
    assert!(unknown.contains("unknown field `compress`"), "{unknown}");
}
