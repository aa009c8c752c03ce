//! A cursor over the JSON text of one message: strings, numbers, literals and what lies between them, by RFC 8259
//! and no laxer. Knows nothing of schemas and columns.
//!
//! The text is valid UTF-8 before it comes here. Reading past the end gives NUL, which no rule of JSON allows.

use memchr::memchr2;

/// How deep objects and arrays may nest in a message.
pub const MAX_DEPTH: usize = 64;

/// Longest piece of a message that a reason shows, in bytes.
const SHOWN: usize = 60;

/// Why a message is rejected.
#[derive(Debug, PartialEq)]
pub struct Fault(Box<str>);

impl Fault {
    /// The reason for people.
    pub fn into_reason(self) -> String {
        self.0.into()
    }
}

/// What reading a part of a message gives.
pub type Parsed<T = ()> = Result<T, Box<Fault>>;

/// A string in the message: what is between its quotes, its escapes checked but not yet resolved.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Where it begins in the message.
    pub start: usize,
    /// Where its closing quote is.
    pub end: usize,
    /// Whether it has escapes.
    pub escaped: bool,
}

/// One step of a path into a message.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A key, as it is written between its quotes.
    Key(u32, u32),
    /// A place in an array.
    Index(u32),
}

/// Reads one message after the other.
pub struct Cursor<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    path: [Step; MAX_DEPTH],
    clean: bool,
}

const HIGHS: u64 = 0x8080_8080_8080_8080;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Marks in each byte's high bit whether it ends the plain part of a string: a quote, a backslash or a control
/// character. Marks above the lowest one may be wrong.
#[inline(always)]
fn special(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    (word.wrapping_sub(ONES * 0x20) & !word | quote.wrapping_sub(ONES) & !quote | backslash.wrapping_sub(ONES) & !backslash)
        & HIGHS
}

/// Whether there is a control character.
#[inline(always)]
fn has_control(bytes: &[u8]) -> bool {
    // A minimum has no early exit, which lets the compiler take many bytes at once.
    bytes.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < 0x20
}

