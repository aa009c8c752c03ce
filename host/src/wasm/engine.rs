//! One engine for the process: compiler, code cache, instance pool, and the ticker of deadlines.

use std::path::PathBuf;
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::error::{Error, Result};

/// How often the deadline clock ticks: how exactly a deadline is kept.
pub const DEADLINE_TICK: Duration = Duration::from_millis(5);

/// Instances that can live at once in one process: workers × steps, and those that a search makes.
const POOL_INSTANCES: u32 = 256;

/// The folder for compiled code within the cache folder, and nothing else's.
const COMPILED: &str = "compiled";

/// Stack of a guest, in bytes.
const STACK_BYTES: usize = 1 << 20;

/// Compiles modules and runs the ticker that ends guests at their deadline.
#[derive(Clone)]
pub struct Engine {
    pub(super) inner: wasmtime::Engine,
}

impl Engine {
    /// An engine that keeps compiled code in a folder of its own under `cache`, if given, so that a module compiles once.
    pub fn new(cache: Option<PathBuf>) -> Result<Engine> {
        let fail = |e: wasmtime::Error| Error::bug("cannot set up the wasm engine").because(e);
        let mut config = Config::new();
        config.epoch_interruption(true).max_wasm_stack(STACK_BYTES).wasm_backtrace_max_frames(std::num::NonZeroUsize::new(16));
        if let Some(directory) = cache {
            // Wasmtime deletes whatever it doesn't know in the folder that it is given, so it never gets one that
            // may hold anything else: not what a user names, and not the cache folder of the user.
            let directory = directory.join(COMPILED);
            let mut settings = CacheConfig::new();
            settings.with_directory(&directory);
            let cache = Cache::new(settings).map_err(|e| {
                Error::config("cannot use the folder of compiled modules: make it writable or set WEIR_CACHE_DIR")
                    .with("path", directory.display())
                    .because(e)
            })?;
            config.cache(Some(cache));
        }
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(POOL_INSTANCES)
            .total_core_instances(POOL_INSTANCES * 4)
            .total_memories(POOL_INSTANCES)
            .total_tables(POOL_INSTANCES * 4)
            .table_elements(200_000)
            .max_core_instance_size(4 << 20)
            .max_component_instance_size(4 << 20)
            .max_memory_size(4 << 30)
            .linear_memory_keep_resident(4 << 20);
        let mut pooled = config.clone();
        pooled.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        // A process with little address space (ulimit -v) can't have the pool: instances are then mapped one by one.
        let inner = match wasmtime::Engine::new(&pooled) {
            Ok(engine) => engine,
            Err(error) => {
                tracing::debug!(%error, "no instance pool, mapping each instance by itself");
                wasmtime::Engine::new(&config).map_err(fail)?
            }
        };
        start_ticker(&inner)?;
        Ok(Engine { inner })
    }
}

/// What a thread of lower priority adds to its niceness: beside busy workers it gets about a tenth of a core.
const BESIDE_NICENESS: i32 = 10;

/// Does something beside the data path, above all compiling: on threads of their own, which workers go before.
pub fn beside<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let threads = rayon::ThreadPoolBuilder::new().thread_name(|n| format!("weir-beside-{n}")).start_handler(|_| {
        // On Linux niceness is a thread's own. Where it can't be had the work is done all the same.
        let _ = rustix::process::nice(BESIDE_NICENESS);
    });
    // What is compiled in parallel stays on the threads of the pool that it is called in.
    threads.build().map_err(|e| Error::transient("cannot start threads for compiling").because(e))?.install(work)
}

/// Ticks until the engine is gone.
fn start_ticker(engine: &wasmtime::Engine) -> Result<()> {
    let weak = engine.weak();
    std::thread::Builder::new()
        .name("weir-deadlines".into())
        .spawn(move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(DEADLINE_TICK);
            }
        })
        .map(drop)
        .map_err(|e| Error::transient("cannot start the deadline thread").because(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidying_the_cache_leaves_what_else_lies_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let others = ["notes.txt", "project/target/release/deps/lib.rlib", "modules/wasmtime-1/mine"];
        let stray = folder.path().join(COMPILED).join("modules/wasmtime-1/left/behind");
        for file in others.iter().map(|name| folder.path().join(name)).chain([stray.clone()]) {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "dear").unwrap();
        }
        let engine = Engine::new(Some(folder.path().into())).unwrap();
        wasmtime::Module::new(&engine.inner, "(module)").unwrap();
        // The tidying runs on a thread of wasmtime's own; it has been here when the stray file is gone.
        let began = std::time::Instant::now();
        while stray.exists() {
            assert!(began.elapsed() < Duration::from_secs(60), "the cache was never tidied");
            std::thread::sleep(Duration::from_millis(10));
        }
        for name in others {
            assert!(folder.path().join(name).is_file(), "{name} was deleted");
        }
    }
}
