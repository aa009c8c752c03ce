//! One running guest: a store with its limits. Owns the call into the sandbox, and turns traps,
//! deadlines and refused memory into errors that say which limit it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::BinaryArray;
use wasmtime::component::Linker;
use wasmtime::{ResourceLimiter, Store, Trap};

use super::engine::DEADLINE_TICK;
use super::limits::Limits;
use super::module::Module;
use super::preview1;
use super::v1;
pub use super::v1::Output as Outcome;
pub use super::v1::aggregate::{Accumulated, Panes};
use crate::batch::Batch;
use crate::error::{Error, Result};

/// Imports that a pipeline may grant to a guest, by the name in the pipeline file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// `log`: lines in the host's log.
    pub log: bool,
}

impl Grants {
    /// The grants by name; an unknown name is refused with the known ones.
    pub fn named(names: &[String]) -> Result<Grants> {
        let mut grants = Grants::default();
        for name in names {
            match name.as_str() {
                "log" => grants.log = true,
                other => return Err(Error::config("unknown grant: the only one is `log`").with("grant", other)),
            }
        }
        Ok(grants)
    }
}

/// The host's side of an instance.
struct Side {
    step: Arc<str>,
    module: Arc<str>,
    memory_limit: usize,
    memory_bytes: usize,
    /// A growth was refused since the last call began.
    refused: AtomicBool,
    log_limit: u64,
    log_left: u64,
    /// Standard output and error become lines of the log.
    logs_stdio: bool,
    stdio: [preview1::Lines; 2],
}

impl ResourceLimiter for Side {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let others = self.memory_bytes.saturating_sub(current);
        if others.saturating_add(desired) > self.memory_limit {
            self.refused.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        self.memory_bytes = others + desired;
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 200_000)
    }
}

impl Side {
    /// What a guest of WASI preview 1 writes to standard output (1) or error (2).
    fn write_stdio(&mut self, to: u32, bytes: &[u8]) {
        if !self.logs_stdio {
            return;
        }
        let (lines, level) =
            if to == 1 { (&mut self.stdio[0], v1::log::Level::Info) } else { (&mut self.stdio[1], v1::log::Level::Warn) };
        for line in lines.push(bytes) {
            v1::log::Host::log(self, level, line);
        }
    }
}

/// What a guest was in the middle of writing when it died may say why.
impl Drop for Side {
    fn drop(&mut self) {
        for (lines, level) in [(0, v1::log::Level::Info), (1, v1::log::Level::Warn)] {
            if let Some(line) = self.stdio[lines].finish() {
                v1::log::Host::log(self, level, line);
            }
        }
    }
}

impl v1::log::Host for Side {
    fn log(&mut self, level: v1::log::Level, message: String) {
        let length = message.len() as u64;
        if length > self.log_left {
            if self.log_left > 0 {
                tracing::warn!(step = %self.step, limit_bytes = self.log_limit, "the guest logs too much in one call, dropping the rest");
            }
            self.log_left = 0;
            return;
        }
        self.log_left -= length;
        let (step, module) = (&self.step, &self.module[..12.min(self.module.len())]);
        match level {
            v1::log::Level::Trace => tracing::trace!(target: "weir::guest", %step, module, "{message}"),
            v1::log::Level::Debug => tracing::debug!(target: "weir::guest", %step, module, "{message}"),
            v1::log::Level::Info => tracing::info!(target: "weir::guest", %step, module, "{message}"),
            v1::log::Level::Warn => tracing::warn!(target: "weir::guest", %step, module, "{message}"),
            v1::log::Level::Error => tracing::error!(target: "weir::guest", %step, module, "{message}"),
        }
    }
}

struct SideData;
impl wasmtime::component::HasData for SideData {
    type Data<'a> = &'a mut Side;
}

/// A store with its limits, and what a guest may import.
struct Sandbox {
    store: Store<Side>,
    limits: Limits,
}

