//! The dead letters of a pipeline, read back from the files that its sink wrote. Owns what a letter is, which are asked
//! for, and where they lie; replaying them is [`super::replay`]'s.

use std::collections::{BTreeMap, VecDeque};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use super::spec::{Connector, Spec, typed};
use crate::batch::{BatchBuilder, Origin};
use crate::error::{Error, Result};
use crate::source::{Slice, SourceConnector};
use crate::sources;
use crate::units::Span;

/// A message that could not be handled, as its sink wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Letter {
    /// Made from the place of the letter and what it says: the same whenever it is read.
    #[serde(default)]
    pub id: String,
    /// The partition that the message came from.
    pub partition: u32,
    /// Its place there.
    pub offset: i64,
    /// When the thing happened that it tells of, ms since the Unix epoch.
    pub event_time_ms: i64,
    /// When the source's system took it, ms since the Unix epoch.
    pub published_ms: i64,
    /// Its key, if it has one that is text.
    #[serde(default)]
    pub key: Option<String>,
    /// Its key, where that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_base64: Option<String>,
    /// Its payload, if it has one that is text.
    #[serde(default)]
    pub value: Option<String>,
    /// Its payload, where that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
    /// The step, source or sink that could not handle it.
    #[serde(default)]
    pub step: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// Digest of the module that refused it or failed at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// What else it carries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// The number of the replay that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<u64>,
}

/// A named value of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// The value, if that is text.
    #[serde(default)]
    pub value: Option<String>,
    /// The value, where that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_base64: Option<String>,
}

impl Letter {
    /// Reads a line of the sink.
    fn parse(line: &[u8], file: &str, number: i64) -> Result<Letter> {
        let wrong = |e: serde_json::Error| {
            Error::config("a line is no dead letter: was something else written to the file?")
                .with("file", file)
                .with("line", number + 1)
                .because(e)
        };
        let mut letter: Letter = serde_json::from_slice(line).map_err(wrong)?;
        let mut hash = Xxh3::new();
        hash.update(file.as_bytes());
        hash.update(&number.to_le_bytes());
        hash.update(line);
        letter.id = format!("{:016x}", hash.digest());
        Ok(letter)
    }

    /// Appends the message as it was before it became a letter.
    pub(super) fn restore(&self, into: &mut BatchBuilder) -> Result<()> {
        let (key, value) = (bytes(&self.key, &self.key_base64)?, bytes(&self.value, &self.value_base64)?);
        let origin = Origin { partition: self.partition, offset: self.offset, published: self.published_ms };
        into.push(key.as_deref(), value.as_deref(), origin);
        // Older reasons stay with the older letter.
        for attribute in self.attributes.iter().filter(|attribute| !attribute.name.starts_with("weir.")) {
            into.attribute(&attribute.name, bytes(&attribute.value, &attribute.value_base64)?.as_deref());
        }
        Ok(())
    }
}

fn bytes(text: &Option<String>, encoded: &Option<String>) -> Result<Option<Vec<u8>>> {
    let wrong = |e| Error::config("a dead letter's base64 is damaged").because(e);
    match encoded {
        Some(encoded) => STANDARD.decode(encoded).map(Some).map_err(wrong),
        None => Ok(text.clone().map(String::into_bytes)),
    }
}

/// Which letters are meant. What is not set means any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// This one.
    pub id: Option<String>,
    /// Of this step, source or sink.
    pub step: Option<String>,
    /// Of the module whose digest begins so.
    pub module: Option<String>,
    /// With this in the reason.
    pub reason: Option<String>,
    /// Published at this time or later, ms since the Unix epoch.
    pub since_ms: Option<i64>,
    /// Published before this time.
    pub until_ms: Option<i64>,
}

