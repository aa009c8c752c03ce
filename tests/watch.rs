//! `weir run --watch`: what is saved runs.

use serde_json::Value;

use crate::harness::versions::{Known, OUT, Steered, numbers, rows, stamping};
use crate::harness::weir::{Job, wait_for};

fn job(known: &mut Known) -> Job {
    stamping("watched", "50ms", &numbers("rate: 2000"), OUT, known)
}

/// Whether rows of a version are visible.
fn shows(job: &Job, version: &str) -> bool {
    rows(job).iter().any(|(_, _, made_by)| made_by == version)
}

#[test]
fn a_module_whose_file_is_written_anew_runs_and_one_that_is_broken_does_not() {
    let mut known = Known::default();
    let job = job(&mut known);
    let steered = Steered::start(&job, &["--watch"]);
    let refused = "no module at all";
    wait_for("rows", || shows(&job, "VERSION-000first"));
    job.write("stamp.wasm", refused);
    // It is looked at and refused before the next one is there: the history has no trace of it.
    std::thread::sleep(std::time::Duration::from_secs(3));
    job.write("stamp.wasm", known.make("second"));
    wait_for("rows of the new version", || shows(&job, "VERSION-00second"));
    let versions = steered.get("/v1/steps/stamp")["versions"].clone();
    let why = |version: &Value| version["why"].as_str().unwrap().to_string();
    let history: Vec<String> = versions.as_array().unwrap().iter().map(why).collect();
    assert_eq!(history, ["the log began with it", "swapped: its file has changed"]);
    steered.post("/v1/stop", b"");
    let ended = steered.running.wait().ok();
    assert!(ended.stderr.contains("the changed module is refused: what runs goes on"), "{}", ended.stderr);
    assert!(ended.stderr.contains("the changed module runs"), "{}", ended.stderr);
}

#[test]
fn what_is_saved_is_built_and_swapped_in_and_a_failed_build_changes_nothing() {
    let mut known = Known::default();
    let job = job(&mut known);
    // The build writes into the folder that it is for, as some do: it is not built for ever.
    let build = "test -s src/module && cp src/module stamp.wasm && date +%s%N > src/made && echo x >> builds";
    job.write("src/module", known.make("first"));
    let steered = Steered::start(&job, &["--watch=src", "--build", build]);
    wait_for("rows", || shows(&job, "VERSION-000first"));
    assert!(!job.path("builds").exists(), "nothing has changed yet");
    job.write("src/module", "");
    std::thread::sleep(std::time::Duration::from_secs(3));
    job.write("src/module", known.make("second"));
    wait_for("rows of the new version", || shows(&job, "VERSION-00second"));
    std::thread::sleep(std::time::Duration::from_secs(3));
    let builds = job.read("builds").lines().count();
    assert!((1..=2).contains(&builds), "{builds}");
    steered.post("/v1/stop", b"");
    let ended = steered.running.wait().ok();
    assert!(ended.stderr.contains("the build failed: what runs goes on"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("is refused"), "{}", ended.stderr);
    ended.summary();
}

#[test]
fn what_can_not_be_watched_is_refused() {
    let mut known = Known::default();
    let job = job(&mut known);
    let run = |arguments: &[&str]| job.weir(&[&["run", "pipeline.yaml"], arguments].concat());
    run(&["--watch", "--build", "true"]).refused(2, &["write --watch=FOLDER --build COMMAND"]);
    run(&["--watch=src"]).refused(2, &["write --watch=FOLDER --build COMMAND"]);
    run(&["--watch=nowhere", "--build", "true"]).refused(2, &["--watch names no folder", "watch=nowhere"]);
    run(&["--build", "true"]).refused(2, &["--watch"]);
    let text = job.read("pipeline.yaml");
    let steps = text.lines().find(|line| line.starts_with("steps:")).unwrap();
    job.write("pipeline.yaml", text.replace(steps, "steps: []"));
    run(&["--watch"]).refused(2, &["no step of the pipeline runs a module"]);
}
