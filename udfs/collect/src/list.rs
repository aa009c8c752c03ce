//! Messages one behind the other: two lists are joined by joining their bytes. Behind a mark that says how many were dropped
//! nothing counts as kept any more, so that what a row holds is always the beginning of all messages, however they were joined.

use weir_udf::varint;

/// What a list may keep.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Messages.
    pub count: u64,
    /// Bytes of messages.
    pub bytes: u64,
}

/// An entry of a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A message.
    Message(&'a [u8]),
    /// So many messages stood here.
    Dropped(u64),
}

/// Adds an entry: twice the length of a message, or twice the number of dropped ones and one.
pub fn push(list: &mut Vec<u8>, item: Item<'_>) {
    match item {
        Item::Message(message) => {
            list.extend_from_slice(&varint::encode(message.len() as u64 * 2));
            list.extend_from_slice(message);
        }
        Item::Dropped(count) => list.extend_from_slice(&varint::encode(count * 2 + 1)),
    }
}

/// The entries in order.
pub fn items(mut list: &[u8]) -> impl Iterator<Item = Result<Item<'_>, String>> {
    std::iter::from_fn(move || {
        if list.is_empty() {
            return None;
        }
        let mut take = || {
            let header = varint::read(&mut list)?;
            if header & 1 == 1 {
                return Some(Item::Dropped(header / 2));
            }
            let (message, rest) = list.split_at_checked(usize::try_from(header / 2).ok()?)?;
            list = rest;
            Some(Item::Message(message))
        };
        let item = take().ok_or_else(|| "the accumulator is not one of collect".to_string());
        if item.is_err() {
            list = &[];
        }
        Some(item)
    })
}

/// What of a list is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Bytes of the list, from its start, that hold the messages that are kept.
    pub kept: usize,
    /// Their number.
    pub count: u64,
    /// The number of all others.
    pub dropped: u64,
}

/// Looks at the whole list.
pub fn measure(list: &[u8], limits: Limits) -> Result<Measure, String> {
    let mut measure = Measure::default();
    let (mut bytes, mut open) = (0, true);
    for item in items(list) {
        match item? {
            Item::Dropped(count) => {
                measure.dropped += count;
                open = false;
            }
            Item::Message(message) => {
                bytes += message.len() as u64;
                open &= measure.count < limits.count && bytes <= limits.bytes;
                match open {
                    true => {
                        measure.count += 1;
                        let header = varint::encode(message.len() as u64 * 2).len();
                        measure.kept += header + message.len();
                    }
                    false => measure.dropped += 1,
                }
            }
        }
    }
    Ok(measure)
}

/// Cuts off what is dropped, once the list is far too long: looking through it each time would take too long itself.
pub fn shorten(list: &mut Vec<u8>, limits: Limits) -> Result<(), String> {
    // A message takes a byte at least, so that both limits hold the list's length within bounds.
    let most = limits.bytes.saturating_mul(2).saturating_add(64);
    if list.len() as u64 <= most {
        return Ok(());
    }
    let Measure { kept, dropped, .. } = measure(list, limits)?;
    list.truncate(kept);
    if dropped > 0 {
        push(list, Item::Dropped(dropped));
    }
    Ok(())
}
