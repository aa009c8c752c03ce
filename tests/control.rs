//! The control API and the commands that speak to it: what they do, what they say, and whom they refuse.

use serde_json::Value;

use crate::harness::guest;
use crate::harness::http;
use crate::harness::kafka::free_ports;
use crate::harness::versions::Steered;
use crate::harness::weir::{Job, wait_for};

const TOKEN: &str = "0123456789abcdef-secret";

fn job(name: &str, source: &str) -> Job {
    Job::new(&format!(
        "
pipeline: {name}
workers: 2
checkpoint: {{store: ./state, interval: 50ms}}
sources: [generator: {{template: '{{\"id\": {{{{index()}}}}}}', partitions: 4, {source}}}]
steps: [{{name: same, transform: {}}}]
sinks: [file: {{path: out.jsonl}}]
",
        guest("passthrough").display()
    ))
}

#[test]
fn what_the_document_describes_is_what_is_served() {
    let job = job("described", "rate: 1000");
    let steered = Steered::start(&job, &[]);
    let document = steered.get("/v1/openapi.json");
    assert_eq!(document, weir::control::document());
    assert_eq!(document["openapi"], "3.1.0");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#/").skip(1).map(|rest| &rest[..rest.find('"').unwrap()]) {
        assert!(document.pointer(&format!("/{reference}")).is_some(), "{reference} leads nowhere");
    }
    let mut last = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let in_path = operation["parameters"].as_array().unwrap().iter().filter(|p| p["in"] == "path").count();
            assert_eq!(in_path, path.matches('{').count(), "{path} describes what stands in it");
            let request = (method.to_uppercase(), path.replace("{step}", "same"));
            // These two end it.
            if path.ends_with("/stop") || path.ends_with("/drain") { last.push(request) } else { answers(&steered, &request) }
        }
    }
    assert_eq!(http::try_ask(&steered.origin, "GET", "/v1/nothing", "").unwrap().0, 404);
    assert_eq!(http::try_ask(&steered.origin, "GET", "/v1/pause", "").unwrap().0, 405);
    last.iter().for_each(|request| answers(&steered, request));
    steered.running.wait().ok();
}

/// Asserts that somebody is there: a refusal says what is wrong with the request, not that there is no such path.
fn answers(steered: &Steered, (method, path): &(String, String)) {
    let (status, text) = http::try_ask(&steered.origin, method, path, "").unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{method} {path}: {e}: {text}"));
    match status {
        200 => assert!(answer["error"].is_null(), "{answer}"),
        404 | 422 => assert!(answer["error"].as_str().unwrap().contains("step"), "{method} {path}: {answer}"),
        other => panic!("{method} {path}: {other} {answer}"),
    }
}

#[test]
fn who_has_no_token_is_refused_and_the_token_is_never_told() {
    let mut job = job("guarded", "rate: 1000");
    job.weir(&["run", "pipeline.yaml", "--listen", "192.0.2.1:9100"])
        .refused(2, &["takes a loopback address only", "WEIR_TOKEN"]);
    job.set("WEIR_TOKEN", "short").weir(&["run", "pipeline.yaml", "--listen", "127.0.0.1:0"]).refused(2, &["16 or more"]);
    job.unset("WEIR_TOKEN").write("token", format!("{TOKEN}\n"));
    let steered = Steered::start(&job, &["--token-file", "token"]);
    let host = steered.origin.trim_start_matches("http://").to_string();
    let with = |authorization: &str, path: &str| {
        let (status, text) =
            http::send(&steered.origin, "GET", path, &[("host", &host), ("authorization", authorization)], b"").unwrap();
        assert!(!text.contains(TOKEN), "{text}");
        status
    };
    for path in ["/v1/status", "/v1/pipeline", "/v1/openapi.json", "/v1/nothing"] {
        assert_eq!(http::try_ask(&steered.origin, "GET", path, "").unwrap().0, 401, "{path}");
        for wrong in ["Bearer wrong", "Bearer ", &TOKEN[..22], &format!("Bearer {}", &TOKEN[..22]), &format!("Basic {TOKEN}")] {
            assert_eq!(with(wrong, path), 401, "{path}");
        }
    }
    assert_eq!(steered.post("/v1/stop", b"").unwrap().0, 401);
    assert_eq!(with(&format!("Bearer {TOKEN}"), "/v1/status"), 200);
    // Supervisors and scrapers carry none.
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(http::try_ask(&steered.origin, "GET", path, "").unwrap().0, 200, "{path}");
    }
    job.weir(&["status", "--url", &steered.origin]).refused(2, &["carries no token"]);
    let shown = job.weir(&["status", "--url", &steered.origin, "--token-file", "token"]).ok();
    assert!(shown.stdout.contains("guarded, task 0 of 1"), "{shown:?}");
    job.set("WEIR_TOKEN", TOKEN).weir(&["drain", "--url", &steered.origin]).ok();
    let ended = steered.running.wait().ok();
    assert!(!format!("{ended:?}{shown:?}").contains(TOKEN));
}