impl<'a> Cursor<'a> {
    /// A cursor for the messages in `block`, with nothing to read yet.
    pub fn new(block: &str) -> Cursor<'a> {
        // Few messages have line breaks: then one look at the whole block spares one at each string.
        let clean = !has_control(block.as_bytes());
        Cursor { text: "", bytes: &[], at: 0, depth: 0, path: [Step::Index(0); MAX_DEPTH], clean }
    }

    /// Goes to the beginning of another message.
    pub fn reset(&mut self, text: &'a str) {
        self.text = text;
        self.bytes = text.as_bytes();
        self.at = 0;
        self.depth = 0;
    }

    /// The byte at the cursor; NUL at the end.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Where the cursor is.
    pub fn at(&self) -> usize {
        self.at
    }

    /// How many objects and arrays it is in.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Goes past white space.
    #[inline(always)]
    pub fn skip_space(&mut self) {
        if self.peek() <= b' ' {
            self.skip_more_space();
        }
    }

    fn skip_more_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// Goes past `byte` if it is next.
    #[inline(always)]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    /// Goes past `token` if it is next.
    #[inline(always)]
    pub fn take_all(&mut self, token: &[u8]) -> bool {
        let found = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(token));
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// The `length` bytes between quotes at the cursor, if there is a quote behind them. They may hold anything.
    #[inline(always)]
    pub fn quoted(&self, length: usize) -> Option<&'a [u8]> {
        match self.bytes.get(self.at..self.at + length + 2)? {
            [b'"', text @ .., b'"'] => Some(text),
            _ => None,
        }
    }

    /// Goes past so many bytes.
    #[inline(always)]
    pub fn pass(&mut self, length: usize) {
        self.at += length;
    }

    /// The part of the message from `start` to `end`.
    #[inline(always)]
    pub fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end).unwrap_or("")
    }

    /// A string's value: a part of the message, or `scratch` where there are escapes.
    pub fn resolve<'s>(&self, text: Text, scratch: &'s mut String) -> &'s str
    where
        'a: 's,
    {
        if !text.escaped {
            return self.slice(text.start, text.end);
        }
        scratch.clear();
        unescape(self.slice(text.start, text.end), scratch);
        scratch
    }

    /// Enters the object or array at the cursor.
    #[inline(always)]
    pub fn enter(&mut self) -> Parsed {
        if self.depth == MAX_DEPTH {
            return Err(self.fault_here("objects and arrays nest deeper than 64"));
        }
        self.at += 1;
        self.depth += 1;
        Ok(())
    }

    /// Leaves the object or array whose last byte is at the cursor.
    #[inline(always)]
    pub fn leave(&mut self) {
        self.at += 1;
        self.depth -= 1;
    }

    /// Notes what of the object or array that was entered last is being read.
    #[inline(always)]
    pub fn step(&mut self, step: Step) {
        self.path[self.depth - 1] = step;
    }

    /// Goes past the comma before the next key or element; false at `close`, which is left to be taken.
    #[inline(always)]
    pub fn more(&mut self, close: u8) -> Parsed<bool> {
        self.skip_space();
        let byte = self.peek();
        if byte == b',' {
            self.at += 1;
            self.skip_space();
            return Ok(true);
        }
        if byte == close {
            return Ok(false);
        }
        // It is the fault of the object or array, not of the value that was read last.
        self.depth -= 1;
        Err(self.fault_here(if close == b'}' { "not JSON: expected `,` or `}`" } else { "not JSON: expected `,` or `]`" }))
    }

    /// Reads a key and goes past the colon.
    pub fn key(&mut self) -> Parsed<Text> {
        self.depth -= 1;
        if self.peek() != b'"' {
            return Err(self.fault_here("not JSON: expected a key in quotes"));
        }
        let text = self.string()?;
        self.depth += 1;
        self.step(Step::Key(text.start as u32, text.end as u32));
        self.skip_space();
        if !self.take(b':') {
            return Err(self.fault_here("not JSON: expected `:`"));
        }
        Ok(text)
    }

    /// Reads the string whose opening quote is at the cursor.
    #[inline(always)]
    pub fn string(&mut self) -> Parsed<Text> {
        self.at += 1;
        let start = self.at;
        let escaped = self.skip_plain()? == b'\\';
        if escaped {
            self.skip_escaped()?;
        }
        let end = self.at;
        self.at += 1;
        Ok(Text { start, end, escaped })
    }

    /// Goes from a backslash in a string to its closing quote.
    #[inline(never)]
    fn skip_escaped(&mut self) -> Parsed {
        loop {
            self.escape()?;
            if self.skip_plain()? == b'"' {
                return Ok(());
            }
        }
    }

    /// Goes to the next quote or backslash of a string, and gives it.
    #[inline(always)]
    fn skip_plain(&mut self) -> Parsed<u8> {
        // Most strings are short: a few words at a time before the call that is made for long ones.
        for _ in 0..4 {
            let Some(word) = self.bytes.get(self.at..self.at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes)
            else {
                break;
            };
            let found = special(word);
            if found != 0 {
                self.at += (found.trailing_zeros() / 8) as usize;
                return match self.peek() {
                    byte @ 0x20.. => Ok(byte),
                    _ => Err(self.control()),
                };
            }
            self.at += 8;
        }
        self.skip_long_plain()
    }

    #[inline(never)]
    fn skip_long_plain(&mut self) -> Parsed<u8> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let found = memchr2(b'"', b'\\', rest);
        let plain = &rest[..found.unwrap_or(rest.len())];
        if !self.clean && has_control(plain) {
            self.at += plain.iter().position(|byte| *byte < 0x20).unwrap_or(0);
            return Err(self.control());
        }
        self.at += plain.len();
        match found {
            Some(at) => Ok(rest[at]),
            None => Err(self.fault_here("not JSON: a string without its closing quote")),
        }
    }

    #[cold]
    fn control(&self) -> Box<Fault> {
        self.fault_here("not JSON: a control character in a string")
    }

    fn escape(&mut self) -> Parsed {
        let byte = self.bytes.get(self.at + 1).copied().unwrap_or(0);
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let unit = self.hex(self.at + 2);
                let high = unit.ok_or_else(|| self.fault_here("not JSON: `\\u` needs four hexadecimal digits"))?;
                let length = match high {
                    0xD800..=0xDBFF => {
                        let follows = self.bytes.get(self.at + 6..self.at + 8) == Some(b"\\u");
                        let low = self.hex(self.at + 8).filter(|low| follows && (0xDC00..=0xDFFF).contains(low));
                        low.ok_or_else(|| self.fault_here("a lone surrogate in a string, which is no character"))?;
                        12
                    }
                    0xDC00..=0xDFFF => return Err(self.fault_here("a lone surrogate in a string, which is no character")),
                    _ => 6,
                };
                self.at += length;
            }
            _ => return Err(self.fault_here("not JSON: an unknown escape in a string")),
        }
        Ok(())
    }

    fn hex(&self, at: usize) -> Option<u32> {
        hex(self.bytes.get(at..at + 4)?)
    }

    /// Reads the number at the cursor and gives its text.
    #[inline(always)]
    pub fn number(&mut self) -> Parsed<&'a str> {
        let start = self.at;
        match number_end(self.bytes, start) {
            Ok(end) => {
                self.at = end;
                Ok(self.slice(start, end))
            }
            Err((at, _)) if at == start => Err(self.no_value(start)),
            Err((at, message)) => {
                self.at = at;
                Err(self.fault_here(message))
            }
        }
    }

    /// Reads `true`, `false` or `null`.
    #[inline(always)]
    pub fn literal(&mut self, word: &'static str) -> Parsed {
        if self.take_all(word.as_bytes()) { Ok(()) } else { Err(self.no_value(self.at)) }
    }

    #[cold]
    fn no_value(&mut self, start: usize) -> Box<Fault> {
        self.at = start;
        let rest = &self.bytes[start..];
        let message = match rest {
            [] => "not JSON: it ends where a value should be",
            _ if ["NaN", "Infinity", "-Infinity"].iter().any(|word| rest.starts_with(word.as_bytes())) => {
                "not JSON: NaN and Infinity have to be in quotes"
            }
            _ => "not JSON: expected a value",
        };
        self.fault_here(message)
    }

    /// Goes past a value, which is checked like any other.
    pub fn skip(&mut self) -> Parsed {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'{' => {
                self.enter()?;
                self.skip_space();
                let mut more = self.peek() != b'}';
                while more {
                    self.key()?;
                    self.skip_space();
                    self.skip()?;
                    more = self.more(b'}')?;
                }
                self.leave();
                Ok(())
            }
            b'[' => {
                self.enter()?;
                self.skip_space();
                let mut more = self.peek() != b']';
                let mut index = 0;
                while more {
                    self.step(Step::Index(index));
                    index += 1;
                    self.skip()?;
                    more = self.more(b']')?;
                }
                self.leave();
                Ok(())
            }
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            _ => self.number().map(drop),
        }
    }

    /// Where in the message the cursor is, as a JSON pointer.
    pub fn pointer(&self) -> String {
        let mut pointer = String::new();
        for step in &self.path[..self.depth] {
            pointer.push('/');
            match step {
                Step::Index(index) => pointer.push_str(&index.to_string()),
                Step::Key(start, end) => {
                    let mut key = String::new();
                    unescape(self.slice(*start as usize, *end as usize), &mut key);
                    pointer.push_str(&pointer_key(&key));
                }
            }
        }
        pointer
    }

    /// A fault of the JSON itself, at the cursor.
    #[cold]
    pub fn fault_here(&self, message: &str) -> Box<Fault> {
        let pointer = self.pointer();
        let pointer = if pointer.is_empty() { pointer } else { format!(" pointer={pointer}") };
        Box::new(Fault(format!("{message}{pointer} at={}", self.at).into()))
    }

    /// A fault of what the JSON says, at the present path.
    #[cold]
    pub fn fault(&self, message: impl AsRef<str>) -> Box<Fault> {
        let pointer = self.pointer();
        let pointer = if pointer.is_empty() { pointer } else { format!(" pointer={pointer}") };
        Box::new(Fault(format!("{}{pointer}", message.as_ref()).into()))
    }

    /// A field that the object at the present path should have.
    #[cold]
    pub fn missing(&mut self, name: &str, expected: impl std::fmt::Display) -> Box<Fault> {
        self.depth -= 1;
        let pointer = format!("{}/{}", self.pointer(), pointer_key(name));
        Box::new(Fault(format!("a required field is missing pointer={pointer} expected={expected}").into()))
    }

    /// A fault of the value that begins at `start`.
    #[cold]
    pub fn unfit(&mut self, message: &str, expected: impl std::fmt::Display, start: usize) -> Box<Fault> {
        let found = self.found(start);
        let fault = self.fault(message).0;
        Box::new(Fault(format!("{fault} expected={expected} found={found}").into()))
    }

    /// The type and the text, clipped, of the value that begins at `start`.
    pub fn found(&mut self, start: usize) -> String {
        let (at, depth) = (self.at, self.depth);
        self.at = start;
        let end = match self.skip() {
            Ok(()) => self.at,
            Err(_) => self.bytes.len(),
        };
        (self.at, self.depth) = (at, depth);
        let name = match self.bytes.get(start) {
            Some(b'"') => "string ",
            Some(b'{') => "object ",
            Some(b'[') => "array ",
            Some(b't' | b'f') => "boolean ",
            Some(b'n') => return "null".into(),
            None => return "nothing".into(),
            _ => "number ",
        };
        let text = self.slice(start, end);
        let shown = clip(text);
        format!("{name}{shown}{}", if shown.len() < text.len() { "..." } else { "" })
    }
}

