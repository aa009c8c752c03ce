package udf

// builder makes a column row by row. Its buffers are used again for the next batch.
type builder struct {
	bytes   []byte
	ends    []uint32
	present []byte // empty as long as no row is absent
	absent  int
}

func (b *builder) reset() {
	b.bytes, b.ends, b.present, b.absent = b.bytes[:0], b.ends[:0], b.present[:0], 0
}

// push adds a row; nil is an absent one.
func (b *builder) push(value []byte) {
	b.bytes = append(b.bytes, value...)
	b.end(value != nil)
}

// end ends a row whose bytes are there.
func (b *builder) end(present bool) {
	row := len(b.ends)
	b.ends = append(b.ends, uint32(len(b.bytes)))
	if !present && b.absent == 0 {
		b.present = b.present[:0]
		for i := 0; i <= row; i += 8 {
			b.present = append(b.present, 0xff)
		}
	}
	if !present {
		b.absent++
	}
	if b.absent == 0 {
		return
	}
	if row>>3 >= len(b.present) {
		b.present = append(b.present, 0)
	}
	if bit := byte(1) << (row & 7); present {
		b.present[row>>3] |= bit
	} else {
		b.present[row>>3] &^= bit
	}
}

// extend adds rows of another column.
func (b *builder) extend(from *Column, first, last int) {
	if len(from.Ends) == 0 || len(from.Present) != 0 || b.absent != 0 {
		for row := first; row < last; row++ {
			b.push(from.Get(row))
		}
		return
	}
	start := uint32(0)
	if first > 0 {
		start = from.Ends[first-1]
	}
	shift := uint32(len(b.bytes)) - start
	b.bytes = append(b.bytes, from.Bytes[start:from.Ends[last-1]]...)
	for _, end := range from.Ends[first:last] {
		b.ends = append(b.ends, end+shift)
	}
}

// truncate takes back all but the first rows, of which so many were absent.
func (b *builder) truncate(rows, absent int) {
	b.ends = b.ends[:rows]
	b.absent = absent
	if rows == 0 {
		b.bytes = b.bytes[:0]
	} else {
		b.bytes = b.bytes[:b.ends[rows-1]]
	}
	if bytes := (rows + 7) / 8; absent != 0 && len(b.present) > bytes {
		b.present = b.present[:bytes]
	}
}

// column is what was built. It shares the builder's buffers.
func (b *builder) column() Column {
	switch b.absent {
	case len(b.ends):
		return Column{}
	case 0:
		return Column{Bytes: b.bytes, Ends: b.ends}
	}
	return Column{Bytes: b.bytes, Ends: b.ends, Present: b.present}
}
