//! The main job, Kafka through a guest into an Iceberg table, as a test runs it: on any catalog and storage, killed or
//! not, with what PyIceberg finds in the table held against what confluent-kafka finds in the topic.

use nix::sys::signal::Signal;
use serde_json::Value;
use weir::checkpoint::LogStore;

use super::kafka::{Broker, Record, broker, wait};
use super::weir::{Ended, Job, wait_for};
use super::{guest, rest, service, table};

const SCHEMA: &str = r#"{"type": "struct", "fields": [
  {"id": 1, "name": "id", "required": true, "type": "string"},
  {"id": 2, "name": "stream", "required": true, "type": "long"},
  {"id": 3, "name": "message", "required": true, "type": "string"}]}"#;

/// Where a job has its table and its checkpoint. `{dir}` stands for the job's folder.
#[derive(Clone)]
pub struct Place {
    /// Keys of the sink.
    sink: String,
    /// How PyIceberg is told the same.
    reader: Vec<String>,
    /// Where the log lies.
    store: String,
    /// What the log's store needs to know.
    options: Vec<(String, String)>,
}

fn yaml(options: &[(String, String)]) -> String {
    let options: Vec<String> = options.iter().map(|(name, value)| format!("{name}: '{value}'")).collect();
    format!("{{{}}}", options.join(", "))
}

impl Place {
    fn local(sink: String, reader: [&str; 4]) -> Place {
        Place { sink, reader: reader.map(str::to_string).to_vec(), store: "{dir}/state".to_string(), options: Vec::new() }
    }

    /// All on local disk, with a SQLite catalog.
    pub fn sqlite() -> Place {
        Place::local(
            "catalog: {type: sql, uri: 'sqlite:./warehouse/catalog.db'}, warehouse: ./warehouse".to_string(),
            ["--catalog", "sql", "sqlite:///{dir}/warehouse/catalog.db", "file://{dir}/warehouse"],
        )
    }

    /// A REST catalog with its own warehouse.
    pub fn rest(catalog: &rest::Catalog) -> Place {
        let sink = format!("catalog: {{type: rest, uri: '{}'}}", catalog.uri());
        Place::local(sink, ["--catalog", "rest", catalog.uri(), ""])
    }

    /// A PostgreSQL catalog with a warehouse on local disk.
    pub fn postgres() -> Place {
        let sink = format!("catalog: {{type: sql, uri: '{}'}}, warehouse: ./warehouse", service::postgres("postgres"));
        Place::local(sink, ["--catalog", "sql", &service::postgres("postgresql+psycopg2"), "file://{dir}/warehouse"])
    }

    /// The table and the checkpoint on S3, with a PostgreSQL catalog.
    pub fn s3() -> Place {
        let origin = service::s3().origin();
        let iceberg = [
            // The bucket's name in the path: an address has no subdomains.
            ("s3.path-style-access", "true"),
            ("s3.endpoint", origin.as_str()),
            ("s3.access-key-id", "test"),
            ("s3.secret-access-key", "test"),
            ("s3.region", "us-east-1"),
        ];
        let store = [
            ("aws_endpoint", origin.as_str()),
            ("aws_access_key_id", "test"),
            ("aws_secret_access_key", "test"),
            ("aws_region", "us-east-1"),
            ("aws_allow_http", "true"),
        ];
        let mut place = Place::postgres().on("s3://weir/warehouse", &iceberg, &iceberg);
        place.store = "s3://weir/state".to_string();
        place.options = store.map(|(name, value)| (name.to_string(), value.to_string())).to_vec();
        place
    }

    /// The table on GCS, with a SQLite catalog and the checkpoint on local disk.
    pub fn gcs() -> Place {
        let origin = service::gcs().origin();
        let iceberg = [("gcs.service.path", origin.as_str()), ("gcs.no-auth", "true")];
        let reader = [
            ("gcs.service.host", origin.as_str()),
            ("gcs.oauth2.token", "any"),
            ("gcs.oauth2.token-expires-at", "4102444800000"),
        ];
        Place::sqlite().on("gs://weir/warehouse", &iceberg, &reader)
    }

