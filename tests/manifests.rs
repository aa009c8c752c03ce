//! Manifests of every format that a released Weir has written: they read for ever, and a pipeline goes on from them.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use weir::checkpoint::{MANIFEST_VERSION, Manifest};
use weir::sink::Epoch;

use crate::harness::weir::Job;

fn fixture(version: u32) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/manifests");
    let path = folder.join(format!("{version}.json"));
    fs::read(&path).unwrap_or_else(|e| panic!("freeze a manifest of each version before the newest as {}: {e}", path.display()))
}

#[test]
fn a_manifest_of_every_version_reads_for_ever_and_loses_nothing() {
    for version in 1..MANIFEST_VERSION {
        let bytes = fixture(version);
        let manifest = Manifest::parse(&bytes).unwrap();
        let (frozen, written): (Value, Value) =
            (serde_json::from_slice(&bytes).unwrap(), serde_json::from_slice(&manifest.to_bytes().unwrap()).unwrap());
        for (key, value) in frozen.as_object().unwrap() {
            assert_eq!(written[key], *value, "{key} of version {version}");
        }
    }
    let first = Manifest::parse(&fixture(1)).unwrap();
    assert_eq!((first.epoch, first.previous, first.abandoned), (Epoch(8), Some(Epoch(5)), vec![Epoch(6), Epoch(7)]));
    assert_eq!(first.sources["clicks"].integer("clicks/11"), Some(9_007_199_254_740_993));
    assert_eq!(first.sinks["out"].prepared[0].0["rows"], 7);
}

#[test]
fn a_pipeline_goes_on_from_a_log_that_the_first_version_left() {
    let job = Job::new(
        "
pipeline: frozen
checkpoint: {store: ./state, interval: 1s}
sources: [file: {name: lines, path: in.jsonl}]
sinks: [file: {name: out, path: 'out-{epoch}.jsonl'}]
",
    );
    job.write("in.jsonl", "1\n2\n3\n4\n");
    let frozen = json!({
        "version": 1, "pipeline": "frozen", "task": 0, "tasks": 1, "log_id": "645b47e54b9243468e76d5cea6ebce28",
        "attempt": "7e66fb8cd016432d9be0aaf2183fc071", "epoch": 3, "previous": 2, "finished": false,
        "created_ms": 1_796_276_295_472_i64,
        "sources": {"lines": {"in.jsonl": {"partition": 0, "line": 2, "byte": 4, "tail": 11_368_720_403_672_607_620_u64, "done": false}}},
        "sinks": {"out": {"kind": "file", "prepared": []}},
        "modules": {},
    });
    job.write("state/frozen/0/0000000000000003.json", frozen.to_string());
    job.run().ok();
    assert_eq!(job.read("out-00000004.jsonl"), "3\n4\n", "epoch 4 holds what epoch 3 had not read");
}
