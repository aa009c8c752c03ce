//! The operators that a pipeline's steps are made of, one file each. Siblings never import each other.

pub mod transform;
