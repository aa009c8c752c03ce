//! Requests about dead letters.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;

use super::Shared;
use super::answers::Refusal;
use super::endpoints::{Answer, asked};
use crate::pipeline::{Filter, Found, Replayed, moment};

/// Letters in one answer.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

#[derive(Deserialize)]
pub struct LettersQuery {
    id: Option<String>,
    step: Option<String>,
    module: Option<String>,
    reason: Option<String>,
    since: Option<String>,
    until: Option<String>,
    limit: Option<usize>,
}

impl LettersQuery {
    fn filter(self) -> Result<Filter, Refusal> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let time = |text: Option<String>| text.map(|text| moment(&text, now_ms)).transpose();
        Ok(Filter {
            id: self.id,
            step: self.step,
            module: self.module,
            reason: self.reason,
            since_ms: time(self.since)?,
            until_ms: time(self.until)?,
        })
    }
}

/// Finds letters.
pub async fn find(State(shared): State<Shared>, query: Result<Query<LettersQuery>, QueryRejection>) -> Answer<Found> {
    let query = asked(query)?;
    let limit = query.limit.unwrap_or(LIMIT_DEFAULT).min(LIMIT_MAX);
    Ok(Json(shared.letters.find(&query.filter()?, limit).await?))
}

/// Replays letters.
pub async fn replay(State(shared): State<Shared>, query: Result<Query<LettersQuery>, QueryRejection>) -> Answer<Replayed> {
    // On a task of its own: a replay that has begun is not given up because somebody hangs up.
    let filter = asked(query)?.filter()?;
    let task = tokio::spawn(async move { shared.letters.replay(&filter).await });
    let ended = task.await.map_err(|e| crate::error::Error::bug("a replay ended abruptly").because(e))?;
    Ok(Json(ended?))
}
