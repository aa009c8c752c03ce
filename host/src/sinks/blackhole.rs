//! The `blackhole` sink: takes everything, counts it and forgets it. For benchmarks, and for routes
//! that are dropped on purpose. Takes part in exactly-once, since there is nothing that could be there twice.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::counted::{Committer, Count};
use crate::batch::{Batch, Rejected};
use crate::error::Result;
use crate::sink::{self, Epoch, Identity, Prepared, SinkConnector};

/// Settings of the `blackhole` sink: none.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// A configured blackhole.
pub struct Connector;

impl Connector {
    /// Nothing can be wrong.
    pub fn new(_config: Config, _name: impl Into<String>) -> Result<Connector> {
        Ok(Connector)
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "blackhole"
    }

    fn transactional(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn writer(&self, _identity: &Identity, _worker: u32) -> Result<Box<dyn sink::Writer>> {
        Ok(Box::new(Writer::default()))
    }

    async fn committer(&self, _identity: &Identity) -> Result<Box<dyn sink::Committer>> {
        Ok(Box::new(Committer))
    }
}

#[derive(Default)]
struct Writer {
    count: Count,
}

#[async_trait]
impl sink::Writer for Writer {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        self.count.rows += batch.len() as u64;
        self.count.bytes += batch.bytes();
        Ok(Vec::new())
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        Ok((self.count.prepared(), Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::{BatchBuilder, Origin};
    use crate::sink::Writer as _;

    #[tokio::test]
    async fn an_epochs_rows_and_bytes_are_counted() {
        let mut writer = Writer::default();
        assert_eq!(writer.prepare(Epoch(1)).await.unwrap().0, None);
        let mut builder = BatchBuilder::new(0, 0);
        builder.push(Some(b"k"), Some(b"value"), Origin::default());
        builder.push(None, None, Origin::default());
        writer.write(builder.finish(0)).await.unwrap();
        assert_eq!(writer.prepare(Epoch(2)).await.unwrap().0, Some(Prepared(json!({"rows": 2, "bytes": 6}))));
        assert_eq!(writer.prepare(Epoch(3)).await.unwrap().0, None);
    }
}
