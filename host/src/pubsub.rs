//! What the Pub/Sub source and sink share: names, the way to the service (endpoint, credentials, connections), and what its
//! errors mean for a person. Messages are the connectors' own business.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use google_cloud_auth::credentials::{self, CacheableResource, Credentials};
use google_cloud_auth::errors::CredentialsError;
use google_cloud_pubsub::client::Publisher;
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::error::{Error, ErrorKind, Result};

/// The service itself.
const GOOGLE: &str = "https://pubsub.googleapis.com";
/// The variable that every client of Pub/Sub takes an emulator's address from.
const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Of one question.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The full name of a thing: `projects/PROJECT/KIND/NAME`. A name that is full already keeps its own project.
pub fn full_name(project: Option<&str>, kind: &str, name: &str) -> Result<String> {
    let bad = |why: &str| Error::config(why).with("name", name);
    let parts: Vec<&str> = name.split('/').collect();
    match (parts.as_slice(), project) {
        (["projects", project, of, last], _) if *of == kind && !project.is_empty() && !last.is_empty() => Ok(name.to_string()),
        ([last], Some(project)) if !last.is_empty() && !project.is_empty() && !project.contains('/') => {
            Ok(format!("projects/{project}/{kind}/{last}"))
        }
        ([last], None) if !last.is_empty() => Err(bad("give `project`, or the full name")),
        _ => Err(bad(&format!("not a name: write `clicks` with `project`, or `projects/my-project/{kind}/clicks`"))),
    }
}

/// The way to the service.
#[derive(Clone, Debug)]
pub struct Access {
    endpoint: String,
    key_file: Option<PathBuf>,
}

impl Access {
    /// `endpoint` and `key_file` are the pipeline file's. Without an endpoint it is the emulator's that the environment names, else Google's.
    pub fn new(endpoint: Option<&str>, key_file: Option<&Path>) -> Result<Access> {
        let emulator = || std::env::var(EMULATOR).ok().filter(|host| !host.is_empty());
        let endpoint = match (endpoint, emulator()) {
            (Some(endpoint), _) => endpoint.to_string(),
            (None, Some(host)) if host.contains("://") => host,
            (None, Some(host)) => format!("http://{host}"),
            (None, None) => GOOGLE.to_string(),
        };
        let parsed = url::Url::parse(&endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            return Err(Error::config(
                "not an address: write for example `https://pubsub.googleapis.com`, or `http://localhost:8085` for an emulator",
            )
            .with("endpoint", endpoint));
        }
        Ok(Access { endpoint, key_file: key_file.map(Path::to_path_buf) })
    }

    /// Credentials never travel unencrypted: an emulator is asked without any.
    fn credentials(&self) -> Result<Credentials> {
        if self.endpoint.starts_with("http://") {
            return Ok(credentials::anonymous::Builder::new().build());
        }
        let Some(path) = &self.key_file else {
            return credentials::Builder::default().build().map_err(|e| {
                Error::config("no Google credentials are found: give `credentials`, set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`")
                    .because(e)
            });
        };
        let bad = |why: &str| Error::config(why).with("credentials", path.display());
        let text = std::fs::read(path).map_err(|e| bad("cannot read the file of credentials").because(e))?;
        let key: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| bad("the file of credentials is not JSON").because(e))?;
        if key.get("type").and_then(serde_json::Value::as_str) != Some("service_account") {
            return Err(bad(
                "not the key of a service account: set GOOGLE_APPLICATION_CREDENTIALS for credentials of another type",
            ));
        }
        let built = credentials::service_account::Builder::new(key).build();
        built.map_err(|e| bad("the key of the service account is not complete: make a new one").because(e))
    }

    /// A connection, opened when it is used first.
    fn channel(&self) -> Result<Channel> {
        let bad =
            |e: tonic::transport::Error| Error::config("cannot connect to Pub/Sub").with("endpoint", &self.endpoint).because(e);
        let endpoint = Endpoint::from_shared(self.endpoint.clone()).map_err(bad)?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_PATIENCE)
            .tcp_nodelay(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(8 << 20)
            // A connection that died without a word is noticed.
            .http2_keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20))
            .keep_alive_while_idle(true);
        let endpoint = match self.endpoint.starts_with("https://") {
            true => endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(bad)?,
            false => endpoint,
        };
        Ok(endpoint.connect_lazy())
    }

    /// Google's client for publishing to a topic, by its full name.
    pub async fn publisher(&self, topic: &str) -> Result<Publisher> {
        let builder = Publisher::builder(topic).with_endpoint(self.endpoint.clone()).with_credentials(self.credentials()?);
        builder.build().await.map_err(|e| Error::config("cannot make a client of Pub/Sub").with("topic", topic).because(e))
    }

    /// What an error of Google's client means.
    pub fn explain(&self, doing: &str, error: Arc<google_cloud_pubsub::Error>) -> Error {
        let meant = match error.status() {
            _ if error.is_authentication() => no_token(doing),
            Some(status) => meaning(doing, Code::from(status.code as i32)),
            None => meaning(doing, Code::Unavailable),
        };
        meant.with("endpoint", &self.endpoint).because(error.to_string())
    }

    /// What to ask about `resource` (`subscription=projects/…`), over `connections` of their own.
    pub fn service(&self, resource: &str, connections: usize) -> Result<Service> {
        let channels = (0..connections.max(1)).map(|_| self.channel()).collect::<Result<Vec<_>>>()?;
        Ok(Service {
            channels: channels.into(),
            credentials: self.credentials()?,
            resource: resource.into(),
            endpoint: self.endpoint.as_str().into(),
        })
    }
}

