//! Connectors by themselves, against the real services.

mod kafka_secure;
mod kafka_sink;
mod kafka_source;

use weir::error::{Error, ErrorKind};

/// Asserts that something was refused, with words of what the error says.
fn refused<T>(result: Result<T, Error>, kind: ErrorKind, words: &[&str]) {
    let error = result.err().expect("refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "`{word}` is not in: {error}");
    }
}
