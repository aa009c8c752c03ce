//! Where the log lies: `<store>/<pipeline>/<task>/<epoch>.json` on local disk or in an object store.
//! Owns create-if-absent, listing and deleting; a local store says yes only after file and folder are synced.

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::manifest::Manifest;
use crate::error::{Error, Result};
use crate::sink::Epoch;
use crate::state::{Section, index_bytes, index_of_tail};

/// What create-if-absent answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object is new, and durable.
    New,
    /// Something by that name was there.
    Exists,
}

/// A place for logs and modules.
#[derive(Clone)]
pub struct LogStore {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Local(PathBuf),
    Object { store: Arc<dyn ObjectStore>, prefix: Path },
}

impl LogStore {
    /// The store at `url`: a path, `file://`, `s3://bucket/prefix` or `gs://bucket/prefix`. Options are object_store's.
    pub fn open(url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<LogStore> {
        if let Some(path) = url.strip_prefix("file://").or_else(|| (!url.contains("://")).then_some(url)) {
            return Ok(LogStore { kind: Kind::Local(PathBuf::from(path)) });
        }
        let (store, prefix) = open_bucket(url, options)?;
        Ok(LogStore { kind: Kind::Object { store, prefix } })
    }

    /// A store on any object store: for tests that inject faults.
    pub fn on(store: Arc<dyn ObjectStore>) -> LogStore {
        LogStore { kind: Kind::Object { store, prefix: Path::default() } }
    }

    /// The log of one task.
    pub fn log(&self, pipeline: &str, task: u32) -> Log {
        Log { store: self.clone(), folder: format!("{pipeline}/{task}") }
    }

    /// Keeps a module's bytes by digest before a manifest names it. Idempotent.
    pub async fn keep_module(&self, pipeline: &str, digest: &str, bytes: &[u8]) -> Result<()> {
        self.create(&format!("{pipeline}/modules/{digest}"), bytes).await.map(drop)
    }

    /// The bytes of a module that a manifest names.
    pub async fn module(&self, pipeline: &str, digest: &str) -> Result<Option<Bytes>> {
        self.read(&format!("{pipeline}/modules/{digest}")).await
    }

    /// The numbers of a pipeline's replays, ascending, and whether each is noted as done.
    pub async fn replays(&self, pipeline: &str) -> Result<Vec<(u64, bool)>> {
        let names = self.list(&format!("{pipeline}/replays")).await?;
        let with = |ending| names.iter().filter_map(move |name| name.strip_suffix(ending)?.parse::<u64>().ok());
        let done: BTreeSet<u64> = with(".done").collect();
        let numbers: BTreeSet<u64> = with(".json").collect();
        Ok(numbers.into_iter().map(|number| (number, done.contains(&number))).collect())
    }

    /// Notes that a replay is done: nothing of it is left to do, in any sink.
    pub async fn end_replay(&self, pipeline: &str, number: u64) -> Result<()> {
        self.create(&format!("{pipeline}/replays/{number:08}.done"), b"").await.map(drop)
    }

    /// Keeps what a replay is of under its number, unless that is taken.
    pub async fn create_replay(&self, pipeline: &str, number: u64, bytes: &[u8]) -> Result<Created> {
        self.create(&format!("{pipeline}/replays/{number:08}.json"), bytes).await
    }

    /// What a replay is of.
    pub async fn replay(&self, pipeline: &str, number: u64) -> Result<Option<Bytes>> {
        self.read(&format!("{pipeline}/replays/{number:08}.json")).await
    }

    async fn create(&self, name: &str, bytes: &[u8]) -> Result<Created> {
        match &self.kind {
            Kind::Local(root) => {
                let (path, bytes) = (root.join(name), bytes.to_vec());
                blocking(move || create_local(&path, &bytes)).await
            }
            Kind::Object { store, prefix } => {
                let options = PutOptions { mode: PutMode::Create, ..Default::default() };
                match store.put_opts(&join(prefix, name), PutPayload::from(bytes.to_vec()), options).await {
                    Ok(_) => Ok(Created::New),
                    Err(object_store::Error::AlreadyExists { .. }) => Ok(Created::Exists),
                    Err(e) => Err(Error::transient("cannot write to the checkpoint store").with("object", name).because(e)),
                }
            }
        }
    }

    async fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let fail = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::transient("cannot read from the checkpoint store").with("object", name).because(e)
        };
        match &self.kind {
            Kind::Local(root) => {
                let path = root.join(name);
                match blocking(move || Ok(std::fs::read(path))).await? {
                    Ok(bytes) => Ok(Some(bytes.into())),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(fail(e.into())),
                }
            }
            Kind::Object { store, prefix } => match store.get(&join(prefix, name)).await {
                Ok(found) => found.bytes().await.map(Some).map_err(|e| fail(e.into())),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(e) => Err(fail(e.into())),
            },
        }
    }

    /// `length` bytes of an object from `offset` on, or its last `length` bytes without one.
    async fn read_part(&self, name: &str, offset: Option<u64>, length: u64) -> Result<Bytes> {
        let fail = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::transient("cannot read from the checkpoint store").with("object", name).because(e)
        };
        match &self.kind {
            Kind::Local(root) => {
                let path = root.join(name);
                let read = move || -> std::io::Result<Vec<u8>> {
                    use std::os::unix::fs::FileExt;
                    let file = std::fs::File::open(path)?;
                    let size = file.metadata()?.len();
                    let offset = offset.unwrap_or(size.saturating_sub(length));
                    let mut bytes = vec![0; length.min(size.saturating_sub(offset)) as usize];
                    file.read_exact_at(&mut bytes, offset)?;
                    Ok(bytes)
                };
                match blocking(move || Ok(read())).await? {
                    Ok(bytes) => Ok(bytes.into()),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(gone(name)),
                    Err(e) => Err(fail(e.into())),
                }
            }
            Kind::Object { store, prefix } => {
                let range = match offset {
                    Some(offset) => GetRange::Bounded(offset..offset + length),
                    None => GetRange::Suffix(length),
                };
                let options = GetOptions { range: Some(range), ..Default::default() };
                match store.get_opts(&join(prefix, name), options).await {
                    Ok(found) => found.bytes().await.map_err(|e| fail(e.into())),
                    Err(object_store::Error::NotFound { .. }) => Err(gone(name)),
                    Err(e) => Err(fail(e.into())),
                }
            }
        }
    }

    /// Names directly below a folder.
    async fn list(&self, folder: &str) -> Result<Vec<String>> {
        let fail = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::transient("cannot list the checkpoint store").with("folder", folder).because(e)
        };
        match &self.kind {
            Kind::Local(root) => {
                let path = root.join(folder);
                match blocking(move || Ok(std::fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>())))
                    .await?
                {
                    Ok(entries) => Ok(entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
                    Err(e) => Err(fail(e.into())),
                }
            }
            Kind::Object { store, prefix } => {
                let listed: Vec<_> = store.list(Some(&join(prefix, folder))).try_collect().await.map_err(|e| fail(e.into()))?;
                Ok(listed.iter().filter_map(|meta| meta.location.filename().map(str::to_string)).collect())
            }
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let fail = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::transient("cannot delete from the checkpoint store").with("object", name).because(e)
        };
        match &self.kind {
            Kind::Local(root) => {
                let path = root.join(name);
                match blocking(move || Ok(std::fs::remove_file(path))).await? {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(fail(e.into())),
                    _ => Ok(()),
                }
            }
            Kind::Object { store, prefix } => match store.delete(&join(prefix, name)).await {
                Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
                Err(e) => Err(fail(e.into())),
            },
        }
    }
}

