//! What the Kafka source and the Kafka sink share: librdkafka's settings, its logs and statistics, questions to
//! the brokers, and what its errors mean for a person. Reads and writes no message.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

/// How long a question to the brokers may take before it counts as unanswered.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The value of a librdkafka property: text, a number or a flag.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Property {
    /// `SASL_SSL`
    Text(String),
    /// `64`
    Number(serde_json::Number),
    /// `true`
    Flag(bool),
}

/// Hidden: it may be a password.
impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Properties of librdkafka by its own names.
pub type Properties = BTreeMap<String, Property>;

/// Properties that neither source nor sink lets a person set, with the reason.
const REFUSED: [(&str, &str); 3] = [
    ("bootstrap.servers", "write it as `brokers`"),
    ("metadata.broker.list", "write it as `brokers`"),
    ("statistics.interval.ms", "lag and the health of the connection are read from the statistics"),
];

/// Settings for librdkafka: `defaults`, over which go the person's properties. Those that `refused` names are refused.
pub fn settings(
    brokers: &str,
    properties: &Properties,
    defaults: &[(&str, &str)],
    refused: &[(&str, &str)],
) -> Result<ClientConfig> {
    if brokers.split(',').any(|broker| broker.trim().is_empty()) {
        return Err(Error::config("expected `host:port`, several separated by commas").with("brokers", format!("`{brokers}`")));
    }
    let mut config = ClientConfig::new();
    config.set_log_level(RDKafkaLogLevel::Info);
    config.set("bootstrap.servers", brokers).set("client.id", "weir").set("socket.keepalive.enable", "true");
    // A broker that comes back is noticed within seconds.
    config.set("reconnect.backoff.max.ms", "2000");
    for (name, value) in defaults {
        config.set(*name, *value);
    }
    for (name, value) in properties {
        if let Some((_, reason)) = REFUSED.iter().chain(refused).find(|(refused, _)| refused == name) {
            return Err(Error::config("this property can't be set").with("property", name).because(*reason));
        }
        match value {
            Property::Text(text) => config.set(name, text),
            Property::Number(number) => config.set(name, number.to_string()),
            Property::Flag(flag) => config.set(name, flag.to_string()),
        };
    }
    config.create_native_config().map_err(|error| explain("cannot use the properties", error))?;
    Ok(config)
}

/// After how long without a broker the log says so; and how long until it says so again.
const ALONE: Duration = Duration::from_secs(10);
const STILL_ALONE: Duration = Duration::from_secs(60);

/// A client that asks, and that the source reads with.
pub type Client = BaseConsumer<Listener>;

/// Opens a client that only asks. It connects by itself, when it is first asked something.
pub fn ask(config: &ClientConfig, name: &str) -> Result<Client> {
    let mut config = config.clone();
    config.remove("group.id");
    config.create_with_context(Listener::new(name, &config)).map_err(|error| explain("cannot make a Kafka client", error))
}

/// Takes what librdkafka says outside of answers: logs, errors, statistics.
pub struct Listener {
    name: String,
    brokers: String,
    state: Mutex<State>,
    heard: AtomicU64,
}

/// What was heard last.
#[derive(Default)]
struct State {
    /// Why a broker could not be used.
    trouble: Option<(Code, String)>,
    /// Since when no broker is connected, and when the log last said so.
    alone_since: Option<Instant>,
    complained: Option<Instant>,
    /// Fresh statistics, until they are taken.
    statistics: Option<Statistics>,
}

