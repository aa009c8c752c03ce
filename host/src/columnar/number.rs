//! JSON numbers as exact integers: nothing here goes through a float.

/// Why a number is not the integer that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inexact {
    /// It has digits below the last that can be kept.
    Fraction,
    /// It is too large.
    Overflow,
}

/// The text as a 64-bit integer where it is plain digits, as nearly all are.
#[inline(always)]
pub fn plain_integer(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 18 digits can't overflow.
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// `text`, a number by JSON's grammar, times 10^`scale`, if that is an integer of at most 38 digits.
pub fn scaled(text: &str, scale: i32) -> Result<i128, Inexact> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes()).map(|digit| digit.wrapping_sub(b'0'));
    let Some(first) = digits().position(|digit| digit != 0) else { return Ok(0) };
    let length = whole.len() + fraction.len();
    let last = length - digits().rev().position(|digit| digit != 0).unwrap_or(0);
    // The value is the digits from first to last times 10^power.
    let power = clamped(exponent) + i64::from(scale) + (length - last) as i64 - fraction.len() as i64;
    if power < 0 {
        return Err(Inexact::Fraction);
    }
    if (last - first) as i64 + power > 38 {
        return Err(Inexact::Overflow);
    }
    let value = digits().take(last).skip(first).fold(0i128, |value, digit| value * 10 + i128::from(digit));
    let value = value * 10i128.pow(power as u32);
    Ok(if negative { -value } else { value })
}

/// An exponent, kept within what any message's digits could make up for.
fn clamped(text: &str) -> i64 {
    const FAR: i64 = 1 << 40;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    sign * digits.bytes().fold(0, |value, digit| (value * 10 + i64::from(digit.wrapping_sub(b'0'))).min(FAR))
}
