//! Numbers of the pipeline file as they are written. `Value` keeps decimals and large integers as floats; what a step's `config` hands
//! to a guest is written from here, digit by digit.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

/// The numbers of a document, at their places.
#[derive(Debug, Default)]
pub enum Written {
    /// Anything without numbers.
    #[default]
    Other,
    /// A number's text.
    Number(String),
    /// By index.
    List(Vec<Written>),
    /// By key.
    Map(BTreeMap<String, Written>),
}

impl Written {
    /// Reads YAML; `None` where it is not valid.
    pub fn read(text: &str) -> Option<Written> {
        serde_saphyr::from_str::<Spanned<Shape>>(text).ok().map(|node| node.written(text))
    }

    /// Puts what `--set a.0.b=…` says in its place.
    pub fn assign(&mut self, path: &str, new: Written) {
        let mut at = self;
        for part in path.split('.') {
            if let (Written::List(list), Ok(index)) = (&*at, part.parse::<usize>())
                && index >= list.len()
            {
                return;
            }
            if let Written::Other | Written::Number(_) = at {
                *at = Written::Map(BTreeMap::new());
            }
            at = match at {
                Written::Map(map) => map.entry(part.to_string()).or_default(),
                Written::List(list) => match part.parse().ok().and_then(|index: usize| list.get_mut(index)) {
                    Some(item) => item,
                    None => return,
                },
                Written::Other | Written::Number(_) => return,
            };
        }
        *at = new;
    }

    /// What stands at a key or index.
    pub fn at(&self, part: &str) -> &Written {
        const NOTHING: &Written = &Written::Other;
        match self {
            Written::Map(map) => map.get(part).unwrap_or(NOTHING),
            Written::List(list) => part.parse().ok().and_then(|index: usize| list.get(index)).unwrap_or(NOTHING),
            Written::Other | Written::Number(_) => NOTHING,
        }
    }

    /// `value` as JSON, with the numbers as they are written here.
    pub fn json(&self, value: &Value) -> String {
        let joined = |parts: Vec<String>| parts.join(",");
        match value {
            Value::Array(list) => {
                let items = list.iter().enumerate().map(|(index, item)| self.at(&index.to_string()).json(item));
                format!("[{}]", joined(items.collect()))
            }
            Value::Object(map) => {
                let entries = map.iter().map(|(key, item)| format!("{}:{}", Value::from(key.as_str()), self.at(key).json(item)));
                format!("{{{}}}", joined(entries.collect()))
            }
            Value::Number(number) => match self {
                Written::Number(text) if means(text, number) => text.clone(),
                _ => number.to_string(),
            },
            other => other.to_string(),
        }
    }
}

/// Whether the text is a number as JSON has them, and this one: YAML has other ways too, such as `0x1f` and `+1`.
fn means(text: &str, number: &Number) -> bool {
    serde_json::from_str::<Number>(text).is_ok() && text.parse().ok() == number.as_f64()
}

/// The form of a node.
enum Shape {
    Other,
    Number,
    List(Vec<Spanned<Shape>>),
    Map(Vec<(String, Spanned<Shape>)>),
}

/// Takes the numbers out of the text by their places.
trait Take {
    fn written(self, text: &str) -> Written;
}

impl Take for Spanned<Shape> {
    fn written(self, text: &str) -> Written {
        match self.value {
            Shape::Other => Written::Other,
            Shape::Number => {
                let span = self.defined.span();
                let found = span.byte_offset().zip(span.byte_len()).and_then(|(start, length)| {
                    let start = usize::try_from(start).ok()?;
                    text.get(start..start + usize::try_from(length).ok()?)
                });
                found.map_or(Written::Other, |found| Written::Number(found.trim().to_string()))
            }
            Shape::List(list) => Written::List(list.into_iter().map(|item| item.written(text)).collect()),
            Shape::Map(map) => Written::Map(map.into_iter().map(|(key, item)| (key, item.written(text))).collect()),
        }
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(Shapes)
    }
}

struct Shapes;

impl<'de> Visitor<'de> for Shapes {
    type Value = Shape;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Number)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Shape::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Shape::Map(map))
    }
}
