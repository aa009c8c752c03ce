//! What an epoch consisted of and how long each part took, for tools that show traces. Owns the record and its form in
//! OpenTelemetry's protocol; sends nothing.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// An epoch that is committed.
#[derive(Clone, Debug)]
pub struct EpochTrace {
    /// The pipeline.
    pub pipeline: String,
    /// Its task.
    pub task: u32,
    /// Tells this log's epochs from others'.
    pub log_id: String,
    /// The epoch.
    pub epoch: u64,
    /// When its barrier was sent, ms since the Unix epoch.
    pub began_ms: i64,
    /// From there to its last commit.
    pub took: Duration,
    /// Its parts, in order.
    pub parts: Vec<Part>,
}

/// A part of an epoch.
#[derive(Clone, Debug)]
pub struct Part {
    /// `barrier`, `manifest`, `commit`.
    pub name: &'static str,
    /// The sink that commits.
    pub sink: Option<String>,
    /// When it began, from the epoch's beginning.
    pub from: Duration,
    /// When it ended.
    pub to: Duration,
}

impl EpochTrace {
    /// As the body of a request to `/v1/traces` of OpenTelemetry's protocol, in JSON. The epoch's identity makes the ids, so that
    /// one that is sent twice is one.
    pub fn to_otlp(&self) -> Value {
        let id = |part: usize, length: usize| {
            let hash = Sha256::digest(format!("{}/{}/{}/{part}", self.log_id, self.task, self.epoch));
            hash.iter().take(length).map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        let (trace, root) = (id(0, 16), id(0, 8));
        let at = |offset: Duration| (self.began_ms as i128 * 1_000_000 + offset.as_nanos() as i128).to_string();
        let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let number = |key: &str, value: u64| json!({"key": key, "value": {"intValue": value.to_string()}});
        let span = |id: String, name: &str, from: Duration, to: Duration, attributes: Vec<Value>| {
            json!({"traceId": trace, "spanId": id, "name": name, "kind": 1, "startTimeUnixNano": at(from), "endTimeUnixNano": at(to),
                "attributes": attributes})
        };
        let mut spans = vec![span(root.clone(), "epoch", Duration::ZERO, self.took, vec![number("weir.epoch", self.epoch)])];
        for (at, part) in self.parts.iter().enumerate() {
            let attributes = part.sink.iter().map(|sink| text("weir.sink", sink)).collect();
            let mut span = span(id(at + 1, 8), part.name, part.from, part.to, attributes);
            span["parentSpanId"] = root.as_str().into();
            spans.push(span);
        }
        let resource = vec![
            text("service.name", "weir"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("weir.pipeline", &self.pipeline),
            number("weir.task", self.task.into()),
        ];
        json!({"resourceSpans": [{
            "resource": {"attributes": resource},
            "scopeSpans": [{"scope": {"name": "weir"}, "spans": spans}],
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_a_span_with_its_parts_below_it() {
        let ms = Duration::from_millis;
        let part = |name, sink: Option<&str>, from, to| Part { name, sink: sink.map(str::to_string), from: ms(from), to: ms(to) };
        let trace = EpochTrace {
            pipeline: "clicks".into(),
            task: 2,
            log_id: "a".into(),
            epoch: 7,
            began_ms: 1_700_000_000_000,
            took: ms(30),
            parts: vec![part("barrier", None, 0, 10), part("commit", Some("table"), 12, 30)],
        };
        let otlp = trace.to_otlp();
        let spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        assert_eq!(spans.len(), 3);
        assert_eq!((&spans[0]["name"], spans[0].get("parentSpanId")), (&"epoch".into(), None));
        assert_eq!(spans[2]["startTimeUnixNano"], "1700000000012000000");
        assert_eq!(spans[2]["attributes"][0]["value"]["stringValue"], "table");
        for span in &spans[1..] {
            assert_eq!((&span["parentSpanId"], &span["traceId"]), (&spans[0]["spanId"], &spans[0]["traceId"]));
        }
        assert_eq!(spans[0]["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(spans[1]["spanId"].as_str().unwrap().len(), 16);
        assert_eq!(otlp, trace.to_otlp(), "the same epoch has the same ids");
        let next = EpochTrace { epoch: 8, ..trace }.to_otlp();
        assert_ne!(next["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"], spans[0]["traceId"]);
    }
}
