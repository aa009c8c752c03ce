//! Style that matters, checked by a test instead of by a reader: layers, fences, sizes, documents.
//! Each rule is a function from a file to complaints, and each is shown a file that it must complain of.

mod code;
mod documents;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, with `/`, and its text.
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    #[cfg(test)]
    fn made_up(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: text.to_string() }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Folders with nothing of ours in them (`.git` is a file in a work tree).
const SKIPPED: [&str; 6] = [".git", "target", "node_modules", "demo-data", "bench-data", "__pycache__"];

/// Every text file of the repository.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|file| file.path == "host/src/lib.rs"), "the walk finds the host");
    found
}

fn walk(folder: &Path, found: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if SKIPPED.contains(&entry.file_name().to_str().unwrap_or_default()) {
            continue;
        }
        if kind.is_dir() {
            walk(&path, found);
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
            found.push(File { path, text });
        }
    }
}

/// Runs a rule over the repository and shows all complaints at once.
fn hold(rule: impl Fn(&File) -> Vec<String>) {
    let complaints: Vec<String> = files().iter().flat_map(rule).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}
