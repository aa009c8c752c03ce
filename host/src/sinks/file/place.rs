//! Where a file sink writes: a local folder, or a prefix of an object store. Names are relative to it.
//! Owns what differs between the two; knows nothing of epochs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::local;
use super::path::Target;
use crate::error::{Error, Result};

/// Bytes of one part of an upload.
const PART: usize = 8 << 20;

/// A folder or prefix.
#[derive(Clone)]
pub enum Place {
    /// A folder on local disk.
    Local(PathBuf),
    /// Objects below a prefix.
    Remote {
        /// The bucket.
        store: Arc<dyn ObjectStore>,
        /// The prefix within it.
        prefix: Path,
    },
}

impl Place {
    /// The place that a path leads to. Connects to nothing.
    pub fn open(target: &Target, options: &BTreeMap<String, String>) -> Result<Place> {
        match target.remote {
            false => Ok(Place::Local(target.local_folder())),
            true => {
                let (store, prefix) = crate::checkpoint::open_bucket(&target.folder, options.clone())?;
                Ok(Place::Remote { store, prefix })
            }
        }
    }

    /// Names and lengths of the files directly in a folder; empty where there is none.
    pub async fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>> {
        match self {
            Place::Local(root) => {
                let path = root.join(folder);
                blocking(path, "cannot list the staging folder", |path| {
                    let mut names = BTreeMap::new();
                    for entry in local::found(std::fs::read_dir(path))?.into_iter().flatten() {
                        let entry = entry?;
                        // Gone since: listed or not is the same.
                        if let Some(metadata) = local::found(entry.metadata())? {
                            names.insert(entry.file_name().to_string_lossy().into_owned(), metadata.len());
                        }
                    }
                    Ok(names)
                })
                .await
            }
            Place::Remote { store, prefix } => {
                let folder = join(prefix, folder);
                let listed: Vec<_> = store
                    .list(Some(&folder))
                    .try_collect()
                    .await
                    .map_err(|e| lost("cannot list the staged objects", &folder, e))?;
                Ok(listed.iter().filter_map(|meta| Some((meta.location.filename()?.to_string(), meta.size))).collect())
            }
        }
    }

    /// Creates a small file unless one is there.
    pub async fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool> {
        match self {
            Place::Local(root) => {
                blocking(root.join(name), "cannot write the mark of a commit", move |path| local::create(path, &bytes)).await
            }
            Place::Remote { store, prefix } => {
                let path = join(prefix, name);
                let options = PutOptions { mode: PutMode::Create, ..Default::default() };
                match store.put_opts(&path, PutPayload::from(bytes), options).await {
                    Ok(_) => Ok(true),
                    Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                    Err(e) => Err(lost("cannot write the mark of a commit", &path, e)),
                }
            }
        }
    }

