//! `weir run --watch`: has a step run its module's file again whenever that changes, and builds it first when its source
//! does. Looks at the files a few times a second rather than being told: that works on every disk and mount, and a person
//! doesn't notice the difference.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::pipeline::{Handle, Pipeline, Spec};
use crate::wasm::digest;

/// How often files are looked at. What has changed has to stand still for so long: it may be half written.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Folders that hold what builds make.
const BUILT: [&str; 3] = ["target", "node_modules", "__pycache__"];

/// What `weir run` takes for it.
#[derive(Args)]
pub struct WatchArgs {
    /// Swap in a step's module whenever its file changes. With a folder, `--build` runs whenever that changes.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true)]
    watch: Option<Option<PathBuf>>,
    /// What builds the module, for a shell: it runs when something in the folder of `--watch=FOLDER` changes.
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    build: Option<String>,
}

/// Watches the files of a pipeline's modules.
pub struct Watch {
    /// Step and file.
    modules: Vec<Watched>,
    source: Option<(Folder, String)>,
}

struct Watched {
    step: String,
    path: PathBuf,
    /// How it was when it was last looked at, and whether that was seen to.
    stamp: Stamp,
    fresh: bool,
    /// Digest of what was swapped in, or refused, last.
    tried: String,
}

struct Folder {
    path: PathBuf,
    /// How it was when it was last built.
    built: u64,
    /// How it was when it was last looked at.
    seen: u64,
    /// It is built once more, since it changed while it was built.
    again: bool,
}

/// Length and time of change; `None` where there is no file.
type Stamp = Option<(u64, SystemTime)>;

impl WatchArgs {
    /// What is to be watched, if anything is.
    pub fn watch(&self, spec: &Spec, pipeline: &Pipeline) -> Result<Option<Watch>> {
        let Some(folder) = &self.watch else { return Ok(None) };
        let source = match (folder, &self.build) {
            (None, None) => None,
            (Some(folder), Some(command)) if folder.is_dir() => {
                let now = state_of(folder);
                Some((Folder { path: folder.clone(), built: now, seen: now, again: false }, command.clone()))
            }
            (Some(folder), Some(_)) => {
                return Err(Error::config("--watch names no folder: give the one with the module's source")
                    .with("watch", folder.display()));
            }
            _ => {
                return Err(Error::config(
                    "a build needs the folder that it is for: write --watch=FOLDER --build COMMAND, or --watch alone for the modules' files",
                ));
            }
        };
        let files: BTreeMap<&str, &String> = spec
            .steps
            .iter()
            .filter_map(|step| Some((step.name.as_str(), step.transform.as_ref().or(step.aggregate.as_ref())?)))
            .collect();
        let watched = |step: &crate::pipeline::StepPlan| {
            let path = PathBuf::from(files.get(&*step.name)?);
            let tried = step.module.as_ref()?.digest().to_string();
            Some(Watched { step: step.name.to_string(), stamp: stamp_of(&path), fresh: false, path, tried })
        };
        let modules: Vec<Watched> = pipeline.steps.iter().filter_map(watched).collect();
        match modules.is_empty() {
            true => Err(Error::config("there is nothing to watch: no step of the pipeline runs a module")),
            false => Ok(Some(Watch { modules, source })),
        }
    }
}

impl Watch {
    /// Watches until the process ends.
    pub async fn run(mut self, pipeline: Arc<Pipeline>, handle: Arc<Handle>) {
        let files = self.modules.iter().map(|module| module.path.display().to_string()).collect::<Vec<_>>().join(", ");
        tracing::info!(files, "watching");
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Some((folder, command)) = &mut self.source {
                folder.build_if_changed(command).await;
            }
            for module in &mut self.modules {
                module.swap_if_changed(&pipeline, &handle).await;
            }
        }
    }
}

impl Folder {
    async fn build_if_changed(&mut self, command: &str) {
        let now = state_of(&self.path);
        let still = now == self.seen;
        self.seen = now;
        if !still || now == self.built {
            return;
        }
        tracing::info!(command, "building");
        let began = Instant::now();
        // Its output is for the person who watches, and standard output may be the summary's.
        let built = tokio::process::Command::new("sh")
            .args(["-c", &format!("{{ {command}\n}} >&2")])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await;
        match built {
            Ok(status) if status.success() => tracing::info!(seconds = began.elapsed().as_secs_f64(), "built"),
            Ok(status) => tracing::warn!(%status, "the build failed: what runs goes on"),
            Err(error) => tracing::warn!(%error, "cannot start the build: what runs goes on"),
        }
        // What was changed meanwhile is built again, once: it may be the build that writes into its own folder.
        let after = state_of(&self.path);
        self.again = after != now && !self.again;
        self.built = if self.again { now } else { after };
        self.seen = after;
    }
}

impl Watched {
    async fn swap_if_changed(&mut self, pipeline: &Arc<Pipeline>, handle: &Arc<Handle>) {
        let now = stamp_of(&self.path);
        let still = now == self.stamp;
        self.fresh |= !still;
        self.stamp = now;
        if !still || !self.fresh || now.is_none() {
            return;
        }
        self.fresh = false;
        let Ok(bytes) = tokio::fs::read(&self.path).await else { return };
        let digest = digest(&bytes);
        if digest == self.tried {
            return;
        }
        self.tried = digest;
        let began = Instant::now();
        let why = "swapped: its file has changed".to_string();
        match handle.swap(pipeline, &self.step, bytes.into(), why, Duration::ZERO).await {
            Ok(swapped) => tracing::info!(
                step = self.step,
                module = swapped.module,
                since_epoch = swapped.since_epoch,
                seconds = began.elapsed().as_secs_f64(),
                "the changed module runs"
            ),
            Err(error) => tracing::warn!(%error, "the changed module is refused: what runs goes on"),
        }
    }
}

fn stamp_of(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// Names, lengths and times of all files of a folder, but for those that builds make.
fn state_of(folder: &Path) -> u64 {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.to_string_lossy();
            match entry.file_type() {
                _ if name.starts_with('.') || name.ends_with(".wasm") => {}
                Ok(kind) if kind.is_dir() && BUILT.contains(&&*name) => {}
                Ok(kind) if kind.is_dir() => open.push(path),
                _ => drop(files.insert(path.clone(), stamp_of(&path))),
            }
        }
    }
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_changes_with_its_sources_and_not_with_what_is_built_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("src/lib.rs", "one");
        let before = state_of(folder.path());
        for built in ["target/x", "node_modules/a/b.js", ".git/index", "out.wasm", "src/.swap"] {
            write(built, "x");
            assert_eq!(state_of(folder.path()), before, "{built}");
        }
        write("src/lib.rs", "longer");
        let after = state_of(folder.path());
        assert_ne!(after, before);
        write("src/new.rs", "");
        assert_ne!(state_of(folder.path()), after);
    }
}