impl Sandbox {
    /// An empty sandbox for a module, with a linker for what it was granted.
    fn new(module: &Module, limits: &Limits, grants: Grants, step: &Arc<str>) -> Result<(Sandbox, Linker<Side>)> {
        check_imports(module, grants)?;
        let engine = &module.engine.inner;
        let mut linker: Linker<Side> = Linker::new(engine);
        if grants.log {
            v1::log::add_to_linker::<Side, SideData>(&mut linker, |side| side)
                .map_err(|e| Error::bug("cannot link the log").because(format!("{e:#}")))?;
        }
        linker
            .instance(preview1::STDIO)
            .and_then(|mut stdio| {
                stdio.func_wrap("write", |mut store: wasmtime::StoreContextMut<'_, Side>, (to, bytes): (u32, Vec<u8>)| {
                    store.data_mut().write_stdio(to, &bytes);
                    Ok(())
                })
            })
            .map_err(|e| Error::bug("cannot link the standard output").because(format!("{e:#}")))?;
        let side = Side {
            step: step.clone(),
            module: module.digest().clone(),
            memory_limit: limits.memory.0 as usize,
            memory_bytes: 0,
            refused: AtomicBool::new(false),
            log_limit: limits.log.0,
            log_left: limits.log.0,
            logs_stdio: grants.log,
            stdio: Default::default(),
        };
        let mut store = Store::new(engine, side);
        store.limiter(|side| side);
        store.set_hostcall_fuel(usize::try_from(limits.output.0.saturating_mul(2)).unwrap_or(usize::MAX));
        store.set_epoch_deadline(ticks(limits.deadline.0));
        Ok((Sandbox { store, limits: *limits }, linker))
    }

    /// Prepares for one call of at most `deadline`.
    fn begin(&mut self, deadline: Duration) {
        self.store.set_epoch_deadline(ticks(deadline));
        let side = self.store.data_mut();
        side.log_left = side.log_limit;
        side.refused.store(false, Ordering::Relaxed);
    }

    /// What a trap was, in words.
    fn explain(&self, trap: wasmtime::Error, message: &'static str) -> Error {
        explain(trap, self.store.data(), &self.limits, message)
    }

    /// The outcome of a call, a trap explained.
    fn ended<T>(&self, outcome: wasmtime::Result<Result<T>>) -> Result<T> {
        outcome.unwrap_or_else(|trap| Err(self.explain(trap, "the module failed")))
    }

    /// The answer of `configure`.
    fn configured(&self, answer: wasmtime::Result<Result<Vec<String>, String>>) -> Result<Vec<String>> {
        answer
            .map_err(|e| self.explain(e, "the module failed in configure"))?
            .map_err(|reason| Error::config("the module refuses its config").with("reason", v1::clip(&reason)))
    }
}

const STARTING: &str = "the module failed while it was started";

/// A configured guest that turns batches into batches. After an error other than a refusal it must be thrown away.
pub struct Instance {
    sandbox: Sandbox,
    bindings: v1::Bindings,
    routes: Vec<String>,
}

impl Instance {
    /// Starts and configures a guest. The limits hold from the first instruction on.
    pub fn new(module: &Module, limits: &Limits, grants: Grants, config: &str, step: &Arc<str>) -> Result<Instance> {
        let (mut sandbox, linker) = Sandbox::new(module, limits, grants, step)?;
        let bindings = v1::Bindings::instantiate(&mut sandbox.store, &module.component, &linker);
        let bindings = bindings.map_err(|e| sandbox.explain(e, STARTING))?;
        sandbox.begin(limits.deadline.0);
        let answer = bindings.call_configure(&mut sandbox.store, config);
        let routes = sandbox.configured(answer)?;
        Ok(Instance { sandbox, bindings, routes })
    }

    /// The routes that the guest named in `configure`: the n-th has number n + 1.
    pub fn routes(&self) -> &[String] {
        &self.routes
    }

    /// Hands one batch to the guest, with at most `deadline` of time.
    pub fn transform(&mut self, batch: &Batch, deadline: Duration) -> Result<Outcome> {
        self.sandbox.begin(deadline);
        let Sandbox { store, limits } = &mut self.sandbox;
        let outcome = v1::transform(&self.bindings, store, batch, limits, self.routes.len());
        self.sandbox.ended(outcome)
    }

    /// Linear memory in use, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.sandbox.store.data().memory_bytes as u64
    }
}

/// A configured guest that sums up. After an error other than a refusal it must be thrown away.
pub struct Aggregator {
    sandbox: Sandbox,
    bindings: v1::aggregate::Bindings,
    routes: Vec<String>,
    state_version: u32,
}

impl Aggregator {
    /// Starts and configures a guest. The limits hold from the first instruction on.
    pub fn new(module: &Module, limits: &Limits, grants: Grants, config: &str, step: &Arc<str>) -> Result<Aggregator> {
        let (mut sandbox, linker) = Sandbox::new(module, limits, grants, step)?;
        let bindings = v1::aggregate::Bindings::instantiate(&mut sandbox.store, &module.component, &linker);
        let bindings = bindings.map_err(|e| sandbox.explain(e, STARTING))?;
        sandbox.begin(limits.deadline.0);
        let answer = bindings.call_configure(&mut sandbox.store, config);
        let routes = sandbox.configured(answer)?;
        sandbox.begin(limits.deadline.0);
        let state_version = bindings.call_state_version(&mut sandbox.store);
        let state_version = state_version.map_err(|e| sandbox.explain(e, "the module failed in state-version"))?;
        Ok(Aggregator { sandbox, bindings, routes, state_version })
    }

