//! Services that a script of `tests/peers` runs on a port: object stores and PostgreSQL. Each is started once for
//! all tests that want it, and ends when this process does: it watches its standard input.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::http;
use super::weir::PATIENCE;

/// A running service.
pub struct Service {
    port: u16,
    _input: ChildStdin,
    _child: Mutex<Child>,
}

impl Service {
    /// Runs `tests/peers/SCRIPT ARGUMENTS PORT` and waits until the port answers.
    pub fn start(script: &str, arguments: &[&str]) -> Service {
        let path = super::root().join("tests/peers").join(script);
        let port = free_port();
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new(&path);
        command.args(arguments).arg(port.to_string()).stdin(Stdio::piped());
        command.stdout(log.reopen().unwrap()).stderr(log.reopen().unwrap());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let dead = child.try_wait().unwrap();
            if dead.is_some() || began.elapsed() > PATIENCE {
                panic!("{script} did not start ({dead:?}): {}", std::fs::read_to_string(log.path()).unwrap());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Service { port, _input: child.stdin.take().unwrap(), _child: Mutex::new(child) }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A store that speaks S3, with the bucket `weir`.
pub fn s3() -> &'static Service {
    static S3: LazyLock<Service> = LazyLock::new(|| {
        let service = Service::start("object-store/start", &["s3"]);
        http::ask(&service.origin(), "PUT", "/weir", "");
        service
    });
    &S3
}

/// A store that speaks GCS, with the bucket `weir`.
pub fn gcs() -> &'static Service {
    static GCS: LazyLock<Service> = LazyLock::new(|| {
        let service = Service::start("object-store/start", &["gcs"]);
        http::ask(&service.origin(), "POST", "/storage/v1/b?project=weir", r#"{"name": "weir"}"#);
        service
    });
    &GCS
}

/// The address of a PostgreSQL database, behind `postgres` or another scheme.
pub fn postgres(scheme: &str) -> String {
    static POSTGRES: LazyLock<Service> = LazyLock::new(|| Service::start("postgres/start", &[]));
    format!("{scheme}://weir:secret@127.0.0.1:{}/postgres", POSTGRES.port)
}
