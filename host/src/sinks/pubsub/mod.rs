//! Publishes rows to a Pub/Sub topic, at least once: a row is visible when it is published, and an epoch is prepared when the
//! service has confirmed all of its rows. Pub/Sub has no transactions, so nothing can be held back until the checkpoint.

mod row;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::counted;
use crate::error::{Error, Result};
use crate::pubsub::{self, Access, full_name};
use crate::sink::{Committer, Identity, SinkConnector, Writer};

/// Settings of a Pub/Sub sink. Value and attributes of a row become data and attributes of a message.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The project of `topic`, unless that is a full name.
    pub project: Option<String>,
    /// The topic: `clicks`, or `projects/my-project/topics/clicks`.
    pub topic: String,
    /// Create the topic, if there is none.
    #[serde(default)]
    pub create: bool,
    /// A row's key becomes the message's ordering key: subscriptions with message ordering get a key's messages in order.
    #[serde(default)]
    pub ordering: bool,
    /// Name of an attribute that is given the row's key. Without it, and without `ordering`, the key isn't published.
    pub key_attribute: Option<String>,
    /// Where Pub/Sub is. Default: the emulator that PUBSUB_EMULATOR_HOST names, else Google's service.
    pub endpoint: Option<String>,
    /// The key file of a service account. Default: application default credentials.
    pub credentials: Option<PathBuf>,
}

/// A configured Pub/Sub sink.
pub struct Connector {
    config: Arc<Config>,
    topic: String,
    access: Access,
}

impl Connector {
    /// Checks the settings; connects to nothing.
    pub fn new(config: Config) -> Result<Connector> {
        let topic = full_name(config.project.as_deref(), "topics", &config.topic)?;
        if let Some(name) = config.key_attribute.as_deref()
            && let Some(why) = row::bad_name(name)
        {
            return Err(Error::config(format!("`key_attribute`: {why}")).with("found", name));
        }
        let access = Access::new(config.endpoint.as_deref(), config.credentials.as_deref())?;
        Ok(Connector { config: config.into(), topic, access })
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "pubsub"
    }

    fn transactional(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<()> {
        match pubsub::topic_exists(&self.access, &self.topic).await? || self.config.create {
            true => Ok(()),
            false => Err(Error::config("there is no such topic: create it, mend the name, or have it created by `create: true`")
                .with("topic", &self.topic)),
        }
    }

    async fn create(&self) -> Result<()> {
        match self.config.create && !pubsub::topic_exists(&self.access, &self.topic).await? {
            true => pubsub::create_topic(&self.access, &self.topic).await,
            false => Ok(()),
        }
    }

    async fn writer(&self, _identity: &Identity, _worker: u32) -> Result<Box<dyn Writer>> {
        Ok(Box::new(writer::Publishing::open(self).await?))
    }

    async fn committer(&self, _identity: &Identity) -> Result<Box<dyn Committer>> {
        Ok(Box::new(counted::Committer))
    }
}
