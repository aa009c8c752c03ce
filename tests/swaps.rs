//! Modules replaced while the pipeline runs: each message is handled by one known version, the manifest of its epoch says
//! which, and whatever is killed on the way, nothing is lost and nothing comes twice.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use weir::wasm::digest;

use crate::harness::kafka::{Record, broker};
use crate::harness::trial::Place;
use crate::harness::versions::{Known, OUT, Steered, each_once_by_its_version, manifest, numbers, remarked, rows, stamping};
use crate::harness::weir::{Job, wait_for};
use crate::harness::{guest, scaled};

#[test]
fn many_swaps_in_a_row_under_load_lose_nothing_and_each_snapshot_names_the_version_of_its_rows() {
    let (broker, swaps) = (broker(), scaled(20, 100));
    broker.create_topic("swaps", 4, &[]);
    let mut known = Known::default();
    let place = Place::sqlite();
    let sinks = format!("  - iceberg: {{{}, table: web.rows, schema: schema.json}}", place.sink());
    let source = format!("kafka: {{brokers: '{}', topic: swaps}}", broker.bootstrap());
    let job = stamping("swaps", "200ms", &source, &sinks, &mut known);
    job.write(
        "schema.json",
        r#"{"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "long"},
            {"id": 2, "name": "version", "required": true, "type": "string"}]}"#,
    );
    let steered = Steered::start(&job, &[]);
    let done = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut sent = 0u64;
            while !done.load(Ordering::Relaxed) {
                let chunk = sent..sent + 2000;
                broker.produce("swaps", chunk.map(|id| Record::value(format!("stamp {id}")).to((id % 4) as i32)));
                sent += 2000;
            }
            sent
        });
        wait_for("messages to flow", || steered.events_in() > 1000);
        for number in 0..swaps {
            // So that this version has some rows too.
            let before = steered.events_in();
            wait_for("messages to flow", || steered.events_in() > before + 200);
            let module = known.make(&number.to_string());
            let answer = steered.swap(&module);
            assert_eq!((answer["changed"].as_bool(), answer["module"].as_str()), (Some(true), Some(&*digest(&module))));
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    steered.stop();
    // What was not read yet is read by the version that was swapped in last.
    job.weir(&["run", "pipeline.yaml", "--json", "--set", "sources.0.kafka.until=latest"]).ok();
    let found = place.python(&job, "web.rows", "read_table.py", &["--distinct", "id"]);
    assert_eq!((found["rows"].as_u64(), found["distinct"].as_u64()), (Some(sent), Some(sent)));
    assert_eq!(found["columns"]["id"]["max"].as_u64(), Some(sent - 1));
    let snapshots = place.python(&job, "web.rows", "snapshot_versions.py", &["--column", "version"]);
    let mut seen = BTreeSet::new();
    for snapshot in snapshots.as_array().unwrap().iter().filter(|snapshot| snapshot["rows"] != 0) {
        let named = known.stamp(snapshot["summary"]["weir.module.stamp"].as_str().unwrap());
        assert_eq!(snapshot["values"], serde_json::json!([named]), "the version in the rows, and the one in the summary");
        seen.insert(named.to_string());
    }
    assert!(seen.len() > swaps / 2, "most versions had rows: {seen:?}");
    assert!(!job.path("dead.jsonl").exists() || job.read("dead.jsonl").is_empty());
}

