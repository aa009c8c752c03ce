//! Which table partition each row of a record batch belongs to. Gives every table partition that it meets a small
//! number, so that rows are sorted by counting and not by comparing.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{DataType, Fields};
use iceberg::arrow::{arrow_struct_to_literal, type_to_arrow_type};
use iceberg::spec::{Literal, PartitionKey, PartitionSpecRef, SchemaRef, StructType, Type};
use iceberg::transform::{BoxedTransformFunction, create_transform_function};

use super::table::Layout;
use crate::error::{Error, Result};

/// Small integers that are looked up without hashing: every bucket number.
const DIRECT: usize = 4096;
const UNKNOWN: u32 = u32::MAX;

/// Numbers the table partitions of rows.
pub struct Partitioner {
    sources: Vec<(Vec<String>, BoxedTransformFunction)>,
    schema: SchemaRef,
    spec: PartitionSpecRef,
    kind: StructType,
    fields: Fields,
    numbers: HashMap<Vec<u8>, u32>,
    direct: Vec<u32>,
    known: Vec<(PartitionKey, u64)>,
}

fn wrong(e: iceberg::Error) -> Error {
    Error::bug("cannot compute the table partition of a row").because(e)
}

impl Partitioner {
    /// For rows of the layout's table, which has to be partitioned.
    pub fn new(layout: &Layout) -> Result<Partitioner> {
        let mut sources = Vec::new();
        for field in layout.spec.fields() {
            let name = layout.schema.name_by_field_id(field.source_id).ok_or_else(|| {
                Error::config("the table is partitioned by a column that it no longer has").with("partition", &field.name)
            })?;
            sources.push((
                name.split('.').map(str::to_string).collect(),
                create_transform_function(&field.transform).map_err(wrong)?,
            ));
        }
        let kind = layout.spec.partition_type(&layout.schema).map_err(wrong)?;
        let DataType::Struct(fields) = type_to_arrow_type(&Type::Struct(kind.clone())).map_err(wrong)? else {
            return Err(Error::bug("a table partition is no struct"));
        };
        Ok(Partitioner {
            sources,
            schema: layout.schema.clone(),
            spec: layout.spec.clone(),
            kind,
            fields,
            numbers: HashMap::new(),
            direct: vec![UNKNOWN; DIRECT],
            known: Vec::new(),
        })
    }

    /// Top-level columns that decide on the table partition.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|(path, _)| path[0].as_str())
    }

    /// Appends the number of each row's table partition.
    pub fn number(&mut self, batch: &RecordBatch, numbers: &mut Vec<u32>) -> Result<()> {
        let mut values = Vec::with_capacity(self.sources.len());
        for (path, transform) in &self.sources {
            values.push(transform.transform(column(batch, path)?).map_err(wrong)?);
        }
        let mut key = Vec::new();
        // One integer, as every bucket is, needs no hashing at all.
        let single = match values.as_slice() {
            [one] => one.as_primitive_opt::<Int32Type>().filter(|ints| ints.null_count() == 0).cloned(),
            _ => None,
        };
        for row in 0..batch.num_rows() {
            let small = single.as_ref().map(|ints| ints.value(row)).filter(|v| (0..DIRECT as i32).contains(v));
            let found = match small {
                Some(value) => self.direct[value as usize],
                None => {
                    key.clear();
                    for array in &values {
                        append(array, row, &mut key)?;
                    }
                    self.numbers.get(&key).copied().unwrap_or(UNKNOWN)
                }
            };
            if found != UNKNOWN {
                numbers.push(found);
                continue;
            }
            let number = self.known.len() as u32;
            let place = match small {
                Some(value) => {
                    self.direct[value as usize] = number;
                    value as u64
                }
                None => {
                    self.numbers.insert(key.clone(), number);
                    xxhash_rust::xxh3::xxh3_64(&key)
                }
            };
            let partition = self.partition(&values, row)?;
            self.known.push((partition, place));
            numbers.push(number);
        }
        Ok(())
    }

    /// The table partition of a number.
    pub fn key(&self, number: u32) -> &PartitionKey {
        &self.known[number as usize].0
    }

    /// A value that spreads table partitions evenly: equal for equal ones, in every process.
    pub fn place(&self, number: u32) -> u64 {
        self.known[number as usize].1
    }

    /// Table partitions met so far.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Forgets all numbers: for tables with very many table partitions.
    pub fn forget(&mut self) {
        self.numbers.clear();
        self.direct.fill(UNKNOWN);
        self.known.clear();
    }

    fn partition(&self, values: &[ArrayRef], row: usize) -> Result<PartitionKey> {
        let one: Vec<ArrayRef> = values.iter().map(|array| array.slice(row, 1)).collect();
        let array = StructArray::try_new(self.fields.clone(), one, None)
            .map_err(|e| Error::bug("the table partition has another type than its spec says").because(e))?;
        let array: ArrayRef = Arc::new(array);
        match arrow_struct_to_literal(&array, &self.kind).map_err(wrong)?.into_iter().next() {
            Some(Some(Literal::Struct(data))) => Ok(PartitionKey::new(self.spec.as_ref().clone(), self.schema.clone(), data)),
            _ => Err(Error::bug("the table partition of a row is no struct")),
        }
    }
}

