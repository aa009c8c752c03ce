//! Puts key, window and pane into rows that are JSON objects, in front of the guest's own fields.

use std::io::Write;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{Array, BinaryArray};
use base64::Engine;

use super::Key;
use crate::wasm::Panes;

/// The rows with the columns. `origins` names each row's pane; `panes_too` adds `pane` and `timing`.
pub fn with_columns(
    values: &BinaryArray,
    origins: impl Iterator<Item = usize>,
    panes: &Panes,
    key: &Key,
    panes_too: bool,
) -> BinaryArray {
    let mut out = BinaryBuilder::with_capacity(values.len(), values.value_data().len() + values.len() * 96);
    let mut row = Vec::new();
    for (i, pane) in origins.enumerate() {
        if values.is_null(i) {
            out.append_null();
            continue;
        }
        let value = values.value(i);
        let Some(inside) = value.trim_ascii_start().strip_prefix(b"{") else {
            out.append_value(value);
            continue;
        };
        row.clear();
        row.push(b'{');
        write_key(&mut row, key, panes.rows.key(pane));
        write_time(&mut row, "window_start", panes.starts[pane]);
        write_time(&mut row, "window_end", panes.ends[pane]);
        if panes_too {
            let timing = ["early", "on_time", "late"][usize::from(panes.timings[pane]).min(2)];
            // A vector takes whatever is written.
            let _ = write!(row, "\"pane\":{},\"timing\":\"{timing}\",", panes.firings[pane]);
        }
        if inside.trim_ascii_start().starts_with(b"}") {
            row.pop();
        }
        row.extend_from_slice(inside);
        out.append_value(&row);
    }
    out.finish()
}

fn write_key(row: &mut Vec<u8>, key: &Key, bytes: Option<&[u8]>) {
    match (key, bytes) {
        (Key::None, _) | (Key::Attribute(_), None) => {}
        (Key::Message, None) => row.extend_from_slice(b"\"key\":null,"),
        (Key::Fields { pointers, .. }, bytes) => {
            let text = bytes.map(String::from_utf8_lossy).unwrap_or_default();
            match &pointers[..] {
                [one] => field(row, last(one), &text),
                several => {
                    // Our own array of scalars, with their text as it was written.
                    let values: Vec<&serde_json::value::RawValue> = serde_json::from_str(&text).unwrap_or_default();
                    several.iter().zip(values).for_each(|(pointer, value)| field(row, last(pointer), value.get()));
                }
            }
        }
        (Key::Attribute(name), Some(bytes)) => text(row, name, bytes),
        (Key::Message, Some(bytes)) => text(row, "key", bytes),
    }
}

/// The last part of a pointer: what its column is called.
fn last(pointer: &str) -> String {
    pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~")
}

fn field(row: &mut Vec<u8>, name: impl AsRef<str>, json: &str) {
    quoted(row, name.as_ref());
    row.push(b':');
    row.extend_from_slice(json.as_bytes());
    row.push(b',');
}

/// Bytes as a JSON string; in base64 under `<name>_base64` where they are no text.
fn text(row: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            quoted(row, name);
            row.push(b':');
            quoted(row, text);
        }
        Err(_) => {
            quoted(row, &format!("{name}_base64"));
            row.push(b':');
            quoted(row, &base64::engine::general_purpose::STANDARD.encode(bytes));
        }
    }
    row.push(b',');
}

fn quoted(row: &mut Vec<u8>, text: &str) {
    // A string always serializes.
    let _ = serde_json::to_writer(row, text);
}

fn write_time(row: &mut Vec<u8>, name: &str, ms: i64) {
    let time = chrono::DateTime::from_timestamp_millis(ms);
    match time.filter(|time| (0..=9999).contains(&chrono::Datelike::year(time))) {
        Some(time) => {
            let _ = write!(row, "\"{name}\":\"{}\",", time.format("%Y-%m-%dT%H:%M:%S%.3fZ"));
        }
        None => {
            let _ = write!(row, "\"{name}\":{ms},");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn row(key: &Key, bytes: Option<&[u8]>, value: &str, panes_too: bool) -> String {
        let mut builder = BatchBuilder::new(1, 0);
        builder.push(bytes, Some(b"accumulator"), Origin::default());
        let panes = Panes { rows: builder.finish(0), starts: vec![0], ends: vec![60_000], firings: vec![2], timings: vec![2] };
        let values = BinaryArray::from(vec![value.as_bytes()]);
        let out = with_columns(&values, std::iter::once(0), &panes, key, panes_too);
        String::from_utf8(out.value(0).to_vec()).unwrap()
    }

    #[test]
    fn rows_begin_with_key_and_window() {
        let window = r#""window_start":"1970-01-01T00:00:00.000Z","window_end":"1970-01-01T00:01:00.000Z""#;
        let one = Key::fields(vec!["/user/id".into()]).unwrap();
        assert_eq!(row(&one, Some(b"12"), r#"{"count":5}"#, false), format!(r#"{{"id":12,{window},"count":5}}"#));
        let two = Key::fields(vec!["/a".into(), "/b".into()]).unwrap();
        assert_eq!(row(&two, Some(br#"["x",2]"#), "{ }", false), format!(r#"{{"a":"x","b":2,{window} }}"#));
        assert_eq!(
            row(&Key::Message, Some(b"q\"\xc3\xa4"), r#"{"n":1}"#, true),
            format!(r#"{{"key":"q\"ä",{window},"pane":2,"timing":"late","n":1}}"#)
        );
        assert_eq!(row(&Key::Message, Some(b"\xff"), r#"{"n":1}"#, false), format!(r#"{{"key_base64":"/w==",{window},"n":1}}"#));
        assert_eq!(row(&Key::None, None, "7", false), "7", "what is no object stays as it is");
    }
}