impl Filter {
    /// Whether a letter is meant.
    pub fn takes(&self, letter: &Letter) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.id, &letter.id)
            && is(&self.step, &letter.step)
            && self.module.as_ref().is_none_or(|digest| letter.module.as_ref().is_some_and(|of| of.starts_with(digest)))
            && self.reason.as_ref().is_none_or(|text| letter.reason.contains(text))
            && self.since_ms.is_none_or(|since| letter.published_ms >= since)
            && self.until_ms.is_none_or(|until| letter.published_ms < until)
    }
}

/// A moment as a person writes it: `2h` is two hours before now, anything else a time such as `2026-12-03T04:34:15Z`.
pub fn moment(text: &str, now_ms: i64) -> Result<i64> {
    if let Ok(span) = text.parse::<Span>() {
        return Ok(now_ms.saturating_sub(i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX)));
    }
    let time = chrono::DateTime::parse_from_rfc3339(text);
    time.map(|time| time.timestamp_millis()).map_err(|_| {
        Error::config("no time: write `2h` for two hours ago, or a time with its offset as 2026-12-03T04:34:15Z")
            .with("time", text)
    })
}

/// Hands every letter of a pipeline to `take`, file by file.
pub(super) async fn each(spec: &Spec, mut take: impl FnMut(Letter)) -> Result<()> {
    let mut places = Vec::new();
    for sink in spec.sinks.iter().filter(|sink| sink.from.iter().any(|from| from == "dead_letter")) {
        places.extend(patterns(sink)?.into_iter().map(|pattern| (sink, pattern)));
    }
    if places.is_empty() {
        return Err(Error::config(
            "the pipeline keeps no dead letters that can be read again: add a file sink with `from: dead_letter`, to which steps reject",
        ));
    }
    // A pattern may find what another one has found.
    let mut seen = std::collections::HashSet::new();
    for (sink, pattern) in places {
        let at = |e: Error| Error::new(e.kind(), "cannot read the dead letters").with("sink", &sink.name).because(e);
        read(sink, &pattern, &mut |letter| {
            if seen.insert(letter.id.clone()) {
                take(letter);
            }
        })
        .await
        .map_err(at)?;
    }
    Ok(())
}

/// The path of a file sink with a word in it: a replay writes to files of its own beside those of the pipeline.
pub(super) fn path_with(path: &str, word: &str) -> String {
    if path.contains("{epoch}") {
        return path.replacen("{epoch}", &format!("{word}-{{epoch}}"), 1);
    }
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    // Before all endings: `.jsonl.gz` are two of them. A leading dot begins none.
    let ending = path[name..].char_indices().skip(1).find(|(_, c)| *c == '.').map_or(path.len(), |(at, _)| name + at);
    format!("{}.{word}{}", &path[..ending], &path[ending..])
}

/// Where the letters of a sink lie, those of replays too: patterns of the file source.
fn patterns(sink: &Connector) -> Result<Vec<String>> {
    let settings = &sink.settings;
    if sink.kind != "file" || settings["format"] == "lines" {
        return Err(Error::config(
            "dead letters are read back from a file sink with `format: envelope` only, which is its default; read this step's sink with its own tools",
        )
        .with("sink", &sink.name)
        .with("kind", &sink.kind));
    }
    let path = settings["path"].as_str().unwrap_or_default();
    let any = |path: String| ["{epoch}", "{worker}", "{task}"].iter().fold(path, |path, name| path.replace(name, "*"));
    Ok(vec![any(path.to_string()), any(path_with(path, "replay-*"))])
}

async fn read(sink: &Connector, pattern: &str, take: &mut impl FnMut(Letter)) -> Result<()> {
    let mut settings = json!({"path": pattern, "format": "json_lines", "max_line": "1GiB"});
    for key in ["compression", "options"] {
        if !sink.settings[key].is_null() {
            settings[key] = sink.settings[key].clone();
        }
    }
    let connector = sources::file::Connector::new(typed(settings, &sink.place)?, &*sink.name)?;
    if !connector.finds_any().await? {
        return Ok(());
    }
    let position = connector.start(0, 1).await?;
    let names: Vec<&String> = position.0.keys().collect();
    let mut source = connector.open(Slice::WHOLE, &position).await?;
    while let Some(batch) = source.next().await? {
        for row in 0..batch.len() {
            let name = names.get(batch.partitions[row] as usize).map_or(pattern, |name| name.as_str());
            take(Letter::parse(batch.value(row).unwrap_or_default(), name, batch.offsets[row])?);
        }
    }
    Ok(())
}

