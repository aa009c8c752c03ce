//! The pipeline file: YAML to a checked description. Owns the names in the file, defaults, `${ENV}`
//! and `--set`; opens nothing. Every error names the place in the file and the nearest known name.

mod numbers;

use std::collections::BTreeMap;
use std::path::Path;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use self::numbers::Written;
use super::keyed::{EventTimeSpec, KeySpec, WatermarkSpec, WindowSpec};
use crate::error::{Error, Result};
use crate::units::{Size, Span};
use crate::wasm::Limits;

/// What is promised of each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Every message takes effect once in every sink, whatever is killed.
    #[default]
    ExactlyOnce,
    /// Every message takes effect; after a crash some take effect again.
    AtLeastOnce,
}

/// Where and how often progress is made durable.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// A folder, `s3://bucket/prefix` or `gs://bucket/prefix`.
    pub store: String,
    /// Time between two epochs: how often sinks commit.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Options of the object store, by object_store's names. Credentials are taken from the environment too.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

fn default_interval() -> Span {
    Span(std::time::Duration::from_secs(5))
}

/// A step: code that handles each batch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// The step's name: in metrics, logs, dead letters and commands.
    pub name: String,
    /// Path of the WebAssembly module of a step that turns messages into messages. A step has this or `aggregate`.
    #[serde(default)]
    pub transform: Option<String>,
    /// Path of the WebAssembly module of a step that sums up the messages of a key and window.
    #[serde(default)]
    pub aggregate: Option<String>,
    /// By what messages are put together: a JSON pointer such as `/userId`, a list of them, `{attribute: NAME}`, or `message`
    /// for the message's own key. Default: all messages are together.
    #[serde(default)]
    pub key: Option<KeySpec>,
    /// The windows of an `aggregate` step.
    #[serde(default)]
    pub window: Option<WindowSpec>,
    /// Put the key, `window_start` and `window_end` (and `pane` and `timing`, where windows fire more than once) into rows that are
    /// JSON objects.
    #[serde(default = "yes")]
    pub columns: bool,
    /// Memory for the state of an `aggregate` step, over all workers; what is beyond lies in the checkpoint store.
    #[serde(default = "default_state_memory")]
    pub state_memory: Size,
    /// Handed to the module's `configure` as JSON.
    #[serde(default)]
    config: Value,
    /// `config` as text, its numbers as they are written.
    #[serde(skip)]
    config_json: String,
    /// What an instance may use.
    #[serde(default)]
    pub limits: Limits,
    /// Imports that the module may use: `log`.
    #[serde(default)]
    pub grants: Vec<String>,
}

impl StepSpec {
    /// What the module's `configure` is handed.
    pub fn config_json(&self) -> &str {
        &self.config_json
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The pipeline's name: letters, digits, `-` and `_`. Names its log and its marks in sinks.
    pipeline: String,
    /// What is promised of each message.
    #[serde(default)]
    delivery: Delivery,
    /// Threads that run steps and sinks. Default: the machine's cores.
    workers: Option<u32>,
    /// Processes that share the sources' partitions, each run with `--task I/N`.
    #[serde(default = "one")]
    tasks: u32,
    /// Restarts from the checkpoint in a row, without an epoch between them, before the pipeline gives up.
    #[serde(default = "default_restarts")]
    restarts: u32,
    /// Where progress is kept.
    checkpoint: Checkpoint,
    /// Where messages come from.
    sources: Vec<Value>,
    /// What is done with them, in order.
    #[serde(default)]
    steps: Vec<StepSpec>,
    /// Where rows go.
    sinks: Vec<Value>,
}

fn yes() -> bool {
    true
}

fn default_state_memory() -> Size {
    Size(512 << 20)
}

fn one() -> u32 {
    1
}

fn default_restarts() -> u32 {
    10
}

/// A source or sink as the file has it: its kind, its name, the routes it takes, and its own settings.
#[derive(Clone, Debug)]
pub struct Connector {
    /// `kafka`, `iceberg`, …
    pub kind: String,
    /// Its name: the kind, numbered where there are several, unless `name` says otherwise.
    pub name: String,
    /// Names of the routes that a sink takes.
    pub from: Vec<String>,
    /// Where the event time of a source's messages stands.
    pub event_time: Option<EventTimeSpec>,
    /// The watermark of a source.
    pub watermark: WatermarkSpec,
    /// Settings for the connector.
    pub settings: Value,
    /// Where in the file this is, for errors.
    pub place: String,
}

/// A checked pipeline file.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The pipeline's name.
    pub pipeline: String,
    /// What is promised of each message.
    pub delivery: Delivery,
    /// Worker threads.
    pub workers: u32,
    /// Processes.
    pub tasks: u32,
    /// Restarts in a row.
    pub restarts: u32,
    /// Where progress is kept.
    pub checkpoint: Checkpoint,
    /// Sources in order.
    pub sources: Vec<Connector>,
    /// Steps in order.
    pub steps: Vec<StepSpec>,
    /// Sinks in order.
    pub sinks: Vec<Connector>,
}

