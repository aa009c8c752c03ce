//! The sandbox's stand-in for WASI preview 1, so that what stock Go and C toolchains build runs without WASI: the adapter
//! that such a module is joined with, and the lines that it makes of a guest's standard output and error.

use wit_component::StringEncoding;
use wit_parser::Resolve;

use crate::error::{Error, Result};

/// The module that toolchains import WASI preview 1 from.
pub const IMPORT: &str = "wasi_snapshot_preview1";

/// What the adapter itself imports. Asks for no grant: without one, output is dropped.
pub const STDIO: &str = "weir:preview1/stdio@1.0.0";

const ADAPTER: &str = include_str!("preview1.wat");

const WORLD: &str = "
package weir:preview1@1.0.0;
interface stdio { write: func(to: u32, bytes: list<u8>); }
world adapter { import stdio; }";

/// Bytes of an unfinished line that are kept. A longer line is cut into several.
const LINE_BYTES_MAX: usize = 8 << 10;

/// The adapter as wit-component takes it.
pub fn adapter() -> Result<Vec<u8>> {
    let fail = |why: String| Error::bug("the WASI adapter cannot be built").because(why);
    let mut adapter = wat::parse_str(ADAPTER).map_err(|e| fail(e.to_string()))?;
    let mut resolve = Resolve::default();
    let package = resolve.push_str("preview1.wit", WORLD).map_err(|e| fail(format!("{e:#}")))?;
    let world = resolve.select_world(&[package], None).map_err(|e| fail(format!("{e:#}")))?;
    wit_component::embed_component_metadata(&mut adapter, &resolve, world, StringEncoding::UTF8)
        .map_err(|e| fail(format!("{e:#}")))?;
    Ok(adapter)
}

/// Lines put together from the fragments that a guest writes.
#[derive(Debug, Default)]
pub struct Lines {
    unfinished: Vec<u8>,
}

impl Lines {
    /// Takes a fragment; hands out the lines that it finishes.
    pub fn push(&mut self, fragment: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in fragment.split_inclusive(|byte| *byte == b'\n') {
            for part in piece.chunks(LINE_BYTES_MAX) {
                if self.unfinished.len() + part.len() > LINE_BYTES_MAX {
                    lines.extend(self.finish());
                }
                self.unfinished.extend_from_slice(part);
            }
            if piece.ends_with(b"\n") {
                lines.extend(self.finish());
            }
        }
        lines
    }

    /// Hands out what is left, as when a guest dies in the middle of a line.
    pub fn finish(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.unfinished).trim_end().to_string();
        self.unfinished.clear();
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_become_lines() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"panic: "), Vec::<String>::new());
        assert_eq!(lines.push(b"boom\n\nat "), ["panic: boom"]);
        assert_eq!(lines.push(b"\xff\r\nx\n"), ["at \u{fffd}", "x"]);
        assert_eq!(lines.finish(), None);
        assert_eq!(lines.push(b"last"), Vec::<String>::new());
        assert_eq!(lines.finish().as_deref(), Some("last"));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut lines = Lines::default();
        let found = lines.push(&[b'x'; 3 * LINE_BYTES_MAX]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX; 2]);
        assert_eq!(lines.finish().map(|line| line.len()), Some(LINE_BYTES_MAX));
    }
}
