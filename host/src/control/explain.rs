//! Why a watermark, a commit or a source is not moving, and what to do about it. A function from facts: no I/O.

use super::answers::{Explanation, Finding};
use crate::pipeline::{Phase, SourceState, Status};
use crate::waits::Waiting;

/// A commit or barrier that takes longer is worth a word.
const SLOW_SECONDS: u64 = 5;

/// What is known at one moment.
pub struct Facts {
    /// What the coordinator does.
    pub phase: Phase,
    /// For how long, in seconds.
    pub phase_seconds: u64,
    /// Sources are paused.
    pub paused: bool,
    /// What each part of each source does.
    pub sources: Vec<(String, SourceState)>,
    /// Watermarks that stand.
    pub watermarks: Vec<Waiting>,
}

impl Facts {
    /// As they are now.
    pub fn of(status: &Status, paused: bool) -> Facts {
        let (phase, since) = status.phase();
        Facts {
            phase,
            phase_seconds: since.as_secs(),
            paused,
            sources: status.source_states(),
            watermarks: status.watermarks_wait_for(),
        }
    }
}

/// Says what stands and why.
pub fn explain(facts: &Facts) -> Explanation {
    let mut findings = Vec::new();
    let mut find = |about, name: &str, why: String, seconds, advice: &str| {
        findings.push(Finding { about, name: name.to_string(), why, seconds, advice: advice.to_string() });
    };
    let seconds = Some(facts.phase_seconds);
    match &facts.phase {
        Phase::Starting => find(
            "pipeline",
            "",
            "it opens its sources and sinks and settles its last epoch".into(),
            seconds,
            "wait; if it takes long, look whether brokers, catalog and storage answer",
        ),
        Phase::Backoff { error } => find(
            "pipeline",
            "",
            format!("it failed and waits before it starts again from the checkpoint: {error}"),
            seconds,
            "mend what the error names; it then goes on by itself",
        ),
        Phase::Ended => find("pipeline", "", "it has ended".into(), None, "start it again"),
        Phase::Barrier { missing } if facts.phase_seconds >= SLOW_SECONDS => find(
            "commit",
            "",
            format!("a barrier is on its way: {missing} sources or workers are still busy with what came before it"),
            seconds,
            "a slow module or sink holds it up: look at weir_guest_call_seconds and weir_worker_busy_seconds_total",
        ),
        Phase::Manifest if facts.phase_seconds >= SLOW_SECONDS => find(
            "commit",
            "",
            "the checkpoint store has not taken the manifest".into(),
            seconds,
            "look whether the store of `checkpoint.store` answers",
        ),
        Phase::Committing { sink } if facts.phase_seconds >= SLOW_SECONDS => find(
            "commit",
            sink,
            "the sink has not made its rows visible".into(),
            seconds,
            "look whether its catalog or service answers; weir_sink_commit_retries_total tells of conflicts",
        ),
        Phase::Running | Phase::Barrier { .. } | Phase::Manifest | Phase::Committing { .. } => {}
    }
    if facts.paused {
        find("source", "", "all sources are paused".into(), None, "`weir resume` lets them go on");
    }
    let flows = !matches!(facts.phase, Phase::Starting | Phase::Backoff { .. } | Phase::Ended) && !facts.paused;
    let mut names: Vec<&str> = facts.sources.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    names.retain(|_| flows);
    for name in names {
        let states = || facts.sources.iter().filter(|(of, _)| of == name).map(|(_, state)| *state);
        if states().any(|state| state == SourceState::Blocked) {
            let why = "it waits for steps or sinks, which are slower".to_string();
            find(
                "source",
                name,
                why,
                None,
                "raise `workers`, or look for the slow part: weir_guest_call_seconds, weir_sink_commit_seconds",
            );
        } else if states().all(|state| state == SourceState::Ended) {
            find("source", name, "it is at its end".into(), None, "nothing: the pipeline ends when all sources have");
        } else {
            let why = "it waits for the outside: nothing new is there, or it does not answer".to_string();
            find("source", name, why, None, "nothing, if nothing is written to it; else look whether it can be reached");
        }
    }
    for waiting in facts.watermarks.iter().filter(|_| flows) {
        let why = format!("partition {} has shown nothing newer and is not known to be at its end", waiting.partition);
        let advice = "windows fire when this partition goes on, or is read to its end: look at what writes to it";
        find("watermark", &waiting.source, why, Some(waiting.seconds), advice);
    }
    let summary = match findings.first() {
        None => "everything moves".to_string(),
        Some(Finding { name, about, why, .. }) if name.is_empty() => format!("{about}: {why}"),
        Some(Finding { name, about, why, .. }) => format!("{about} `{name}`: {why}"),
    };
    Explanation { summary, findings }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(phase: Phase, seconds: u64) -> Facts {
        let sources = vec![("clicks".to_string(), SourceState::Reading), ("clicks".to_string(), SourceState::Reading)];
        Facts { phase, phase_seconds: seconds, paused: false, sources, watermarks: Vec::new() }
    }

    #[test]
    fn a_commit_that_stands_is_named_with_its_sink_and_one_that_is_under_way_is_not() {
        let committing = || Phase::Committing { sink: "table".into() };
        let found = explain(&facts(committing(), 60)).findings;
        assert_eq!((found[0].about, found[0].name.as_str(), found[0].seconds), ("commit", "table", Some(60)));
        assert!(explain(&facts(committing(), 1)).findings.iter().all(|finding| finding.about != "commit"));
    }

    #[test]
    fn a_source_that_waits_for_the_workers_is_told_from_one_that_waits_for_the_outside() {
        let mut facts = facts(Phase::Running, 1);
        assert!(explain(&facts).summary.contains("source `clicks`: it waits for the outside"));
        facts.sources[1].1 = SourceState::Blocked;
        let explanation = explain(&facts);
        assert_eq!(explanation.findings.len(), 1, "one finding for all parts of a source");
        assert!(explanation.findings[0].why.contains("slower"));
        facts.paused = true;
        assert_eq!(explain(&facts).findings[0].advice, "`weir resume` lets them go on");
    }

    #[test]
    fn a_watermark_that_stands_names_its_partition() {
        let waiting =
            Waiting { worker: 0, watermark_ms: Some(5), source: "clicks".into(), partition: "clicks/3".into(), seconds: 40 };
        let found = explain(&Facts { watermarks: vec![waiting], ..facts(Phase::Running, 1) }).findings;
        let finding = found.iter().find(|finding| finding.about == "watermark").unwrap();
        assert!(finding.why.contains("clicks/3") && finding.seconds == Some(40));
    }
}
