//! `weir run --traces`: each epoch is told to a collector, and the pipeline never waits for it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::Value;

use crate::harness::weir::Job;

fn job() -> Job {
    Job::new(
        "
pipeline: traced
checkpoint: {store: ./state, interval: 100ms}
sources: [generator: {template: '{}', rate: 1000, count: 1000}]
sinks: [file: {name: out, path: 'out-{epoch}.jsonl'}]
",
    )
}

/// A collector: hands on path and body of each request, and answers 200.
fn collector() -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            while let Some(request) = request(&mut stream) {
                if sender.send(request).is_err() || stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").is_err() {
                    break;
                }
            }
        }
    });
    (origin, received)
}

fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().unwrap() {
                let path = head.split(' ').nth(1).unwrap().to_string();
                return Some((path, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"))));
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(length) => bytes.extend(&piece[..length]),
        }
    }
}

#[test]
fn each_epoch_is_a_trace_with_its_barrier_its_manifest_and_its_commits() {
    let (origin, received) = collector();
    let job = job();
    let summary = job.weir(&["run", "pipeline.yaml", "--json", "--traces", &origin]).ok().summary();
    let traces: Vec<(String, Value)> = received.try_iter().collect();
    // The last one may not have been sent before the process ended.
    let epochs = summary["epochs"].as_u64().unwrap() as usize;
    assert!(epochs > 3 && (epochs - 2..=epochs).contains(&traces.len()), "{} of {epochs}", traces.len());
    for (number, (path, body)) in traces.iter().enumerate() {
        assert_eq!(path, "/v1/traces");
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        let names: Vec<&str> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["epoch", "barrier", "manifest", "commit"]);
        assert_eq!(spans[0]["attributes"][0]["value"]["intValue"], (number + 1).to_string());
        assert_eq!(spans[3]["attributes"][0]["value"]["stringValue"], "out");
        let time = |span: &Value, end: &str| span[end].as_str().unwrap().parse::<u128>().unwrap();
        for span in &spans[1..] {
            let (from, to) = (time(span, "startTimeUnixNano"), time(span, "endTimeUnixNano"));
            assert!(
                time(&spans[0], "startTimeUnixNano") <= from && from <= to && to <= time(&spans[0], "endTimeUnixNano"),
                "{body}"
            );
        }
    }
}

#[test]
fn a_collector_that_is_not_there_costs_a_line_in_the_log() {
    let job = job();
    let ended = job.weir(&["run", "pipeline.yaml", "--json", "--traces", "http://127.0.0.1:9"]).ok();
    assert_eq!(ended.summary()["events_in"], 1000);
    assert_eq!(ended.stderr.matches("the collector takes no traces").count(), 1, "{}", ended.stderr);
    job.weir(&["run", "pipeline.yaml", "--traces", "nonsense"]).refused(2, &["--traces is no address"]);
}
