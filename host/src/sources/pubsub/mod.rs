//! Reads a Pub/Sub subscription by StreamingPull. A message stays leased until the manifest that holds it is durable, then it is
//! acknowledged; one that comes again is dropped by its id, also after a restart. docs/decisions/0025 says why the streams are
//! opened here and not by Google's subscriber.

mod hub;
mod ids;
mod ledger;
mod running;
mod subscription;
#[cfg(test)]
mod tests;

mod wire;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;

use self::hub::Hub;
use self::ledger::Kept;
use crate::error::{Error, Result};
use crate::pubsub::{Access, full_name};
use crate::source::{Position, Slice, Source, SourceConnector};
use crate::units::{Size, Span};

/// Settings of a Pub/Sub source.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The project of `subscription`, unless that is a full name.
    pub project: Option<String>,
    /// The subscription: `clicks`, or `projects/my-project/subscriptions/clicks`.
    pub subscription: String,
    /// Create the subscription at the first start, if there is none.
    pub create: Option<Create>,
    /// Where Pub/Sub is. Default: the emulator that PUBSUB_EMULATOR_HOST names, else Google's service.
    pub endpoint: Option<String>,
    /// The key file of a service account. Default: application default credentials.
    pub credentials: Option<PathBuf>,
    /// How long a message is ours without a word from us, 10 s to 10 min: after a crash it comes again no later than that.
    /// Leases are extended for as long as the pipeline runs.
    #[serde(default = "default_lease")]
    pub lease: Span,
    /// Bytes of messages that may be out unacknowledged, over all streams. At half of it an epoch is ended early.
    #[serde(default = "default_outstanding_bytes")]
    pub max_outstanding_bytes: Size,
    /// Messages that may be out unacknowledged, over all streams. At half of it an epoch is ended early.
    #[serde(default = "default_outstanding_messages")]
    pub max_outstanding_messages: u64,
    /// Streams that messages are pulled by; Pub/Sub gives each some 10 MB/s. A subscription with message ordering has one.
    /// Default: one for each worker.
    pub streams: Option<usize>,
    /// How long ids are remembered behind a confirmed acknowledgement, where the subscription's own promise is not enough:
    /// on ordinary subscriptions and on those with message ordering. About 60 bytes of memory for each message.
    #[serde(default = "default_dedupe_window")]
    pub dedupe_window: Span,
    /// How long the streams may be silent while messages wait before they are opened anew.
    #[serde(default = "default_stall_after")]
    pub stall_after: Span,
    /// Name of an attribute that is given the id of each message.
    pub message_id_attribute: Option<String>,
}

/// A subscription to create.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// The topic; created too, if there is none.
    pub topic: String,
    /// The subscription's own deadline, 10 s to 10 min. The streams use `lease`.
    #[serde(default = "default_lease")]
    pub ack_deadline: Span,
    /// Messages of one ordering key come in order. The key becomes the message's key.
    #[serde(default)]
    pub ordering: bool,
    /// With exactly-once delivery.
    #[serde(default = "yes")]
    pub exactly_once: bool,
    /// Only messages whose attributes pass, for example `attributes.kind = "click"`.
    #[serde(default)]
    pub filter: String,
    /// A topic to which Pub/Sub moves messages that came `max_delivery_attempts` times without an acknowledgement. Restarts count as
    /// attempts.
    pub dead_letter_topic: Option<String>,
    /// 5 to 100.
    #[serde(default = "default_attempts")]
    pub max_delivery_attempts: u64,
}

fn default_lease() -> Span {
    Span(Duration::from_secs(60))
}

fn default_outstanding_bytes() -> Size {
    Size(256 << 20)
}

fn default_outstanding_messages() -> u64 {
    200_000
}

fn default_dedupe_window() -> Span {
    Span(Duration::from_secs(600))
}

fn default_stall_after() -> Span {
    Span(Duration::from_secs(30))
}

fn yes() -> bool {
    true
}

fn default_attempts() -> u64 {
    20
}

/// What the source is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Each message once: ids are kept with the checkpoint.
    ExactlyOnce,
    /// Each message at least once: ids are remembered only as long as their messages are underway.
    AtLeastOnce,
}