    /// The same with another warehouse.
    fn on(mut self, warehouse: &str, options: &[(&str, &str)], reader: &[(&str, &str)]) -> Place {
        let options: Vec<_> = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let sink = self.sink.replace("warehouse: ./warehouse", &format!("warehouse: '{warehouse}'"));
        self.sink = format!("{sink}, options: {}", yaml(&options));
        self.reader[3] = warehouse.to_string();
        self.reader.extend(reader.iter().flat_map(|(name, value)| ["--option".to_string(), format!("{name}={value}")]));
        self
    }

    /// Keys of an Iceberg sink: catalog, warehouse and options.
    pub fn sink(&self) -> &str {
        &self.sink
    }

    /// Keys of `checkpoint`.
    pub fn store(&self) -> String {
        format!("store: '{}', options: {}", self.store, self.options())
    }

    /// The options of a store for the log or for files.
    pub fn options(&self) -> String {
        yaml(&self.options)
    }

    /// What a script of the readers says of a job's table.
    pub fn python(&self, job: &Job, table: &str, script: &str, extra: &[&str]) -> Value {
        let folder = job.folder.path().to_str().unwrap();
        let mut arguments: Vec<String> = self.reader.iter().map(|text| text.replace("{dir}", folder)).collect();
        arguments.extend(["--table", table].iter().chain(extra).map(|text| text.to_string()));
        table::python(script, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// The main job in a folder of its own.
pub struct Trial {
    /// The folder and the pipeline file.
    pub job: Job,
    place: Place,
    name: String,
    topic: String,
    brokers: String,
}

impl Trial {
    /// A pipeline from a topic through `map` into a table, that ends once it has read what is there now.
    pub fn new(name: &str, topic: &str, broker: &Broker, place: &Place, extra: &str) -> Trial {
        let job = Job::new(&format!(
            "
pipeline: {name}
workers: 2
checkpoint: {{{store}, interval: 200ms}}
sources: [kafka: {{brokers: '{brokers}', topic: {topic}, until: latest}}]
steps:
  - name: map
    transform: {map}
    config: {{fields: {{/id: /id, /stream: {{from: /logStreamId, cast: integer}}, /message: /message}}}}
sinks:
  - iceberg: {{{sink}, table: {name}.clicks, schema: schema.json, partition_by: ['bucket(id, 8)'], distribution: hash, {extra}}}
  - file: {{name: dead, path: dead.jsonl, from: dead_letter}}
",
            store = place.store(),
            brokers = broker.bootstrap(),
            map = guest("map").display(),
            sink = place.sink,
        ));
        job.write("schema.json", SCHEMA);
        let brokers = broker.bootstrap().to_string();
        Trial { job, place: place.clone(), name: name.to_string(), topic: topic.to_string(), brokers }
    }

    fn python(&self, script: &str, extra: &[&str]) -> Value {
        self.place.python(&self.job, &format!("{}.clicks", self.name), script, extra)
    }

    /// What PyIceberg finds in the table where `filter` holds.
    pub fn read(&self, filter: &str) -> Value {
        let facts = ["--where", filter, "--distinct", "id", "--checksum", "id", "stream", "message"];
        self.python("read_table.py", &facts)
    }

    /// What confluent-kafka finds in the topic: the same facts, made without us.
    pub fn sent(&self) -> Value {
        table::python("topic_sum.py", &[&self.brokers, &self.topic, "id", "logStreamId", "message"])
    }

    /// Has another program change the table.
    pub fn foreign(&self, action: &str) -> Value {
        self.python("foreign_writer.py", &["--action", action])
    }

    /// Asserts that each of `rows` messages is in the table once, with every value as sent, and none among the dead
    /// letters. Rows of other writers are left out.
    pub fn exactly(&self, rows: u64) -> Value {
        let (sent, found) = (self.sent(), self.read("id not like 'foreign-%'"));
        assert_eq!(sent["rows"], rows, "messages in the topic: {sent}");
        for fact in ["rows", "distinct", "checksum"] {
            assert_eq!(found[fact], sent[fact], "{fact} of the table and of the topic");
        }
        assert!(!self.job.path("dead.jsonl").exists() || self.job.read("dead.jsonl").is_empty());
        found
    }

    /// Runs until it has read everything, whatever state the last run left.
    pub fn finish(&mut self) -> Ended {
        self.job.unset("WEIR_CRASH").run().ok()
    }

    /// Waits until the log has an epoch beyond its first.
    pub fn wait_for_a_commit(&self) {
        let store = self.place.store.replace("{dir}", self.job.folder.path().to_str().unwrap());
        let log = LogStore::open(&store, self.place.options.clone()).unwrap().log(&self.name, 0);
        wait_for("a first commit", || wait(log.epochs()).unwrap().len() > 1);
    }
}

/// Fills a topic with messages by Weir's own generator, with ids that are all different.
pub fn fill(broker: &Broker, topic: &str, partitions: i32, rows: u64) {
    broker.create_topic(topic, partitions, &[]);
    let job = Job::new(&format!(
        "
pipeline: fill_{topic}
delivery: at-least-once
checkpoint: {{store: ./state, interval: 1s}}
sources: [generator: {{schema: template.json, count: {rows}, partitions: 4}}]
sinks: [kafka: {{brokers: '{}', topic: {topic}}}]
",
        broker.bootstrap()
    ));
    job.write(
        "template.json",
        r#"{"id":"{{uuid()}}","logStreamId":"{{integer(1000001,2000000)}}","message":"{{alphaNumeric(115)}}"}"#,
    );
    job.run().ok();
    assert_eq!(broker.count(topic), rows);
}

/// `count` more messages such as [`fill`] makes, numbered from `first`.
pub fn more(text: &str, first: u64, count: u64) -> impl Iterator<Item = Record> {
    (first..first + count).map(move |n| Record::value(format!(r#"{{"id":"more-{n}","logStreamId":"{n}","message":"{text}"}}"#)))
}

/// Kills the process at each named step of the protocol, one after the other, again and again.
pub fn killed_at_every_step(name: &str, place: &Place, mut rows: u64) {
    fill(broker(), name, 8, rows);
    let mut trial = Trial::new(name, name, broker(), place, "commit_rows: 5000");
    let ends = trial.job.endless();
    for pass in 0..2 {
        for point in weir::crash::POINTS {
            trial.job.set("WEIR_CRASH", &format!("{point}:1"));
            let ended = trial.job.run();
            assert_eq!(ended.signal, Some(9), "{point}, pass {pass}: {ended:?}");
            // So that the next run has an epoch to be killed in, however much the last one has read.
            broker().produce(name, more(point, rows, 3000));
            rows += 3000;
        }
    }
    trial.job.write("pipeline.yaml", ends);
    trial.finish();
    trial.exactly(rows);
}

/// Stops a process while it works, lets a second one finish its work, and wakes it up again.
pub fn of_two_one_hangs(name: &str, place: &Place, rows: u64) {
    fill(broker(), name, 8, rows);
    let mut trial = Trial::new(name, name, broker(), place, "commit_rows: 2000");
    let first = trial.job.start();
    trial.wait_for_a_commit();
    first.signal(Signal::SIGSTOP);
    let second = trial.job.start().wait();
    first.signal(Signal::SIGCONT);
    let first = first.wait();
    // Whichever lost the race for the next epoch says so; it never goes on beside the other.
    second.ok();
    assert!(first.code == Some(3) || first.code == Some(0), "{first:?}");
    if first.code == Some(3) {
        assert!(first.stderr.contains("another process runs this pipeline"), "{}", first.stderr);
    }
    trial.finish();
    trial.exactly(rows);
}
