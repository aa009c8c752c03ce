//! When the thing happened that a message tells of: from a field, an attribute, or the source's own time.

use crate::batch::{Batch, Rejected};
use crate::columnar::{Extractor, scaled, timestamp};
use crate::error::Result;

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A number: this many of its units are a millisecond (or, below zero, as many milliseconds one unit).
    Number {
        /// The power of ten that makes milliseconds of it: 3 for seconds, -3 for microseconds.
        scale: i32,
    },
    /// ISO 8601 with an offset, as in `2026-12-03T04:34:15.250Z`.
    Iso,
}

/// Where the time stands.
#[derive(Clone, Debug)]
pub enum EventTime {
    /// The source's own: the broker's timestamp, the line's reading.
    Source,
    /// A field of a JSON message.
    Field {
        /// Its JSON pointer.
        pointer: String,
        /// Finds it.
        extractor: Extractor,
        /// How it is written.
        format: Format,
    },
    /// An attribute.
    Attribute {
        /// Its name.
        name: String,
        /// How it is written.
        format: Format,
    },
}

impl EventTime {
    /// Sets the event times of a batch. Rows without one are taken out.
    pub fn stamp(&self, batch: Batch) -> Result<(Batch, Option<Rejected>)> {
        let mut times = Vec::with_capacity(batch.len());
        let (mut bad, mut reasons) = (Vec::new(), Vec::new());
        let mut take = |row: usize, time: std::result::Result<i64, String>| match time {
            Ok(time) => times.push(time),
            Err(reason) => {
                bad.push(row as u32);
                reasons.push(reason);
            }
        };
        match self {
            EventTime::Source => return Ok((batch, None)),
            EventTime::Field { pointer, extractor, format } => extractor.each(&batch, |row, found| {
                let time = found.and_then(|found| match found[0] {
                    None => Err("it is missing or null".to_string()),
                    Some(text) => parse(text.trim_matches('"'), *format),
                });
                take(row, time.map_err(|why| format!("the message has no event time: {why} pointer={pointer}")));
            }),
            EventTime::Attribute { name, format } => {
                for row in 0..batch.len() {
                    let value = batch.attributes.of(row as u32).find(|(found, _)| found == name).and_then(|(_, value)| value);
                    let time = match value.map(std::str::from_utf8) {
                        None => Err("it is missing".to_string()),
                        Some(Err(_)) => Err("it is not text".to_string()),
                        Some(Ok(text)) => parse(text, *format),
                    };
                    take(row, time.map_err(|why| format!("the message has no event time: {why} attribute={name}")));
                }
            }
        }
        if bad.is_empty() {
            return Ok((Batch { event_times: times.into(), ..batch }, None));
        }
        let good: Vec<u32> = (0..batch.len() as u32).filter(|row| bad.binary_search(row).is_err()).collect();
        let rejected = Rejected { rows: batch.take(&bad)?, reasons, module: None };
        Ok((Batch { event_times: times.into(), ..batch.take(&good)? }, Some(rejected)))
    }
}

fn parse(text: &str, format: Format) -> std::result::Result<i64, String> {
    match format {
        Format::Iso => match timestamp(text, true) {
            Ok(micros) => Ok(micros.div_euclid(1_000)),
            Err(why) => Err(format!("{why} expected=iso found={}", clip(text))),
        },
        Format::Number { scale } => {
            // Digits below the millisecond are cut off, as those of any clock are.
            let scaled = scaled_down(text, scale).filter(|ms| i64::try_from(*ms).is_ok());
            scaled.map(|ms| ms as i64).ok_or_else(|| format!("not a number of the declared unit found={}", clip(text)))
        }
    }
}

fn scaled_down(text: &str, scale: i32) -> Option<i128> {
    let number = text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'-');
    let well_formed = number && serde_json::from_str::<serde_json::value::Number>(text).is_ok();
    if !well_formed {
        return None;
    }
    match scaled(text, scale + 9) {
        Ok(fine) => Some(fine.div_euclid(1_000_000_000)),
        Err(_) => None,
    }
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn times(format: Format, texts: &[&str]) -> (Vec<i64>, Vec<String>) {
        let mut builder = BatchBuilder::new(4, 0);
        for text in texts {
            builder.push(None, Some(format!("{{\"t\":{text}}}").as_bytes()), Origin::default());
        }
        let extractor = Extractor::new(["/t"]).unwrap();
        let time = EventTime::Field { pointer: "/t".into(), extractor, format };
        let (batch, rejected) = time.stamp(builder.finish(0)).unwrap();
        (batch.event_times.to_vec(), rejected.map(|r| r.reasons).unwrap_or_default())
    }

    #[test]
    fn times_are_read_by_their_declared_unit_and_never_through_a_float() {
        assert_eq!(times(Format::Number { scale: 0 }, &["1767412800123", "\"5\"", "-1.5"]).0, [1767412800123, 5, -2]);
        assert_eq!(times(Format::Number { scale: 3 }, &["1767412800.123456", "1e3"]).0, [1767412800123, 1_000_000]);
        assert_eq!(times(Format::Number { scale: -6 }, &["1767412800123999999"]).0, [1767412800123]);
        assert_eq!(times(Format::Iso, &["\"2026-01-03T04:00:00.250+01:00\""]).0, [1767409200250]);
    }

    #[test]
    fn a_message_without_a_time_says_what_was_found() {
        let (good, reasons) = times(Format::Number { scale: 0 }, &["7", "\"soon\"", "null", "1e40"]);
        assert_eq!(good, [7]);
        assert!(reasons[0].ends_with("not a number of the declared unit found=soon pointer=/t"), "{reasons:?}");
        assert!(reasons[1].contains("missing or null") && reasons[2].contains("found=1e40"), "{reasons:?}");
        assert!(times(Format::Iso, &["\"2026-01-03T04:00:00\""]).1[0].contains("needs its offset"));
    }
}
