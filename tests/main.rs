//! The one test binary.
mod bad_input;
mod connectors;
mod guests;
mod harness;
mod kafka_to_iceberg;
mod languages;
mod reference;
mod simulation;
mod tables;
mod tidy;
mod windows;
