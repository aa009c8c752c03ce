//! Connectors by themselves, against the real services.

mod kafka_sink;
mod kafka_source;
