//! A compiled guest: its bytes, digest, world and imports. Compiling happens here, off the data path.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::componentize::{componentize, is_component};
use super::engine::Engine;
use super::preview1;
use crate::error::{Error, Result};

/// The newest contract that this host speaks.
pub const CONTRACT_VERSION: &str = "1.1.0";

/// Imports that only bring types and so need no grant.
const TYPES: &str = "weir:udf/types@";

/// A guest ready to be instantiated.
#[derive(Clone)]
pub struct Module {
    pub(super) engine: Engine,
    pub(super) component: Component,
    bytes: Arc<[u8]>,
    digest: Arc<str>,
    facts: Arc<Facts>,
}

/// What a module can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// Turns messages into messages.
    Transformer,
    /// Sums up the messages of a key and window.
    Aggregator,
}

impl World {
    /// What the module must export besides `configure`.
    fn exports(self) -> &'static [&'static str] {
        match self {
            World::Transformer => &["transform"],
            World::Aggregator => &["accumulate", "merge", "emit", "state-version", "migrate"],
        }
    }

    /// The contract's word.
    pub fn name(self) -> &'static str {
        match self {
            World::Transformer => "transformer",
            World::Aggregator => "aggregator",
        }
    }
}

/// What a module says of itself.
#[derive(Debug, serde::Serialize)]
pub struct Facts {
    /// `component`, or `core module` that the host made a component of.
    pub form: &'static str,
    /// The world.
    pub world: World,
    /// The contract version that it was built for.
    pub contract: String,
    /// What it imports beyond types: each needs a grant.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// Size of the file in bytes.
    pub size_bytes: usize,
}

impl Module {
    /// Reads and compiles a module file.
    pub fn load(engine: &Engine, path: &Path) -> Result<Module> {
        let bytes = std::fs::read(path).map_err(|e| {
            Error::config("cannot read the module: build it or correct the path").with("path", path.display()).because(e)
        })?;
        Module::compile(engine, &bytes)
            .map_err(|e| Error::new(e.kind(), "cannot use the module").with("path", path.display()).because(e))
    }

    /// Compiles a component or a core module. Fails with what to do when it is of another world.
    pub fn compile(engine: &Engine, bytes: &[u8]) -> Result<Module> {
        let component_bytes = if is_component(bytes)? { None } else { Some(componentize(bytes)?) };
        let component = Component::new(&engine.inner, component_bytes.as_deref().unwrap_or(bytes))
            .map_err(|e| Error::config("the module does not compile").because(format!("{e:#}")))?;
        let facts = inspect(engine, &component, component_bytes.is_none(), bytes.len())?;
        Ok(Module {
            engine: engine.clone(),
            component,
            bytes: bytes.into(),
            digest: digest(bytes).into(),
            facts: Arc::new(facts),
        })
    }

    /// Compiles another module with the same engine.
    pub fn sibling(&self, bytes: &[u8]) -> Result<Module> {
        Module::compile(&self.engine, bytes)
    }

    /// SHA-256 of the file, in hexadecimal: the module's name everywhere.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    /// The file as it was read.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// What the module says of itself.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }
}

/// SHA-256 in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn inspect(engine: &Engine, component: &Component, is_component: bool, size_bytes: usize) -> Result<Facts> {
    let ty = component.component_type();
    let mut contract = None;
    let mut imports = Vec::new();
    for (name, item) in ty.imports(&engine.inner) {
        if let Some(version) = name.strip_prefix(TYPES) {
            contract = Some(version.to_string());
            continue;
        }
        // Brought by our own adapter, not by the author.
        if name == preview1::STDIO {
            continue;
        }
        // An instance that brings types only asks for nothing.
        let asks = match item.ty {
            ComponentItem::ComponentInstance(instance) => {
                instance.exports(&engine.inner).any(|(_, e)| !matches!(e.ty, ComponentItem::Type(_) | ComponentItem::Resource(_)))
            }
            ComponentItem::Type(_) => false,
            _ => true,
        };
        if asks {
            imports.push(name.to_string());
        }
    }
    let exports: Vec<String> = ty.exports(&engine.inner).map(|(name, _)| name.to_string()).collect();
    let has = |name: &str| exports.iter().any(|export| export == name);
    let worlds = [World::Transformer, World::Aggregator];
    let world = worlds.into_iter().find(|world| has("configure") && world.exports().iter().all(|export| has(export)));
    let Some(world) = world else {
        return Err(Error::config(
            "the module is of another world: a transform exports `configure` and `transform` of weir:udf@1, an aggregator \
             `configure`, `accumulate`, `merge`, `emit`, `state-version` and `migrate` (see docs/udf-guide.md)",
        )
        .with("exports", if exports.is_empty() { "none".into() } else { exports.join(",") }));
    };
    let contract = contract.unwrap_or_else(|| CONTRACT_VERSION.to_string());
    if !contract.starts_with("1.") {
        return Err(Error::config(
            "the module was built for a contract that this host does not speak: rebuild it with weir:udf@1",
        )
        .with("contract", contract));
    }
    Ok(Facts { form: if is_component { "component" } else { "core module" }, world, contract, imports, exports, size_bytes })
}
