//! Tables, checkpoints and files on object stores and a PostgreSQL catalog. What is there is counted by PyIceberg and
//! PyArrow, through clients of their own.

use crate::harness::kafka::broker;
use crate::harness::trial::{Place, Trial, fill, killed_at_every_step, of_two_one_hangs};
use crate::harness::weir::Job;
use crate::harness::{http, scaled, service, table};

fn rows() -> u64 {
    scaled(200_000, 1_000_000)
}

#[test]
fn killed_at_every_step_nothing_is_lost_or_doubled_on_s3_with_a_postgresql_catalog() {
    // Epochs on S3 take longer, and hold more rows each.
    killed_at_every_step("steps_s3", &Place::s3(), rows() * 3);
}

#[test]
fn of_two_processes_with_their_log_on_s3_the_one_that_hangs_is_fenced() {
    of_two_one_hangs("zombie_s3", &Place::s3(), rows());
}

#[test]
fn other_writers_commit_to_the_same_table_of_a_postgresql_catalog() {
    fill(broker(), "foreign_pg", 8, rows() * 2);
    let mut trial = Trial::new("foreign_pg", "foreign_pg", broker(), &Place::postgres(), "commit_rows: 2000");
    let mut running = trial.job.start();
    trial.wait_for_a_commit();
    let mut appended = 0;
    while running.runs() && appended < 10 {
        trial.foreign("append");
        appended += 1;
    }
    running.wait().ok();
    trial.finish();
    trial.exactly(rows() * 2);
    assert!(appended > 0 && trial.read("id like 'foreign-%'")["rows"] == appended);
}

#[test]
fn every_message_is_in_a_table_on_gcs_once() {
    fill(broker(), "plain_gcs", 8, rows());
    let mut trial = Trial::new("plain_gcs", "plain_gcs", broker(), &Place::gcs(), "commit_rows: 20000");
    trial.job.set("WEIR_CRASH", "commit.sent:2");
    assert_eq!(trial.job.run().signal, Some(9));
    trial.finish();
    trial.exactly(rows());
}

/// A job from made-up messages, or from files, into files.
fn copy(name: &str, source: &str, path: &str) -> Job {
    let place = Place::s3();
    Job::new(&format!(
        "
pipeline: {name}
workers: 2
checkpoint: {{{}, interval: 100ms}}
sources: [{source}]
sinks: [file: {{path: '{path}', options: {}}}]
",
        place.store(),
        place.options(),
    ))
}

#[test]
fn files_on_s3_are_written_and_read_once_whatever_is_killed() {
    let (rows, options, origin) = (rows(), Place::s3().options(), service::s3().origin());
    let generator = format!("generator: {{template: '{{\"id\":{{{{index()}}}}}}', count: {rows}, partitions: 4}}");
    // Each point in jobs of its own: the first epoch with rows passes all of them, however many rows it takes.
    for point in ["prepare.after", "manifest.created", "commit.before", "commit.sent"] {
        let at = point.replace('.', "_");
        let read = format!("file: {{path: 's3://weir/{at}/first-*.jsonl.gz', options: {options}}}");
        for (step, source, file) in
            [("write", &generator, "first-{epoch}-{worker}.jsonl.gz"), ("copy", &read, "second-{epoch}-{worker}.jsonl")]
        {
            let mut job = copy(&format!("s3_{step}_{at}"), source, &format!("s3://weir/{at}/{file}"));
            assert_eq!(job.set("WEIR_CRASH", &format!("{point}:1")).run().signal, Some(9), "{step} {point}");
            job.unset("WEIR_CRASH").run().ok();
            let folder = format!("s3://weir/{at}/{}", file.split('{').next().unwrap());
            let found = table::python("read_objects.py", &["s3", &origin, &folder, "id"]);
            assert_eq!((found["rows"].as_u64(), found["distinct"].as_u64()), (Some(rows), Some(rows)), "{step} {point}: {found}");
        }
    }
}

#[test]
fn files_on_gcs_are_read_into_a_table_there() {
    let origin = service::gcs().origin();
    let upload = |name: &str, body: &str| {
        http::ask(&origin, "POST", &format!("/upload/storage/v1/b/weir/o?uploadType=media&name=in%2F{name}"), body);
    };
    for part in 0..3 {
        let lines: String = (part * 1000..(part + 1) * 1000).map(|n| format!("{{\"id\":\"{n}\"}}\n")).collect();
        upload(&format!("part-{part}.jsonl"), &lines);
    }
    upload("other.txt", "not a message");
    let place = Place::gcs();
    let job = Job::new(&format!(
        "
pipeline: gcs_files
checkpoint: {{store: ./state}}
sources: [file: {{path: 'gs://weir/in/*.jsonl', options: {{google_base_url: '{origin}', google_skip_signature: 'true'}}}}]
sinks: [iceberg: {{{}, table: gcs.files, schema: schema.json, partition_by: ['truncate(id, 1)']}}]
",
        place.sink()
    ));
    job.write("schema.json", r#"{"type": "struct", "fields": [{"id": 1, "name": "id", "required": true, "type": "string"}]}"#);
    job.run().ok();
    let found = place.python(&job, "gcs.files", "read_table.py", &["--distinct", "id"]);
    assert_eq!((found["rows"].as_u64(), found["distinct"].as_u64()), (Some(3000), Some(3000)));
}
