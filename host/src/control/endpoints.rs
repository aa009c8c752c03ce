//! The requests of the control API: one table of all, and what each does.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::Shared;
use super::answers::{
    CheckpointAnswer, EndingAnswer, Explanation, PartAnswer, PausedAnswer, PipelineAnswer, Refusal, StatusAnswer, StepAnswer,
};
use super::explain::{self, Facts};
use super::letters;
use crate::checkpoint::ModuleRef;
use crate::metrics;
use crate::pipeline::{Conditions, Found, Pipeline, Replayed, ShadowReport, StepPlan, Stop, Swapped, Trial, WatchLimits, shadow};

/// Bytes of a module that is uploaded.
pub const MODULE_BYTES_MAX: usize = 64 << 20;
/// Characters of the reason for a swap.
const WHY_CHARS_MAX: usize = 500;

/// One request: how it is routed and how it is described.
pub struct Endpoint {
    /// The name of the operation.
    pub name: &'static str,
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What it takes in path and query.
    pub parameters: &'static [Parameter],
    /// What it takes as body.
    pub body: Body,
    /// The schema of its answer.
    pub answer: fn(&mut SchemaGenerator) -> Schema,
    /// What it does.
    pub route: MethodRouter<Shared>,
}

/// A parameter.
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// It is part of the path.
    pub required: bool,
    /// Its type, in JSON Schema's word.
    pub kind: &'static str,
    /// What it means.
    pub text: &'static str,
}

const fn text(name: &'static str, text: &'static str) -> Parameter {
    Parameter { name, required: false, kind: "string", text }
}

const fn number(name: &'static str, text: &'static str) -> Parameter {
    Parameter { name, required: false, kind: "number", text }
}

/// The body of a request.
pub enum Body {
    /// None.
    Empty,
    /// A WebAssembly module.
    Module,
}

const STEP: Parameter =
    Parameter { name: "step", required: true, kind: "string", text: "The step's name, as in the pipeline file." };
const WHY: Parameter = text("why", "The reason, for the history: up to 500 characters.");
const TO: Parameter = text("to", "Digest of one of the step's versions. Default: the one that ran before.");
const SWAP: [Parameter; 5] = [
    STEP,
    WHY,
    number("watch_seconds", "For so long the module is rolled back by itself when it does badly. Default: 60; 0: never."),
    number("max_failed", "Part of the messages, of 1, that may make it fail. Default: 0.001."),
    number("max_refused", "Part of the messages, of 1, that it may refuse beyond what the module before did. Default: 0.1."),
];
const SHADOW: [Parameter; 6] = [
    STEP,
    number("messages", "Ends after so many messages. Default: 10000."),
    number("seconds", "Or after so long. Default: 60, at most 3600."),
    number("share", "Of 1: the part of the batches that is looked at. Default: 1."),
    text("promote_if", "Conditions under which it is swapped in at once, such as differing<=0,failed<=0,cpu<=1.5."),
    WHY,
];

const LETTERS: [Parameter; 7] = [
    text("id", "One letter, by its id."),
    text("step", "Letters of this step, source or sink."),
    text("module", "Letters of the module whose digest begins so."),
    text("reason", "Letters with this in their reason."),
    text("since", "Published since then: `2h` ago, or a time as 2026-12-03T04:34:15Z."),
    text("until", "Published before then."),
    number("limit", "Shows so many, the last ones. Default: 100, at most 1000."),
];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(super) type Answer<T> = Result<Json<T>, Refusal>;

