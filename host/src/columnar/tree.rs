//! The schema as a tree of columns being filled. Owns how the columns of a row stay in step; what a value may be is
//! in `read`.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DataType, Fields};

use super::column::{self, Bits, Bytes, FixedBytes, Lengths, Plain, bug};
use super::schema::{EpochUnit, Field, Kind};
use super::text::Strings;
use crate::error::{Error, Result};

/// A field and its values so far.
pub struct Node {
    /// Its key in messages.
    pub name: Box<str>,
    /// The key as most messages write it: with quotes and colon.
    pub token: Box<[u8]>,
    /// Whether null and nothing are refused.
    pub required: bool,
    /// What reasons call its type.
    pub kind: Kind,
    /// Its values.
    pub column: Column,
    data_type: DataType,
}

/// Values by type.
pub enum Column {
    Boolean(Bits),
    Int(Plain<i32>),
    Long(Plain<i64>),
    Float(Plain<f32>),
    Double(Plain<f64>),
    Decimal(Plain<i128>, u8, u8),
    Date(Plain<i32>, Option<EpochUnit>),
    Time(Plain<i64>, Option<EpochUnit>),
    /// With whether it is an instant.
    Timestamp(Plain<i64>, Option<EpochUnit>, bool),
    Text(Strings),
    Uuid(FixedBytes),
    Fixed(FixedBytes),
    Binary(Bytes),
    Struct(Box<Struct>),
    List(Box<List>),
    Map(Box<Map>),
}

/// The fields of an object, found by name.
pub struct Group {
    /// In the order of the schema.
    pub nodes: Vec<Node>,
    by_name: Vec<u32>,
}

pub struct Struct {
    pub group: Group,
    nulls: NullBufferBuilder,
}

pub struct List {
    pub lengths: Lengths,
    pub element: Node,
}

pub struct Map {
    pub lengths: Lengths,
    /// Key and value.
    pub entry: Group,
    /// The keys of the map just read, sorted.
    pub order: Vec<usize>,
}

impl Group {
    pub fn new(fields: &[Field]) -> Group {
        let nodes: Vec<Node> = fields.iter().map(Node::new).collect();
        let mut by_name: Vec<u32> = (0..nodes.len() as u32).collect();
        by_name.sort_by(|a, b| nodes[*a as usize].name.cmp(&nodes[*b as usize].name));
        Group { nodes, by_name }
    }

    /// The field of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        let place = self.by_name.binary_search_by(|i| (*self.nodes[*i as usize].name).cmp(name)).ok()?;
        Some(self.by_name[place] as usize)
    }

    pub fn truncate(&mut self, length: usize) {
        for node in &mut self.nodes {
            node.truncate(length);
        }
    }

    pub fn copy(&mut self, block: &str) {
        for node in &mut self.nodes {
            node.copy(block);
        }
    }

    pub fn finish(&mut self) -> Result<Vec<ArrayRef>> {
        self.nodes.iter_mut().map(Node::finish).collect()
    }

    fn push_absent(&mut self) {
        for node in &mut self.nodes {
            node.push_absent();
        }
    }
}

impl Struct {
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Ends an object, whose fields all have their values.
    pub fn push(&mut self) {
        self.nulls.append_non_null();
    }
}

