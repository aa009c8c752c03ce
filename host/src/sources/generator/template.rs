//! The generator's template: JSON text with functions in it, parsed once and rendered for each message.
//! Owns the functions and their errors; knows neither partitions nor clocks.

use std::ops::Range;

use super::pointer;
use super::random::Random;
use crate::error::{Error, Result};

/// Characters that one `alphaNumeric` or `alpha` may ask for.
const LENGTH_MAX: usize = 16 << 20;

const FUNCTIONS: [&str; 9] = ["integer", "double", "alphaNumeric", "alpha", "uuid", "timestamp", "random", "bool", "index"];

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(Box<[u8]>),
    /// From `low`, `span` values wide; 0 stands for all 2^64.
    Integer {
        low: i64,
        span: u64,
    },
    Double {
        low: f64,
        high: f64,
    },
    AlphaNumeric(usize),
    Alpha(usize),
    Uuid,
    Timestamp,
    TimestampIso,
    Choice(Box<[Box<[u8]>]>),
    Bool,
    Index,
    /// Here the key begins.
    KeyStart,
    /// Here it ends.
    KeyEnd,
}

/// What a message is told besides its random numbers.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// For `timestamp`: milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// For `index`: the message's number among all partitions.
    pub index: u64,
}

/// A parsed template.
#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

impl Template {
    /// Parses a template and checks that what it renders is JSON. `key` points to the field whose text is the key.
    pub fn parse(text: &str, key: Option<&str>) -> Result<Template> {
        let mut template = Template { parts: parse(text)? };
        template.check(text)?;
        if let Some(key) = key {
            template.mark_key(key).map_err(|e| e.with("key", key))?;
        }
        Ok(template)
    }

    /// Appends one message. The answer is where in `out` its key stands.
    #[inline]
    pub fn render(&self, random: &mut Random, moment: Moment, out: &mut Vec<u8>) -> Option<Range<usize>> {
        self.render_with(random, moment, out, |random, options| random.below(options as u64) as usize)
    }

    #[inline]
    fn render_with(
        &self,
        random: &mut Random,
        moment: Moment,
        out: &mut Vec<u8>,
        choose: impl Fn(&mut Random, usize) -> usize,
    ) -> Option<Range<usize>> {
        let mut key = None;
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Integer { low, span } => integer(low.wrapping_add(random.below(*span) as i64), out),
                Part::Double { low, high } => double(low + (high - low) * random.fraction(), out),
                Part::AlphaNumeric(length) => random.alphanumeric(*length, out),
                Part::Alpha(length) => random.alphabetic(*length, out),
                Part::Uuid => random.uuid(out),
                Part::Timestamp => integer(moment.time_ms, out),
                Part::TimestampIso => iso(moment.time_ms, out),
                Part::Choice(options) => out.extend_from_slice(&options[choose(random, options.len())]),
                Part::Bool => out.extend_from_slice(if random.bits() & 1 == 0 { b"false" } else { b"true" }),
                Part::Index => integer(moment.index as i64, out),
                Part::KeyStart => key = Some(out.len()..out.len()),
                Part::KeyEnd => key = key.map(|key: Range<usize>| key.start..out.len()),
            }
        }
        key
    }

    /// One sample for each option of the widest `random`, so that every option is seen.
    fn samples(&self) -> impl Iterator<Item = (Vec<u8>, Option<Range<usize>>)> {
        let options = |part: &Part| if let Part::Choice(options) = part { options.len() } else { 1 };
        let widest = self.parts.iter().map(options).max().unwrap_or(1);
        (0..widest).map(|number| {
            let mut out = Vec::new();
            let moment = Moment { time_ms: 0, index: 0 };
            let key = self.render_with(&mut Random::of(0, 0, 0), moment, &mut out, |_, options| number % options);
            (out, key)
        })
    }

    fn check(&self, text: &str) -> Result<()> {
        for (sample, _) in self.samples() {
            if let Err(error) = serde_json::from_slice::<serde_json::Value>(&sample) {
                let error =
                    Error::config("what the template renders is not JSON: a function that makes text needs quotes around it")
                        .with("sample", excerpt(&sample))
                        .because(error);
                return Err(if text.trim().is_empty() { Error::config("the template is empty") } else { error });
            }
        }
        Ok(())
    }

    /// Puts the marks of the key into the parts.
    fn mark_key(&mut self, key: &str) -> Result<()> {
        if !key.starts_with('/') {
            return Err(Error::config("`key` is a JSON pointer: it begins with `/`, as in `/userId`"));
        }
        let sample = self.samples().next().map(|(sample, _)| sample).unwrap_or_default();
        let Some(mut range) = pointer::find(&sample, key) else {
            return Err(Error::config("the template has no field where `key` points to"));
        };
        match sample[range.start] {
            b'{' | b'[' => return Err(Error::config("`key` points to an object or a list: point to a string, number or bool")),
            b'"' => range = range.start + 1..range.end - 1,
            _ => {}
        }
        // From the back, so that the first place stays what it is.
        self.insert(range.end, Part::KeyEnd)?;
        self.insert(range.start, Part::KeyStart)?;
        match self.samples().find_map(|(sample, key)| key.filter(|key| sample[key.clone()].contains(&b'\\'))) {
            Some(_) => {
                Err(Error::config("the field that `key` points to has a backslash: a key is taken as it stands, without escapes"))
            }
            None => Ok(()),
        }
    }

    /// Puts `mark` before the byte `at` of the first sample.
    fn insert(&mut self, at: usize, mark: Part) -> Result<()> {
        let (mut out, mut random) = (Vec::new(), Random::of(0, 0, 0));
        for number in 0..self.parts.len() {
            let before = out.len();
            let one = Template { parts: vec![self.parts[number].clone()] };
            one.render_with(&mut random, Moment { time_ms: 0, index: 0 }, &mut out, |_, _| 0);
            if at == before {
                self.parts.insert(number, mark);
                return Ok(());
            }
            if at < out.len() {
                let Part::Text(text) = &self.parts[number] else {
                    return Err(Error::config(
                        "`key` points into what a function makes: point to a field of the template itself",
                    ));
                };
                let (first, second) = text.split_at(at - before);
                let split = [Part::Text(first.into()), mark, Part::Text(second.into())];
                self.parts.splice(number..=number, split);
                return Ok(());
            }
        }
        self.parts.push(mark);
        Ok(())
    }
}

