//! Finds single values in JSON messages by JSON pointers (RFC 6901), as they are written. For keys and event times:
//! nothing behind the last value found is read.

use super::parse::{Cursor, Parsed, Step, unescape};
use crate::batch::Batch;
use crate::error::{Error, Result};

/// Pointers that one look at a message finds.
const MOST: usize = 8;

/// Finds the values of some pointers.
#[derive(Clone, Debug)]
pub struct Extractor {
    paths: Vec<Vec<String>>,
}

impl Extractor {
    /// An extractor for up to eight pointers.
    pub fn new<'p>(pointers: impl IntoIterator<Item = &'p str>) -> Result<Extractor> {
        let mut paths = Vec::new();
        for pointer in pointers {
            let Some(rest) = pointer.strip_prefix('/') else {
                return Err(Error::config("a JSON pointer begins with `/`, as in `/user/id`").with("pointer", pointer));
            };
            paths.push(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect());
        }
        match paths.len() {
            0 => Err(Error::config("no JSON pointer is given")),
            1..=MOST => Ok(Extractor { paths }),
            _ => Err(Error::config("too many JSON pointers: at most 8").with("pointers", paths.len())),
        }
    }

    /// Pointers in it.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// True without any, which none is.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Calls `take` for each message with what was found, `null` and what is missing as `None`; or with why it could not
    /// be read. Of keys that stand twice in an object the first counts.
    pub fn each<'b>(&self, batch: &'b Batch, mut take: impl FnMut(usize, std::result::Result<&[Option<&'b str>], String>)) {
        let offsets = batch.values.value_offsets();
        let bytes = batch.values.value_data();
        // One look at all bytes instead of one for each message.
        let block = simdutf8::basic::from_utf8(bytes).ok();
        let mut cursor = Cursor::new(block.unwrap_or("\n"));
        for row in 0..batch.len() {
            let Some(value) = batch.value(row) else {
                take(row, Err("a tombstone has no fields".into()));
                continue;
            };
            let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
            let text = match block {
                Some(block) => block.get(start..end),
                None => simdutf8::basic::from_utf8(value).ok(),
            };
            let Some(text) = text else {
                take(row, Err("not UTF-8".into()));
                continue;
            };
            cursor.reset(text);
            let mut found = [None; MOST];
            match self.find(&mut cursor, &mut found) {
                Ok(()) => take(row, Ok(&found[..self.paths.len()])),
                Err(fault) => take(row, Err(fault.into_reason())),
            }
        }
    }

    fn find<'b>(&self, cursor: &mut Cursor<'b>, found: &mut [Option<&'b str>; MOST]) -> Parsed {
        cursor.skip_space();
        let all = (1u8 << (self.paths.len() - 1)) | ((1u8 << (self.paths.len() - 1)) - 1);
        let mut left = all;
        self.descend(cursor, 0, all, &mut left, found)
    }

    /// Reads the value at the cursor, of which the paths in `active` want a part below `depth`.
    fn descend<'b>(
        &self,
        cursor: &mut Cursor<'b>,
        depth: usize,
        active: u8,
        left: &mut u8,
        found: &mut [Option<&'b str>; MOST],
    ) -> Parsed {
        let object = cursor.peek() == b'{';
        if !object && cursor.peek() != b'[' {
            return cursor.skip();
        }
        let close = if object { b'}' } else { b']' };
        cursor.enter()?;
        cursor.skip_space();
        let mut more = cursor.peek() != close;
        let mut index = 0u32;
        let mut number = String::new();
        let mut unescaped = String::new();
        while more {
            let name: &str = match object {
                true => {
                    let key = cursor.key()?;
                    cursor.skip_space();
                    let raw = cursor.slice(key.start, key.end);
                    match key.escaped {
                        false => raw,
                        true => {
                            unescaped.clear();
                            unescape(raw, &mut unescaped);
                            &unescaped
                        }
                    }
                }
                false => {
                    cursor.step(Step::Index(index));
                    number.clear();
                    number.push_str(&index.to_string());
                    index += 1;
                    &number
                }
            };
            let (mut inner, mut here) = (0u8, 0u8);
            for (i, path) in self.paths.iter().enumerate() {
                let bit = 1 << i;
                if active & *left & bit != 0 && path.get(depth).is_some_and(|part| part == name) {
                    if path.len() == depth + 1 { here |= bit } else { inner |= bit }
                }
            }
            let start = cursor.at();
            match inner {
                0 => cursor.skip()?,
                inner => self.descend(cursor, depth + 1, inner, left, found)?,
            }
            // What is missing in the first object of that name is missing.
            *left &= !inner;
            if here != 0 {
                let text = cursor.slice(start, cursor.at());
                for i in (0..self.paths.len()).filter(|i| here & 1 << i != 0) {
                    found[i] = (text != "null").then_some(text);
                }
                *left &= !here;
            }
            if *left == 0 {
                return Ok(());
            }
            more = cursor.more(close)?;
        }
        cursor.leave();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Origin};

    fn find(pointers: &[&str], message: &[u8]) -> std::result::Result<Vec<Option<String>>, String> {
        let mut builder = BatchBuilder::new(2, 0);
        builder.push(None, Some(b"{}"), Origin::default());
        builder.push(None, Some(message), Origin::default());
        let mut last = Err("nothing".to_string());
        Extractor::new(pointers.iter().copied()).unwrap().each(&builder.finish(0), |_, found| {
            last = found.map(|found| found.iter().map(|text| text.map(str::to_string)).collect());
        });
        last
    }

    #[test]
    fn values_are_found_as_they_are_written() {
        let message = br#"{"x": [1, {"y": 2}], "a": {"b": {"c": "d\"e"}, "n": 1.50}, "k/~": true, "z": null, "late": {"#;
        let some = |text: &str| Some(text.to_string());
        assert_eq!(find(&["/a/n", "/x/1/y"], message).unwrap(), [some("1.50"), some("2")], "nothing behind is read");
        assert_eq!(
            find(&["/a/b/c", "/a/b", "/k~1~0", "/z"], message).unwrap(),
            [some(r#""d\"e""#), some(r#"{"c": "d\"e"}"#), some("true"), None]
        );
        assert_eq!(find(&["/a/b/c", "/b"], br#"{"a": {"b": {"c": 1}}, "a": {"b": {"c": 2}}}"#).unwrap(), [some("1"), None]);
        assert_eq!(find(&["/a"], br#"{"\u0061": 7}"#).unwrap(), [some("7")]);
        assert_eq!(find(&["/a"], b"3").unwrap(), [None]);
    }

    #[test]
    fn what_is_no_json_says_where() {
        assert!(find(&["/a"], br#"{"b": x}"#).unwrap_err().contains("not JSON: expected a value pointer=/b at=6"));
        assert_eq!(find(&["/a"], b"{\"a\": \"\xff\"}").unwrap_err(), "not UTF-8");
        assert!(Extractor::new(["a"]).unwrap_err().to_string().contains("begins with `/`"));
    }
}