impl Spec {
    /// Reads a pipeline file; `set` holds the `a.b=c` of the command line.
    pub fn load(path: &Path, set: &[String]) -> Result<Spec> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::config("cannot read the pipeline file").with("path", path.display()).because(e))?;
        Spec::parse(&text, set, &|name| std::env::var(name).ok())
            .map_err(|e| Error::new(e.kind(), "the pipeline file is wrong").with("file", path.display()).because(e))
    }

    /// Reads the text of a pipeline file.
    pub fn parse(text: &str, set: &[String], environment: &dyn Fn(&str) -> Option<String>) -> Result<Spec> {
        let mut value: Value =
            serde_saphyr::from_str(text).map_err(|e| Error::config("not valid YAML").because(e.to_string()))?;
        substitute(&mut value, environment, "")?;
        let mut written = Written::read(text).unwrap_or_default();
        for assignment in set {
            assign(&mut value, &mut written, assignment)?;
        }
        let mut file: File = typed(value, "")?;
        for (number, step) in file.steps.iter_mut().enumerate() {
            let written = written.at("steps").at(&number.to_string()).at("config");
            step.config_json = if step.config.is_null() { "{}".to_string() } else { written.json(&step.config) };
        }
        let name_ok =
            !file.pipeline.is_empty() && file.pipeline.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if !name_ok {
            return Err(
                Error::config("the pipeline's name may have letters, digits, `-` and `_`").with("pipeline", file.pipeline)
            );
        }
        if file.sources.is_empty() || file.sinks.is_empty() {
            return Err(Error::config("a pipeline needs at least one source and one sink"));
        }
        if file.tasks == 0 || file.workers == Some(0) {
            return Err(Error::config("`tasks` and `workers` start at 1"));
        }
        if file.checkpoint.interval.0.is_zero() {
            return Err(Error::config("`checkpoint.interval` must be longer than nothing: 100ms is a short one"));
        }
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let spec = Spec {
            pipeline: file.pipeline,
            delivery: file.delivery,
            workers: file.workers.unwrap_or(cores),
            tasks: file.tasks,
            restarts: file.restarts,
            checkpoint: file.checkpoint,
            sources: connectors(file.sources, "sources", &SOURCES)?,
            steps: file.steps,
            sinks: connectors(file.sinks, "sinks", &SINKS)?,
        };
        unique("step", spec.steps.iter().map(|s| &s.name))?;
        unique("source", spec.sources.iter().map(|s| &s.name))?;
        unique("sink", spec.sinks.iter().map(|s| &s.name))?;
        Ok(spec)
    }
}

/// Kinds of sources.
pub const SOURCES: [&str; 5] = ["kafka", "pubsub", "generator", "file", "stdin"];
/// Kinds of sinks.
pub const SINKS: [&str; 6] = ["iceberg", "kafka", "pubsub", "file", "stdout", "blackhole"];

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::config(format!("two {what}s have the same name: give one another `name`")).with("name", name));
        }
    }
    Ok(())
}

