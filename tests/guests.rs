//! The first-party guests inside the real host: that they do what they say, and that a guest which misbehaves
//! on command loses nothing but the message that told it to.

use serde_json::Value;

use crate::harness::guest;
use crate::harness::weir::Job;

/// A pipeline: a file through one guest into a file, dead letters and named routes into others.
fn job(module: &str, step: &str, sinks: &str, lines: &[&str]) -> Job {
    let job = Job::new(&format!(
        "
pipeline: guests
workers: 1
checkpoint: {{store: ./state, interval: 100ms}}
sources: [file: {{path: in.jsonl, format: lines}}]
steps: [{{name: step, transform: {}, {step}}}]
sinks:
  - file: {{path: out.jsonl}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
{sinks}",
        guest(module).display()
    ));
    job.write("in.jsonl", lines.join("\n") + "\n");
    job
}

fn lines(job: &Job, name: &str) -> Vec<String> {
    match job.path(name).exists() {
        true => job.read(name).lines().map(str::to_string).collect(),
        false => Vec::new(),
    }
}

fn letters(job: &Job) -> Vec<Value> {
    lines(job, "dead.jsonl").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn passthrough_changes_nothing() {
    let job = job("passthrough", "config: {}", "", &["{\"a\": 1}", "not json", "é"]);
    job.run().ok();
    assert_eq!(job.read("out.jsonl"), job.read("in.jsonl"));
}

/// What `evil` is told, its limits, and what the dead letter has to say.
const MISBEHAVIOURS: [(&str, &str, &str); 11] = [
    ("panic", "", "unreachable"),
    ("loop", "deadline: 300ms", "out of time: limits.deadline is 300ms"),
    ("oom", "memory: 32MiB", "out of memory: limits.memory is 32MiB"),
    ("huge-output", "output: 1MiB", "limits.output"),
    ("many-rows", "output_rows: 1000", "raise limits.output_rows"),
    ("bad-ends", "", "malformed batch"),
    ("bad-origins", "", "malformed batch"),
    ("bad-routes", "", "malformed batch"),
    ("bad-rejected", "", "malformed batch"),
    ("err", "", "the module refused the batch"),
    ("reject", "", ""),
];

#[test]
fn each_misbehaviour_costs_its_own_message_only_and_says_which_it_was() {
    for (word, limits, reason) in MISBEHAVIOURS {
        let input = ["ok 1", "ok 2", word, "ok 3", "ok 4", "ok 5", word, "ok 6"];
        // Only where the deadline is the limit in question may a busy machine run into it.
        let patient = if limits.contains("deadline") { limits.to_string() } else { format!("deadline: 60s, {limits}") };
        let job = job("evil", &format!("grants: [log], limits: {{{patient}}}"), "", &input);
        let summary = job.run().ok().summary();
        assert_eq!(lines(&job, "out.jsonl"), ["ok 1", "ok 2", "ok 3", "ok 4", "ok 5", "ok 6"], "{word}");
        let letters = letters(&job);
        assert_eq!(letters.len(), 2, "{word}: {letters:?}");
        for letter in &letters {
            let text = letter.to_string();
            assert!(text.contains(reason), "{word}: `{reason}` is not in {text}");
            assert_eq!(letter["value"], *word, "the untouched message: {text}");
            assert_eq!(letter["step"], "step", "{text}");
            assert_eq!(letter["module"].as_str().map(str::len), Some(64), "the module's digest: {text}");
        }
        assert_eq!(summary["rejected"], 2, "{word}");
    }
}

#[test]
fn a_guest_that_fails_in_configure_is_refused_before_anything_runs() {
    for (word, reason) in
        [("panic", "failed in configure"), ("loop", "out of time: limits.deadline is 300ms"), ("oom", "out of memory")]
    {
        let step = format!("grants: [log], limits: {{deadline: 300ms, memory: 32MiB}}, config: {{on: configure, do: {word}}}");
        let job = job("evil", &step, "", &["ok"]);
        job.run().refused(2, &[reason, "step"]);
        assert!(!job.path("out.jsonl").exists(), "nothing ran");
    }
}

#[test]
fn names_of_routes_are_checked_before_anything_runs() {
    job("evil", "grants: [log], config: {on: configure, do: bad-routes}", "", &["ok"])
        .run()
        .refused(2, &["names a route that no pipeline file could", "step=step"]);
    job("evil", "grants: [log], config: {routes: [main]}", "", &["ok"])
        .run()
        .refused(2, &["one of the names that every pipeline has"]);
    let lost = job("evil", "grants: [log], config: {routes: [left]}", "", &["ok"]);
    lost.run().refused(2, &["no sink takes the route", "route=left"]);
    let sinks = "  - file: {name: left, path: left.jsonl, from: left}\n";
    let kept = job("evil", "grants: [log], config: {routes: [left]}", sinks, &["ok 1", "route 1", "ok 2"]);
    kept.run().ok();
    assert_eq!(
        (lines(&kept, "out.jsonl"), lines(&kept, "left.jsonl")),
        (vec!["ok 1".into(), "ok 2".into()], vec!["route 1".to_string()])
    );
}

#[test]
fn a_guest_may_import_only_what_it_was_granted() {
    job("evil", "config: {}", "", &["ok"]).run().refused(2, &["weir:udf/log@1", "grants: [log]"]);
    job("evil", "grants: [logg]", "", &["ok"]).run().refused(2, &["unknown grant", "`log`", "logg"]);
}

#[test]
fn a_guest_that_logs_without_end_is_cut_off_and_goes_on() {
    let job = job("evil", "grants: [log], limits: {log: 1KiB}", "", &["ok 1", "log-flood", "ok 2"]);
    let ended = job.run().ok();
    assert!(ended.stderr.contains("the guest logs too much in one call"), "{}", ended.stderr);
    assert!(ended.stderr.len() < 100_000);
    let out = lines(&job, "out.jsonl");
    assert!(out.contains(&"ok 1".to_string()) && out.contains(&"ok 2".to_string()), "{out:?}");
}

#[test]
fn a_guest_whose_memory_grows_is_replaced_before_it_runs_out() {
    // Each batch takes 20 MB for ever: without a fresh instance the fourth would be out of memory. The messages are
    // large, so that each is a batch of its own and the host looks at the memory in between.
    let input: Vec<String> = (0..12).map(|_| format!("grow 20 {}", "x".repeat(1 << 20))).collect();
    let input: Vec<&str> = input.iter().map(String::as_str).collect();
    let job = job("evil", "grants: [log], limits: {memory: 96MiB, recycle: 32MiB}", "", &input);
    job.run().ok();
    assert_eq!(lines(&job, "out.jsonl").len(), 12);
    assert_eq!(letters(&job).len(), 0);
}

#[test]
fn a_batch_in_which_everything_fails_ends_the_search_by_its_budget() {
    let input = vec!["panic"; 200];
    job("evil", "grants: [log], limits: {search_calls: 20}", "", &input)
        .run()
        .refused(1, &["too many messages of one batch make the guest fail", "calls=21"]);
}

#[test]
fn without_a_place_for_dead_letters_the_pipeline_stops_and_says_what_to_add() {
    let job = job("evil", "grants: [log]", "", &["ok 1", "reject", "ok 2"]);
    let file: String =
        job.read("pipeline.yaml").lines().filter(|line| !line.contains("dead_letter")).map(|l| format!("{l}\n")).collect();
    job.write("pipeline.yaml", file);
    job.run().refused(2, &["no sink takes dead letters", "from: [dead_letter]", "offset=1"]);
    // Once there is a place, nothing is lost and nothing comes twice.
    let file = job.read("pipeline.yaml") + "\n  - file: {name: dead, path: dead.jsonl, from: dead_letter}\n";
    job.write("pipeline.yaml", file);
    job.run().ok();
    assert_eq!(lines(&job, "out.jsonl"), ["ok 1", "ok 2"]);
    assert_eq!(letters(&job).len(), 1);
}

#[test]
fn udf_inspect_tells_world_contract_digest_imports_and_size() {
    let job = Job::new("");
    let shown = job.weir(&["udf", "inspect", guest("evil").to_str().unwrap()]).ok().stdout;
    for word in ["transformer", "1.1.0", "weir:udf/log@1", "core module"] {
        assert!(shown.contains(word), "`{word}` is not in {shown}");
    }
    job.write("empty.wasm", b"\0asm\x0d\0\x01\0");
    job.weir(&["udf", "inspect", "empty.wasm"]).refused(2, &["empty.wasm", "another world"]);
    job.write("junk.wasm", "hello");
    job.weir(&["udf", "inspect", "junk.wasm"]).refused(2, &["junk.wasm"]);
}

#[test]
fn modules_built_for_contract_1_0_0_still_run() {
    let input = "{\"id\":1,\"email\":\"a@example.org\"}\n{\"id\":2,\"email\":\"b@example.org\"}\n";
    let expected = [
        ("passthrough", "", vec![("out.jsonl", input.to_string())]),
        (
            "mask",
            "config: {fields: [/email]}",
            vec![("out.jsonl", input.replace("a@example.org", "***").replace("b@example.org", "***"))],
        ),
        (
            "route",
            "config: {field: /id, routes: {'1': odd}}",
            vec![
                ("out.jsonl", input.lines().nth(1).unwrap().to_string() + "\n"),
                ("odd.jsonl", input.lines().next().unwrap().to_string() + "\n"),
            ],
        ),
    ];
    for (name, config, files) in expected {
        let module = crate::harness::root().join("tests/fixtures/guests/1.0.0").join(format!("{name}.wasm"));
        let odd = if name == "route" { ", file: {name: odd, path: odd.jsonl, from: odd}" } else { "" };
        let job = Job::new(&format!(
            "
pipeline: old
checkpoint: {{store: ./state}}
sources: [file: {{path: in.jsonl}}]
steps: [{{name: {name}, transform: {}, {config}}}]
sinks: [file: {{path: out.jsonl}}{odd}]
",
            module.display()
        ));
        job.write("in.jsonl", input);
        let told = job.weir(&["udf", "inspect", module.to_str().unwrap()]).ok();
        assert!(told.stdout.contains("1.0.0"), "{}", told.stdout);
        job.run().ok();
        for (file, expected) in files {
            assert_eq!(job.read(file), expected, "{name} {file}");
        }
    }
}
