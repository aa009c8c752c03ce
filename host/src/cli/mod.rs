//! The command line. Exit codes are decided here only: 0 done, 1 failed, 2 bad configuration, 3 fenced.

mod dlq;
mod head;
mod remote;
mod run;
mod traces;
mod udf;
mod watch;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::error::{Error, ErrorKind, Result};
use crate::pipeline;

/// A stream processor whose user code is WebAssembly.
#[derive(Parser)]
#[command(name = "weir", version, after_help = EXAMPLES)]
struct Cli {
    /// How log lines are written to standard error.
    #[arg(long, global = true, value_enum, default_value = "text", env = "WEIR_LOG_FORMAT")]
    log_format: LogFormat,
    /// What is logged, in tracing's syntax: `info`, `weir=debug`, `weir::guest=trace`.
    #[arg(long, global = true, default_value = "info", env = "WEIR_LOG")]
    log: String,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  weir run pipeline.yaml                        run it; Ctrl-C stops at a barrier and commits
  weir run pipeline.yaml --set checkpoint.interval=1s --json
  weir check pipeline.yaml                      look whether it would start, changing nothing
  weir head pipeline.yaml                       the first rows of its Iceberg table
  weir udf inspect mask.wasm                    world, contract, digest, imports, size
  weir run pipeline.yaml --listen 127.0.0.1:9100
  weir run pipeline.yaml --watch=udfs/mask --build udfs/build   build and swap in what is saved
  weir swap mask new.wasm --why 'hash emails'   replace the module of the running step
  weir shadow mask new.wasm                     compare it with what runs, first
  weir explain                                  why it does not move
  weir dlq list pipeline.yaml --since 2h        messages that could not be handled
  weir dlq replay pipeline.yaml --step mask     send them through once more, each once ever

Exit codes: 0 done, 1 failed, 2 bad configuration, 3 another process runs this pipeline.";

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// Run a pipeline until its input ends or it is stopped.
    Run(run::RunArgs),
    /// Look whether a pipeline would start: file, modules, sources, sinks. Changes nothing.
    Check(PipelineArgs),
    /// Print the first rows of a sink that can be read, such as an Iceberg table.
    Head(head::HeadArgs),
    /// Work with WebAssembly modules.
    Udf {
        #[command(subcommand)]
        command: udf::Command,
    },
    /// Show what a running pipeline does, and which module each step runs.
    Status(remote::StatusArgs),
    /// Say why a running pipeline does not move, and what to do.
    Explain(remote::PlainArgs),
    /// Have a step run another module, from one barrier on.
    Swap(remote::SwapArgs),
    /// Try a module beside the running one, on copies of live messages.
    Shadow(remote::ShadowArgs),
    /// Have a step run a module again that it ran before.
    Rollback(remote::RollbackArgs),
    /// Have sources read no more, until `resume` or a restart.
    Pause(remote::PlainArgs),
    /// Have paused sources read again.
    Resume(remote::PlainArgs),
    /// End the epoch now, and wait until it is visible in the sinks.
    Checkpoint(remote::PlainArgs),
    /// Read no more, fire all windows, commit, and mark the log as finished.
    Drain(remote::PlainArgs),
    /// Look at messages that could not be handled, and send them through once more.
    Dlq {
        #[command(subcommand)]
        command: dlq::Command,
    },
    /// Print the JSON schema of pipeline files, for editors.
    Schema,
}

/// Which pipeline.
#[derive(Args)]
struct PipelineArgs {
    /// The pipeline file. Paths in it are relative to the working folder.
    file: PathBuf,
    /// Sets a value of the file, as in `--set sources.0.kafka.topic=clicks`. May be given again.
    #[arg(long, value_name = "A.B=C")]
    set: Vec<String>,
    /// The slice that this process runs, counted from 0: `2/8`. The number after `/` sets `tasks`.
    #[arg(long, value_name = "I/N", env = "WEIR_TASK")]
    task: Option<String>,
}

impl PipelineArgs {
    fn build(&self) -> Result<pipeline::Pipeline> {
        Ok(self.load()?.1)
    }

    /// The file as it is written, and what is made of it.
    fn load(&self) -> Result<(pipeline::Spec, pipeline::Pipeline)> {
        let (spec, task) = self.spec()?;
        let pipeline = pipeline::Pipeline::build(&spec, task, &pipeline::engine()?)?;
        Ok((spec, pipeline))
    }

    /// The file as it is written, and the task that is meant.
    fn spec(&self) -> Result<(pipeline::Spec, u32)> {
        let mut set = self.set.clone();
        let task = match &self.task {
            None => 0,
            Some(text) => {
                let wrong = || Error::config("--task is written I/N, counted from 0, as in 2/8").with("task", text);
                let (task, tasks) = text.split_once('/').ok_or_else(wrong)?;
                set.push(format!("tasks={}", tasks.parse::<u32>().map_err(|_| wrong())?));
                task.parse().map_err(|_| wrong())?
            }
        };
        Ok((pipeline::Spec::load(&self.file, &set)?, task))
    }
}

/// Runs the command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Err(error) = log_to_stderr(&cli) {
        eprintln!("weir: {error}");
        return ExitCode::from(2);
    }
    match execute(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::from(exit_code(error.kind()))
        }
    }
}

fn exit_code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Config => 2,
        ErrorKind::Fenced => 3,
        ErrorKind::Transient | ErrorKind::BadEvent | ErrorKind::Guest | ErrorKind::Corrupt | ErrorKind::Bug => 1,
    }
}

fn execute(command: Command) -> Result<()> {
    match command {
        Command::Run(args) => runtime()?.block_on(run::run(args)),
        Command::Check(args) => {
            let pipeline = args.build()?;
            runtime()?.block_on(pipeline.check())?;
            println!("ok: {} would start ({} workers)", pipeline.name, pipeline.workers);
            Ok(())
        }
        Command::Head(args) => runtime()?.block_on(head::head(args)),
        Command::Udf { command } => udf::execute(command),
        Command::Status(args) => runtime()?.block_on(remote::status(args)),
        Command::Explain(args) => runtime()?.block_on(remote::explain(args)),
        Command::Swap(args) => runtime()?.block_on(remote::swap(args)),
        Command::Shadow(args) => runtime()?.block_on(remote::shadow(args)),
        Command::Rollback(args) => runtime()?.block_on(remote::roll_back(args)),
        Command::Pause(args) => runtime()?.block_on(remote::ask(args, "pause")),
        Command::Resume(args) => runtime()?.block_on(remote::ask(args, "resume")),
        Command::Checkpoint(args) => runtime()?.block_on(remote::ask(args, "checkpoint")),
        Command::Drain(args) => runtime()?.block_on(remote::ask(args, "drain")),
        Command::Dlq { command } => runtime()?.block_on(dlq::execute(command)),
        Command::Schema => {
            let text = serde_json::to_string_pretty(&pipeline::schema())
                .map_err(|e| Error::bug("cannot write the schema").because(e))?;
            println!("{text}");
            Ok(())
        }
    }
}

/// The shared I/O runtime. Workers are threads of their own beside it.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .thread_name("weir-io")
        .enable_all()
        .build()
        .map_err(|e| Error::transient("cannot start the I/O runtime").because(e))
}

fn log_to_stderr(cli: &Cli) -> Result<()> {
    use tracing_subscriber::{EnvFilter, fmt};
    let filter =
        EnvFilter::try_new(&cli.log).map_err(|e| Error::config("--log is not a filter").with("log", &cli.log).because(e))?;
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match cli.log_format {
        LogFormat::Json => lines.json().init(),
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).init(),
    }
    Ok(())
}