fn connectors(list: Vec<Value>, section: &str, kinds: &[&str]) -> Result<Vec<Connector>> {
    let mut out: Vec<Connector> = Vec::new();
    for (number, value) in list.into_iter().enumerate() {
        let place = format!("{section}[{number}]");
        let shape = || Error::config("expected one connector, as in `- kafka: {…}`").with("at", &place);
        let Value::Object(map) = value else { return Err(shape()) };
        let mut entries = map.into_iter();
        let (Some((kind, settings)), None) = (entries.next(), entries.next()) else { return Err(shape()) };
        if !kinds.contains(&kind.as_str()) {
            return Err(Error::config(unknown("connector", &kind, kinds)).with("at", place));
        }
        let mut settings = match settings {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            _ => return Err(Error::config("expected the connector's settings as a map").with("at", format!("{place}.{kind}"))),
        };
        let place = format!("{place}.{kind}");
        let name = match settings.remove("name") {
            Some(name) => typed(name, &format!("{place}.name"))?,
            None => match out.iter().filter(|c| c.kind == kind).count() {
                0 => kind.clone(),
                n => format!("{kind}_{}", n + 1),
            },
        };
        let from = match settings.remove("from") {
            Some(_) if section == "sources" => return Err(Error::config("a source takes no `from`").with("at", place)),
            Some(Value::String(one)) => vec![one],
            Some(list) => typed(list, &format!("{place}.from"))?,
            None => vec!["main".to_string()],
        };
        let mut generic = |key: &str| match settings.remove(key) {
            Some(_) if section == "sinks" => Err(Error::config(format!("a sink takes no `{key}`")).with("at", &place)),
            other => Ok(other),
        };
        let (event_time, watermark) = (generic("event_time")?, generic("watermark")?);
        let event_time = event_time.map(|value| typed(value, &format!("{place}.event_time"))).transpose()?;
        let watermark = watermark.map(|value| typed(value, &format!("{place}.watermark"))).transpose()?.unwrap_or_default();
        out.push(Connector { kind, name, from, event_time, watermark, settings: Value::Object(settings), place });
    }
    Ok(out)
}

/// A part of the file as its type, with the place and the nearest name in the error.
pub fn typed<T: DeserializeOwned>(value: Value, place: &str) -> Result<T> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = match error.path().to_string() {
            path if path == "." => place.to_string(),
            path if place.is_empty() => path,
            path => format!("{place}.{path}"),
        };
        let text = error.inner().to_string();
        let at = if path.is_empty() { "top level".to_string() } else { path };
        Error::config(nearest(&text).unwrap_or(text)).with("at", at)
    })
}

/// Turns serde's ``unknown field `x`, expected one of `a`, `b` `` into a suggestion.
fn nearest(text: &str) -> Option<String> {
    let rest = text.strip_prefix("unknown field `").or_else(|| text.strip_prefix("unknown variant `"))?;
    let what = if text.starts_with("unknown field") { "key" } else { "value" };
    let (found, expected) = rest.split_once('`')?;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    Some(unknown(what, found, &known))
}

fn unknown(what: &str, found: &str, known: &[&str]) -> String {
    let best = known.iter().map(|name| (strsim::damerau_levenshtein(found, name), *name)).min();
    match best {
        Some((distance, name)) if distance <= found.len().div_ceil(2) => {
            format!("unknown {what} `{found}`, did you mean `{name}`? (known: {})", known.join(", "))
        }
        _ => format!("unknown {what} `{found}` (known: {})", known.join(", ")),
    }
}

/// Replaces `${NAME}` and `${NAME:-default}` in text values by the environment; `$${` stands for a plain `${`.
fn substitute(value: &mut Value, environment: &dyn Fn(&str) -> Option<String>, place: &str) -> Result<()> {
    match value {
        Value::String(text) if text.contains("${") => {
            let mut out = String::new();
            let mut rest = text.as_str();
            while let Some(start) = rest.find("${") {
                if rest[..start].ends_with('$') {
                    out.push_str(&rest[..start - 1]);
                    out.push_str("${");
                    rest = &rest[start + 2..];
                    continue;
                }
                let Some(length) = rest[start..].find('}') else {
                    return Err(Error::config("`${` without its `}`").with("at", place));
                };
                out.push_str(&rest[..start]);
                let inner = &rest[start + 2..start + length];
                let (name, default) = match inner.split_once(":-") {
                    Some((name, default)) => (name, Some(default.to_string())),
                    None => (inner, None),
                };
                match environment(name).or(default) {
                    Some(found) => out.push_str(&found),
                    None => {
                        return Err(Error::config("an environment variable is not set: export it or write `${NAME:-default}`")
                            .with("at", place)
                            .with("name", name));
                    }
                }
                rest = &rest[start + length + 1..];
            }
            out.push_str(rest);
            *text = out;
            Ok(())
        }
        Value::Array(list) => {
            list.iter_mut().enumerate().try_for_each(|(i, v)| substitute(v, environment, &format!("{place}[{i}]")))
        }
        Value::Object(map) => map.iter_mut().try_for_each(|(key, v)| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            substitute(v, environment, &place)
        }),
        _ => Ok(()),
    }
}

