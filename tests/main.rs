//! The one test binary.
mod simulation;
