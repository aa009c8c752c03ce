//! Conditions: how they are written, and whether a message meets them.

use serde::Deserialize;
use weir_udf::Message;
use weir_udf::json::Found;

use crate::test::{Test, Tests};

/// A condition as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    all: Option<Vec<Written>>,
    any: Option<Vec<Written>>,
    not: Option<Box<Written>>,
    field: Option<String>,
    attribute: Option<String>,
    #[serde(default)]
    key: bool,
    #[serde(flatten)]
    tests: Tests,
}

/// A condition ready to be looked at.
pub enum Condition {
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Box<Condition>),
    /// The pointer with this number.
    Field(usize, Test),
    Attribute(String, Test),
    Key(Test),
}

impl Written {
    /// Reads the condition; adds the pointers that it needs.
    pub fn build(self, pointers: &mut Vec<String>) -> Result<Condition, String> {
        let Written { all, any, not, field, attribute, key, tests } = self;
        let of_tests = tests.build()?;
        let mut list =
            |conditions: Vec<Written>| conditions.into_iter().map(|one| one.build(pointers)).collect::<Result<Vec<_>, _>>();
        Ok(match (all, any, not, field, attribute, key, of_tests) {
            (Some(all), None, None, None, None, false, None) => Condition::All(list(all)?),
            (None, Some(any), None, None, None, false, None) => Condition::Any(list(any)?),
            (None, None, Some(not), None, None, false, None) => Condition::Not(Box::new(not.build(pointers)?)),
            (None, None, None, Some(field), None, false, Some(test)) => {
                pointers.push(field);
                Condition::Field(pointers.len() - 1, test)
            }
            (None, None, None, None, Some(attribute), false, Some(test)) => Condition::Attribute(attribute, test),
            (None, None, None, None, None, true, Some(test)) => Condition::Key(test),
            _ => {
                return Err("config: a condition is one of `all`, `any` and `not`, or one of `field`, `attribute` and \
                            `key: true` with one test, as in {field: /level, equals: error}"
                    .to_string());
            }
        })
    }
}

impl Condition {
    /// Whether a message meets the condition.
    pub fn met(&self, message: &Message<'_>, text: &[u8], found: &Found, scratch: &mut Vec<u8>) -> bool {
        match self {
            Condition::All(all) => all.iter().all(|one| one.met(message, text, found, scratch)),
            Condition::Any(any) => any.iter().any(|one| one.met(message, text, found, scratch)),
            Condition::Not(one) => !one.met(message, text, found, scratch),
            Condition::Field(path, test) => {
                let mut values = found.hits.iter().filter(|hit| hit.path == *path).map(|hit| hit.of(text));
                test.of_json(&mut values, scratch)
            }
            Condition::Attribute(name, test) => test.of_text(message.attribute(name)),
            Condition::Key(test) => test.of_text(message.key()),
        }
    }
}
