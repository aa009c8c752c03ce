//! Keyed windows end to end: first-party aggregators over files and a real broker, against what a few lines of code
//! compute from all messages at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::harness::kafka::{Record, broker};
use crate::harness::weir::{Job, wait_for};
use crate::harness::{guest, scaled, table};

/// One message.
#[derive(Clone)]
struct Click {
    user: String,
    time: i64,
    amount: i64,
}

/// Clicks a little out of order, some of them by far.
fn clicks(seed: u64, count: usize) -> Vec<Click> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut now = 1_750_000_000_000;
    (0..count)
        .map(|_| {
            now += rng.random_range(0..40);
            let back = if rng.random_bool(0.02) { rng.random_range(5_000..20_000) } else { rng.random_range(0..200) };
            let user = format!("u{}", rng.random_range(0..50));
            Click { user, time: now - back, amount: rng.random_range(-500..500) }
        })
        .collect()
}

fn line(click: &Click) -> String {
    format!("{}\n", json!({"user": click.user, "t": click.time, "amount": click.amount}))
}

const LAG: i64 = 1_000;

/// Those that are in time, by the clock that each meets.
fn in_time(clicks: &[Click], late: impl Fn(i64, i64) -> bool) -> Vec<&Click> {
    let mut clock = i64::MIN;
    let mut taken = Vec::new();
    for click in clicks {
        if !late(click.time, clock) {
            taken.push(click);
        }
        clock = clock.max(click.time - LAG);
    }
    taken
}

type Sums = BTreeMap<(String, i64, i64), (i64, i64)>;

fn tumbling(clicks: &[Click], size: i64) -> Sums {
    let end = |time: i64| time.div_euclid(size) * size + size;
    let mut sums = Sums::new();
    for click in in_time(clicks, |time, clock| end(time) <= clock) {
        let sum = sums.entry((click.user.clone(), end(click.time) - size, end(click.time))).or_default();
        *sum = (sum.0 + 1, sum.1 + click.amount);
    }
    sums
}

fn sliding(clicks: &[Click], size: i64, every: i64) -> Sums {
    let mut sums = Sums::new();
    let mut clock = i64::MIN;
    for click in clicks {
        let mut start = click.time.div_euclid(every) * every;
        while start + size > click.time {
            if start + size > clock {
                let sum = sums.entry((click.user.clone(), start, start + size)).or_default();
                *sum = (sum.0 + 1, sum.1 + click.amount);
            }
            start -= every;
        }
        clock = clock.max(click.time - LAG);
    }
    sums
}

fn sessions(clicks: &[Click], gap: i64) -> Sums {
    let mut by_user: BTreeMap<String, Vec<&Click>> = BTreeMap::new();
    for click in in_time(clicks, |time, clock| time < clock) {
        by_user.entry(click.user.clone()).or_default().push(click);
    }
    let mut sums = Sums::new();
    for (user, mut clicks) in by_user {
        clicks.sort_by_key(|click| click.time);
        for group in clicks.chunk_by(|a, b| b.time < a.time + gap) {
            let (first, last) = (group[0].time, group[group.len() - 1].time);
            let sum = group.iter().map(|click| click.amount).sum();
            sums.insert((user.clone(), first, last + gap), (group.len() as i64, sum));
        }
    }
    sums
}

fn millis(value: &Value) -> i64 {
    chrono::DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap().timestamp_millis()
}

/// The rows of a file; a window that is there twice is a fault.
fn rows(text: &str) -> Sums {
    let mut sums = Sums::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let place = (row["user"].as_str().unwrap().to_string(), millis(&row["window_start"]), millis(&row["window_end"]));
        let sum = row["sum"].to_string().parse().unwrap_or_else(|_| panic!("{line}"));
        let before = sums.insert(place, (row["count"].as_i64().unwrap(), sum));
        assert!(before.is_none(), "a window fired twice: {line}");
    }
    sums
}

