//! The grammar: a cursor over JSON text that skips values and checks them on the way.

use super::{DEPTH_MAX, Error};

/// A place in JSON text.
pub(super) struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    /// The text has been looked through and is UTF-8. Most is ASCII and never needs to be.
    utf8: bool,
}

/// A string, without its quotes.
pub(super) struct Name<'a> {
    pub bytes: &'a [u8],
    pub escaped: bool,
}

impl<'a> Cursor<'a> {
    /// At the start of a text.
    pub fn new(bytes: &'a [u8]) -> Self {
        let mut cursor = Cursor { bytes, at: 0, utf8: false };
        cursor.space();
        cursor
    }

    #[cold]
    pub fn fail<T>(&self, message: &'static str) -> Result<T, Error> {
        Err(Error { message, at: self.at })
    }

    #[inline]
    pub fn peek(&self) -> u8 {
        // No byte of a valid text is 0, so that the end needs no case of its own.
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// Only space is left.
    pub fn end(&mut self) -> Result<(), Error> {
        self.space();
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => self.fail("something follows the value"),
        }
    }

    /// Past a member's name and colon, to its value.
    #[inline]
    pub fn name(&mut self) -> Result<Name<'a>, Error> {
        if self.peek() != b'"' {
            return self.fail("expected a member name");
        }
        let name = self.string()?;
        self.space();
        if self.peek() != b':' {
            return self.fail("expected `:`");
        }
        self.at += 1;
        self.space();
        Ok(name)
    }

    /// Behind a value: past a comma and the space after it (true), or past `close` (false).
    #[inline]
    pub fn more(&mut self, close: u8) -> Result<bool, Error> {
        self.space();
        let next = self.peek();
        if next == b',' {
            self.at += 1;
            self.space();
            return Ok(true);
        }
        if next == close {
            self.at += 1;
            return Ok(false);
        }
        self.fail(if close == b'}' { "expected `,` or `}`" } else { "expected `,` or `]`" })
    }

    /// Past a string whose opening quote is here.
    #[inline]
    pub fn string(&mut self) -> Result<Name<'a>, Error> {
        let start = self.at + 1;
        let mut escaped = false;
        self.at = start;
        loop {
            let rest = &self.bytes[self.at..];
            self.at += match self.utf8 {
                false => plain::<true>(rest),
                true => plain::<false>(rest),
            };
            match self.peek() {
                b'"' => {
                    let bytes = &self.bytes[start..self.at];
                    self.at += 1;
                    return Ok(Name { bytes, escaped });
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                0x80.. => self.check_utf8()?,
                _ if self.at == self.bytes.len() => return self.fail("a string without its end"),
                _ => return self.fail("a control character in a string"),
            }
        }
    }

    /// At the first byte that is not ASCII.
    #[cold]
    fn check_utf8(&mut self) -> Result<(), Error> {
        std::str::from_utf8(self.bytes).map_err(|e| Error { message: "not UTF-8", at: e.valid_up_to() })?;
        self.utf8 = true;
        Ok(())
    }

    fn escape(&mut self) -> Result<(), Error> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') if self.bytes.get(self.at + 2..self.at + 6).is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit)) => {
                self.at += 6;
            }
            _ => return self.fail("an unknown escape"),
        }
        Ok(())
    }

    /// Past a whole value that lies in `depth` containers.
    pub fn skip(&mut self, depth: usize) -> Result<(), Error> {
        // The kinds of the open containers, the innermost lowest: 1 is an object.
        let (mut open, mut objects) = (0, 0u128);
        loop {
            let byte = self.peek();
            match byte {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    let object = byte == b'{';
                    if depth + open == DEPTH_MAX {
                        return self.fail("nested too deep");
                    }
                    self.at += 1;
                    self.space();
                    if self.peek() == if object { b'}' } else { b']' } {
                        self.at += 1;
                    } else {
                        open += 1;
                        objects = objects << 1 | u128::from(object);
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
                _ => self.scalar()?,
            }
            loop {
                if open == 0 {
                    return Ok(());
                }
                let object = objects & 1 == 1;
                if self.more(if object { b'}' } else { b']' })? {
                    if object {
                        self.name()?;
                    }
                    break;
                }
                open -= 1;
                objects >>= 1;
            }
        }
    }

    /// Past a number or one of the three words.
    fn scalar(&mut self) -> Result<(), Error> {
        let rest = &self.bytes[self.at..];
        match self.peek() {
            b't' if rest.starts_with(b"true") => self.at += 4,
            b'f' if rest.starts_with(b"false") => self.at += 5,
            b'n' if rest.starts_with(b"null") => self.at += 4,
            b'-' | b'0'..=b'9' => match super::number::length(rest) {
                0 => return self.fail("not a number"),
                length => self.at += length,
            },
            _ => return self.fail("expected a value"),
        }
        Ok(())
    }
}

/// Bytes looked at in one go: one vector of WebAssembly.
const LANES: usize = 16;

/// How many bytes at the start may stand in a string as they are and, if so asked, are `ASCII`.
#[inline]
fn plain<const ASCII: bool>(bytes: &[u8]) -> usize {
    let (chunks, rest) = bytes.as_chunks::<LANES>();
    for (i, chunk) in chunks.iter().enumerate() {
        let at = first_special::<ASCII>(chunk);
        if at < LANES {
            return i * LANES + at;
        }
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20) || (ASCII && *byte >= 0x80);
    bytes.len() - rest.len() + rest.iter().position(special).unwrap_or(rest.len())
}

/// The place of the first byte that is not plain; `LANES` or more if all are.
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[inline]
fn first_special<const ASCII: bool>(chunk: &[u8; LANES]) -> usize {
    use std::arch::wasm32::{i8x16_lt, u8x16_bitmask, u8x16_eq, u8x16_lt, u8x16_splat, u64x2, v128_or};
    let ([low, high], _) = chunk.as_chunks::<8>() else { return LANES };
    let bytes = u64x2(u64::from_le_bytes(*low), u64::from_le_bytes(*high));
    let ends = v128_or(u8x16_eq(bytes, u8x16_splat(b'"')), u8x16_eq(bytes, u8x16_splat(b'\\')));
    let space = u8x16_splat(b' ');
    // As signed numbers, bytes that are not ASCII are below zero.
    let below = if ASCII { i8x16_lt(bytes, space) } else { u8x16_lt(bytes, space) };
    u32::from(u8x16_bitmask(v128_or(ends, below))).trailing_zeros() as usize
}

/// The same eight bytes at a time, where there are no vectors to count on.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
#[inline]
fn first_special<const ASCII: bool>(chunk: &[u8; LANES]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    // The lowest high bit that is set is that of the first byte below `limit`; those above it may err.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let special = |word: u64| is(word, b'"') | is(word, b'\\') | below(word, b' ') | if ASCII { word & HIGH } else { 0 };
    let (words, _) = chunk.as_chunks::<8>();
    match words.iter().map(|word| special(u64::from_le_bytes(*word))).enumerate().find(|(_, found)| *found != 0) {
        Some((i, found)) => i * 8 + found.trailing_zeros() as usize / 8,
        None => LANES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_wherever_it_lies() {
        for length in [0, 1, 7, 15, 16, 17, 40] {
            for at in 0..length {
                for byte in 0..=255u8 {
                    let mut text = vec![b'!'; length];
                    text[at] = byte;
                    let special = byte == b'"' || byte == b'\\' || byte < 0x20;
                    assert_eq!(plain::<false>(&text), if special { at } else { length });
                    assert_eq!(plain::<true>(&text), if special || byte >= 0x80 { at } else { length });
                }
            }
        }
    }
}
