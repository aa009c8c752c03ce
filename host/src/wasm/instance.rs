//! One running guest: a store with its limits. Owns the call into the sandbox, and turns traps,
//! deadlines and refused memory into errors that say which limit it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::Linker;
use wasmtime::{ResourceLimiter, Store, Trap};

use super::engine::DEADLINE_TICK;
use super::limits::Limits;
use super::module::Module;
use super::v1;
pub use super::v1::Output as Outcome;
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

/// A configured guest that takes batches. After an error other than a refusal it must be thrown away.
pub struct Instance {
    store: Store<Side>,
    bindings: v1::Bindings,
    limits: Limits,
    routes: Vec<String>,
}

impl Instance {
    /// Starts and configures a guest. The limits hold from the first instruction on.
    pub fn new(module: &Module, limits: &Limits, grants: Grants, config: &str, step: &Arc<str>) -> Result<Instance> {
        check_imports(module, grants)?;
        let engine = &module.engine.inner;
        let mut linker: Linker<Side> = Linker::new(engine);
        if grants.log {
            v1::log::add_to_linker::<Side, SideData>(&mut linker, |side| side)
                .map_err(|e| Error::bug("cannot link the log").because(format!("{e:#}")))?;
        }
        let side = Side {
            step: step.clone(),
            module: module.digest().clone(),
            memory_limit: limits.memory.0 as usize,
            memory_bytes: 0,
            refused: AtomicBool::new(false),
            log_limit: limits.log.0,
            log_left: limits.log.0,
        };
        let mut store = Store::new(engine, side);
        store.limiter(|side| side);
        store.set_hostcall_fuel(usize::try_from(limits.output.0.saturating_mul(2)).unwrap_or(usize::MAX));
        store.set_epoch_deadline(ticks(limits.deadline.0));
        let bindings = v1::Bindings::instantiate(&mut store, &module.component, &linker)
            .map_err(|e| explain(e, store.data(), limits, "the module failed while it was started"))?;
        store.set_epoch_deadline(ticks(limits.deadline.0));
        let routes = bindings
            .call_configure(&mut store, config)
            .map_err(|e| explain(e, store.data(), limits, "the module failed in configure"))?
            .map_err(|reason| Error::config("the module refuses its config").with("reason", v1::clip(&reason)))?;
        Ok(Instance { store, bindings, limits: *limits, routes })
    }

    /// The routes that the guest named in `configure`: the n-th has number n + 1.
    pub fn routes(&self) -> &[String] {
        &self.routes
    }

    /// Hands one batch to the guest, with at most `deadline` of time.
    pub fn transform(&mut self, batch: &Batch, deadline: std::time::Duration) -> Result<Outcome> {
        self.store.set_epoch_deadline(ticks(deadline));
        let side = self.store.data_mut();
        side.log_left = side.log_limit;
        side.refused.store(false, Ordering::Relaxed);
        match v1::transform(&self.bindings, &mut self.store, batch, &self.limits, self.routes.len()) {
            Ok(outcome) => outcome,
            Err(trap) => Err(explain(trap, self.store.data(), &self.limits, "the module failed")),
        }
    }

    /// Linear memory in use, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.store.data().memory_bytes as u64
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

fn ticks(deadline: std::time::Duration) -> u64 {
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
