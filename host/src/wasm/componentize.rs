//! Makes a component of a plain core module, so that authors need no tool of ours: the contract's types are added when
//! the module doesn't carry them, and WASI preview 1 is replaced by the sandbox's stand-in when it asks for that.

use wasmparser::{ExternalKind, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use super::preview1;
use crate::error::{Error, Result};

/// The contract as guests know it: the single copy, compiled in.
const CONTRACT: &str = include_str!("../../../guest-sdk/wit/udf.wit");

/// Where a guest imports the log from; what follows is the version.
const LOG: &str = "weir:udf/log@";

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
    let interface = Interface::read(core)?;
    let mut module = core.to_vec();
    if !interface.has_types {
        embed(&mut module, interface.world()?)?;
    }
    let refuse =
        |e| Error::config("the module does not follow weir:udf@1: build it with an SDK of guest-sdk/").because(format!("{e:#}"));
    let mut encoder = ComponentEncoder::default().validate(true).module(&module).map_err(refuse)?;
    if interface.wants_wasi() {
        let adapter = preview1::adapter()?;
        interface.check_wasi(&Interface::read(&adapter)?)?;
        encoder = encoder.adapter(preview1::IMPORT, &adapter).map_err(refuse)?;
    }
    encoder.encode().map_err(refuse)
}

/// Adds the contract's types of a world.
fn embed(module: &mut Vec<u8>, world: &str) -> Result<()> {
    let mut resolve = Resolve::default();
    let package = resolve
        .push_str("udf.wit", CONTRACT)
        .map_err(|e| Error::bug("the guest contract does not parse").because(format!("{e:#}")))?;
    let world = resolve
        .select_world(&[package], Some(world))
        .map_err(|e| Error::bug("the guest contract lacks a world").with("world", world).because(format!("{e:#}")))?;
    wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
        .map_err(|e| Error::config("cannot add the contract's types to the module").because(format!("{e:#}")))
}

/// What a core module shows of itself.
#[derive(Default)]
struct Interface<'a> {
    /// Module and name of each import.
    imports: Vec<(&'a str, &'a str)>,
    /// Names of exported functions.
    functions: Vec<&'a str>,
    /// It carries the contract's types, put there by wit-bindgen.
    has_types: bool,
}

impl<'a> Interface<'a> {
    fn read(core: &'a [u8]) -> Result<Interface<'a>> {
        let broken =
            |e: wasmparser::BinaryReaderError| Error::config("not a whole WebAssembly module: build it again").because(e);
        let mut found = Interface::default();
        for payload in Parser::new(0).parse_all(core) {
            match payload.map_err(broken)? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.map_err(broken)?;
                        found.imports.push((import.module, import.name));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export.map_err(broken)?;
                        if export.kind == ExternalKind::Func {
                            found.functions.push(export.name);
                        }
                    }
                }
                Payload::CustomSection(section) => found.has_types |= section.name().starts_with("component-type"),
                _ => {}
            }
        }
        Ok(found)
    }

    fn exports(&self, name: &str) -> bool {
        self.functions.contains(&name)
    }

    /// The world of a module without types: by what only one of them exports, and whether it imports the log.
    fn world(&self) -> Result<&'static str> {
        let logs = self.imports.iter().any(|(module, _)| module.starts_with(LOG));
        match (self.exports("transform"), self.exports("accumulate"), logs) {
            (true, false, false) => Ok("transformer"),
            (true, false, true) => Ok("transformer-logging"),
            (false, true, false) => Ok("aggregator"),
            (false, true, true) => Ok("aggregator-logging"),
            (true, true, _) => Err(Error::config(
                "the module exports both `transform` and `accumulate`: make two modules of it, a transformer and an aggregator",
            )),
            (false, false, _) => Err(Error::config(
                "the module is of another world: it exports neither `transform` nor `accumulate` of weir:udf@1 (see docs/udf-guide.md)",
            )
            .with("exports", if self.functions.is_empty() { "none".into() } else { self.functions.join(",") })),
        }
    }

    fn wants_wasi(&self) -> bool {
        self.imports.iter().any(|(module, _)| *module == preview1::IMPORT)
    }

    /// Refuses what the stand-in for WASI lacks, by name.
    fn check_wasi(&self, adapter: &Interface<'_>) -> Result<()> {
        let lacking = self.imports.iter().find(|(module, name)| *module == preview1::IMPORT && !adapter.exports(name));
        if let Some((module, name)) = lacking {
            return Err(Error::config(
                "the module asks for a function of WASI that the sandbox lacks: build it without what needs it",
            )
            .with("import", format!("{module}.{name}")));
        }
        if self.exports("_start") {
            return Err(Error::config(
                "the module is a command with a `main` to be run, not a library: build it as a reactor (Go: -buildmode=c-shared, C: -mexec-model=reactor)",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(module: &str) -> String {
        format!("{:#}", componentize(&wat::parse_str(module).unwrap()).unwrap_err())
    }

    #[test]
    fn a_module_of_no_world_is_refused_with_its_exports() {
        let text = refusal(r#"(module (func (export "process")) (memory (export "memory") 1))"#);
        assert!(text.contains("neither `transform` nor `accumulate`") && text.contains("exports=process"), "{text}");
        assert!(refusal("(module)").contains("exports=none"));
        let both = refusal(r#"(module (func (export "transform")) (func (export "accumulate")))"#);
        assert!(both.contains("make two modules"), "{both}");
    }

    #[test]
    fn a_function_that_the_sandbox_lacks_is_refused_by_name() {
        let module = |import: &str| {
            format!(
                r#"(module
                (import "wasi_snapshot_preview1" "{import}" (func (param i32 i32) (result i32)))
                (memory (export "memory") 1)
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
                (func (export "configure") (param i32 i32) (result i32) unreachable)
                (func (export "transform") (param i32) (result i32) unreachable))"#
            )
        };
        let text = refusal(&module("sock_shutdown"));
        assert!(text.contains("wasi_snapshot_preview1.sock_shutdown"), "{text}");
        let component = componentize(&wat::parse_str(module("args_get")).unwrap()).unwrap();
        assert!(is_component(&component).unwrap());
        let command = module("args_get").replace("(memory ", "(func (export \"_start\")) (memory ");
        assert!(refusal(&command).contains("build it as a reactor"));
    }

    #[test]
    fn the_world_follows_from_exports_and_imports() {
        let world = |text: &str| Interface::read(&wat::parse_str(text).unwrap()).unwrap().world().unwrap();
        let log = r#"(import "weir:udf/log@1.1.0" "log" (func (param i32 i32 i32)))"#;
        assert_eq!(world(r#"(module (func (export "transform")))"#), "transformer");
        assert_eq!(world(r#"(module (func (export "accumulate")))"#), "aggregator");
        assert_eq!(world(&format!(r#"(module {log} (func (export "transform")))"#)), "transformer-logging");
        assert_eq!(world(&format!(r#"(module {log} (func (export "accumulate")))"#)), "aggregator-logging");
    }
}