    /// The content of a small file.
    pub async fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Place::Local(root) => {
                blocking(root.join(name), "cannot read the mark of a commit", |path| local::found(std::fs::read(path))).await
            }
            Place::Remote { store, prefix } => {
                let path = join(prefix, name);
                let bytes = async { store.get(&path).await?.bytes().await };
                match bytes.await {
                    Ok(bytes) => Ok(Some(bytes.to_vec())),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(e) => Err(lost("cannot read the mark of a commit", &path, e)),
                }
            }
        }
    }

    /// The length of a file that may be there.
    pub async fn length(&self, name: &str) -> Result<Option<u64>> {
        match self {
            Place::Local(root) => {
                blocking(root.join(name), "cannot look at the target", |path| Ok(local::found(path.metadata())?.map(|m| m.len())))
                    .await
            }
            Place::Remote { store, prefix } => {
                let path = join(prefix, name);
                match store.head(&path).await {
                    Ok(meta) => Ok(Some(meta.size)),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(e) => Err(lost("cannot look at the target", &path, e)),
                }
            }
        }
    }

    /// Removes a file that may be there.
    pub async fn remove(&self, name: &str) -> Result<()> {
        match self {
            Place::Local(root) => {
                blocking(root.join(name), "cannot remove a staged file", |path| {
                    local::found(std::fs::remove_file(path)).map(drop)
                })
                .await
            }
            Place::Remote { store, prefix } => {
                let path = join(prefix, name);
                match store.delete(&path).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                    Err(e) => Err(lost("cannot remove a staged object", &path, e)),
                }
            }
        }
    }

    /// Makes a written file durable under the name `staged`, and tells its bytes. `open` is its name so far.
    pub async fn stage(&self, file: File, open: &FilePath, staged: &str) -> Result<u64> {
        match self {
            Place::Local(root) => {
                let open = open.to_path_buf();
                blocking(root.join(staged), "cannot stage an epoch's rows", move |path| local::stage(&file, &open, path)).await
            }
            Place::Remote { store, prefix } => upload(store, &join(prefix, staged), file).await,
        }
    }

    /// Writes staged files into the file `target` from byte `base` on. Repeatable; only on local disk.
    pub async fn append(&self, parts: &[String], target: &str, base: u64) -> Result<()> {
        let Place::Local(root) = self else {
            return Err(Error::bug("an object store can't append").with("target", target));
        };
        let parts: Vec<PathBuf> = parts.iter().map(|part| root.join(part)).collect();
        blocking(root.join(target), "cannot append to the target", move |path| {
            local::append(&parts.iter().map(PathBuf::as_path).collect::<Vec<_>>(), path, base)
        })
        .await
    }

    /// Makes staged files, joined, the file `target`. `length` is that of the first one by itself. Repeatable.
    pub async fn replace(&self, parts: &[String], length: u64, target: &str) -> Result<()> {
        match self {
            Place::Local(root) => {
                let parts: Vec<PathBuf> = parts.iter().map(|part| root.join(part)).collect();
                blocking(root.join(target), "cannot move an epoch's file to its place", move |path| {
                    local::replace(&parts.iter().map(PathBuf::as_path).collect::<Vec<_>>(), length, path)
                })
                .await
            }
            Place::Remote { store, prefix } => {
                let [part] = parts else { return Err(Error::bug("an object store can't join objects").with("target", target)) };
                let (from, to) = (join(prefix, part), join(prefix, target));
                match store.copy(&from, &to).await {
                    // Gone by now when this commit was carried out before.
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => self.remove(part).await,
                    Err(e) => Err(lost("cannot copy a staged object to its place", &to, e)),
                }
            }
        }
    }
}

fn join(prefix: &Path, name: &str) -> Path {
    Path::from(format!("{prefix}/{name}"))
}

fn lost(what: &'static str, path: &Path, error: object_store::Error) -> Error {
    use object_store::Error as Store;
    let kind = match &error {
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
            return Error::config(format!("{what}: the credentials in the environment or `options` don't allow it"))
                .with("object", path)
                .because(error);
        }
        _ => Error::transient(what),
    };
    kind.with("object", path).because(error)
}

async fn upload(store: &Arc<dyn ObjectStore>, path: &Path, mut file: File) -> Result<u64> {
    let spooled = |e: std::io::Error| Error::transient("cannot read back the spooled rows").because(e);
    let length = file.seek(SeekFrom::End(0)).and_then(|length| file.rewind().map(|()| length)).map_err(spooled)?;
    let mut next = move || {
        let mut part = Vec::with_capacity(PART);
        file.by_ref().take(PART as u64).read_to_end(&mut part).map(|_| part)
    };
    let failed = |e| lost("cannot upload an epoch's rows", path, e);
    if length <= PART as u64 {
        store.put(path, PutPayload::from(next().map_err(spooled)?)).await.map_err(failed)?;
        return Ok(length);
    }
    let mut upload = store.put_multipart(path).await.map_err(failed)?;
    let parts = async {
        loop {
            let part = next().map_err(spooled)?;
            if part.is_empty() {
                return upload.complete().await.map(drop).map_err(failed);
            }
            upload.put_part(PutPayload::from(part)).await.map_err(failed)?;
        }
    };
    if let Err(error) = parts.await {
        // What can't be aborted either is left to the bucket's rule for unfinished uploads.
        let _ = upload.abort().await;
        return Err(error);
    }
    Ok(length)
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    what: &'static str,
    work: impl FnOnce(&FilePath) -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(move || work(&path).map_err(|e| local::failed(what, &path, e))).await;
    done.map_err(|e| Error::bug("a file task ended abruptly").because(e))?
}