/// Carries out one `a.b.0.c=value`; the value is read as YAML.
fn assign(root: &mut Value, written: &mut Written, assignment: &str) -> Result<()> {
    let wrong = |why: &str| Error::config(format!("cannot apply --set: {why}")).with("set", assignment);
    let (path, text) = assignment.split_once('=').ok_or_else(|| wrong("write it as a.b=value"))?;
    let new: Value = serde_saphyr::from_str(text).map_err(|e| wrong("the value is not YAML").because(e.to_string()))?;
    written.assign(path, Written::read(text).unwrap_or_default());
    let mut at = root;
    for part in path.split('.') {
        at = match at {
            Value::Array(list) => {
                let index: usize = part.parse().map_err(|_| wrong("a list is indexed by number, as in sources.0.kafka.topic"))?;
                list.get_mut(index).ok_or_else(|| wrong("the list is shorter"))?
            }
            Value::Object(map) => map.entry(part).or_insert(Value::Null),
            other if other.is_null() => {
                *other = json!({});
                match other {
                    Value::Object(map) => map.entry(part).or_insert(Value::Null),
                    _ => return Err(wrong("nothing there")),
                }
            }
            _ => return Err(wrong("the path leads through a plain value")),
        };
    }
    *at = new;
    Ok(())
}

