//! From a checked pipeline file to connectors, modules and routes: everything that can be refused
//! before anything runs. Starts no source and no worker.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::keyed;
use super::spec::{Connector, Delivery, Spec, StepSpec, typed};
use crate::batch::Route;
use crate::checkpoint::LogStore;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Operator;
use crate::operators::aggregate;
use crate::operators::event_time::EventTime;
use crate::operators::transform::{Settings, Transform};
use crate::sink::SinkConnector;
use crate::sinks;
use crate::source::SourceConnector;
use crate::sources;
use crate::swap::Swap;
use crate::tap::Tap;
use crate::wasm::{Engine, Grants, Instance, Module, World};

/// A source by its name.
pub struct NamedSource {
    /// As in the pipeline file.
    pub name: Arc<str>,
    /// What it is.
    pub connector: Box<dyn SourceConnector>,
    /// Where the event time of its messages stands.
    pub event_time: EventTime,
    /// How far the watermark stays behind the greatest event time, in ms.
    pub lag_ms: i64,
}

/// A sink by its name.
pub struct NamedSink {
    /// As in the pipeline file.
    pub name: Arc<str>,
    /// What it is.
    pub connector: Box<dyn SinkConnector>,
    /// Whether it takes dead letters.
    pub takes_dead_letters: bool,
}

/// Makes one operator for each worker.
pub type MakeOperator = dyn Fn() -> Result<Box<dyn Operator>> + Send + Sync;

/// Finds the number of a route that a module names.
pub(super) type FindRoute<'a> = dyn FnMut(&str) -> Result<Route> + 'a;

