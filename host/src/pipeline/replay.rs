//! Replays of dead letters: what was rejected goes once more through the step that rejected it, as that runs now, and
//! through all that follow, into the pipeline's own sinks.
//!
//! A replay is a pipeline of its own over the letters that it is of. Which these are is settled by creating its numbered
//! record, if absent, in the checkpoint store: a letter of an earlier record is never taken again, and a replay that died goes
//! on by its own log. So each letter takes effect once, however often and by however many a replay is asked for.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::build::{NamedSource, Pipeline, engine};
use super::letters::{Filter, Found, Letter, each, path_with};
use super::lineup::kept_module;
use super::run::{Live, run};
use super::spec::Spec;
use super::status::Status;
use super::steer::steering;
use crate::batch::{BatchBuilder, Route};
use crate::checkpoint::LogStore;
use crate::error::{Error, Result};
use crate::operators::event_time::EventTime;
use crate::sources::letters::Connector;

/// Letters of one replay, at most: they are in memory while it runs.
const LETTERS_MAX: usize = 100_000;
/// Replays that one request makes, at most.
const TRIES: u32 = 100;

/// The dead letters of one pipeline.
pub struct Letters {
    spec: Spec,
    store: LogStore,
    one: tokio::sync::Mutex<()>,
}

/// What a replay is of.
#[derive(Serialize, Deserialize)]
struct Record {
    /// Where the letters go in.
    entry: Entry,
    letters: Vec<Letter>,
}

/// Where letters go in: before what could not handle them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// Through all steps.
    Start,
    /// Through this step and those that follow.
    Step(String),
    /// Into this sink.
    Sink(String),
}

/// What a replay came to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Replay {
    /// Its number.
    pub number: u64,
    /// The step, source or sink that had rejected its letters.
    pub step: String,
    /// Letters that were read again.
    pub letters: u64,
    /// Of these, those that were rejected again: they are new dead letters.
    pub rejected: u64,
}

/// What was replayed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Replayed {
    /// Letters that were read again, each of them once ever.
    pub letters: u64,
    /// Of these, those that were rejected again: they are new dead letters.
    pub rejected: u64,
    /// What was done, in order; replays that had died on the way come first.
    pub replays: Vec<Replay>,
}

impl Letters {
    /// Those of a pipeline. Reads nothing yet.
    pub fn of(spec: &Spec) -> Result<Letters> {
        let store = LogStore::open(&spec.checkpoint.store, spec.checkpoint.options.clone())?;
        Ok(Letters { spec: spec.clone(), store, one: tokio::sync::Mutex::default() })
    }

    /// Looks for letters, and shows the last `limit` of them.
    pub async fn find(&self, filter: &Filter, limit: usize) -> Result<Found> {
        let taken = self.taken().await?;
        let mut found = Found { total: 0, open: 0, by_step: BTreeMap::new(), letters: VecDeque::new() };
        each(&self.spec, |mut letter| {
            if !filter.takes(&letter) {
                return;
            }
            letter.replay = taken.get(&letter.id).copied();
            found.total += 1;
            if letter.replay.is_none() {
                found.open += 1;
                *found.by_step.entry(letter.step.clone()).or_default() += 1;
            }
            found.letters.push_back(letter);
            if found.letters.len() > limit {
                found.letters.pop_front();
            }
        })
        .await?;
        Ok(found)
    }

    /// Replays the letters that are meant and that no replay has. Goes on with replays that have died before.
    pub async fn replay(&self, filter: &Filter) -> Result<Replayed> {
        let busy = || Error::transient("a replay is under way: ask again when it is done");
        let _one = self.one.try_lock().map_err(|_| busy())?;
        // Settled before anything runs: what is rejected again is for the next time.
        let mut wanted = HashSet::new();
        each(&self.spec, |letter| {
            if filter.takes(&letter) {
                wanted.insert(letter.id);
            }
        })
        .await?;
        let mut done = Replayed { letters: 0, rejected: 0, replays: Vec::new() };
        for _ in 0..TRIES {
            let numbers = self.store.replays(&self.spec.pipeline).await?;
            for (number, _) in numbers.into_iter().filter(|(_, done)| !done) {
                let replay = self.carry_out(number).await?;
                self.store.end_replay(&self.spec.pipeline, number).await?;
                done.letters += replay.letters;
                done.rejected += replay.rejected;
                done.replays.push(replay);
            }
            if !self.settle(&wanted).await? {
                return Ok(done);
            }
        }
        Err(Error::transient("there are too many letters for one time, or others replay them too: ask again for the rest"))
    }

    /// The number of the replay that has a letter.
    async fn taken(&self) -> Result<HashMap<String, u64>> {
        let mut taken = HashMap::new();
        for (number, _) in self.store.replays(&self.spec.pipeline).await? {
            let record = self.record(number).await?;
            taken.extend(record.letters.into_iter().map(|letter| (letter.id, number)));
        }
        Ok(taken)
    }

    async fn record(&self, number: u64) -> Result<Record> {
        let gone = || Error::corrupt("the record of a replay is gone or damaged: restore it").with("replay", number);
        let bytes = self.store.replay(&self.spec.pipeline, number).await?.ok_or_else(gone)?;
        serde_json::from_slice(&bytes).map_err(|e| gone().because(e))
    }

