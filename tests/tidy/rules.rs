//! Rules about code.

use std::collections::{BTreeMap, BTreeSet};

use super::code::{code_only, line_of, uses_of_crate, without_tests, words_after};
use super::{File, files, hold, root};

const HOST: &str = "host/src/";
const LINES_MAX: usize = 800;

/// Which files may use a crate or macro, and nobody else. A fence keeps a foreign vocabulary in one place.
const FENCES: [(&str, &[&str]); 17] = [
    ("wasmtime", &["wasm/"]),
    ("wit_component", &["wasm/"]),
    ("wit_parser", &["wasm/"]),
    ("rdkafka", &["kafka", "sources/kafka", "sinks/kafka"]),
    ("tonic", &["pubsub", "sources/bigquery", "sinks/bigquery"]),
    ("google_cloud_auth", &["pubsub", "sources/bigquery", "sinks/bigquery"]),
    ("google_cloud_pubsub", &["pubsub", "sinks/pubsub"]),
    ("object_store", &["checkpoint/store", "sources/file", "sinks/file"]),
    ("iceberg", &["sources/iceberg", "sinks/iceberg"]),
    ("iceberg_catalog_rest", &["sources/iceberg", "sinks/iceberg"]),
    ("iceberg_catalog_sql", &["sources/iceberg", "sinks/iceberg"]),
    ("iceberg_storage_opendal", &["sources/iceberg", "sinks/iceberg"]),
    ("sqlx", &["sources/iceberg", "sinks/iceberg"]),
    ("axum", &["control/"]),
    ("clap", &["cli/"]),
    ("reqwest", &["cli/remote", "cli/traces"]),
    ("serde_saphyr", &["pipeline/spec"]),
];

/// Modules beside the connectors that are made for several of them.
const SHARED: [&str; 5] = ["counted", "encode", "lines", "routes", "search"];

/// Files that may hold `unsafe`, with the reason.
const UNSAFE: [(&str, &str); 1] = [("guest-sdk/rust/src/guest.rs", "the exports that the component model calls")];

/// What code outside tests must not hold.
const BANNED: [(&str, &str); 6] = [
    (".unwrap()", "return an error, or a default"),
    (".expect(", "return an error, or a default"),
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "log it, or leave it out"),
    ("process::exit", "exit codes are decided in cli/ only"),
];

/// Crates of which a second version in the lock file is a mistake: their types stand in our interfaces.
const ONCE: [&str; 12] = [
    "arrow-array",
    "arrow-buffer",
    "arrow-schema",
    "iceberg",
    "object_store",
    "opendal",
    "parquet",
    "prometheus",
    "rustls",
    "tokio",
    "tonic",
    "wasmtime",
];

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("tests.rs")
}

fn code_of(file: &File) -> String {
    without_tests(&code_only(&file.text))
}

fn complaint(file: &File, line: usize, text: impl std::fmt::Display) -> String {
    format!("{}:{line}: {text}", file.path)
}

/// The layers as `host/src/lib.rs` states them: module to layer.
fn layers(lib: &str) -> BTreeMap<String, usize> {
    let (mut layer, mut found) = (None, BTreeMap::new());
    for line in lib.lines() {
        if let Some(rest) = line.strip_prefix("// Layer ") {
            layer = rest.split(':').next().and_then(|n| n.parse().ok());
        } else if let (Some(layer), Some(name)) = (layer, line.strip_prefix("pub mod ")) {
            found.insert(name.trim_end_matches(';').to_string(), layer);
        }
    }
    found
}

/// The module below `host/src` that a file belongs to.
fn module_of(path: &str) -> Option<&str> {
    let inner = path.strip_prefix(HOST)?;
    inner.split('/').next().map(|name| name.trim_end_matches(".rs"))
}

/// Imports of a host file from other modules of the host.
fn imports(file: &File) -> Vec<(usize, String)> {
    let own = module_of(&file.path).unwrap_or_default();
    words_after(&code_of(file), "crate").into_iter().filter(|(_, name)| name != own).collect()
}

fn layer_rule(file: &File, layers: &BTreeMap<String, usize>) -> Vec<String> {
    let Some(own) = module_of(&file.path).filter(|_| file.is_rust()) else { return Vec::new() };
    let Some(&layer) = layers.get(own) else {
        let known = ["lib", "main"].contains(&own);
        return if known { Vec::new() } else { vec![complaint(file, 1, "stands in no layer of host/src/lib.rs")] };
    };
    let above = imports(file).into_iter().filter(|(_, name)| layers.get(name).is_some_and(|other| *other > layer));
    above.map(|(line, name)| complaint(file, line, format!("layer {layer} imports `{name}` from a higher layer"))).collect()
}

