//! Where a file source's files lie: a local folder or a prefix of an object store. Lists them and opens
//! them as plain streams. Listing and opening of local files blocks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;

use super::glob;
use crate::error::{Error, Result};

/// Files that one source may have: their positions stand in each manifest.
pub const FILES_MAX: usize = 10_000;
/// Bytes that are asked of an object store at a time.
const RANGE: u64 = 8 << 20;

/// The files that a path means. Names are relative to its folder.
#[derive(Clone)]
pub struct Files {
    path: String,
    pattern: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Local(PathBuf),
    Remote { store: Arc<dyn ObjectStore>, prefix: Path },
}

impl Files {
    /// Takes the path apart. Connects to nothing.
    pub fn new(path: &str, options: &BTreeMap<String, String>) -> Result<Files> {
        let local = path.strip_prefix("file://").unwrap_or(path);
        if local.is_empty() || local.ends_with('/') {
            return Err(
                Error::config("the path names a folder: add a file name or a pattern, such as `*.jsonl`").with("path", path)
            );
        }
        if local.contains("://") {
            let (folder, pattern) = glob::split(local);
            let (store, prefix) = crate::checkpoint::open_bucket(folder, options.clone())?;
            return Ok(Files { path: path.into(), pattern: pattern.into(), place: Place::Remote { store, prefix } });
        }
        // A file that is really called so is no pattern.
        let plain = FilePath::new(local).is_file() || !glob::is_pattern(local);
        let (folder, pattern) = match local.rfind('/').filter(|_| plain) {
            Some(slash) => (&local[..slash], &local[slash + 1..]),
            None => glob::split(local),
        };
        let folder = match folder {
            "" if local.starts_with('/') => "/",
            "" => ".",
            folder => folder,
        };
        Ok(Files { path: path.into(), pattern: pattern.into(), place: Place::Local(folder.into()) })
    }

    /// Names of the files, sorted. At least one.
    pub async fn list(&self) -> Result<Vec<String>> {
        let names = self.found().await?;
        match names.is_empty() {
            true => Err(Error::config("no file is there by that path").with("path", &self.path)),
            false => Ok(names),
        }
    }

