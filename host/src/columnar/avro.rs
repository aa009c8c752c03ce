//! Avro records as JSON, read into the same schema. Messages are plain JSON all the same: no Avro encoding of unions.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::iceberg_json::{decimal, fault, fixed, map, unit, unknown_type};
use super::schema::{EpochUnit, Field, Kind, Schema};
use crate::error::{Error, Result};

/// Most fields that a schema may have once every name in it is replaced by its type.
const MAX_FIELDS: usize = 10_000;

/// Types that have a name, for those that refer to them.
#[derive(Default)]
struct Named {
    /// None while the type is being read.
    types: HashMap<String, Option<Kind>>,
    /// Fields that names stood for so far.
    repeated: usize,
}

/// A type with what its logical type says of numbers, and whether null is one of its values.
struct Read {
    kind: Kind,
    unit: Option<EpochUnit>,
    nullable: bool,
}

fn plain(kind: Kind) -> Read {
    Read { kind, unit: None, nullable: false }
}

/// Reads an Avro record.
pub(super) fn read(json: &Value) -> Result<Schema> {
    match read_type(json, "", 0, &mut Named::default())?.kind {
        Kind::Struct(fields) => Ok(Schema::new(fields)),
        _ => Err(fault("", "the outermost type has to be a record")),
    }
}

fn read_type(json: &Value, at: &str, depth: usize, named: &mut Named) -> Result<Read> {
    if depth >= super::parse::MAX_DEPTH {
        return Err(too_deep(at));
    }
    match json {
        Value::String(name) => by_name(name, at, depth, named).map(plain),
        Value::Array(branches) => union(branches, at, depth, named),
        Value::Object(object) => by_object(object, at, depth, named),
        _ => Err(fault(at, "expected the name of a type, a union or an object with `type`")),
    }
}

fn by_name(name: &str, at: &str, depth: usize, named: &mut Named) -> Result<Kind> {
    Ok(match name {
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Binary,
        "string" => Kind::String,
        "null" => return Err(fault(at, "`null` alone is no type of a column: write `[\"null\", TYPE]`")),
        _ => match named.types.get(name.rsplit('.').next().unwrap_or(name)) {
            Some(Some(kind)) => {
                let (count, height) = extent(kind);
                named.repeated += count;
                if named.repeated > MAX_FIELDS {
                    return Err(fault(at, format!("the schema has more than {MAX_FIELDS} fields")));
                }
                if depth + height >= super::parse::MAX_DEPTH {
                    return Err(too_deep(at));
                }
                kind.clone()
            }
            Some(None) => return Err(fault(at, format!("`{name}` contains itself, which no column can"))),
            None => return Err(unknown_type(at, name)),
        },
    })
}

fn too_deep(at: &str) -> Error {
    fault(at, format!("types nest deeper than {}", super::parse::MAX_DEPTH - 1))
}

/// How many fields a type has in it, and how deep they nest.
fn extent(kind: &Kind) -> (usize, usize) {
    let within: Vec<&Field> = match kind {
        Kind::Struct(fields) => fields.iter().collect(),
        Kind::List(element) => vec![element],
        Kind::Map(key, value) => vec![key, value],
        _ => return (0, 0),
    };
    within.iter().map(|f| extent(&f.kind)).fold((within.len(), 1), |(n, h), (count, height)| (n + count, h.max(height + 1)))
}

fn union(branches: &[Value], at: &str, depth: usize, named: &mut Named) -> Result<Read> {
    let mut some = branches.iter().enumerate().filter(|(_, branch)| branch.as_str() != Some("null"));
    match (some.next(), some.next()) {
        (Some((i, branch)), None) => {
            let read = read_type(branch, &format!("{at}/{i}"), depth, named)?;
            Ok(Read { nullable: read.nullable || branches.len() > 1, ..read })
        }
        _ => Err(fault(at, "a union has to be of `null` and one other type: a column has one type")),
    }
}

