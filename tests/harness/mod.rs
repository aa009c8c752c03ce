//! What the tests share: the built binary, guests, and the real services around it.

pub mod http;
pub mod kafka;
pub mod pubsub;
pub mod rest;
pub mod service;
pub mod table;
pub mod trial;
pub mod versions;
pub mod weir;

use std::path::{Path, PathBuf};

/// The repository's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// The cache of downloaded services and build output, outside the repository.
pub fn cache() -> PathBuf {
    match std::env::var_os("WEIR_CACHE") {
        Some(folder) => folder.into(),
        None => PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache/weir"),
    }
}

/// A guest, as `udfs/build` or a script in `examples/languages` left it.
pub fn guest(name: &str) -> PathBuf {
    let path = root().join("target/udfs").join(format!("{name}.wasm"));
    assert!(path.is_file(), "{} is missing: run `make udfs languages` first, or `make test`, which does", path.display());
    path
}

/// How much a test does: `make prove` sets WEIR_PROVE and gets the full figures.
pub fn scaled<T>(quick: T, full: T) -> T {
    if std::env::var_os("WEIR_PROVE").is_some() { full } else { quick }
}