/// The bucket and prefix at `url`: `s3://bucket/prefix` or `gs://bucket/prefix`. Options are object_store's; credentials come
/// from the environment too, as the clouds' own tools read them, and the options win.
pub fn open_bucket(url: &str, options: impl IntoIterator<Item = (String, String)>) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let refuse = |e: Box<dyn std::error::Error + Send + Sync>| {
        Error::config("cannot open the store: use a path, s3://bucket/prefix or gs://bucket/prefix").with("store", url).because(e)
    };
    let parsed = url::Url::parse(url).map_err(|e| refuse(e.into()))?;
    let environment = std::env::vars()
        .map(|(k, v)| (k.to_ascii_lowercase(), v))
        .filter(|(k, _)| k.starts_with("aws_") || k.starts_with("google_"));
    let (store, prefix) = object_store::parse_url_opts(&parsed, environment.chain(options)).map_err(|e| refuse(e.into()))?;
    Ok((store.into(), prefix))
}

fn gone(name: &str) -> Error {
    Error::corrupt("the checkpoint names an object that is gone: restore it, or start a new log").with("object", name)
}

fn join(prefix: &Path, name: &str) -> Path {
    Path::from(format!("{prefix}/{name}"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::bug("a store task ended abruptly").because(e))?
}

/// Writes beside, syncs, links to the final name (which fails if that exists), syncs the folder.
fn create_local(path: &FilePath, bytes: &[u8]) -> Result<Created> {
    use std::io::Write;
    let fail = |e: std::io::Error| {
        let error = Error::transient("cannot write to the checkpoint store").with("path", path.display());
        match e.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                error.as_kind(crate::error::ErrorKind::Config).because(e)
            }
            _ => error.because(e),
        }
    };
    let Some(folder) = path.parent() else {
        return Err(Error::bug("a log entry without a folder").with("path", path.display()));
    };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let beside = folder.join(format!(".{}", uuid::Uuid::new_v4()));
    let outcome = (|| {
        let mut file = std::fs::File::create_new(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        match std::fs::hard_link(&beside, path) {
            Ok(()) => Ok(Created::New),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(Created::Exists),
            Err(e) => Err(e),
        }
    })();
    let removed = std::fs::remove_file(&beside);
    let created = outcome.map_err(fail)?;
    removed.and_then(|()| std::fs::File::open(folder)?.sync_all()).map_err(fail)?;
    Ok(created)
}

