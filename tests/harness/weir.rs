//! The `weir` binary as a person runs it, in a folder of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before a test gives up on it. Not a measure of speed.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// The binary that `cargo build` put beside the tests.
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("weir");
    assert!(path.is_file(), "{} is missing: run `make test`, which builds it with its crash points", path.display());
    path
}

/// A folder with a pipeline file, and what `weir` is run with.
pub struct Job {
    pub folder: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The summary of `--json`.
    pub fn summary(&self) -> Value {
        serde_json::from_str(self.stdout.trim()).unwrap_or_else(|e| panic!("no summary ({e}) in: {self:?}"))
    }

    /// Asserts that all went well.
    pub fn ok(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Asserts the exit code, and that the message has all of the words.
    pub fn refused(self, code: i32, words: &[&str]) -> Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {}", self.stderr);
        }
        self
    }
}

impl Job {
    /// A job with this pipeline file. `{dir}` in it stands for the job's folder.
    pub fn new(pipeline: &str) -> Job {
        let job = Job { folder: tempfile::tempdir().unwrap(), environment: BTreeMap::new() };
        let text = pipeline.replace("{dir}", job.folder.path().to_str().unwrap());
        fs::write(job.path("pipeline.yaml"), text).unwrap();
        job
    }

    /// A path in the job's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the job's folder.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Job {
        if let Some(parent) = self.path(name).parent() {
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(self.path(name), content).unwrap();
        self
    }

    /// Reads a file of the job's folder.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Lets the sources of the pipeline file go on for ever, instead of ending with what is there now. Answers with the file
    /// as it was.
    pub fn endless(&self) -> String {
        let file = self.read("pipeline.yaml");
        assert!(file.contains(", until: latest"), "{file}");
        self.write("pipeline.yaml", file.replace(", until: latest", ""));
        file
    }

    /// Sets a variable for every run from here on.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Job {
        self.environment.insert(name.to_string(), value.to_string());
        self
    }

    /// Takes a variable away again.
    pub fn unset(&mut self, name: &str) -> &mut Job {
        self.environment.remove(name);
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.folder.path()).env("RUST_BACKTRACE", "1");
        command.env("WEIR_CACHE_DIR", super::cache().join("test-modules"));
        command.envs(&self.environment).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `weir ARGUMENTS` to its end.
    pub fn weir(&self, arguments: &[&str]) -> Ended {
        Running(self.command(arguments).spawn().unwrap()).wait()
    }

    /// Runs the pipeline to its end.
    pub fn run(&self) -> Ended {
        self.weir(&["run", "pipeline.yaml", "--json"])
    }

    /// Starts the pipeline and leaves it running.
    pub fn start(&self) -> Running {
        self.start_with(&["run", "pipeline.yaml", "--json"])
    }

    /// Starts `weir ARGUMENTS` and leaves it running.
    pub fn start_with(&self, arguments: &[&str]) -> Running {
        Running(self.command(arguments).spawn().unwrap())
    }
}

/// A `weir` that runs. Dropping it kills it.
pub struct Running(Child);

impl Running {
    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for the end; panics with what it said when it never comes.
    pub fn wait(mut self) -> Ended {
        use std::io::Read;
        use std::os::unix::process::ExitStatusExt;
        let mut out = self.0.stdout.take().unwrap();
        let mut err = self.0.stderr.take().unwrap();
        let out = std::thread::spawn(move || {
            let mut text = Vec::new();
            out.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let err = std::thread::spawn(move || {
            let mut text = Vec::new();
            err.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break Some(status);
            }
            if began.elapsed() > PATIENCE {
                self.0.kill().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
        match status {
            Some(status) => Ended { code: status.code(), signal: status.signal(), stdout, stderr },
            None => panic!("did not end: {stderr}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `done` says so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