    /// Settles what the next replay is of: letters that go in at one place and that no replay has. False: there are none.
    async fn settle(&self, wanted: &HashSet<String>) -> Result<bool> {
        let last = self.store.replays(&self.spec.pipeline).await?.pop().map_or(0, |(number, _)| number);
        let taken = self.taken().await?;
        let mut entries: BTreeMap<Entry, Vec<Letter>> = BTreeMap::new();
        each(&self.spec, |letter| {
            if wanted.contains(&letter.id) && !taken.contains_key(&letter.id) {
                let letters = entries.entry(self.entry(&letter)).or_default();
                if letters.len() < LETTERS_MAX {
                    letters.push(letter);
                }
            }
        })
        .await?;
        let Some((entry, letters)) = entries.pop_first() else { return Ok(false) };
        self.refuse_windows(&entry)?;
        let record = serde_json::to_vec(&Record { entry, letters });
        let record = record.map_err(|e| Error::bug("cannot write what a replay is of").because(e))?;
        // If somebody else was there first, that replay is carried out, and the rest looked at again.
        self.store.create_replay(&self.spec.pipeline, last + 1, &record).await.map(|_| true)
    }

    /// Where a letter goes in. Only a module's letter names one, which tells a step from a source or sink of its name.
    fn entry(&self, letter: &Letter) -> Entry {
        let step = self.spec.steps.iter().any(|step| step.name == letter.step);
        let sink = self.spec.sinks.iter().any(|sink| sink.name == letter.step);
        match (step && (letter.module.is_some() || !sink), sink) {
            (true, _) => Entry::Step(letter.step.clone()),
            (false, true) => Entry::Sink(letter.step.clone()),
            (false, false) => Entry::Start,
        }
    }

    /// Windows are the state of the pipeline's own log, into which another one can't put anything.
    fn refuse_windows(&self, entry: &Entry) -> Result<()> {
        let from = match entry {
            Entry::Start => 0,
            Entry::Step(name) => self.spec.steps.iter().position(|step| step.name == *name).unwrap_or(0),
            Entry::Sink(_) => return Ok(()),
        };
        match self.spec.steps[from..].iter().find(|step| step.aggregate.is_some()) {
            None => Ok(()),
            Some(step) => Err(Error::config(
                "the letters would go into windows, which are closed or another log's: choose letters that were rejected behind the step with the windows",
            )
            .with("step", &step.name)),
        }
    }

    /// Runs a replay to its end. One that has ended already, without a note of it, settles its last epoch and does no more.
    async fn carry_out(&self, number: u64) -> Result<Replay> {
        let name = format!("{}-replay-{number}", self.spec.pipeline);
        let Record { entry, letters } = self.record(number).await?;
        let at = |e: Error| Error::new(e.kind(), "a replay failed").with("replay", number).because(e);
        let pipeline = Arc::new(self.pipeline(number, name, &entry, &letters).await.map_err(at)?);
        let status = Arc::new(Status::new(&pipeline.name));
        let (_handle, steering) = steering();
        run(&pipeline, &Live, steering, &status).await.map_err(at)?;
        let written = status.summary().sinks;
        let again = pipeline.sinks.iter().filter(|sink| sink.takes_dead_letters).filter_map(|sink| written.get(&*sink.name));
        Ok(Replay {
            number,
            step: letters.first().map(|letter| letter.step.clone()).unwrap_or_default(),
            letters: letters.len() as u64,
            rejected: again.map(|sink| sink.rows).sum(),
        })
    }

    /// The pipeline that a replay is.
    async fn pipeline(&self, number: u64, name: String, entry: &Entry, letters: &[Letter]) -> Result<Pipeline> {
        let mut spec = self.spec.clone();
        (spec.tasks, spec.workers) = (1, 1);
        for sink in spec.sinks.iter_mut().filter(|sink| sink.kind == "file") {
            // A file belongs to one log.
            if let Value::String(path) = &sink.settings["path"] {
                sink.settings["path"] = json!(path_with(path, &format!("replay-{number}")));
            }
        }
        let built = tokio::task::spawn_blocking(move || Pipeline::build(&spec, 0, &engine()?)).await;
        let mut pipeline = built.map_err(|e| Error::bug("the building of a replay ended abruptly").because(e))??;
        self.present_modules(&mut pipeline).await?;
        match entry {
            Entry::Start => {}
            Entry::Step(name) => {
                let at = pipeline.steps.iter().position(|step| *step.name == **name);
                pipeline.steps.drain(..at.unwrap_or(0));
            }
            Entry::Sink(name) => {
                let at = pipeline.sinks.iter().position(|sink| *sink.name == **name);
                pipeline.steps.clear();
                pipeline.takers.insert(Route::MAIN, at.into_iter().collect());
            }
        }
        let mut messages = BatchBuilder::new(letters.len(), 0);
        letters.iter().try_for_each(|letter| letter.restore(&mut messages))?;
        let mut messages = messages.finish(letters.iter().map(|letter| letter.published_ms).max().unwrap_or(0));
        messages.event_times = letters.iter().map(|letter| letter.event_time_ms).collect::<Vec<_>>().into();
        let connector = Box::new(Connector::new(messages));
        pipeline.sources = vec![NamedSource { name: "replay".into(), connector, event_time: EventTime::Source, lag_ms: 0 }];
        pipeline.name = name;
        Ok(pipeline)
    }

    /// Gives each step the module that the pipeline runs: one that was swapped in, unless the file has changed since.
    async fn present_modules(&self, pipeline: &mut Pipeline) -> Result<()> {
        let Some(newest) = self.store.log(&self.spec.pipeline, 0).newest().await? else { return Ok(()) };
        for at in 0..pipeline.steps.len() {
            let plan = &pipeline.steps[at];
            let (Some(module), Some(of_step)) = (&plan.module, newest.modules.get(&*plan.name)) else { continue };
            let swapped_in = of_step.configured == **module.digest() && of_step.next() != of_step.configured;
            if swapped_in {
                let bytes = kept_module(pipeline, of_step.next()).await?;
                pipeline.steps[at] = pipeline.plan_with(&plan.name, &bytes)?;
            }
        }
        Ok(())
    }
}