fn job(window: &str, memory: &str) -> Job {
    Job::new(&format!(
        "
pipeline: windows
workers: 1
checkpoint: {{store: ./state, interval: 1ms}}
sources:
  - file: {{path: in.jsonl, event_time: {{field: /t, format: ms}}, watermark: {{lag: 1s}}}}
steps:
  - {{name: sums, aggregate: {}, key: /user, window: {window}, state_memory: {memory}, config: {{field: /amount}}}}
sinks:
  - file: {{path: out.jsonl}}
  - file: {{name: late, path: late.jsonl, from: late}}
",
        guest("stats").display()
    ))
}

#[test]
fn windows_hold_what_a_computation_over_all_messages_finds_however_often_it_is_killed_and_with_any_number_of_workers() {
    // Several batches of the source, so that there are epochs to be killed in.
    let clicks = clicks(3, scaled(150_000, 600_000));
    let input: String = clicks.iter().map(line).collect();
    let kinds: [(&str, Sums); 3] = [
        ("{tumbling: 10s}", tumbling(&clicks, 10_000)),
        ("{sliding: {size: 30s, every: 10s}}", sliding(&clicks, 30_000, 10_000)),
        ("{session: 2s}", sessions(&clicks, 2_000)),
    ];
    for (window, expected) in kinds {
        // The three ways: straight; with more workers, little memory and kills; resumed with others again.
        for (workers, memory) in [(["1", "1", "1"], "256MiB"), (["2", "3", "1"], "64KiB")] {
            let mut job = job(window, memory);
            job.write("in.jsonl", &input);
            for (point, workers) in [Some("manifest.created:2"), Some("manifest.created:1"), None].into_iter().zip(workers) {
                match point {
                    None => job.unset("WEIR_CRASH"),
                    Some(point) => job.set("WEIR_CRASH", point),
                };
                let ended = job.weir(&["run", "pipeline.yaml", "--set", &format!("workers={workers}")]);
                assert_eq!(ended.signal, point.map(|_| 9), "{window} {memory} {point:?}: {ended:?}");
            }
            let found = rows(&job.read("out.jsonl"));
            assert_eq!(found.len(), expected.len(), "{window} {memory}: windows");
            for (place, sum) in &expected {
                assert_eq!(found.get(place), Some(sum), "{window} {memory}: {place:?}");
            }
            // What is in no window is among the late ones: nothing has vanished. (Of sliding windows the last is open for long.)
            let counted: i64 = expected.values().map(|(count, _)| count).sum();
            if !window.contains("sliding") {
                let late = job.read("late.jsonl").lines().count() as i64;
                assert!(late > 0, "{window}: some are late");
                assert_eq!(counted + late, clicks.len() as i64, "{window}");
            }
        }
    }
}

#[test]
fn state_far_beyond_its_memory_lies_in_the_checkpoint_store_and_comes_back_when_windows_fire() {
    let count = scaled(60_000, 600_000);
    let job = Job::new(&format!(
        r#"
pipeline: collect
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources:
  - generator: {{template: '{{"user":{{{{integer(1,1000)}}}},"t":{{{{index()}}}},"text":"{{{{alphaNumeric(1000)}}}}"}}', count: {count},
      partitions: 2, event_time: {{field: /t, format: ms}}}}
steps:
  - {{name: collect, aggregate: {}, key: /user, window: {{tumbling: 1h}}, state_memory: 4MiB}}
sinks: [file: {{path: out.jsonl}}]
"#,
        guest("collect").display()
    ));
    let summary = job.run().ok().summary();
    let (mut ids, mut users) = (BTreeSet::new(), BTreeSet::new());
    for line in job.read("out.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert!(users.insert(row["user"].as_i64().unwrap()), "one row for each user");
        for message in row["messages"].as_array().unwrap_or_else(|| panic!("{}", &line[..200])) {
            assert_eq!(message["user"], row["user"]);
            assert!(ids.insert(message["t"].as_i64().unwrap()), "a message twice");
        }
    }
    assert_eq!(ids.len(), count, "messages in rows");
    let memory = summary["memory_bytes_max"].as_u64().unwrap();
    assert!(memory < 500 << 20, "{memory} bytes of memory");
    // The one before may still be gone back to: its runs are kept.
    let newest = std::fs::read_dir(job.path("state/collect/0")).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.filter(|path| path.is_file()).max().unwrap();
    let newest: Value = serde_json::from_slice(&std::fs::read(newest).unwrap()).unwrap();
    assert_eq!(newest["steps"]["collect"]["runs"], json!([]), "runs of closed windows are not needed");
}

