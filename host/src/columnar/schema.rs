//! The declared schema: fields, their types, and what they are to Arrow and to Iceberg. How a schema file is
//! read is in `iceberg_json` and `avro`.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow_schema::{DataType, Fields, SchemaRef, TimeUnit};
use serde_json::Value;

use super::{avro, iceberg_json};
use crate::error::{Error, Result};

/// The metadata key by which Parquet writers learn a column's field id.
const FIELD_ID: &str = "PARQUET:field_id";

/// What rows look like: the columns of a table, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The columns. Every field in it, nested ones too, has an id.
    pub fields: Vec<Field>,
    /// Iceberg's number of the schema.
    pub schema_id: i32,
    /// Ids of the fields that together identify a row.
    pub identifier_field_ids: Vec<i32>,
}

/// A column, a field of a struct, or the element of a list or map.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Unique in the schema, nested fields included. [`Field::NO_ID`] until [`Schema::new`] gives it one.
    pub id: i32,
    /// The key in messages and the name of the column.
    pub name: String,
    /// Whether a message without it, or with null, is rejected.
    pub required: bool,
    /// For people.
    pub doc: Option<String>,
    /// Its type.
    pub kind: Kind,
    /// What a JSON number means where the type is a date or a time; without it numbers are rejected.
    pub unit: Option<EpochUnit>,
}

/// The types of Iceberg's format version 2.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Kind {
    Boolean,
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    Float,
    Double,
    /// Exact: `precision` digits in all, `scale` of them behind the point.
    Decimal {
        precision: u8,
        scale: u8,
    },
    Date,
    /// Of a day, in microseconds.
    Time,
    /// Microseconds, of no time zone.
    Timestamp,
    /// Microseconds, an instant.
    Timestamptz,
    String,
    Uuid,
    /// So many bytes.
    Fixed(u32),
    Binary,
    Struct(Vec<Field>),
    List(Box<Field>),
    /// Key and value.
    Map(Box<Field>, Box<Field>),
}

/// What a number means as a date or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EpochUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    Days,
}

impl EpochUnit {
    /// Each unit by its name in schema files.
    pub(super) const NAMES: [(&'static str, EpochUnit); 5] = [
        ("s", EpochUnit::Seconds),
        ("ms", EpochUnit::Milliseconds),
        ("us", EpochUnit::Microseconds),
        ("ns", EpochUnit::Nanoseconds),
        ("days", EpochUnit::Days),
    ];

    /// The power of ten that makes microseconds of it; none for days.
    pub(super) fn to_micros(self) -> Option<i32> {
        match self {
            EpochUnit::Seconds => Some(6),
            EpochUnit::Milliseconds => Some(3),
            EpochUnit::Microseconds => Some(0),
            EpochUnit::Nanoseconds => Some(-3),
            EpochUnit::Days => None,
        }
    }

    /// Whether numbers of this unit can be values of the type.
    pub(super) fn fits(self, kind: &Kind) -> bool {
        match kind {
            Kind::Date => self == EpochUnit::Days,
            Kind::Time | Kind::Timestamp | Kind::Timestamptz => self != EpochUnit::Days,
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Boolean => "boolean",
            Kind::Int => "int",
            Kind::Long => "long",
            Kind::Float => "float",
            Kind::Double => "double",
            Kind::Decimal { precision, scale } => return write!(f, "decimal({precision},{scale})"),
            Kind::Date => "date",
            Kind::Time => "time",
            Kind::Timestamp => "timestamp",
            Kind::Timestamptz => "timestamptz",
            Kind::String => "string",
            Kind::Uuid => "uuid",
            Kind::Fixed(length) => return write!(f, "fixed[{length}]"),
            Kind::Binary => "binary",
            Kind::Struct(_) => "struct",
            Kind::List(_) => "list",
            Kind::Map(..) => "map",
        })
    }
}

impl Field {
    /// The id of a field that has none yet.
    pub const NO_ID: i32 = -1;

    /// A field without an id, a doc or a unit.
    pub fn new(name: impl Into<String>, kind: Kind, required: bool) -> Field {
        Field { id: Field::NO_ID, name: name.into(), required, doc: None, kind, unit: None }
    }

    fn arrow(&self) -> arrow_schema::Field {
        let mut metadata = HashMap::from([(FIELD_ID.to_string(), self.id.to_string())]);
        if let Some(doc) = &self.doc {
            metadata.insert("doc".to_string(), doc.clone());
        }
        arrow_schema::Field::new(&self.name, self.kind.arrow(), !self.required).with_metadata(metadata)
    }

