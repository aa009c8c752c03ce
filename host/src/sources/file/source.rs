//! One worker's files, read one after another on the threads for blocking work, a batch ahead of the worker.

use std::collections::VecDeque;

use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::reading::{Place, Reading, Settings};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::source::{self, Position};
use crate::sources::lines::Part;
use crate::watermark::Progress;

/// What reading a batch ahead comes to: the file as it is then, and what was read.
type Read = Result<(Reading, Option<Part>, Place)>;

/// See the module.
pub struct Source {
    settings: Settings,
    /// The files that are not done, the one being read first.
    open: VecDeque<(String, Place)>,
    /// The position after everything handed out.
    position: Position,
    /// The batch that is being read. It goes on when `next` is dropped.
    ahead: Option<JoinHandle<Read>>,
    rejected: Option<Rejected>,
}

impl Source {
    /// Reads `files` in order; what is done in them is only remembered.
    pub fn new(settings: Settings, files: Vec<(String, Place)>) -> Source {
        let position = Position(files.iter().map(|(name, place)| (name.clone(), place.value())).collect());
        let open = files.into_iter().filter(|(_, place)| !place.done).collect();
        Source { settings, open, position, ahead: None, rejected: None }
    }

    /// Begins to read on, in the open file or at the place of the next one.
    fn read_ahead(&mut self, reading: Option<Reading>) {
        let Some((name, place)) = self.open.front().cloned() else { return };
        let settings = self.settings.clone();
        self.ahead = Some(tokio::task::spawn_blocking(move || {
            let mut reading = match reading {
                Some(reading) => reading,
                None => Reading::open(&settings, &name, &place)?,
            };
            let (part, place) = reading.next()?;
            Ok((reading, part, place))
        }));
    }
}

#[async_trait]
impl source::Source for Source {
    async fn next(&mut self) -> Result<Option<Batch>> {
        loop {
            if self.ahead.is_none() {
                self.read_ahead(None);
            }
            let Some(ahead) = &mut self.ahead else { return Ok(None) };
            let read = ahead.await;
            self.ahead = None;
            let (reading, part, place) = read.map_err(|e| Error::bug("a file task ended abruptly").because(e))??;
            let Some((name, at)) = self.open.front_mut() else { return Err(Error::bug("a batch of a file that is done")) };
            self.position.0.insert(name.clone(), place.value());
            *at = place;
            match part {
                Some(part) => {
                    self.read_ahead(Some(reading));
                    self.rejected = part.rejected;
                    return Ok(Some(part.batch));
                }
                None => {
                    self.open.pop_front();
                }
            }
        }
    }

    fn rejected(&mut self) -> Option<Rejected> {
        self.rejected.take()
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    fn progress(&self) -> Vec<Progress> {
        // A file that waits for its turn holds the watermark back: nobody knows what it has.
        let fact = |(name, at): (&String, &serde_json::Value)| {
            let place = Place::read(name, at).ok()?;
            Some(Progress { number: place.partition, name: name.as_str().into(), caught_up_ms: None, ended: place.done })
        };
        self.position.0.iter().filter_map(fact).collect()
    }

    async fn ack(&mut self, _position: &Position) -> Result<()> {
        Ok(())
    }
}