/// Letters that were found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Found {
    /// How many there are.
    pub total: u64,
    /// Of these, those that no replay has.
    pub open: u64,
    /// How many open letters each step, source or sink has.
    pub by_step: BTreeMap<String, u64>,
    /// The last ones.
    pub letters: VecDeque<Letter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter() -> Letter {
        let line = br#"{"partition":1,"offset":7,"event_time_ms":50,"published_ms":40,"key_base64":"a/8=","value":"x","step":"mask",
            "reason":"not JSON","module":"abcd","attributes":[{"name":"h","value":null},{"name":"weir.reason","value":"older"}]}"#;
        Letter::parse(line, "dead.jsonl", 3).unwrap()
    }

    #[test]
    fn a_letter_becomes_the_message_that_it_was() {
        let mut builder = BatchBuilder::new(0, 0);
        letter().restore(&mut builder).unwrap();
        let batch = builder.finish(0);
        assert_eq!((batch.key(0), batch.value(0)), (Some(&b"k\xff"[..]), Some(&b"x"[..])));
        assert_eq!((batch.partitions[0], batch.offsets[0], batch.published[0]), (1, 7, 40));
        assert_eq!(batch.attributes.of(0).collect::<Vec<_>>(), [("h", None)], "without the host's own");
    }

    #[test]
    fn a_filter_takes_what_meets_all_that_is_set() {
        let takes = |filter: Filter| filter.takes(&letter());
        assert!(takes(Filter::default()));
        assert!(takes(Filter { step: Some("mask".into()), module: Some("ab".into()), ..Filter::default() }));
        assert!(takes(Filter { since_ms: Some(40), until_ms: Some(41), reason: Some("JSON".into()), ..Filter::default() }));
        assert!(!takes(Filter { step: Some("mask".into()), module: Some("b".into()), ..Filter::default() }));
        assert!(!takes(Filter { since_ms: Some(41), ..Filter::default() }));
        assert!(!takes(Filter { until_ms: Some(40), ..Filter::default() }));
        assert!(!takes(Filter { reason: Some("json".into()), ..Filter::default() }));
    }

    #[test]
    fn the_same_text_in_another_place_is_another_letter() {
        let line = br#"{"partition":0,"offset":0,"event_time_ms":0,"published_ms":0,"value":null}"#;
        let id = |file: &str, number: i64| Letter::parse(line, file, number).unwrap().id;
        assert_eq!(id("a", 0), id("a", 0));
        assert_ne!(id("a", 0), id("a", 1));
        assert_ne!(id("a", 0), id("b", 0));
        let error = Letter::parse(b"{}", "a", 4).unwrap_err().to_string();
        assert!(error.contains("file=a line=5"), "{error}");
    }

    #[test]
    fn replays_write_beside_the_files_of_the_pipeline() {
        let with = |path: &str| path_with(path, "replay-3");
        assert_eq!(with("out.jsonl"), "out.replay-3.jsonl");
        assert_eq!(with("./a.b/out.jsonl.gz"), "./a.b/out.replay-3.jsonl.gz");
        assert_eq!(with("/data/.hidden"), "/data/.hidden.replay-3");
        assert_eq!(with("s3://b/{task}/{epoch}-{worker}.jsonl"), "s3://b/{task}/replay-3-{epoch}-{worker}.jsonl");
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        assert_eq!(moment("2m", 200_000).unwrap(), 80_000);
        assert_eq!(moment("1970-01-01T00:01:00+00:00", 0).unwrap(), 60_000);
        assert!(moment("yesterday", 0).unwrap_err().to_string().contains("two hours ago"));
    }
}
