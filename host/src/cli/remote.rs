//! Commands that speak to a running pipeline over its control API.

use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::Method;
use serde_json::Value;

use crate::control;
use crate::error::{Error, Result};
use crate::units::Span;

/// Which running pipeline.
#[derive(Args)]
pub struct Remote {
    /// Where it listens, as `--listen` told it.
    #[arg(long, env = "WEIR_URL", default_value = "http://127.0.0.1:9100")]
    url: String,
    /// A file with its token; `WEIR_TOKEN` holds the token itself instead.
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Print its answer as JSON.
    #[arg(long)]
    json: bool,
}

/// A command without arguments of its own.
#[derive(Args)]
pub struct PlainArgs {
    #[command(flatten)]
    remote: Remote,
}

/// What `weir status` takes.
#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    remote: Remote,
}

/// What `weir swap` takes.
#[derive(Args)]
pub struct SwapArgs {
    /// The step, as the pipeline file names it.
    step: String,
    /// The new module: a component or a core module.
    module: PathBuf,
    /// The reason, for the history.
    #[arg(long)]
    why: Option<String>,
    /// For so long it is rolled back by itself when it does badly; `0s` is never. Default: 1m.
    #[arg(long, value_name = "TIME")]
    watch: Option<Span>,
    /// Part of the messages, of 1, that may make it fail. Default: 0.001.
    #[arg(long, value_name = "PART")]
    max_failed: Option<f64>,
    /// Part of the messages, of 1, that it may refuse beyond what the module before did. Default: 0.1.
    #[arg(long, value_name = "PART")]
    max_refused: Option<f64>,
    #[command(flatten)]
    remote: Remote,
}

