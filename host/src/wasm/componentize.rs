//! Makes a component of a plain core module, so that authors need no tool of ours: the contract's
//! types are added when the module doesn't carry them.

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::error::{Error, Result};

/// The contract as guests know it: the single copy, compiled in.
const CONTRACT: &str = include_str!("../../../guest-sdk/wit/udf.wit");

/// The world that a module without embedded types is taken for.
const DEFAULT_WORLD: &str = "transformer";

/// True for a component, false for a core module. Anything else is refused.
pub fn is_component(wasm: &[u8]) -> Result<bool> {
    match wasm.get(..8) {
        Some(b"\0asm\x01\0\0\0") => Ok(false),
        Some(b"\0asm\x0d\0\x01\0") => Ok(true),
        _ => Err(Error::config("not a WebAssembly module: the file doesn't begin with \\0asm and a known version")),
    }
}

/// The module as a component.
pub fn componentize(core: &[u8]) -> Result<Vec<u8>> {
    let refuse = |message: &str, why: String| Error::config(message).because(why);
    let mut module = core.to_vec();
    if !core.windows(14).any(|window| window == b"component-type") {
        let mut resolve = Resolve::default();
        let package = resolve
            .push_str("udf.wit", CONTRACT)
            .map_err(|e| Error::bug("the guest contract does not parse").because(format!("{e:#}")))?;
        let world = resolve
            .select_world(&[package], Some(DEFAULT_WORLD))
            .map_err(|e| Error::bug("the guest contract has no transformer world").because(format!("{e:#}")))?;
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
            .map_err(|e| refuse("cannot add the contract's types to the module", format!("{e:#}")))?;
    }
    ComponentEncoder::default()
        .validate(true)
        .module(&module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|e| refuse("the module does not follow weir:udf@1: build it with an SDK of guest-sdk/", format!("{e:#}")))
}
