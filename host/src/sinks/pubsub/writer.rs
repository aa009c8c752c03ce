//! One worker's writer: hands messages to Google's publisher, which sends them in requests of many and tries again what passes,
//! and waits for its confirmations. Holds no more than a bounded number of messages unconfirmed.

use std::collections::{HashSet, VecDeque};

use async_trait::async_trait;
use google_cloud_pubsub::client::Publisher;
use google_cloud_pubsub::error::PublishError;
use google_cloud_pubsub::publisher::PublishFuture;
use xxhash_rust::xxh3::xxh3_64;

use super::Connector;
use super::row::{self, Keys};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::pubsub::Access;
use crate::sink::{Epoch, Prepared, Writer};
use crate::sinks::counted::Count;

/// Unconfirmed messages, and their bytes, that a worker holds.
const MESSAGES_MAX: usize = 20_000;
const BYTES_MAX: usize = 64 << 20;
/// The publisher keeps a task for each ordering key that it has seen: beyond so many a new one is made.
const KEYS_MAX: usize = 10_000;

/// See the module.
pub struct Publishing {
    access: Access,
    topic: String,
    publisher: Publisher,
    keys: Keys,
    /// In the order of publishing, with their bytes.
    unconfirmed: VecDeque<(PublishFuture, usize)>,
    bytes: usize,
    /// Hashes of the ordering keys that the publisher has seen.
    seen: HashSet<u64>,
    count: Count,
}

impl Publishing {
    /// Makes a publisher. It connects by itself.
    pub async fn open(connector: &Connector) -> Result<Publishing> {
        let (access, topic) = (connector.access.clone(), connector.topic.clone());
        let keys = Keys { ordering: connector.config.ordering, attribute: connector.config.key_attribute.clone() };
        Ok(Publishing {
            publisher: access.publisher(&topic).await?,
            access,
            topic,
            keys,
            unconfirmed: VecDeque::new(),
            bytes: 0,
            seen: HashSet::new(),
            count: Count::default(),
        })
    }

    /// Waits until no more than so much is unconfirmed.
    async fn confirm(&mut self, messages: usize, bytes: usize) -> Result<()> {
        while self.unconfirmed.len() > messages || self.bytes > bytes {
            let Some((published, of)) = self.unconfirmed.pop_front() else { break };
            published.await.map_err(|e| self.failure(e))?;
            self.bytes -= of;
        }
        Ok(())
    }

    /// Why a message was not published. The pipeline starts again from its checkpoint then, with a new publisher, for which no key is paused:
    /// a key's messages are published again in order, from the first that was not confirmed or before.
    fn failure(&self, error: PublishError) -> Error {
        let doing = "cannot publish";
        match error {
            PublishError::Rpc(error) => self.access.explain(doing, error).with("topic", &self.topic),
            other => Error::transient(doing).with("topic", &self.topic).because(other),
        }
    }

    async fn make_room(&mut self, key: &str) -> Result<()> {
        if !key.is_empty() && self.seen.insert(xxh3_64(key.as_bytes())) && self.seen.len() > KEYS_MAX {
            self.publisher.flush().await;
            self.confirm(0, 0).await?;
            self.publisher = self.access.publisher(&self.topic).await?;
            self.seen.clear();
        }
        self.confirm(MESSAGES_MAX, BYTES_MAX).await
    }
}

#[async_trait]
impl Writer for Publishing {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        // The payloads are not copied: messages share the batch's buffer.
        let values = row::payloads(&batch);
        let (mut rows, mut reasons) = (Vec::new(), Vec::new());
        for row in 0..batch.len() {
            match row::message(&batch, row, &values, &self.keys) {
                Ok((message, bytes)) => {
                    self.make_room(&message.ordering_key).await?;
                    self.count.rows += 1;
                    self.count.bytes += message.data.len() as u64;
                    self.bytes += bytes;
                    self.unconfirmed.push_back((self.publisher.publish(message), bytes));
                }
                Err(reason) => {
                    rows.push(row as u32);
                    reasons.push(reason);
                }
            }
        }
        match rows.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(vec![Rejected { rows: batch.take(&rows)?, reasons, module: None }]),
        }
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        self.publisher.flush().await;
        self.confirm(0, 0).await?;
        Ok((self.count.prepared(), Vec::new()))
    }
}
