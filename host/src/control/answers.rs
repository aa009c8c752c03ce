//! What the control API answers, as types: the OpenAPI document is made from them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::checkpoint::Version;
use crate::error::{Error, ErrorKind};
use crate::pipeline::{Phase, Summary};
use crate::waits::Waiting;
use crate::wasm::World;

/// Why a request was not carried out.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Refusal {
    /// What is wrong and what to do.
    pub error: String,
    #[serde(skip)]
    status: u16,
}

impl Refusal {
    /// With a status.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        Refusal { error: error.into(), status: status.as_u16() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let status = match error.kind() {
            ErrorKind::Config | ErrorKind::Guest | ErrorKind::BadEvent => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Transient => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Fenced => StatusCode::CONFLICT,
            ErrorKind::Corrupt | ErrorKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal::new(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self)).into_response()
    }
}

/// What the pipeline is doing.
#[derive(Serialize, JsonSchema)]
pub struct StatusAnswer {
    /// What its coordinator does.
    #[serde(flatten)]
    pub phase: Phase,
    /// For how long, in seconds.
    pub phase_seconds: f64,
    /// Sources read nothing until they are resumed.
    pub paused: bool,
    /// Why nothing moves, if nothing moves.
    pub waits_for: Option<String>,
    /// The partitions that watermarks wait for.
    pub watermarks_wait_for: Vec<Waiting>,
    /// What it did so far.
    pub summary: Summary,
}

/// The pipeline and its parts.
#[derive(Serialize, JsonSchema)]
pub struct PipelineAnswer {
    /// Its name.
    pub pipeline: String,
    /// The slice that this process runs, counted from 0.
    pub task: u32,
    /// Of how many.
    pub tasks: u32,
    /// Worker threads.
    pub workers: u32,
    /// Time between two epochs, in ms.
    pub interval_ms: u64,
    /// In the file's order.
    pub sources: Vec<PartAnswer>,
    /// In the file's order.
    pub steps: Vec<StepAnswer>,
    /// In the file's order.
    pub sinks: Vec<PartAnswer>,
}

/// A source or sink.
#[derive(Serialize, JsonSchema)]
pub struct PartAnswer {
    /// Its name.
    pub name: String,
    /// Its kind, such as `kafka`.
    pub kind: String,
    /// Messages read or written.
    pub events: u64,
}

/// A step.
#[derive(Serialize, JsonSchema)]
pub struct StepAnswer {
    /// Its name.
    pub name: String,
    /// What its module does.
    pub world: Option<World>,
    /// Digest of the module of the pipeline file.
    pub configured: Option<String>,
    /// Digest of the module that runs.
    pub running: Option<String>,
    /// What it has run, older first; the last is what runs.
    pub versions: Vec<Version>,
    /// Messages that went in.
    pub events_in: u64,
    /// Messages that came out.
    pub events_out: u64,
    /// Messages that it dropped on purpose.
    pub filtered: u64,
    /// Messages that its module refused.
    pub refused: u64,
    /// Messages that made its module fail.
    pub failed: u64,
    /// Memory of its newest instance, in bytes.
    pub memory_bytes: u64,
}

/// Whether sources are paused.
#[derive(Serialize, JsonSchema)]
pub struct PausedAnswer {
    /// Sources read nothing.
    pub paused: bool,
}

/// A checkpoint.
#[derive(Serialize, JsonSchema)]
pub struct CheckpointAnswer {
    /// The newest epoch: what was read before the request is visible with it.
    pub epoch: u64,
}

/// How the pipeline ends.
#[derive(Serialize, JsonSchema)]
pub struct EndingAnswer {
    /// `drain` or `stop`.
    pub ending: String,
}

/// Why something is not moving, and what to do.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// What stands: `pipeline`, `source`, `watermark`, `commit`.
    pub about: &'static str,
    /// Which one, by name.
    pub name: String,
    /// What it waits for.
    pub why: String,
    /// For how long, in seconds, where that is known.
    pub seconds: Option<u64>,
    /// What a person can do.
    pub advice: String,
}

/// All findings.
#[derive(Serialize, JsonSchema)]
pub struct Explanation {
    /// In one line.
    pub summary: String,
    /// What stands, and why.
    pub findings: Vec<Finding>,
}
