//! One simulated history: processes that live, are killed, hang and wake, over one outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::BinaryArray;
use arrow_array::builder::BinaryBuilder;
use async_trait::async_trait;
use futures::future::BoxFuture;
use object_store::memory::InMemory;
use rand::{Rng, RngCore};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use weir::batch::{Batch, BatchBuilder, Origin, Rejected, Route};
use weir::checkpoint::LogStore;
use weir::error::{Error, ErrorKind, Result};
use weir::operator::Aggregate;
use weir::operator::{Context, Operator};
use weir::operators::aggregate::{Key, Settings};
use weir::operators::event_time::EventTime;
use weir::pipeline::{
    Environment, Make, NamedSink, NamedSource, Outcome, Pipeline, Routes, Status, StepPlan, Stop, run, steering,
};
use weir::source::{Position, Slice, Source, SourceConnector};
use weir::state::Rules;
use weir::wasm::{Accumulated, Limits, Outcome as WindowOutcome, Panes};
use weir::watermark::Progress;
use weir::window::Windows;

use super::outside::{DEAD, FaultyStore, MAIN, Outside, Row, Shared, SimulatedSink, lock};

/// What came of a history.
pub struct Report {
    pub finished: bool,
    pub lives: u32,
    pub crashes: u32,
    pub fenced: u32,
    /// Of these, those that had written the manifest from which the other went on.
    pub superseded: u32,
    pub abandoned: u32,
    pub restarts: u32,
    pub points: BTreeSet<&'static str>,
    pub visible: BTreeMap<&'static str, BTreeMap<Row, u32>>,
    pub expected_main: BTreeSet<Row>,
    pub expected_dead: BTreeSet<Row>,
    pub last_error: Option<String>,
    pub trace: Vec<String>,
}

const PARTITIONS: u32 = 3;

/// A source whose rows are known beforehand.
struct SimulatedSource {
    outside: Shared,
    rows: i64,
}

struct OpenSource {
    outside: Shared,
    rows: i64,
    next: BTreeMap<u32, i64>,
}

#[async_trait]
impl SourceConnector for SimulatedSource {
    fn kind(&self) -> &'static str {
        "simulated"
    }
    async fn check(&self) -> Result<()> {
        Ok(())
    }
    async fn start(&self, _task: u32, _tasks: u32) -> Result<Position> {
        Ok(Position::default())
    }
    async fn open(&self, slice: Slice, position: &Position) -> Result<Box<dyn Source>> {
        let next =
            (0..PARTITIONS).filter(|p| slice.owns(*p)).map(|p| (p, position.integer(&p.to_string()).unwrap_or(0))).collect();
        Ok(Box::new(OpenSource { outside: self.outside.clone(), rows: self.rows, next }))
    }
}

#[async_trait]
impl Source for OpenSource {
    async fn next(&mut self) -> Result<Option<Batch>> {
        let (delay, fails, wanted, pick) = {
            let mut o = lock(&self.outside);
            let fault = o.fault / 4.0;
            (o.rng.random_range(0..20), o.rng.random_bool(fault), o.rng.random_range(1..8), o.rng.next_u32())
        };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        if fails {
            return Err(Error::transient("the source was disconnected"));
        }
        let open: Vec<u32> = self.next.iter().filter(|(_, next)| **next < self.rows).map(|(p, _)| *p).collect();
        if open.is_empty() {
            return Ok(None);
        }
        let partition = open[pick as usize % open.len()];
        let next = self.next.get_mut(&partition).unwrap();
        let mut builder = BatchBuilder::new(0, 0);
        for offset in *next..(*next + wanted).min(self.rows) {
            let key = format!("{}", offset % 5);
            let value = format!("{partition}:{offset}");
            // Event time goes by the offset, a little out of order.
            let time = offset * 10 - (offset * 7) % 3;
            builder.push(Some(key.as_bytes()), Some(value.as_bytes()), Origin { partition, offset, published: time });
        }
        *next += builder.len() as i64;
        Ok(Some(builder.finish(0)))
    }

    fn position(&self) -> Position {
        let mut position = Position::default();
        self.next.iter().for_each(|(p, next)| position.set(p.to_string(), *next));
        position
    }

    async fn ack(&mut self, _position: &Position) -> Result<()> {
        Ok(())
    }