/// All requests.
pub fn all() -> Vec<Endpoint> {
    let reads = |name, path, summary, parameters, answer, route| Endpoint {
        name,
        method: "GET",
        path,
        summary,
        parameters,
        body: Body::Empty,
        answer,
        route,
    };
    let does = |name, path, summary, parameters, answer, route| Endpoint {
        name,
        method: "POST",
        path,
        summary,
        parameters,
        body: Body::Empty,
        answer,
        route,
    };
    let (none, step): (&[Parameter], &[Parameter]) = (&[], &[STEP]);
    vec![
        reads("status", "/v1/status", "What the pipeline is doing.", none, schema::<StatusAnswer>, get(status)),
        reads("pipeline", "/v1/pipeline", "The pipeline and its parts.", none, schema::<PipelineAnswer>, get(pipeline)),
        reads("step", "/v1/steps/{step}", "A step and the versions that it has run.", step, schema::<StepAnswer>, get(one_step)),
        reads(
            "explain",
            "/v1/explain",
            "Why something is not moving, and what to do.",
            none,
            schema::<Explanation>,
            get(explain),
        ),
        Endpoint {
            body: Body::Module,
            ..does(
                "swap",
                "/v1/steps/{step}/swap",
                "Runs another module from one barrier on. Answered when the manifest that names it is committed; a refusal has changed nothing.",
                &SWAP,
                schema::<Swapped>,
                post(swap).layer(DefaultBodyLimit::max(MODULE_BYTES_MAX)),
            )
        },
        Endpoint {
            body: Body::Module,
            ..does(
                "shadow",
                "/v1/steps/{step}/shadow",
                "Tries a module beside the running one, on copies of live batches: what it makes of them is compared and thrown away.",
                &SHADOW,
                schema::<ShadowReport>,
                post(try_beside).layer(DefaultBodyLimit::max(MODULE_BYTES_MAX)),
            )
        },
        does(
            "rollback",
            "/v1/steps/{step}/rollback",
            "Runs a module again that the step ran before.",
            &[STEP, TO, WHY],
            schema::<Swapped>,
            post(roll_back),
        ),
        does(
            "pause",
            "/v1/pause",
            "Has sources read no more. Not kept over a restart.",
            none,
            schema::<PausedAnswer>,
            post(pause),
        ),
        does("resume", "/v1/resume", "Has sources read again.", none, schema::<PausedAnswer>, post(resume)),
        does(
            "checkpoint",
            "/v1/checkpoint",
            "Ends the epoch now; answered when it is visible in the sinks.",
            none,
            schema::<CheckpointAnswer>,
            post(checkpoint),
        ),
        does(
            "drain",
            "/v1/drain",
            "Reads no more, fires all windows, commits, and marks the log as finished.",
            none,
            schema::<EndingAnswer>,
            post(drain),
        ),
        reads(
            "dead_letters",
            "/v1/dead-letters",
            "Messages that could not be handled, read back from where their sink put them.",
            &LETTERS,
            schema::<Found>,
            get(letters::find),
        ),
        does(
            "replay",
            "/v1/dead-letters/replay",
            "Sends dead letters once more through the step that rejected them, as it runs now, and on into the sinks. Each letter is replayed once ever.",
            &LETTERS[..6],
            schema::<Replayed>,
            post(letters::replay),
        ),
        does("stop", "/v1/stop", "Stops at a barrier; the next start goes on.", none, schema::<EndingAnswer>, post(stop)),
    ]
}

/// The query of a request, where all is optional. What is no query is refused as everything else is.
pub(super) fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|Query(query)| query).map_err(|e| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, e.body_text()))
}

fn wrong(error: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error)
}

/// The reason as the history has it.
fn reason(done: &str, why: Option<String>) -> Result<String, Refusal> {
    match why {
        None => Ok(format!("{done} by request")),
        Some(why) if why.chars().count() > WHY_CHARS_MAX => Err(wrong(format!("`why` has more than {WHY_CHARS_MAX} characters"))),
        Some(why) => Ok(format!("{done}: {why}")),
    }
}

/// A part of 1.
fn part(name: &str, given: Option<f64>, default: f64) -> Result<f64, Refusal> {
    match given.unwrap_or(default) {
        part if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err(wrong(format!("`{name}` is a part of 1, between 0 and 1"))),
    }
}

/// The module that a request brings.
fn module(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Refusal> {
    body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the module is larger than {MODULE_BYTES_MAX} bytes"))
        }
        status => Refusal::new(status, rejection.body_text()),
    })
}

async fn status(State(shared): State<Shared>) -> Json<StatusAnswer> {
    let status = &shared.status;
    let (phase, since) = status.phase();
    Json(StatusAnswer {
        phase,
        phase_seconds: since.as_secs_f64(),
        paused: shared.handle.is_paused(),
        waits_for: status.waits_for(),
        watermarks_wait_for: status.watermarks_wait_for(),
        summary: status.summary(),
    })
}

async fn pipeline(State(shared): State<Shared>) -> Json<PipelineAnswer> {
    let of = &shared.pipeline;
    let part = |name: &str, kind: &str, events: u64| PartAnswer { name: name.to_string(), kind: kind.to_string(), events };
    let read = |name: &str| metrics::SOURCE_EVENTS.with_label_values(&[name]).get();
    let written = |name: &str| metrics::SINK_EVENTS.with_label_values(&[name]).get();
    Json(PipelineAnswer {
        pipeline: of.name.clone(),
        task: of.task,
        tasks: of.tasks,
        workers: of.workers,
        interval_ms: of.interval.as_millis() as u64,
        sources: of.sources.iter().map(|s| part(&s.name, s.connector.kind(), read(&s.name))).collect(),
        steps: of.steps.iter().map(|step| describe(&shared, step)).collect(),
        sinks: of.sinks.iter().map(|s| part(&s.name, s.connector.kind(), written(&s.name))).collect(),
    })
}

fn describe(shared: &Shared, step: &StepPlan) -> StepAnswer {
    let runs: Option<ModuleRef> = shared.status.modules().remove(&*step.name);
    let label = [&*step.name];
    let rejected = |cause: &str| metrics::STEP_REJECTED.with_label_values(&[&*step.name, cause]).get();
    StepAnswer {
        name: step.name.to_string(),
        world: step.module.as_ref().map(|module| module.facts().world),
        configured: runs.as_ref().map(|module| module.configured.clone()),
        running: runs.as_ref().map(|module| module.running.clone()),
        versions: runs.map(|module| module.versions).unwrap_or_default(),
        events_in: metrics::STEP_EVENTS_IN.with_label_values(&label).get(),
        events_out: metrics::STEP_EVENTS_OUT.with_label_values(&label).get(),
        filtered: metrics::STEP_FILTERED.with_label_values(&label).get(),
        refused: rejected("refused"),
        failed: rejected("failed"),
        memory_bytes: metrics::GUEST_MEMORY.with_label_values(&label).get().max(0) as u64,
    }
}

