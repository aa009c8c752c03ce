//! Keys, windows and event time as the pipeline file has them, and the keyed step that they make.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::build::{FindRoute, Make, Routes, StepPlan};
use super::spec::{Connector, Spec, StepSpec};
use crate::columnar::Extractor;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::Aggregate;
use crate::operators::aggregate::{Key, Settings};
use crate::operators::event_time::{EventTime, Format};
use crate::state::Rules;
use crate::units::Span;
use crate::wasm::{Aggregator, Engine, Grants, Module, World};
use crate::window::Windows;

/// By what messages are put together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum KeySpec {
    /// A JSON pointer, or `message` for the message's own key.
    One(String),
    /// JSON pointers.
    Several(Vec<String>),
    /// An attribute.
    Attribute(AttributeKey),
}

/// A key that is an attribute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttributeKey {
    /// Its name.
    attribute: String,
}

/// Which windows: exactly one of `tumbling`, `sliding`, `session` and `batch`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    /// Windows of this length, one after the other.
    #[serde(default)]
    tumbling: Option<Span>,
    /// Windows that overlap.
    #[serde(default)]
    sliding: Option<Sliding>,
    /// Windows of a key's own, which end when nothing came for so long.
    #[serde(default)]
    session: Option<Span>,
    /// Messages of a key by number and age, whatever their event times are.
    #[serde(default)]
    batch: Option<BatchSpec>,
    /// Where one of the windows begins, counted from midnight UTC of 1 January 1970: `5h` for days that begin at 5.
    #[serde(default)]
    offset: Option<Span>,
    /// How long after its end a window still takes messages. Each time it has taken some, it fires again.
    #[serde(default)]
    allowed_lateness: Option<Span>,
    /// Windows that have changed fire before they are due, once in this processing time.
    #[serde(default)]
    early: Option<Span>,
    /// What a pane shows when a window fires again: everything (`accumulating`), or what came since (`discarding`).
    #[serde(default)]
    panes: PanesSpec,
}

/// Windows that overlap.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sliding {
    /// The length of each.
    size: Span,
    /// From the beginning of one to that of the next.
    every: Span,
}

/// Messages by number and age.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// A batch goes on once it has at least so many messages.
    rows: u64,
    /// Or once its first message has waited for so long.
    age: Span,
}

/// What a pane shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PanesSpec {
    /// Everything that the window holds.
    #[default]
    Accumulating,
    /// What came since the pane before.
    Discarding,
}

/// Where the event time of messages stands. Default: the source's own time, as the broker's timestamp.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTimeSpec {
    /// The JSON pointer of a field.
    #[serde(default)]
    field: Option<String>,
    /// An attribute, instead of a field.
    #[serde(default)]
    attribute: Option<String>,
    /// How it is written.
    format: FormatSpec,
}

/// How a time is written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormatSpec {
    /// A number of seconds since 1970.
    S,
    /// Of milliseconds.
    Ms,
    /// Of microseconds.
    Us,
    /// Of nanoseconds.
    Ns,
    /// ISO 8601 with an offset, as in `2026-12-03T04:34:15.250Z`.
    Iso,
}

/// The watermark of a source.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatermarkSpec {
    /// How far it stays behind the greatest event time of each partition: messages that are less late than that are in time.
    /// Default: nothing.
    #[serde(default)]
    lag: Option<Span>,
}

/// Slices that a window may be put together from. `every` is at least a slice, so no message is in more windows.
const SLICES_MAX: i64 = 10_000;

fn ms(span: Span) -> i64 {
    span.0.as_millis().min(i64::MAX as u128 / 4) as i64
}

/// The event time and the lag of a source.
pub fn event_time(source: &Connector) -> Result<(EventTime, i64)> {
    let lag_ms = source.watermark.lag.map_or(0, ms);
    let Some(spec) = &source.event_time else { return Ok((EventTime::Source, lag_ms)) };
    let format = match spec.format {
        FormatSpec::S => Format::Number { scale: 3 },
        FormatSpec::Ms => Format::Number { scale: 0 },
        FormatSpec::Us => Format::Number { scale: -3 },
        FormatSpec::Ns => Format::Number { scale: -6 },
        FormatSpec::Iso => Format::Iso,
    };
    let time = match (&spec.field, &spec.attribute) {
        (Some(pointer), None) => {
            let extractor =
                Extractor::new([pointer.as_str()]).map_err(|e| e.with("at", format!("{}.event_time.field", source.place)))?;
            EventTime::Field { pointer: pointer.clone(), extractor, format }
        }
        (None, Some(name)) => EventTime::Attribute { name: name.clone(), format },
        _ => {
            return Err(Error::config("`event_time` needs either `field` or `attribute`")
                .with("at", format!("{}.event_time", source.place)));
        }
    };
    Ok((time, lag_ms))
}

/// What a file with or without a keyed step must have.
pub fn check(spec: &Spec) -> Result<()> {
    for step in &spec.steps {
        match (&step.transform, &step.aggregate) {
            (Some(_), None) if step.window.is_some() || step.key.is_some() => {
                return Err(Error::config("`key` and `window` belong to an `aggregate` step").with("step", &step.name));
            }
            (Some(_), None) | (None, Some(_)) => {}
            _ => return Err(Error::config("a step needs either `transform` or `aggregate`").with("step", &step.name)),
        }
    }
    let keyed = spec.steps.iter().filter(|step| step.aggregate.is_some()).count();
    if keyed > 1 {
        return Err(Error::config(
            "a pipeline has one `aggregate` step: write its rows to a Kafka topic and read that by a second pipeline",
        ));
    }
    if keyed == 1 && spec.tasks > 1 {
        return Err(Error::config(
            "with `tasks` above 1 a key's messages may be in several processes: run the `aggregate` step with `tasks: 1` and more `workers`",
        )
        .with("tasks", spec.tasks));
    }
    let timed = |source: &&Connector| source.watermark.lag.is_some();
    match spec.sources.iter().find(timed).filter(|_| keyed == 0) {
        Some(source) => Err(Error::config("`watermark` is for pipelines with an `aggregate` step").with("at", &source.place)),
        None => Ok(()),
    }
}

