//! The rules of `docs/schemas.md`, one test each.

mod properties;
mod rows;
mod schemas;
mod values;

use arrow_array::{Array, ArrayRef};

use super::{Decoded, Decoder, Options, Schema};
use crate::batch::{Batch, BatchBuilder, Origin};

/// A batch of these messages.
pub fn batch<T: AsRef<[u8]>>(messages: &[T]) -> Batch {
    let mut builder = BatchBuilder::new(messages.len(), 0);
    for message in messages {
        builder.push(None, Some(message.as_ref()), Origin::default());
    }
    builder.finish(0)
}

/// A schema with these fields, each as Iceberg's JSON has it.
pub fn schema(fields: &str) -> Schema {
    Schema::from_json(format!(r#"{{"type":"struct","fields":[{fields}]}}"#).as_bytes()).unwrap()
}

/// Decodes messages by a schema.
pub fn decode<T: AsRef<[u8]>>(schema: &Schema, messages: &[T]) -> Decoded {
    Decoder::new(schema, Options::default()).unwrap().decode(&batch(messages)).unwrap()
}

/// The column `v` of this type (with anything that may follow the type in the field) after one message with this value.
pub fn try_value(kind: &str, json: &str) -> Result<ArrayRef, String> {
    let kind = if kind.starts_with(['{', '"']) { kind.to_string() } else { format!("\"{kind}\"") };
    let schema = schema(&format!(r#"{{"name":"v","type":{kind}}}"#));
    let mut decoded = decode(&schema, &[format!("{{\"v\":{json}}}")]);
    match decoded.rejected.pop() {
        Some((_, reason)) => {
            assert_eq!(decoded.rows.num_rows(), 0);
            Err(reason)
        }
        None => Ok(decoded.rows.column(0).clone()),
    }
}

/// The one value of such a column.
pub fn value<T: Array + Clone + 'static>(kind: &str, json: &str) -> T {
    let column = try_value(kind, json).unwrap_or_else(|reason| panic!("{json} was refused: {reason}"));
    column.as_any().downcast_ref::<T>().unwrap().clone()
}

/// The reason for which such a value is refused.
pub fn refusal(kind: &str, json: &str) -> String {
    match try_value(kind, json) {
        Err(reason) => reason,
        Ok(column) => panic!("{json} was taken: {column:?}"),
    }
}