impl Node {
    fn new(field: &Field) -> Node {
        let unit = field.unit;
        let column = match &field.kind {
            Kind::Boolean => Column::Boolean(Bits::new()),
            Kind::Int => Column::Int(Plain::new()),
            Kind::Long => Column::Long(Plain::new()),
            Kind::Float => Column::Float(Plain::new()),
            Kind::Double => Column::Double(Plain::new()),
            Kind::Decimal { precision, scale } => Column::Decimal(Plain::new(), *precision, *scale),
            Kind::Date => Column::Date(Plain::new(), unit),
            Kind::Time => Column::Time(Plain::new(), unit),
            Kind::Timestamp => Column::Timestamp(Plain::new(), unit, false),
            Kind::Timestamptz => Column::Timestamp(Plain::new(), unit, true),
            Kind::String => Column::Text(Strings::new()),
            Kind::Uuid => Column::Uuid(FixedBytes::new(16)),
            Kind::Fixed(length) => Column::Fixed(FixedBytes::new(*length as usize)),
            Kind::Binary => Column::Binary(Bytes::new()),
            Kind::Struct(fields) => Column::Struct(Box::new(Struct { group: Group::new(fields), nulls: column::nulls() })),
            Kind::List(element) => Column::List(Box::new(List { lengths: Lengths::new(), element: Node::new(element) })),
            Kind::Map(key, value) => {
                // They are named by their place, whatever a schema calls them.
                let entry = [("key", key), ("value", value)].map(|(name, part)| Field { name: name.into(), ..(**part).clone() });
                Column::Map(Box::new(Map { lengths: Lengths::new(), entry: Group::new(&entry), order: Vec::new() }))
            }
        };
        Node {
            name: field.name.as_str().into(),
            token: token(&field.name),
            required: field.required,
            kind: field.kind.clone(),
            column,
            data_type: field.kind.arrow(),
        }
    }

