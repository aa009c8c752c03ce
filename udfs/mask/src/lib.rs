//! Drops, redacts or hashes fields of JSON messages, and leaves every other byte as it is.
//!
//! ```yaml
//! steps:
//!   - name: mask
//!     transform: mask.wasm
//!     config:
//!       fields:
//!         - email                                        # a top-level field, redacted
//!         - {path: /user/ssn, action: drop}
//!         - {path: /user/phone, action: redact, with: "hidden"}
//!         - {path: "/cards/*/number", action: hash, salt: "s3cret"}
//!       missing: ignore
//! ```
//!
//! `fields`: what to mask, at least one.
//!
//! * `path`: a JSON pointer; `*` stands for every element of an array and every member of an object. A
//!   field written as a bare string may also be the name of a top-level field.
//! * `action`:
//!   * `redact` (default): the value becomes `with`, which may be any JSON value; `"***"` if not given.
//!   * `drop`: the member or element is left out.
//!   * `hash`: the value becomes the SHA-256 of `salt` followed by the value, as a string of 64
//!     hexadecimal digits: of a string its text, of anything else its JSON text as it stands. The same
//!     value always gives the same digits, so that it can still be joined and counted; without a secret
//!     salt, short values can be guessed. `null` stays `null`.
//!
//! `missing`: what becomes of a message in which a path leads nowhere. `ignore` (default): it goes on.
//! `reject`: it goes to the dead letters.
//!
//! A value that two paths lead to is masked by the outer path; at the same place, `drop` comes first, then
//! the field listed first. Names with escapes (`"em\u0061il"`) and names that occur twice are masked as well.
//! A message that is not JSON goes to the dead letters; a tombstone goes on.

