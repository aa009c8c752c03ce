//! Dead letters that are read again: a source over messages in memory, for replays. Owns the order in which they are
//! handed out; where they come from is the replay's.

use async_trait::async_trait;

use super::lines::BATCH_ROWS;
use crate::batch::Batch;
use crate::error::Result;
use crate::source::{self, Position, Slice, SourceConnector};
use crate::watermark::Progress;

/// The one partition, as positions call it.
const PARTITION: &str = "letters";

/// Letters that are read once, in order.
pub struct Connector(Batch);

impl Connector {
    /// Reads these: the same ones at each start of its log.
    pub fn new(letters: Batch) -> Connector {
        Connector(letters)
    }
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "letters"
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn start(&self, _task: u32, _tasks: u32) -> Result<Position> {
        let mut position = Position::default();
        position.set(PARTITION, 0);
        Ok(position)
    }

    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn source::Source>> {
        let owned = slice.owns(0);
        let at = match owned {
            true => position.integer(PARTITION).map_or(0, |at| at.max(0) as usize).min(self.0.len()),
            false => self.0.len(),
        };
        Ok(Box::new(Source { letters: self.0.clone(), at, owned }))
    }
}

struct Source {
    letters: Batch,
    at: usize,
    owned: bool,
}

#[async_trait]
impl source::Source for Source {
    async fn next(&mut self) -> Result<Option<Batch>> {
        let length = BATCH_ROWS.min(self.letters.len() - self.at);
        if length == 0 {
            return Ok(None);
        }
        let batch = self.letters.slice(self.at, length);
        self.at += length;
        Ok(Some(batch))
    }

    fn position(&self) -> Position {
        let mut position = Position::default();
        if self.owned {
            position.set(PARTITION, self.at as i64);
        }
        position
    }

    fn progress(&self) -> Vec<Progress> {
        // Replays have no windows, so nobody goes by it.
        Vec::new()
    }

    async fn ack(&mut self, _position: &Position) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    #[tokio::test]
    async fn letters_are_read_once_from_any_position_on() {
        let mut builder = BatchBuilder::new(0, 0);
        let count = BATCH_ROWS + 10;
        for offset in 0..count {
            builder.push(None, Some(b"x"), Origin { partition: 3, offset: offset as i64 * 7, published: 1 });
        }
        let connector = Connector::new(builder.finish(0));
        let mut position = connector.start(0, 1).await.unwrap();
        let mut seen = Vec::new();
        // Opened anew after each batch, as after a crash.
        while let Some(batch) = {
            let mut source = connector.open(Slice::WHOLE, &position).await.unwrap();
            let batch = source.next().await.unwrap();
            position = source.position();
            batch
        } {
            seen.extend(batch.offsets.iter().copied());
        }
        assert_eq!(seen, (0..count as i64).map(|n| n * 7).collect::<Vec<_>>());
        let other = Slice { task: 0, tasks: 1, worker: 1, workers: 2 };
        let mut source = connector.open(other, &Position::default()).await.unwrap();
        assert!(source.next().await.unwrap().is_none(), "the other worker has none of them");
        assert_eq!(source.position(), Position::default());
    }
}
