//! Operators: what steps are made of.

pub mod aggregate;
pub mod event_time;
mod routes;
pub mod search;
pub mod transform;
