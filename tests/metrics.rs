//! What a running pipeline shows over HTTP, judged by Prometheus' own linter.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::harness::weir::{Job, wait_for};
use crate::harness::{guest, http, root};

/// What `promtool check metrics` says, and whether it is content.
fn promtool(text: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("promtool, of Debian's package prometheus: {e}"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    (done.status.success(), format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr)))
}

#[test]
fn the_metrics_of_a_running_pipeline_please_prometheus_linter() {
    let job = Job::new(&format!(
        "
pipeline: metrics
workers: 2
checkpoint: {{store: ./state, interval: 50ms}}
sources: [generator: {{template: '{{\"id\": {{{{index()}}}}, \"n\": {{{{random(1,2,true)}}}}, \"extra\": 1}}', rate: 5000, partitions: 4}}]
steps: [{{name: mask, transform: {}, config: {{fields: [/id]}}}}]
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: a.b, schema: schema.json}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
        guest("mask").display()
    ));
    job.write("schema.json", r#"{"type": "struct", "fields": [{"id": 1, "name": "n", "required": true, "type": "long"}]}"#);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let origin = format!("http://127.0.0.1:{port}");
    let mut running = job.start_with(&["run", "pipeline.yaml", "--listen", &format!("127.0.0.1:{port}")]);
    let metrics = || http::try_ask(&origin, "GET", "/metrics", "").map_or_else(|_| String::new(), |(_, text)| text);
    // Every kind of part has done something by then.
    wait_for("a commit of both sinks", || {
        assert!(running.runs(), "the pipeline ended");
        let text = metrics();
        ["iceberg", "dead"].iter().all(|sink| text.contains(&format!("weir_sink_latency_seconds_count{{sink=\"{sink}\"}}")))
    });
    let text = metrics();
    let (content, said) = promtool(&text);
    assert!(content && said.trim().is_empty(), "{said}\n{text}");
    dashboard_shows_what_there_is(&text);
    // The linter does find what is wrong.
    let (content, said) = promtool("# TYPE weir_wrong_milliseconds gauge\nweir_wrong_milliseconds 1\n");
    assert!(!content && said.contains("weir_wrong_milliseconds"), "{said}");
    drop(running);
}

/// What only pipelines with windows have, or ones that something happened to.
const SOMETIMES: [&str; 10] = [
    "weir_step_watermark_seconds",
    "weir_step_state_bytes",
    "weir_step_late_events_total",
    "weir_step_rejected_events_total",
    "weir_step_filtered_events_total",
    "weir_step_swaps_total",
    "weir_step_rollbacks_total",
    "weir_source_rejected_events_total",
    "weir_sink_commit_retries_total",
    "weir_pipeline_restarts_total",
];

/// Every metric of the Grafana dashboard is one that a running pipeline shows, with the labels that it is asked by.
fn dashboard_shows_what_there_is(text: &str) {
    let file = std::fs::read_to_string(root().join("docs/grafana/weir.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&file).unwrap();
    let defined = std::fs::read_to_string(root().join("host/src/metrics.rs")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = || panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = 0;
    for expression in targets().map(|target| target["expr"].as_str().unwrap()) {
        let labels = expression.split_once("by (").map_or("", |(_, rest)| rest.split(')').next().unwrap());
        for name in expression.split(|c| !is_name(c)).filter(|word| word.starts_with("weir_")) {
            names += 1;
            let family = name.trim_end_matches("_bucket");
            let line = defined.lines().find(|line| line.contains(&format!("\"{family}\"")));
            let line = line.unwrap_or_else(|| panic!("no metric is called {family}: {expression}"));
            let shown: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect();
            assert!(!shown.is_empty() || SOMETIMES.contains(&family), "{name} is not shown");
            for label in labels.split(", ").filter(|label| !["le", "quantile"].contains(label)) {
                assert!(line.contains(&format!("\"{label}\"")), "{family} has no label {label}: {expression}");
            }
        }
    }
    assert!(names > 20, "{names}");
}