fn find<'a>(pipeline: &'a Pipeline, name: &str) -> Result<&'a StepPlan, Refusal> {
    let known = || pipeline.steps.iter().map(|step| &*step.name).collect::<Vec<_>>().join(", ");
    let missing = || Refusal::new(StatusCode::NOT_FOUND, format!("no such step; the pipeline has: {}", known()));
    pipeline.steps.iter().find(|step| *step.name == *name).ok_or_else(missing)
}

async fn one_step(State(shared): State<Shared>, Path(step): Path<String>) -> Answer<StepAnswer> {
    Ok(Json(describe(&shared, find(&shared.pipeline, &step)?)))
}

async fn explain(State(shared): State<Shared>) -> Json<Explanation> {
    Json(explain::explain(&Facts::of(&shared.status, shared.handle.is_paused())))
}

#[derive(Deserialize)]
struct SwapQuery {
    why: Option<String>,
    watch_seconds: Option<u64>,
    max_failed: Option<f64>,
    max_refused: Option<f64>,
}

async fn swap(
    State(shared): State<Shared>,
    Path(step): Path<String>,
    query: Result<Query<SwapQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Swapped> {
    find(&shared.pipeline, &step)?;
    let query = asked(query)?;
    let why = reason("swapped", query.why)?;
    let default = WatchLimits::default();
    let limits = WatchLimits {
        watch_seconds: query.watch_seconds.unwrap_or(default.watch_seconds),
        failed: part("max_failed", query.max_failed, default.failed)?,
        refused: part("max_refused", query.max_refused, default.refused)?,
    };
    let Shared { pipeline, status, handle, .. } = &shared;
    Ok(Json(handle.swap_watched(pipeline, status, &step, module(body)?, why, limits).await?))
}

#[derive(Deserialize)]
struct ShadowQuery {
    messages: Option<u64>,
    seconds: Option<u64>,
    share: Option<f64>,
    promote_if: Option<String>,
    why: Option<String>,
}

async fn try_beside(
    State(shared): State<Shared>,
    Path(step): Path<String>,
    query: Result<Query<ShadowQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<ShadowReport> {
    find(&shared.pipeline, &step)?;
    let query = asked(query)?;
    let why = reason("promoted after it was tried", query.why)?;
    let conditions: Option<Conditions> = query.promote_if.map(|text| text.parse()).transpose()?;
    let bytes = module(body)?;
    let trial = Trial {
        messages: query.messages.unwrap_or(10_000).max(1),
        time: Duration::from_secs(query.seconds.unwrap_or(60).min(3600)),
        share: part("share", query.share, 1.0)?,
    };
    let Shared { pipeline, status, handle, .. } = &shared;
    let mut report = shadow(pipeline, status, &step, &bytes, trial).await?;
    if let Some(conditions) = conditions {
        report.objections = conditions.objections(&report);
        if report.objections.is_empty() {
            report.promoted = Some(handle.swap_watched(pipeline, status, &step, bytes, why, WatchLimits::default()).await?);
        }
    }
    Ok(Json(report))
}

#[derive(Deserialize)]
struct RollbackQuery {
    to: Option<String>,
    why: Option<String>,
}

async fn roll_back(
    State(shared): State<Shared>,
    Path(step): Path<String>,
    query: Result<Query<RollbackQuery>, QueryRejection>,
) -> Answer<Swapped> {
    find(&shared.pipeline, &step)?;
    let query = asked(query)?;
    let why = reason("rolled back", query.why)?;
    let module = shared.status.modules().remove(&step);
    let to = module.and_then(|module| {
        let known = |digest: &String| module.versions.iter().any(|version| version.digest == *digest);
        match query.to {
            Some(to) => Some(to).filter(known),
            None => module.versions.iter().rev().find(|version| version.digest != module.running).map(|v| v.digest.clone()),
        }
    });
    let to = to.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "the step has run no such version: nothing to go back to"))?;
    Ok(Json(shared.handle.roll_back(&shared.pipeline, &step, &to, why).await?))
}

async fn pause(State(shared): State<Shared>) -> Json<PausedAnswer> {
    shared.handle.pause(true);
    Json(PausedAnswer { paused: true })
}

async fn resume(State(shared): State<Shared>) -> Json<PausedAnswer> {
    shared.handle.pause(false);
    Json(PausedAnswer { paused: false })
}

async fn checkpoint(State(shared): State<Shared>) -> Answer<CheckpointAnswer> {
    Ok(Json(CheckpointAnswer { epoch: shared.handle.checkpoint().await? }))
}

async fn drain(State(shared): State<Shared>) -> Json<EndingAnswer> {
    shared.handle.stop(Stop::Drain);
    Json(EndingAnswer { ending: "drain".to_string() })
}

async fn stop(State(shared): State<Shared>) -> Json<EndingAnswer> {
    shared.handle.stop(Stop::AtBarrier);
    Json(EndingAnswer { ending: "stop".to_string() })
}