#[test]
fn a_page_of_another_origin_can_do_nothing() {
    let steered = Steered::start(&job("foreign", "rate: 1000"), &[]);
    let host = steered.origin.trim_start_matches("http://").to_string();
    let ask = |headers: &[(&str, &str)]| http::send(&steered.origin, "POST", "/v1/pause", headers, b"").unwrap().0;
    assert_eq!(ask(&[("host", &host), ("origin", "http://evil.example"), ("content-type", "text/plain")]), 403);
    assert_eq!(ask(&[("host", &host), ("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(ask(&[("host", "evil.example"), ("origin", "http://evil.example")]), 403, "a name that was bound to this machine");
    assert_eq!(steered.get("/v1/status")["paused"], false);
    assert_eq!(ask(&[("host", &host), ("origin", &steered.origin), ("sec-fetch-site", "same-origin")]), 200);
    assert_eq!(steered.get("/v1/status")["paused"], true);
}

#[test]
fn a_paused_pipeline_reads_nothing_and_explains_itself_until_it_is_resumed() {
    let job = job("paused", "rate: 5000");
    let steered = Steered::start(&job, &[]);
    wait_for("messages to flow", || steered.events_in() > 100);
    let weir = |command: &str| job.weir(&[command, "--url", &steered.origin]).ok().stdout;
    assert_eq!(weir("pause").trim(), "paused");
    // What is read when the sources hear of it comes before the checkpoint that follows.
    weir("checkpoint");
    let read = steered.events_in();
    let said = weir("checkpoint");
    assert_eq!(steered.events_in(), read, "{said}");
    assert_eq!(job.read("out.jsonl").lines().count() as u64, read, "a checkpoint shows everything that was read");
    assert!(weir("explain").contains("`weir resume` lets them go on"));
    weir("resume");
    wait_for("messages to flow again", || steered.events_in() > read);
    steered.stop();
}

#[test]
fn draining_fires_the_windows_and_finishes_the_log() {
    let job = Job::new(&format!(
        "
pipeline: drained
workers: 2
checkpoint: {{store: ./state, interval: 50ms}}
sources: [generator: {{template: '{{\"user\": {{{{integer(1,9)}}}}}}', rate: 3000, partitions: 4, watermark: {{lag: 1m}}}}]
steps: [{{name: per_hour, aggregate: {}, key: /user, window: {{tumbling: 1h}}}}]
sinks: [file: {{path: out.jsonl}}]
",
        guest("count").display()
    ));
    let steered = Steered::start(&job, &[]);
    wait_for("messages to flow", || steered.events_in() > 1000);
    job.weir(&["drain", "--url", &steered.origin]).ok();
    let read = steered.running.wait().ok().summary()["events_in"].as_u64().unwrap();
    let counts = job.read("out.jsonl");
    let count = |line: &str| serde_json::from_str::<Value>(line).unwrap()["count"].as_u64().unwrap();
    assert_eq!(counts.lines().map(count).sum::<u64>(), read, "every message is in a window that fired");
    assert!(job.run().ok().stderr.contains("this pipeline has finished"));
}

#[test]
fn commands_say_when_nobody_listens() {
    let [port] = free_ports();
    let job = job("silent", "rate: 1");
    job.weir(&["status", "--url", &format!("http://127.0.0.1:{port}")]).refused(1, &["does the pipeline run with --listen?"]);
    job.weir(&["status", "--url", "nonsense"]).refused(2, &["--url is no address"]);
}