fn rules(step: &StepSpec) -> Result<(Rules, Option<i64>)> {
    let refuse = |what: &str| Error::config(what).with("step", &step.name);
    let Some(spec) = &step.window else {
        return Err(refuse("an `aggregate` step needs a `window`, for example `window: {tumbling: 1m}`"));
    };
    let offset_ms = spec.offset.map_or(0, ms);
    let positive = |span: Span| match ms(span) {
        0 => Err(refuse("a window can't be empty: `1ms` is the shortest length")),
        length => Ok(length),
    };
    let windows = match (spec.tumbling, &spec.sliding, spec.session, &spec.batch) {
        (Some(size), None, None, None) => {
            let size_ms = positive(size)?;
            Windows::Fixed { size_ms, every_ms: size_ms, offset_ms }
        }
        (None, Some(sliding), None, None) => {
            let (size_ms, every_ms) = (positive(sliding.size)?, positive(sliding.every)?);
            if every_ms > size_ms {
                return Err(refuse(
                    "sliding windows with `every` above `size` would leave messages out: use `tumbling`, or a smaller `every`",
                ));
            }
            let windows = Windows::Fixed { size_ms, every_ms, offset_ms };
            if size_ms / windows.slice_ms() > SLICES_MAX {
                return Err(refuse(
                    "a sliding window would have more than 10000 slices: let `size` and `every` have a larger common divisor",
                ));
            }
            windows
        }
        (None, None, Some(gap), None) => Windows::Session { gap_ms: positive(gap)? },
        (None, None, None, Some(batch)) => Windows::Batch { rows: batch.rows.max(1), age_ms: positive(batch.age)? },
        _ => return Err(refuse("a `window` has exactly one of `tumbling`, `sliding`, `session` and `batch`")),
    };
    let fixed = matches!(windows, Windows::Fixed { .. });
    if spec.offset.is_some() && !fixed {
        return Err(refuse("`offset` is for tumbling and sliding windows"));
    }
    if matches!(windows, Windows::Batch { .. }) && (spec.early.is_some() || spec.allowed_lateness.is_some()) {
        return Err(refuse("a batch has no event time: `early` and `allowed_lateness` are for the other windows"));
    }
    let discarding = spec.panes == PanesSpec::Discarding;
    if discarding && spec.sliding.is_some() {
        return Err(refuse("sliding windows share their messages: `panes: discarding` is for the other windows"));
    }
    let lateness_ms = spec.allowed_lateness.map_or(0, ms);
    let early_ms = spec.early.map(positive).transpose()?;
    Ok((Rules { windows, lateness_ms, early: early_ms.is_some(), discarding }, early_ms))
}

fn key(step: &StepSpec) -> Result<Key> {
    match &step.key {
        None => Ok(Key::None),
        Some(KeySpec::One(one)) if one == "message" => Ok(Key::Message),
        Some(KeySpec::One(one)) => Key::fields(vec![one.clone()]),
        Some(KeySpec::Several(several)) => Key::fields(several.clone()),
        Some(KeySpec::Attribute(AttributeKey { attribute })) => Ok(Key::Attribute(attribute.clone())),
    }
}

/// The keyed step of a file.
pub fn plan(step: &StepSpec, spec: &Spec, engine: &Engine, routes: &mut Routes) -> Result<StepPlan> {
    let at = |e: Error| Error::new(e.kind(), "cannot build the step").with("step", &step.name).because(e);
    let path = step.aggregate.as_deref().unwrap_or_default();
    let module = Module::load(engine, std::path::Path::new(path)).map_err(at)?;
    let (rules, early_ms) = rules(step)?;
    let key = key(step).map_err(at)?;
    let grants = Grants::named(&step.grants).map_err(at)?;
    let config = step.config_json().to_string();
    let (name, limits, columns): (Arc<str>, _, _) = (step.name.as_str().into(), step.limits, step.columns);
    let memory = (step.state_memory.0 / u64::from(spec.workers)) as usize;
    let of = name.clone();
    let code = move |module: &Module, find: &mut FindRoute<'_>| {
        if module.facts().world != World::Aggregator {
            return Err(Error::config("the module is a transform: name it under `transform`"));
        }
        // As for transforms: what the module does wrong here is the person's to mend before anything runs.
        let probe = Aggregator::new(module, &limits, grants, &config, &of).map_err(|e| e.as_kind(ErrorKind::Config))?;
        let routes = probe.routes().iter().map(|route| find(route)).collect::<Result<Vec<_>>>()?;
        let made = (module.clone(), config.clone(), of.clone());
        let make = move || Ok(Box::new(Aggregator::new(&made.0, &limits, grants, &made.1, &made.2)?) as Box<dyn Aggregate>);
        Ok(Make::Windows(Box::new(Settings {
            step: of.clone(),
            digest: module.digest().clone(),
            make: Arc::new(make),
            limits,
            state_version: probe.state_version(),
            routes,
            key: key.clone(),
            rules,
            early_ms,
            columns,
            memory,
        })))
    };
    let plan = StepPlan::guest(name, module, Arc::new(code), &mut |route| routes.number(route, &step.name));
    plan.map_err(|e| at(e.with("path", path)))
}