impl Listener {
    /// A listener that says whose client it listens to.
    pub fn new(name: &str, config: &ClientConfig) -> Listener {
        let brokers = config.get("bootstrap.servers").unwrap_or_default().to_string();
        Listener { name: name.to_string(), brokers, state: Mutex::default(), heard: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many events were served: a poll that serves one ends without a message, whatever waits behind it.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    fn hear(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }

    /// The statistics that came since the last call.
    pub fn take_statistics(&self) -> Option<Statistics> {
        self.state().statistics.take()
    }

    /// Keeps track of whether any broker is connected, and says in the log why nothing moves.
    fn connected(&self, state: &mut State, connected: bool) {
        let name = &self.name;
        if connected {
            if state.complained.take().is_some() {
                tracing::info!(%name, "a Kafka broker is connected again");
            }
            (state.alone_since, state.trouble) = (None, None);
            return;
        }
        let since = state.alone_since.get_or_insert_with(Instant::now).elapsed();
        if since >= ALONE && state.complained.is_none_or(|at| at.elapsed() >= STILL_ALONE) {
            let reason = state.trouble.as_ref().map_or("none answers", |(_, reason)| reason.as_str());
            tracing::warn!(%name, brokers = %self.brokers, seconds = since.as_secs(), %reason, "waits for a Kafka broker");
            state.complained = Some(Instant::now());
        }
    }

    /// What `error` means, with the reason that librdkafka told apart from it.
    pub fn explain(&self, doing: &str, error: KafkaError) -> Error {
        let unreachable = |code| {
            matches!(
                code,
                Code::BrokerTransportFailure
                    | Code::OperationTimedOut
                    | Code::AllBrokersDown
                    | Code::Resolve
                    | Code::RequestTimedOut
            )
        };
        match (error.rdkafka_error_code(), &self.state().trouble) {
            (Some(code), Some((trouble, reason))) if unreachable(code) => {
                meaning(doing, *trouble).with("brokers", &self.brokers).because(reason.clone())
            }
            (Some(code), None) if unreachable(code) => meaning(doing, code).with("brokers", &self.brokers).because(error),
            _ => explain(doing, error),
        }
    }
}

impl ClientContext for Listener {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.hear();
        let name = &self.name;
        match level {
            RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => tracing::info!(%name, %facility, "{message}"),
            RDKafkaLogLevel::Debug => tracing::debug!(%name, %facility, "{message}"),
            // Even "emergencies" of a connection are things that the client recovers from by itself.
            _ => tracing::warn!(%name, %facility, "{message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.hear();
        // The log has it too.
        tracing::debug!(name = %self.name, %error, "{reason}");
        if let Some(code) = error.rdkafka_error_code() {
            let mut state = self.state();
            // "All brokers are down" follows upon the error that tells why: keep that one.
            if code != Code::AllBrokersDown || state.trouble.is_none() {
                state.trouble = Some((code, reason.to_string()));
            }
        }
    }

    fn stats_raw(&self, statistics: &[u8]) {
        self.hear();
        match serde_json::from_slice::<Statistics>(statistics) {
            Ok(statistics) => {
                let mut state = self.state();
                self.connected(&mut state, statistics.brokers.values().any(|broker| broker.state == "UP"));
                state.statistics = Some(statistics);
            }
            Err(error) => tracing::debug!(name = %self.name, %error, "cannot read librdkafka's statistics"),
        }
    }
}

impl ConsumerContext for Listener {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        self.hear();
        if let Err(error) = result {
            tracing::warn!(name = %self.name, %error, "cannot commit positions for tools");
        }
    }
}

/// The part of librdkafka's statistics that is used.
#[derive(Debug, Default, Deserialize)]
pub struct Statistics {
    brokers: HashMap<String, BrokerState>,
    topics: HashMap<String, TopicState>,
}

#[derive(Debug, Deserialize)]
struct BrokerState {
    state: String,
    #[serde(default)]
    nodeid: i32,
    /// Requests sent, by their kind.
    #[serde(default)]
    req: HashMap<String, i64>,
}

#[derive(Debug, Deserialize)]
struct TopicState {
    partitions: HashMap<String, PartitionState>,
}

/// A partition as a consumer's client sees it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct PartitionState {
    /// Where the next fetch begins. Negative before the first.
    #[serde(rename = "next_offset")]
    pub fetch: i64,
    /// The broker that leads it.
    #[serde(default)]
    pub leader: i32,
    /// The end behind the last finished transaction. Negative before the first fetch, and where transactions are ignored.
    ls_offset: i64,
    /// The end behind the last message. Negative before the first fetch.
    hi_offset: i64,
}

impl PartitionState {
    /// The end that the reader may see, once there was a fetch.
    pub fn end(&self) -> Option<i64> {
        [self.ls_offset, self.hi_offset].into_iter().find(|offset| *offset >= 0)
    }
}

impl Statistics {
    /// How many fetches were sent to each broker that is connected.
    pub fn fetches(&self) -> HashMap<i32, i64> {
        let up = self.brokers.values().filter(|broker| broker.state == "UP");
        up.map(|broker| (broker.nodeid, broker.req.get("Fetch").copied().unwrap_or(0))).collect()
    }

    /// What is known of a partition.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<PartitionState> {
        self.topics.get(topic)?.partitions.get(partition.to_string().as_str()).copied()
    }
}