    /// The routes that the guest named in `configure`: the n-th has number n + 1.
    pub fn routes(&self) -> &[String] {
        &self.routes
    }

    /// The version of the guest's accumulators.
    pub fn state_version(&self) -> u32 {
        self.state_version
    }

    /// Makes a fragment of each group of a batch: group i is `rows[ends[i - 1]..ends[i]]`.
    pub fn accumulate(&mut self, batch: &Batch, rows: &[u32], ends: &[u32], deadline: Duration) -> Result<Accumulated> {
        self.sandbox.begin(deadline);
        let Sandbox { store, limits } = &mut self.sandbox;
        let outcome = v1::aggregate::accumulate(&self.bindings, store, batch, rows, ends, limits);
        self.sandbox.ended(outcome)
    }

    /// Makes one accumulator of each list: list i is `fragments[ends[i - 1]..ends[i]]`.
    pub fn merge(&mut self, fragments: &BinaryArray, ends: &[u32]) -> Result<BinaryArray> {
        self.sandbox.begin(self.sandbox.limits.deadline.0);
        let Sandbox { store, limits } = &mut self.sandbox;
        let outcome = v1::aggregate::merge(&self.bindings, store, fragments, ends, limits);
        self.sandbox.ended(outcome)
    }

    /// Turns panes into rows, whose origins are panes.
    pub fn emit(&mut self, panes: &Panes, deadline: Duration) -> Result<Outcome> {
        self.sandbox.begin(deadline);
        let Sandbox { store, limits } = &mut self.sandbox;
        let outcome = v1::aggregate::emit(&self.bindings, store, panes, limits, self.routes.len());
        self.sandbox.ended(outcome)
    }

    /// Brings accumulators of an older version into the guest's own.
    pub fn migrate(&mut self, version: u32, accumulators: &BinaryArray) -> Result<BinaryArray> {
        self.sandbox.begin(self.sandbox.limits.deadline.0);
        let Sandbox { store, limits } = &mut self.sandbox;
        let outcome = v1::aggregate::migrate(&self.bindings, store, version, accumulators, limits);
        self.sandbox.ended(outcome)
    }

    /// Linear memory in use, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.sandbox.store.data().memory_bytes as u64
    }
}

/// Refuses a module that asks for more than it was granted, naming the import.
fn check_imports(module: &Module, grants: Grants) -> Result<()> {
    for import in &module.facts().imports {
        match import.as_str() {
            name if name.starts_with("weir:udf/log@1.") => {
                if !grants.log {
                    return Err(Error::config("the module wants to log and was not granted it: add `grants: [log]` to the step")
                        .with("import", name));
                }
            }
            name => {
                return Err(Error::config(
                    "the module asks for an import that this host does not have: build it without WASI (see docs/udf-guide.md)",
                )
                .with("import", name));
            }
        }
    }
    Ok(())
}

fn ticks(deadline: Duration) -> u64 {
    (deadline.as_nanos() / DEADLINE_TICK.as_nanos()) as u64 + 1
}

/// Says which limit a failed call ran into, or how it trapped.
fn explain(error: wasmtime::Error, side: &Side, limits: &Limits, message: &'static str) -> Error {
    let trap = error.downcast_ref::<Trap>().copied();
    let text = format!("{error:#}");
    let cause = if side.refused.load(Ordering::Relaxed) {
        format!("out of memory: limits.memory is {}", limits.memory)
    } else if trap == Some(Trap::Interrupt) {
        format!("out of time: limits.deadline is {}", limits.deadline)
    } else if trap == Some(Trap::StackOverflow) {
        "stack overflow".to_string()
    } else if text.contains("fuel allocated for hostcalls has been exhausted") {
        format!("too much output: limits.output is {}", limits.output)
    } else {
        // The deepest cause is the trap itself; what is above it is the guest's backtrace.
        let root = error.root_cause().to_string();
        let place = text.lines().find_map(|line| line.split_once("!").map(|(_, name)| name.trim().to_string()));
        match place {
            Some(place) => format!("{root} in {}", v1::clip(&place)),
            None => root,
        }
    };
    Error::guest(message).with("cause", cause)
}