/// The manifests of one task.
#[derive(Clone)]
pub struct Log {
    store: LogStore,
    folder: String,
}

impl Log {
    fn name(&self, epoch: Epoch) -> String {
        // Padded, so that names sort as numbers do.
        format!("{}/{:016}.json", self.folder, epoch.0)
    }

    /// Creates the manifest of an epoch unless one is there.
    pub async fn create(&self, manifest: &Manifest) -> Result<Created> {
        self.store.create(&self.name(manifest.epoch), &manifest.to_bytes()?).await
    }

    /// The manifest of an epoch.
    pub async fn read(&self, epoch: Epoch) -> Result<Option<Manifest>> {
        let name = self.name(epoch);
        match self.store.read(&name).await? {
            None => Ok(None),
            Some(bytes) => {
                let manifest = Manifest::parse(&bytes)
                    .map_err(|e| Error::new(e.kind(), "cannot read the log").with("object", name).because(e))?;
                if manifest.epoch != epoch {
                    return Err(Error::corrupt("the manifest is of another epoch than its name")
                        .with("epoch", epoch)
                        .with("found", manifest.epoch));
                }
                Ok(Some(manifest))
            }
        }
    }

    /// All epochs that have a manifest, ascending.
    pub async fn epochs(&self) -> Result<Vec<Epoch>> {
        let names = self.store.list(&self.folder).await?;
        let mut epochs: Vec<Epoch> =
            names.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok().map(Epoch)).collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    /// The newest manifest. One that vanishes between list and read was swept by a newer owner: list again.
    pub async fn newest(&self) -> Result<Option<Manifest>> {
        for _ in 0..100 {
            let Some(epoch) = self.epochs().await?.pop() else { return Ok(None) };
            if let Some(manifest) = self.read(epoch).await? {
                return Ok(Some(manifest));
            }
        }
        Err(Error::transient("manifests keep vanishing between list and read: another process runs this log")
            .with("log", &self.folder))
    }

    fn run(&self, name: &str) -> String {
        format!("{}/state/{name}", self.folder)
    }

    /// What a file of state is called: of a step (`run`) or a source (`src`).
    pub fn state_name(epoch: Epoch, attempt: &str, part: &str, worker: u32, kind: &str) -> String {
        format!("{:016}-{attempt}-{part}-{worker}.{kind}", epoch.0)
    }