/// A key as a JSON pointer writes it, clipped.
fn pointer_key(key: &str) -> String {
    clip(&key.replace('~', "~0").replace('/', "~1")).to_string()
}

/// Where the number that begins at `start` ends; else where it stops being one, and why.
#[inline(always)]
fn number_end(bytes: &[u8], start: usize) -> Result<usize, (usize, &'static str)> {
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let digits = |mut at: usize| {
        while byte(at).is_ascii_digit() {
            at += 1;
        }
        at
    };
    let mut at = start + usize::from(byte(start) == b'-');
    let first = byte(at);
    if !first.is_ascii_digit() {
        return Err((start, "not JSON: expected a value"));
    }
    at += 1;
    if first != b'0' {
        at = digits(at);
    } else if byte(at).is_ascii_digit() {
        return Err((at, "not JSON: a number with a leading zero"));
    }
    let some_digits = |from: usize| match digits(from) {
        end if end == from => Err((end, "not JSON: a number without the digits that its point or exponent needs")),
        end => Ok(end),
    };
    if byte(at) == b'.' {
        at = some_digits(at + 1)?;
    }
    if matches!(byte(at), b'e' | b'E') {
        at = some_digits(at + 1 + usize::from(matches!(byte(at + 1), b'+' | b'-')))?;
    }
    Ok(at)
}

