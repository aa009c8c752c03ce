//! A real Apache Kafka broker: started once for the whole test process, or a broker of its own for a test that
//! stops or kills it. It ends with the process, however that ends. What is said to it goes through librdkafka.

use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

/// How long anything may take before a test gives up on it. Not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(240);

/// The broker that tests share. Each test has topics of its own.
pub fn broker() -> &'static Broker {
    static BROKER: LazyLock<Broker> = LazyLock::new(Broker::start);
    &BROKER
}

/// Ports that nobody listens on.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [0; N].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// Runs a future to its end.
pub fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A broker.
pub struct Broker {
    folder: tempfile::TempDir,
    ports: [u16; 2],
    bootstrap: String,
    /// As `NAME=VALUE`, beside those of `peers/kafka/start`.
    settings: Vec<String>,
    /// Arguments for the format of its storage, such as users.
    format: String,
    /// Its standard input is open for as long as the broker is to run.
    process: Mutex<Option<Child>>,
}

/// A message as it is written or read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since the Unix epoch; `None` is now.
    pub timestamp: Option<i64>,
    /// `None` goes by the key.
    pub partition: Option<i32>,
    /// Given by the broker.
    pub offset: i64,
}

impl Record {
    /// A message with a value only.
    pub fn value(value: impl AsRef<[u8]>) -> Record {
        Record { value: Some(value.as_ref().to_vec()), ..Record::default() }
    }

    /// The same for a partition.
    pub fn to(self, partition: i32) -> Record {
        Record { partition: Some(partition), ..self }
    }
}

impl Broker {
    /// Starts a broker with new data.
    pub fn start() -> Broker {
        Broker::start_with(|_| Vec::new(), "")
    }

    /// The same with settings of its own, made from its ports, and with arguments for the format of its storage.
    pub fn start_with(settings: impl FnOnce([u16; 2]) -> Vec<String>, format: &str) -> Broker {
        let ports = free_ports();
        let broker = Broker {
            folder: tempfile::tempdir().unwrap(),
            ports,
            bootstrap: format!("127.0.0.1:{}", ports[0]),
            settings: settings(ports),
            format: format.to_string(),
            process: Mutex::new(None),
        };
        broker.go_on();
        broker
    }

