//! The one test binary.
mod bad_input;
mod connectors;
mod examples;
mod fuzz;
mod guests;
mod harness;
mod kafka_to_iceberg;
mod kafka_to_kafka;
mod languages;
mod manifests;
mod metrics;
mod object_stores;
mod reference;
mod simulation;
mod tables;
mod tidy;
mod windows;
