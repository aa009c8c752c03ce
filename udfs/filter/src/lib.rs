//! Keeps or drops messages by conditions on their fields, attributes and keys.
//!
//! ```yaml
//! steps:
//!   - name: errors
//!     transform: filter.wasm
//!     config:
//!       keep:
//!         all:
//!           - {field: /level, in: [error, warn]}
//!           - {field: /duration_ms, greater: 250}
//!           - not: {field: /path, prefix: /health}
//!           - any:
//!               - {attribute: tenant, equals: acme}
//!               - {field: "/tags/*", equals: urgent}
//!               - {key: true, suffix: "-vip"}
//! ```
//!
//! One of `keep` (what does not meet the condition is dropped) or `drop` (what meets it is). A condition is:
//!
//! * `all: [...]`, `any: [...]` or `not: ...` over other conditions, or
//! * one thing to look at:
//!   * `field`: a JSON pointer into the message; where `*` in it leads to several values, one that meets
//!     the test is enough.
//!   * `attribute`: the text of the message's attribute of that name.
//!   * `key: true`: the text of the message's key.
//!
//!   and one test:
//!   * `equals`, `not_equals`: a string, number, boolean or null. Numbers are equal by value (1.0 is 1).
//!   * `in`, `not_in`: a list of such.
//!   * `exists: true`, `missing: true`: whether it is there at all; `null` is there.
//!   * `less`, `less_or_equal`, `greater`, `greater_or_equal`: a number, compared exactly whatever its size;
//!     or a string, compared byte by byte, which suits ISO 8601 times. A value of the other type does not
//!     meet the test; an attribute or key is compared with a number if it is one.
//!   * `contains`, `prefix`, `suffix`: a string, looked for in strings.
//!
//! What is missing meets `missing`, `not_equals` and `not_in` only. A tombstone has no fields. A message that
//! is not JSON goes to the dead letters if the condition looks at a field.

mod condition;
mod test;

use serde::Deserialize;
use weir_udf::json::{Found, Paths};
use weir_udf::{Emitter, Message, Transform};

use condition::{Condition, Written};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    keep: Option<Written>,
    drop: Option<Written>,
}

struct Filter {
    condition: Condition,
    /// What becomes of a message that meets the condition.
    keep: bool,
    paths: Paths,
    looks_at_fields: bool,
    found: Found,
    scratch: Vec<u8>,
}

impl Transform for Filter {
    type Config = Config;

    fn new(config: Config) -> Result<Self, String> {
        let (written, keep) = match (config.keep, config.drop) {
            (Some(keep), None) => (keep, true),
            (None, Some(drop)) => (drop, false),
            _ => return Err("config: give one of `keep` and `drop`".to_string()),
        };
        let mut pointers = Vec::new();
        let condition = written.build(&mut pointers)?;
        let paths = Paths::new(&pointers)?;
        let looks_at_fields = !pointers.is_empty();
        Ok(Filter { condition, keep, paths, looks_at_fields, found: Found::default(), scratch: Vec::new() })
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        let text = message.value().unwrap_or_default();
        self.found.hits.clear();
        if self.looks_at_fields && message.value().is_some() {
            self.paths.find(text, &mut self.found)?;
        }
        if self.condition.met(&message, text, &self.found, &mut self.scratch) == self.keep {
            out.forward();
        }
        Ok(())
    }
}

weir_udf::export!(Filter);

#[cfg(test)]
mod tests;