#[test]
fn killed_at_every_step_of_a_swap_the_log_decides_which_version_goes_on() {
    let mut known = Known::default();
    // Nothing asks for a barrier but the swap.
    let count = 40_000;
    let mut job = stamping("killed", "1h", &numbers(&format!("rate: 4000, count: {count}")), OUT, &mut known);
    let mut running = digest(&std::fs::read(job.path("stamp.wasm")).unwrap());
    Steered::start(&job, &[]).stop();
    for (number, point) in weir::crash::POINTS.iter().enumerate() {
        let module = known.make(&format!("k{number}"));
        job.set("WEIR_CRASH", point);
        let steered = Steered::start(&job, &[]);
        wait_for("messages to flow", || steered.events_in() > 500);
        assert_eq!(steered.post("/v1/steps/stamp/swap", &module), None, "killed at {point} before it could answer");
        assert_eq!(steered.running.wait().signal, Some(9), "{point}");
        job.unset("WEIR_CRASH");
        // From the manifest on it has happened; before, nothing has.
        if weir::crash::POINTS.iter().position(|p| *p == "manifest.created").unwrap() <= number {
            running = digest(&module);
        }
        let after = Steered::start(&job, &[]);
        assert_eq!(after.get("/v1/steps/stamp")["running"], running.as_str(), "after {point}");
        drop(after);
    }
    job.weir(&["run", "pipeline.yaml", "--json", "--set", "sources.0.generator.rate=1000000"]).ok();
    let seen = each_once_by_its_version(&job, "killed", count, &known);
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn a_restart_goes_on_with_the_module_that_was_swapped_in_until_the_file_changes() {
    let mut known = Known::default();
    let job = stamping("kept", "100ms", &numbers("rate: 2000"), OUT, &mut known);
    let steered = Steered::start(&job, &[]);
    let (second, third) = (known.make("second"), known.make("third"));
    steered.swap(&second);
    // The same again changes nothing.
    assert_eq!(steered.swap(&second)["changed"], false);
    steered.stop();
    let running = |steered: &Steered| steered.get("/v1/steps/stamp")["running"].as_str().unwrap().to_string();
    let again = Steered::start(&job, &[]);
    assert_eq!(running(&again), digest(&second));
    // Back to the one before, and back again.
    let (_, answer) = again.post("/v1/steps/stamp/rollback?why=too+slow", b"").unwrap();
    assert_eq!((&answer["changed"], known.stamp(answer["module"].as_str().unwrap())), (&Value::Bool(true), "VERSION-000first"));
    let (_, answer) = again.post(&format!("/v1/steps/stamp/rollback?to={}", digest(&second)), b"").unwrap();
    assert_eq!(answer["module"], digest(&second));
    again.stop();
    job.write("stamp.wasm", &third);
    let changed = Steered::start(&job, &[]);
    assert_eq!(running(&changed), digest(&third), "the file has changed");
    wait_for("an epoch", || changed.get("/v1/status")["summary"]["epochs"].as_u64() > Some(1));
    changed.stop();
    let history: Vec<(String, String)> = manifest(&job, "kept").modules["stamp"]
        .versions
        .iter()
        .map(|version| (known.stamp(&version.digest).to_string(), version.why.clone()))
        .collect();
    let wanted = [
        ("VERSION-000first", "the log began with it"),
        ("VERSION-00second", "swapped by request"),
        ("VERSION-000first", "rolled back: too slow"),
        ("VERSION-00second", "rolled back by request"),
        ("VERSION-000third", "the file has changed"),
    ];
    assert_eq!(history, wanted.map(|(version, why)| (version.to_string(), why.to_string())));
    let rows = rows(&job);
    each_once_by_its_version(&job, "kept", rows.len() as u64, &known);
}

#[test]
fn a_swap_that_is_refused_says_why_and_changes_nothing() {
    let mut known = Known::default();
    let job = stamping("refusing", "100ms", &numbers("rate: 2000"), OUT, &mut known);
    let without_grant = job.read("pipeline.yaml").replace(", grants: [log]", "").replace("stamp.wasm", "plain.wasm");
    job.write("plain.wasm", std::fs::read(guest("passthrough")).unwrap());
    job.write("pipeline.yaml", without_grant);
    let steered = Steered::start(&job, &[]);
    let read = |name: &str| std::fs::read(guest(name)).unwrap();
    for (module, why) in [
        (known.make("other"), "was not granted it: add `grants: [log]`"),
        (read("count"), "the module is an aggregator"),
        (read("map"), "the module refuses its config"),
        (b"not wasm at all".to_vec(), "the swap is refused step=stamp"),
        (read("passthrough")[..5000].to_vec(), "the swap is refused step=stamp"),
        (Vec::new(), "the swap is refused step=stamp"),
    ] {
        let (status, answer) = steered.post("/v1/steps/stamp/swap", &module).unwrap();
        assert_eq!(status, 422, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{why}: {answer}");
    }
    let too_large = vec![0; weir::control::MODULE_BYTES_MAX + 1];
    assert_eq!(steered.post("/v1/steps/stamp/swap", &too_large).unwrap().0, 413);
    for path in [
        "/v1/steps/none/swap",
        "/v1/steps/..%2F..%2Fstamp/swap",
        "/v1/steps/stamp/rollback",
        "/v1/steps/stamp/rollback?to=..%2Fx",
    ] {
        assert_eq!(steered.post(path, &read("passthrough")).unwrap().0, 404, "{path}");
    }
    let step = steered.get("/v1/steps/stamp");
    assert_eq!(step["running"], step["configured"]);
    assert_eq!(step["versions"].as_array().unwrap().len(), 1);
    let before = steered.events_in();
    wait_for("messages to flow on", || steered.events_in() > before);
    steered.stop();
    assert_eq!(manifest(&job, "refusing").modules["stamp"].versions.len(), 1);
}

#[test]
fn windows_count_every_message_once_when_their_module_is_swapped() {
    let job = Job::new(&format!(
        "
pipeline: keyed
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources: [generator: {{template: '{{\"user\": {{{{integer(1,50)}}}}}}', rate: 5000, count: 20000, partitions: 4}}]
steps: [{{name: stamp, aggregate: {}, key: /user, window: {{tumbling: 1s}}}}]
sinks: [file: {{path: out.jsonl}}]
",
        guest("count").display()
    ));
    let steered = Steered::start(&job, &[]);
    let mut swaps = 0;
    for number in 0..5 {
        let before = steered.events_in();
        wait_for("messages to flow", || steered.events_in() > before);
        swaps += u64::from(
            steered.swap(&remarked(std::fs::read(guest("count")).unwrap(), &format!("version {number}")))["changed"] == true,
        );
    }
    steered.running.wait().ok();
    assert_eq!(swaps, 5);
    let rows: Vec<Value> = job.read("out.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>(), 20_000);
    let panes: BTreeSet<String> = rows.iter().map(|row| format!("{} {}", row["user"], row["window_start"])).collect();
    assert_eq!(panes.len(), rows.len(), "each window of a key fired once");
}
