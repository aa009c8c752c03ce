//! Makes a file sink's epochs visible, and tells after a crash what became of one.
//!
//! Before the first byte of an epoch shows, a mark `<epoch>.commit` is created in the staging folder. It
//! holds the log's id and, for files that are appended to, the length at which the epoch's bytes begin.
//! That makes it the evidence: without it nothing is visible; with it the commit is carried to its end,
//! which may be done any number of times. Each part is removed once it is visible, the first of a
//! file first, so what is still staged is what is still to do, and whatever others do to the finished
//! files afterwards changes no answer. The newest mark stays.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::path::{Staged, Target};
use super::place::Place;
use crate::error::{Error, Result};
use crate::sink::{self, CommitInfo, Committed, Epoch, Identity, Prepared, Recovered};

/// What one worker prepared: the content of [`Prepared`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The folder that `target` and the staging folder are in.
    pub folder: String,
    /// The name of the staged file.
    pub staged: String,
    /// The name of the file that it goes to.
    pub target: String,
    /// Who wrote it: the order within the target.
    pub worker: u32,
    /// Rows in it.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The target's length when this was prepared, where it is appended to.
    pub before: Option<u64>,
}

/// The content of a mark.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Mark {
    log_id: String,
    /// Where in each target the epoch's bytes begin.
    bases: BTreeMap<String, u64>,
}

type Groups = BTreeMap<String, Vec<Work>>;
type Listed = BTreeMap<String, u64>;

/// See the module.
pub struct Committer {
    place: Place,
    folder: String,
    staging: String,
    identity: Identity,
}

impl Committer {
    /// Opens the committer; refuses a staging folder that another log has marked.
    pub async fn open(place: Place, target: &Target, identity: &Identity) -> Result<Committer> {
        let committer =
            Committer { place, folder: target.folder.clone(), staging: Target::staging(identity), identity: identity.clone() };
        let listed = committer.list().await?;
        if let Some(newest) = marks(&listed).pop_last() {
            committer.mark(newest, &listed).await?;
        }
        Ok(committer)
    }

    async fn list(&self) -> Result<Listed> {
        self.place.list(&self.staging).await
    }

    fn staged(&self, name: &str) -> String {
        format!("{}/{name}", self.staging)
    }

    /// The mark of an epoch, if its commit has begun.
    async fn mark(&self, epoch: Epoch, listed: &Listed) -> Result<Option<Mark>> {
        let name = Staged::mark(epoch);
        if !listed.contains_key(&name) {
            return Ok(None);
        }
        let Some(bytes) = self.place.read(&self.staged(&name)).await? else { return Ok(None) };
        let mark: Mark = serde_json::from_slice(&bytes).map_err(|e| {
            Error::corrupt("the mark of a commit is unreadable: restore the staging folder")
                .with("file", self.staged(&name))
                .because(e)
        })?;
        if mark.log_id != self.identity.log_id {
            return Err(Error::config(
                "the files were written by another log of this pipeline: restore its checkpoint store, or remove the files and their staging folder to begin anew",
            )
            .with("folder", &self.folder)
            .with("staging", &self.staging)
            .with("log", &self.identity.log_id)
            .with("found", mark.log_id));
        }
        Ok(Some(mark))
    }

    /// Prepared work by the file that it goes to, in the order of its workers.
    fn groups(&self, prepared: &[Prepared]) -> Result<Groups> {
        let mut groups = Groups::new();
        for part in prepared {
            let work: Work = serde_json::from_value(part.0.clone())
                .map_err(|e| Error::corrupt("the manifest holds no work of a file sink").with("work", &part.0).because(e))?;
            let plain = !work.staged.contains('/') && matches!(Staged::read(&work.staged), Some(Staged::Work { .. }));
            if !plain || work.target.split('/').any(|step| step == "..") {
                return Err(Error::corrupt("the manifest names a file outside of the sink's folder").with("work", &part.0));
            }
            groups.entry(work.target.clone()).or_default().push(work);
        }
        groups.values_mut().for_each(|works| works.sort_by_key(|work| work.worker));
        Ok(groups)
    }

