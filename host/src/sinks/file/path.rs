//! The `path` of a file sink: where it leads, which placeholders it has, and where prepared work is staged beside it.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::sink::{Epoch, Identity};

const PLACEHOLDERS: [&str; 3] = ["epoch", "worker", "task"];

/// A parsed path: a fixed folder, and the name below it with its placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The folder before the first placeholder: absolute on local disk, else a URL. No slash at its end.
    pub folder: String,
    /// What follows: `{epoch}.jsonl`, `{task}/{epoch}-{worker}.jsonl`, `out.jsonl`.
    pub name: String,
    /// True for `s3://…` and `gs://…`.
    pub remote: bool,
}

impl Target {
    /// Parses the path and refuses what can't work whatever runs.
    pub fn parse(path: &str) -> Result<Target> {
        let refuse = |message: &str| Err(Error::config(message).with("path", path));
        let local = path.strip_prefix("file://").unwrap_or(path);
        let remote = local.contains("://");
        if local.is_empty() || local.ends_with('/') {
            return refuse("the path names a folder: add a file name, such as `out.jsonl` or `{epoch}.jsonl`");
        }
        for (place, _) in local.match_indices('{') {
            let inner = local[place + 1..].split_once('}').map(|(inner, _)| inner);
            if !inner.is_some_and(|inner| PLACEHOLDERS.contains(&inner)) {
                return refuse("the path has an unknown placeholder (known: `{epoch}`, `{worker}`, `{task}`)");
            }
        }
        let whole = match remote {
            true => local.to_string(),
            // So that staged work is found from wherever the next run is started.
            false => match std::path::absolute(local).map(|path| path.into_os_string().into_string()) {
                Ok(Ok(path)) => path,
                _ => return refuse("the path can't be made absolute: is the current folder gone, or not UTF-8?"),
            },
        };
        let fixed = whole.find('{').unwrap_or(whole.len());
        let Some(slash) = whole[..fixed].rfind('/') else { return refuse("the path has no folder") };
        let (folder, name) = (whole[..slash].to_string(), whole[slash + 1..].to_string());
        let bucket = folder.split_once("://").map(|(_, rest)| rest);
        if bucket.is_some_and(|bucket| bucket.is_empty() || bucket == "/") || folder.ends_with('/') {
            return refuse("the path lacks its bucket: write it as `s3://bucket/folder/{epoch}.jsonl`");
        }
        let target = Target { folder, name, remote };
        if remote && !target.has("epoch") {
            return refuse("an object can't be appended to: give the path an `{epoch}`, so that each epoch makes an object");
        }
        Ok(target)
    }

    fn has(&self, placeholder: &str) -> bool {
        self.name.contains(&format!("{{{placeholder}}}"))
    }

    /// Whether each epoch makes files of its own; else all epochs go to one file.
    pub fn has_epoch(&self) -> bool {
        self.has("epoch")
    }

    /// Refuses what can't work with this many tasks and workers.
    pub fn check(&self, identity: &Identity, worker: u32) -> Result<()> {
        let path = || format!("{}/{}", self.folder, self.name);
        if identity.tasks > 1 && !self.has("task") {
            return Err(Error::config("several tasks would write the same file: give the path a `{task}`").with("path", path()));
        }
        if self.remote && worker > 0 && !self.has("worker") {
            return Err(Error::config(
                "several workers would write the same object: give the path a `{worker}`, or set `workers: 1`",
            )
            .with("path", path()));
        }
        Ok(())
    }

    /// The name below the folder for one worker's rows of one epoch. Epochs are padded, so that names sort as numbers do.
    pub fn expand(&self, identity: &Identity, epoch: Epoch, worker: u32) -> String {
        self.name
            .replace("{epoch}", &format!("{:08}", epoch.0))
            .replace("{worker}", &worker.to_string())
            .replace("{task}", &identity.task.to_string())
    }

    /// The folder below `folder` where one sink of one task stages its work.
    pub fn staging(identity: &Identity) -> String {
        format!(".weir/{}.{}.{}", identity.pipeline, identity.sink, identity.task)
    }

    /// The folder on local disk.
    pub fn local_folder(&self) -> PathBuf {
        PathBuf::from(if self.folder.is_empty() { "/" } else { &self.folder })
    }
}

