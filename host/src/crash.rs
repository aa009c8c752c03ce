//! Named points of the commit protocol at which a test kills the process, as `kill -9` would.
//!
//! Compiled to nothing without the feature `crash-points`. `WEIR_CRASH=manifest.created:3` kills at the third hit;
//! `WEIR_CRASH_LOG=FILE` gets the name of each point hit, so that a test can tell that none went unused.

/// Every point, in the order of the protocol.
pub const POINTS: [&str; 8] = [
    "prepare.before",
    "prepare.after",
    "manifest.before",
    "manifest.created",
    "commit.before",
    "commit.sent",
    "commit.after",
    "ack.after",
];

/// Kills the process here if a test asked for it.
#[cfg(not(feature = "crash-points"))]
pub fn point(_name: &'static str) {}

/// Kills the process here if a test asked for it.
#[cfg(feature = "crash-points")]
pub fn point(name: &'static str) {
    use std::io::Write;
    use std::sync::{LazyLock, Mutex, PoisonError};

    static WANTED: LazyLock<Option<(String, Mutex<u64>)>> = LazyLock::new(|| {
        let wanted = std::env::var("WEIR_CRASH").ok()?;
        let (point, count) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        Some((point.to_string(), Mutex::new(count.parse().ok()?)))
    });
    debug_assert!(POINTS.contains(&name));
    if let Ok(path) = std::env::var("WEIR_CRASH_LOG") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{name}"));
    }
    if let Some((point, left)) = &*WANTED
        && point == name
    {
        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = left.saturating_sub(1);
        if *left == 0 {
            // The signal is delivered before the call returns to this thread.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        }
    }
}
