//! Casts between JSON types, digit by digit.

use serde::Deserialize;
use weir_udf::Value;
use weir_udf::json::{inner, is_number, quote, unescape};

/// What a value is made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cast {
    String,
    Integer,
    Decimal,
    Boolean,
}

/// Why a value cannot be cast. Nothing has been written then.
pub type Outcome = Result<(), &'static str>;

impl Cast {
    /// Casts a JSON value as it stands in a text.
    #[inline]
    pub fn json(self, value: &[u8], scratch: &mut Vec<u8>, out: &mut Value<'_>) -> Outcome {
        if value == b"null" {
            out.push(value);
            return Ok(());
        }
        match (self, inner(value)) {
            (Cast::String, Some(_)) => out.push(value),
            (Cast::String, None) => quote(std::str::from_utf8(value).map_err(|_| "not UTF-8")?, |piece| out.push(piece)),
            (_, Some(inner)) => return self.text(unescape(inner, scratch), out),
            (Cast::Boolean, None) => match value {
                b"true" | b"false" => out.push(value),
                _ => return Err("not a boolean"),
            },
            (Cast::Integer | Cast::Decimal, None) => match value.first() {
                Some(b'-' | b'0'..=b'9') => return self.text(value, out),
                _ => return Err("not a number"),
            },
        }
        Ok(())
    }

    /// Casts a text to something other than a string.
    #[inline]
    pub fn text(self, text: &[u8], out: &mut Value<'_>) -> Outcome {
        match self {
            Cast::Boolean if matches!(text, b"true" | b"false") => out.push(text),
            Cast::Boolean => return Err("not a boolean"),
            Cast::Integer => {
                let (sign, digits) = plain(text);
                let digits = match digits.iter().position(|byte| *byte == b'.') {
                    Some(point) if digits[point + 1..].iter().all(|byte| *byte == b'0') && point + 1 < digits.len() => {
                        &digits[..point]
                    }
                    _ => digits,
                };
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return Err("not an integer");
                }
                if digits != b"0" {
                    out.push(sign);
                }
                out.push(digits);
            }
            Cast::Decimal => {
                let (sign, digits) = plain(text);
                if !is_number(digits) || digits[0] == b'-' {
                    return Err("not a number");
                }
                out.push(sign);
                out.push(digits);
            }
            // The callers quote strings themselves.
            Cast::String => return Err("not a string"),
        }
        Ok(())
    }
}

/// Sign and digits without a plus and without zeros in front.
fn plain(text: &[u8]) -> (&[u8], &[u8]) {
    let (sign, mut digits) = match text {
        [b'-', digits @ ..] => (&b"-"[..], digits),
        [b'+', digits @ ..] => (&b""[..], digits),
        digits => (&b""[..], digits),
    };
    while let [b'0', b'0'..=b'9', ..] = digits {
        digits = &digits[1..];
    }
    (sign, digits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_udf::{Emitter, Message, Transform};

    /// Casts each message.
    struct Caster(Cast);

    impl Transform for Caster {
        type Config = Cast;
        fn new(cast: Cast) -> Result<Self, String> {
            Ok(Caster(cast))
        }
        fn transform(&mut self, message: Message<'_>, out: &mut Emitter<'_>) -> Result<(), String> {
            let value = message.value().unwrap_or_default();
            out.try_write(|out| self.0.json(value, &mut Vec::new(), out)).map_err(str::to_string)
        }
    }

    fn cast(kind: &str, value: &str) -> Result<String, String> {
        let results = weir_udf::testing::run::<Caster>(&format!("{kind:?}"), [value]);
        match results.rejected.first() {
            Some((_, reason)) => Err(reason.clone()),
            None => Ok(results.values()[0].to_string()),
        }
    }

    #[test]
    fn numbers_of_any_size_are_cast_without_rounding() {
        let big = "123456789012345678901234567890";
        for (kind, from, to) in [
            ("integer", format!("\"{big}\""), big),
            ("integer", "\"-007\"".into(), "-7"),
            ("integer", "\"+5\"".into(), "5"),
            ("integer", "\"-0\"".into(), "0"),
            ("integer", "5.000".into(), "5"),
            ("integer", "\"\\u0035\"".into(), "5"),
            ("integer", "null".into(), "null"),
            ("decimal", "\"9007199254740993.10\"".into(), "9007199254740993.10"),
            ("decimal", "\"+001.50\"".into(), "1.50"),
            ("decimal", "1e400".into(), "1e400"),
            ("string", big.into(), "\"123456789012345678901234567890\""),
            ("string", "1.50".into(), "\"1.50\""),
            ("string", "true".into(), "\"true\""),
            ("string", "{\"a\":1}".into(), "\"{\\\"a\\\":1}\""),
            ("string", "\"\\u0041\"".into(), "\"\\u0041\""),
            ("boolean", "\"false\"".into(), "false"),
            ("boolean", "true".into(), "true"),
        ] {
            assert_eq!(cast(kind, &from), Ok(to.to_string()), "{kind} {from}");
        }
    }

    #[test]
    fn what_cannot_be_cast_says_so() {
        for (kind, from, why) in [
            ("integer", "\"1.5\"", "not an integer"),
            ("integer", "\"5.\"", "not an integer"),
            ("integer", "\"\"", "not an integer"),
            ("integer", "\" 5\"", "not an integer"),
            ("integer", "\"--5\"", "not an integer"),
            ("integer", "1e3", "not an integer"),
            ("integer", "true", "not a number"),
            ("integer", "[1]", "not a number"),
            ("decimal", "\".5\"", "not a number"),
            ("decimal", "\"+-5\"", "not a number"),
            ("decimal", "\"\"", "not a number"),
            ("decimal", "\"NaN\"", "not a number"),
            ("boolean", "1", "not a boolean"),
            ("boolean", "\"yes\"", "not a boolean"),
        ] {
            assert_eq!(cast(kind, from), Err(why.to_string()), "{kind} {from}");
        }
    }
}
