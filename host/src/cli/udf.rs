//! `weir udf`: what a module says of itself.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use crate::error::{Error, Result};
use crate::pipeline;
use crate::wasm::Module;

/// Commands that work with modules.
#[derive(Subcommand)]
pub enum Command {
    /// Print a module's world, contract version, digest, imports and size.
    Inspect {
        /// A component or a core module.
        file: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Carries out a command.
pub fn execute(command: Command) -> Result<()> {
    let Command::Inspect { file, json } = command;
    let module = Module::load(&pipeline::engine()?, &file)?;
    let facts = module.facts();
    if json {
        let mut value = serde_json::to_value(facts).map_err(|e| Error::bug("cannot write the facts").because(e))?;
        value["digest"] = json!(&**module.digest());
        println!("{value}");
        return Ok(());
    }
    let list = |names: &[String]| if names.is_empty() { "nothing".to_string() } else { names.join(", ") };
    println!("form       {}", facts.form);
    println!("world      weir:udf/{}", facts.world.name());
    println!("contract   weir:udf@{}", facts.contract);
    println!("digest     {}", module.digest());
    println!("imports    {}", list(&facts.imports));
    println!("exports    {}", list(&facts.exports));
    println!("size       {} bytes", facts.size_bytes);
    Ok(())
}
