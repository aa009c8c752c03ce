//! Reads commands and configurations.

use serde::Deserialize;

/// What configure is told.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// When to misbehave: `configure`.
    pub on: Option<String>,
    /// How.
    #[serde(rename = "do")]
    pub act: String,
    /// Routes to name.
    pub routes: Vec<String>,
}

/// Reads a configuration; `null` is an empty one.
pub fn config(text: &str) -> Result<Config, String> {
    let config: Option<Config> = serde_json::from_str(text).map_err(|error| format!("config: {error}"))?;
    let config = config.unwrap_or_default();
    match config.on.as_deref() {
        None | Some("configure") => Ok(config),
        Some(other) => Err(format!("config: on: `{other}` is not `configure`")),
    }
}

/// The command of a message, and its number.
pub fn command(value: Option<&[u8]>) -> (&str, Option<usize>) {
    let text = value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
    let mut words = text.trim_matches('"').split_whitespace();
    (words.next().unwrap_or_default(), words.next().and_then(|number| number.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_may_carry_a_number() {
        assert_eq!(command(Some(b"grow 7 x")), ("grow", Some(7)));
        assert_eq!(command(Some(b"panic\n")), ("panic", None));
        assert_eq!(command(Some(b"\"stamp 12\"")), ("stamp", Some(12)), "as JSON has text");
        assert_eq!(command(Some(b"\xff")), ("", None));
        assert_eq!(command(None), ("", None));
    }

    #[test]
    fn a_configuration_may_be_missing() {
        assert_eq!(config("null"), Ok(Config::default()));
        assert_eq!(config(r#"{"on":"configure","do":"loop"}"#).unwrap().act, "loop");
        assert_eq!(config(r#"{"on":"start"}"#), Err("config: on: `start` is not `configure`".to_string()));
    }
}
