//! The glue between a [`Transform`] and the exports of a module: called by [`crate::export!`] alone.
//! The generated bindings stay in here; their records become ours by moving lists, without a copy.

use std::cell::RefCell;

use crate::{Batch, Output, Transform, emitter};

/// Where a module keeps its transform.
pub type Slot<T> = RefCell<Option<T>>;

/// The exports, in our types.
pub trait Guest {
    /// See the contract.
    fn configure(config: String) -> Result<Vec<String>, String>;
    /// See the contract.
    fn transform(input: Batch) -> Result<Output, String>;
}

/// Makes the transform and hands back the names of its routes.
pub fn configure<T: Transform>(slot: &Slot<T>, config: &str) -> Result<Vec<String>, String> {
    #[cfg(feature = "log")]
    crate::log::report_panics();
    let transform = T::new(parse(config)?)?;
    let routes = transform.routes();
    if routes.len() > crate::ROUTES_MAX {
        return Err(format!("the module names {} routes: at most {} are possible", routes.len(), crate::ROUTES_MAX));
    }
    *slot.borrow_mut() = Some(transform);
    Ok(routes)
}

/// Runs the transform over a batch.
pub fn transform<T: Transform>(slot: &Slot<T>, input: Batch) -> Result<Output, String> {
    match &mut *slot.borrow_mut() {
        Some(transform) => Ok(emitter::run(transform, input)),
        None => Err("transform was called before configure".to_string()),
    }
}

/// Reads a configuration. A step without one is an empty one, so that all settings may have defaults.
fn parse<C: serde::de::DeserializeOwned>(text: &str) -> Result<C, String> {
    let text = if text.trim().is_empty() { "null" } else { text };
    let read = |text: &str| {
        let mut reader = serde_json::Deserializer::from_str(text);
        let config = serde_path_to_error::deserialize(&mut reader).map_err(|error| match error.path().to_string() {
            path if path == "." => format!("config: {}", error.inner()),
            path => format!("config: {path}: {}", error.inner()),
        })?;
        reader.end().map_err(|error| format!("config: {error}"))?;
        Ok(config)
    };
    // A transform without settings has the unit type for them, which JSON writes as null.
    match (read(text), text.trim()) {
        (Err(_), "null") => read("{}"),
        (Err(error), "{}") => read("null").map_err(|_| error),
        (result, _) => result,
    }
}

#[cfg(target_arch = "wasm32")]
#[allow(missing_docs, unsafe_code)]
pub mod bindings {
    //! Generated from the contract.

    #[cfg(not(feature = "log"))]
    wit_bindgen::generate!({ path: "../wit", world: "transformer", pub_export_macro: true, export_macro_name: "export_bindings" });
    #[cfg(feature = "log")]
    wit_bindgen::generate!({ path: "../wit", world: "transformer-logging", pub_export_macro: true, export_macro_name: "export_bindings" });
}

#[cfg(target_arch = "wasm32")]
mod convert {
    //! Moves lists between the generated records and ours.

    use super::bindings::weir::udf::types as wit;
    use crate::{Attributes, Batch, Column, Output};

    fn column(column: wit::Column) -> Column {
        Column { bytes: column.bytes, ends: column.ends, present: column.present }
    }

    fn wit_column(column: Column) -> wit::Column {
        wit::Column { bytes: column.bytes, ends: column.ends, present: column.present }
    }

    pub fn batch(batch: wit::Batch) -> Batch {
        Batch {
            keys: column(batch.keys),
            values: column(batch.values),
            event_times: batch.event_times,
            attributes: Attributes {
                rows: batch.attributes.rows,
                names: column(batch.attributes.names),
                values: column(batch.attributes.values),
            },
            received_ms: batch.received_ms,
        }
    }

    pub fn wit_output(output: Output) -> wit::Output {
        let batch = output.batch;
        wit::Output {
            batch: wit::Batch {
                keys: wit_column(batch.keys),
                values: wit_column(batch.values),
                event_times: batch.event_times,
                attributes: wit::Attributes {
                    rows: batch.attributes.rows,
                    names: wit_column(batch.attributes.names),
                    values: wit_column(batch.attributes.values),
                },
                received_ms: batch.received_ms,
            },
            origins: output.origins,
            routes: output.routes,
            rejected: wit::Rejected { rows: output.rejected.rows, reasons: wit_column(output.rejected.reasons) },
        }
    }
}

/// Adapts our exports to the generated ones.
#[cfg(target_arch = "wasm32")]
#[derive(Debug)]
pub struct Adapter<G>(std::marker::PhantomData<G>);

#[cfg(target_arch = "wasm32")]
impl<G: Guest> bindings::Guest for Adapter<G> {
    fn configure(config: String) -> Result<Vec<String>, String> {
        G::configure(config)
    }

    fn transform(input: bindings::weir::udf::types::Batch) -> Result<bindings::weir::udf::types::Output, String> {
        G::transform(convert::batch(input)).map(convert::wit_output)
    }
}

/// Exports a [`Guest`] from a module.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! export_guest {
    ($guest:ident) => {
        type Adapted = $crate::guest::Adapter<$guest>;
        $crate::guest::bindings::export_bindings!(Adapted with_types_in $crate::guest::bindings);
    };
}

/// Natively there is nothing to export: only looks whether it is a [`Guest`].
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! export_guest {
    ($guest:ident) => {
        const _: fn() = || {
            fn check<G: $crate::guest::Guest>() {}
            check::<$guest>()
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Config {
        #[serde(default)]
        fields: Vec<u32>,
    }

    #[test]
    fn a_step_without_configuration_has_an_empty_one() {
        assert_eq!(parse::<Config>("null"), Ok(Config { fields: vec![] }));
        assert_eq!(parse::<Config>(""), Ok(Config { fields: vec![] }));
        assert_eq!(parse::<()>("null"), Ok(()));
    }

    #[test]
    fn a_wrong_configuration_says_where() {
        let refusal = |text| parse::<Config>(text).unwrap_err();
        assert_eq!(
            refusal(r#"{"fields":[1,"x"]}"#),
            "config: fields[1]: invalid type: string \"x\", expected u32 at line 1 column 16"
        );
        assert!(refusal(r#"{"feilds":[]}"#).contains("unknown field `feilds`, expected `fields`"));
        assert!(refusal("{} x").contains("trailing characters"));
    }
}
