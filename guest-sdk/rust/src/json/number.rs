//! Numbers as text: checked and compared digit by digit, never through a float.

use std::cmp::Ordering;

/// True for exactly one JSON number.
pub fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && length(text) == text.len()
}

/// Bytes of the number at the start; 0 if there is none.
pub(super) fn length(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from.min(bytes.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    match (digits(at), bytes.get(at)) {
        (0, _) => return 0,
        // No zero in front of other digits.
        (n, Some(b'0')) if n > 1 => return 0,
        (n, _) => at += n,
    }
    if bytes.get(at) == Some(&b'.') {
        match digits(at + 1) {
            0 => return 0,
            n => at += 1 + n,
        }
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        match digits(at + 1 + sign) {
            0 => return 0,
            n => at += 1 + sign + n,
        }
    }
    at
}

/// A number taken apart: 0.DIGITS × 10^exponent.
struct Parts<'a> {
    negative: bool,
    /// Digits, perhaps with a point among them, from the first that is not zero.
    digits: &'a [u8],
    exponent: i64,
}

fn parts(number: &[u8]) -> Parts<'_> {
    let (negative, rest) = match number.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&rest[..at], exponent(&rest[at + 1..])),
        None => (rest, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    match mantissa.iter().position(|byte| !matches!(byte, b'0' | b'.')) {
        // All zeros: no digits, and minus zero is zero.
        None => Parts { negative: false, digits: b"", exponent: 0 },
        Some(first) => {
            let places = if first < point { (point - first) as i64 } else { -((first - point - 1) as i64) };
            Parts { negative, digits: &mantissa[first..], exponent: exponent.saturating_add(places) }
        }
    }
}

fn exponent(text: &[u8]) -> i64 {
    let (sign, digits) = match text.split_first() {
        Some((b'-', digits)) => (-1, digits),
        Some((b'+', digits)) => (1, digits),
        _ => (1, text),
    };
    // Saturates far beyond what anyone compares.
    sign * digits.iter().fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1 << 50))
}

/// Compares two JSON numbers exactly, whatever their size and precision.
pub fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (left, right) = (parts(left), parts(right));
    let sign = |parts: &Parts<'_>| match (parts.digits.is_empty(), parts.negative) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    };
    let by_sign = sign(&left).cmp(&sign(&right));
    if by_sign != Ordering::Equal {
        return by_sign;
    }
    let magnitude = left.exponent.cmp(&right.exponent).then_with(|| {
        let mut a = left.digits.iter().filter(|byte| **byte != b'.');
        let mut b = right.digits.iter().filter(|byte| **byte != b'.');
        loop {
            match (a.next(), b.next()) {
                (None, None) => return Ordering::Equal,
                (x, y) => match x.unwrap_or(&b'0').cmp(y.unwrap_or(&b'0')) {
                    Ordering::Equal => {}
                    other => return other,
                },
            }
        }
    });
    if left.negative { magnitude.reverse() } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_numbers_are_numbers() {
        for good in ["0", "-0", "1", "10.50", "1e5", "1E+5", "-1.25e-10", "123456789012345678901234567890"] {
            assert!(is_number(good.as_bytes()), "{good}");
        }
        for bad in ["", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "NaN", "1 ", " 1", "--1", "1.2.3"] {
            assert!(!is_number(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn numbers_compare_by_value_and_without_rounding() {
        let ascending = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992",
            "-1.5",
            "-1.49999999999999999999",
            "-1e-400",
            "0",
            "1e-400",
            "0.1",
            "0.10000000000000000000001",
            "1",
            "9.99",
            "10",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1.0000001e400",
        ];
        for (i, left) in ascending.iter().enumerate() {
            for (j, right) in ascending.iter().enumerate() {
                assert_eq!(compare(left.as_bytes(), right.as_bytes()), i.cmp(&j), "{left} {right}");
            }
        }
        for (left, right) in [("0", "-0.00"), ("1", "1.0"), ("100", "1e2"), ("0.0012", "12E-4"), ("1e0", "0.1e+1"), ("0e9", "0")]
        {
            assert_eq!(compare(left.as_bytes(), right.as_bytes()), Ordering::Equal, "{left} {right}");
        }
    }
}