    /// Refuses to settle an epoch when a later one shows.
    fn check_newest(&self, epoch: Epoch, listed: &Listed) -> Result<()> {
        match marks(listed).pop_last() {
            Some(newest) if newest > epoch => Err(Error::corrupt(
                "the sink shows a later epoch than the log knows: another process runs this pipeline, or the checkpoint store was set back",
            )
            .with("folder", &self.folder)
            .with("epoch", epoch)
            .with("found", newest)),
            _ => Ok(()),
        }
    }

    /// Checks that everything prepared is there and nothing is in its way, and writes the mark.
    async fn begin(
        &self,
        epoch: Epoch,
        groups: &Groups,
        lengths: &BTreeMap<String, Option<u64>>,
        listed: &Listed,
    ) -> Result<Mark> {
        let mut bases = BTreeMap::new();
        for (target, works) in groups {
            if let Some(gone) = works.iter().find(|work| listed.get(&work.staged) != Some(&work.bytes)) {
                return Err(Error::corrupt("what was prepared is gone or cut short, and its rows are not visible")
                    .with("file", self.staged(&gone.staged))
                    .with("folder", &self.folder)
                    .with("epoch", epoch));
            }
            let length = lengths.get(target).copied().flatten();
            match works.first().and_then(|work| work.before) {
                Some(_) => {
                    bases.insert(target.clone(), length.unwrap_or(0));
                }
                None if length.is_some() => {
                    return Err(Error::corrupt("a file by the epoch's name is there already, and is not ours: move it away")
                        .with("file", format!("{}/{target}", self.folder))
                        .with("epoch", epoch));
                }
                None => {}
            }
        }
        let mark = Mark { log_id: self.identity.log_id.clone(), bases };
        let name = Staged::mark(epoch);
        if self.place.create(&self.staged(&name), json!(mark).to_string().into_bytes()).await? {
            return Ok(mark);
        }
        // An older process of ours was at the same commit: what it wrote down holds.
        let theirs = self.mark(epoch, &Listed::from([(name, 0)])).await?;
        theirs.ok_or_else(|| Error::transient("the mark of a commit vanished").with("epoch", epoch))
    }

    /// Makes visible whatever is not yet.
    async fn finish(&self, epoch: Epoch, groups: &Groups, mark: &Mark, listed: &Listed) -> Result<Committed> {
        let mut committed = Committed::default();
        for (target, works) in groups {
            committed.rows += works.iter().map(|work| work.rows).sum::<u64>();
            committed.bytes += works.iter().map(|work| work.bytes).sum::<u64>();
            let Some(first) = works.first() else { continue };
            committed.files += u64::from(first.before.is_none());
            let parts: Vec<String> = works.iter().map(|work| self.staged(&work.staged)).collect();
            if listed.contains_key(&first.staged)
                && let Some(gone) = works.iter().find(|work| !listed.contains_key(&work.staged))
            {
                return Err(Error::corrupt("part of what a half-done commit still needs is gone: restore it")
                    .with("file", self.staged(&gone.staged))
                    .with("folder", &self.folder)
                    .with("epoch", epoch));
            }
            match (first.before, mark.bases.get(target)) {
                (None, _) => self.place.replace(&parts, first.bytes, target).await?,
                (Some(_), Some(base)) => self.place.append(&parts, target, *base).await?,
                (Some(_), None) => {
                    return Err(Error::corrupt("the mark of the commit doesn't know the file")
                        .with("file", target)
                        .with("epoch", epoch));
                }
            }
        }
        Ok(committed)
    }

    /// Whether an epoch's rows are visible, as far as the files themselves tell: when the marks are gone.
    async fn visible(&self, epoch: Epoch, groups: &Groups) -> Result<bool> {
        let mut answers = BTreeSet::new();
        for (target, works) in groups {
            let length = self.place.length(target).await?;
            let total: u64 = works.iter().map(|work| work.bytes).sum();
            answers.insert(match (length, works.first().and_then(|work| work.before)) {
                (length, None) => length == Some(total),
                (length, Some(before)) if length.unwrap_or(0) <= before => false,
                (length, Some(before)) if length.unwrap_or(0) >= before + total => true,
                _ => return Err(self.half(epoch).with("file", target)),
            });
        }
        match (answers.contains(&true), answers.contains(&false)) {
            (true, true) => Err(self.half(epoch)),
            (visible, _) => Ok(visible),
        }
    }

