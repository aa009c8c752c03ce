//! Finds values in JSON text, and tells where they lie, without building a tree: what isn't touched is
//! copied as it stands, so numbers of any size and precision, spaces and escapes survive.
//!
//! [`Paths`] looks for many JSON pointers in one pass that checks the whole text; [`Field`] is the
//! common case of one. A pointer is that of RFC 6901 (`/user/name`, with `~1` for `/` and `~0` for `~`
//! within a name); a step `*` stands for every element of an array and every member of an object.
//!
//! ```
//! let mut id = weir_udf::json::Field::new("/user/id").unwrap();
//! assert_eq!(id.find(br#"{"user": {"id": 12345678901234567890123}}"#), Ok(Some(&b"12345678901234567890123"[..])));
//! assert_eq!(id.find(br#"{"user": {}}"#), Ok(None));
//! assert_eq!(id.find(b"{").unwrap_err().to_string(), "not JSON: expected a member name at byte 1");
//! ```

mod number;
mod paths;
mod scan;
mod text;

use std::fmt;

pub use number::{compare, is_number};
pub use paths::{Field, Found, Hit, Paths};
pub use text::{inner, quote, unescape};

/// How deep objects and arrays may lie in one another.
pub const DEPTH_MAX: usize = 127;

/// Text that is not JSON, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub message: &'static str,
    /// Where, in bytes from the start.
    pub at: usize,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not JSON: {} at byte {}", self.message, self.at)
    }
}

impl std::error::Error for Error {}

impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}
