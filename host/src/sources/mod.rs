//! The sources, one file or folder each. Siblings never import each other.