/// What a step does with a module, whichever it is given. Refuses one that it can't run.
pub(super) type Code = dyn Fn(&Module, &mut FindRoute<'_>) -> Result<Make> + Send + Sync;

/// A step by its name.
#[derive(Clone)]
pub struct StepPlan {
    /// As in the pipeline file.
    pub name: Arc<str>,
    /// The guest, where the step is one.
    pub module: Option<Module>,
    /// What it is made of.
    pub make: Make,
    /// Where copies of what goes into it can be had, whatever module it runs.
    pub(super) tap: Arc<Tap>,
    code: Option<Arc<Code>>,
}

impl StepPlan {
    /// A step that is no guest.
    pub fn native(name: &str, make: Make) -> StepPlan {
        StepPlan { name: name.into(), module: None, make, tap: Arc::default(), code: None }
    }

    /// A step that runs a module.
    pub(super) fn guest(name: Arc<str>, module: Module, code: Arc<Code>, find: &mut FindRoute<'_>) -> Result<StepPlan> {
        let make = code(&module, find)?;
        Ok(StepPlan { name, module: Some(module), make, tap: Arc::default(), code: Some(code) })
    }

    /// Its keys and windows, where it has them.
    pub fn windows(&self) -> Option<&aggregate::Settings> {
        match &self.make {
            Make::Windows(settings) => Some(settings),
            Make::Operator(_) | Make::Transform(_) => None,
        }
    }

    /// Instances for all places that run the step.
    pub(super) fn swap(&self, workers: u32) -> Result<Swap> {
        if let Some(settings) = self.windows() {
            let guests = (0..2 * workers).map(|_| aggregate::Replacement::new(settings)).collect::<Result<_>>()?;
            return Ok(Swap::of_guests(self.name.clone(), guests));
        }
        let operators = (0..workers).map(|_| self.operator()).collect::<Result<Vec<_>>>()?;
        Ok(Swap::of_operators(self.name.clone(), operators.into_iter().flatten().collect()))
    }

    /// The step for a worker. `None`: it has keys and windows, which lie over the workers.
    pub(super) fn operator(&self) -> Result<Option<Box<dyn Operator>>> {
        Ok(match &self.make {
            Make::Operator(make) => Some(make()?),
            Make::Transform(settings) => Some(Box::new(Transform::new((**settings).clone())?)),
            Make::Windows(_) => None,
        })
    }
}

/// What a step is made of.
#[derive(Clone)]
pub enum Make {
    /// Makes the step for a worker.
    Operator(Arc<MakeOperator>),
    /// A guest that turns messages into messages.
    Transform(Box<Settings>),
    /// Keys and windows, over the workers.
    Windows(Box<aggregate::Settings>),
}

/// A pipeline that is ready to run.
pub struct Pipeline {
    /// Names its log and its marks in sinks.
    pub name: String,
    /// This process's task.
    pub task: u32,
    /// Of how many.
    pub tasks: u32,
    /// Worker threads.
    pub workers: u32,
    /// Restarts in a row before it gives up.
    pub restarts: u32,
    /// Time between two epochs.
    pub interval: std::time::Duration,
    /// Where its log lies.
    pub store: LogStore,
    /// In the file's order.
    pub sources: Vec<NamedSource>,
    /// In the file's order.
    pub steps: Vec<StepPlan>,
    /// In the file's order.
    pub sinks: Vec<NamedSink>,
    /// The sinks' numbers by the route that they take.
    pub takers: HashMap<Route, Vec<usize>>,
    /// The routes that steps name.
    pub routes: Routes,
}

impl Pipeline {
    /// Builds task `task` of the pipeline. Reads modules and schemas; connects to nothing.
    pub fn build(spec: &Spec, task: u32, engine: &Engine) -> Result<Pipeline> {
        if task >= spec.tasks {
            return Err(Error::config("no such task: tasks are numbered from 0").with("task", task).with("tasks", spec.tasks));
        }
        keyed::check(spec)?;
        let mut routes = Routes::new(spec.steps.iter().any(|step| step.aggregate.is_some()));
        let mut steps = Vec::new();
        for step in &spec.steps {
            steps.push(match step.aggregate {
                Some(_) => keyed::plan(step, spec, engine, &mut routes)?,
                None => transform(step, engine, &mut routes)?,
            });
        }

        let mut sources = Vec::new();
        for source in &spec.sources {
            let (event_time, lag_ms) = keyed::event_time(source)?;
            let connector = open_source(source, spec)?;
            sources.push(NamedSource { name: source.name.as_str().into(), connector, event_time, lag_ms });
        }
        let transactions = (spec.delivery == Delivery::ExactlyOnce)
            .then(|| Arc::new(sinks::kafka::Transactions::new(spec.checkpoint.interval.0)));
        let mut sinks = Vec::new();
        let mut takers: HashMap<Route, Vec<usize>> = HashMap::new();
        for (number, sink) in spec.sinks.iter().enumerate() {
            for name in &sink.from {
                takers.entry(routes.find(name, &sink.place)?).or_default().push(number);
            }
            let takes_dead_letters = sink.from.iter().any(|name| name == "dead_letter");
            if takes_dead_letters && sink.from.len() > 1 {
                return Err(Error::config(
                    "a sink for dead letters takes nothing else: give the other routes a sink of their own",
                )
                .with("at", &sink.place));
            }
            sinks.push(NamedSink {
                name: sink.name.as_str().into(),
                connector: open_sink(sink, takes_dead_letters, &transactions)?,
                takes_dead_letters,
            });
        }
        routes.check_taken(&takers)?;
        check_delivery(spec.delivery, &sources, &sinks)?;
        Ok(Pipeline {
            name: spec.pipeline.clone(),
            task,
            tasks: spec.tasks,
            workers: spec.workers,
            restarts: spec.restarts,
            interval: spec.checkpoint.interval.0,
            store: LogStore::open(&spec.checkpoint.store, spec.checkpoint.options.clone())?,
            sources,
            steps,
            sinks,
            takers,
            routes,
        })
    }

    /// A step with another module than that of the file, checked as that was.
    pub(super) fn plan_with(&self, step: &str, bytes: &[u8]) -> Result<StepPlan> {
        let known = || self.steps.iter().map(|step| &*step.name).collect::<Vec<_>>().join(",");
        let plan = self.steps.iter().find(|plan| *plan.name == *step);
        let plan = plan.ok_or_else(|| Error::config("no such step").with("step", step).with("known", known()))?;
        let (Some(module), Some(code)) = (&plan.module, &plan.code) else {
            return Err(Error::config("the step runs no module").with("step", step));
        };
        let made =
            StepPlan::guest(plan.name.clone(), module.sibling(bytes)?, code.clone(), &mut |route| self.routes.known(route))?;
        Ok(StepPlan { tap: plan.tap.clone(), ..made })
    }

    /// Looks whether every source and sink can be used, changing nothing.
    pub async fn check(&self) -> Result<()> {
        for source in &self.sources {
            let checked = source.connector.check().await;
            checked.map_err(|e| Error::new(e.kind(), "the source can't be used").with("source", &source.name).because(e))?;
        }
        for sink in &self.sinks {
            let checked = sink.connector.check().await;
            checked.map_err(|e| Error::new(e.kind(), "the sink can't be used").with("sink", &sink.name).because(e))?;
        }
        Ok(())
    }

    /// The keyed step of the file, if there is one.
    pub fn windows(&self) -> Option<&aggregate::Settings> {
        self.steps.iter().find_map(StepPlan::windows)
    }

    /// Whether any sink has its rows spread over the workers.
    pub fn spreads(&self) -> Result<bool> {
        Ok(self.distributions()?.iter().any(|(_, spread)| spread.is_some()))
    }

    /// How each sink has its rows spread, for one sending worker.
    pub fn distributions(&self) -> Result<crate::worker::Spreads> {
        self.sinks.iter().map(|sink| Ok((sink.name.clone(), sink.connector.distribution()?))).collect()
    }
}

/// The engine with its folder of compiled modules: `$WEIR_CACHE_DIR`, else the user's cache folder.
pub fn engine() -> Result<Engine> {
    let home = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = home("WEIR_CACHE_DIR")
        .or_else(|| home("XDG_CACHE_HOME").map(|cache| cache.join("weir")))
        .or_else(|| home("HOME").map(|home| home.join(".cache/weir")));
    match Engine::new(folder) {
        Ok(engine) => Ok(engine),
        // A read-only root without a cache folder is how containers run: modules are then compiled at each start.
        Err(error) => {
            tracing::debug!(%error, "no cache of compiled modules");
            Engine::new(None)
        }
    }
}

/// Numbers for the names of routes.
#[derive(Default)]
pub struct Routes {
    names: Vec<(String, Route, String)>,
    /// There are windows, so that messages may be late.
    windows: bool,
}

impl Routes {
    fn new(windows: bool) -> Routes {
        Routes { names: Vec::new(), windows }
    }

    /// The number of a route that a step names. The same name from two steps is the same route.
    pub(super) fn number(&mut self, name: &str, step: &str) -> Result<Route> {
        let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(Error::config(
                "the module names a route that no pipeline file could: up to 64 letters, digits, `-` and `_`",
            )
            .with("route", format!("{name:?}"))
            .with("step", step));
        }
        if let "main" | "dead_letter" | "late" = name {
            return Err(Error::config("a step may not give a route one of the names that every pipeline has")
                .with("route", name)
                .with("step", step));
        }
        if let Some((_, route, _)) = self.names.iter().find(|(known, ..)| known == name) {
            return Ok(*route);
        }
        let number = Route::FIRST_NAMED as usize + self.names.len();
        let route =
            u8::try_from(number).map(Route).map_err(|_| Error::config("too many routes: at most 254").with("step", step))?;
        self.names.push((name.to_string(), route, step.to_string()));
        Ok(route)
    }

    /// The number of a route that a module names which comes later than the file.
    fn known(&self, name: &str) -> Result<Route> {
        self.names.iter().find(|(known, ..)| known == name).map(|(_, route, _)| *route).ok_or_else(|| {
            Error::config("no sink takes a route that the module names: add the sink to the pipeline file and start it again")
                .with("route", name)
        })
    }

    /// The route that a sink's `from` names.
    fn find(&self, name: &str, place: &str) -> Result<Route> {
        match name {
            "main" => Ok(Route::MAIN),
            "dead_letter" => Ok(Route::DEAD_LETTER),
            "late" if self.windows => Ok(Route::LATE),
            "late" => Err(Error::config("nothing is late without windows: `late` needs an `aggregate` step").with("at", place)),
            _ => self.names.iter().find(|(known, ..)| known == name).map(|(_, route, _)| *route).ok_or_else(|| {
                let known: Vec<&str> =
                    ["main", "dead_letter", "late"].into_iter().chain(self.names.iter().map(|(n, ..)| n.as_str())).collect();
                Error::config("no step names this route").with("route", name).with("known", known.join(",")).with("at", place)
            }),
        }
    }

    /// A route without a sink would lose its rows: refuse.
    fn check_taken(&self, takers: &HashMap<Route, Vec<usize>>) -> Result<()> {
        if !takers.contains_key(&Route::MAIN) {
            return Err(Error::config("no sink takes the main route: add one without `from`"));
        }
        match self.names.iter().find(|(_, route, _)| !takers.contains_key(route)) {
            None => Ok(()),
            Some((name, _, step)) => {
                Err(Error::config("no sink takes the route: add a sink with it in `from` (`blackhole` drops rows on purpose)")
                    .with("route", name)
                    .with("step", step))
            }
        }
    }
}

