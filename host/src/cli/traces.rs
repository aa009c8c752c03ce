//! `weir run --traces`: sends a trace of each epoch to a collector, by OpenTelemetry's protocol over HTTP. Beside the pipeline,
//! which never waits for it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::pipeline::Status;
use crate::traces::EpochTrace;

/// Epochs that wait to be sent; beyond that they are left out.
const WAITING_MAX: usize = 256;
/// A collector that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the log tells of failures.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Sends traces to the collector at `url`, as in `http://127.0.0.1:4318`, from here on.
pub fn send(url: &str, status: &Status) -> Result<impl Future<Output = ()> + use<>> {
    let wrong = |e: String| Error::config("--traces is no address, as http://127.0.0.1:4318 is").with("traces", url).because(e);
    let mut to = url::Url::parse(url).map_err(|e| wrong(e.to_string()))?;
    to.path_segments_mut().map_err(|()| wrong("it can have no path".into()))?.pop_if_empty().extend(["v1", "traces"]);
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build();
    let client = client.map_err(|e| Error::bug("cannot make an HTTP client").because(e))?;
    let (sender, mut traces) = mpsc::channel::<EpochTrace>(WAITING_MAX);
    status.trace_to(sender);
    Ok(async move {
        let (mut failed, mut told): (u64, Option<Instant>) = (0, None);
        while let Some(trace) = traces.recv().await {
            let request = client.post(to.clone()).header("content-type", "application/json").body(trace.to_otlp().to_string());
            let answer = request.send().await.and_then(reqwest::Response::error_for_status);
            let Err(error) = answer else { continue };
            failed += 1;
            if told.is_none_or(|at| at.elapsed() > TELL_EVERY) {
                tracing::warn!(error = %error.without_url(), failed, "the collector takes no traces: the pipeline goes on without");
                told = Some(Instant::now());
            }
        }
    })
}