    /// Names of the files that there are, sorted.
    pub async fn found(&self) -> Result<Vec<String>> {
        let mut names = match &self.place {
            Place::Local(root) => {
                let (root, files) = (root.clone(), self.clone());
                let listed = tokio::task::spawn_blocking(move || files.list_local(&root)).await;
                listed.map_err(|e| Error::bug("a file task ended abruptly").because(e))??
            }
            Place::Remote { store, prefix } => self.list_remote(store, prefix).await?,
        };
        if names.len() > FILES_MAX {
            return Err(Error::config("too many files for one source: read them by several pipelines, or join them")
                .with("path", &self.path)
                .with("files", names.len())
                .with("limit", FILES_MAX));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn list_local(&self, root: &FilePath) -> Result<Vec<String>> {
        let failed = |path: &FilePath, e: io::Error| unreadable(&path.display().to_string(), e);
        let whole = root.join(&self.pattern);
        match whole.metadata() {
            Ok(found) if found.is_dir() => {
                return Err(Error::config("the path is a folder: name its files by a pattern, such as `*.jsonl`")
                    .with("path", &self.path));
            }
            Ok(_) => return Ok(vec![self.pattern.clone()]),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(&whole, e)),
        }
        let deepest =
            if self.pattern.split('/').any(|part| part == "**") { usize::MAX } else { self.pattern.matches('/').count() };
        let (mut names, mut open) = (Vec::new(), vec![String::new()]);
        while let Some(folder) = open.pop() {
            let path = root.join(&folder);
            let entries = match std::fs::read_dir(&path) {
                // Gone since it was listed, or the pattern's own folder, which then has no files.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|e| failed(&path, e))?,
            };
            for entry in entries {
                let entry = entry.map_err(|e| failed(&path, e))?;
                let Ok(last) = entry.file_name().into_string() else { continue };
                let name = if folder.is_empty() { last } else { format!("{folder}/{last}") };
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if name.matches('/').count() < deepest {
                        open.push(name);
                    }
                } else if glob::matches(&self.pattern, &name) && entry.path().is_file() {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    async fn list_remote(&self, store: &Arc<dyn ObjectStore>, prefix: &Path) -> Result<Vec<String>> {
        if !glob::is_pattern(&self.pattern) {
            return match store.head(&join(prefix, &self.pattern)).await {
                Ok(_) => Ok(vec![self.pattern.clone()]),
                Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
                Err(e) => Err(lost(&self.path, e)),
            };
        }
        let listed: Vec<_> = store.list(Some(prefix)).try_collect().await.map_err(|e| lost(&self.path, e))?;
        let names = listed.iter().filter_map(|meta| {
            let name = meta.location.as_ref().strip_prefix(prefix.as_ref())?.trim_start_matches('/');
            glob::matches(&self.pattern, name).then(|| name.to_string())
        });
        Ok(names.collect())
    }

    /// Opens a file at byte `from`, and tells its length. For a thread that may block. Reading on from behind the end reads nothing.
    pub fn open(&self, name: &str, from: u64, runtime: &Handle) -> Result<Option<(Box<dyn Read + Send>, u64)>> {
        match &self.place {
            Place::Local(root) => {
                let path = root.join(name);
                let opened = File::open(&path).and_then(|mut file| {
                    let length = file.metadata()?.len();
                    file.seek(SeekFrom::Start(from))?;
                    Ok((file, length))
                });
                match opened {
                    Ok((file, length)) => Ok(Some((Box::new(file), length))),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(unreadable(&path.display().to_string(), e)),
                }
            }
            Place::Remote { store, prefix } => {
                let path = join(prefix, name);
                match runtime.block_on(store.head(&path)) {
                    Ok(meta) => {
                        let (store, runtime, length) = (store.clone(), runtime.clone(), meta.size);
                        let object = Object { store, runtime, path, version: meta.e_tag, at: from, length, chunk: Bytes::new() };
                        Ok(Some((Box::new(object), length)))
                    }
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(e) => Err(lost(path.as_ref(), e)),
                }
            }
        }
    }
}

fn join(prefix: &Path, name: &str) -> Path {
    Path::from(format!("{prefix}/{name}"))
}

/// A local file or folder that can't be read, as what to do about it.
fn unreadable(path: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::config("no permission to read: let this user read it"),
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            Error::config("the path leads through a file, or to a folder")
        }
        _ => Error::transient("cannot read"),
    }
    .with("path", path)
    .because(error)
}

fn lost(path: &str, error: object_store::Error) -> Error {
    use object_store::Error as Store;
    match &error {
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
            Error::config("the credentials in the environment or `options` don't allow to read")
        }
        _ => Error::transient("cannot read from the object store"),
    }
    .with("path", path)
    .because(error)
}

/// An object as a stream: asks for a range at a time, of the version that was opened.
struct Object {
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    path: Path,
    version: Option<String>,
    at: u64,
    length: u64,
    chunk: Bytes,
}

impl Read for Object {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.chunk.is_empty() {
            if self.at >= self.length {
                return Ok(0);
            }
            let end = (self.at + RANGE).min(self.length);
            let options =
                GetOptions { range: Some(GetRange::Bounded(self.at..end)), if_match: self.version.clone(), ..Default::default() };
            let range = async { self.store.get_opts(&self.path, options).await?.bytes().await };
            self.chunk = self.runtime.block_on(range).map_err(|error| match error {
                object_store::Error::Precondition { .. } => {
                    io::Error::new(io::ErrorKind::InvalidData, "the object was changed while it was read")
                }
                error => io::Error::other(error),
            })?;
            self.at = end;
        }
        let length = out.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}

#[cfg(test)]
impl Files {
    /// Files in a store that lives in memory.
    pub fn on(store: Arc<dyn ObjectStore>, prefix: &str, pattern: &str) -> Files {
        Files {
            path: format!("memory://{prefix}/{pattern}"),
            pattern: pattern.into(),
            place: Place::Remote { store, prefix: prefix.into() },
        }
    }
}
