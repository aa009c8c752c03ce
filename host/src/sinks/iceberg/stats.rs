//! What an Iceberg manifest tells of a data file: counts, sizes and bounds by column, from the Parquet footer.
//! Bounds follow the table spec's single-value serialization: <https://iceberg.apache.org/spec/#appendix-d-single-value-serialization>.

use std::collections::HashMap;

use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Datum, PartitionKey, PrimitiveType, Schema, Struct, Type,
};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use crate::error::{Error, Result};

/// Describes a finished file. `size` is the whole file's, in bytes.
pub fn data_file(
    footer: &ParquetMetaData,
    schema: &Schema,
    spec: i32,
    key: Option<&PartitionKey>,
    path: &str,
    size: u64,
) -> Result<DataFile> {
    let mut sizes: HashMap<i32, u64> = HashMap::new();
    let mut values: HashMap<i32, u64> = HashMap::new();
    let mut nulls: HashMap<i32, u64> = HashMap::new();
    let mut lower: HashMap<i32, Datum> = HashMap::new();
    let mut upper: HashMap<i32, Datum> = HashMap::new();
    for group in footer.row_groups() {
        for column in group.columns() {
            let description = column.column_descr();
            let info = description.self_type().get_basic_info();
            if !info.has_id() {
                continue;
            }
            let id = info.id();
            *sizes.entry(id).or_default() += column.compressed_size().max(0) as u64;
            *values.entry(id).or_default() += column.num_values().max(0) as u64;
            let Some(statistics) = column.statistics() else { continue };
            if let Some(count) = statistics.null_count_opt() {
                *nulls.entry(id).or_default() += count;
            }
            let kind = schema.field_by_id(id).map(|field| field.field_type.as_ref());
            let (Some(Type::Primitive(kind)), 0) = (kind, description.max_rep_level()) else { continue };
            if let Some(least) = bound(kind, statistics, statistics.min_bytes_opt()) {
                let entry = lower.entry(id).or_insert_with(|| least.clone());
                if least < *entry {
                    *entry = least;
                }
            }
            if let Some(most) = bound(kind, statistics, statistics.max_bytes_opt()) {
                let entry = upper.entry(id).or_insert_with(|| most.clone());
                if most > *entry {
                    *entry = most;
                }
            }
        }
    }
    // A row group without statistics of a column would make the others' bounds a lie.
    let complete = |id: &i32| {
        footer.row_groups().iter().flat_map(|group| group.columns()).all(|column| {
            let info = column.column_descr().self_type().get_basic_info();
            let known = column
                .statistics()
                .is_some_and(|s| s.min_bytes_opt().is_some() || s.null_count_opt() == Some(column.num_values().max(0) as u64));
            !info.has_id() || info.id() != *id || known
        })
    };
    lower.retain(|id, _| complete(id));
    upper.retain(|id, _| complete(id));
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(path.to_string())
        .file_format(DataFileFormat::Parquet)
        .partition(key.map_or_else(Struct::empty, |key| key.data().clone()))
        .partition_spec_id(spec)
        .record_count(footer.file_metadata().num_rows().max(0) as u64)
        .file_size_in_bytes(size)
        .column_sizes(sizes)
        .value_counts(values)
        .null_value_counts(nulls)
        .lower_bounds(lower)
        .upper_bounds(upper)
        .split_offsets(Some(footer.row_groups().iter().filter_map(|group| group.file_offset()).collect()))
        .build()
        .map_err(|e| Error::bug("a data file lacks a field").because(e))
}

/// A bound in Iceberg's form; `None` where the footer has none that can be trusted.
fn bound(kind: &PrimitiveType, statistics: &Statistics, bytes: Option<&[u8]>) -> Option<Datum> {
    let bytes = bytes?;
    // Parquet keeps small decimals as little-endian integers, Iceberg all of them as big-endian bytes.
    let decimal = match (kind, statistics) {
        (PrimitiveType::Decimal { .. }, Statistics::Int32(_)) => Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        (PrimitiveType::Decimal { .. }, Statistics::Int64(_)) => Some(i64::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    };
    match decimal {
        Some(unscaled) => Datum::try_from_bytes(&unscaled.to_be_bytes(), kind.clone()).ok(),
        None => Datum::try_from_bytes(bytes, kind.clone()).ok(),
    }
}
