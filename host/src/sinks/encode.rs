//! Rows as lines of text, for the sinks that write text: the bare value, or an envelope of JSON that
//! holds everything known of the row. Owns both formats; writes nowhere.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::batch::{Batch, Rejected};
use crate::error::{Error, Result};

/// How a row becomes a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// The value and a newline. A value with a newline in it, and a tombstone, is refused.
    Lines,
    /// A JSON object with partition, offset, times, key, value, attributes and, for dead letters, step, reason and module.
    /// Bytes that are not UTF-8 stand as base64 under `key_base64` or `value_base64` instead.
    Envelope,
}

/// Appends each row of a batch to `out` as a line; answers with those that the format can't hold.
pub fn encode(format: Format, batch: &Batch, out: &mut Vec<u8>) -> Result<Vec<Rejected>> {
    match format {
        Format::Lines => lines(batch, out),
        Format::Envelope => {
            for row in 0..batch.len() {
                serde_json::to_writer(&mut *out, &envelope(batch, row))
                    .map_err(|e| Error::bug("cannot write a row as JSON").because(e))?;
                out.push(b'\n');
            }
            Ok(Vec::new())
        }
    }
}

fn lines(batch: &Batch, out: &mut Vec<u8>) -> Result<Vec<Rejected>> {
    out.reserve(batch.bytes() as usize + batch.len());
    let (mut bad, mut reasons) = (Vec::new(), Vec::new());
    for row in 0..batch.len() {
        let reason = match batch.value(row) {
            Some(value) if memchr(b'\n', value).is_none() => {
                out.extend_from_slice(value);
                out.push(b'\n');
                continue;
            }
            Some(_) => "the value has a newline in it, which would make two lines of it: set `format: envelope`",
            None => "a line can't hold a tombstone (a message without a value): set `format: envelope`",
        };
        bad.push(row as u32);
        reasons.push(reason.to_string());
    }
    if bad.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![Rejected { rows: batch.take(&bad)?, reasons, module: None }])
}

fn envelope(batch: &Batch, row: usize) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("partition".into(), batch.partitions[row].into());
    object.insert("offset".into(), batch.offsets[row].into());
    object.insert("event_time_ms".into(), batch.event_times[row].into());
    object.insert("published_ms".into(), batch.published[row].into());
    bytes(&mut object, "key", batch.key(row));
    bytes(&mut object, "value", batch.value(row));
    let mut others = Vec::new();
    for (name, value) in batch.attributes.of(row as u32) {
        match name.strip_prefix("weir.") {
            // A row that was rejected before, and again now, keeps the older reason among the attributes.
            Some(known @ ("step" | "reason" | "module")) => {
                if let Some(older) = object.get(known) {
                    others.push(json!({"name": name, "value": older}));
                }
                object.insert(known.into(), String::from_utf8_lossy(value.unwrap_or_default()).into());
            }
            _ => {
                let mut attribute = Map::new();
                attribute.insert("name".into(), name.into());
                bytes(&mut attribute, "value", value);
                others.push(Value::Object(attribute));
            }
        }
    }
    if !others.is_empty() {
        object.insert("attributes".into(), others.into());
    }
    object
}

fn bytes(object: &mut Map<String, Value>, name: &str, value: Option<&[u8]>) {
    match value.map(std::str::from_utf8) {
        None => object.insert(name.into(), Value::Null),
        Some(Ok(text)) => object.insert(name.into(), text.into()),
        Some(Err(_)) => object.insert(format!("{name}_base64"), STANDARD.encode(value.unwrap_or_default()).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn batch(values: &[Option<&[u8]>]) -> Batch {
        let mut builder = BatchBuilder::new(0, 0);
        for (offset, value) in values.iter().enumerate() {
            builder.push(None, *value, Origin { partition: 2, offset: offset as i64, published: 5 });
        }
        builder.finish(0)
    }

    #[test]
    fn a_line_is_the_value_and_what_does_not_fit_is_refused_with_a_reason() {
        let mut out = Vec::new();
        let rejected =
            encode(Format::Lines, &batch(&[Some(b"a"), None, Some(b""), Some(b"x\ny"), Some("ü".as_bytes())]), &mut out);
        assert_eq!(out, "a\n\nü\n".as_bytes());
        let rejected = rejected.unwrap().remove(0);
        assert_eq!(rejected.rows.offsets.to_vec(), [1, 3]);
        assert!(rejected.reasons[0].contains("tombstone"), "{:?}", rejected.reasons);
        assert!(rejected.reasons[1].contains("newline"), "{:?}", rejected.reasons);
    }

    #[test]
    fn an_envelope_holds_everything_and_tells_null_from_empty_and_bytes_from_text() {
        let mut builder = BatchBuilder::new(0, 0);
        builder.push(Some(b"k\xff"), Some(b"x\ny"), Origin { partition: 2, offset: 7, published: 5 });
        builder.attribute("weir.reason", Some(b"older"));
        builder.attribute("h", None);
        builder.attribute("weir.step", Some(b"mask"));
        builder.attribute("weir.reason", Some(b"not JSON"));
        builder.push(None, None, Origin { partition: 2, offset: 8, published: 5 });
        builder.push(Some(b""), Some(b""), Origin { partition: 2, offset: 9, published: 5 });
        let mut out = Vec::new();
        assert!(encode(Format::Envelope, &builder.finish(0), &mut out).unwrap().is_empty());
        let lines: Vec<Value> =
            out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect();
        assert_eq!(
            lines[0],
            json!({"partition": 2, "offset": 7, "event_time_ms": 5, "published_ms": 5, "key_base64": "a/8=", "value": "x\ny",
                "reason": "not JSON", "step": "mask",
                "attributes": [{"name": "h", "value": null}, {"name": "weir.reason", "value": "older"}]})
        );
        assert_eq!((&lines[1]["key"], &lines[1]["value"]), (&Value::Null, &Value::Null));
        assert_eq!((&lines[2]["key"], &lines[2]["value"]), (&json!(""), &json!("")));
    }
}
