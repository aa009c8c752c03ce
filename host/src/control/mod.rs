//! The HTTP side of a running pipeline: health, readiness, metrics, and the control API under `/v1`. Owns what is said over
//! HTTP; what is asked is carried out by the pipeline itself.

mod answers;
mod console;
mod endpoints;
mod explain;
mod guard;
mod letters;
mod openapi;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;

pub use endpoints::MODULE_BYTES_MAX;
pub use guard::{Token, token, token_text};
pub use openapi::document;

use crate::error::{Error, Result};
use crate::metrics;
use crate::pipeline::{Handle, Letters, Pipeline, Status};

/// What requests are about.
#[derive(Clone)]
pub struct Shared {
    /// As built from its file.
    pub pipeline: Arc<Pipeline>,
    /// What it is doing.
    pub status: Arc<Status>,
    /// Steers it.
    pub handle: Arc<Handle>,
    /// What it could not handle.
    pub letters: Arc<Letters>,
}

/// Serves until the process ends. An address that others can reach is refused without a token.
pub async fn listen(address: SocketAddr, token: Option<Token>, shared: Shared) -> Result<SocketAddr> {
    if !address.ip().is_loopback() && token.is_none() {
        return Err(Error::config(
            "--listen without a token takes a loopback address only: whoever reaches another one could replace modules; set WEIR_TOKEN or --token-file",
        )
        .with("listen", address));
    }
    let fail = |e: std::io::Error| Error::config("cannot listen: choose another address").with("listen", address).because(e);
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let bound = listener.local_addr().map_err(fail)?;
    metrics::register_all();
    let router = router(token, shared);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    Ok(bound)
}

fn router(token: Option<Token>, shared: Shared) -> Router {
    let document = Json(openapi::document());
    let api = endpoints::all().into_iter().fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.route));
    let api = api.route(openapi::PATH, get(|| async move { document })).fallback(guard::no_such_path);
    let api = api.layer(middleware::from_fn_with_state(token, guard::authorized));
    Router::new()
        .route("/metrics", get(render))
        .merge(api)
        .layer(middleware::from_fn(guard::same_origin))
        .merge(console::router())
        // Probes of a container's supervisor come by address and carry nothing.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(shared)
}

async fn ready(State(shared): State<Shared>) -> impl IntoResponse {
    let status = shared.status;
    match status.ready() {
        true => (StatusCode::OK, "ready\n".to_string()),
        false => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", status.waits_for().unwrap_or_else(|| "ended".into()))),
    }
}

async fn render() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics::render())
}