#[test]
fn a_partition_that_never_had_a_message_holds_no_window_back_and_last_years_messages_are_not_late() {
    let broker = broker();
    broker.create_topic("idle", 3, &[]);
    let last_year = 1_700_000_000_000i64;
    let record =
        |n: i64| Record::value(json!({"user": "u", "t": last_year + n * 100, "amount": 1}).to_string()).to((n % 2) as i32);
    broker.produce("idle", (0..600).map(record));
    let job = Job::new(&format!(
        "
pipeline: idle
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources:
  - kafka: {{brokers: '{}', topic: idle, event_time: {{field: /t, format: ms}}, watermark: {{lag: 2s}}}}
steps: [{{name: sums, aggregate: {}, key: /user, window: {{tumbling: 10s}}, config: {{field: /amount}}}}]
sinks: [file: {{path: out.jsonl}}, file: {{name: late, path: late.jsonl, from: late}}]
",
        broker.bootstrap(),
        guest("stats").display()
    ));
    let running = job.start();
    let counted = || rows(&if job.path("out.jsonl").exists() { job.read("out.jsonl") } else { String::new() });
    // The last window too: by the time of the fetches it is long past.
    wait_for("all windows", || counted().values().map(|(count, _)| count).sum::<i64>() == 600);
    running.signal(Signal::SIGTERM);
    running.wait().ok();
    assert_eq!(counted().len(), 6, "windows of ten seconds");
    assert!(!job.path("late.jsonl").exists() || job.read("late.jsonl").is_empty(), "nothing was late");
    // A restart doesn't open a window again: what comes for it now is late.
    broker.produce("idle", [record(0)]);
    let running = job.start();
    wait_for("the late message", || job.path("late.jsonl").exists() && !job.read("late.jsonl").is_empty());
    running.signal(Signal::SIGTERM);
    running.wait().ok();
    assert_eq!(counted().values().map(|(count, _)| count).sum::<i64>(), 600);
}

#[test]
fn killed_at_random_moments_every_windows_row_is_in_the_table_once() {
    let (broker, count) = (broker(), scaled(60_000usize, 2_000_000));
    broker.create_topic("windows", 4, &[]);
    let clicks = clicks(9, count);
    // Each partition in order of time, so that none is late.
    let mut sorted = clicks.clone();
    sorted.sort_by_key(|click| click.time);
    broker
        .produce("windows", sorted.iter().enumerate().map(|(i, click)| Record::value(line(click).trim_end()).to((i % 4) as i32)));
    let mut job = Job::new(&format!(
        "
pipeline: windows
workers: 2
checkpoint: {{store: ./state, interval: 100ms}}
sources:
  - kafka: {{brokers: '{}', topic: windows, until: latest, event_time: {{field: /t, format: ms}}}}
steps:
  - {{name: sums, aggregate: {}, key: /user, window: {{tumbling: 1m}}, config: {{field: /amount}}, state_memory: 128KiB}}
sinks:
  - iceberg: {{catalog: {{type: sql, uri: 'sqlite:./warehouse/catalog.db'}}, warehouse: ./warehouse, table: web.sums, schema: schema.json}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
  - file: {{name: late, path: late.jsonl, from: late}}
",
        broker.bootstrap(),
        guest("stats").display()
    ));
    job.write(
        "schema.json",
        r#"{"type": "struct", "fields": [
  {"id": 1, "name": "user", "required": true, "type": "string"},
  {"id": 2, "name": "window_start", "required": true, "type": "timestamptz"},
  {"id": 3, "name": "window_end", "required": true, "type": "timestamptz"},
  {"id": 4, "name": "count", "required": true, "type": "long"},
  {"id": 5, "name": "sum", "required": true, "type": "decimal(38, 0)"},
  {"id": 6, "name": "min", "required": false, "type": "decimal(38, 0)"},
  {"id": 7, "name": "max", "required": false, "type": "decimal(38, 0)"},
  {"id": 8, "name": "mean", "required": false, "type": "double"}]}"#,
    );
    let mut rng = StdRng::seed_from_u64(5);
    for _ in 0..scaled(6, 20) {
        let running = job.start();
        std::thread::sleep(Duration::from_millis(rng.random_range(50..900)));
        drop(running);
    }
    job.unset("WEIR_CRASH").run().ok();
    let mut arguments = table::sqlite(job.path("").as_path()).to_vec();
    arguments.extend(["--table", "web.sums", "--distinct", "user,window_start", "--sum", "count,sum"].map(String::from));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let found = table::python("windows_table.py", &arguments);
    let end = |time: i64| time.div_euclid(60_000);
    let windows: BTreeSet<(String, i64)> = clicks.iter().map(|click| (click.user.clone(), end(click.time))).collect();
    assert_eq!(found["rows"], windows.len() as u64, "{found}");
    assert_eq!(found["distinct"], windows.len() as u64, "{found}");
    assert_eq!(found["count"], count as u64, "{found}");
    assert_eq!(found["sum"].to_string(), clicks.iter().map(|click| click.amount).sum::<i64>().to_string(), "{found}");
    for empty in ["dead.jsonl", "late.jsonl"] {
        assert!(!job.path(empty).exists() || job.read(empty).is_empty(), "{empty}: {}", job.read(empty));
    }
}

