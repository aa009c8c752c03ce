//! Fuzzing: the entries, and a test that holds what was found. The fuzzer itself is `main.rs`, built by `tests/fuzz/run` only.

mod corpus;
mod entries;
