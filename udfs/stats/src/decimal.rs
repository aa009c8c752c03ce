//! Decimal numbers in 256 bits: read from JSON, written to JSON, kept in few bytes.
//!
//! A value has at most 30 digits before the point and 27 behind it, so that 2^64 of them add up without overflow.

use std::fmt;

use ethnum::I256;
use weir_udf::Value;

/// Digits that a value may have before the point.
const WHOLE_MAX: i64 = 30;

/// Digits that it may have behind it.
pub const SCALE_MAX: u32 = 27;

/// A number, times 10^-scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    pub number: I256,
    pub scale: u32,
}

/// 10 to this power.
pub fn power(exponent: u32) -> I256 {
    I256::new(10).pow(exponent)
}

impl Decimal {
    /// Reads a JSON number; `None` if it has too many digits.
    pub fn read(text: &[u8]) -> Option<Decimal> {
        let (negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
            Some(at) => (&text[..at], exponent(&text[at + 1..])),
            None => (text, 0),
        };
        let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let digits = || mantissa.iter().filter(|byte| **byte != b'.');
        // Without zeros at both ends: what is left must fit.
        let leading = digits().take_while(|byte| **byte == b'0').count();
        let trailing = digits().rev().take_while(|byte| **byte == b'0').count();
        let all = digits().count();
        if leading == all {
            return Some(Decimal { number: I256::ZERO, scale: 0 });
        }
        // Of the first digit, its place before the point; of the last one, its place behind it.
        let whole = point as i64 - leading as i64 + exponent;
        let scale = all as i64 - trailing as i64 - point as i64 - exponent;
        if whole > WHOLE_MAX || scale > i64::from(SCALE_MAX) {
            return None;
        }
        // Most numbers fit into 18 digits, which need no wide arithmetic.
        let kept = digits().skip(leading).take(all - leading - trailing);
        let mut number = match all - leading - trailing {
            0..=18 => I256::from(kept.fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'))),
            _ => kept.fold(I256::ZERO, |sum, digit| sum * 10 + I256::from(digit - b'0')),
        };
        if scale < 0 {
            number *= power(scale.unsigned_abs() as u32);
        }
        Some(Decimal { number: if negative { -number } else { number }, scale: scale.max(0) as u32 })
    }

    /// The number divided, rounded to so many digits behind the point, a half to the even digit.
    pub fn divided(self, by: u64, digits: u32) -> Decimal {
        let by = I256::from(by);
        // In two steps, since the sum times 10^27 may not fit: the remainder is less than 2^64.
        let (quotient, remainder, divisor) = match digits.checked_sub(self.scale) {
            Some(more) => {
                let rest = (self.number % by) * power(more);
                ((self.number / by) * power(more) + rest / by, rest % by, by)
            }
            None => {
                let divisor = by * power(self.scale - digits);
                (self.number / divisor, self.number % divisor, divisor)
            }
        };
        let twice = remainder.abs() * 2;
        let up = twice > divisor || (twice == divisor && quotient % 2 != 0);
        let away = if self.number < 0 { -1 } else { 1 };
        Decimal { number: quotient + if up { away } else { 0 }, scale: digits }
    }
}

fn exponent(text: &[u8]) -> i64 {
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some((b'+', digits)) => (1, digits),
        _ => (1, text),
    };
    // Saturates far beyond what fits.
    sign * digits.iter().fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 40))
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decimal { mut number, mut scale } = *self;
        while scale > 0 && number % 10 == 0 {
            number /= 10;
            scale -= 1;
        }
        let sign = if number < 0 { "-" } else { "" };
        let digits = number.unsigned_abs().to_string();
        let scale = scale as usize;
        match scale {
            0 => write!(f, "{sign}{digits}"),
            _ if digits.len() > scale => {
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                write!(f, "{sign}{whole}.{fraction}")
            }
            _ => write!(f, "{sign}0.{digits:0>scale$}"),
        }
    }
}

/// Writes a number in as few bytes as its sign allows, behind their count.
pub fn write(number: &I256, out: &mut Value<'_>) {
    let bytes = number.to_le_bytes();
    let fill = if *number < 0 { 0xff } else { 0 };
    let mut length = 32;
    // The last byte that stays must show the sign.
    while length > 0 && bytes[length - 1] == fill && (length == 1 || (bytes[length - 2] ^ fill) & 0x80 == 0) {
        length -= 1;
    }
    // Minus one would be no bytes at all, like zero.
    if length == 0 && fill == 0xff {
        length = 1;
    }
    out.push(&[length as u8]);
    out.push(&bytes[..length]);
}

/// Takes a number off the front.
pub fn take(bytes: &mut &[u8]) -> Option<I256> {
    let (length, rest) = bytes.split_first()?;
    let (number, rest) = rest.split_at_checked(usize::from(*length))?;
    *bytes = rest;
    let fill = if number.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [fill; 32];
    all.get_mut(..number.len())?.copy_from_slice(number);
    Some(I256::from_le_bytes(all))
}