/// A file in the staging folder, as its name tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Staged {
    /// Not yet prepared: `open-<attempt>-<worker>`.
    Open { attempt: String },
    /// Prepared: `<epoch>-<attempt>-<worker>`.
    Work { epoch: Epoch },
    /// The commit of an epoch has begun: `<epoch>.commit`.
    Mark { epoch: Epoch },
}

impl Staged {
    /// What a name stands for; `None` is nothing of ours.
    pub fn read(name: &str) -> Option<Staged> {
        if let Some(rest) = name.strip_prefix("open-") {
            return Some(Staged::Open { attempt: rest.rsplit_once('-')?.0.to_string() });
        }
        if let Some(epoch) = name.strip_suffix(".commit") {
            return Some(Staged::Mark { epoch: Epoch(epoch.parse().ok()?) });
        }
        Some(Staged::Work { epoch: Epoch(name.split_once('-')?.0.parse().ok()?) })
    }

    /// The name before `prepare`.
    pub fn open(identity: &Identity, worker: u32) -> String {
        format!("open-{}-{worker}", identity.attempt)
    }

    /// The name of prepared work.
    pub fn work(identity: &Identity, epoch: Epoch, worker: u32) -> String {
        format!("{epoch}-{}-{worker}", identity.attempt)
    }

    /// The name of the mark that an epoch's commit has begun.
    pub fn mark(epoch: Epoch) -> String {
        format!("{epoch}.commit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(tasks: u32) -> Identity {
        Identity { pipeline: "p".into(), sink: "s".into(), task: 1, tasks, log_id: "log".into(), attempt: "at-tempt".into() }
    }

    #[test]
    fn a_path_is_split_before_its_first_placeholder() {
        for (path, folder, name) in [
            ("/a/b.jsonl", "/a", "b.jsonl"),
            ("file:///a/{task}/x-{epoch}", "/a", "{task}/x-{epoch}"),
            ("/b.jsonl", "", "b.jsonl"),
            ("s3://bucket/a/{epoch}.zst", "s3://bucket/a", "{epoch}.zst"),
            ("gs://bucket/{epoch}", "gs://bucket", "{epoch}"),
        ] {
            let target = Target::parse(path).unwrap();
            assert_eq!((target.folder.as_str(), target.name.as_str()), (folder, name), "{path}");
        }
        assert!(Target::parse("b.jsonl").unwrap().folder.starts_with('/'));
        let target = Target::parse("/a/{task}/{epoch}-{worker}.gz").unwrap();
        assert_eq!(target.expand(&identity(2), Epoch(12), 3), "1/00000012-3.gz");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_remedy() {
        for (path, part) in [
            ("", "add a file name"),
            ("/a/", "add a file name"),
            ("/a/{epochs}", "unknown placeholder"),
            ("/a/{epoch", "unknown placeholder"),
            ("s3://bucket/a.jsonl", "give the path an `{epoch}`"),
            ("s3://{epoch}", "lacks its bucket"),
        ] {
            let error = Target::parse(path).unwrap_err();
            assert!(error.to_string().contains(part), "{path}: {error}");
        }
        let error = Target::parse("/a/{epoch}").unwrap().check(&identity(2), 0).unwrap_err();
        assert!(error.to_string().contains("a `{task}`"), "{error}");
        let error = Target::parse("s3://b/{epoch}").unwrap().check(&identity(1), 1).unwrap_err();
        assert!(error.to_string().contains("a `{worker}`"), "{error}");
    }

    #[test]
    fn a_staged_name_tells_what_it_is() {
        let identity = identity(1);
        assert_eq!(Staged::read(&Staged::open(&identity, 2)), Some(Staged::Open { attempt: "at-tempt".into() }));
        assert_eq!(Staged::read(&Staged::work(&identity, Epoch(7), 2)), Some(Staged::Work { epoch: Epoch(7) }));
        assert_eq!(Staged::read(&Staged::mark(Epoch(7))), Some(Staged::Mark { epoch: Epoch(7) }));
        for other in ["notes.txt", "a-b", ".commit", "open"] {
            assert_eq!(Staged::read(other), None, "{other}");
        }
    }
}
