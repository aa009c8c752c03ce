//! The one test binary.
mod bad_input;
mod compiled_languages;
mod connectors;
mod guests;
mod harness;
mod kafka_to_iceberg;
mod reference;
mod simulation;
mod tables;
mod tidy;
mod windows;
