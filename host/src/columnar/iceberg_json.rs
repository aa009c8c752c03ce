//! Iceberg schemas as JSON: read with every fault named by its JSON pointer, and written as a table's metadata has them.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::schema::{EpochUnit, Field, Kind, Schema};
use crate::error::{Error, Result};

const TYPES: &str =
    "boolean, int, long, float, double, decimal(P,S), date, time, timestamp, timestamptz, string, uuid, fixed[L], binary";
const NAMES: [&str; 17] = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "string",
    "uuid",
    "fixed",
    "binary",
    "struct",
    "list",
    "map",
];
/// Names that other systems have for the same things.
const ALIASES: [(&str, &str); 10] = [
    ("bool", "boolean"),
    ("integer", "int"),
    ("bigint", "long"),
    ("int64", "long"),
    ("int32", "int"),
    ("float64", "double"),
    ("varchar", "string"),
    ("text", "string"),
    ("bytes", "binary"),
    ("datetime", "timestamp"),
];

/// An error at a place of the schema.
pub(super) fn fault(at: &str, message: impl Into<String>) -> Error {
    Error::config(message).with("pointer", if at.is_empty() { "/" } else { at })
}

/// What can be said of a type that isn't one.
pub(super) fn unknown_type(at: &str, name: &str) -> Error {
    let lower = name.to_lowercase();
    let stem = lower.split(['(', '[']).next().unwrap_or_default().trim();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == stem).map(|(_, name)| *name);
    let near = || NAMES.into_iter().map(|n| (strsim::osa_distance(n, stem), n)).filter(|(d, _)| *d <= 2).min().map(|(_, n)| n);
    match alias.or_else(near) {
        Some(known) => fault(at, format!("`{name}` is no type, did you mean `{known}`? (types: {TYPES}, struct, list, map)")),
        None => fault(at, format!("`{name}` is no type (types: {TYPES}, struct, list, map)")),
    }
}

/// The object at a place, its keys checked.
fn object<'a>(json: &'a Value, at: &str, known: &[&str]) -> Result<&'a Map<String, Value>> {
    let object = json.as_object().ok_or_else(|| fault(at, "expected an object"))?;
    if let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) {
        let at = format!("{at}/{key}");
        let near = known.iter().map(|k| (strsim::osa_distance(k, key), k)).min().filter(|(distance, _)| *distance <= 3);
        return Err(match near {
            Some((_, near)) => fault(&at, format!("unknown key `{key}`, did you mean `{near}`?")),
            None => fault(&at, format!("unknown key `{key}` (known: {})", known.join(", "))),
        });
    }
    Ok(object)
}

fn id(object: &Map<String, Value>, key: &str, at: &str, ids: &mut HashSet<i32>) -> Result<i32> {
    let Some(value) = object.get(key) else { return Ok(Field::NO_ID) };
    let at = format!("{at}/{key}");
    let id = value.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| *id >= 0);
    let id = id.ok_or_else(|| fault(&at, "a field id has to be a number from 0 to 2147483647"))?;
    if !ids.insert(id) {
        return Err(fault(&at, format!("the field id {id} is used twice")));
    }
    Ok(id)
}

fn flag(object: &Map<String, Value>, key: &str, at: &str) -> Result<bool> {
    match object.get(key) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| fault(&format!("{at}/{key}"), "expected true or false")),
    }
}

/// The unit under `key`, which has to fit the type.
pub(super) fn unit(object: &Map<String, Value>, key: &str, at: &str, kind: &Kind) -> Result<Option<EpochUnit>> {
    let Some(value) = object.get(key) else { return Ok(None) };
    let at = format!("{at}/{key}");
    let named = EpochUnit::NAMES.iter().find(|(name, _)| Some(*name) == value.as_str());
    let (name, unit) = named.ok_or_else(|| fault(&at, "a unit is one of `s`, `ms`, `us`, `ns`, `days`"))?;
    if !unit.fits(kind) {
        return Err(fault(
            &at,
            format!(
                "the unit `{name}` does not fit {kind}: date takes `days`; time, timestamp and timestamptz take `s`, `ms`, `us` or `ns`"
            ),
        ));
    }
    Ok(Some(*unit))
}

/// The numbers in `decimal(9,2)` or `fixed[16]`.
fn arguments<'a>(text: &'a str, stem: &str) -> Option<Vec<&'a str>> {
    let rest = text.strip_prefix(stem)?.trim();
    let inner = rest.strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
    Some(inner.split(',').map(str::trim).collect())
}