/// What an error means for a person, where nothing more is known than the error.
pub fn explain(doing: &str, error: KafkaError) -> Error {
    match &error {
        // The value is not told: it may be a password.
        KafkaError::ClientConfig(_, description, property, _) => {
            Error::config("librdkafka refuses a property").with("property", property).because(description.clone())
        }
        KafkaError::ClientCreation(reason) => {
            Error::config("librdkafka refuses the properties: check `properties`").because(reason.clone())
        }
        _ => match error.rdkafka_error_code() {
            Some(code) => meaning(doing, code).because(error),
            None => Error::transient(doing).because(error),
        },
    }
}

/// What a code means, and what a person can do about it.
pub fn meaning(doing: &str, code: Code) -> Error {
    let (kind, advice) = match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            (ErrorKind::Config, "the broker refuses the credentials: check security.protocol and sasl.* under `properties`")
        }
        Code::SSL => (ErrorKind::Config, "no secure connection: check security.protocol and ssl.* under `properties`"),
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed | Code::GroupAuthorizationFailed => {
            (ErrorKind::Config, "the broker does not allow it: grant the user of `properties` the right")
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId => {
            (ErrorKind::Config, "there is no such topic or partition: create it, or mend the name")
        }
        Code::InvalidTopic => (ErrorKind::Config, "no topic can have this name: mend it"),
        Code::Resolve => {
            (ErrorKind::Transient, "the name of a broker is not known: check `brokers` and the broker's advertised.listeners")
        }
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut | Code::RequestTimedOut => (
            ErrorKind::Transient,
            "no broker answers: check that they run, `brokers`, their advertised.listeners, and security.protocol under `properties`",
        ),
        _ => return Error::new(kind_of(code), doing),
    };
    Error::new(kind, format!("{doing}: {advice}"))
}

fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::PolicyViolation | Code::InvalidPartitions | Code::InvalidReplicationFactor | Code::InvalidConfig => {
            ErrorKind::Config
        }
        _ => ErrorKind::Transient,
    }
}

/// The error of a question: first hears why, which librdkafka tells apart.
fn unanswered(client: &Client, doing: &str, error: KafkaError) -> Error {
    if client.assignment().map_or(true, |assigned| assigned.count() == 0) {
        (0..100).for_each(|_| drop(client.poll(Duration::ZERO)));
    }
    client.client().context().explain(doing, error)
}

/// How long each attempt at a question waits. Between them the client hears what librdkafka tells apart, so that
/// wrong credentials are told after a second.
const ATTEMPTS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(6)];

/// Asks until there is an answer, [`PATIENCE`] is over, or a broker has refused for a reason that stays.
fn answer<T>(client: &Client, doing: &str, ask: impl Fn(Duration) -> KafkaResult<T>) -> Result<T> {
    let mut refusal = Error::transient(doing);
    for wait in ATTEMPTS {
        match ask(wait) {
            Ok(answer) => return Ok(answer),
            Err(error) => refusal = unanswered(client, doing, error),
        }
        if refusal.kind() != ErrorKind::Transient {
            break;
        }
    }
    Err(refusal)
}

/// How many partitions a topic has; `None` without the topic. Blocks.
pub fn partitions(client: &Client, topic: &str) -> Result<Option<i32>> {
    let doing = "cannot ask for the topic";
    let metadata = answer(client, doing, |wait| client.fetch_metadata(Some(topic), wait)).map_err(|e| e.with("topic", topic))?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
    match found.error().map(Code::from) {
        Some(Code::UnknownTopicOrPartition) => Ok(None),
        Some(code) => Err(explain(doing, KafkaError::MetadataFetch(code)).with("topic", topic)),
        None => Ok(Some(found.partitions().len() as i32)),
    }
}

/// The partitions of every topic whose name `wanted` takes, in order. Blocks.
pub fn topics(client: &Client, wanted: impl Fn(&str) -> bool) -> Result<BTreeMap<String, i32>> {
    let metadata = answer(client, "cannot list the topics", |wait| client.fetch_metadata(None, wait))?;
    let wanted = metadata.topics().iter().filter(|topic| topic.error().is_none() && wanted(topic.name()));
    Ok(wanted.map(|topic| (topic.name().to_string(), topic.partitions().len() as i32)).collect())
}