fn excerpt(sample: &[u8]) -> String {
    const SHOWN: usize = 200;
    let mut text = String::from_utf8_lossy(&sample[..sample.len().min(SHOWN)]).into_owned();
    if sample.len() > SHOWN {
        text.push('…');
    }
    text
}

fn parse(text: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        if start > 0 {
            parts.push(Part::Text(rest.as_bytes()[..start].into()));
        }
        let call = &rest[start + 2..];
        let place = text.len() - call.len() - 2;
        let (part, length) = function(call).map_err(|e| at(e, text, place))?;
        parts.push(part);
        rest = &call[length..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.as_bytes().into()));
    }
    Ok(parts)
}

/// Tells where in the template an error is.
fn at(error: Error, text: &str, place: usize) -> Error {
    let before = &text[..place];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    error.with("line", line).with("column", column)
}

/// The function that stands behind `{{`, and how long it is with its `}}`.
fn function(call: &str) -> Result<(Part, usize)> {
    let name_end = call.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(call.len());
    let name = &call[..name_end];
    let shape =
        || Error::config("expected a function, as in `{{integer(1,10)}}`").with("found", format!("{{{{{}", first_of(call)));
    let rest = call[name_end..].trim_start();
    let Some(rest) = rest.strip_prefix('(') else { return Err(shape()) };
    let (arguments, rest) = arguments(rest).ok_or_else(|| Error::config("a function without its `)`").with("function", name))?;
    let Some(rest) = rest.trim_start().strip_prefix("}}") else {
        return Err(Error::config("a function without its `}}`").with("function", name));
    };
    let part = named(name, &arguments).map_err(|e| e.with("function", name))?;
    Ok((part, call.len() - rest.len()))
}

fn first_of(text: &str) -> String {
    text.chars().take(20).take_while(|c| *c != '\n').collect()
}

/// The arguments up to the closing parenthesis, and what follows it. Quotes around an argument are taken off.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let mut list = Vec::new();
    let mut rest = text.trim_start();
    if let Some(rest) = rest.strip_prefix(')') {
        return Some((list, rest));
    }
    loop {
        let (argument, behind) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let mut escaped = false;
                let end = quoted.find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                })?;
                (&quoted[..end], quoted[end + 1..].trim_start())
            }
            None => {
                let end = rest.find([',', ')'])?;
                (rest[..end].trim_end(), &rest[end..])
            }
        };
        list.push(argument);
        if let Some(behind) = behind.strip_prefix(')') {
            return Some((list, behind));
        }
        rest = behind.strip_prefix(',')?.trim_start();
    }
}