    /// The fields within, whatever the type.
    fn children_mut(&mut self) -> Vec<&mut Field> {
        match &mut self.kind {
            Kind::Struct(fields) => fields.iter_mut().collect(),
            Kind::List(element) => vec![element],
            Kind::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }
}

impl Kind {
    /// The type that iceberg-rust gives this one in Arrow.
    pub fn arrow(&self) -> DataType {
        match self {
            Kind::Boolean => DataType::Boolean,
            Kind::Int => DataType::Int32,
            Kind::Long => DataType::Int64,
            Kind::Float => DataType::Float32,
            Kind::Double => DataType::Float64,
            Kind::Decimal { precision, scale } => DataType::Decimal128(*precision, *scale as i8),
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time64(TimeUnit::Microsecond),
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
            Kind::String => DataType::Utf8,
            Kind::Uuid => DataType::FixedSizeBinary(16),
            Kind::Fixed(length) => DataType::FixedSizeBinary(*length as i32),
            Kind::Binary => DataType::LargeBinary,
            Kind::Struct(fields) => DataType::Struct(arrow_fields(fields)),
            Kind::List(element) => DataType::List(Arc::new(element.arrow())),
            Kind::Map(key, value) => {
                let entry = DataType::Struct(Fields::from(vec![key.arrow(), value.arrow()]));
                DataType::Map(Arc::new(arrow_schema::Field::new("key_value", entry, false)), false)
            }
        }
    }
}

fn arrow_fields(fields: &[Field]) -> Fields {
    fields.iter().map(Field::arrow).collect()
}

impl Schema {
    /// A schema of these fields; those without an id get the ones after the highest.
    pub fn new(mut fields: Vec<Field>) -> Schema {
        let mut next = 0;
        let mut level: Vec<&Field> = fields.iter().collect();
        while let Some(field) = level.pop() {
            next = next.max(field.id);
            match &field.kind {
                Kind::Struct(fields) => level.extend(fields),
                Kind::List(element) => level.push(element),
                Kind::Map(key, value) => level.extend([&**key, &**value]),
                _ => {}
            }
        }
        // Level by level, as Iceberg numbers a new table.
        let mut level: Vec<&mut Field> = fields.iter_mut().collect();
        while !level.is_empty() {
            for field in level.iter_mut().filter(|f| f.id == Field::NO_ID) {
                next += 1;
                field.id = next;
            }
            level = level.into_iter().flat_map(Field::children_mut).collect();
        }
        Schema { fields, schema_id: 0, identifier_field_ids: Vec::new() }
    }

    /// Reads a schema file. The error names the file and the place in it.
    pub fn load(path: &Path) -> Result<Schema> {
        let at = |e: Error| Error::new(e.kind(), "cannot use the schema file").with("path", path.display()).because(e);
        let bytes = std::fs::read(path).map_err(|e| at(Error::config("it can't be read").because(e)))?;
        Schema::from_json(&bytes).map_err(at)
    }

    /// Reads a schema: an Iceberg schema or an Avro record, as JSON.
    pub fn from_json(bytes: &[u8]) -> Result<Schema> {
        let json: Value = serde_json::from_slice(bytes).map_err(|e| Error::config("the schema is no JSON").because(e))?;
        match json.get("type").and_then(Value::as_str) {
            Some("struct") => Schema::from_iceberg(&json),
            Some("record") => Schema::from_avro(&json),
            _ => Err(Error::config(
                "the schema has to be an object with `\"type\": \"struct\"` (an Iceberg schema) or `\"type\": \"record\"` (an Avro record)",
            )
            .with("pointer", "/type")),
        }
    }

    /// Reads an Iceberg schema. Ids may be left out; `unit` is ours.
    pub fn from_iceberg(json: &Value) -> Result<Schema> {
        iceberg_json::read(json)
    }

    /// Reads an Avro record.
    pub fn from_avro(json: &Value) -> Result<Schema> {
        avro::read(json)
    }

    /// The schema as Iceberg writes it in a table's metadata.
    pub fn iceberg_json(&self) -> Value {
        iceberg_json::write(self)
    }

    /// The schema of the decoded columns, with field ids and docs as iceberg-rust has them.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(arrow_schema::Schema::new(arrow_fields(&self.fields)))
    }

    /// Only the named fields (`a.b` is a field of a struct), for decoding no more than is needed.
    pub fn sub(&self, paths: &[&str]) -> Result<Schema> {
        for path in paths {
            find(&self.fields, path).ok_or_else(|| {
                let known: Vec<&str> = self.fields.iter().map(|f| f.name.as_str()).collect();
                Error::config("the schema has no such field").with("field", path).with("fields", known.join(","))
            })?;
        }
        Ok(Schema { fields: pick(&self.fields, paths), schema_id: self.schema_id, identifier_field_ids: Vec::new() })
    }
}

/// The field at a path of names.
fn find<'a>(fields: &'a [Field], path: &str) -> Option<&'a Field> {
    fields.iter().find_map(|field| match path.strip_prefix(field.name.as_str())? {
        "" => Some(field),
        rest => match &field.kind {
            Kind::Struct(fields) => find(fields, rest.strip_prefix('.')?),
            _ => None,
        },
    })
}

fn pick(fields: &[Field], paths: &[&str]) -> Vec<Field> {
    let mut picked = Vec::new();
    for field in fields {
        if paths.contains(&field.name.as_str()) {
            picked.push(field.clone());
            continue;
        }
        let within: Vec<&str> = paths.iter().filter_map(|p| p.strip_prefix(field.name.as_str())?.strip_prefix('.')).collect();
        if let (false, Kind::Struct(fields)) = (within.is_empty(), &field.kind) {
            let fields = pick(fields, &within);
            if !fields.is_empty() {
                picked.push(Field { kind: Kind::Struct(fields), ..field.clone() });
            }
        }
    }
    picked
}