fn no_token(doing: &str) -> Error {
    Error::config(format!(
        "{doing}: no token for the credentials: renew them with `gcloud auth application-default login`, or make a new key of the service account"
    ))
}

/// What a code means, and what a person can do about it.
fn meaning(doing: &str, code: Code) -> Error {
    let (kind, advice) = match code {
        Code::NotFound => {
            (ErrorKind::Config, "there is no such topic or subscription: create it, mend the name, or give `create`")
        }
        Code::PermissionDenied => (
            ErrorKind::Config,
            "the account may not: grant it roles/pubsub.subscriber and roles/pubsub.viewer to read, roles/pubsub.publisher to write, roles/pubsub.editor to create",
        ),
        Code::Unauthenticated => (
            ErrorKind::Config,
            "the credentials are refused: renew them with `gcloud auth application-default login`, or make a new key of the service account",
        ),
        Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented | Code::AlreadyExists | Code::OutOfRange => {
            (ErrorKind::Config, "Pub/Sub refuses it")
        }
        Code::ResourceExhausted => (ErrorKind::Transient, "a quota of the project is used up: see its quotas of Pub/Sub"),
        Code::Unavailable => {
            (ErrorKind::Transient, "Pub/Sub doesn't answer: check the network, `endpoint` and PUBSUB_EMULATOR_HOST")
        }
        _ => (ErrorKind::Transient, "Pub/Sub fails"),
    };
    Error::new(kind, format!("{doing}: {advice}"))
}

/// Creates a topic; it may be there by now.
pub async fn create_topic(access: &Access, topic: &str) -> Result<()> {
    let service = access.service(&format!("name={topic}"), 1)?;
    match service.ask("/google.pubsub.v1.Publisher/CreateTopic", named(topic)).await {
        Ok(_) => tracing::info!(topic, "created a topic"),
        Err(failed) if failed.exists() => {}
        Err(failed) => return Err(service.explain("cannot create the topic", &failed)),
    }
    Ok(())
}

/// Whether there is such a topic.
pub async fn topic_exists(access: &Access, topic: &str) -> Result<bool> {
    let service = access.service(&format!("topic={topic}"), 1)?;
    match service.ask("/google.pubsub.v1.Publisher/GetTopic", named(topic)).await {
        Ok(_) => Ok(true),
        Err(failed) if failed.not_found() => Ok(false),
        Err(failed) => Err(service.explain("cannot look up the topic", &failed)),
    }
}

/// Why a question was not answered.
#[derive(Debug)]
pub enum Failed {
    /// There is no token for it.
    Token(CredentialsError),
    /// The service or the way to it says no.
    Status(Status),
    /// The answer can't be read.
    Answer(Error),
}

