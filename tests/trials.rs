//! Modules that have to prove themselves: tried beside the running one before they take over, and rolled back by
//! themselves when they do badly afterwards.

use std::collections::BTreeSet;

use serde_json::Value;
use weir::wasm::digest;

use crate::harness::guest;
use crate::harness::http;
use crate::harness::versions::{
    Known, OUT, Steered, each_once_by_its_version, manifest, none_left_out, numbers, remarked, rows, stamping,
};
use crate::harness::weir::{Job, wait_for};

/// Versions that were noted for the step: what each stamps, and why it ran.
fn history(job: &Job, pipeline: &str, known: &Known) -> Vec<(String, String)> {
    let versions = manifest(job, pipeline).modules["stamp"].versions.clone();
    versions.into_iter().map(|version| (known.stamp(&version.digest).to_string(), version.why)).collect()
}

#[test]
fn a_module_that_fails_on_one_in_a_hundred_is_rolled_back_by_itself_and_its_messages_are_dead_letters() {
    let mut known = Known::default();
    let job = stamping("watched", "100ms", &numbers("rate: 3000"), OUT, &mut known);
    let steered = Steered::start(&job, &[]);
    let bad = known.make("BAD00001");
    assert_eq!(steered.swap(&bad)["changed"], true);
    let first = digest(&std::fs::read(job.path("stamp.wasm")).unwrap());
    wait_for("the rollback", || steered.get("/v1/steps/stamp")["running"] == first.as_str());
    let metrics = http::ask(&steered.origin, "GET", "/metrics", "");
    wait_for("the rollback to be counted", || {
        http::ask(&steered.origin, "GET", "/metrics", "").contains("weir_step_rollbacks_total{cause=\"failed\",step=\"stamp\"} 1")
    });
    assert!(!metrics.contains("weir_pipeline_restarts_total{"), "nothing was started again");
    steered.stop();
    let history = history(&job, "watched", &known);
    assert_eq!(
        history.iter().map(|(version, _)| version.as_str()).collect::<Vec<_>>(),
        ["VERSION-000first", "VERSION-BAD00001", "VERSION-000first"]
    );
    assert!(history[2].1.starts_with("rolled back by itself: ") && history[2].1.contains("made it fail"), "{history:?}");
    let dead: Vec<Value> = job.read("dead.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!dead.is_empty());
    let id = |letter: &Value| -> u64 {
        assert_eq!(letter["module"], digest(&bad).as_str(), "{letter}");
        letter["value"].as_str().unwrap().trim_matches('"').strip_prefix("stamp ").unwrap().parse().unwrap()
    };
    let dead: Vec<u64> = dead.iter().map(id).collect();
    assert!(dead.iter().all(|id| id % 100 == 0), "{dead:?}");
    let rows = rows(&job);
    let ids: BTreeSet<u64> = rows.iter().map(|(_, id, _)| *id).chain(dead.iter().copied()).collect();
    assert_eq!(ids.len(), rows.len() + dead.len(), "each message is a row or a dead letter, and once");
    none_left_out(&ids);
}

#[test]
fn a_module_that_makes_the_step_fail_altogether_does_not_end_the_pipeline() {
    let mut known = Known::default();
    let job = stamping("failing", "100ms", &numbers("rate: 3000, count: 12000"), OUT, &mut known);
    // More than two tries for one batch are too many.
    job.write("pipeline.yaml", job.read("pipeline.yaml").replace("grants: [log]", "grants: [log], limits: {search_calls: 2}"));
    let steered = Steered::start(&job, &[]);
    wait_for("messages to flow", || steered.events_in() > 1000);
    let (status, answer) = steered.post("/v1/steps/stamp/swap", &known.make("BAD00002")).unwrap();
    steered.running.wait().ok();
    let history = history(&job, "failing", &known);
    match status {
        200 => assert!(history[2].1.starts_with("rolled back by itself: a step failed step=stamp"), "{history:?}"),
        // It failed before its manifest was written: it never ran.
        503 => assert_eq!(history.len(), 1, "{history:?} {answer}"),
        other => panic!("{other} {answer}"),
    }
    each_once_by_its_version(&job, "failing", 12_000, &known);
}

#[test]
fn without_a_watch_such_a_module_ends_the_pipeline_and_the_log_remembers_it() {
    let mut known = Known::default();
    let job = stamping("unwatched", "100ms", &numbers("rate: 3000"), OUT, &mut known);
    job.write("pipeline.yaml", job.read("pipeline.yaml").replace("grants: [log]", "grants: [log], limits: {search_calls: 2}"));
    let steered = Steered::start(&job, &[]);
    wait_for("messages to flow", || steered.events_in() > 1000);
    steered.post("/v1/steps/stamp/swap?watch_seconds=0", &known.make("BAD00003"));
    steered.running.wait().refused(1, &["replace the module"]);
}

#[test]
fn a_module_is_tried_beside_the_running_one_and_nothing_of_it_shows() {
    let mut known = Known::default();
    let job = stamping("tried", "100ms", &numbers("rate: 3000"), OUT, &mut known);
    let steered = Steered::start(&job, &[]);
    let tried = |module: &[u8], query: &str| steered.post(&format!("/v1/steps/stamp/shadow?{query}"), module).unwrap();
    let good = |module: &[u8], query: &str| {
        let (status, answer) = tried(module, query);
        assert_eq!(status, 200, "{answer}");
        answer
    };
    // Every row differs by its version.
    let second = known.make("second");
    let report = good(&second, "messages=500");
    assert!(report["messages"].as_u64() >= Some(500));
    assert_eq!(report["differing"], report["messages"]);
    assert_eq!(report["candidate"]["module"], digest(&second));
    let samples = report["samples"].as_array().unwrap();
    assert!(
        samples.len() == 20
            && samples.iter().all(|sample| {
                let has = |part: &str, text: &str| sample[part].as_str().unwrap().contains(text);
                has("input", "stamp ") && has("running", "VERSION-000first") && has("candidate", "VERSION-00second")
            })
    );
    for side in ["running", "candidate"] {
        assert_eq!(report[side]["rows"], report["messages"]);
        assert_eq!(report[side]["failed"], 0);
        assert!(
            report[side]["cpu_ns_per_message"].as_f64() > Some(0.0) && report[side]["memory_bytes_max"].as_u64() > Some(65_535)
        );
    }
    // One that fails on one message in a hundred is found out before it takes over.
    let bad = known.make("BAD00004");
    let report = good(&bad, "messages=2000&promote_if=failed%3C%3D0.001,refused%3C%3D0");
    let failed = report["candidate"]["failed"].as_u64().unwrap();
    assert!((5..=100).contains(&failed), "{report}");
    assert!(report["promoted"].is_null() && report["objections"].as_array().unwrap().len() == 1, "{report}");
    // The same with a remark in it does the same, and takes over.
    let same = remarked(std::fs::read(job.path("stamp.wasm")).unwrap(), "the same");
    let report = good(&same, "messages=500&promote_if=differing%3C%3D0,failed%3C%3D0&why=a+remark");
    assert_eq!((&report["differing"], &report["promoted"]["changed"]), (&Value::from(0), &Value::Bool(true)), "{report}");
    assert_eq!(steered.get("/v1/steps/stamp")["versions"][1]["why"], "promoted after it was tried: a remark");
    // A share of the batches takes longer, and the time ends it.
    let report = good(&second, "messages=1000000&seconds=1&share=0.5");
    assert!(report["messages"].as_u64() > Some(0) && report["messages"].as_u64() < Some(1_000_000));
    let count = std::fs::read(guest("count")).unwrap();
    for (module, query, why) in [
        (&second, "promote_if=speed%3C%3D1", "failed<=0,cpu<=1.5"),
        (&second, "share=2", "`share` is a part of 1"),
        (&second, "messages=many", "messages"),
        (&count, "", "the module is an aggregator"),
    ] {
        let (status, answer) = tried(module, query);
        assert_eq!(status, 422, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    job.write("second.wasm", &second);
    let shown = job.weir(&["shadow", "stamp", "second.wasm", "--messages", "100", "--url", &steered.origin]).ok().stdout;
    assert!(shown.contains("with another outcome") && shown.contains("VERSION-00second"), "{shown}");
    steered.stop();
    let rows = rows(&job);
    assert!(rows.iter().all(|(_, _, version)| version == "VERSION-000first"));
    let ids: BTreeSet<u64> = rows.iter().map(|(_, id, _)| *id).collect();
    assert_eq!(ids.len(), rows.len(), "each message once");
    none_left_out(&ids);
    assert!(!job.path("dead.jsonl").exists() || job.read("dead.jsonl").is_empty());
}
