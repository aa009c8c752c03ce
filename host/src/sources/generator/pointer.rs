//! Where in a JSON text the value of a pointer stands. The text is known to be valid.

use std::ops::Range;

/// The bytes of the value that `pointer` (`/user/id`, `/items/0`) names, quotes included.
pub fn find(text: &[u8], pointer: &str) -> Option<Range<usize>> {
    let mut at = spaces(text, 0);
    for token in pointer.strip_prefix('/')?.split('/') {
        let token = token.replace("~1", "/").replace("~0", "~");
        at = enter(text, at, &token)?;
    }
    Some(at..skip(text, at))
}

/// The start of the member or element `token` of the value that starts at `at`.
fn enter(text: &[u8], at: usize, token: &str) -> Option<usize> {
    let (object, close) = match text.get(at)? {
        b'{' => (true, b'}'),
        b'[' => (false, b']'),
        _ => return None,
    };
    let mut at = spaces(text, at + 1);
    for index in 0.. {
        if *text.get(at)? == close {
            return None;
        }
        let found = if object {
            let end = skip(text, at);
            let name: String = serde_json::from_slice(&text[at..end]).ok()?;
            // Behind the name and its colon.
            at = spaces(text, spaces(text, end) + 1);
            name == token
        } else {
            token.parse() == Ok(index)
        };
        if found {
            return Some(at);
        }
        at = spaces(text, skip(text, at));
        if text.get(at) == Some(&b',') {
            at = spaces(text, at + 1);
        }
    }
    None
}

fn spaces(text: &[u8], at: usize) -> usize {
    at + text[at.min(text.len())..].iter().take_while(|b| b.is_ascii_whitespace()).count()
}

/// The end of the value that starts at `at`.
fn skip(text: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while let Some(byte) = text.get(at)
                    && *byte != b'"'
                {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                if depth == 0 {
                    return (at + 1).min(text.len());
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' if depth == 0 => return at,
            byte if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_what_serde_finds() {
        let text = br#" { "a\"b" : [1, {"c": "x,]\"y"}, [ ] ], "d/e":{"f":true} , "g": -1.5e3}"#;
        let value: serde_json::Value = serde_json::from_slice(text).unwrap();
        for pointer in ["/a\"b", "/a\"b/0", "/a\"b/1", "/a\"b/1/c", "/a\"b/2", "/d~1e", "/d~1e/f", "/g"] {
            let range = find(text, pointer).unwrap_or_else(|| panic!("{pointer}"));
            let found: serde_json::Value = serde_json::from_slice(&text[range]).unwrap();
            assert_eq!(Some(&found), value.pointer(pointer), "{pointer}");
        }
        for pointer in ["", "a", "/x", "/a\"b/3", "/g/x", "/a\"b/2/0"] {
            assert_eq!(find(text, pointer), None, "{pointer}");
        }
    }
}
