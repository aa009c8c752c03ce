//! The one error type of the host. Its kind names the reaction, not the origin: only the worker
//! and the pipeline match on it. Messages are lower-case, variables come last as `name=value`.

use std::error::Error as StdError;
use std::fmt;

/// What whoever receives the error has to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The outside failed for now: retry with backoff, then restart from the checkpoint.
    Transient,
    /// One message is at fault: dead-letter it.
    BadEvent,
    /// The guest trapped, ran out of time or memory, or answered nonsense: discard the instance.
    Guest,
    /// The person has to change something: refuse, leave what runs untouched. Exit code 2.
    Config,
    /// Stored state contradicts itself: stop, never skip.
    Corrupt,
    /// Another process owns this log: stop at once. Exit code 3.
    Fenced,
    /// An invariant of ours does not hold.
    Bug,
}

impl ErrorKind {
    /// The kind's name as logs and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Transient => "transient",
            ErrorKind::BadEvent => "bad_event",
            ErrorKind::Guest => "guest",
            ErrorKind::Config => "config",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Bug => "bug",
        }
    }
}

/// An error with its kind, what happened, and the variables that tell which thing it happened to.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of everything that can fail in the host.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`. The message is lower-case and carries no variables: see [`Error::with`].
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner { kind, message: message.into(), context: Vec::new(), source: None }))
    }

    /// See [`ErrorKind::Transient`].
    pub fn transient(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Transient, message)
    }
    /// See [`ErrorKind::BadEvent`].
    pub fn bad_event(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::BadEvent, message)
    }
    /// See [`ErrorKind::Guest`].
    pub fn guest(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Guest, message)
    }
    /// See [`ErrorKind::Config`].
    pub fn config(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Config, message)
    }
    /// See [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corrupt, message)
    }
    /// See [`ErrorKind::Fenced`].
    pub fn fenced(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Fenced, message)
    }
    /// See [`ErrorKind::Bug`].
    pub fn bug(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Bug, message)
    }

    /// Adds a variable, shown as `name=value` behind the message.
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((name, value.to_string()));
        self
    }

    /// Adds what caused it, shown behind a colon.
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error as another kind: for the few places that know better than where it arose.
    pub fn as_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (name, value) in &self.0.context {
            write!(f, " {name}={value}")?;
        }
        let mut cause: Option<&(dyn StdError + 'static)> = self.source();
        let mut shown = String::new();
        while let Some(error) = cause {
            // Many libraries repeat their source's text in their own: say each thing once.
            let text = error.to_string();
            if !shown.contains(&text) {
                write!(f, ": {text}")?;
                shown = text;
            }
            // Our own errors print their chain themselves.
            cause = if error.is::<Error>() { None } else { error.source() };
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_message_variables_and_each_cause_once() {
        let io = std::io::Error::other("disk on fire");
        let error = Error::transient("cannot write the manifest").with("path", "a/b").with("epoch", 3).because(io);
        assert_eq!(error.to_string(), "cannot write the manifest path=a/b epoch=3: disk on fire");
        let outer = Error::config("cannot start").because(error);
        assert_eq!(outer.to_string(), "cannot start: cannot write the manifest path=a/b epoch=3: disk on fire");
    }
}