fn transform(step: &StepSpec, engine: &Engine, routes: &mut Routes) -> Result<StepPlan> {
    let at = |e: Error| Error::new(e.kind(), "cannot build the step").with("step", &step.name).because(e);
    let path = step.transform.as_deref().unwrap_or_default();
    let module = Module::load(engine, std::path::Path::new(path)).map_err(at)?;
    let grants = Grants::named(&step.grants).map_err(at)?;
    let (config, limits, name): (_, _, Arc<str>) = (step.config_json().to_string(), step.limits, step.name.as_str().into());
    let of = name.clone();
    let code = move |module: &Module, find: &mut FindRoute<'_>| {
        if module.facts().world != World::Transformer {
            return Err(Error::config("the module is an aggregator: name it under `aggregate`, with a `window`"));
        }
        // The first instance tells the routes, and whether the config is one that the module takes. What a module
        // does wrong here is the person's to mend before anything runs.
        let probe = Instance::new(module, &limits, grants, &config, &of).map_err(|e| e.as_kind(ErrorKind::Config))?;
        let routes = probe.routes().iter().map(|route| find(route)).collect::<Result<Vec<_>>>()?;
        let settings = Settings { step: of.clone(), module: module.clone(), config: config.clone(), limits, grants, routes };
        Ok(Make::Transform(Box::new(settings)))
    };
    let plan = StepPlan::guest(name, module, Arc::new(code), &mut |route| routes.number(route, &step.name));
    plan.map_err(|e| at(e.with("path", path)))
}

