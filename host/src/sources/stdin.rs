//! The `stdin` source: a message a line of standard input. What was read can't be read again, so it takes part in
//! at-least-once only, and lines on their way when the process dies are gone.
//!
//! A thread of its own reads, for the life of the process: a read that waits for input can't be called back.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::lines::{Lines, Part, Window};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::source::{self, Position, Slice, SourceConnector};
use crate::units::Size;
use crate::watermark::Progress;

/// The name of the only partition.
const PARTITION: &str = "0";

/// Settings of the `stdin` source.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes that a line may have; a longer one is rejected, and of it only so many are kept.
    #[serde(default = "default_max_line")]
    max_line: Size,
}

fn default_max_line() -> Size {
    Size(16 << 20)
}

/// What was read, each part with the number of lines read so far.
type Incoming = Receiver<Result<(Part, u64)>>;

/// A configured standard input.
pub struct Connector {
    limit: usize,
    /// From the thread that reads, while no source has it: a pipeline that starts again goes on reading.
    incoming: Arc<Mutex<Option<Incoming>>>,
    reading: Mutex<bool>,
}

impl Connector {
    /// Checks the settings; reads nothing.
    pub fn new(config: Config, _name: impl Into<String>) -> Result<Connector> {
        if config.max_line.0 == 0 || config.max_line.0 > 1 << 30 {
            return Err(Error::config("`max_line` is out of range: from 1B to 1GiB").with("max_line", config.max_line));
        }
        let limit = config.max_line.0 as usize;
        Ok(Connector { limit, incoming: Arc::default(), reading: Mutex::new(false) })
    }

    /// Opens the slice on any input.
    fn open_on(&self, slice: Slice, input: impl Read + Send + 'static) -> Result<Source> {
        let mut source = Source { taken: None, home: self.incoming.clone(), position: Position::default(), rejected: None };
        if !slice.owns(0) {
            return Ok(source);
        }
        source.position.set(PARTITION, 0);
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        source.taken = match *reading {
            true => self.incoming.lock().unwrap_or_else(PoisonError::into_inner).take(),
            false => Some(read(input, self.limit)?),
        };
        *reading = true;
        if source.taken.is_none() {
            return Err(Error::bug("standard input is being read already"));
        }
        Ok(source)
    }
}

/// Starts the thread that reads.
fn read(input: impl Read + Send + 'static, limit: usize) -> Result<Incoming> {
    let (sender, incoming) = channel(4);
    std::thread::Builder::new()
        .name("weir-stdin".into())
        .spawn(move || hand_on(input, limit, &sender))
        .map_err(|e| Error::transient("cannot start the thread that reads standard input").because(e))?;
    Ok(incoming)
}

fn hand_on(input: impl Read, limit: usize, sender: &Sender<Result<(Part, u64)>>) {
    let mut lines = Lines { window: Window::new(input, 0, Vec::new()), line: 0, limit, eager: true };
    // What fails here fails again below, where it is reported.
    let _ = lines.window.skip_byte_order_mark();
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let part = match lines.part(0, now) {
            Ok(None) => return,
            Ok(Some(part)) => Ok((part, lines.line)),
            Err(error) => Err(error),
        };
        let failed = part.is_err();
        // Nobody there to take it: the process is about to end.
        if sender.blocking_send(part).is_err() || failed {
            return;
        }
    }
}

#[async_trait]
impl SourceConnector for Connector {
    fn kind(&self) -> &'static str {
        "stdin"
    }

    fn replayable(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn start(&self, task: u32, _tasks: u32) -> Result<Position> {
        let mut position = Position::default();
        if task == 0 {
            position.set(PARTITION, 0);
        }
        Ok(position)
    }

    async fn open(&self, slice: Slice, _position: &Position) -> Result<Box<dyn source::Source>> {
        Ok(Box::new(self.open_on(slice, std::io::stdin())?))
    }
}

/// Standard input on one worker; the other workers have none.
struct Source {
    taken: Option<Incoming>,
    home: Arc<Mutex<Option<Incoming>>>,
    position: Position,
    rejected: Option<Rejected>,
}