/// A column by its path.
fn column(batch: &RecordBatch, path: &[String]) -> Result<ArrayRef> {
    let missing =
        || Error::config("the table is partitioned by a column that the schema doesn't declare").with("column", path.join("."));
    let mut array = batch.column_by_name(&path[0]).ok_or_else(missing)?.clone();
    for name in &path[1..] {
        let parent = array.as_struct_opt().ok_or_else(missing)?;
        let child = parent.column_by_name(name).ok_or_else(missing)?;
        // A null parent has null children.
        array = match parent.nulls() {
            None => child.clone(),
            Some(nulls) => {
                let joined = arrow_buffer::NullBuffer::union(Some(nulls), child.nulls());
                let data = child.to_data().into_builder().nulls(joined).build();
                arrow_array::make_array(data.map_err(|e| Error::bug("cannot mark children of null structs").because(e))?)
            }
        };
    }
    Ok(array)
}

/// Appends a value so that equal values, and only those, give equal bytes.
fn append(array: &ArrayRef, row: usize, key: &mut Vec<u8>) -> Result<()> {
    if array.is_null(row) {
        key.push(0);
        return Ok(());
    }
    key.push(1);
    let mut sized = |bytes: &[u8]| {
        key.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    match array.data_type() {
        DataType::Boolean => key.push(array.as_boolean().value(row) as u8),
        DataType::Int32 => key.extend_from_slice(&array.as_primitive::<Int32Type>().value(row).to_le_bytes()),
        DataType::Date32 => key.extend_from_slice(&array.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        DataType::Int64 => key.extend_from_slice(&array.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        DataType::Time64(_) => key.extend_from_slice(&array.as_primitive::<Time64MicrosecondType>().value(row).to_le_bytes()),
        DataType::Timestamp(..) => {
            key.extend_from_slice(&array.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes())
        }
        DataType::Float32 => key.extend_from_slice(&array.as_primitive::<Float32Type>().value(row).to_le_bytes()),
        DataType::Float64 => key.extend_from_slice(&array.as_primitive::<Float64Type>().value(row).to_le_bytes()),
        DataType::Decimal128(..) => key.extend_from_slice(&array.as_primitive::<Decimal128Type>().value(row).to_le_bytes()),
        DataType::Utf8 => sized(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => sized(array.as_string::<i64>().value(row).as_bytes()),
        DataType::Binary => sized(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => sized(array.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => sized(array.as_fixed_size_binary().value(row)),
        other => return Err(Error::config("a table can't be partitioned by this type").with("type", other)),
    }
    Ok(())
}
