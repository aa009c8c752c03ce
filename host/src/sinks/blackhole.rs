//! The `blackhole` sink: takes everything, counts it and forgets it. For benchmarks, and for routes
//! that are dropped on purpose. Takes part in exactly-once, since there is nothing that could be there twice.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::batch::{Batch, Rejected};
use crate::error::Result;
use crate::sink::{self, CommitInfo, Committed, Epoch, Identity, Prepared, Recovered, SinkConnector};

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
        Ok(Box::new(Writer { rows: 0, bytes: 0 }))
    }

    async fn committer(&self, _identity: &Identity) -> Result<Box<dyn sink::Committer>> {
        Ok(Box::new(Committer))
    }
}

struct Writer {
    rows: u64,
    bytes: u64,
}

#[async_trait]
impl sink::Writer for Writer {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        self.rows += batch.len() as u64;
        self.bytes += batch.bytes();
        Ok(Vec::new())
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        let (rows, bytes) = (std::mem::take(&mut self.rows), std::mem::take(&mut self.bytes));
        Ok(((rows > 0).then(|| Prepared(json!({"rows": rows, "bytes": bytes}))), Vec::new()))
    }
}

struct Committer;

#[async_trait]
impl sink::Committer for Committer {
    async fn commit(&mut self, _epoch: Epoch, prepared: &[Prepared], _info: &CommitInfo) -> Result<Committed> {
        let sum = |name: &str| prepared.iter().filter_map(|part| part.0[name].as_u64()).sum();
        Ok(Committed { rows: sum("rows"), files: 0, bytes: sum("bytes") })
    }

    /// Never `Committed`: that would contradict another sink that has lost its part.
    async fn recover(&mut self, _epoch: Epoch, _prepared: &[Prepared]) -> Result<Recovered> {
        Ok(Recovered::NeedsCommit)
    }

    async fn discard(&mut self, _prepared: &[Prepared]) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};
    use crate::sink::{Committer as _, Writer as _};

    #[tokio::test]
    async fn rows_are_counted_once_an_epoch() {
        let mut writer = Writer { rows: 0, bytes: 0 };
        assert_eq!(writer.prepare(Epoch(1)).await.unwrap().0, None);
        let mut builder = BatchBuilder::new(0, 0);
        builder.push(Some(b"k"), Some(b"value"), Origin::default());
        builder.push(None, None, Origin::default());
        writer.write(builder.finish(0)).await.unwrap();
        let prepared = writer.prepare(Epoch(2)).await.unwrap().0.unwrap();
        assert_eq!(writer.prepare(Epoch(3)).await.unwrap().0, None);
        let committed = Committer.commit(Epoch(2), &[prepared.clone(), prepared], &CommitInfo::default()).await.unwrap();
        assert_eq!(committed, Committed { rows: 4, files: 0, bytes: 12 });
    }
}