#[async_trait]
impl source::Source for Source {
    async fn next(&mut self) -> Result<Option<Batch>> {
        let Some(incoming) = &mut self.taken else { return Ok(None) };
        match incoming.recv().await {
            None => Ok(None),
            Some(Err(error)) => Err(error),
            Some(Ok((part, lines))) => {
                self.position.set(PARTITION, lines as i64);
                self.rejected = part.rejected;
                Ok(Some(part.batch))
            }
        }
    }

    fn rejected(&mut self) -> Option<Rejected> {
        self.rejected.take()
    }

    fn position(&self) -> Position {
        self.position.clone()
    }

    async fn ack(&mut self, _position: &Position) -> Result<()> {
        Ok(())
    }

    fn progress(&self) -> Vec<Progress> {
        let fact = |_: &Incoming| Progress { number: 0, name: PARTITION.into(), caught_up_ms: None, ended: false };
        self.taken.iter().map(fact).collect()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(incoming) = self.taken.take() {
            *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(incoming);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source as _;

    fn connector() -> Connector {
        Connector::new(serde_json::from_str("{}").unwrap(), "stdin").unwrap()
    }

    async fn rest(source: &mut Source) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(batch) = source.next().await.unwrap() {
            lines.extend((0..batch.len()).map(|row| String::from_utf8(batch.value(row).unwrap().to_vec()).unwrap()));
        }
        lines
    }

    #[tokio::test]
    async fn one_worker_reads_lines_to_the_end_and_the_others_have_none() {
        let connector = connector();
        assert!(!connector.replayable());
        let of_worker = |worker| Slice { worker, workers: 2, ..Slice::WHOLE };
        let mut first = connector.open_on(of_worker(0), &b"a\n\nb\r\nc"[..]).unwrap();
        let mut second = connector.open_on(of_worker(1), &b"x"[..]).unwrap();
        assert_eq!(rest(&mut first).await, ["a", "b", "c"]);
        assert_eq!(first.position().integer("0"), Some(4));
        assert!(rest(&mut second).await.is_empty());
        assert_eq!(second.position(), Position::default());
        assert!(first.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_pipeline_that_starts_again_reads_on() {
        let connector = connector();
        let (write, input) = std::sync::mpsc::channel::<Vec<u8>>();
        struct Input(std::sync::mpsc::Receiver<Vec<u8>>);
        impl Read for Input {
            fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
                let Ok(bytes) = self.0.recv() else { return Ok(0) };
                out[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
        }
        let mut source = connector.open_on(Slice::WHOLE, Input(input)).unwrap();
        write.send(b"a\n".to_vec()).unwrap();
        assert_eq!(source.next().await.unwrap().unwrap().len(), 1);
        drop(source);
        write.send(b"b\n".to_vec()).unwrap();
        let mut source = connector.open_on(Slice::WHOLE, std::io::empty()).unwrap();
        drop(write);
        assert_eq!(rest(&mut source).await, ["b"]);
        let error = connector.open_on(Slice::WHOLE, std::io::empty()).err().unwrap();
        assert!(error.to_string().contains("being read already"), "{error}");
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_rejected_and_wrong_settings_are_refused() {
        let config = serde_json::from_str(r#"{"max_line": "3B"}"#).unwrap();
        let mut source = Connector::new(config, "stdin").unwrap().open_on(Slice::WHOLE, &b"abcd\n"[..]).unwrap();
        assert!(source.next().await.unwrap().unwrap().is_empty());
        let rejected = source.rejected().unwrap();
        assert_eq!((rejected.rows.value(0), source.rejected().is_none()), (Some(&b"abc"[..]), true));
        assert!(rejected.reasons[0].contains("longer than `max_line`"), "{:?}", rejected.reasons);
        for size in ["0B", "2GiB"] {
            let config = serde_json::from_value(serde_json::json!({"max_line": size})).unwrap();
            let error = Connector::new(config, "stdin").err().unwrap();
            assert!(error.to_string().contains("out of range"), "{error}");
        }
    }
}
