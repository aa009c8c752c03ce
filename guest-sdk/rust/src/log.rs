//! Lines in the host's log. A module that uses this imports the host's `log`, and the step that runs it
//! must say `grants: [log]`. Natively, lines go to standard error.
//!
//! Lines past the step's `limits.log` of one call are dropped: don't log for each message.

/// Every detail.
pub fn trace(line: impl AsRef<str>) {
    write(Level::Trace, line.as_ref());
}

/// For whoever looks into a fault.
pub fn debug(line: impl AsRef<str>) {
    write(Level::Debug, line.as_ref());
}

/// Worth knowing in normal operation.
pub fn info(line: impl AsRef<str>) {
    write(Level::Info, line.as_ref());
}

/// Works on, though something looks wrong.
pub fn warn(line: impl AsRef<str>) {
    write(Level::Warn, line.as_ref());
}

/// Something failed.
pub fn error(line: impl AsRef<str>) {
    write(Level::Error, line.as_ref());
}

/// Logs a panic before it becomes a trap, since a trap carries no text.
pub(crate) fn report_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| error(panic.to_string())));
}

#[cfg(target_arch = "wasm32")]
use crate::bindings::transformer::weir::udf::log::{Level, log as write};

#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

#[cfg(not(target_arch = "wasm32"))]
fn write(level: Level, line: &str) {
    eprintln!("{level:?}: {line}");
}