    /// What `brokers` of a pipeline file says.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Starts the broker again, with the data that it left.
    pub fn go_on(&self) {
        let start = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/kafka/start");
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        let [port, controller] = self.ports.map(|port| port.to_string());
        let mut command = Command::new(&start);
        command.arg(self.folder.path()).args([port, controller]).args(&self.settings).stdin(Stdio::piped());
        command.env("WEIR_KAFKA_FORMAT", &self.format);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", start.display()));
        let began = Instant::now();
        let client: BaseConsumer = self.client().create().unwrap();
        while client.fetch_metadata(None, Duration::from_secs(1)).is_err() {
            let dead = child.try_wait().unwrap();
            if dead.is_some() || began.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                panic!("no Kafka broker ({dead:?}): {log}");
            }
        }
        *self.process.lock().unwrap() = Some(child);
    }

    fn signal(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.folder.path().join("pid")).unwrap();
        kill(Pid::from_raw(pid.trim().parse().unwrap()), signal).unwrap();
    }

    fn end(&self, signal: Signal) {
        self.signal(signal);
        if let Some(mut child) = self.process.lock().unwrap().take() {
            child.wait().unwrap();
        }
    }

    /// Stops it in an orderly way.
    pub fn stop(&self) {
        self.end(Signal::SIGTERM);
    }

    /// Kills it.
    pub fn kill9(&self) {
        self.end(Signal::SIGKILL);
    }

    /// Stops it and starts it again.
    pub fn restart(&self) {
        self.stop();
        self.go_on();
    }

    /// Makes it hang.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).set("group.id", "harness").set("isolation.level", "read_committed");
        config.set("enable.auto.commit", "false").set("reconnect.backoff.max.ms", "500");
        config
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap).create().unwrap()
    }

    fn options() -> AdminOptions {
        AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)))
    }

    /// Creates a topic and waits until it can be used.
    pub fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        topic.config = config.to_vec();
        let created = wait(self.admin().create_topics([&topic], &Self::options())).unwrap();
        created.into_iter().for_each(|topic| drop(topic.unwrap()));
        self.has_partitions(name, partitions);
    }

    /// Gives a topic more partitions.
    pub fn grow_topic(&self, name: &str, partitions: i32) {
        let more = NewPartitions::new(name, partitions as usize);
        let grown = wait(self.admin().create_partitions([&more], &Self::options())).unwrap();
        grown.into_iter().for_each(|topic| drop(topic.unwrap()));
        self.has_partitions(name, partitions);
    }

    fn has_partitions(&self, name: &str, partitions: i32) {
        let client: BaseConsumer = self.client().create().unwrap();
        until("the topic's leaders", || {
            let metadata = client.fetch_metadata(Some(name), Duration::from_secs(10)).ok();
            let topic = metadata.as_ref().and_then(|metadata| metadata.topics().first());
            topic.is_some_and(|t| t.partitions().len() == partitions as usize && t.partitions().iter().all(|p| p.leader() >= 0))
        });
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete_topic(&self, name: &str) {
        let deleted = wait(self.admin().delete_topics(&[name], &Self::options())).unwrap();
        deleted.into_iter().for_each(|topic| drop(topic.unwrap()));
        let client: BaseConsumer = self.client().create().unwrap();
        until("the topic to be gone", || {
            let metadata = client.fetch_metadata(None, Duration::from_secs(10)).unwrap();
            metadata.topics().iter().all(|topic| topic.name() != name)
        });
    }

    /// Takes away the messages of a partition before an offset, as retention does.
    pub fn delete_before(&self, topic: &str, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        wait(self.admin().delete_records(&list, &Self::options())).unwrap();
    }

    fn producer(&self, properties: &[(&str, &str)]) -> BaseProducer {
        let mut config = self.client();
        config.remove("group.id").set("partitioner", "murmur2_random").set("linger.ms", "20");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        config.create().unwrap()
    }

    fn send(producer: &BaseProducer, topic: &str, records: impl IntoIterator<Item = Record>) {
        for record in records {
            loop {
                let mut message: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic);
                (message.key, message.payload) = (record.key.as_deref(), record.value.as_deref());
                (message.partition, message.timestamp) = (record.partition, record.timestamp);
                if !record.headers.is_empty() {
                    let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                        headers.insert(Header { key, value: value.as_deref() })
                    });
                    message.headers = Some(headers);
                }
                match producer.send(message) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(rdkafka::types::RDKafkaErrorCode::QueueFull), _)) => {
                        producer.poll(Duration::from_millis(10));
                    }
                    Err((error, _)) => panic!("{error}"),
                }
            }
        }
        producer.flush(PATIENCE).unwrap();
    }

    /// Writes messages, in order.
    pub fn produce(&self, topic: &str, records: impl IntoIterator<Item = Record>) {
        Self::send(&self.producer(&[("enable.idempotence", "true")]), topic, records);
    }

    /// Writes messages in a transaction, which is then committed or aborted.
    pub fn transaction(&self, topic: &str, records: impl IntoIterator<Item = Record>, commit: bool) {
        let producer = self.producer(&[("transactional.id", topic)]);
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        Self::send(&producer, topic, records);
        match commit {
            true => producer.commit_transaction(PATIENCE).unwrap(),
            false => producer.abort_transaction(PATIENCE).unwrap(),
        }
    }

    /// First and last offset of each partition.
    pub fn watermarks(&self, topic: &str) -> Vec<(i64, i64)> {
        let client: BaseConsumer = self.client().create().unwrap();
        let metadata = client.fetch_metadata(Some(topic), PATIENCE).unwrap();
        let partitions = metadata.topics()[0].partitions().len() as i32;
        (0..partitions).map(|partition| client.fetch_watermarks(topic, partition, PATIENCE).unwrap()).collect()
    }

    /// Messages in a topic, where nothing was transactional or compacted.
    pub fn count(&self, topic: &str) -> u64 {
        self.watermarks(topic).into_iter().map(|(low, high)| (high - low) as u64).sum()
    }

    /// Every message that a reader may see, by partition and offset.
    pub fn consume_all(&self, topic: &str) -> Vec<Record> {
        let client: BaseConsumer = self.client().set("enable.partition.eof", "true").create().unwrap();
        let mut open = self.watermarks(topic).len();
        let mut list = TopicPartitionList::new();
        for partition in 0..open {
            list.add_partition_offset(topic, partition as i32, Offset::Beginning).unwrap();
        }
        client.assign(&list).unwrap();
        let (mut records, began) = (Vec::new(), Instant::now());
        while open > 0 {
            assert!(began.elapsed() < PATIENCE, "the end of {topic} never came");
            match client.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => records.push(Record {
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    headers: message.headers().map_or_else(Vec::new, |headers| {
                        headers.iter().map(|h| (h.key.to_string(), h.value.map(<[u8]>::to_vec))).collect()
                    }),
                    timestamp: message.timestamp().to_millis(),
                    partition: Some(message.partition()),
                    offset: message.offset(),
                }),
                Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
                Some(Err(error)) => panic!("{error}"),
                None => {}
            }
        }
        records.sort_by_key(|record| (record.partition, record.offset));
        records
    }

    /// What a group has committed for a partition.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        let client: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let list = client.committed_offsets(list, PATIENCE).unwrap();
        list.elements()[0].offset().to_raw().filter(|offset| *offset >= 0)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.lock().unwrap().take() {
            self.signal(Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Waits until `done` says so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
