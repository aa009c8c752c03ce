//! Versions of one guest that stamp themselves on every row, and a running pipeline that is told to change between them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use weir::checkpoint::{LogStore, Manifest};
use weir::wasm::digest;

use super::http;
use super::kafka::{free_ports, wait};
use super::weir::{Job, Running, wait_for};

/// What `evil` stamps, as it is built.
const BUILT: &str = "VERSION-00000000";

/// The version of this name: up to eight letters or digits.
pub fn version(name: &str) -> (String, Vec<u8>) {
    let text = format!("VERSION-{name:0>8}");
    let mut bytes = std::fs::read(super::guest("evil")).unwrap();
    let places: Vec<usize> =
        bytes.windows(BUILT.len()).enumerate().filter(|(_, window)| *window == BUILT.as_bytes()).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1, "the version stands once in the module");
    bytes[places[0]..places[0] + BUILT.len()].copy_from_slice(text.as_bytes());
    (text, bytes)
}

/// The same module with a remark in it: another digest, the same behaviour.
pub fn remarked(mut module: Vec<u8>, remark: &str) -> Vec<u8> {
    // A custom section: its id, its length, the length of its name, its name.
    let length = u8::try_from(remark.len()).unwrap();
    module.extend([0, length + 1, length]);
    module.extend(remark.as_bytes());
    module
}

/// A pipeline that runs and listens.
pub struct Steered {
    /// Where it listens.
    pub origin: String,
    pub running: Running,
}

impl Steered {
    /// Starts a job's pipeline and waits until messages flow.
    pub fn start(job: &Job, extra: &[&str]) -> Steered {
        let [port] = free_ports();
        let address = format!("127.0.0.1:{port}");
        let mut running = job.start_with(&[&["run", "pipeline.yaml", "--json", "--listen", &address], extra].concat());
        let origin = format!("http://{address}");
        wait_for("the pipeline to run", || {
            assert!(running.runs(), "it ended");
            matches!(http::try_ask(&origin, "GET", "/readyz", ""), Ok((200, _)))
        });
        Steered { origin, running }
    }

    /// A request with a module or nothing in it; the answer's status and JSON. `None`: the process died of it.
    pub fn post(&self, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let host = self.origin.trim_start_matches("http://");
        let (status, text) = http::send(&self.origin, "POST", path, &[("host", host)], body).ok()?;
        Some((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    /// Swaps the step `stamp`, which must work.
    pub fn swap(&self, module: &[u8]) -> Value {
        let (status, answer) = self.post("/v1/steps/stamp/swap", module).expect("an answer");
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// What a path says.
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_str(&http::ask(&self.origin, "GET", path, "")).unwrap()
    }

    /// Messages read so far.
    pub fn events_in(&self) -> u64 {
        self.get("/v1/status")["summary"]["events_in"].as_u64().unwrap()
    }

    /// Stops it at a barrier.
    pub fn stop(self) {
        self.post("/v1/stop", b"");
        self.running.wait().ok();
    }
}

/// The newest manifest of a job's pipeline.
pub fn manifest(job: &Job, pipeline: &str) -> Manifest {
    let log = LogStore::open(job.path("state").to_str().unwrap(), []).unwrap().log(pipeline, 0);
    wait(log.newest()).unwrap().expect("a manifest")
}

/// The names of versions by their digests.
#[derive(Default)]
pub struct Known(BTreeMap<String, String>);

impl Known {
    /// A version whose digest is told apart from here on.
    pub fn make(&mut self, name: &str) -> Vec<u8> {
        let (text, bytes) = version(name);
        self.0.insert(digest(&bytes), text);
        bytes
    }

    /// What the module of this digest stamps.
    pub fn stamp(&self, digest: &str) -> &str {
        self.0.get(digest).map_or("a module that nobody made", String::as_str)
    }
}

/// A pipeline with the step `stamp`, whose module lies in the job's folder.
pub fn stamping(name: &str, interval: &str, source: &str, sinks: &str, known: &mut Known) -> Job {
    let job = Job::new(&format!(
        "
pipeline: {name}
workers: 2
checkpoint: {{store: ./state, interval: {interval}}}
sources: [{source}]
steps: [{{name: stamp, transform: stamp.wasm, grants: [log]}}]
sinks:
{sinks}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
"
    ));
    job.write("stamp.wasm", known.make("first"));
    job
}

/// Numbered messages, endless unless `extra` says otherwise.
pub fn numbers(extra: &str) -> String {
    format!("generator: {{name: numbers, template: '\"stamp {{{{index()}}}}\"', partitions: 4, {extra}}}")
}

/// A file for each epoch.
pub const OUT: &str = "  - file: {name: out, path: 'out-{epoch}.jsonl'}";

/// The rows of all epochs' files: epoch, id, version.
pub fn rows(job: &Job) -> Vec<(u64, u64, String)> {
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(job.folder.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(epoch) = name.strip_prefix("out-").and_then(|rest| rest.strip_suffix(".jsonl")) else { continue };
        for line in job.read(&name).lines() {
            let row: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}: {line}"));
            rows.push((epoch.parse().unwrap(), row["id"].as_u64().unwrap(), row["version"].as_str().unwrap().to_string()));
        }
    }
    rows
}

/// Asserts that no number is left out: the generator deals them to four partitions in turn, and an endless one may have
/// been stopped at another place in each.
pub fn none_left_out(ids: &BTreeSet<u64>) {
    for partition in 0..4 {
        let of_partition: Vec<u64> = ids.iter().copied().filter(|id| id % 4 == partition).collect();
        let wanted: Vec<u64> = (0..of_partition.len() as u64).map(|n| n * 4 + partition).collect();
        assert_eq!(of_partition, wanted, "partition {partition}");
    }
}

/// Asserts that each of `count` numbers is there once, made by the version that the log says ran in its epoch.
/// The versions that made any.
pub fn each_once_by_its_version(job: &Job, pipeline: &str, count: u64, known: &Known) -> BTreeSet<String> {
    let rows = rows(job);
    let ids: BTreeSet<u64> = rows.iter().map(|(_, id, _)| *id).collect();
    assert_eq!((rows.len() as u64, ids.len() as u64), (count, count), "rows and different rows");
    none_left_out(&ids);
    let versions = manifest(job, pipeline).modules["stamp"].versions.clone();
    for (epoch, id, version) in &rows {
        let ran = versions.iter().rev().find(|version| version.since_epoch <= *epoch).unwrap();
        assert_eq!(version, known.stamp(&ran.digest), "row {id} of epoch {epoch}");
    }
    assert!(!job.path("dead.jsonl").exists() || job.read("dead.jsonl").is_empty());
    rows.into_iter().map(|(_, _, version)| version).collect()
}