/// Modules of one layer may use each other, but not in a circle.
fn circle(files: &[File], layers: &BTreeMap<String, usize>) -> Option<String> {
    let mut edges: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some(own) = module_of(&file.path).filter(|own| layers.contains_key(*own)) {
            edges.entry(own).or_default().extend(imports(file).into_iter().map(|(_, name)| name));
        }
    }
    // Takes away modules that import nothing that is left; what stays goes round.
    let mut left: BTreeSet<&str> = edges.keys().copied().collect();
    loop {
        let free: Vec<&str> = left.iter().copied().filter(|m| edges[m].iter().all(|to| !left.contains(to.as_str()))).collect();
        if free.is_empty() {
            break;
        }
        left.retain(|module| !free.contains(module));
    }
    (!left.is_empty()).then(|| left.into_iter().collect::<Vec<_>>().join(", "))
}

/// A connector or operator knows nothing of its siblings.
fn sibling_rule(file: &File) -> Vec<String> {
    let Some(inner) = file.path.strip_prefix(HOST).filter(|_| file.is_rust()) else { return Vec::new() };
    let Some((kind, rest)) = inner.split_once('/').filter(|(kind, _)| ["sources", "sinks", "operators"].contains(kind)) else {
        return Vec::new();
    };
    let own = rest.split(['/', '.']).next().unwrap_or_default();
    if own == "mod" {
        return Vec::new();
    }
    let code = code_of(file);
    let mut found = Vec::new();
    for other in ["sources", "sinks", "operators"] {
        found.extend(words_after(&code, &format!("crate::{other}")).into_iter().filter(|(_, name)| other != kind || name != own));
    }
    let up = match rest.matches('/').count() {
        0 => "super".to_string(),
        1 if rest.ends_with("/mod.rs") => "super".to_string(),
        n => vec!["super"; n + usize::from(!rest.ends_with("/mod.rs"))].join("::"),
    };
    found.extend(words_after(&code, &up).into_iter().filter(|(_, name)| name != "super" && name != own));
    found.retain(|(_, name)| !SHARED.contains(&name.as_str()));
    found.into_iter().map(|(line, name)| complaint(file, line, format!("uses its sibling `{name}`"))).collect()
}

fn fence_rule(file: &File) -> Vec<String> {
    let Some(inner) = file.path.strip_prefix(HOST).filter(|_| file.is_rust()) else { return Vec::new() };
    let code = code_only(&file.text);
    let mut found = Vec::new();
    for (name, inside) in FENCES {
        if !inside.iter().any(|prefix| inner.starts_with(prefix)) {
            let say = |line| complaint(file, line, format!("`{name}` is for {} only", inside.join(", ")));
            found.extend(uses_of_crate(&code, name).into_iter().map(say));
        }
    }
    if let Some(at) = code.find("bindgen!").filter(|_| !inner.starts_with("wasm/v1")) {
        found.push(complaint(file, line_of(&code, at), "generated bindings are for wasm/v1 only"));
    }
    found
}

fn banned_rule(file: &File) -> Vec<String> {
    if !file.is_rust() || is_test(&file.path) {
        return Vec::new();
    }
    let code = code_of(file);
    let mut found = Vec::new();
    for (word, instead) in BANNED {
        if word == "process::exit" && file.path.starts_with("host/src/cli/") {
            continue;
        }
        found.extend(code.match_indices(word).map(|(at, _)| complaint(file, line_of(&code, at), format!("`{word}`: {instead}"))));
    }
    found
}

fn unsafe_rule(file: &File) -> Vec<String> {
    if !file.is_rust() || UNSAFE.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let words = code.match_indices("unsafe").filter(|(at, _)| !code[at + 6..].starts_with(['_', '-']));
    words.map(|(at, _)| complaint(file, line_of(&code, at), "`unsafe` outside the list in tests/tidy")).collect()
}

fn shape_rule(file: &File) -> Vec<String> {
    if !file.is_rust() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let named_by_its_module = file.path.ends_with("tests.rs");
    if !named_by_its_module && !file.text.trim_start().starts_with("//!") {
        found.push(complaint(file, 1, "no `//!` at the top that says what the module owns"));
    }
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        found.push(complaint(file, lines, format!("longer than {LINES_MAX} lines: split it")));
    }
    found
}

