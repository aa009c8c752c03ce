//! Write user-defined functions for Weir in Rust.
//!
//! A transform is one small thing: a type with a configuration and one function over a message.
//!
//! ```
//! use weir_udf::{Emitter, Message, Transform};
//!
//! /// Puts a greeting in front of each message.
//! struct Greet {
//!     greeting: String,
//! }
//!
//! #[derive(serde::Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     greeting: String,
//! }
//!
//! impl Transform for Greet {
//!     type Config = Config;
//!
//!     fn new(config: Config) -> Result<Self, String> {
//!         Ok(Greet { greeting: config.greeting })
//!     }
//!
//!     fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
//!         let name = message.value().ok_or("a tombstone cannot be greeted")?;
//!         out.write(|value| {
//!             value.push(self.greeting.as_bytes());
//!             value.push(name);
//!         });
//!         Ok(())
//!     }
//! }
//!
//! weir_udf::export!(Greet);
//!
//! // Runs natively in `cargo test`: no WebAssembly needed.
//! let results = weir_udf::testing::run::<Greet>(r#"{"greeting": "hello "}"#, ["world"]);
//! assert_eq!(results.values(), ["hello world"]);
//! ```
//!
//! What the function does with a message says what becomes of it: emit any number of rows, forward it
//! unchanged, return an error to reject it (it goes to the dead letters with the reason), or do nothing
//! to drop it. Behind that lies the contract of `guest-sdk/wit`: whole batches in flat buffers. The
//! emitter fills the output's buffers directly, so that nothing is allocated for a message, and a batch
//! that is forwarded as a whole goes back without being copied.
//!
//! An aggregator sums up the messages of a key and a window: see [`Aggregate`].
//!
//! * [`testing`] runs a transform or an aggregator natively on messages and hands back what came out.
//! * [`json`] finds and edits values in JSON text without building a tree and without touching numbers.
//! * [`varint`] writes whole numbers in few bytes.
//! * `log` (feature `log`) writes to the host's log.

mod aggregate;
mod batch;
#[cfg(target_arch = "wasm32")]
#[allow(missing_docs, unsafe_code)]
#[doc(hidden)]
pub mod bindings;
mod column;
mod emitter;
#[doc(hidden)]
pub mod guest;
pub mod json;
#[cfg(feature = "log")]
pub mod log;
pub mod testing;
pub mod varint;

pub use aggregate::{Aggregate, Pane, Timing};
pub use batch::{Attributes, Batch, Message, Output, Rejected};
pub use column::{Column, ColumnBuilder};
pub use emitter::{Emitter, Row, Value};

/// The longest list of routes that numbers of one byte leave room for.
pub const ROUTES_MAX: usize = 254;

/// Turns messages into messages. Exported from a module by [`export!`].
///
/// An instance may be thrown away at any time between two batches, several run side by side, and after
/// a failure parts of a batch are handled again: what comes out must depend on the configuration and the
/// message only. Buffers and caches are fine.
pub trait Transform: Sized + 'static {
    /// The step's `config`. Use `#[serde(deny_unknown_fields)]` so that a misspelt name is refused, and
    /// `()` for a transform without configuration.
    type Config: serde::de::DeserializeOwned;

    /// Called once for each instance. An error refuses the configuration: the pipeline does not start,
    /// and its author reads the text.
    fn new(config: Self::Config) -> Result<Self, String>;

    /// The outputs besides the main one that messages may be routed to: at most [`ROUTES_MAX`]. Sinks
    /// name them in `from`.
    fn routes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Handles one message. An error rejects this message with a reason; whatever it emitted is undone.
    fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String>;
}

/// Where a row goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route(u8);

impl Route {
    /// The step's main output.
    pub const MAIN: Route = Route(0);

    /// The output with the given place, counted from 0, in what [`Transform::routes`] returned.
    ///
    /// # Panics
    /// If the place is not below [`ROUTES_MAX`].
    pub const fn nth(place: usize) -> Route {
        assert!(place < ROUTES_MAX, "a module has at most 254 routes");
        Route(place as u8 + 1)
    }

    /// The contract's number: 0 is main, n the n-th name counted from 1.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Makes a module of a [`Transform`]: to be called once, in the crate whose type is `cdylib`.
#[macro_export]
macro_rules! export {
    ($transform:ty) => {
        const _: () = {
            ::std::thread_local! {
                static SLOT: $crate::guest::Slot<$transform> = const { ::std::cell::RefCell::new(None) };
            }
            struct Guest;
            impl $crate::guest::TransformGuest for Guest {
                type Transform = $transform;
                fn with<R>(f: impl FnOnce(&$crate::guest::Slot<$transform>) -> R) -> R {
                    SLOT.with(f)
                }
            }
            $crate::export_world!(transformer, Guest);
        };
    };
}

/// Makes a module of an [`Aggregate`]: to be called once, in the crate whose type is `cdylib`.
#[macro_export]
macro_rules! export_aggregator {
    ($aggregate:ty) => {
        const _: () = {
            ::std::thread_local! {
                static SLOT: $crate::guest::Slot<$crate::guest::Runner<$aggregate>> = const { ::std::cell::RefCell::new(None) };
            }
            struct Guest;
            impl $crate::guest::AggregateGuest for Guest {
                type Aggregate = $aggregate;
                fn with<R>(f: impl FnOnce(&$crate::guest::Slot<$crate::guest::Runner<$aggregate>>) -> R) -> R {
                    SLOT.with(f)
                }
            }
            $crate::export_world!(aggregator, Guest);
        };
    };
}