fn open_source(source: &Connector, spec: &Spec) -> Result<Box<dyn SourceConnector>> {
    let (settings, place, name) = (source.settings.clone(), source.place.as_str(), source.name.as_str());
    let at = |e: Error| Error::new(e.kind(), "cannot build the source").with("at", place).because(e);
    Ok(match source.kind.as_str() {
        "generator" => Box::new(sources::generator::Connector::new(typed(settings, place)?, name).map_err(at)?),
        "file" => Box::new(sources::file::Connector::new(typed(settings, place)?, name).map_err(at)?),
        "stdin" => Box::new(sources::stdin::Connector::new(typed(settings, place)?, name).map_err(at)?),
        "kafka" => Box::new(sources::kafka::Connector::new(typed(settings, place)?, name, &spec.pipeline).map_err(at)?),
        "pubsub" => {
            let promise = match spec.delivery {
                Delivery::ExactlyOnce => sources::pubsub::Promise::ExactlyOnce,
                Delivery::AtLeastOnce => sources::pubsub::Promise::AtLeastOnce,
            };
            Box::new(sources::pubsub::Connector::new(typed(settings, place)?, name, promise, spec.tasks).map_err(at)?)
        }
        other => return Err(at(Error::bug("a kind of source that nothing opens").with("kind", other))),
    })
}