/// Names of locked packages that stand there more than once.
fn doubled(lock: &str) -> Vec<&str> {
    let names: Vec<&str> = lock.lines().filter_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    ONCE.into_iter().filter(|once| names.iter().filter(|name| name == &once).count() > 1).collect()
}

fn host_layers() -> BTreeMap<String, usize> {
    let layers = layers(&std::fs::read_to_string(root().join("host/src/lib.rs")).unwrap());
    assert!(layers.len() > 10, "the layers are read: {layers:?}");
    layers
}

#[test]
fn a_file_imports_from_lower_layers_only() {
    let layers = host_layers();
    hold(|file| layer_rule(file, &layers));
    assert_eq!(circle(&files(), &layers), None, "modules import each other in a circle");
}

#[test]
fn connectors_know_nothing_of_their_siblings() {
    hold(sibling_rule);
}

#[test]
fn foreign_crates_stay_behind_their_fences() {
    hold(fence_rule);
}

#[test]
fn code_outside_tests_neither_panics_on_purpose_nor_is_unfinished() {
    hold(banned_rule);
}

#[test]
fn unsafe_code_stands_in_listed_files_only() {
    hold(unsafe_rule);
}

#[test]
fn every_module_says_what_it_owns_and_stays_short() {
    hold(shape_rule);
}

#[test]
fn crates_whose_types_we_share_are_locked_once() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"wasmtime\""));
    assert_eq!(doubled(&lock), Vec::<&str>::new(), "two versions: `cargo tree -d` tells who wants the other");
}

#[test]
fn the_rules_see_what_they_forbid() {
    let lib = "// Layer 0: words\npub mod batch;\n// Layer 3: more\npub mod sinks;\npub mod sources;\n";
    let layers = layers(lib);
    let bad = |path: &str, text: &str| File::made_up(path, text);
    let upwards = bad("host/src/batch.rs", "//! x\nuse crate::{error::Error, sinks::file};");
    assert_eq!(layer_rule(&upwards, &layers), ["host/src/batch.rs:2: layer 0 imports `sinks` from a higher layer"]);
    assert!(layer_rule(&bad("host/src/sinks/file.rs", "use crate::batch::Batch;"), &layers).is_empty());
    assert_eq!(layer_rule(&bad("host/src/stray.rs", ""), &layers).len(), 1);
    let round = [bad("host/src/sinks/mod.rs", "use crate::sources::X;"), bad("host/src/sources/mod.rs", "use crate::sinks::Y;")];
    assert_eq!(circle(&round, &layers).as_deref(), Some("sinks, sources"));
    assert_eq!(circle(&round[..1], &layers), None);

    assert_eq!(sibling_rule(&bad("host/src/sinks/file.rs", "use crate::sinks::kafka::K; use super::iceberg;")).len(), 2);
    assert_eq!(sibling_rule(&bad("host/src/sinks/kafka/writer.rs", "use super::super::file::F;")).len(), 1);
    assert!(sibling_rule(&bad("host/src/sinks/kafka/writer.rs", "use super::config; use crate::sinks::kafka::K;")).is_empty());

    assert_eq!(fence_rule(&bad("host/src/worker.rs", "use wasmtime::Engine;\nfn f() { rdkafka::x(); }")).len(), 2);
    assert_eq!(fence_rule(&bad("host/src/wasm/module.rs", "wasmtime::component::bindgen!({});")).len(), 1);
    assert!(fence_rule(&bad("host/src/pipeline/build.rs", "sinks::iceberg::Connector::new()")).is_empty());

    for text in ["x.unwrap()", "x.expect(\"y\")", "todo!()", "unimplemented!()", "dbg!(1)", "std::process::exit(1)"] {
        assert_eq!(banned_rule(&bad("host/src/worker.rs", &format!("fn f() {{ {text}; }}"))).len(), 1, "{text}");
        assert!(banned_rule(&bad("tests/harness/mod.rs", text)).is_empty());
    }
    assert!(banned_rule(&bad("host/src/worker.rs", "// x.unwrap()\nfn f() { x.unwrap_or(1); }")).is_empty());
    assert_eq!(unsafe_rule(&bad("host/src/worker.rs", "unsafe { x() }")).len(), 1);
    assert!(unsafe_rule(&bad("host/src/worker.rs", "#![forbid(unsafe_code)]")).is_empty());
    assert_eq!(shape_rule(&bad("host/src/worker.rs", &"use a;\n".repeat(801))).len(), 2);
    assert_eq!(doubled("name = \"tokio\"\nname = \"tokio\"\nname = \"syn\"\nname = \"syn\"\n"), ["tokio"]);
}
