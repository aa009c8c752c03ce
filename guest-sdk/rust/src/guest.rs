//! The glue between a [`Transform`] or an [`Aggregate`] and the exports of a module: called by
//! [`crate::export!`] and [`crate::export_aggregator!`] alone.

use std::cell::RefCell;

use crate::aggregate::Aggregate;
pub use crate::aggregate::Runner;
use crate::{Batch, Output, Transform, emitter};

/// Where a module keeps its transform or its running aggregator.
pub type Slot<T> = RefCell<Option<T>>;

/// Makes the transform and hands back the names of its routes.
pub fn configure<T: Transform>(slot: &Slot<T>, config: &str) -> Result<Vec<String>, String> {
    #[cfg(feature = "log")]
    crate::log::report_panics();
    let transform = T::new(parse(config)?)?;
    let routes = few(transform.routes())?;
    *slot.borrow_mut() = Some(transform);
    Ok(routes)
}

/// Makes the aggregator and hands back the names of its routes.
pub fn configure_aggregate<A: Aggregate>(slot: &Slot<Runner<A>>, config: &str) -> Result<Vec<String>, String> {
    #[cfg(feature = "log")]
    crate::log::report_panics();
    let aggregate = A::new(parse(config)?)?;
    let routes = few(aggregate.routes())?;
    *slot.borrow_mut() = Some(Runner::new(aggregate));
    Ok(routes)
}

/// The names, unless there are more than have numbers.
fn few(routes: Vec<String>) -> Result<Vec<String>, String> {
    match routes.len() {
        0..=crate::ROUTES_MAX => Ok(routes),
        count => Err(format!("the module names {count} routes: at most {} are possible", crate::ROUTES_MAX)),
    }
}

/// Runs the transform over a batch.
pub fn transform<T: Transform>(slot: &Slot<T>, input: Batch) -> Result<Output, String> {
    match &mut *slot.borrow_mut() {
        Some(transform) => Ok(emitter::run(input, |message, out| transform.transform(message, out))),
        None => Err("transform was called before configure".to_string()),
    }
}

/// Lends the aggregator.
pub fn with_runner<A: Aggregate, R>(
    slot: &Slot<Runner<A>>,
    f: impl FnOnce(&mut Runner<A>) -> Result<R, String>,
) -> Result<R, String> {
    match &mut *slot.borrow_mut() {
        Some(runner) => f(runner),
        None => Err("the aggregator was called before configure".to_string()),
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

/// Where a module keeps its transform; and which functions it exports, generic over it.
pub trait TransformGuest: 'static {
    /// The transform.
    type Transform: Transform;
    /// Lends the slot.
    fn with<R>(f: impl FnOnce(&Slot<Self::Transform>) -> R) -> R;
}

/// Where a module keeps its aggregator; and which functions it exports, generic over it.
pub trait AggregateGuest: 'static {
    /// The aggregator.
    type Aggregate: Aggregate;
    /// Lends the slot.
    fn with<R>(f: impl FnOnce(&Slot<Runner<Self::Aggregate>>) -> R) -> R;
}

/// Adapts ours to the generated exports.
#[cfg(target_arch = "wasm32")]
#[derive(Debug)]
pub struct Adapter<G>(std::marker::PhantomData<G>);

#[cfg(target_arch = "wasm32")]
mod exports {
    //! The exports of both worlds.

    use super::{Adapter, AggregateGuest, TransformGuest, configure, configure_aggregate, with_runner};
    use crate::aggregate::{Aggregate, Groups, Lists, Panes};
    use crate::bindings::{aggregator, transformer, types, windows};

    impl<G: TransformGuest> transformer::Guest for Adapter<G> {
        fn configure(config: String) -> Result<Vec<String>, String> {
            G::with(|slot| configure(slot, &config))
        }

        fn transform(input: types::Batch) -> Result<types::Output, String> {
            G::with(|slot| super::transform(slot, input.into())).map(Into::into)
        }
    }

    impl<G: AggregateGuest> aggregator::Guest for Adapter<G> {
        fn configure(config: String) -> Result<Vec<String>, String> {
            G::with(|slot| configure_aggregate(slot, &config))
        }

        fn accumulate(input: types::Batch, groups: windows::Groups) -> Result<windows::Accumulated, String> {
            let groups = Groups { rows: groups.rows, ends: groups.ends };
            let (fragments, rejected) =
                G::with(|slot| with_runner(slot, |runner| Ok(runner.accumulate(&input.into(), &groups))))?;
            Ok(windows::Accumulated { fragments: fragments.into(), rejected: rejected.into() })
        }

        fn merge(lists: windows::Lists) -> Result<types::Column, String> {
            let lists = Lists { fragments: lists.fragments.into(), ends: lists.ends };
            G::with(|slot| with_runner(slot, |runner| runner.merge(&lists))).map(Into::into)
        }

        fn emit(input: windows::Panes) -> Result<types::Output, String> {
            let windows::Panes { keys, starts, ends, accumulators, firings, timings, received_ms } = input;
            let panes = Panes { starts, ends, firings, timings, received_ms };
            let emit = |runner: &mut super::Runner<G::Aggregate>| Ok(runner.emit(&panes, keys.into(), accumulators.into()));
            G::with(|slot| with_runner(slot, emit)).map(Into::into)
        }

        fn state_version() -> u32 {
            G::Aggregate::STATE_VERSION
        }

        fn migrate(version: u32, accumulators: types::Column) -> Result<types::Column, String> {
            G::with(|slot| with_runner(slot, |runner| runner.migrate(version, accumulators.into()))).map(Into::into)
        }
    }
}

/// Exports a guest from a module: for `export!` and `export_aggregator!`.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
#[macro_export]
macro_rules! export_world {
    (transformer, $guest:ident) => {
        type Adapted = $crate::guest::Adapter<$guest>;
        $crate::bindings::transformer::export_transformer_world!(Adapted with_types_in $crate::bindings::transformer);
    };
    (aggregator, $guest:ident) => {
        type Adapted = $crate::guest::Adapter<$guest>;
        $crate::bindings::aggregator::export_aggregator_world!(Adapted with_types_in $crate::bindings::aggregator);
    };
}

/// Natively there is nothing to export: only looks whether it is a guest.
#[cfg(not(target_arch = "wasm32"))]
#[doc(hidden)]
#[macro_export]
macro_rules! export_world {
    (transformer, $guest:ident) => {
        const _: fn() = || {
            fn check<G: $crate::guest::TransformGuest>() {}
            check::<$guest>()
        };
    };
    (aggregator, $guest:ident) => {
        const _: fn() = || {
            fn check<G: $crate::guest::AggregateGuest>() {}
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
