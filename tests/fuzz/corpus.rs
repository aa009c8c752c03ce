//! The fuzzer's examples, and what it has found so far, through the same entries on every test run.

use std::fs;
use std::path::PathBuf;

use super::entries::ENTRIES;

fn examples(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn nothing_in_the_fuzzers_corpus_makes_the_host_panic() {
    for (name, entry) in ENTRIES {
        let examples = examples(name);
        assert!(examples.len() >= 3, "{name} has examples to begin with");
        for (path, bytes) in examples {
            // A panic would not say which file it was.
            let outcome = std::panic::catch_unwind(|| entry(&bytes));
            assert!(outcome.is_ok(), "{name}: {}", path.display());
        }
    }
}

#[test]
fn the_corpus_reaches_behind_the_first_checks() {
    let decoded = examples("decoder").into_iter().filter(|(_, bytes)| {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap();
        weir::columnar::Schema::from_json(line).is_ok()
    });
    assert!(decoded.count() >= 2, "schemas that are some");
    let manifests = examples("manifest").into_iter().filter(|(_, bytes)| weir::checkpoint::Manifest::parse(bytes).is_ok());
    assert!(manifests.count() >= 2, "manifests that are some");
}
