//! The HTTP side of a running pipeline: health, readiness, metrics and status. Reads facts; steers nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;

use crate::error::{Error, Result};
use crate::metrics;
use crate::pipeline::Status;

/// Serves until the process ends. Anything but loopback is refused: there is no token yet.
pub async fn listen(address: SocketAddr, status: Arc<Status>) -> Result<SocketAddr> {
    if !address.ip().is_loopback() && std::env::var_os("WEIR_LISTEN_ANY").is_none() {
        return Err(Error::config(
            "--listen takes a loopback address: set WEIR_LISTEN_ANY=1 where the network itself keeps strangers out, as in a container",
        )
        .with("listen", address));
    }
    let fail = |e: std::io::Error| Error::config("cannot listen: choose another address").with("listen", address).because(e);
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let bound = listener.local_addr().map_err(fail)?;
    metrics::register_all();
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(render))
        .route("/v1/status", get(show))
        .with_state(status);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    Ok(bound)
}

async fn ready(State(status): State<Arc<Status>>) -> impl IntoResponse {
    match status.ready() {
        true => (StatusCode::OK, "ready\n".to_string()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", status.waits_for().unwrap_or_else(|| "ended".into()))),
    }
}

async fn render() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}

async fn show(State(status): State<Arc<Status>>) -> impl IntoResponse {
    let (phase, since) = status.phase();
    Json(json!({
        "phase": phase,
        "phase_seconds": since.as_secs_f64(),
        "waits_for": status.waits_for(),
        "watermarks_wait_for": status.watermarks_wait_for(),
        "summary": status.summary(),
    }))
}
