//! Collects the messages of a key and window in one row.
//!
//! ```yaml
//! steps:
//!   - name: sessions
//!     aggregate: collect.wasm
//!     key: /userId
//!     window: {session: 30m}
//!     config: {max_count: 1000}
//! ```
//!
//! gives `{"count":2,"messages":[{"page":"/"},{"page":"/cart"}],"dropped":0}`, with the messages as they stand, in the order of
//! their source partition; between partitions there is none.
//!
//! * `max_count`, `max_bytes`: how many messages, and how many bytes of them, a row may hold: 10000 and 1048576 by default.
//!   The first message that does not fit and all after it are left out, and counted in `dropped`. A message that is larger
//!   than `max_bytes` by itself goes to the dead letters.
//! * `messages`: `json` (default) takes JSON as it stands, and a message that is none goes to the dead letters; `text` makes a JSON
//!   string of any text, and what is not UTF-8 goes there.
//!
//! A tombstone is `null`. The state of a key is its messages and one to three bytes for each; it may be up to twice
//! `max_bytes` for a while. Merging puts bytes behind bytes.

mod list;

use serde::Deserialize;
use weir_udf::json::{Found, Paths, quote};
use weir_udf::{Aggregate, Emitter, Message, Pane, Value};

use list::{Item, Limits};

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Form {
    #[default]
    Json,
    Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    max_count: u64,
    max_bytes: u64,
    messages: Form,
}

impl Default for Config {
    fn default() -> Self {
        Config { max_count: 10_000, max_bytes: 1 << 20, messages: Form::Json }
    }
}

struct Collect {
    limits: Limits,
    form: Form,
    /// Looks for nothing: only whether a message is JSON.
    paths: Paths,
    found: Found,
    text: Vec<u8>,
}

impl Collect {
    /// The message as JSON.
    fn json<'a>(&'a mut self, message: &Message<'a>) -> Result<&'a [u8], String> {
        let Some(value) = message.value() else { return Ok(b"null") };
        if self.form == Form::Json {
            self.paths.find(value, &mut self.found)?;
            return Ok(value.trim_ascii());
        }
        let text = std::str::from_utf8(value).map_err(|_| "the message is not UTF-8")?;
        self.text.clear();
        quote(text, |piece| self.text.extend_from_slice(piece));
        Ok(&self.text)
    }
}

impl Aggregate for Collect {
    type Config = Config;
    type Accumulator = Vec<u8>;

    fn new(config: Config) -> Result<Self, String> {
        let limits = Limits { count: config.max_count, bytes: config.max_bytes };
        if limits.count == 0 || limits.bytes == 0 {
            return Err("config: max_count and max_bytes must be above 0".to_string());
        }
        let paths = Paths::new([] as [&str; 0])?;
        Ok(Collect { limits, form: config.messages, paths, found: Found::default(), text: Vec::new() })
    }

    fn add(&mut self, list: &mut Vec<u8>, message: Message<'_>) -> Result<(), String> {
        let limits = self.limits;
        let json = self.json(&message)?;
        if json.len() as u64 > limits.bytes {
            return Err(format!("the message has {} bytes: max_bytes is {}", json.len(), limits.bytes));
        }
        list::push(list, Item::Message(json));
        list::shorten(list, limits)
    }

    fn encode(&self, list: &Vec<u8>, out: &mut Value<'_>) {
        out.push(list);
    }

    fn merge(&mut self, list: &mut Vec<u8>, encoded: &[u8]) -> Result<(), String> {
        list.extend_from_slice(encoded);
        list::shorten(list, self.limits)
    }

    fn clear(&self, list: &mut Vec<u8>) {
        list.clear();
    }

    fn emit(&mut self, _: Pane<'_>, list: &mut Vec<u8>, out: &mut Emitter<'_>) -> Result<(), String> {
        let limits = self.limits;
        out.try_write(|value| {
            let whole = list::measure(list, limits)?;
            value.push(format!(r#"{{"count":{},"messages":["#, whole.count).as_bytes());
            let kept = list::items(&list[..whole.kept]).enumerate();
            for (i, item) in kept {
                if let Item::Message(json) = item? {
                    value.push(if i > 0 { b"," } else { b"" });
                    value.push(json);
                }
            }
            value.push(format!(r#"],"dropped":{}}}"#, whole.dropped).as_bytes());
            Ok(())
        })
    }
}

weir_udf::export_aggregator!(Collect);

#[cfg(test)]
mod tests;