pub(super) fn decimal(at: &str, precision: u64, scale: u64) -> Result<Kind> {
    if !(1..=38).contains(&precision) || scale > precision {
        return Err(fault(at, format!("decimal({precision},{scale}) needs a precision of 1 to 38 and a scale not above it")));
    }
    Ok(Kind::Decimal { precision: precision as u8, scale: scale as u8 })
}

pub(super) fn fixed(at: &str, length: u64) -> Result<Kind> {
    // A null takes the room of a value.
    const LONGEST: u64 = 1 << 16;
    match length {
        1..=LONGEST => Ok(Kind::Fixed(length as u32)),
        _ => Err(fault(at, format!("fixed[{length}] needs a length of 1 to {LONGEST} bytes"))),
    }
}

fn primitive(name: &str, at: &str) -> Result<Kind> {
    Ok(match name {
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "date" => Kind::Date,
        "time" => Kind::Time,
        "timestamp" => Kind::Timestamp,
        "timestamptz" => Kind::Timestamptz,
        "string" => Kind::String,
        "uuid" => Kind::Uuid,
        "binary" => Kind::Binary,
        "struct" | "list" | "map" => {
            return Err(fault(at, format!("`{name}` is written as an object: {{\"type\": \"{name}\", ...}}")));
        }
        "timestamp_ns" | "timestamptz_ns" => {
            return Err(fault(
                at,
                format!("`{name}` needs Iceberg format 3: use `{}`, in microseconds", name.replace("_ns", "")),
            ));
        }
        _ => {
            if let Some(numbers) = arguments(name, "decimal") {
                return match numbers.as_slice() {
                    [p, s] => match (p.parse(), s.parse()) {
                        (Ok(p), Ok(s)) => decimal(at, p, s),
                        _ => Err(fault(at, format!("`{name}` should be like `decimal(9,2)`"))),
                    },
                    _ => Err(fault(at, format!("`{name}` should be like `decimal(9,2)`"))),
                };
            }
            if let Some(numbers) = arguments(name, "fixed") {
                return match numbers.as_slice() {
                    [length] if length.parse::<u64>().is_ok() => fixed(at, length.parse().unwrap_or(0)),
                    _ => Err(fault(at, format!("`{name}` should be like `fixed[16]`"))),
                };
            }
            match name {
                "decimal" => return Err(fault(at, "`decimal` needs its precision and scale, as in `decimal(9,2)`")),
                "fixed" => return Err(fault(at, "`fixed` needs its length in bytes, as in `fixed[16]`")),
                _ => return Err(unknown_type(at, name)),
            }
        }
    })
}

/// How deep types may nest: messages can't be read deeper either.
const MAX_NESTING: usize = super::parse::MAX_DEPTH - 1;

fn kind(json: &Value, at: &str, depth: usize, ids: &mut HashSet<i32>) -> Result<Kind> {
    if depth > MAX_NESTING {
        return Err(fault(at, format!("types nest deeper than {MAX_NESTING}")));
    }
    if let Some(name) = json.as_str() {
        return primitive(name, at);
    }
    let name = json
        .get("type")
        .and_then(Value::as_str)
        .ok_or_else(|| fault(at, "expected the name of a type, or an object with `type`"))?;
    match name {
        "struct" => {
            let object = object(json, at, &["type", "fields"])?;
            Ok(Kind::Struct(fields(object, at, depth + 1, ids)?))
        }
        "list" => {
            let object = object(json, at, &["type", "element-id", "element", "element-required", "element-unit"])?;
            Ok(Kind::List(Box::new(part(object, "element", flag(object, "element-required", at)?, at, depth, ids)?)))
        }
        "map" => {
            let object = object(json, at, &["type", "key-id", "key", "value-id", "value", "value-required", "value-unit"])?;
            let key = part(object, "key", true, at, depth, ids)?;
            map(at, key, part(object, "value", flag(object, "value-required", at)?, at, depth, ids)?)
        }
        other => Err(unknown_type(&format!("{at}/type"), other)),
    }
}

/// A map, whose keys have to be comparable.
pub(super) fn map(at: &str, key: Field, value: Field) -> Result<Kind> {
    if matches!(key.kind, Kind::Struct(_) | Kind::List(_) | Kind::Map(..)) {
        return Err(fault(&format!("{at}/key"), "a map's key can't be a struct, list or map"));
    }
    Ok(Kind::Map(Box::new(key), Box::new(value)))
}