fn by_object(object: &Map<String, Value>, at: &str, depth: usize, named: &mut Named) -> Result<Read> {
    let inner = object.get("type").ok_or_else(|| fault(at, "`type` is missing"))?;
    let name = inner.as_str().unwrap_or_default();
    let part = |key: &str, as_name: &str, named: &mut Named| {
        let json = object.get(key).ok_or_else(|| fault(at, format!("`{key}` is missing: the type of the {as_name}")))?;
        let read = read_type(json, &format!("{at}/{key}"), depth + 1, named)?;
        Ok::<_, Error>(Field { unit: read.unit, ..Field::new(as_name, read.kind, !read.nullable) })
    };
    let kind = match name {
        "record" => {
            let known = register(object, named, None);
            let kind = Kind::Struct(fields(object, at, depth, named)?);
            known.and_then(|name| named.types.insert(name, Some(kind.clone())));
            kind
        }
        "enum" => {
            register(object, named, Some(Kind::String));
            Kind::String
        }
        "array" => Kind::List(Box::new(part("items", "element", named)?)),
        "map" => map(at, Field::new("key", Kind::String, true), part("values", "value", named)?)?,
        "fixed" => {
            let size = object.get("size").and_then(Value::as_u64);
            let kind = fixed(at, size.ok_or_else(|| fault(at, "`fixed` needs its `size` in bytes"))?)?;
            register(object, named, Some(kind.clone()));
            kind
        }
        _ => return logical(object, read_type(inner, &format!("{at}/type"), depth + 1, named)?, at),
    };
    logical(object, plain(kind), at)
}

fn register(object: &Map<String, Value>, named: &mut Named, kind: Option<Kind>) -> Option<String> {
    let name = object.get("name").and_then(Value::as_str)?;
    let name = name.rsplit('.').next().unwrap_or(name).to_string();
    named.types.insert(name.clone(), kind);
    Some(name)
}

/// What a logical type makes of a type. One that isn't known has no effect, as Avro demands.
fn logical(object: &Map<String, Value>, read: Read, at: &str) -> Result<Read> {
    let Some(logical) = object.get("logicalType").and_then(Value::as_str) else { return Ok(read) };
    let utc = object.get("adjust-to-utc").and_then(Value::as_bool).unwrap_or(true);
    let instant = if utc { Kind::Timestamptz } else { Kind::Timestamp };
    let of = |kind, unit| Read { kind, unit: Some(unit), nullable: read.nullable };
    Ok(match (logical, &read.kind) {
        ("decimal", Kind::Binary | Kind::Fixed(_)) => {
            let number = |key| object.get(key).and_then(Value::as_u64);
            let precision = number("precision").ok_or_else(|| fault(at, "`decimal` needs its `precision`"))?;
            Read { kind: decimal(at, precision, number("scale").unwrap_or(0))?, ..read }
        }
        ("uuid", Kind::String | Kind::Fixed(16)) => Read { kind: Kind::Uuid, ..read },
        ("date", Kind::Int) => of(Kind::Date, EpochUnit::Days),
        ("time-millis", Kind::Int) => of(Kind::Time, EpochUnit::Milliseconds),
        ("time-micros", Kind::Long) => of(Kind::Time, EpochUnit::Microseconds),
        ("timestamp-millis", Kind::Long) => of(instant, EpochUnit::Milliseconds),
        ("timestamp-micros", Kind::Long) => of(instant, EpochUnit::Microseconds),
        ("timestamp-nanos", Kind::Long) => of(instant, EpochUnit::Nanoseconds),
        ("local-timestamp-millis", Kind::Long) => of(Kind::Timestamp, EpochUnit::Milliseconds),
        ("local-timestamp-micros", Kind::Long) => of(Kind::Timestamp, EpochUnit::Microseconds),
        ("local-timestamp-nanos", Kind::Long) => of(Kind::Timestamp, EpochUnit::Nanoseconds),
        _ => read,
    })
}

fn fields(object: &Map<String, Value>, at: &str, depth: usize, named: &mut Named) -> Result<Vec<Field>> {
    let at = format!("{at}/fields");
    let list = object.get("fields").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| fault(&at, "expected a list of at least one field"))?;
    let mut fields: Vec<Field> = Vec::with_capacity(list.len());
    for (i, json) in list.iter().enumerate() {
        let at = format!("{at}/{i}");
        let object = json.as_object().ok_or_else(|| fault(&at, "expected an object with `name` and `type`"))?;
        let name = object.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| fault(&format!("{at}/name"), "a field needs a name"))?;
        if fields.iter().any(|f| f.name == name) {
            return Err(fault(&format!("{at}/name"), format!("the name `{name}` is used twice")));
        }
        let json = object.get("type").ok_or_else(|| fault(&format!("{at}/type"), format!("the field `{name}` needs a type")))?;
        let read = read_type(json, &format!("{at}/type"), depth + 1, named)?;
        // A logical type beside the field's type, where many write it, counts as well.
        let read = match json {
            Value::String(_) => logical(object, read, &at)?,
            _ => read,
        };
        let doc = object.get("doc").and_then(Value::as_str).map(str::to_string);
        let unit = unit(object, "unit", &at, &read.kind)?.or(read.unit);
        fields.push(Field { doc, unit, ..Field::new(name, read.kind, !read.nullable) });
    }
    Ok(fields)
}
