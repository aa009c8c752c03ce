//! The column of strings. A value is noted as a piece of the block of messages that is being read and copied when the
//! block is done: nothing is copied for a message that turns out to be bad, and since a piece of valid UTF-8 needs no
//! second check, Arrow's builder takes it as it is.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::StringBuilder;

/// Where a value is: in the block, or, where it had escapes, in the column's own text.
#[derive(Clone, Copy)]
enum Piece {
    Block { start: u32, length: u32 },
    Own { start: u32, length: u32 },
    Empty,
    Null,
}

/// Strings.
pub struct Strings {
    /// Values of this block.
    pieces: Vec<Piece>,
    /// Values of this block that had escapes, without them.
    own: String,
    /// Values of the blocks before.
    built: StringBuilder,
    copied: usize,
}

impl Strings {
    pub fn new() -> Self {
        Strings { pieces: Vec::new(), own: String::new(), built: StringBuilder::with_capacity(0, 0), copied: 0 }
    }

    #[inline(always)]
    pub fn len(&self) -> usize {
        self.copied + self.pieces.len()
    }

    /// A value that lies in the block.
    #[inline(always)]
    pub fn push(&mut self, start: usize, length: usize) {
        self.pieces.push(Piece::Block { start: start as u32, length: length as u32 });
    }

    /// A value that `write` appends to the column's own text.
    pub fn push_own(&mut self, write: impl FnOnce(&mut String)) {
        let start = self.own.len();
        write(&mut self.own);
        self.pieces.push(Piece::Own { start: start as u32, length: (self.own.len() - start) as u32 });
    }

    pub fn push_absent(&mut self, null: bool) {
        self.pieces.push(if null { Piece::Null } else { Piece::Empty });
    }

    /// Cuts back to `length`, which is never before the present block.
    pub fn truncate(&mut self, length: usize) {
        self.pieces.truncate(length - self.copied);
    }

    /// Copies the values of the block, which ends here.
    pub fn copy(&mut self, block: &str) {
        for piece in &self.pieces {
            match *piece {
                Piece::Null => self.built.append_null(),
                piece => self.built.append_value(value(piece, block, &self.own)),
            }
        }
        self.copied += self.pieces.len();
        self.pieces.clear();
        self.own.clear();
    }

    /// The order of two values of the present block.
    pub fn order(&self, a: usize, b: usize, block: &str) -> Ordering {
        let value = |i: usize| value(self.pieces[i - self.copied], block, &self.own);
        value(a).cmp(value(b))
    }

    /// The column; every block has been copied.
    pub fn finish(&mut self) -> ArrayRef {
        // The next batch is most likely of the same size.
        let next = StringBuilder::with_capacity(std::mem::take(&mut self.copied), self.built.values_slice().len());
        Arc::new(std::mem::replace(&mut self.built, next).finish())
    }
}

#[inline(always)]
fn value<'a>(piece: Piece, block: &'a str, own: &'a str) -> &'a str {
    let (text, start, length) = match piece {
        Piece::Block { start, length } => (block, start, length),
        Piece::Own { start, length } => (own, start, length),
        Piece::Empty | Piece::Null => return "",
    };
    let start = start as usize;
    text.get(start..start + length as usize).unwrap_or("")
}
