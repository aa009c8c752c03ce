//! Durations and sizes with their units, as the pipeline file writes them: `5s`, `64MiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time: a number and `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes: a number and `B`, `KiB`, `MiB`, `GiB`, or `KB`, `MB`, `GB` (powers of ten).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SPANS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 7] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];

/// Splits `text` into its number and unit and multiplies them.
fn parse(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, String> {
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim());
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit: write for example `{example}` (units: {})", names()));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("`{text}` has the unknown unit `{unit}`: write for example `{example}` (units: {})", names()));
    };
    let number: f64 =
        number.parse().map_err(|_| format!("`{text}` is not a number with a unit: write for example `{example}`"))?;
    let product = number * *factor as f64;
    if product > u64::MAX as f64 {
        return Err(format!("`{text}` is too large"));
    }
    Ok(product.round() as u64)
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &SPANS, "5s").map(|ms| Span(Duration::from_millis(ms)))
    }
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(text, &SIZES, "64MiB").map(Size)
    }
}

fn show(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(&str, u64)], smallest: &str) -> fmt::Result {
    match units.iter().rev().filter(|(_, factor)| amount != 0 && amount.is_multiple_of(*factor)).max_by_key(|(_, factor)| *factor)
    {
        Some((unit, factor)) => write!(f, "{}{unit}", amount / factor),
        None => write!(f, "{amount}{smallest}"),
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0.as_millis() as u64, &SPANS, "ms")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &SIZES[..4], "B")
    }
}

macro_rules! as_text {
    ($type:ident, $pattern:literal, $example:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a number with its unit, for example `", $example, "`"))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$type, E> {
                        self.visit_str(&number.to_string())
                    }
                }
                d.deserialize_any(Visitor)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "examples": [$example]})
            }
        }
    };
}
as_text!(Span, r"^[0-9.]+ *(ms|s|m|h|d)$", "5s");
as_text!(Size, r"^[0-9.]+ *(B|KiB|MiB|GiB|KB|MB|GB)$", "64MiB");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_needed_and_named_when_wrong() {
        assert_eq!("1.5s".parse::<Span>().unwrap().0, Duration::from_millis(1500));
        assert_eq!("64MiB".parse::<Size>().unwrap().0, 64 << 20);
        assert!("5".parse::<Span>().unwrap_err().contains("no unit"));
        assert!("5 parsecs".parse::<Span>().unwrap_err().contains("unknown unit `parsecs`"));
        assert!("..s".parse::<Span>().unwrap_err().contains("not a number"));
    }

    #[test]
    fn what_is_shown_reads_back_the_same() {
        for text in ["5s", "90s", "10ms", "2h", "1d"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string().parse::<Span>().unwrap(), text.parse::<Span>().unwrap());
        }
        assert_eq!(Size(64 << 20).to_string(), "64MiB");
        assert_eq!(Size(1500).to_string(), "1500B");
        assert_eq!(Span(Duration::ZERO).to_string(), "0ms");
    }
}