#[test]
fn windows_fire_again_for_late_messages_and_say_which_pane_it_is() {
    let broker = broker();
    broker.create_topic("panes", 1, &[]);
    // Ahead of any clock, so that the watermark goes by the messages alone.
    let begin = 4_000_000_000_000;
    let put = |t: i64, amount: i64| {
        broker.produce("panes", [Record::value(line(&Click { user: "u".into(), time: begin + t, amount }).trim_end()).to(0)])
    };
    let job = Job::new(&format!(
        "
pipeline: panes
workers: 1
checkpoint: {{store: ./state, interval: 50ms}}
sources:
  - kafka: {{brokers: '{}', topic: panes, event_time: {{field: /t, format: ms}}, watermark: {{lag: 1s}}}}
steps:
  - name: sums
    aggregate: {}
    key: /user
    window: {{tumbling: 10s, allowed_lateness: 15s, early: 200ms}}
    config: {{field: /amount}}
sinks: [file: {{path: out.jsonl}}, file: {{name: late, path: late.jsonl, from: late}}]
",
        broker.bootstrap(),
        guest("stats").display()
    ));
    let panes = || -> Vec<(i64, i64, i64, String)> {
        let text = if job.path("out.jsonl").exists() { job.read("out.jsonl") } else { String::new() };
        let pane = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            let start = millis(&row["window_start"]) - begin;
            (start, row["pane"].as_i64().unwrap(), row["sum"].as_i64().unwrap(), row["timing"].as_str().unwrap().to_string())
        };
        text.lines().map(pane).collect()
    };
    let shows = |start: i64, pane: i64, sum: i64, timing: &str| {
        wait_for(&format!("pane {pane}"), || panes().contains(&(start, pane, sum, timing.to_string())));
    };
    let running = job.start();
    put(1_000, 1);
    shows(0, 0, 1, "early");
    put(2_000, 2);
    shows(0, 1, 3, "early");
    put(12_000, 4);
    shows(0, 2, 3, "on_time");
    put(3_000, 8);
    shows(0, 3, 11, "late");
    // Past the allowed lateness the window is closed.
    put(40_000, 16);
    shows(10_000, 1, 4, "on_time");
    put(4_000, 32);
    wait_for("the late message", || job.path("late.jsonl").exists() && job.read("late.jsonl").contains("\"amount\":32"));
    running.signal(Signal::SIGTERM);
    running.wait().ok();
    assert_eq!(panes().iter().filter(|(start, ..)| *start == 0).count(), 4, "{:?}", panes());
}