/// A type's schema with everything written out in place.
fn inline<T: JsonSchema>() -> schemars::Schema {
    let settings = schemars::generate::SchemaSettings::default().with(|s| s.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>()
}

/// The JSON schema of pipeline files, for editors. `sources` and `sinks` hold each connector's own schema.
pub fn json_schema(sources: &[(&str, schemars::Schema)], sinks: &[(&str, schemars::Schema)]) -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<File>().to_value();
    let mut definitions = schema.get("$defs").cloned().unwrap_or_else(|| json!({}));
    let mut section = |list: &[(&str, schemars::Schema)], extra: Value| {
        let one_of: Vec<Value> = list
            .iter()
            .map(|(kind, schema)| {
                let mut inner = schema.clone().to_value();
                if let Some(inner_definitions) = inner.as_object_mut().and_then(|o| o.remove("$defs"))
                    && let (Some(all), Value::Object(more)) = (definitions.as_object_mut(), inner_definitions)
                {
                    all.extend(more);
                }
                if let Some(object) = inner.as_object_mut() {
                    object.remove("$schema");
                    let properties = object.entry("properties").or_insert_with(|| json!({}));
                    if let (Some(properties), Some(extra)) = (properties.as_object_mut(), extra.as_object()) {
                        properties.extend(extra.clone());
                    }
                }
                json!({"type": "object", "properties": {*kind: inner}, "required": [kind], "additionalProperties": false})
            })
            .collect();
        json!({"type": "array", "minItems": 1, "items": {"oneOf": one_of}})
    };
    let name = json!({"type": "string", "description": "Name in metrics, logs and the checkpoint. Default: the kind."});
    let from = json!({"description": "Routes that the sink takes: main, dead_letter, late, or those that a step names.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
    let own = |schema: schemars::Schema| {
        let mut value = schema.to_value();
        value.as_object_mut().map(|object| object.remove("$schema"));
        value
    };
    let event_time = own(inline::<EventTimeSpec>());
    let watermark = own(inline::<WatermarkSpec>());
    let sources = section(sources, json!({"name": name, "event_time": event_time, "watermark": watermark}));
    let sinks = section(sinks, json!({"name": name, "from": from}));
    schema["properties"]["sources"] = sources;
    schema["properties"]["sinks"] = sinks;
    schema["$defs"] = definitions;
    schema["title"] = json!("Weir pipeline");
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
pipeline: clicks
checkpoint: {store: ./state, interval: 1s}
sources:
  - generator: {template: '{}'}
steps:
  - {name: mask, transform: mask.wasm, config: {fields: [email]}}
sinks:
  - file: {path: out.jsonl}
  - file: {path: '${DIR}/dead.jsonl', from: [dead_letter]}
";

    fn parse(text: &str, set: &[&str]) -> Result<Spec> {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        Spec::parse(text, &set, &|name| (name == "DIR").then(|| "/data".to_string()))
    }

    fn refusal(text: &str) -> String {
        parse(text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_pipeline_file_reads_with_defaults_and_environment() {
        let spec = parse(GOOD, &["checkpoint.interval=250ms", "sources.0.generator.count=5"]).unwrap();
        assert_eq!(spec.delivery, Delivery::ExactlyOnce);
        assert_eq!(spec.checkpoint.interval.to_string(), "250ms");
        assert_eq!(spec.sources[0].settings["count"], 5);
        assert_eq!((spec.sinks[0].name.as_str(), spec.sinks[1].name.as_str()), ("file", "file_2"));
        assert_eq!(spec.sinks[1].settings["path"], "/data/dead.jsonl");
        assert_eq!(spec.sinks[1].from, ["dead_letter"]);
    }

    #[test]
    fn numbers_reach_a_module_as_they_are_written() {
        let config = |text: &str, set: &[&str]| {
            let file = GOOD.replace("{fields: [email]}", text);
            parse(&file, set).unwrap().steps[0].config_json().to_string()
        };
        let text = "{a: 0.10000000000000000555, b: [1.50, -9007199254740993, 18446744073709551615], c: {d: 1e3, \"e\": é}}";
        let json = r#"{"a":0.10000000000000000555,"b":[1.50,-9007199254740993,18446744073709551615],"c":{"d":1e3,"e":"é"}}"#;
        assert_eq!(config(text, &[]), json);
        // What JSON writes in another way is still the same number.
        assert_eq!(config("{a: 0x1f, b: .5, c: +2.5, d: 'é', e: 7}", &[]), r#"{"a":31,"b":0.5,"c":2.5,"d":"é","e":7}"#);
        assert_eq!(config("{a: &x 2.50, b: *x}", &[]), r#"{"a":2.50,"b":2.50}"#);
        let set = ["steps.0.config.a=3.1415926535897932384626", "steps.0.config.b.c=1.0"];
        assert_eq!(config("{a: 2.50}", &set), r#"{"a":3.1415926535897932384626,"b":{"c":1.0}}"#);
        assert_eq!(config("", &[]), "{}");
    }

    #[test]
    fn a_wrong_key_names_its_place_and_the_nearest_known_one() {
        assert_eq!(
            refusal(&GOOD.replace("interval:", "intervall:")),
            "unknown key `intervall`, did you mean `interval`? (known: store, interval, options) at=checkpoint.intervall"
        );
        assert!(refusal(&GOOD.replace("transform:", "transfrom:")).contains("did you mean `transform`? "));
        assert!(refusal(&GOOD.replace("- generator", "- generater")).contains("did you mean `generator`?"));
        let said = refusal(&GOOD.replace("1s", "1"));
        assert!(said.contains("`1` has no unit: write for example `5s`"), "{said}");
        assert!(refusal(&GOOD.replace("DIR", "NOPE")).contains("name=NOPE"));
        assert!(refusal(&GOOD.replace("DIR}", "DIR")).contains("at=sinks[1].file.path"));
        assert!(refusal(&GOOD.replace("pipeline: clicks", "pipeline: 'a/b'")).contains("pipeline=a/b"));
        assert!(
            refusal(&GOOD.replace("path: out.jsonl", "path: out.jsonl, name: x").replace("from: [dead_letter]", "name: x"))
                .contains("same name")
        );
        assert!(parse(GOOD, &["steps.x=1"]).unwrap_err().to_string().contains("indexed by number"));
    }
}