fn named(name: &str, arguments: &[&str]) -> Result<Part> {
    match (name, arguments) {
        ("integer", [low, high]) => {
            let (low, high): (i64, i64) = (number(low)?, number(high)?);
            ordered(low <= high)?;
            Ok(Part::Integer { low, span: (high.wrapping_sub(low) as u64).wrapping_add(1) })
        }
        ("double", [low, high]) => {
            let (low, high): (f64, f64) = (number(low)?, number(high)?);
            if !(high - low).is_finite() {
                return Err(Error::config("the bounds must be finite numbers"));
            }
            ordered(low <= high)?;
            Ok(Part::Double { low, high })
        }
        ("alphaNumeric", [length]) => Ok(Part::AlphaNumeric(size(length)?)),
        ("alpha", [length]) => Ok(Part::Alpha(size(length)?)),
        ("uuid", []) => Ok(Part::Uuid),
        ("timestamp", [] | ["ms"]) => Ok(Part::Timestamp),
        ("timestamp", ["iso"]) => Ok(Part::TimestampIso),
        ("random", [_, ..]) => Ok(Part::Choice(arguments.iter().map(|a| a.as_bytes().into()).collect())),
        ("bool", []) => Ok(Part::Bool),
        ("index", []) => Ok(Part::Index),
        _ => Err(wrong(name)),
    }
}

/// A known function with other arguments than it takes, or an unknown one.
fn wrong(name: &str) -> Error {
    let usage = match name {
        "integer" | "double" => "two numbers, as in `(1,10)`",
        "alphaNumeric" | "alpha" => "one length, as in `(16)`",
        "uuid" | "bool" | "index" => "none: write `()`",
        "timestamp" => "none for milliseconds, or `(iso)`",
        "random" => "the values to choose from, as in `(red,green)`",
        _ => {
            let nearest =
                FUNCTIONS.iter().min_by_key(|known| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase()));
            return Error::config(format!(
                "no such function, did you mean `{}`? (known: {})",
                nearest.copied().unwrap_or_default(),
                FUNCTIONS.join(", ")
            ));
        }
    };
    Error::config(format!("wrong arguments: the function takes {usage}"))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse()
        .map_err(|_| Error::config("an argument is not a number of the kind that the function takes").with("argument", text))
}

fn size(text: &str) -> Result<usize> {
    match number(text)? {
        length if length <= LENGTH_MAX => Ok(length),
        _ => Err(Error::config("the text would be too long").with("length", text).with("limit", LENGTH_MAX)),
    }
}

fn ordered(in_order: bool) -> Result<()> {
    if in_order { Ok(()) } else { Err(Error::config("the first bound is above the second")) }
}

