//! Strings: out of their escapes, and into them.

/// What lies between the quotes of a JSON string, escapes as they stand; `None` for other values.
#[inline]
pub fn inner(value: &[u8]) -> Option<&[u8]> {
    match value {
        [b'"', inner @ .., b'"'] => Some(inner),
        _ => None,
    }
}

/// The text that the inner part of a valid JSON string stands for: itself, if nothing is escaped,
/// otherwise written into `scratch`. An escaped surrogate without its other half becomes U+FFFD.
pub fn unescape<'a>(inner: &'a [u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(first) = inner.iter().position(|byte| *byte == b'\\') else { return inner };
    scratch.clear();
    scratch.extend_from_slice(&inner[..first]);
    let mut at = first;
    while at < inner.len() {
        if inner[at] != b'\\' {
            let plain = inner[at..].iter().position(|byte| *byte == b'\\').unwrap_or(inner.len() - at);
            scratch.extend_from_slice(&inner[at..at + plain]);
            at += plain;
            continue;
        }
        let simple = match inner.get(at + 1) {
            Some(b'u') => {
                let (letter, length) = unicode(&inner[at..]);
                scratch.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                at += length;
                continue;
            }
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(other) => *other,
            None => b'\\',
        };
        scratch.push(simple);
        at += 2;
    }
    scratch
}

/// The letter of a `\uXXXX`, or of two that are halves of one, and how many bytes they take.
fn unicode(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6).filter(|text| text.starts_with(b"\\u"))?;
        u32::from_str_radix(std::str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let first = unit(0).unwrap_or(0xfffd);
    if let (0xd800..0xdc00, Some(second @ 0xdc00..0xe000)) = (first, unit(6)) {
        let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        return (char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER), 12);
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), 6)
}

/// Hands `write` the pieces of a JSON string, quotes included, that stands for a text.
pub fn quote(text: &str, mut write: impl FnMut(&[u8])) {
    write(b"\"");
    let bytes = text.as_bytes();
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let short: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0..=0x1f => b"",
            _ => continue,
        };
        write(&bytes[from..at]);
        match short {
            b"" => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
                write(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(*byte)]);
            }
            short => write(short),
        }
        from = at + 1;
    }
    write(&bytes[from..]);
    write(b"\"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_being_quoted_and_read() {
        for text in ["", "plain", "a\"b\\c/d\n\r\t\u{8}\u{c}\u{1}\u{7f}", "grüße 🦀", "\\u0041"] {
            let mut quoted = Vec::new();
            quote(text, |piece| quoted.extend_from_slice(piece));
            assert_eq!(serde_json::from_slice::<String>(&quoted).unwrap(), text);
            assert_eq!(unescape(inner(&quoted).unwrap(), &mut Vec::new()), text.as_bytes());
        }
    }

    #[test]
    fn every_escape_is_understood() {
        let read = |text: &[u8]| String::from_utf8(unescape(text, &mut Vec::new()).to_vec()).unwrap();
        assert_eq!(read(br#"\"\\\/\b\f\n\r\t\u0041x"#), "\"\\/\u{8}\u{c}\n\r\tAx");
        assert_eq!(read(br"\ud83e\udd80"), "🦀");
        assert_eq!(read(br"\ud83ex \udd80 \ud83e"), "\u{fffd}x \u{fffd} \u{fffd}");
        assert_eq!(read(br"\ud83e\u0041"), "\u{fffd}A");
    }
}