    /// How many values it has.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match &self.column {
            Column::Boolean(c) => c.values.len(),
            Column::Int(c) | Column::Date(c, _) => c.values.len(),
            Column::Long(c) | Column::Time(c, _) | Column::Timestamp(c, ..) => c.values.len(),
            Column::Float(c) => c.values.len(),
            Column::Double(c) => c.values.len(),
            Column::Decimal(c, ..) => c.values.len(),
            Column::Text(c) => c.len(),
            Column::Uuid(c) | Column::Fixed(c) => c.len(),
            Column::Binary(c) => c.len(),
            Column::Struct(c) => c.len(),
            Column::List(c) => c.lengths.len(),
            Column::Map(c) => c.lengths.len(),
        }
    }

    /// Adds a null; where none is allowed, below a struct that is null itself, some value.
    pub fn push_absent(&mut self) {
        let null = !self.required;
        match &mut self.column {
            Column::Boolean(c) => c.push_absent(null),
            Column::Int(c) | Column::Date(c, _) => c.push_absent(null),
            Column::Long(c) | Column::Time(c, _) | Column::Timestamp(c, ..) => c.push_absent(null),
            Column::Float(c) => c.push_absent(null),
            Column::Double(c) => c.push_absent(null),
            Column::Decimal(c, ..) => c.push_absent(null),
            Column::Text(c) => c.push_absent(null),
            Column::Uuid(c) | Column::Fixed(c) => c.push_absent(null),
            Column::Binary(c) => c.push_absent(null),
            Column::Struct(c) => {
                c.group.push_absent();
                c.nulls.append(!null);
            }
            Column::List(c) => c.lengths.push_absent(null),
            Column::Map(c) => c.lengths.push_absent(null),
        }
    }

    /// Cuts back to `length` values, and what lies within to what belongs to them.
    pub fn truncate(&mut self, length: usize) {
        match &mut self.column {
            Column::Boolean(c) => c.truncate(length),
            Column::Int(c) | Column::Date(c, _) => c.truncate(length),
            Column::Long(c) | Column::Time(c, _) | Column::Timestamp(c, ..) => c.truncate(length),
            Column::Float(c) => c.truncate(length),
            Column::Double(c) => c.truncate(length),
            Column::Decimal(c, ..) => c.truncate(length),
            Column::Text(c) => c.truncate(length),
            Column::Uuid(c) | Column::Fixed(c) => c.truncate(length),
            Column::Binary(c) => c.truncate(length),
            Column::Struct(c) => {
                c.group.truncate(length);
                c.nulls.truncate(length);
            }
            Column::List(c) => {
                c.lengths.truncate(length);
                c.element.truncate(c.lengths.end());
            }
            Column::Map(c) => {
                c.lengths.truncate(length);
                c.entry.truncate(c.lengths.end());
            }
        }
    }

    /// Copies the strings of a block that ends here.
    fn copy(&mut self, block: &str) {
        match &mut self.column {
            Column::Text(c) => c.copy(block),
            Column::Struct(c) => c.group.copy(block),
            Column::List(c) => c.element.copy(block),
            Column::Map(c) => c.entry.copy(block),
            _ => {}
        }
    }

    /// The order of two values of the present block; those that nest are all alike.
    pub fn order(&self, a: usize, b: usize, block: &str) -> Ordering {
        match &self.column {
            Column::Boolean(c) => c.values.get_bit(a).cmp(&c.values.get_bit(b)),
            Column::Int(c) | Column::Date(c, _) => c.values[a].cmp(&c.values[b]),
            Column::Long(c) | Column::Time(c, _) | Column::Timestamp(c, ..) => c.values[a].cmp(&c.values[b]),
            Column::Float(c) => c.values[a].total_cmp(&c.values[b]),
            Column::Double(c) => c.values[a].total_cmp(&c.values[b]),
            Column::Decimal(c, ..) => c.values[a].cmp(&c.values[b]),
            Column::Text(c) => c.order(a, b, block),
            Column::Uuid(c) | Column::Fixed(c) => c.order(a, b),
            Column::Binary(c) => c.order(a, b),
            Column::Struct(_) | Column::List(_) | Column::Map(_) => Ordering::Equal,
        }
    }

    /// The values as Arrow has them; the column is empty afterwards.
    fn finish(&mut self) -> Result<ArrayRef> {
        Ok(match &mut self.column {
            Column::Boolean(c) => c.finish(),
            Column::Int(c) => Arc::new(c.finish::<Int32Type>()),
            Column::Long(c) => Arc::new(c.finish::<Int64Type>()),
            Column::Float(c) => Arc::new(c.finish::<Float32Type>()),
            Column::Double(c) => Arc::new(c.finish::<Float64Type>()),
            Column::Decimal(c, ..) => Arc::new(c.finish::<Decimal128Type>().with_data_type(self.data_type.clone())),
            Column::Date(c, _) => Arc::new(c.finish::<Date32Type>()),
            Column::Time(c, _) => Arc::new(c.finish::<Time64MicrosecondType>()),
            Column::Timestamp(c, ..) => Arc::new(c.finish::<TimestampMicrosecondType>().with_data_type(self.data_type.clone())),
            Column::Text(c) => c.finish(),
            Column::Uuid(c) | Column::Fixed(c) => c.finish()?,
            Column::Binary(c) => c.finish()?,
            Column::Struct(c) => {
                let arrays = c.group.finish()?;
                Arc::new(StructArray::try_new(fields(&self.data_type)?, arrays, c.nulls.finish()).map_err(bug)?)
            }
            Column::List(c) => {
                let DataType::List(field) = &self.data_type else { return Err(no_such()) };
                let (offsets, nulls) = c.lengths.finish();
                Arc::new(ListArray::try_new(field.clone(), offsets, c.element.finish()?, nulls).map_err(bug)?)
            }
            Column::Map(c) => {
                let DataType::Map(field, _) = &self.data_type else { return Err(no_such()) };
                let (offsets, nulls) = c.lengths.finish();
                let entries = StructArray::try_new(fields(field.data_type())?, c.entry.finish()?, None).map_err(bug)?;
                Arc::new(MapArray::try_new(field.clone(), offsets, entries, nulls, false).map_err(bug)?)
            }
        })
    }
}

fn fields(data_type: &DataType) -> Result<Fields> {
    match data_type {
        DataType::Struct(fields) => Ok(fields.clone()),
        _ => Err(no_such()),
    }
}

fn no_such() -> Error {
    Error::bug("a column does not have the type of its field")
}

/// `"name":`, if that is how the name is written in JSON.
fn token(name: &str) -> Box<[u8]> {
    format!("{}:", serde_json::Value::from(name)).into_bytes().into()
}
