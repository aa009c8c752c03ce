//! Sends each message to an output by the value of a field, an attribute or the key.
//!
//! ```yaml
//! steps:
//!   - name: by_kind
//!     transform: route.wasm
//!     config:
//!       field: /kind
//!       routes: {order: orders, refund: orders, click: clicks}
//!       default: other
//! sinks:
//!   - file: {path: orders.jsonl, from: [orders]}
//!   - file: {path: clicks.jsonl, from: [clicks]}
//!   - file: {path: other.jsonl, from: [other]}
//! ```
//!
//! * One of `field` (a JSON pointer; of a name that occurs twice the last counts), `attribute` (a name) and
//!   `key: true`: what is looked at.
//! * `routes`: from values to outputs. A string is compared by its text; any other value by its JSON text
//!   as it stands, so `1` and `1.0` are two values. `main` is the main output.
//! * `default`: the output of all other messages; `main` if not given. `reject: true` in its place sends
//!   them to the dead letters, `drop: true` drops them.
//!
//! A tombstone has no fields. A message that is not JSON goes to the dead letters if a field is looked at.

use std::collections::HashMap;

use serde::Deserialize;
use weir_udf::json::{Field, inner, unescape};
use weir_udf::{Emitter, Message, Route, Transform};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    field: Option<String>,
    attribute: Option<String>,
    #[serde(default)]
    key: bool,
    routes: HashMap<String, String>,
    default: Option<String>,
    #[serde(default)]
    reject: bool,
    #[serde(default)]
    drop: bool,
}

/// What is looked at.
enum Subject {
    Field(Field),
    Attribute(String),
    Key,
}

/// What becomes of a message whose value has no route.
enum Otherwise {
    To(Route),
    Reject,
    Drop,
}

struct Router {
    subject: Subject,
    table: HashMap<Vec<u8>, Route>,
    otherwise: Otherwise,
    names: Vec<String>,
    scratch: Vec<u8>,
}

impl Transform for Router {
    type Config = Config;

    fn new(config: Config) -> Result<Self, String> {
        let subject = match (config.field, config.attribute, config.key) {
            (Some(field), None, false) => Subject::Field(Field::new(&field)?),
            (None, Some(attribute), false) => Subject::Attribute(attribute),
            (None, None, true) => Subject::Key,
            _ => return Err("config: give one of `field`, `attribute` and `key: true`".to_string()),
        };
        if config.routes.is_empty() {
            return Err("config: routes: name at least one value and its output".to_string());
        }
        // In an order that depends on the configuration alone, as the contract asks.
        let mut names: Vec<String> =
            config.routes.values().chain(&config.default).filter(|name| *name != "main").cloned().collect();
        names.sort();
        names.dedup();
        let route = |name: &String| names.iter().position(|known| known == name).map_or(Route::MAIN, Route::nth);
        if names.len() > weir_udf::ROUTES_MAX {
            return Err(format!("config: routes: {} outputs are too many: at most {}", names.len(), weir_udf::ROUTES_MAX));
        }
        let otherwise = match (&config.default, config.reject, config.drop) {
            (Some(name), false, false) => Otherwise::To(route(name)),
            (None, false, false) => Otherwise::To(Route::MAIN),
            (None, true, false) => Otherwise::Reject,
            (None, false, true) => Otherwise::Drop,
            _ => return Err("config: give one of `default`, `reject: true` and `drop: true`".to_string()),
        };
        let table = config.routes.iter().map(|(value, name)| (value.clone().into_bytes(), route(name))).collect();
        Ok(Router { subject, table, otherwise, names, scratch: Vec::new() })
    }

    fn routes(&self) -> Vec<String> {
        self.names.clone()
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        let value = match &mut self.subject {
            Subject::Field(field) => match message.value() {
                Some(text) => field.find(text)?.map(|found| match inner(found) {
                    Some(inner) => unescape(inner, &mut self.scratch),
                    None => found,
                }),
                None => None,
            },
            Subject::Attribute(name) => message.attribute(name),
            Subject::Key => message.key(),
        };
        match (value.and_then(|value| self.table.get(value)), &self.otherwise) {
            (Some(route), _) | (None, Otherwise::To(route)) => out.forward_to(*route),
            (None, Otherwise::Drop) => {}
            (None, Otherwise::Reject) => return Err(reason(value)),
        }
        Ok(())
    }
}

fn reason(value: Option<&[u8]>) -> String {
    match value {
        Some(value) => format!("no route for the value `{}`", String::from_utf8_lossy(value)),
        None => "nothing to route by: it is missing".to_string(),
    }
}

weir_udf::export!(Router);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::testing::{Harness, Input, run};

    fn refusal(config: &str) -> String {
        Harness::<Router>::new(config).err().unwrap()
    }

    #[test]
    fn messages_go_where_the_table_says_and_the_rest_to_the_default() {
        let config =
            r#"{"field":"/kind","routes":{"order":"orders","refund":"orders","1":"ones","home":"main"},"default":"other"}"#;
        let messages = [
            r#"{"kind":"order"}"#,
            r#"{"kind":"click"}"#,
            r#"{"kind":"ref\u0075nd"}"#,
            r#"{"kind":1}"#,
            r#"{"kind":1.0}"#,
            r#"{"kind":"home"}"#,
            r#"{}"#,
        ];
        let results = run::<Router>(config, messages);
        let routes: Vec<_> = results.rows.iter().map(|row| row.route.as_deref().unwrap_or("main")).collect();
        assert_eq!(routes, ["orders", "other", "orders", "ones", "other", "main", "other"]);
        assert_eq!(results.values(), messages);
    }

    #[test]
    fn attributes_and_keys_route_whatever_the_value_is() {
        let input = Input::new("not JSON").key("k").attribute("a", "v");
        for config in [r#"{"attribute":"a","routes":{"v":"there"}}"#, r#"{"key":true,"routes":{"k":"there"}}"#] {
            assert_eq!(run::<Router>(config, [input.clone()]).rows[0].route.as_deref(), Some("there"));
        }
    }

    #[test]
    fn what_has_no_route_is_main_or_rejected_or_dropped() {
        let config = |otherwise: &str| format!(r#"{{"field":"/a","routes":{{"x":"y"}}{otherwise}}}"#);
        assert_eq!(run::<Router>(&config(""), [r#"{"a":1}"#]).rows[0].route, None);
        assert_eq!(run::<Router>(&config(r#","drop":true"#), [r#"{"a":1}"#]).filtered, [0]);
        let reject = config(r#","reject":true"#);
        assert_eq!(run::<Router>(&reject, [r#"{"a":"z"}"#]).reason(), "no route for the value `z`");
        assert_eq!(run::<Router>(&reject, [Input::tombstone()]).reason(), "nothing to route by: it is missing");
        assert_eq!(run::<Router>(&reject, ["?"]).reason(), "not JSON: expected a value at byte 0");
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        assert_eq!(refusal(r#"{"routes":{"a":"b"}}"#), "config: give one of `field`, `attribute` and `key: true`");
        assert_eq!(refusal(r#"{"key":true,"routes":{}}"#), "config: routes: name at least one value and its output");
        let both = r#"{"key":true,"routes":{"a":"b"},"default":"c","drop":true}"#;
        assert_eq!(refusal(both), "config: give one of `default`, `reject: true` and `drop: true`");
        let many: Vec<String> = (0..255).map(|i| format!(r#""{i}":"r{i}""#)).collect();
        let refused = refusal(&format!(r#"{{"key":true,"routes":{{{}}}}}"#, many.join(",")));
        assert_eq!(refused, "config: routes: 255 outputs are too many: at most 254");
    }
}