/// The first offset of each partition at or after a moment: of [`Offset::Beginning`], [`Offset::End`], or of
/// `Offset::Offset(ms)`; negative where no message is so young. One question for each broker. Blocks.
pub fn offsets<'a>(
    client: &Client,
    partitions: impl Iterator<Item = (&'a str, i32)>,
    moment: Offset,
) -> Result<HashMap<(String, i32), i64>> {
    let doing = "cannot ask for offsets";
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition_offset(topic, partition, moment).map_err(|e| explain(doing, e))?;
    }
    if list.count() == 0 {
        return Ok(HashMap::new());
    }
    let list = answer(client, doing, |wait| client.offsets_for_times(list.clone(), wait))?;
    let mut found = HashMap::with_capacity(list.count());
    for element in list.elements() {
        let at = |e: Error| e.with("topic", element.topic()).with("partition", element.partition());
        element.error().map_err(|e| at(unanswered(client, doing, e)))?;
        let offset = match element.offset() {
            Offset::Offset(offset) => offset,
            Offset::End => -1,
            other => return Err(at(Error::transient(doing)).with("answer", format!("{other:?}"))),
        };
        found.insert((element.topic().to_string(), element.partition()), offset);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(name: &str, value: &str) -> Properties {
        BTreeMap::from([(name.to_string(), Property::Text(value.to_string()))])
    }

    fn refusal(brokers: &str, properties: &Properties) -> String {
        let error = settings(brokers, properties, &[], &[("group.id", "there is none")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn properties_of_librdkafka_pass_through_by_their_own_names() {
        let properties: Properties =
            serde_json::from_str(r#"{"security.protocol": "SASL_SSL", "fetch.wait.max.ms": 50, "check.crcs": false}"#).unwrap();
        let config = settings("a:1,b:2", &properties, &[("check.crcs", "true")], &[]).unwrap();
        let value = |name| config.get(name).unwrap();
        assert_eq!((value("fetch.wait.max.ms"), value("check.crcs"), value("security.protocol")), ("50", "false", "SASL_SSL"));
        assert_eq!(value("bootstrap.servers"), "a:1,b:2");
    }

    #[test]
    fn a_property_that_librdkafka_does_not_know_is_named() {
        let text = refusal("a:1", &property("fetch.wait.max", "50"));
        assert!(text.contains("librdkafka refuses a property property=fetch.wait.max"), "{text}");
    }

    #[test]
    fn a_property_that_would_break_a_promise_is_refused_with_the_reason() {
        assert_eq!(refusal("a:1", &property("group.id", "g")), "this property can't be set property=group.id: there is none");
        assert!(refusal("a:1", &property("bootstrap.servers", "b:1")).contains("write it as `brokers`"));
        assert!(refusal("", &Properties::new()).contains("expected `host:port`"));
    }

    #[test]
    fn a_wrong_value_is_refused_without_being_told_since_it_may_be_a_password() {
        let error = explain(
            "x",
            KafkaError::ClientConfig(
                rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_INVALID,
                "no".into(),
                "a".into(),
                "secret".into(),
            ),
        );
        assert_eq!(error.to_string(), "librdkafka refuses a property property=a: no");
        assert_eq!(format!("{:?}", Property::Text("secret".into())), "…");
    }

    #[test]
    fn the_reason_that_came_apart_explains_a_question_without_an_answer() {
        let config = settings("a:1", &Properties::new(), &[], &[]).unwrap();
        let listener = Listener::new("kafka", &config);
        listener.error(KafkaError::Global(Code::Authentication), "SASL authentication error: wrong password");
        listener.error(KafkaError::Global(Code::AllBrokersDown), "1/1 brokers are down");
        let error = listener.explain("cannot ask for the topic", KafkaError::MetadataFetch(Code::BrokerTransportFailure));
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(
            text.contains("refuses the credentials") && text.contains("wrong password") && text.contains("brokers=a:1"),
            "{text}"
        );
    }

    #[test]
    fn statistics_tell_offsets_and_whether_any_broker_is_connected() {
        let config = settings("a:1", &Properties::new(), &[], &[]).unwrap();
        let listener = Listener::new("kafka", &config);
        listener.stats_raw(br#"{"brokers": {"a:1/1": {"state": "DOWN", "x": 1}}, "topics": {}}"#);
        assert!(listener.state().alone_since.is_some());
        listener.stats_raw(
            br#"{"brokers": {"a:1/1": {"state": "UP"}},
                 "topics": {"t": {"partitions": {"3": {"next_offset": 5, "ls_offset": 9, "hi_offset": 9}}}}}"#,
        );
        assert!(listener.state().alone_since.is_none());
        let partition = listener.take_statistics().unwrap().partition("t", 3).unwrap();
        assert_eq!((partition.fetch, partition.end()), (5, Some(9)));
        assert!(listener.take_statistics().is_none());
    }
}
