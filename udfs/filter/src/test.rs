//! Tests of one value.

use std::cmp::Ordering;

use serde::Deserialize;
use serde_json::Value;
use weir_udf::json::{compare, inner, is_number, unescape};

/// Tests as written: one of them is given.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Tests {
    #[serde(deserialize_with = "some")]
    equals: Option<Value>,
    #[serde(deserialize_with = "some")]
    not_equals: Option<Value>,
    r#in: Option<Vec<Value>>,
    not_in: Option<Vec<Value>>,
    exists: bool,
    missing: bool,
    less: Option<Value>,
    less_or_equal: Option<Value>,
    greater: Option<Value>,
    greater_or_equal: Option<Value>,
    contains: Option<String>,
    prefix: Option<String>,
    suffix: Option<String>,
}

// `null` is a value like any other.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A value to compare with.
pub enum Constant {
    Text(Vec<u8>),
    Number(Vec<u8>),
    /// `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// A value of a message.
#[derive(Clone, Copy)]
enum Found<'a> {
    Text(&'a [u8]),
    /// A value that is not a string, as it stands.
    Json(&'a [u8]),
    /// The text of an attribute or a key, which may be meant as a number.
    Loose(&'a [u8]),
}

/// A test of one value.
pub enum Test {
    /// One of the constants (true), or none of them (false).
    In(Vec<Constant>, bool),
    There(bool),
    /// Which orders meet the test.
    Compare(Constant, fn(Ordering) -> bool),
    Contains(Vec<u8>),
    Prefix(Vec<u8>),
    Suffix(Vec<u8>),
}

impl Tests {
    /// The test, or `None` if none is written.
    pub fn build(self) -> Result<Option<Test>, String> {
        let mut tests = Vec::new();
        let list = |values: Vec<Value>| values.into_iter().map(constant).collect::<Result<Vec<_>, _>>();
        if let Some(value) = self.equals {
            tests.push(Test::In(list(vec![value])?, true));
        }
        if let Some(value) = self.not_equals {
            tests.push(Test::In(list(vec![value])?, false));
        }
        if let Some(values) = self.r#in {
            tests.push(Test::In(list(values)?, true));
        }
        if let Some(values) = self.not_in {
            tests.push(Test::In(list(values)?, false));
        }
        if self.exists {
            tests.push(Test::There(true));
        }
        if self.missing {
            tests.push(Test::There(false));
        }
        let bounds: [(_, fn(Ordering) -> bool); 4] = [
            (self.less, Ordering::is_lt),
            (self.less_or_equal, Ordering::is_le),
            (self.greater, Ordering::is_gt),
            (self.greater_or_equal, Ordering::is_ge),
        ];
        for (written, meets) in bounds {
            if let Some(value) = written {
                tests.push(Test::Compare(bound(value)?, meets));
            }
        }
        tests.extend(self.contains.map(|text| Test::Contains(text.into_bytes())));
        tests.extend(self.prefix.map(|text| Test::Prefix(text.into_bytes())));
        tests.extend(self.suffix.map(|text| Test::Suffix(text.into_bytes())));
        match tests.len() {
            0 | 1 => Ok(tests.pop()),
            _ => Err("config: a condition has one test: put several below `all`".to_string()),
        }
    }
}

fn constant(value: Value) -> Result<Constant, String> {
    Ok(match value {
        Value::String(text) => Constant::Text(text.into_bytes()),
        Value::Number(number) => Constant::Number(number.to_string().into_bytes()),
        Value::Bool(true) => Constant::Word(b"true"),
        Value::Bool(false) => Constant::Word(b"false"),
        Value::Null => Constant::Word(b"null"),
        other => return Err(format!("config: compare with a string, a number, a boolean or null, not with {other}")),
    })
}

fn bound(value: Value) -> Result<Constant, String> {
    match constant(value)? {
        Constant::Word(_) => Err("config: `less` and `greater` take a number or a string".to_string()),
        other => Ok(other),
    }
}

impl Test {
    /// Whether one of the JSON values meets the test.
    pub fn of_json<'a>(&self, values: &mut dyn Iterator<Item = &'a [u8]>, scratch: &mut Vec<u8>) -> bool {
        let mut there = false;
        for value in values {
            there = true;
            let found = match inner(value) {
                Some(inner) => Found::Text(unescape(inner, scratch)),
                None => Found::Json(value),
            };
            if self.met(found) {
                return true;
            }
        }
        !there && self.met_by_nothing()
    }

    /// Whether a text that is not JSON meets the test.
    pub fn of_text(&self, text: Option<&[u8]>) -> bool {
        text.map_or_else(|| self.met_by_nothing(), |text| self.met(Found::Loose(text)))
    }

    fn met_by_nothing(&self) -> bool {
        matches!(self, Test::There(false) | Test::In(_, false))
    }

    fn met(&self, found: Found<'_>) -> bool {
        let text = match found {
            Found::Text(text) | Found::Loose(text) => Some(text),
            Found::Json(_) => None,
        };
        match self {
            Test::There(there) => *there,
            Test::In(constants, one_of) => {
                constants.iter().any(|constant| order(found, constant) == Some(Ordering::Equal)) == *one_of
            }
            Test::Compare(bound, meets) => order(found, bound).is_some_and(*meets),
            Test::Contains(part) => text.is_some_and(|text| contains(text, part)),
            Test::Prefix(part) => text.is_some_and(|text| text.starts_with(part)),
            Test::Suffix(part) => text.is_some_and(|text| text.ends_with(part)),
        }
    }
}

/// How a value compares with a constant; `None` where they are of different types.
fn order(found: Found<'_>, constant: &Constant) -> Option<Ordering> {
    match (found, constant) {
        (Found::Text(text) | Found::Loose(text), Constant::Text(constant)) => Some(text.cmp(&constant[..])),
        (Found::Json(value) | Found::Loose(value), Constant::Number(constant)) => {
            is_number(value).then(|| compare(value, constant))
        }
        (Found::Json(value) | Found::Loose(value), Constant::Word(word)) => (value == *word).then_some(Ordering::Equal),
        _ => None,
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
