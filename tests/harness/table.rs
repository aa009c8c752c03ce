//! Tables read back by programs that nobody here wrote: PyIceberg and DuckDB.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// The Python with the readers; made on first use.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    let setup = super::root().join("tests/peers/python/setup");
    let done = Command::new(&setup).output().unwrap_or_else(|e| panic!("{}: {e}", setup.display()));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    super::cache().join("peers/python/bin/python")
});

/// Runs a script of `tests/peers/python` and returns the JSON that it prints.
pub fn python(script: &str, arguments: &[&str]) -> Value {
    let path = super::root().join("tests/peers/python").join(script);
    let done = Command::new(&*PYTHON).arg(&path).args(arguments).output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{script} {arguments:?}: {out}{}", String::from_utf8_lossy(&done.stderr));
    let last = out.lines().rev().find(|line| line.starts_with(['{', '['])).unwrap_or_else(|| panic!("no JSON in {out}"));
    serde_json::from_str(last).unwrap()
}

/// A SQLite catalog with its warehouse, as a pipeline below `folder` makes it.
pub fn sqlite(folder: &Path) -> [String; 4] {
    let uri = format!("sqlite:///{}", folder.join("warehouse/catalog.db").display());
    let warehouse = format!("file://{}", folder.join("warehouse").display());
    ["--catalog".into(), "sql".into(), uri, warehouse]
}
