//! What is fuzzed: the ways by which bytes that nobody vouches for come into the host. Each takes any bytes and returns; a
//! panic is a find. The corpus beside this file has a folder of examples for each.

use serde_json::Value;
use weir::checkpoint::Manifest;

type Target = (&'static str, fn(&[u8]));

/// Each target by its name, which is also its folder in the corpus.
pub const ENTRIES: [Target; 3] = [("decoder", decoder), ("manifest", manifest), ("guest-output", weir::wasm::fuzz_entry)];

/// The first line is a schema, the rest a message.
fn decoder(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (schema, message) = bytes.split_at(end);
    weir::columnar::fuzz_entry(schema, message.get(1..).unwrap_or_default());
}

/// Whatever reads as a manifest is written and read back the same. Except for floats, which may move by the last bit; no connector
/// of ours keeps any but Iceberg, and that one only where a table is partitioned by such a column.
fn manifest(bytes: &[u8]) {
    let parsed = Manifest::parse(bytes).ok();
    let exact = |manifest: &Manifest| !manifest.sinks.values().flat_map(|sink| &sink.prepared).any(|part| has_float(&part.0));
    if let Some(manifest) = parsed.filter(exact) {
        let written = manifest.to_bytes().expect("a manifest can be written");
        let back = Manifest::parse(&written).expect("what was written can be read");
        assert_eq!(back, manifest);
    }
}

fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(list) => list.iter().any(has_float),
        Value::Object(map) => map.values().any(has_float),
        _ => false,
    }
}
