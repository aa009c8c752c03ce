//! The `stdout` sink: a row a line on standard output, for people and for pipes. What is written can't be held
//! back, so it takes part in at-least-once only: after a crash some lines come again.

use std::io::Write;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::counted::{Committer, Count};
use super::encode::{Format, encode};
use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};
use crate::sink::{self, Epoch, Identity, Prepared, SinkConnector};

/// Settings of the `stdout` sink.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How a row becomes a line. Default: `envelope` for dead letters, else `lines`.
    #[serde(default)]
    format: Option<Format>,
}

/// A configured standard output.
pub struct Connector {
    format: Format,
}

impl Connector {
    /// `format` is what holds where the settings name none.
    pub fn new(config: Config, _name: impl Into<String>, format: Format) -> Result<Connector> {
        Ok(Connector { format: config.format.unwrap_or(format) })
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "stdout"
    }

    fn transactional(&self) -> bool {
        false
    }

    async fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn writer(&self, _identity: &Identity, _worker: u32) -> Result<Box<dyn sink::Writer>> {
        Ok(Box::new(Writer { format: self.format, out: std::io::stdout(), lines: Vec::new(), count: Count::default() }))
    }

    async fn committer(&self, _identity: &Identity) -> Result<Box<dyn sink::Committer>> {
        Ok(Box::new(Committer))
    }
}

struct Writer<W> {
    format: Format,
    out: W,
    lines: Vec<u8>,
    count: Count,
}

fn failed(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => {
            Error::config("standard output was closed by its reader: end the pipeline first, or write to a file").because(error)
        }
        _ => Error::transient("cannot write to standard output").because(error),
    }
}

#[async_trait]
impl<W: Write + Send> sink::Writer for Writer<W> {
    async fn write(&mut self, batch: Batch) -> Result<Vec<Rejected>> {
        self.lines.clear();
        let rejected = encode(self.format, &batch, &mut self.lines)?;
        // One call: workers take turns by whole batches, and a line is never torn.
        self.out.write_all(&self.lines).map_err(failed)?;
        self.count.rows += batch.len() as u64 - rejected.iter().map(|r| r.rows.len() as u64).sum::<u64>();
        self.count.bytes += self.lines.len() as u64;
        Ok(rejected)
    }

    async fn prepare(&mut self, _epoch: Epoch) -> Result<(Option<Prepared>, Vec<Rejected>)> {
        self.out.flush().map_err(failed)?;
        Ok((self.count.prepared(), Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::batch::{BatchBuilder, Origin};
    use crate::sink::Writer as _;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn batch() -> Batch {
        let mut builder = BatchBuilder::new(0, 0);
        builder.push(None, Some(b"one"), Origin::default());
        builder.push(None, Some(b"a\nb"), Origin::default());
        builder.push(None, Some(b"two"), Origin::default());
        builder.finish(0)
    }

    #[tokio::test]
    async fn whole_lines_are_written_and_counted() {
        let mut writer = Writer { format: Format::Lines, out: Vec::new(), lines: Vec::new(), count: Count::default() };
        let rejected = writer.write(batch()).await.unwrap();
        assert_eq!(rejected[0].rows.len(), 1);
        assert_eq!(writer.out, b"one\ntwo\n");
        assert_eq!(writer.prepare(Epoch(1)).await.unwrap().0, Some(Prepared(json!({"rows": 2, "bytes": 8}))));
        assert_eq!(writer.prepare(Epoch(2)).await.unwrap().0, None);
    }

    #[tokio::test]
    async fn a_reader_that_is_gone_ends_the_pipeline_with_its_reason() {
        let mut writer = Writer { format: Format::Lines, out: Closed, lines: Vec::new(), count: Count::default() };
        let error = writer.write(batch()).await.unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Config);
        assert!(error.to_string().contains("closed by its reader"), "{error}");
    }
}
