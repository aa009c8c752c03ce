//! Bytes to Arrow by a declared schema.