    fn progress(&self) -> Vec<Progress> {
        let fact = |(number, next): (&u32, &i64)| Progress {
            number: *number,
            name: number.to_string().into(),
            caught_up_ms: None,
            ended: *next >= self.rows,
        };
        self.next.iter().map(fact).collect()
    }
}

/// Drops offsets that divide by 5, rejects those that divide by 7.
struct Sieve;

impl Operator for Sieve {
    fn process(&mut self, batch: Batch, cx: &mut Context) -> Result<()> {
        let of =
            |keep: fn(i64) -> bool| (0..batch.len() as u32).filter(|i| keep(batch.offsets[*i as usize])).collect::<Vec<u32>>();
        let bad = of(rejected);
        if !bad.is_empty() {
            cx.rejected.push(Rejected { rows: batch.take(&bad)?, reasons: vec!["seven".into(); bad.len()], module: None });
        }
        cx.out.push((Route::MAIN, batch.take(&of(|o| !rejected(o) && o % 5 != 0))?));
        Ok(())
    }
}

fn rejected(offset: i64) -> bool {
    offset % 7 == 0
}

/// The surroundings of one process.
struct Process {
    outside: Shared,
    ids: Arc<AtomicU64>,
    /// Die at this many points from now.
    fuse: Mutex<Option<u64>>,
    died_at: Mutex<Option<&'static str>>,
    died: Notify,
    workers: Mutex<Vec<AbortHandle>>,
    began: tokio::time::Instant,
}

