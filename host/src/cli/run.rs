//! `weir run`: the pipeline with its signals, progress line, HTTP side and summary.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::watch::WatchArgs;
use super::{PipelineArgs, traces};
use crate::control;
use crate::error::{Error, Result};
use crate::metrics::Percentiles;
use crate::pipeline::{Handle, Letters, Live, Outcome, Phase, Status, Stop, Summary, run as run_pipeline, steering};

/// What `weir run` takes.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Print the summary as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Serve health, metrics and the control API here, as in 127.0.0.1:9100.
    #[arg(long, value_name = "ADDRESS", env = "WEIR_LISTEN")]
    listen: Option<SocketAddr>,
    /// A file with the token that requests to /v1 must carry. Needed for addresses that are not loopback; `WEIR_TOKEN` holds
    /// the token itself instead.
    #[arg(long, value_name = "FILE", env = "WEIR_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Send a trace of each epoch to this OpenTelemetry collector, as in http://127.0.0.1:4318.
    #[arg(long, value_name = "URL", env = "WEIR_TRACES")]
    traces: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
    /// No progress line.
    #[arg(long)]
    quiet: bool,
}

/// Runs a pipeline to its end.
pub async fn run(args: RunArgs) -> Result<()> {
    let (spec, pipeline) = args.pipeline.load()?;
    let pipeline = Arc::new(pipeline);
    let status = Arc::new(Status::new(&pipeline.name));
    let (handle, steering) = steering();
    if let Some(address) = args.listen {
        let token = control::token(args.token_file.as_deref())?;
        let shared = control::Shared {
            pipeline: pipeline.clone(),
            status: status.clone(),
            handle: handle.clone(),
            letters: Arc::new(Letters::of(&spec)?),
        };
        let bound = control::listen(address, token, shared).await?;
        tracing::info!(address = %bound, "listening");
    }
    let tracing_epochs = args.traces.map(|url| traces::send(&url, &status)).transpose()?.map(tokio::spawn);
    let watching = args.watch.watch(&spec, &pipeline)?.map(|watch| tokio::spawn(watch.run(pipeline.clone(), handle.clone())));
    let signals = tokio::spawn(stop_on_signal(handle)?);
    let progress = tokio::spawn(report(status.clone(), !args.quiet && !args.json && std::io::stderr().is_terminal()));
    let outcome = run_pipeline(&pipeline, &Live, steering, &status).await;
    signals.abort();
    progress.abort();
    tracing_epochs.iter().for_each(|task| task.abort());
    watching.iter().for_each(|task| task.abort());
    let summary = status.summary();
    if args.json {
        let text = serde_json::to_string(&summary).map_err(|e| Error::bug("cannot write the summary").because(e))?;
        println!("{text}");
    } else if summary.events_in > 0 {
        eprint!("{}", render(&summary));
    }
    match outcome? {
        Outcome::Finished => Ok(()),
        Outcome::Stopped => {
            eprintln!("stopped at a barrier: run it again to go on");
            Ok(())
        }
        Outcome::WasFinished => {
            eprintln!(
                "nothing to do: this pipeline has finished; to run it again give it another name or remove its checkpoint folder"
            );
            Ok(())
        }
    }
}

/// The first signal stops at a barrier, the second at once.
fn stop_on_signal(handle: Arc<Handle>) -> Result<impl Future<Output = ()>> {
    let listen = |kind| signal(kind).map_err(|e| Error::transient("cannot listen for signals").because(e));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        let mut asked = 0;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            asked += 1;
            if asked > 1 {
                eprintln!("weir: stopped at once; the next start goes on from the last checkpoint");
                std::process::exit(1);
            }
            tracing::info!("stopping at the next barrier; again to stop at once");
            handle.stop(Stop::AtBarrier);
        }
    })
}

const REFRESH: Duration = Duration::from_millis(500);
/// A wait shorter than this is not worth a line.
const WAIT_LINE_AFTER: Duration = Duration::from_secs(10);
/// The same wait is told again after this.
const WAIT_LINE_AGAIN: Duration = Duration::from_secs(60);

/// Keeps the progress line, and says in the log why nothing moves when nothing moves.
async fn report(status: Arc<Status>, line: bool) {
    let mut last = (Instant::now(), status.events_in(), status.bytes_in());
    let mut still_since = Instant::now();
    let mut told: Option<Instant> = None;
    let mut seen = (0, None);
    loop {
        tokio::time::sleep(REFRESH).await;
        let now = (Instant::now(), status.events_in(), status.bytes_in());
        let seconds = (now.0 - last.0).as_secs_f64();
        let summary = status.summary();
        if (now.1, summary.epoch) != seen {
            seen = (now.1, summary.epoch);
            still_since = Instant::now();
            told = None;
        }
        let waits = status.waits_for();
        if let Some(why) = &waits
            && still_since.elapsed() > WAIT_LINE_AFTER
            && told.is_none_or(|at| at.elapsed() > WAIT_LINE_AGAIN)
        {
            tracing::info!(seconds = still_since.elapsed().as_secs(), "waiting: {why}");
            told = Some(Instant::now());
        }
        if line {
            let rows: u64 = summary.sinks.values().map(|s| s.rows).sum();
            let state = match status.phase().0 {
                Phase::Running => String::new(),
                _ => waits.unwrap_or_default(),
            };
            let rate = ((now.1 - last.1) as f64 / seconds, (now.2 - last.2) as f64 / seconds / 1e6);
            let text = format!(
                "in {} ({}/s, {:.1} MB/s) · visible {} · rejected {} · epoch {} {state}",
                grouped(now.1),
                grouped(rate.0 as u64),
                rate.1,
                grouped(rows),
                grouped(summary.rejected),
                summary.epoch.unwrap_or(0)
            );
            let _ = write!(std::io::stderr(), "\r\x1b[2K{text}");
        }
        last = now;
    }
}

/// A number with separators, as people read it.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn percentiles(p: &Percentiles) -> String {
    format!("P50 {} ms · P95 {} ms · P99 {} ms · max {} ms", p.p50_ms, p.p95_ms, p.p99_ms, p.max_ms)
}

/// The summary for people.
fn render(s: &Summary) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<22}{text}\n"));
    if std::io::stderr().is_terminal() {
        line("\r\x1b[2K", String::new());
    }
    let per_second = s.bytes_in as f64 / s.seconds / 1e6;
    line("rows in", format!("{} ({:.1} MB, {per_second:.1} MB/s)", grouped(s.events_in), s.bytes_in as f64 / 1e6));
    for (name, sink) in &s.sinks {
        line(&format!("rows out, {name}"), format!("{} in {} commits", grouped(sink.rows), sink.commits));
        if sink.files > 0 {
            let mean = sink.file_bytes as f64 / sink.files as f64 / 1e3;
            line("  files", format!("{} of {mean:.0} KB on average", grouped(sink.files)));
        }
        line("  published → visible", percentiles(&sink.latency));
    }
    line("fetched → handed over", percentiles(&s.handed));
    line("rejected, filtered", format!("{}, {}", grouped(s.rejected), grouped(s.filtered)));
    let per_gib = s.cpu_seconds_per_gib.map_or(String::new(), |c| format!(", {c:.2} per GiB read"));
    line("CPU seconds", format!("{:.2}{per_gib}", s.cpu_seconds));
    line("memory, at most", format!("{:.0} MiB", s.memory_bytes_max as f64 / (1 << 20) as f64));
    line("epochs, restarts", format!("{}, {}", s.epochs, s.restarts));
    line("wall time", format!("{:.1} s", s.seconds));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
