//! The committer of sinks that have nothing to make visible: what they wrote is out, or gone, and only counted.

use async_trait::async_trait;
use serde_json::json;

use crate::error::Result;
use crate::sink::{self, CommitInfo, Committed, Epoch, Prepared, Recovered};

/// Rows and bytes that a writer has taken since its last `prepare`.
#[derive(Default)]
pub struct Count {
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    /// What `prepare` answers: the count, which begins anew.
    pub fn prepared(&mut self) -> Option<Prepared> {
        let Count { rows, bytes } = std::mem::take(self);
        (rows > 0).then(|| Prepared(json!({"rows": rows, "bytes": bytes})))
    }
}

/// Adds up what the writers counted.
pub struct Committer;

#[async_trait]
impl sink::Committer for Committer {
    async fn commit(&mut self, _epoch: Epoch, prepared: &[Prepared], _info: &CommitInfo) -> Result<Committed> {
        let sum = |name: &str| prepared.iter().filter_map(|part| part.0[name].as_u64()).sum();
        Ok(Committed { rows: sum("rows"), files: 0, bytes: sum("bytes") })
    }

    /// Never `Committed`: that would contradict another sink that has lost its part, and goes back.
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
    use crate::sink::Committer as _;

    #[tokio::test]
    async fn rows_are_counted_once_an_epoch() {
        let mut count = Count { rows: 2, bytes: 6 };
        let prepared = count.prepared().unwrap();
        assert_eq!(count.prepared(), None);
        let committed = Committer.commit(Epoch(2), &[prepared.clone(), prepared], &CommitInfo::default()).await.unwrap();
        assert_eq!(committed, Committed { rows: 4, files: 0, bytes: 12 });
    }
}