use serde::Deserialize;
use sha2::{Digest, Sha256};
use weir_udf::json::{Found, Paths, inner, unescape};
use weir_udf::{Emitter, Message, Transform, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    fields: Vec<Entry>,
    #[serde(default)]
    missing: Missing,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a field: its name, or {path, action, with, salt}")]
enum Entry {
    Name(String),
    Field(Field),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Field {
    path: String,
    #[serde(default)]
    action: Kind,
    with: Option<serde_json::Value>,
    salt: Option<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Redact,
    Drop,
    Hash,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Missing {
    #[default]
    Ignore,
    Reject,
}

enum Action {
    Drop,
    Redact(Vec<u8>),
    /// The hash after the salt.
    Hash(Sha256),
}

struct Mask {
    paths: Paths,
    pointers: Vec<String>,
    actions: Vec<Action>,
    missing: Missing,
    found: Found,
    seen: Vec<bool>,
    scratch: Vec<u8>,
}

impl Transform for Mask {
    type Config = Config;

    fn new(config: Config) -> Result<Self, String> {
        if config.fields.is_empty() {
            return Err("config: fields: name at least one field to mask".to_string());
        }
        let (mut pointers, mut actions) = (Vec::new(), Vec::new());
        for entry in config.fields {
            let (pointer, action) = action(entry)?;
            pointers.push(pointer);
            actions.push(action);
        }
        let mut paths = Paths::new(&pointers)?.outermost();
        let drops = actions.iter().enumerate().filter(|(_, action)| matches!(action, Action::Drop));
        drops.for_each(|(path, _)| paths.cut(path));
        let seen = vec![false; pointers.len()];
        Ok(Mask { paths, pointers, actions, missing: config.missing, found: Found::default(), seen, scratch: Vec::new() })
    }

    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
        let Some(text) = message.value() else {
            out.forward();
            return Ok(());
        };
        self.paths.find(text, &mut self.found)?;
        if self.missing == Missing::Reject {
            self.seen.fill(false);
            self.found.hits.iter().for_each(|hit| self.seen[hit.path] = true);
            if let Some(path) = self.seen.iter().position(|seen| !seen) {
                return Err(format!("the field {} is missing", self.pointers[path]));
            }
        }
        match self.found.hits.is_empty() {
            true => out.forward(),
            false => out.write(|value| self.write(text, value)),
        }
        Ok(())
    }
}

fn action(entry: Entry) -> Result<(String, Action), String> {
    let field = match entry {
        Entry::Field(field) => field,
        Entry::Name(name) => {
            let path = match name.starts_with('/') {
                true => name,
                false => format!("/{}", name.replace('~', "~0")),
            };
            Field { path, action: Kind::Redact, with: None, salt: None }
        }
    };
    let Field { path, action, with, salt } = field;
    let of = |what: &str, only: &str| Err(format!("config: fields: {path}: `{what}` is for `action: {only}` only"));
    if with.is_some() && action != Kind::Redact {
        return of("with", "redact");
    }
    if salt.is_some() && action != Kind::Hash {
        return of("salt", "hash");
    }
    let action = match action {
        Kind::Drop if path.is_empty() => {
            return Err("config: fields: the whole message can't be dropped: use a filter".to_string());
        }
        Kind::Drop => Action::Drop,
        Kind::Redact => Action::Redact(with.map_or_else(|| b"\"***\"".to_vec(), |value| value.to_string().into_bytes())),
        Kind::Hash => Action::Hash(Sha256::new_with_prefix(salt.unwrap_or_default())),
    };
    Ok((path, action))
}

impl Mask {
    /// The message with what was found taken out or replaced.
    fn write(&mut self, text: &[u8], value: &mut Value<'_>) {
        let mut cuts = self.found.cuts.iter().peekable();
        let mut at = 0;
        for hit in &self.found.hits {
            while let Some(cut) = cuts.next_if(|cut| cut.start <= hit.start) {
                value.push(&text[at..cut.start]);
                at = cut.end;
            }
            // What was cut needs no masking, and what was masked by the first path none by a second.
            if hit.start < at || matches!(self.actions[hit.path], Action::Drop) {
                continue;
            }
            value.push(&text[at..hit.start]);
            at = hit.end;
            let masked = hit.of(text);
            match &self.actions[hit.path] {
                Action::Redact(with) => value.push(with),
                Action::Hash(_) if masked == b"null" => value.push(masked),
                Action::Hash(salted) => {
                    let plain = inner(masked).map_or(masked, |inner| unescape(inner, &mut self.scratch));
                    hex(&salted.clone().chain_update(plain).finalize(), value);
                }
                Action::Drop => {}
            }
        }
        for cut in cuts {
            value.push(&text[at..cut.start]);
            at = cut.end;
        }
        value.push(&text[at..]);
    }
}

/// Writes a string of hexadecimal digits.
fn hex(digest: &[u8], value: &mut Value<'_>) {
    let mut text = [b'"'; 66];
    for (digits, byte) in text[1..65].chunks_exact_mut(2).zip(digest) {
        let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
        digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    value.push(&text);
}

weir_udf::export!(Mask);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::testing::{Harness, Input, run};

    const CARD: &str = r#"{"id":12345678901234567890123, "user":{"email":"a@b.c","ssn":"1"},"cards":[{"number":"42"},{"number":42.0}],"x":1.50}"#;

    fn masked(fields: &str, text: &str) -> String {
        run::<Mask>(&format!(r#"{{"fields":{fields}}}"#), [text]).values()[0].to_string()
    }

    fn refusal(config: &str) -> String {
        Harness::<Mask>::new(config).err().unwrap()
    }

    #[test]
    fn fields_are_redacted_and_the_rest_stays_as_it_is() {
        let expected = CARD.replace("a@b.c", "***");
        assert_eq!(masked(r#"["/user/email"]"#, CARD), expected);
        assert_eq!(masked(r#"["x","id"]"#, r#"{"id":1,"x":[2],"y":1e400}"#), r#"{"id":"***","x":"***","y":1e400}"#);
        assert_eq!(masked(r#"["~x"]"#, r#"{"~x":1}"#), r#"{"~x":"***"}"#);
        assert_eq!(masked(r#"[{"path":"/x","with":0.10}]"#, CARD), CARD.replace("1.50", "0.10"));
    }

    #[test]
    fn fields_are_dropped_also_within_arrays() {
        assert_eq!(masked(r#"[{"path":"/user/ssn","action":"drop"}]"#, CARD), CARD.replace(r#","ssn":"1""#, ""));
        assert_eq!(
            masked(r#"[{"path":"/cards/*/number","action":"drop"}]"#, CARD),
            CARD.replace(r#"{"number":"42"},{"number":42.0}"#, "{},{}")
        );
        assert_eq!(masked(r#"[{"path":"/cards/0","action":"drop"}]"#, CARD), CARD.replace(r#"{"number":"42"},"#, ""));
    }

    #[test]
    fn hashes_are_sha_256_of_the_salt_and_the_text() {
        // echo -n 42 | sha256sum; echo -n 42.0 | sha256sum; echo -n pepper42 | sha256sum
        let hashed = masked(r#"[{"path":"/cards/*/number","action":"hash"}]"#, CARD);
        assert!(hashed.contains(r#""number":"73475cb40a568e8da8a045ced110137e159f890ac4da883b6b17dc651b3a8049"}"#), "{hashed}");
        assert!(hashed.contains(r#""number":"53519e43db90bd08ff4459fd23fc944324ffb7d8f542ccc0b44257afea2ef525"}"#), "{hashed}");
        let hashed = masked(r#"[{"path":"/a","action":"hash","salt":"pepper"}]"#, r#"{"a":"4\u0032"}"#);
        assert_eq!(hashed, r#"{"a":"93ca73bec2907ec825519db1f7ee28cb033d71c83d14b76ef78b0c4e64566e6e"}"#);
        assert_eq!(masked(r#"[{"path":"/a","action":"hash"}]"#, r#"{"a":null}"#), r#"{"a":null}"#);
    }

    #[test]
    fn a_name_cannot_hide_behind_escapes_or_a_second_one() {
        assert_eq!(
            masked(r#"["email"]"#, r#"{"em\u0061il":"x","email":"y","email":"z"}"#),
            r#"{"em\u0061il":"***","email":"***","email":"***"}"#
        );
    }

    #[test]
    fn of_several_paths_the_outer_one_and_then_dropping_wins() {
        assert_eq!(masked(r#"["/a/b","/a"]"#, r#"{"a":{"b":1}}"#), r#"{"a":"***"}"#);
        assert_eq!(masked(r#"["/a",{"path":"/*","action":"drop"}]"#, r#"{"a":1,"b":2}"#), r#"{}"#);
        assert_eq!(
            masked(r#"[{"path":"/a","with":1},{"path":"/*","with":2}]"#, r#"{"b":0,"a":0,"c":0}"#),
            r#"{"b":2,"a":1,"c":2}"#
        );
        assert_eq!(
            masked(r#"["/b",{"path":"/a","action":"drop"},{"path":"/c","action":"drop"}]"#, r#"{"a":1,"b":2,"c":3}"#),
            r#"{"b":"***"}"#
        );
    }

    #[test]
    fn a_missing_field_is_ignored_or_rejects_the_message() {
        let none = r#"{"a":1}"#;
        assert_eq!(masked(r#"["/b"]"#, none), none);
        let reason = run::<Mask>(r#"{"fields":["/a","/b/*"],"missing":"reject"}"#, [none]).reason().to_string();
        assert_eq!(reason, "the field /b/* is missing");
    }

    #[test]
    fn what_is_not_json_is_rejected_and_a_tombstone_goes_on() {
        let results = run::<Mask>(r#"{"fields":["/a"]}"#, [Input::new("{"), Input::tombstone(), Input::new("")]);
        assert_eq!(results.rejected[0], (0, "not JSON: expected a member name at byte 1".to_string()));
        assert_eq!(results.rejected[1], (2, "not JSON: expected a value at byte 0".to_string()));
        assert_eq!((results.rows.len(), &results.rows[0].value), (1, &None));
    }

    #[test]
    fn a_wrong_configuration_is_refused() {
        assert_eq!(refusal("null"), "config: missing field `fields` at line 1 column 2");
        assert_eq!(refusal(r#"{"fields":[]}"#), "config: fields: name at least one field to mask");
        assert_eq!(refusal(r#"{"fields":[{"path":"a"}]}"#), "`a` is no JSON pointer: it begins with `/`, as in `/user/name`");
        assert_eq!(
            refusal(r#"{"fields":[{"path":"/a","action":"drop","with":1}]}"#),
            "config: fields: /a: `with` is for `action: redact` only"
        );
        assert_eq!(
            refusal(r#"{"fields":[{"path":"","action":"drop"}]}"#),
            "config: fields: the whole message can't be dropped: use a filter"
        );
        assert!(refusal(r#"{"fields":[{"path":"/a","actoin":"drop"}]}"#).contains("expected a field: its name, or"));
    }
}
