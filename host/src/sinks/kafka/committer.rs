//! Makes an exactly-once sink's epochs visible. All Kafka sinks of a task share one transaction: the first to be asked
//! commits it, the others find it done.

use std::sync::Arc;

use async_trait::async_trait;

use super::Connector;
use super::transaction::Transactions;
use crate::error::Result;
use crate::sink::{self, CommitInfo, Committed, Epoch, Identity, Prepared, Recovered};

/// The committer of one sink.
pub struct Committer {
    connector: Connector,
    transactions: Arc<Transactions>,
    identity: Identity,
}

impl Committer {
    /// Opens nothing.
    pub fn new(connector: &Connector, transactions: &Arc<Transactions>, identity: &Identity) -> Committer {
        Committer { connector: connector.clone(), transactions: transactions.clone(), identity: identity.clone() }
    }
}

#[async_trait]
impl sink::Committer for Committer {
    async fn commit(&mut self, epoch: Epoch, prepared: &[Prepared], _: &CommitInfo) -> Result<Committed> {
        self.transactions.open(&self.connector, &self.identity).await?.commit(epoch).await?;
        let rows = prepared.iter().filter_map(|part| part.0["rows"].as_u64()).sum();
        Ok(Committed { rows, ..Committed::default() })
    }

    async fn recover(&mut self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered> {
        self.transactions.open(&self.connector, &self.identity).await?.settled(epoch, prepared)
    }

    async fn discard(&mut self, _: &[Prepared]) -> Result<()> {
        self.transactions.open(&self.connector, &self.identity).await?.abort().await
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.transactions.end(&self.identity.attempt);
    }
}
