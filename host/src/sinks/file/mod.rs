//! The `file` sink: lines into files, exactly once.
//!
//! A path with `{epoch}` gives each epoch a file of its own, which appears whole. Any other path is one
//! file that grows by an epoch at a time. Until then rows lie staged in `.weir/<pipeline>.<sink>.<task>/`
//! beside the files. How an epoch becomes visible, and what proves that it has, is [`committer`]'s.
//!
//! On object stores the rows are spooled to local disk and uploaded to a staged object when they are
//! prepared; committing copies it to its place. (Completing a multipart upload instead would save the
//! copy, but once its id is gone nothing tells whether it was completed or aborted.)

mod committer;
mod local;
mod path;
mod place;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use self::committer::Committer;
use self::path::Target;
use self::place::Place;
use self::writer::{Settings, Writer};
pub use super::encode::Format;
use crate::compression::Compression;
use crate::error::{Error, Result};
use crate::sink::{self, Identity, SinkConnector};
use crate::units::Size;

/// Settings of the `file` sink.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A path on local disk, `s3://bucket/…` or `gs://bucket/…`. `{epoch}` gives each epoch a file of its own, `{worker}` each
    /// worker, `{task}` each task. A local path without `{epoch}` is one file to which each epoch is appended.
    path: String,
    /// How a row becomes a line. Default: `envelope` for dead letters, else `lines`.
    #[serde(default)]
    format: Option<Format>,
    /// Default: by the path's ending, `.gz` or `.zst`, else none.
    #[serde(default)]
    compression: Option<Compression>,
    /// Ask for a checkpoint before its time once a worker has written this much, before compression.
    #[serde(default)]
    max_bytes: Option<Size>,
    /// Where rows for an object store are kept until they are uploaded. Default: the system's folder for temporary files.
    #[serde(default)]
    spool: Option<PathBuf>,
    /// Options of the object store, by object_store's names. Credentials are taken from the environment too.
    #[serde(default)]
    options: BTreeMap<String, String>,
}

/// A configured file sink.
pub struct Connector {
    target: Target,
    place: Place,
    format: Format,
    compression: Compression,
    limit: Option<u64>,
    spool: PathBuf,
}

impl Connector {
    /// `format` is what holds where the settings name none. Connects to nothing.
    pub fn new(config: Config, name: impl Into<String>, format: Format) -> Result<Connector> {
        Connector::build(config, format)
            .map_err(|e| Error::new(e.kind(), "the file sink's settings are wrong").with("sink", name.into()).because(e))
    }

    fn build(config: Config, format: Format) -> Result<Connector> {
        if config.max_bytes.is_some_and(|size| size.0 == 0) {
            return Err(Error::config("`max_bytes` must be more than nothing: 256MiB is a fair size for a file"));
        }
        let target = Target::parse(&config.path)?;
        Ok(Connector {
            place: Place::open(&target, &config.options)?,
            format: config.format.unwrap_or(format),
            compression: config.compression.unwrap_or_else(|| Compression::of(&config.path)),
            limit: config.max_bytes.map(|size| size.0),
            spool: config.spool.unwrap_or_else(std::env::temp_dir),
            target,
        })
    }

    /// Makes the staging folder, and says where unfinished files lie.
    fn make_folders(&self, identity: &Identity) -> Result<PathBuf> {
        let (folder, what) = match &self.place {
            Place::Local(root) => (root.join(Target::staging(identity)), "cannot make the staging folder"),
            Place::Remote { .. } => (self.spool.join(Target::staging(identity)), "cannot make the spool folder"),
        };
        local::create_folders(&folder).map_err(|e| local::failed(what, &folder, e))?;
        Ok(folder)
    }
}

#[async_trait]
impl SinkConnector for Connector {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn transactional(&self) -> bool {
        true
    }

    async fn check(&self) -> Result<()> {
        match &self.place {
            // Any answer will do: what is asked is whether the store lets us in.
            Place::Remote { .. } => self.place.length(".weir/check").await.map(drop),
            Place::Local(root) => {
                let wrong = |message: &str| Err(Error::config(message).with("path", root.join(&self.target.name).display()));
                if !self.target.name.contains('{') && root.join(&self.target.name).is_dir() {
                    return wrong("the path is a folder: add a file name");
                }
                match root.ancestors().find(|folder| folder.exists()) {
                    Some(folder) if !folder.is_dir() => wrong("the path leads through a file: change it"),
                    _ => Ok(()),
                }
            }
        }
    }

    async fn writer(&self, identity: &Identity, worker: u32) -> Result<Box<dyn sink::Writer>> {
        self.target.check(identity, worker)?;
        Ok(Box::new(Writer::new(Settings {
            target: self.target.clone(),
            place: self.place.clone(),
            identity: identity.clone(),
            worker,
            format: self.format,
            compression: self.compression,
            spool: self.make_folders(identity)?,
            limit: self.limit,
        })))
    }

    async fn committer(&self, identity: &Identity) -> Result<Box<dyn sink::Committer>> {
        self.target.check(identity, 0)?;
        self.make_folders(identity)?;
        Ok(Box::new(Committer::open(self.place.clone(), &self.target, identity).await?))
    }
}

#[cfg(test)]
mod tests;
