//! `weir dlq`: the dead letters of a pipeline, from where its sink put them; the pipeline need not run.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::PipelineArgs;
use crate::error::{Error, Result};
use crate::pipeline::{Filter, Letter, Letters, moment};

/// What there is to do with dead letters.
#[derive(Subcommand)]
pub enum Command {
    /// List them, the last ones, a line each.
    List(ListArgs),
    /// Show everything that is known of one.
    Show(ShowArgs),
    /// Send them through once more: into the step that rejected them, as it runs now, and on into the sinks. Each letter is
    /// replayed once ever, whoever asks, and however often.
    Replay(ReplayArgs),
}

/// What `weir dlq list` takes.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    pipeline: PipelineArgs,
    #[command(flatten)]
    which: Which,
    /// How many.
    #[arg(long, short = 'n', default_value_t = 20)]
    limit: usize,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

/// What `weir dlq show` takes.
#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// The letter, as `list` names it.
    id: String,
}

/// What `weir dlq replay` takes.
#[derive(Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pipeline: PipelineArgs,
    #[command(flatten)]
    which: Which,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

/// Which letters. All, where nothing is said.
#[derive(Args)]
struct Which {
    /// One letter, as `list` names it.
    #[arg(long)]
    id: Option<String>,
    /// Those of this step, source or sink.
    #[arg(long)]
    step: Option<String>,
    /// Those of the module whose digest begins so.
    #[arg(long, value_name = "DIGEST")]
    module: Option<String>,
    /// Those with this in their reason.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Published since then: `2h` ago, or a time as 2026-12-03T04:34:15Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Published before then.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl Which {
    fn filter(&self) -> Result<Filter> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let time = |text: &Option<String>| text.as_ref().map(|text| moment(text, now_ms)).transpose();
        Ok(Filter {
            id: self.id.clone(),
            step: self.step.clone(),
            module: self.module.clone(),
            reason: self.reason.clone(),
            since_ms: time(&self.since)?,
            until_ms: time(&self.until)?,
        })
    }
}

/// Carries it out.
pub async fn execute(command: Command) -> Result<()> {
    match command {
        Command::List(args) => {
            let found = letters(&args.pipeline)?.find(&args.which.filter()?, args.limit).await?;
            if args.json {
                println!("{}", json(&found)?);
                return Ok(());
            }
            found.letters.iter().for_each(|letter| println!("{}", line(letter)));
            println!("{} dead letters, {} of them not replayed; {} shown", found.total, found.open, found.letters.len());
        }
        Command::Show(args) => {
            let filter = Filter { id: Some(args.id.clone()), ..Filter::default() };
            let mut found = letters(&args.pipeline)?.find(&filter, 1).await?;
            let missing = || Error::config("no such dead letter: `weir dlq list` names those that there are").with("id", args.id);
            let letter = found.letters.pop_back().ok_or_else(missing)?;
            let text = serde_json::to_string_pretty(&letter);
            println!("{}", text.map_err(|e| Error::bug("cannot write a letter as JSON").because(e))?);
        }
        Command::Replay(args) => {
            let done = letters(&args.pipeline)?.replay(&args.which.filter()?).await?;
            if args.json {
                println!("{}", json(&done)?);
                return Ok(());
            }
            for replay in &done.replays {
                println!(
                    "replay {}: {} letters of {}, {} rejected again",
                    replay.number, replay.letters, replay.step, replay.rejected
                );
            }
            match done.letters {
                0 => println!("nothing to replay"),
                letters => println!("{letters} letters replayed, {} rejected again", done.rejected),
            }
        }
    }
    Ok(())
}

fn letters(pipeline: &PipelineArgs) -> Result<Letters> {
    Letters::of(&pipeline.spec()?.0)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::bug("cannot write the answer as JSON").because(e))
}

/// Characters of a message in a line.
const SHOWN: usize = 60;

/// A letter as a line: its id, place, what rejected it, why, and how it begins.
fn line(letter: &Letter) -> String {
    let value = letter.value.as_deref().or(letter.value_base64.as_deref()).unwrap_or("(no value)");
    let mut text: String = value.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if value.chars().count() > SHOWN {
        text.push('…');
    }
    let module = letter.module.as_ref().map_or(String::new(), |digest| format!(" ({:.12})", digest));
    let replay = letter.replay.map_or(String::new(), |number| format!(", in replay {number}"));
    let Letter { id, partition, offset, step, reason, .. } = letter;
    format!("{id}  {partition}/{offset}  {step}{module}: {reason}{replay}\n                  {text}")
}