    fn half(&self, epoch: Epoch) -> Error {
        Error::corrupt("part of the epoch is visible and the rest is gone: restore the staging folder")
            .with("folder", &self.folder)
            .with("staging", &self.staging)
            .with("epoch", epoch)
    }
}

/// The epochs whose commit has begun.
fn marks(listed: &Listed) -> BTreeSet<Epoch> {
    let epoch = |name: &String| if let Some(Staged::Mark { epoch }) = Staged::read(name) { Some(epoch) } else { None };
    listed.keys().filter_map(epoch).collect()
}

#[async_trait]
impl sink::Committer for Committer {
    async fn commit(&mut self, epoch: Epoch, prepared: &[Prepared], _info: &CommitInfo) -> Result<Committed> {
        let groups = self.groups(prepared)?;
        // Lengths before marks: where an older process is at the same commit, its mark stands before its first byte.
        let mut lengths = BTreeMap::new();
        for target in groups.keys() {
            lengths.insert(target.clone(), self.place.length(target).await?);
        }
        let listed = self.list().await?;
        self.check_newest(epoch, &listed)?;
        let mark = match self.mark(epoch, &listed).await? {
            Some(mark) => mark,
            None => self.begin(epoch, &groups, &lengths, &listed).await?,
        };
        let committed = self.finish(epoch, &groups, &mark, &listed).await?;
        for older in marks(&listed).into_iter().filter(|older| *older < epoch) {
            self.place.remove(&self.staged(&Staged::mark(older))).await?;
        }
        Ok(committed)
    }

    async fn recover(&mut self, epoch: Epoch, prepared: &[Prepared]) -> Result<Recovered> {
        let groups = self.groups(prepared)?;
        let listed = self.list().await?;
        self.check_newest(epoch, &listed)?;
        if let Some(mark) = self.mark(epoch, &listed).await? {
            // Begun, so part of it may show: there is no way but forward.
            self.finish(epoch, &groups, &mark, &listed).await?;
            return Ok(Recovered::Committed);
        }
        let mut works = groups.values().flatten();
        if works.clone().all(|work| listed.get(&work.staged) == Some(&work.bytes)) {
            return Ok(Recovered::NeedsCommit);
        }
        if !marks(&listed).is_empty() {
            return Ok(Recovered::Lost);
        }
        if let Some(work) = works.find(|work| work.folder != self.folder) {
            return Err(Error::config(
                "the last epoch was prepared in another folder, and nothing of it is found here: run once with the path as it was, or move the folder with its `.weir`",
            )
            .with("folder", &self.folder)
            .with("prepared", &work.folder)
            .with("epoch", epoch));
        }
        Ok(if self.visible(epoch, &groups).await? { Recovered::Committed } else { Recovered::Lost })
    }

    async fn discard(&mut self, prepared: &[Prepared]) -> Result<()> {
        for work in self.groups(prepared)?.values().flatten() {
            self.place.remove(&self.staged(&work.staged)).await?;
        }
        Ok(())
    }

    async fn sweep(&mut self, epoch: Epoch, keep: &[Prepared]) -> Result<()> {
        let groups = self.groups(keep)?;
        let kept: BTreeSet<&str> = groups.values().flatten().map(|work| work.staged.as_str()).collect();
        let listed = self.list().await?;
        let newest = marks(&listed).pop_last();
        for name in listed.keys() {
            let leaving = match Staged::read(name) {
                // Another attempt's that still runs finds it gone when it prepares, and is fenced or starts again.
                Some(Staged::Open { attempt }) => attempt != self.identity.attempt,
                Some(Staged::Work { epoch: of }) => of <= epoch && !kept.contains(name.as_str()),
                Some(Staged::Mark { epoch: of }) => of <= epoch && Some(of) != newest,
                None => false,
            };
            if leaving {
                self.place.remove(&self.staged(name)).await?;
            }
        }
        Ok(())
    }
}
