//! Reads the configuration.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use weir_udf::json::Paths;

use crate::cast::Cast;
use crate::shape::{self, shape};
use crate::{Field, Map, Origin, Work};

/// The configuration as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    fields: Entries,
    #[serde(default)]
    others: Others,
    #[serde(default)]
    missing: Missing,
    #[serde(default)]
    invalid: Invalid,
}

/// What becomes of fields that are not named.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Others {
    #[default]
    Drop,
    Keep,
}

/// What becomes of a field whose source is not there.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    #[default]
    Omit,
    Null,
    Reject,
}

/// What becomes of a field that cannot be cast.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalid {
    #[default]
    Reject,
    Null,
}

/// The fields in the order in which they are written.
struct Entries(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Entries;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from new fields to their sources")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a pointer, or one of {from}, {value}, {attribute}, {take} with {cast, missing}")]
enum Entry {
    From(String),
    Full(Full),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    from: Option<String>,
    // `null` is a value like any other.
    #[serde(default, deserialize_with = "some")]
    value: Option<serde_json::Value>,
    attribute: Option<String>,
    take: Option<Take>,
    cast: Option<Cast>,
    missing: Option<Missing>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Take {
    Key,
    EventTimeMs,
    ReceivedMs,
}

fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

impl Config {
    /// Makes the transform, or says what is wrong.
    pub fn build(self) -> Result<Map, String> {
        let keep = self.others == Others::Keep;
        if self.fields.0.is_empty() {
            return Err("config: fields: name at least one field".to_string());
        }
        let mut pointers: Vec<String> = Vec::new();
        let (mut fields, mut cuts) = (Vec::new(), Vec::new());
        for (to, entry) in self.fields.0 {
            let wrong = |why: &str| format!("config: fields: {to}: {why}");
            let full = match entry {
                Entry::From(from) => {
                    Full { from: Some(from), value: None, attribute: None, take: None, cast: None, missing: None }
                }
                Entry::Full(full) => full,
            };
            if full.value.is_some() && full.cast.is_some() {
                return Err(wrong("`value` is not cast: write it as it is meant"));
            }
            let origin = match (full.from, full.value, full.attribute, full.take) {
                (Some(from), None, None, None) => {
                    if from.split('/').any(|step| step == "*") {
                        return Err(wrong("`from` names one value: `*` may stand for many"));
                    }
                    if keep && from.is_empty() {
                        return Err(wrong("with `others: keep` the whole message can't be a field of itself"));
                    }
                    cuts.push(pointers.len());
                    pointers.push(from);
                    Origin::Path(pointers.len() - 1)
                }
                (None, Some(value), None, None) => Origin::Constant(value.to_string().into_bytes()),
                (None, None, Some(attribute), None) => Origin::Attribute(attribute),
                (None, None, None, Some(Take::Key)) => Origin::Key,
                (None, None, None, Some(Take::EventTimeMs)) => Origin::EventTime,
                (None, None, None, Some(Take::ReceivedMs)) => Origin::Received,
                _ => return Err(wrong("give one of `from`, `value`, `attribute`, `take`")),
            };
            let old = match keep {
                false => None,
                true if shape::steps(&to)?.len() != 1 => {
                    return Err(wrong("with `others: keep` new fields are top-level, as in `/name`"));
                }
                true => {
                    cuts.push(pointers.len());
                    pointers.push(to.clone());
                    Some(pointers.len() - 1)
                }
            };
            let missing = full.missing.unwrap_or(self.missing);
            fields.push(Field { to, origin, cast: full.cast, missing, old });
        }
        let mut paths = Paths::new(&pointers)?;
        if keep {
            cuts.into_iter().for_each(|path| paths.cut(path));
        }
        let shape = shape(&fields.iter().map(|field| field.to.as_str()).collect::<Vec<_>>())?;
        let work = Work { spans: vec![(0, 0); pointers.len()], ..Work::default() };
        Ok(Map { fields, invalid: self.invalid, paths, shape, keep, work })
    }
}