/// Whether the whole text is a number by JSON's grammar.
pub fn is_number(text: &str) -> bool {
    number_end(text.as_bytes(), 0) == Ok(text.len())
}

/// As much of the text as a reason shows.
pub fn clip(text: &str) -> &str {
    match text.len() {
        0..=SHOWN => text,
        _ => &text[..text.floor_char_boundary(SHOWN)],
    }
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?))
}

/// Appends the value of a string whose escapes have been checked.
pub fn unescape(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let (char, length) = escaped(&rest.as_bytes()[at..]);
        out.push(char);
        rest = rest.get(at + length..).unwrap_or("");
    }
    out.push_str(rest);
}

/// The character of the escape that `bytes` begin with, and the length of the escape.
fn escaped(bytes: &[u8]) -> (char, usize) {
    let unit = |at: usize| bytes.get(at..at + 4).and_then(hex).unwrap_or(0);
    match bytes.get(1) {
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'n') => ('\n', 2),
        Some(b'r') => ('\r', 2),
        Some(b't') => ('\t', 2),
        Some(b'u') => match unit(2) {
            high @ 0xD800..=0xDBFF => {
                let code = 0x10000 + ((high - 0xD800) << 10) + (unit(8).wrapping_sub(0xDC00) & 0x3FF);
                (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 12)
            }
            code => (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), 6),
        },
        Some(plain) => (char::from(*plain), 2),
        None => ('\\', 1),
    }
}