/// What `weir shadow` takes.
#[derive(Args)]
pub struct ShadowArgs {
    /// The step, as the pipeline file names it.
    step: String,
    /// The module to try.
    module: PathBuf,
    /// Ends after so many messages.
    #[arg(long, default_value = "10000")]
    messages: u64,
    /// Or after so long, at most an hour.
    #[arg(long = "for", value_name = "TIME", default_value = "1m")]
    time: Span,
    /// Of 1: the part of the batches that is looked at.
    #[arg(long, value_name = "PART", default_value = "1")]
    share: f64,
    /// Swaps it in at once where all of this holds, as in `differing<=0.01,failed<=0,refused<=0,cpu<=1.5,memory<=2`.
    #[arg(long, value_name = "CONDITIONS")]
    promote_if: Option<String>,
    /// The reason, for the history, if it is swapped in.
    #[arg(long)]
    why: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

/// What `weir rollback` takes.
#[derive(Args)]
pub struct RollbackArgs {
    /// The step, as the pipeline file names it.
    step: String,
    /// Digest of the version to run again. Default: the one that ran before.
    #[arg(long, value_name = "DIGEST")]
    to: Option<String>,
    /// The reason, for the history.
    #[arg(long)]
    why: Option<String>,
    #[command(flatten)]
    remote: Remote,
}

impl Remote {
    /// One request. The answer, or what the pipeline says against it.
    async fn request(&self, method: Method, path: &[&str], query: &[(&str, &Option<String>)], body: Vec<u8>) -> Result<Value> {
        let wrong = |e: &str| Error::config("--url is no address, as http://127.0.0.1:9100 is").with("url", &self.url).because(e);
        let mut url = url::Url::parse(&self.url).map_err(|e| wrong(&e.to_string()))?;
        url.path_segments_mut().map_err(|()| wrong("it can have no path"))?.pop_if_empty().push("v1").extend(path);
        for (name, value) in query {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        // No limit in time: a swap is answered when its epoch is committed.
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.map_err(|e| Error::bug("cannot make an HTTP client").because(e))?;
        let mut request = client.request(method, url).header("content-type", "application/wasm").body(body);
        if let Some(token) = control::token_text(self.token_file.as_deref())? {
            request = request.bearer_auth(token);
        }
        let unreachable = |e: reqwest::Error| {
            Error::transient("no answer: does the pipeline run with --listen?").with("url", &self.url).because(e.without_url())
        };
        let answer = request.send().await.map_err(unreachable)?;
        let status = answer.status();
        let text = answer.text().await.map_err(unreachable)?;
        let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if status.is_success() {
            return Ok(value);
        }
        let said = value["error"].as_str().map_or_else(|| value.to_string(), str::to_string);
        Err(match status.is_client_error() {
            true => Error::config(said),
            false => Error::transient(said),
        })
    }

    /// Prints the answer: as JSON if that is wanted, else as `text` has it.
    fn print(&self, answer: &Value, text: impl FnOnce(&Value) -> String) {
        match self.json {
            true => println!("{answer}"),
            false => println!("{}", text(answer)),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// The first characters of a digest, as people read it.
fn short(digest: &Value) -> String {
    plain(digest).chars().take(12).collect()
}

/// `weir swap`.
pub async fn swap(args: SwapArgs) -> Result<()> {
    let path = ["steps", args.step.as_str(), "swap"];
    let query = [
        ("why", &args.why),
        ("watch_seconds", &args.watch.map(|time| time.0.as_secs().to_string())),
        ("max_failed", &args.max_failed.map(|part| part.to_string())),
        ("max_refused", &args.max_refused.map(|part| part.to_string())),
    ];
    let answer = args.remote.request(Method::POST, &path, &query, read(&args.module)?).await?;
    args.remote.print(&answer, swapped);
    Ok(())
}

fn read(module: &Path) -> Result<Vec<u8>> {
    std::fs::read(module).map_err(|e| Error::config("cannot read the module").with("path", module.display()).because(e))
}

/// `weir shadow`.
pub async fn shadow(args: ShadowArgs) -> Result<()> {
    let path = ["steps", args.step.as_str(), "shadow"];
    let query = [
        ("messages", &Some(args.messages.to_string())),
        ("seconds", &Some(args.time.0.as_secs().to_string())),
        ("share", &Some(args.share.to_string())),
        ("promote_if", &args.promote_if),
        ("why", &args.why),
    ];
    let answer = args.remote.request(Method::POST, &path, &query, read(&args.module)?).await?;
    args.remote.print(&answer, |answer| {
        let mut text = format!(
            "{} messages in {:.1} s, {} of them with another outcome",
            plain(&answer["messages"]),
            answer["seconds"].as_f64().unwrap_or_default(),
            plain(&answer["differing"]),
        );
        for side in ["running", "candidate"] {
            let found = &answer[side];
            text.push_str(&format!(
                "\n{side:<10}{}  {} rows, {} refused, {} failed, {:.0} ns of CPU a message, {:.1} MiB",
                short(&found["module"]),
                plain(&found["rows"]),
                plain(&found["refused"]),
                plain(&found["failed"]),
                found["cpu_ns_per_message"].as_f64().unwrap_or_default(),
                found["memory_bytes_max"].as_f64().unwrap_or_default() / f64::from(1 << 20),
            ));
        }
        for sample in answer["samples"].as_array().into_iter().flatten() {
            text.push_str(&format!("\npartition {} offset {}", plain(&sample["partition"]), plain(&sample["offset"])));
            for part in ["input", "running", "candidate"] {
                text.push_str(&format!("\n  {part:<10}{}", plain(&sample[part]).replace('\n', "\n            ")));
            }
        }
        for objection in answer["objections"].as_array().into_iter().flatten() {
            text.push_str(&format!("\nnot promoted: {}", plain(objection)));
        }
        if answer["promoted"].is_object() {
            text.push_str(&format!("\n{}", swapped(&answer["promoted"])));
        }
        text
    });
    Ok(())
}

/// `weir rollback`.
pub async fn roll_back(args: RollbackArgs) -> Result<()> {
    let path = ["steps", args.step.as_str(), "rollback"];
    let answer = args.remote.request(Method::POST, &path, &[("to", &args.to), ("why", &args.why)], Vec::new()).await?;
    args.remote.print(&answer, swapped);
    Ok(())
}

fn swapped(answer: &Value) -> String {
    let (step, module) = (plain(&answer["step"]), short(&answer["module"]));
    match answer["changed"].as_bool() {
        Some(false) => format!("{step} runs {module} already"),
        _ => format!("{step} runs {module} from epoch {} on, {} before", plain(&answer["since_epoch"]), short(&answer["before"])),
    }
}

/// Commands that ask for one thing.
pub async fn ask(args: PlainArgs, what: &str) -> Result<()> {
    let answer = args.remote.request(Method::POST, &[what], &[], Vec::new()).await?;
    args.remote.print(&answer, |answer| match what {
        "checkpoint" => format!("epoch {} is visible", plain(&answer["epoch"])),
        "drain" => "draining: it ends when everything is committed".to_string(),
        _ => format!("{what}d"),
    });
    Ok(())
}

/// `weir explain`.
pub async fn explain(args: PlainArgs) -> Result<()> {
    let answer = args.remote.request(Method::GET, &["explain"], &[], Vec::new()).await?;
    args.remote.print(&answer, |answer| {
        let mut text = plain(&answer["summary"]);
        for finding in answer["findings"].as_array().into_iter().flatten() {
            let since = finding["seconds"].as_u64().map_or(String::new(), |seconds| format!(" ({seconds} s)"));
            let head = format!("{} {}", plain(&finding["about"]), plain(&finding["name"]));
            text.push_str(&format!(
                "\n  {}: {}{since}\n    → {}",
                head.trim(),
                plain(&finding["why"]),
                plain(&finding["advice"])
            ));
        }
        text
    });
    Ok(())
}

/// `weir status`.
pub async fn status(args: StatusArgs) -> Result<()> {
    let status = args.remote.request(Method::GET, &["status"], &[], Vec::new()).await?;
    let mut answer = args.remote.request(Method::GET, &["pipeline"], &[], Vec::new()).await?;
    answer["status"] = status;
    args.remote.print(&answer, |answer| {
        let status = &answer["status"];
        let paused = if status["paused"] == true { ", paused" } else { "" };
        let mut text = format!(
            "{}, task {} of {}: {}{paused}, epoch {}, {} messages read",
            plain(&answer["pipeline"]),
            plain(&answer["task"]),
            plain(&answer["tasks"]),
            plain(&status["phase"]),
            plain(&status["summary"]["epoch"]),
            plain(&status["summary"]["events_in"]),
        );
        if let Some(why) = status["waits_for"].as_str() {
            text.push_str(&format!("\nwaits: {why}"));
        }
        for step in answer["steps"].as_array().into_iter().flatten() {
            text.push_str(&format!("\nstep {}: {}", plain(&step["name"]), short(&step["running"])));
            for version in step["versions"].as_array().into_iter().flatten().rev() {
                let (digest, since) = (short(&version["digest"]), plain(&version["since_epoch"]));
                text.push_str(&format!("\n  {digest} since epoch {since}: {}", plain(&version["why"])));
            }
        }
        text
    });
    Ok(())
}
