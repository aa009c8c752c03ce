//! The console, used in a real browser.

use std::process::Command;

use crate::harness::versions::{Steered, version};
use crate::harness::weir::Job;
use crate::harness::{cache, guest, http, root};

const TOKEN: &str = "0123456789abcdef-secret";

/// Clicks, of which some say that they are to be rejected.
fn job() -> Job {
    let job = Job::new(&format!(
        "
pipeline: clicks
workers: 2
checkpoint: {{store: ./state, interval: 250ms}}
sources: [generator: {{name: clicks, template: '\"{{{{random(stamp,stamp,stamp,stamp,stamp,stamp,stamp,stamp,stamp,reject)}}}} {{{{index()}}}}\"', rate: 4000, partitions: 4}}]
steps:
  - {{name: parse, transform: {}}}
  - {{name: stamp, transform: stamp.wasm, grants: [log]}}
sinks:
  - file: {{name: table, path: 'out/{{epoch}}.jsonl'}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
        guest("passthrough").display()
    ));
    job.write("stamp.wasm", version("first").1);
    job
}

#[test]
fn a_person_watches_tries_promotes_rolls_back_and_replays_in_a_browser() {
    let mut job = job();
    job.set("WEIR_TOKEN", TOKEN);
    let steered = Steered::start(&job, &[]);
    let peers = root().join("tests/peers/browser");
    assert!(Command::new(peers.join("setup")).status().unwrap().success());
    let mut drive = Command::new("node");
    drive.arg(peers.join("drive.mjs")).arg(cache().join("peers/browser"));
    drive.env("WEIR_TOKEN", TOKEN).arg(&steered.origin).arg(guest("passthrough")).arg("stamp");
    // `WEIR_PICTURES=docs/images` takes the screenshots of the documentation.
    drive.args(std::env::var_os("WEIR_PICTURES").map(|folder| root().join(folder)));
    let done = drive.output().unwrap_or_else(|e| panic!("node, of Debian's package nodejs: {e}"));
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    for word in [
        "the token is asked for",
        "rates move",
        "tried beside",
        "promoted",
        "rolled back",
        "replayed",
        "fits a phone",
        "nothing is loaded from elsewhere",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    drop(steered);
}

#[test]
fn the_page_is_served_without_a_token_and_tells_nothing() {
    let mut job = job();
    job.set("WEIR_TOKEN", TOKEN);
    let steered = Steered::start(&job, &[]);
    let host = steered.origin.trim_start_matches("http://").to_string();
    for path in ["/", "/console/console.js", "/console/console.css", "/console/uPlot.js", "/console/uPlot.css", "/favicon.ico"] {
        let (status, text) = http::send(&steered.origin, "GET", path, &[("host", &host)], b"").unwrap();
        assert_eq!(status, 200, "{path}");
        assert!(!text.contains("dead.jsonl") && !text.contains("secret"), "{path} tells of the pipeline");
    }
    assert_eq!(http::send(&steered.origin, "GET", "/v1/dead-letters", &[("host", &host)], b"").unwrap().0, 401);
    assert_eq!(
        http::send(&steered.origin, "GET", "/", &[("host", &host), ("sec-fetch-site", "cross-site")], b"").unwrap().0,
        200,
        "a link may lead to it"
    );
    assert_eq!(
        http::send(&steered.origin, "GET", "/console/../Cargo.toml", &[("host", &host)], b"").unwrap().0,
        401,
        "there are no folders"
    );
    drop(steered);
}
