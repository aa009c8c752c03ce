//! Dates and times as ISO 8601 writes them, as days and microseconds since the epoch. No clock, no time zones by name.

/// Microseconds of a day.
pub const DAY: i64 = 86_400_000_000;

/// What is wrong with a date or time.
pub type Wrong = &'static str;

const NOT_ISO: Wrong = "not a date or time of this form";
const NO_SUCH_DAY: Wrong = "no such day";
const NO_SUCH_TIME: Wrong = "no such time of day";
const TOO_FINE: Wrong = "finer than microseconds";

/// Takes two digits off the front.
fn two(bytes: &mut &[u8]) -> Option<u32> {
    let (digits, rest) = bytes.split_first_chunk::<2>()?;
    let [tens, ones] = digits.map(|digit| u32::from(digit.wrapping_sub(b'0')));
    if tens > 9 || ones > 9 {
        return None;
    }
    *bytes = rest;
    Some(tens * 10 + ones)
}

/// Takes one byte off the front if it is `wanted`.
fn one(bytes: &mut &[u8], wanted: u8) -> Option<()> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    (*first == wanted).then_some(())
}

/// Days since the epoch of a day of the Gregorian calendar, by Howard Hinnant's algorithm: years begin in March, so
/// that the leap day is their last.
fn days(year: i32, month: u32, day: u32) -> i32 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = ((153 * ((month + 9) % 12) + 2) / 5 + day - 1) as i32;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn month_length(year: i32, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn take_date(bytes: &mut &[u8]) -> Result<i32, Wrong> {
    let mut read = || {
        let year = (two(bytes)? * 100 + two(bytes)?) as i32;
        one(bytes, b'-')?;
        let month = two(bytes)?;
        one(bytes, b'-')?;
        Some((year, month, two(bytes)?))
    };
    let (year, month, day) = read().ok_or(NOT_ISO)?;
    if !(1..=12).contains(&month) || day == 0 || day > month_length(year, month) {
        return Err(NO_SUCH_DAY);
    }
    Ok(days(year, month, day))
}

fn take_time(bytes: &mut &[u8]) -> Result<i64, Wrong> {
    let mut read = || {
        let hour = two(bytes)?;
        one(bytes, b':')?;
        let minute = two(bytes)?;
        one(bytes, b':')?;
        Some((hour, minute, two(bytes)?))
    };
    let (hour, minute, second) = read().ok_or(NOT_ISO)?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(NO_SUCH_TIME);
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    Ok(seconds * 1_000_000 + take_fraction(bytes)?)
}

/// The microseconds behind the point, if there is one.
fn take_fraction(bytes: &mut &[u8]) -> Result<i64, Wrong> {
    let [b'.', rest @ ..] = *bytes else { return Ok(0) };
    let length = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    if length == 0 {
        return Err(NOT_ISO);
    }
    let (digits, rest) = rest.split_at(length);
    *bytes = rest;
    let (kept, dropped) = digits.split_at(length.min(6));
    if dropped.iter().any(|digit| *digit != b'0') {
        return Err(TOO_FINE);
    }
    Ok(kept.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')) * 10i64.pow(6 - kept.len() as u32))
}

/// Microseconds east of UTC, where there is an offset.
fn take_offset(bytes: &mut &[u8]) -> Result<Option<i64>, Wrong> {
    let sign = match *bytes {
        [] => return Ok(None),
        [b'Z' | b'z', rest @ ..] => {
            *bytes = rest;
            return Ok(Some(0));
        }
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return Err(NOT_ISO),
    };
    *bytes = &bytes[1..];
    let mut read = || {
        let hours = two(bytes)?;
        one(bytes, b':')?;
        Some((hours, two(bytes)?))
    };
    match read().ok_or(NOT_ISO)? {
        (hours @ 0..=23, minutes @ 0..=59) => Ok(Some(sign * i64::from(hours * 60 + minutes) * 60_000_000)),
        _ => Err("no such offset"),
    }
}

fn end(bytes: &[u8]) -> Result<(), Wrong> {
    if bytes.is_empty() { Ok(()) } else { Err(NOT_ISO) }
}

/// `YYYY-MM-DD` as days.
pub fn date(text: &str) -> Result<i32, Wrong> {
    let mut bytes = text.as_bytes();
    let days = take_date(&mut bytes)?;
    end(bytes)?;
    Ok(days)
}

/// `HH:MM:SS[.ffffff]` as microseconds of the day.
pub fn time(text: &str) -> Result<i64, Wrong> {
    let mut bytes = text.as_bytes();
    let time = take_time(&mut bytes)?;
    end(bytes)?;
    Ok(time)
}

/// `YYYY-MM-DDTHH:MM:SS[.ffffff]` as microseconds; with an offset where `zoned`, else without.
pub fn timestamp(text: &str, zoned: bool) -> Result<i64, Wrong> {
    let mut bytes = text.as_bytes();
    let days = take_date(&mut bytes)?;
    match bytes {
        [b'T' | b't' | b' ', rest @ ..] => bytes = rest,
        _ => return Err(NOT_ISO),
    }
    let local = i64::from(days) * DAY + take_time(&mut bytes)?;
    let offset = take_offset(&mut bytes)?;
    end(bytes)?;
    match (zoned, offset) {
        (true, Some(offset)) => Ok(local - offset),
        (true, None) => Err("an instant needs its offset, `Z` or like `+01:00`"),
        (false, None) => Ok(local),
        (false, Some(_)) => Err("a timestamp without time zone can't have an offset"),
    }
}
