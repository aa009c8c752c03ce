//! Columns of byte strings as the contract has them: read in place, built without an allocation for
//! each row.

/// A column of byte strings, one for each row, any of which may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// The bytes of all rows, one after the other.
    pub bytes: Vec<u8>,
    /// Where each row ends; empty: all rows are absent.
    pub ends: Vec<u32>,
    /// One bit for each row, lowest first; empty: all rows are present.
    pub present: Vec<u8>,
}

impl Column {
    /// The bytes of a row; `None` if it is absent.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        if self.ends.is_empty() || (!self.present.is_empty() && self.present[row / 8] >> (row % 8) & 1 == 0) {
            return None;
        }
        Some(&self.bytes[self.start(row)..self.ends[row] as usize])
    }

    /// Where a row starts within the bytes, for columns that have ends.
    #[inline]
    fn start(&self, row: usize) -> usize {
        match row {
            0 => 0,
            _ => self.ends[row - 1] as usize,
        }
    }
}

/// Builds a [`Column`] row by row.
#[derive(Debug, Default)]
pub struct ColumnBuilder {
    bytes: Vec<u8>,
    /// Empty as long as all rows are absent: most columns of keys stay that way.
    ends: Vec<u32>,
    /// Empty as long as all rows are present.
    present: Vec<u8>,
    rows: usize,
}

impl ColumnBuilder {
    /// A builder with room; it grows by itself.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        let ends = Vec::with_capacity(if bytes == 0 { 0 } else { rows });
        ColumnBuilder { bytes: Vec::with_capacity(bytes), ends, present: Vec::new(), rows: 0 }
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, row: Option<&[u8]>) {
        match row {
            Some(bytes) => {
                self.bytes.extend_from_slice(bytes);
                self.end_row();
            }
            None => self.push_absent(),
        }
    }

    /// The bytes of the row that [`ColumnBuilder::end_row`] will end, behind those of the rows before.
    #[inline]
    pub(crate) fn open(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Gives up the bytes of a row that was not ended.
    pub(crate) fn undo_open(&mut self) {
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
    }

    /// Ends a row: all bytes since the last end are its.
    #[inline]
    pub(crate) fn end_row(&mut self) {
        if self.ends.len() < self.rows {
            // The first present row behind absent ones.
            self.ends.resize(self.rows, 0);
            self.present.resize(self.rows.div_ceil(8), 0);
        }
        self.ends.push(self.bytes.len() as u32);
        self.rows += 1;
        if !self.present.is_empty() {
            self.mark(true);
        }
    }

    #[inline]
    fn push_absent(&mut self) {
        if self.ends.is_empty() {
            self.rows += 1;
            return;
        }
        if self.present.is_empty() {
            self.fill_present();
        }
        self.ends.push(self.bytes.len() as u32);
        self.rows += 1;
        self.mark(false);
    }

    /// Writes down that all rows so far are present.
    fn fill_present(&mut self) {
        self.present.resize(self.rows.div_ceil(8), 0xff);
        if !self.rows.is_multiple_of(8) {
            self.present[self.rows / 8] = 0xff >> (8 - self.rows % 8);
        }
    }

    /// Sets the bit of the last row, which is zero or not there yet.
    fn mark(&mut self, present: bool) {
        let row = self.rows - 1;
        self.present.resize(row / 8 + 1, 0);
        self.present[row / 8] |= u8::from(present) << (row % 8);
    }

    /// Adds the rows `from..to` of a column, in one piece where nothing is absent.
    pub fn extend(&mut self, column: &Column, from: usize, to: usize) {
        let in_one_piece = !column.ends.is_empty() && column.present.is_empty() && self.ends.len() == self.rows;
        if !in_one_piece || !self.present.is_empty() {
            for row in from..to {
                self.push(column.get(row));
            }
            return;
        }
        if from == to {
            return;
        }
        let (start, end) = (column.start(from), column.ends[to - 1] as usize);
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&column.bytes[start..end]);
        // Modulo 2^32, so that one addition moves an end back as well as forth.
        let shift = (base as u32).wrapping_sub(start as u32);
        self.ends.extend(column.ends[from..to].iter().map(|end| end.wrapping_add(shift)));
        self.rows += to - from;
    }

    /// The bytes of a row.
    pub(crate) fn row(&self, row: usize) -> Option<&[u8]> {
        if self.ends.is_empty() || (!self.present.is_empty() && self.present[row / 8] >> (row % 8) & 1 == 0) {
            return None;
        }
        let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        Some(&self.bytes[start..self.ends[row] as usize])
    }

    /// Drops the last rows until `rows` are left.
    pub(crate) fn truncate(&mut self, rows: usize) {
        if rows >= self.rows {
            return;
        }
        self.rows = rows;
        self.ends.truncate(rows);
        self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
        if !self.present.is_empty() {
            self.present.truncate(rows.div_ceil(8));
            if !rows.is_multiple_of(8) {
                self.present[rows / 8] &= 0xff >> (8 - rows % 8);
            }
        }
    }

    /// The column.
    pub fn finish(self) -> Column {
        Column { bytes: self.bytes, ends: self.ends, present: self.present }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(column: &Column, count: usize) -> Vec<Option<&[u8]>> {
        (0..count).map(|row| column.get(row)).collect()
    }

    /// Every pattern of present and absent in `count` rows.
    fn patterns(count: usize) -> impl Iterator<Item = Vec<Option<Vec<u8>>>> {
        (0..1u32 << count)
            .map(move |bits| (0..count).map(|row| (bits >> row & 1 == 1).then(|| vec![b'a' + row as u8; row % 4])).collect())
    }

    #[test]
    fn what_was_pushed_is_read_back_and_truncating_takes_only_the_end() {
        for pattern in patterns(11) {
            let mut builder = ColumnBuilder::default();
            pattern.iter().for_each(|row| builder.push(row.as_deref()));
            assert_eq!(builder.len(), 11);
            let keep = pattern.iter().filter(|row| row.is_some()).count();
            builder.truncate(keep);
            builder.push(Some(b"more"));
            builder.push(None);
            let mut expected: Vec<Option<&[u8]>> = pattern.iter().take(keep).map(Option::as_deref).collect();
            expected.extend([Some(&b"more"[..]), None]);
            let column = builder.finish();
            assert_eq!(rows(&column, keep + 2), expected);
            assert_eq!(column.ends.len(), keep + 2);
        }
    }

    #[test]
    fn parts_of_columns_are_joined_row_by_row() {
        for pattern in patterns(9) {
            let mut first = ColumnBuilder::default();
            pattern.iter().for_each(|row| first.push(row.as_deref()));
            let first = first.finish();
            let mut joined = ColumnBuilder::default();
            joined.extend(&first, 3, 7);
            joined.extend(&first, 4, 4);
            joined.extend(&first, 0, 9);
            let expected: Vec<_> = pattern[3..7].iter().chain(&pattern).map(Option::as_deref).collect();
            assert_eq!(rows(&joined.finish(), 13), expected);
        }
    }

    #[test]
    fn a_column_without_a_present_row_is_empty_lists() {
        let mut builder = ColumnBuilder::with_capacity(2, 0);
        builder.push(None);
        builder.push(None);
        assert_eq!(builder.finish(), Column::default());
    }
}