impl Failed {
    /// Whether trying again may help.
    pub fn passes(&self) -> bool {
        match self {
            Failed::Token(error) => error.is_transient(),
            Failed::Answer(_) => true,
            Failed::Status(status) => meaning("", status.code()).kind() == ErrorKind::Transient,
        }
    }

    /// There is no such thing.
    pub fn not_found(&self) -> bool {
        matches!(self, Failed::Status(status) if status.code() == Code::NotFound)
    }

    /// There is such a thing already.
    pub fn exists(&self) -> bool {
        matches!(self, Failed::Status(status) if status.code() == Code::AlreadyExists)
    }

    /// What the service adds: a `google.rpc.Status`.
    pub fn details(&self) -> &[u8] {
        match self {
            Failed::Token(_) | Failed::Answer(_) => &[],
            Failed::Status(status) => status.details(),
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Token(error) => error.fmt(f),
            Failed::Answer(error) => error.fmt(f),
            Failed::Status(status) if status.message().is_empty() => write!(f, "{}", status.code()),
            Failed::Status(status) => write!(f, "{}: {}", status.code(), status.message()),
        }
    }
}

/// Connections to the service, for questions whose messages are encoded already.
#[derive(Clone)]
pub struct Service {
    channels: Arc<[Channel]>,
    credentials: Credentials,
    resource: Arc<str>,
    endpoint: Arc<str>,
}

impl Service {
    /// What a failure means.
    pub fn explain(&self, doing: &str, failed: &Failed) -> Error {
        let error = match failed {
            Failed::Token(error) if !error.is_transient() => no_token(doing),
            Failed::Token(_) => Error::transient(format!("{doing}: no token for the credentials just now")),
            Failed::Answer(_) => Error::transient(doing),
            Failed::Status(status) => meaning(doing, status.code()),
        };
        error
            .with("resource", self.resource.split_once('=').map_or("", |(_, name)| name))
            .with("endpoint", &self.endpoint)
            .because(failed.to_string())
    }

    async fn metadata(&self) -> Result<MetadataMap, Failed> {
        let headers = match self.credentials.headers(http::Extensions::new()).await.map_err(Failed::Token)? {
            CacheableResource::New { data, .. } => data,
            CacheableResource::NotModified => http::HeaderMap::new(),
        };
        let mut metadata = MetadataMap::from_headers(headers);
        // Routes the request to where the resource lives: <https://google.aip.dev/client-libraries/4222>.
        let encoded = self
            .resource
            .replace('/', "%2F")
            .parse()
            .map_err(|_| Failed::Status(Status::invalid_argument("the name has odd characters")))?;
        metadata.insert("x-goog-request-params", encoded);
        Ok(metadata)
    }

    fn grpc(&self, connection: usize) -> Grpc<Channel> {
        let channel = self.channels[connection % self.channels.len()].clone();
        // An answer holds whole messages, each of up to 10 MB.
        Grpc::new(channel).max_decoding_message_size(64 << 20)
    }

    /// Asks one question.
    pub async fn unary(&self, path: &'static str, body: Bytes, patience: Duration) -> Result<Bytes, Failed> {
        let mut request = tonic::Request::new(body);
        *request.metadata_mut() = self.metadata().await?;
        request.set_timeout(patience);
        let asked = async {
            let mut grpc = self.grpc(0);
            grpc.ready().await.map_err(|e| Status::unavailable(causes(&e)))?;
            grpc.unary(request, PathAndQuery::from_static(path), Plain).await
        };
        match tokio::time::timeout(patience, asked).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(Failed::Status),
            Err(_) => Err(Failed::Status(Status::unavailable("no answer in time"))),
        }
    }

    /// Asks until there is an answer, or trying again is no use.
    pub async fn ask(&self, path: &'static str, body: Bytes) -> Result<Bytes, Failed> {
        const TRIES: u32 = 4;
        let mut tried = 1;
        loop {
            match self.unary(path, body.clone(), PATIENCE).await {
                Err(failed) if failed.passes() && tried < TRIES => {
                    tokio::time::sleep(Duration::from_millis(200 << tried)).await;
                    tried += 1;
                }
                answer => return answer,
            }
        }
    }

    /// Opens a stream in both directions, on a connection of its own as far as there are some.
    pub async fn stream<S>(&self, path: &'static str, requests: S, connection: usize) -> Result<Streaming<Bytes>, Failed>
    where
        S: futures::Stream<Item = Bytes> + Send + 'static,
    {
        let mut request = tonic::Request::new(requests);
        *request.metadata_mut() = self.metadata().await?;
        let mut grpc = self.grpc(connection);
        grpc.ready().await.map_err(|e| Failed::Status(Status::unavailable(causes(&e))))?;
        let answers = grpc.streaming(request, PathAndQuery::from_static(path), Plain).await.map_err(Failed::Status)?;
        Ok(answers.into_inner())
    }
}