/// A configured Pub/Sub source.
pub struct Connector {
    settings: Arc<Settings>,
    /// What the life that is beginning takes up, and then the life.
    life: Mutex<Life>,
}

/// What all parts of the source need to know.
struct Settings {
    name: Arc<str>,
    config: Config,
    promise: Promise,
    subscription: String,
    access: Access,
}

#[derive(Default)]
struct Life {
    restored: Vec<(Kept, Vec<ledger::Id>, i64)>,
    hub: Weak<Hub>,
}

fn seconds_between(name: &'static str, span: Span, least: u64, most: u64) -> Result<u64> {
    let seconds = span.0.as_secs();
    if span.0.subsec_nanos() != 0 || !(least..=most).contains(&seconds) {
        return Err(Error::config(format!("`{name}` is whole seconds, from {least}s to {most}s")).with("found", span));
    }
    Ok(seconds)
}

impl Connector {
    /// Checks the settings; connects to nothing.
    pub fn new(config: Config, name: &str, promise: Promise, tasks: u32) -> Result<Connector> {
        if tasks > 1 && promise == Promise::ExactlyOnce {
            return Err(Error::config(
                "tasks that share a subscription can't tell what another has had: run a pipeline for each of several filtered subscriptions, or set `delivery: at-least-once`",
            )
            .with("tasks", tasks));
        }
        let subscription = full_name(config.project.as_deref(), "subscriptions", &config.subscription)?;
        seconds_between("lease", config.lease, 10, 600)?;
        if let Some(create) = &config.create {
            full_name(config.project.as_deref(), "topics", &create.topic)?;
            seconds_between("create.ack_deadline", create.ack_deadline, 10, 600)?;
            if !(5..=100).contains(&create.max_delivery_attempts) {
                return Err(Error::config("`create.max_delivery_attempts` is from 5 to 100"));
            }
        }
        if config.max_outstanding_messages == 0 || config.max_outstanding_bytes.0 == 0 {
            return Err(Error::config("`max_outstanding_messages` and `max_outstanding_bytes` must be more than nothing"));
        }
        if config.stall_after.0 < Duration::from_secs(1) {
            return Err(Error::config("`stall_after` is at least 1s"));
        }
        if config.streams.is_some_and(|streams| !(1..=256).contains(&streams)) {
            return Err(Error::config("`streams` is from 1 to 256"));
        }
        let access = Access::new(config.endpoint.as_deref(), config.credentials.as_deref())?;
        let settings = Settings { name: name.into(), config, promise, subscription, access };
        Ok(Connector { settings: Arc::new(settings), life: Mutex::default() })
    }

    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "pubsub"
    }

    async fn check(&self) -> Result<()> {
        match subscription::find(&self.settings).await? {
            Some(_) => Ok(()),
            None if self.settings.config.create.is_some() => Ok(()),
            None => Err(subscription::missing(&self.settings)),
        }
    }

    async fn start(&self, _task: u32, _tasks: u32) -> Result<Position> {
        if let (None, Some(create)) = (subscription::find(&self.settings).await?, &self.settings.config.create) {
            subscription::create(&self.settings, create).await?;
        }
        // A subscription remembers by itself where it stands.
        Ok(Position::default())
    }

    fn begin(&self, position: &Position, files: Vec<(String, Bytes)>) -> Result<()> {
        let mut restored = Vec::new();
        for (file, bytes) in files {
            let (ids, created_ms) = ids::read(&bytes).map_err(|e| e.with("file", &file))?;
            let confirmed_ms = position.integer(&Position::file(&file)).filter(|ms| *ms > 0);
            restored.push((Kept { file, confirmed_ms }, ids, created_ms));
        }
        *self.life() = Life { restored, hub: Weak::new() };
        Ok(())
    }

    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn Source>> {
        let running = self.life().hub.upgrade();
        let hub = match running {
            Some(hub) => hub,
            None => {
                let facts = subscription::open(&self.settings).await?;
                let mut life = self.life();
                let restored = std::mem::take(&mut life.restored);
                let hub = Hub::new(self.settings.clone(), facts, restored, slice.workers)?;
                life.hub = Arc::downgrade(&hub);
                hub
            }
        };
        Ok(Box::new(running::Part::open(hub, slice, position)?))
    }
}
