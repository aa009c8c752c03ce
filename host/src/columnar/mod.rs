//! Bytes to Arrow by a declared schema: reads the schema file, and decodes the JSON messages of a batch into columns.
//!
//! Owns what each type accepts (`docs/schemas.md` says it for users). Knows no table, no catalog and no sink;
//! the one thing it reads from disk is the schema file.

mod avro;
mod column;
mod decode;
mod extract;
mod iceberg_json;
mod number;
mod parse;
mod read;
mod schema;
mod text;
mod time;
mod tree;
mod unknown;

#[cfg(test)]
mod tests;

pub use decode::{Decoded, Decoder, Options};
pub use extract::Extractor;
pub use number::scaled;
pub use parse::MAX_DEPTH;
pub use schema::{EpochUnit, Field, Kind, Schema};
pub use time::timestamp;

/// Decodes one message by a schema, both as they come from a fuzzer. Whatever they hold, this returns.
pub fn fuzz_entry(schema: &[u8], message: &[u8]) {
    let decoder = Schema::from_json(schema).and_then(|schema| Decoder::new(&schema, Options::default()));
    if let Ok(mut decoder) = decoder {
        let mut batch = crate::batch::BatchBuilder::new(1, message.len());
        batch.push(None, Some(message), crate::batch::Origin::default());
        // An error is as good an answer as rows are: only a panic is a find.
        drop(decoder.decode(&batch.finish(0)));
    }
}
