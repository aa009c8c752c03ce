//! Rust source as rules read it: comments, text in quotes and test modules blanked out, lines kept.
//! A small lexer, not a parser.

/// The source with everything blanked that is not code: comments, strings, characters.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => find(bytes, at, b"\n"),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment(bytes, at),
            b'"' => quoted(bytes, at),
            b'r' | b'b' | b'c' if !part_of_word(bytes, at) => match prefixed(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            b'\'' => match character(bytes, at) {
                Some(end) => end,
                None => {
                    at += 1;
                    continue;
                }
            },
            _ => {
                at += 1;
                continue;
            }
        };
        blank(&mut out[at..end]);
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Code without the items behind `#[cfg(test)]`.
pub fn without_tests(code: &str) -> String {
    let mut out = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let end = item_end(code.as_bytes(), start + "#[cfg(test)]".len());
        blank(&mut out[start..end]);
        from = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Every path that begins with `prefix::`, as the word behind it, with its line. Sees `prefix::{a, b::c}` too.
pub fn words_after(code: &str, prefix: &str) -> Vec<(usize, String)> {
    let pattern = format!("{prefix}::");
    let mut found = Vec::new();
    for (start, _) in code.match_indices(&pattern) {
        if is_word_byte(code.as_bytes(), start.wrapping_sub(1)) {
            continue;
        }
        let rest = &code[start + pattern.len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => top_level_names(list),
            None => vec![leading_word(rest)],
        };
        let line = line_of(code, start);
        found.extend(names.into_iter().filter(|name| !name.is_empty()).map(|name| (line, name)));
    }
    found
}

/// The lines where `word::` or `use word` begins a path: where a crate of that name is used.
pub fn uses_of_crate(code: &str, word: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    for (start, _) in code.match_indices(word) {
        let before = &code[..start];
        let after = &code[start + word.len()..];
        let starts_path = !is_word_byte(code.as_bytes(), start.wrapping_sub(1)) && !before.ends_with("::");
        let plain_use = before.trim_end().ends_with("use") && after.starts_with([';', ' ']);
        if starts_path && (after.starts_with("::") || plain_use) {
            lines.push(line_of(code, start));
        }
    }
    lines
}

/// The line of a byte, counted from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    bytes[from..].windows(what.len()).position(|w| w == what).map_or(bytes.len(), |p| from + p)
}

fn is_word_byte(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn part_of_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word_byte(bytes, at - 1)
}

fn block_comment(bytes: &[u8], start: usize) -> usize {
    let (mut depth, mut at) = (0, start);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The end of a string that begins with a quote at `start`.
fn quoted(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `b"…"`, `r#"…"#`, `br"…"`, `b'…'` at `start`, if it is one.
fn prefixed(bytes: &[u8], start: usize) -> Option<usize> {
    let letters = bytes[start..].iter().take(2).take_while(|b| b"rbc".contains(b)).count();
    let raw = bytes[start..start + letters].contains(&b'r');
    let at = start + letters;
    if !raw {
        return match bytes.get(at)? {
            b'"' => Some(quoted(bytes, at)),
            b'\'' => character(bytes, at),
            _ => None,
        };
    }
    let hashes = bytes[at..].iter().take_while(|b| **b == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    Some((find(bytes, at + hashes + 1, &close) + close.len()).min(bytes.len()))
}

/// The end of a character at `start`; none when it is a lifetime.
fn character(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start + 1) == Some(&b'\\') {
        return Some(find(bytes, start + 3, b"'") + 1);
    }
    let text = std::str::from_utf8(&bytes[start + 1..bytes.len().min(start + 9)]);
    let text = text.unwrap_or_else(|e| std::str::from_utf8(&bytes[start + 1..start + 1 + e.valid_up_to()]).unwrap());
    let width = text.chars().next()?.len_utf8();
    (bytes.get(start + 1 + width) == Some(&b'\'')).then_some(start + 2 + width)
}

/// Where the item that begins behind `from` ends: at its `;` or its closing brace.
fn item_end(code: &[u8], from: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b';' if depth == 0 => return at + 1,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

fn leading_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// The first word of each entry of a `{a, b::{c, d}}`, given from behind its opening brace.
fn top_level_names(list: &str) -> Vec<String> {
    let (mut depth, mut entry, mut names) = (0, String::new(), Vec::new());
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(leading_word(std::mem::take(&mut entry).trim())),
            _ if depth == 0 => entry.push(c),
            _ => {}
        }
    }
    names.push(leading_word(entry.trim()));
    names
}

#[test]
fn comments_text_and_test_modules_are_no_code() {
    let source = r####"
let a = "x.unwrap()"; // y.unwrap()
let b = r#"z.unwrap() " "#; /* a /* b */ c.unwrap() */
let c = '"'; let d: &'static str = b"\".unwrap()"; let e = 'ä'; let f = b'\''; real.unwrap();
#[cfg(test)]
mod tests { fn f() { { t.unwrap() } } }
after.unwrap();
"####;
    let code = without_tests(&code_only(source));
    let found: Vec<usize> = code.match_indices(".unwrap()").map(|(at, _)| line_of(&code, at)).collect();
    assert_eq!(found, [4, 7], "{code}");
    assert!(code.contains("&'static str"));
}

#[test]
fn grouped_imports_are_seen_one_by_one() {
    let code = "use crate::{batch::{A, B}, sink};\nlet x = crate::wasm::load(); my_crate::no();";
    let found = words_after(code, "crate");
    assert_eq!(found, [(1, "batch".into()), (1, "sink".into()), (2, "wasm".into())]);
    assert_eq!(uses_of_crate("use iceberg::Catalog;\nsinks::iceberg::X;\nmod iceberg;\nuse iceberg;", "iceberg"), [1, 4]);
}