/// The element, key or value of a list or map.
fn part(
    object: &Map<String, Value>,
    name: &str,
    required: bool,
    at: &str,
    depth: usize,
    ids: &mut HashSet<i32>,
) -> Result<Field> {
    let json = object.get(name).ok_or_else(|| fault(at, format!("`{name}` is missing: the type of it")))?;
    let id = id(object, &format!("{name}-id"), at, ids)?;
    let kind = kind(json, &format!("{at}/{name}"), depth + 1, ids)?;
    let unit = unit(object, &format!("{name}-unit"), at, &kind)?;
    Ok(Field { id, unit, ..Field::new(name, kind, required) })
}

fn fields(object: &Map<String, Value>, at: &str, depth: usize, ids: &mut HashSet<i32>) -> Result<Vec<Field>> {
    let at = format!("{at}/fields");
    let list = object.get("fields").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| fault(&at, "expected a list of at least one field"))?;
    let mut fields = Vec::with_capacity(list.len());
    let mut names = HashSet::new();
    for (i, json) in list.iter().enumerate() {
        let at = format!("{at}/{i}");
        let object = object_of_field(json, &at)?;
        let name = object.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| fault(&format!("{at}/name"), "a field needs a name"))?;
        if !names.insert(name) {
            return Err(fault(&format!("{at}/name"), format!("the name `{name}` is used twice")));
        }
        let json = object.get("type").ok_or_else(|| fault(&format!("{at}/type"), format!("the field `{name}` needs a type")))?;
        let id = id(object, "id", &at, ids)?;
        let kind = kind(json, &format!("{at}/type"), depth, ids)?;
        let unit = unit(object, "unit", &at, &kind)?;
        let doc = object.get("doc").and_then(Value::as_str).map(str::to_string);
        fields.push(Field { id, unit, doc, ..Field::new(name, kind, flag(object, "required", &at)?) });
    }
    Ok(fields)
}

fn object_of_field<'a>(json: &'a Value, at: &str) -> Result<&'a Map<String, Value>> {
    object(json, at, &["id", "name", "required", "type", "doc", "unit", "initial-default", "write-default"])
}

/// Reads an Iceberg schema.
pub(super) fn read(json: &Value) -> Result<Schema> {
    let object = object(json, "", &["type", "schema-id", "identifier-field-ids", "fields"])?;
    let mut ids = HashSet::new();
    let mut schema = Schema::new(fields(object, "", 1, &mut ids)?);
    if let Some(value) = object.get("schema-id") {
        let id = value.as_i64().and_then(|id| i32::try_from(id).ok());
        schema.schema_id = id.ok_or_else(|| fault("/schema-id", "expected a whole number"))?;
    }
    if let Some(value) = object.get("identifier-field-ids") {
        let at = "/identifier-field-ids";
        for value in value.as_array().ok_or_else(|| fault(at, "expected a list of field ids"))? {
            let id = value.as_i64().and_then(|id| i32::try_from(id).ok()).filter(|id| ids.contains(id));
            schema.identifier_field_ids.push(id.ok_or_else(|| fault(at, format!("no field has the id {value}")))?);
        }
    }
    Ok(schema)
}

/// Writes a schema as Iceberg does.
pub(super) fn write(schema: &Schema) -> Value {
    let mut json = json!({"type": "struct", "schema-id": schema.schema_id, "fields": write_fields(&schema.fields)});
    if !schema.identifier_field_ids.is_empty() {
        json["identifier-field-ids"] = json!(schema.identifier_field_ids);
    }
    json
}

fn write_fields(fields: &[Field]) -> Value {
    let write = |field: &Field| {
        let mut json = json!({"id": field.id, "name": field.name, "required": field.required, "type": write_kind(&field.kind)});
        if let Some(doc) = &field.doc {
            json["doc"] = json!(doc);
        }
        json
    };
    fields.iter().map(write).collect()
}

fn write_kind(kind: &Kind) -> Value {
    match kind {
        Kind::Struct(fields) => json!({"type": "struct", "fields": write_fields(fields)}),
        Kind::List(element) => json!({
            "type": "list", "element-id": element.id, "element": write_kind(&element.kind), "element-required": element.required,
        }),
        Kind::Map(key, value) => json!({
            "type": "map", "key-id": key.id, "key": write_kind(&key.kind),
            "value-id": value.id, "value": write_kind(&value.kind), "value-required": value.required,
        }),
        primitive => json!(primitive.to_string()),
    }
}