    /// Makes a file of state durable. Its name is used once, so one that is there already is our own.
    pub async fn put_state(&self, name: &str, bytes: &[u8]) -> Result<()> {
        const TRIES: u32 = 4;
        let mut tried = 0;
        loop {
            match self.store.create(&self.run(name), bytes).await {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == crate::error::ErrorKind::Transient && tried < TRIES => {
                    tracing::warn!(error = %e, file = name, "writing state again");
                    tokio::time::sleep(std::time::Duration::from_millis(50 << tried)).await;
                    tried += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// A whole file of state.
    pub async fn read_state(&self, name: &str) -> Result<Bytes> {
        let name = self.run(name);
        self.store.read(&name).await?.ok_or_else(|| gone(&name))
    }

    /// The sections of a run.
    pub async fn run_index(&self, name: &str) -> Result<Vec<Section>> {
        let name = self.run(name);
        // Most indexes are shorter than this; the run itself says how long its own is.
        let tail = self.store.read_part(&name, None, 64 << 10).await?;
        let tail = match index_bytes(&tail) {
            Some(length) if length > tail.len() as u64 => self.store.read_part(&name, None, length).await?,
            _ => tail,
        };
        index_of_tail(&tail).map_err(|e| e.with("object", name))
    }

    /// A part of a run.
    pub async fn read_run(&self, name: &str, offset: u64, length: u64) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        self.store.read_part(&self.run(name), Some(offset), length).await
    }

    /// Deletes files of state of epochs up to `epoch` that `keep` does not name.
    pub async fn sweep_state(&self, epoch: Epoch, keep: &BTreeSet<String>) -> Result<()> {
        for name in self.store.list(&format!("{}/state", self.folder)).await? {
            let of = name.split('-').next().and_then(|number| number.parse().ok()).map(Epoch);
            if of.is_some_and(|of| of <= epoch) && (name.ends_with(".run") || name.ends_with(".src")) && !keep.contains(&name) {
                self.store.delete(&self.run(&name)).await?;
            }
        }
        Ok(())
    }

    /// Deletes the manifests up to `epoch` that are not in `keep`. Newer ones belong to whoever wrote them.
    pub async fn sweep(&self, epoch: Epoch, keep: &[Epoch]) -> Result<()> {
        for old in self.epochs().await?.into_iter().filter(|e| *e <= epoch && !keep.contains(e)) {
            self.store.delete(&self.name(old)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::MANIFEST_VERSION;

    fn manifest(epoch: u64, attempt: &str) -> Manifest {
        Manifest {
            version: MANIFEST_VERSION,
            pipeline: "p".into(),
            task: 0,
            tasks: 1,
            log_id: "l".into(),
            attempt: attempt.into(),
            epoch: Epoch(epoch),
            previous: None,
            abandoned: vec![],
            finished: false,
            created_ms: 0,
            sources: Default::default(),
            sinks: Default::default(),
            modules: Default::default(),
            steps: Default::default(),
            clocks: Default::default(),
        }
    }

    #[tokio::test]
    async fn of_two_creates_of_one_epoch_exactly_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        for store in [
            LogStore::open(&folder.path().display().to_string(), []).unwrap(),
            LogStore::on(Arc::new(object_store::memory::InMemory::new())),
        ] {
            let log = store.log("p", 0);
            assert_eq!(log.newest().await.unwrap(), None);
            assert_eq!(log.create(&manifest(3, "a")).await.unwrap(), Created::New);
            assert_eq!(log.create(&manifest(3, "b")).await.unwrap(), Created::Exists);
            assert_eq!(log.newest().await.unwrap().unwrap().attempt, "a");
        }
    }

    #[tokio::test]
    async fn sweeping_deletes_what_is_not_kept_and_never_a_newer_owners() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogStore::open(&folder.path().display().to_string(), []).unwrap().log("p", 0);
        for epoch in 0..6 {
            log.create(&manifest(epoch, "a")).await.unwrap();
        }
        log.sweep(Epoch(4), &[Epoch(3), Epoch(4)]).await.unwrap();
        assert_eq!(log.epochs().await.unwrap(), [Epoch(3), Epoch(4), Epoch(5)]);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_names_itself() {
        let error = LogStore::open("/proc/nowhere", []).unwrap().log("p", 0).create(&manifest(0, "a")).await.unwrap_err();
        assert!(error.to_string().contains("/proc/nowhere/p/0"), "{error}");
    }
}