#[test]
fn messages_without_key_or_time_are_dead_letters_that_say_why() {
    let job = job("{tumbling: 10s}", "1MiB");
    job.write("in.jsonl", "{\"user\":\"a\",\"t\":1,\"amount\":1}\n{\"t\":2,\"amount\":1}\n{\"user\":\"a\",\"amount\":1}\n{\"user\":\"a\",\"t\":\"x\",\"amount\":1}\nnonsense\n");
    let file = format!("{}  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}\n", job.read("pipeline.yaml"));
    job.write("pipeline.yaml", file);
    let summary = job.run().ok().summary();
    assert_eq!(summary["sinks"]["file"]["rows"], 1, "{summary}");
    let dead = job.read("dead.jsonl");
    assert_eq!(dead.lines().count(), 4, "{dead}");
    for words in [
        "no key: the field is missing or null pointer=/user",
        "no event time: it is missing or null pointer=/t",
        "found=x",
        "not JSON",
    ] {
        assert!(dead.contains(words), "{words}: {dead}");
    }
}

#[test]
fn wrong_windows_are_refused_with_what_to_do() {
    let refused = |change: &dyn Fn(String) -> String, words: &[&str]| {
        let job = job("{tumbling: 10s}", "1MiB");
        job.write("in.jsonl", "");
        job.write("pipeline.yaml", change(job.read("pipeline.yaml")));
        job.weir(&["check", "pipeline.yaml"]).refused(2, words);
    };
    let replace = |from: &'static str, to: &'static str| move |file: String| file.replace(from, to);
    refused(&replace("window: {tumbling: 10s}, ", ""), &["sums", "needs a `window`", "tumbling: 1m"]);
    refused(&replace("{tumbling: 10s}", "{tumbling: 10s, session: 5s}"), &["exactly one of"]);
    refused(&replace("{tumbling: 10s}", "{sliding: {size: 1s, every: 2s}}"), &["`every` above `size`"]);
    refused(&replace("{tumbling: 10s}", "{sliding: {size: 24h, every: 7001ms}}"), &["more than 10000 slices", "common divisor"]);
    refused(&replace("{tumbling: 10s}", "{sliding: {size: 10001s, every: 1s}}"), &["more than 10000 slices"]);
    refused(&replace("{tumbling: 10s}", "{sliding: {size: 4s, every: 2s}, panes: discarding}"), &["discarding"]);
    refused(&replace("{tumbling: 10s}", "{batch: {rows: 5, age: 1s}, early: 1s}"), &["a batch has no event time"]);
    refused(&replace("{tumbling: 10s}", "{tumbling: 0s}"), &["can't be empty"]);
    refused(&replace("key: /user", "key: user"), &["begins with `/`"]);
    refused(&replace("format: ms", "format: minutes"), &["minutes", "event_time"]);
    refused(&replace("field: /t, ", ""), &["either `field` or `attribute`"]);
    refused(&replace("aggregate:", "transform:"), &["sums", "`key` and `window` belong to"]);
    refused(&replace("workers: 1", "workers: 1\ntasks: 2"), &["tasks"]);
    let plain = |file: String| {
        let file = file.replace(", watermark: {lag: 1s}", "");
        file.lines()
            .filter(|line| !line.contains("aggregate:") && !line.contains("steps:"))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    refused(&plain, &["nothing is late without windows", "aggregate"]);
    let mask = guest("mask").display().to_string();
    let stats = guest("stats").display().to_string();
    refused(&|file: String| file.replace(&stats, &mask), &["mask.wasm", "is a transform", "`transform`"]);
    let aggregate = format!("  - {{name: m, transform: {stats}}}\nsinks:");
    refused(&|file: String| file.replace("sinks:", &aggregate), &["is an aggregator", "`aggregate`"]);
}

#[test]
fn a_checkpoint_of_other_windows_is_not_taken_up() {
    let mut job = job("{tumbling: 10s}", "1MiB");
    job.write("in.jsonl", clicks(1, 5_000).iter().map(line).collect::<String>());
    job.set("WEIR_CRASH", "manifest.created:2");
    assert_eq!(job.run().signal, Some(9));
    job.unset("WEIR_CRASH");
    job.write("pipeline.yaml", job.read("pipeline.yaml").replace("tumbling: 10s", "tumbling: 20s"));
    job.run().refused(2, &["state of other keys or windows", "10000 ms", "20000 ms"]);
    job.write("pipeline.yaml", job.read("pipeline.yaml").replace("name: sums", "name: other"));
    job.run().refused(2, &["state of a step", "sums"]);
}