/// Writes a number as the encoding has it: <https://protobuf.dev/programming-guides/encoding>.
pub fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

/// Writes a field that is a number.
pub fn put_number(out: &mut BytesMut, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

/// Writes a field that is a text.
pub fn put_text(out: &mut BytesMut, field: u64, value: &str) {
    put_varint(out, field << 3 | 2);
    put_varint(out, value.len() as u64);
    out.put_slice(value.as_bytes());
}

/// A request that names one thing, and a `Topic` with nothing but its name.
pub fn named(name: &str) -> Bytes {
    let mut out = BytesMut::with_capacity(128);
    put_text(&mut out, 1, name);
    out.freeze()
}

/// An error with all that caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Messages as they are: the connectors read and write them in place.
#[derive(Clone, Copy)]
struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_with_a_project_or_full() {
        assert_eq!(full_name(Some("p"), "topics", "t").unwrap(), "projects/p/topics/t");
        assert_eq!(full_name(None, "topics", "projects/q/topics/t").unwrap(), "projects/q/topics/t");
        assert_eq!(full_name(Some("p"), "topics", "projects/q/topics/t").unwrap(), "projects/q/topics/t");
        assert_eq!(full_name(None, "topics", "t").unwrap_err().to_string(), "give `project`, or the full name name=t");
        for wrong in ["", "a/b", "projects/p/subscriptions/s", "projects//topics/t"] {
            let error = full_name(Some("p"), "topics", wrong).unwrap_err();
            assert!(error.to_string().contains("projects/my-project/topics/clicks"), "{error}");
        }
    }

    #[test]
    fn an_address_is_a_url() {
        assert_eq!(Access::new(Some("http://localhost:8085"), None).unwrap().endpoint, "http://localhost:8085");
        for wrong in ["localhost:8085", "ftp://a", "http://"] {
            assert!(Access::new(Some(wrong), None).unwrap_err().to_string().contains("not an address"), "{wrong}");
        }
    }

    #[test]
    fn credentials_that_cannot_be_used_are_named_before_anything_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        let refusal = |content: Option<&str>| {
            content.iter().for_each(|content| std::fs::write(&path, content).unwrap());
            let access = Access::new(Some("https://pubsub.googleapis.com"), Some(&path)).unwrap();
            let error = access.credentials().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            error.to_string()
        };
        assert!(refusal(None).contains("cannot read the file of credentials"));
        assert!(refusal(Some("{")).contains("is not JSON"));
        assert!(refusal(Some(r#"{"type": "authorized_user"}"#)).contains("not the key of a service account"));
        assert!(refusal(Some(r#"{"type": "service_account"}"#)).contains("is not complete"));
    }

    #[test]
    fn what_a_person_can_mend_stops_and_what_passes_is_tried_again() {
        let kind = |code| meaning("x", code).kind();
        for code in
            [Code::NotFound, Code::PermissionDenied, Code::Unauthenticated, Code::InvalidArgument, Code::FailedPrecondition]
        {
            assert_eq!(kind(code), ErrorKind::Config, "{code}");
        }
        for code in
            [Code::Unavailable, Code::DeadlineExceeded, Code::ResourceExhausted, Code::Aborted, Code::Internal, Code::Unknown]
        {
            assert_eq!(kind(code), ErrorKind::Transient, "{code}");
        }
        assert!(meaning("cannot pull", Code::PermissionDenied).to_string().contains("roles/pubsub.subscriber"));
    }
}
