//! A real Iceberg REST catalog: Apache Iceberg's own Java handlers, started once for all tests that want it.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// A running catalog. It ends when this process does, however it does: it watches its standard input.
pub struct Catalog {
    uri: String,
    _folder: tempfile::TempDir,
    _input: Mutex<ChildStdin>,
    _child: Mutex<Child>,
}

impl Catalog {
    /// Its address.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Has the next `count` commits of a table answered with `status` (0: hung up on), `before` or `after` they took effect.
    pub fn fail(&self, when: &str, status: u32, count: u32) {
        super::http::ask(&self.uri, "POST", &format!("/fault?when={when}&status={status}&count={count}"), "");
    }

    /// How many of the commits that [`Catalog::fail`] asked for are still to come.
    pub fn faults_left(&self) -> u32 {
        super::http::ask(&self.uri, "GET", "/fault", "").trim().parse().unwrap()
    }

    /// A catalog of one's own.
    pub fn start() -> Catalog {
        let folder = tempfile::tempdir().unwrap();
        let script = super::root().join("tests/peers/iceberg-rest/start");
        let mut child = Command::new(&script)
            .arg("0")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", script.display()));
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(|line| line.ok())
            .find_map(|line| {
                said.push_str(&line);
                said.push('\n');
                line.split("listening on ").nth(1).map(|address| address.trim().to_string())
            })
            .unwrap_or_else(|| panic!("the catalog did not start: {said}"));
        // What it says later must not fill the pipes.
        std::thread::spawn(move || lines.for_each(drop));
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || errors.lines().for_each(drop));
        let input = child.stdin.take().unwrap();
        Catalog { uri: format!("http://{address}"), _folder: folder, _input: Mutex::new(input), _child: Mutex::new(child) }
    }
}

/// The one catalog of the test run.
pub fn catalog() -> &'static Catalog {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(Catalog::start);
    &CATALOG
}
