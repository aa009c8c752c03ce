//! Versions of one guest that stamp themselves on every row, and a running pipeline that is told to change between them.

use std::collections::BTreeMap;

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