fn open_sink(
    sink: &Connector,
    dead_letters: bool,
    transactions: &Option<Arc<sinks::kafka::Transactions>>,
) -> Result<Box<dyn SinkConnector>> {
    let (settings, place, name) = (sink.settings.clone(), sink.place.as_str(), sink.name.as_str());
    let at = |e: Error| Error::new(e.kind(), "cannot build the sink").with("at", place).because(e);
    let format = if dead_letters { sinks::file::Format::Envelope } else { sinks::file::Format::Lines };
    Ok(match sink.kind.as_str() {
        "file" => Box::new(sinks::file::Connector::new(typed(settings, place)?, name, format).map_err(at)?),
        "stdout" => Box::new(sinks::stdout::Connector::new(typed(settings, place)?, name, format).map_err(at)?),
        "blackhole" => Box::new(sinks::blackhole::Connector::new(typed(settings, place)?, name).map_err(at)?),
        "kafka" => Box::new(sinks::kafka::Connector::new(typed(settings, place)?, name, transactions.clone()).map_err(at)?),
        "pubsub" => Box::new(sinks::pubsub::Connector::new(typed(settings, place)?).map_err(at)?),
        "iceberg" => Box::new(sinks::iceberg::Connector::new(typed(settings, place)?, name).map_err(at)?),
        other => return Err(at(Error::bug("a kind of sink that nothing opens").with("kind", other))),
    })
}

/// Exactly-once needs sources that can be read again and sinks that can hold back.
fn check_delivery(delivery: Delivery, sources: &[NamedSource], sinks: &[NamedSink]) -> Result<()> {
    if delivery == Delivery::AtLeastOnce {
        return Ok(());
    }
    if let Some(source) = sources.iter().find(|s| !s.connector.replayable()) {
        return Err(Error::config(
            "the source can't take part in exactly-once: what was read once can't be read again after a crash; set `delivery: at-least-once`",
        )
        .with("source", &source.name));
    }
    if let Some(sink) = sinks.iter().find(|s| !s.connector.transactional()) {
        return Err(Error::config(
            "the sink can't take part in exactly-once: what it has written can't be held back until the checkpoint; set `delivery: at-least-once`",
        )
        .with("sink", &sink.name));
    }
    Ok(())
}

/// The JSON schema of pipeline files, every connector's settings included.
pub fn schema() -> serde_json::Value {
    let sources = [
        ("file", schema_of::<sources::file::Config>()),
        ("generator", schema_of::<sources::generator::Config>()),
        ("kafka", schema_of::<sources::kafka::Config>()),
        ("pubsub", schema_of::<sources::pubsub::Config>()),
        ("stdin", schema_of::<sources::stdin::Config>()),
    ];
    let sinks = [
        ("blackhole", schema_of::<sinks::blackhole::Config>()),
        ("file", schema_of::<sinks::file::Config>()),
        ("iceberg", schema_of::<sinks::iceberg::Config>()),
        ("kafka", schema_of::<sinks::kafka::Config>()),
        ("pubsub", schema_of::<sinks::pubsub::Config>()),
        ("stdout", schema_of::<sinks::stdout::Config>()),
    ];
    super::spec::json_schema(&sources, &sinks)
}

/// A connector's settings with every type written out in place: two connectors may have types of the same name.
fn schema_of<T: schemars::JsonSchema>() -> schemars::Schema {
    let settings = schemars::generate::SchemaSettings::default().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>()
}
