//! Generated from the contract: one module for each world, with the same records in both. Moves lists between
//! these records and ours, without a copy.

#[cfg(not(feature = "log"))]
pub mod transformer {
    //! The world `transformer`.
    wit_bindgen::generate!({ path: "../wit", world: "transformer", pub_export_macro: true, export_macro_name: "export_transformer_world" });
}
#[cfg(feature = "log")]
pub mod transformer {
    //! The world `transformer-logging`.
    wit_bindgen::generate!({ path: "../wit", world: "transformer-logging", pub_export_macro: true, export_macro_name: "export_transformer_world" });
}

#[cfg(not(feature = "log"))]
pub mod aggregator {
    //! The world `aggregator`.
    wit_bindgen::generate!({
        path: "../wit", world: "aggregator", pub_export_macro: true, export_macro_name: "export_aggregator_world",
        with: { "weir:udf/types@1.1.0": super::transformer::weir::udf::types },
    });
}
#[cfg(feature = "log")]
pub mod aggregator {
    //! The world `aggregator-logging`.
    wit_bindgen::generate!({
        path: "../wit", world: "aggregator-logging", pub_export_macro: true, export_macro_name: "export_aggregator_world",
        with: { "weir:udf/types@1.1.0": super::transformer::weir::udf::types, "weir:udf/log@1.1.0": super::transformer::weir::udf::log },
    });
}

pub use aggregator::weir::udf::windows;
pub use transformer::weir::udf::types;

use crate::{Attributes, Batch, Column, Output, Rejected};

impl From<types::Column> for Column {
    fn from(column: types::Column) -> Column {
        Column { bytes: column.bytes, ends: column.ends, present: column.present }
    }
}

impl From<Column> for types::Column {
    fn from(column: Column) -> types::Column {
        types::Column { bytes: column.bytes, ends: column.ends, present: column.present }
    }
}

impl From<types::Batch> for Batch {
    fn from(batch: types::Batch) -> Batch {
        let types::Attributes { rows, names, values } = batch.attributes;
        Batch {
            keys: batch.keys.into(),
            values: batch.values.into(),
            event_times: batch.event_times,
            attributes: Attributes { rows, names: names.into(), values: values.into() },
            received_ms: batch.received_ms,
        }
    }
}

impl From<Rejected> for types::Rejected {
    fn from(rejected: Rejected) -> types::Rejected {
        types::Rejected { rows: rejected.rows, reasons: rejected.reasons.into() }
    }
}

impl From<Output> for types::Output {
    fn from(output: Output) -> types::Output {
        let Batch { keys, values, event_times, attributes, received_ms } = output.batch;
        let Attributes { rows, names, values: attribute_values } = attributes;
        types::Output {
            batch: types::Batch {
                keys: keys.into(),
                values: values.into(),
                event_times,
                attributes: types::Attributes { rows, names: names.into(), values: attribute_values.into() },
                received_ms,
            },
            origins: output.origins,
            routes: output.routes,
            rejected: output.rejected.into(),
        }
    }
}