#[async_trait]
impl Environment for Process {
    fn now_ms(&self) -> i64 {
        self.began.elapsed().as_millis() as i64
    }
    fn clock(&self) -> fn() -> i64 {
        || 0
    }
    fn new_id(&self) -> String {
        format!("id{}", self.ids.fetch_add(1, Ordering::Relaxed))
    }
    fn spawn(&self, _name: String, worker: BoxFuture<'static, ()>) -> Result<()> {
        self.workers.lock().unwrap().push(tokio::spawn(worker).abort_handle());
        Ok(())
    }
    async fn point(&self, name: &'static str) {
        lock(&self.outside).trace.push(name.to_string());
        let dies = {
            let mut fuse = self.fuse.lock().unwrap();
            if let Some(left) = &mut *fuse {
                *left = left.saturating_sub(1);
            }
            *fuse == Some(0)
        };
        if dies {
            *self.died_at.lock().unwrap() = Some(name);
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

impl Process {
    /// Ends everything that the process runs, as a kill does.
    fn kill(&self) {
        self.workers.lock().unwrap().drain(..).for_each(|worker| worker.abort());
    }
}

/// Collects messages, and hands each back by itself.
struct Collect;

impl Aggregate for Collect {
    fn accumulate(&mut self, batch: &Batch, rows: &[u32], ends: &[u32], _: Duration) -> Result<Accumulated> {
        let mut fragments = BinaryBuilder::new();
        let mut start = 0;
        for end in ends {
            let mut fragment = Vec::new();
            for row in &rows[start..*end as usize] {
                fragment.extend_from_slice(batch.value(*row as usize).unwrap());
                fragment.push(b' ');
            }
            fragments.append_value(fragment);
            start = *end as usize;
        }
        Ok(Accumulated { fragments: fragments.finish(), rejected: Vec::new() })
    }

    fn merge(&mut self, fragments: &BinaryArray, ends: &[u32]) -> Result<BinaryArray> {
        let mut merged = BinaryBuilder::new();
        let mut start = 0;
        for end in ends {
            merged.append_value((start..*end as usize).flat_map(|i| fragments.value(i)).copied().collect::<Vec<u8>>());
            start = *end as usize;
        }
        Ok(merged.finish())
    }

    fn emit(&mut self, panes: &Panes, _: Duration) -> Result<WindowOutcome> {
        let mut builder = BatchBuilder::new(0, 0);
        for pane in 0..panes.starts.len() {
            let origin = Origin { partition: panes.rows.partitions[pane], offset: panes.rows.offsets[pane], published: 0 };
            for id in panes.rows.value(pane).unwrap().split(|byte| *byte == b' ').filter(|id| !id.is_empty()) {
                builder.push(panes.rows.key(pane), Some(id), origin);
            }
        }
        Ok(WindowOutcome { rows: builder.finish(0), routes: None, rejected: Vec::new(), filtered: 0 })
    }

    fn migrate(&mut self, _: u32, accumulators: &BinaryArray) -> Result<BinaryArray> {
        Ok(accumulators.clone())
    }

    fn state_version(&self) -> u32 {
        1
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

/// A keyed step; its memory is so small that state is evicted all the time.
fn collect(windows: Windows, early: bool) -> StepPlan {
    let settings = Settings {
        step: "collect".into(),
        digest: "none".into(),
        make: Arc::new(|| Ok(Box::new(Collect))),
        limits: Limits::default(),
        state_version: 1,
        routes: Vec::new(),
        key: Key::Message,
        rules: Rules { windows, lateness_ms: 0, early, discarding: early },
        early_ms: early.then_some(40),
        columns: false,
        memory: 2_000,
    };
    StepPlan::native("collect", Make::Windows(Box::new(settings)))
}

fn pipeline(outside: &Shared, store: &LogStore, workers: u32, rows: i64, windows: Option<(Windows, bool)>) -> Arc<Pipeline> {
    let sink = |name: &'static str, dead: bool| NamedSink {
        name: name.into(),
        connector: Box::new(SimulatedSink { name, outside: outside.clone(), refuses: (!dead).then_some(3) }),
        takes_dead_letters: dead,
    };
    Arc::new(Pipeline {
        name: "simulated".into(),
        task: 0,
        tasks: 1,
        workers,
        restarts: 20,
        interval: Duration::from_millis(100),
        store: store.clone(),
        sources: vec![NamedSource {
            name: "rows".into(),
            connector: Box::new(SimulatedSource { outside: outside.clone(), rows }),
            event_time: EventTime::Source,
            lag_ms: 3,
        }],
        steps: [StepPlan::native("sieve", Make::Operator(Arc::new(|| Ok(Box::new(Sieve)))))]
            .into_iter()
            .chain(windows.map(|(windows, early)| collect(windows, early)))
            .collect(),
        sinks: vec![sink(MAIN, false), sink(DEAD, true)],
        takers: HashMap::from([(Route::MAIN, vec![0]), (Route::DEAD_LETTER, vec![1])]),
        routes: Routes::default(),
    })
}

/// Plays one history from a seed.
pub fn simulate(seed: u64) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(history(seed))
}

async fn history(seed: u64) -> Report {
    let outside = Outside::new(seed);
    let store = LogStore::on(Arc::new(FaultyStore { inner: InMemory::new(), outside: outside.clone() }));
    let rows = lock(&outside).rng.random_range(20..150);
    let windows = match lock(&outside).rng.random_range(0..5) {
        0 => Some((Windows::Fixed { size_ms: 70, every_ms: 70, offset_ms: 5 }, false)),
        1 => Some((Windows::Session { gap_ms: 60 }, false)),
        2 => Some((Windows::Fixed { size_ms: 300, every_ms: 300, offset_ms: 0 }, true)),
        _ => None,
    };
    let ids = Arc::new(AtomicU64::new(0));
    let all = || (0..PARTITIONS).flat_map(move |p| (0..rows).map(move |o| (p, o)));
    let to_main = |o: i64| !rejected(o) && o % 5 != 0 && o % 11 != 3;
    let to_dead = |o: i64| rejected(o) || (o % 5 != 0 && o % 11 == 3);
    let mut report = Report {
        finished: false,
        lives: 0,
        crashes: 0,
        fenced: 0,
        superseded: 0,
        abandoned: 0,
        restarts: 0,
        points: BTreeSet::new(),
        visible: BTreeMap::new(),
        expected_main: all().filter(|(_, o)| to_main(*o)).collect(),
        expected_dead: all().filter(|(_, o)| to_dead(*o)).collect(),
        last_error: None,
        trace: Vec::new(),
    };
    while !report.finished && report.lives < 60 {
        let (together, workers) = {
            let mut o = lock(&outside);
            let calm = report.lives > 40;
            if calm {
                o.fault = 0.0;
            }
            (if !calm && o.rng.random_bool(0.4) { 2 } else { 1 }, o.rng.random_range(1..4))
        };
        // Two at once: the second wakes while the first still runs, as a hung process does.
        let lives = (0..together).map(|n| life(&outside, &store, &ids, workers, (rows, windows), n, report.lives > 40));
        for end in futures::future::join_all(lives).await {
            report.lives += 1;
            report.restarts += end.restarts;
            match end.how {
                End::Killed(point) => {
                    report.crashes += 1;
                    report.points.extend(point);
                }
                End::Returned(Ok(Outcome::Finished | Outcome::WasFinished)) => report.finished = true,
                End::Returned(Ok(Outcome::Stopped)) => {}
                End::Returned(Err(error)) => {
                    report.fenced += u32::from(error.kind() == ErrorKind::Fenced);
                    report.superseded += u32::from(error.to_string().contains("has gone on from this one's"));
                    let expected = matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Transient);
                    assert!(expected, "seed {seed}: {error}");
                    report.last_error = Some(error.to_string());
                }
            }
        }
        lose_files(&outside, &mut report).await;
    }
    let o = lock(&outside);
    report.visible = o.sinks.iter().map(|(name, table)| (*name, table.visible.clone())).collect();
    report.trace = o.trace.clone();
    drop(o);
    report
}

/// Now and then somebody empties the folders of prepared files between two lives.
async fn lose_files(outside: &Shared, report: &mut Report) {
    let mut o = lock(outside);
    if !report.finished && o.rng.random_bool(0.1) {
        let marks: Vec<_> = o.sinks.values().map(|t| t.mark.as_ref().map_or(0, |(_, e)| *e)).collect();
        let open: Vec<u64> =
            o.sinks.values().flat_map(|t| t.files.keys()).filter_map(|name| name.split('-').next()?.parse().ok()).collect();
        // Only where no sink shows the epoch: half visible and half lost has no answer but to stop.
        if open.iter().all(|epoch| marks.iter().all(|mark| mark < epoch)) && !open.is_empty() {
            o.trace.push("lose".into());
            o.sinks.values_mut().for_each(|table| table.files.clear());
            report.abandoned += 1;
        }
    }
}

enum End {
    Killed(Option<&'static str>),
    Returned(Result<Outcome>),
}

struct LifeEnd {
    how: End,
    restarts: u32,
}

async fn life(
    outside: &Shared,
    store: &LogStore,
    ids: &Arc<AtomicU64>,
    workers: u32,
    (rows, windows): (i64, Option<(Windows, bool)>),
    number: u32,
    calm: bool,
) -> LifeEnd {
    let (delay, fuse, lifetime, stop_after) = {
        let mut o = lock(outside);
        let fuse = o.rng.random_bool(0.5).then(|| o.rng.random_range(1..40));
        let lifetime = o.rng.random_bool(0.5).then(|| o.rng.random_range(1..2_000));
        let stop_after = o.rng.random_bool(0.2).then(|| o.rng.random_range(1..1_000));
        (o.rng.random_range(0..300) * u64::from(number), fuse, lifetime, stop_after)
    };
    let (fuse, lifetime, stop_after) = if calm { (None, None, None) } else { (fuse, lifetime, stop_after) };
    tokio::time::sleep(Duration::from_millis(delay)).await;
    let process = Process {
        outside: outside.clone(),
        ids: ids.clone(),
        fuse: Mutex::new(fuse),
        died_at: Mutex::new(None),
        died: Notify::new(),
        workers: Mutex::new(Vec::new()),
        began: tokio::time::Instant::now(),
    };
    let pipeline = pipeline(outside, store, workers, rows, windows);
    let status = Arc::new(Status::new("simulated"));
    let (handle, steering) = steering();
    let after = |ms: Option<u64>| async move {
        match ms {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
    };
    let asks = async {
        after(stop_after).await;
        handle.stop(Stop::AtBarrier);
        std::future::pending::<()>().await
    };
    let how = tokio::select! {
        biased;
        _ = process.died.notified() => End::Killed(*process.died_at.lock().unwrap()),
        _ = after(lifetime) => End::Killed(None),
        outcome = run(&pipeline, &process, steering, &status) => End::Returned(outcome),
        _ = asks => unreachable!("never ends"),
    };
    process.kill();
    LifeEnd { how, restarts: status.summary().restarts as u32 }
}