/// Appends a number's digits.
fn integer(value: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn double(value: f64, out: &mut Vec<u8>) {
    use std::io::Write;
    // Writing to a vector can't fail.
    let _ = write!(out, "{value}");
}

/// Appends `2026-01-31T12:00:00.000Z`. Howard Hinnant's days-to-civil.
fn iso(time_ms: i64, out: &mut Vec<u8>) {
    use std::io::Write;
    let (days, ms) = (time_ms.div_euclid(86_400_000), time_ms.rem_euclid(86_400_000));
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    let _ = write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(template: &str) -> String {
        let template = Template::parse(template, None).unwrap();
        let mut out = Vec::new();
        template.render(&mut Random::of(1, 0, 0), Moment { time_ms: 1_764_700_156_789, index: 41 }, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn refused(template: &str) -> String {
        Template::parse(template, None).unwrap_err().to_string()
    }

    #[test]
    fn the_benchmark_template_renders_as_googles_generator_does() {
        let text = one(r#"{"logStreamId": "{{integer(1000001,2000000)}}", "message": "{{alphaNumeric(962)}}"}"#);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let id: u64 = value["logStreamId"].as_str().unwrap().parse().unwrap();
        assert!((1_000_001..=2_000_000).contains(&id));
        assert_eq!(value["message"].as_str().unwrap().len(), 962);
        assert_eq!(text.len(), 1_003);
    }

    #[test]
    fn a_function_without_quotes_makes_a_number_or_bool() {
        let text = one(
            r#"{"a": {{integer(-5,-5)}}, "b": [{{double(1.5,1.5)}}, {"c": {{bool()}}}], "t": {{timestamp()}}, "i": "{{timestamp(iso)}}", "n": {{index()}}}"#,
        );
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["a"], -5);
        assert_eq!(value["b"][0], 1.5);
        assert!(value["b"][1]["c"].is_boolean());
        assert_eq!(value["t"], 1_764_700_156_789i64);
        assert_eq!(value["i"], "2025-12-02T18:29:16.789Z");
        assert_eq!(value["n"], 41);
    }

    #[test]
    fn the_iso_time_is_right_before_1970_and_on_leap_days() {
        for (ms, text) in [
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let mut out = Vec::new();
            iso(ms, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn random_takes_values_with_and_without_quotes() {
        let template = Template::parse(r#"["{{random("re,d)}}",  grün , blue)}}", {{random(1,null)}}]"#, None).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..200 {
            let mut out = Vec::new();
            template.render(&mut Random::of(0, 0, number), Moment { time_ms: 0, index: 0 }, &mut out);
            let value: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
            seen.insert(value[0].as_str().unwrap().to_string());
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["blue", "grün", "re,d)}}"]);
    }

    #[test]
    fn an_integer_covers_its_whole_range() {
        assert_eq!(one("{{integer(9223372036854775807,9223372036854775807)}}"), i64::MAX.to_string());
        one("{{integer(-9223372036854775808,9223372036854775807)}}").parse::<i64>().unwrap();
        let template = Template::parse("{{integer(1,3)}}", None).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..100 {
            let mut out = Vec::new();
            template.render(&mut Random::of(0, 0, number), Moment { time_ms: 0, index: 0 }, &mut out);
            seen.insert(out);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [b"1", b"2", b"3"]);
    }

    #[test]
    fn each_mistake_is_named_with_its_place() {
        let text = refused("{\n \"ä\": \"{{alphanumeric(3)}}\"}");
        assert!(text.contains("did you mean `alphaNumeric`?") && text.contains("line=2 column=8"), "{text}");
        for (template, part) in [
            ("{{integer(1)}}", "takes two numbers"),
            ("{{integer(a,2)}}", "not a number"),
            ("{{integer(3,2)}}", "first bound is above"),
            ("{{double(1,inf)}}", "finite"),
            ("{{alpha()}}", "takes one length"),
            ("{{alpha(99999999)}}", "too long"),
            ("{{uuid(1)}}", "none: write `()`"),
            ("{{timestamp(utc)}}", "or `(iso)`"),
            ("{{random()}}", "values to choose from"),
            ("{{integer(1,2}}", "without its `)`"),
            ("{{random(\"a)}}", "without its `)`"),
            ("{{integer(1,2)}", "without its `}}`"),
            ("{{integer}}", "expected a function"),
            ("{\"a\": {{alpha(3)}}}", "is not JSON"),
            ("[{{random(1,no)}}]", "sample=[no]"),
            ("", "the template is empty"),
        ] {
            let text = refused(template);
            assert!(text.contains(part), "{template}: {text}");
        }
    }

    #[test]
    fn the_key_is_the_text_of_the_field() {
        for (template, key, expected) in [
            (r#"{"a": "{{integer(7,7)}}", "b": 1}"#, "/a", "7"),
            (r#"{"a": {"b": [0, {{integer(7,7)}}]}}"#, "/a/b/1", "7"),
            (r#"{"a": "user-{{integer(7,7)}}-{{integer(8,8)}}!"}"#, "/a", "user-7-8!"),
            (r#"{"a": true, "b": "{{uuid()}}"}"#, "/a", "true"),
            (r#"{"z": "{{random(x,yyyy)}}", "a": "ö"}"#, "/a", "ö"),
        ] {
            let template = Template::parse(template, Some(key)).unwrap();
            for number in 0..8 {
                let mut out = b"before".to_vec();
                let range = template.render(&mut Random::of(0, 0, number), Moment { time_ms: 0, index: 0 }, &mut out).unwrap();
                assert_eq!(std::str::from_utf8(&out[range]).unwrap(), expected);
            }
        }
        for (template, key, part) in [
            ("{}", "a", "begins with `/`"),
            ("{}", "/a", "no field"),
            (r#"{"a": []}"#, "/a", "an object or a list"),
            (r#"{"a": "\n"}"#, "/a", "backslash"),
            (r#"{"a": {{random({"b":1})}}}"#, "/a/b", "into what a function makes"),
        ] {
            let text = Template::parse(template, Some(key)).unwrap_err().to_string();
            assert!(text.contains(part), "{template}: {text}");
        }
    }
}
