package udf

// Column is a column of byte strings, one for each row, any of which may be absent: the contract's own
// shape, for code that works on whole batches.
type Column struct {
	// Bytes of all rows, one after the other.
	Bytes []byte
	// Ends says where each row ends within Bytes; empty: all rows are absent.
	Ends []uint32
	// Present is a bitmap, lowest bit first; empty: all rows are present.
	Present []byte
}

var empty = []byte{}

// Get returns a row's bytes, or nil if it is absent. An empty value is not nil.
func (c *Column) Get(row int) []byte {
	if len(c.Ends) == 0 || len(c.Present) != 0 && c.Present[row>>3]&(1<<(row&7)) == 0 {
		return nil
	}
	start, end := uint32(0), c.Ends[row]
	if row > 0 {
		start = c.Ends[row-1]
	}
	if start == end {
		return empty
	}
	return c.Bytes[start:end:end]
}

// Attributes are named values attached to messages: one entry for each attribute, not for each message.
type Attributes struct {
	// Rows says which row each attribute belongs to; ascending.
	Rows   []uint32
	Names  Column
	Values Column
}

// Batch is messages in order, as they cross the boundary. Its slices belong to the batch: they may be
// handed back as they are, and must not be written to.
type Batch struct {
	Keys   Column
	Values Column
	// EventTimes are milliseconds since the Unix epoch; their number is the number of rows.
	EventTimes []int64
	Attributes Attributes
	// ReceivedMs is when the host received the batch: the only clock there is.
	ReceivedMs int64
}

// Len is the number of messages.
func (b *Batch) Len() int { return len(b.EventTimes) }

// Rejected are input rows that cannot be handled, ascending, with a reason for each.
type Rejected struct {
	Rows    []uint32
	Reasons Column
}

// Output is what became of a batch. The contract (udf.wit) says what each list must hold.
type Output struct {
	Batch Batch
	// Origins names the input row of each output row; empty: they are the same, one by one.
	Origins []uint32
	// Routes is where each row goes; empty: all to the main output.
	Routes   []uint8
	Rejected Rejected
}

// Attribute is a named value attached to a message. A nil value is absent.
type Attribute struct {
	Name  string
	Value []byte
}

// Message is one message of a batch. What it returns is valid as long as it is referenced, and must not be
// written to.
type Message struct {
	batch *Batch
	row   int
	// Its attributes within the batch's.
	first, last int
}

// Value is the payload; nil is a tombstone, which is not the same as empty.
func (m Message) Value() []byte { return m.batch.Values.Get(m.row) }

// Key is the key; nil if there is none.
func (m Message) Key() []byte { return m.batch.Keys.Get(m.row) }

// EventTimeMs is when the thing that the message tells of happened: milliseconds since the Unix epoch.
func (m Message) EventTimeMs() int64 { return m.batch.EventTimes[m.row] }

// ReceivedMs is when the host received the message: the only clock there is.
func (m Message) ReceivedMs() int64 { return m.batch.ReceivedMs }

// Attributes are the message's attributes, in order.
func (m Message) Attributes() []Attribute {
	if m.first == m.last {
		return nil
	}
	found := make([]Attribute, 0, m.last-m.first)
	for i := m.first; i < m.last; i++ {
		found = append(found, Attribute{string(m.batch.Attributes.Names.Get(i)), m.batch.Attributes.Values.Get(i)})
	}
	return found
}

// Attribute is the value of the first attribute with this name; nil if it has none.
func (m Message) Attribute(name string) []byte {
	for i := m.first; i < m.last; i++ {
		if string(m.batch.Attributes.Names.Get(i)) == name {
			return m.batch.Attributes.Values.Get(i)
		}
	}
	return nil
}

// Row is the message as a row to be changed and emitted, bound for the main output.
func (m Message) Row() Row {
	return Row{Key: m.Key(), Value: m.Value(), EventTimeMs: m.EventTimeMs(), Attributes: m.Attributes()}
}

// next moves to a row, which must be the one behind the present one or a later one.
func (m *Message) next(row int) {
	m.row = row
	rows := m.batch.Attributes.Rows
	if m.last == len(rows) {
		m.first = m.last
		return
	}
	for m.first = m.last; m.first < len(rows) && rows[m.first] < uint32(row); m.first++ {
	}
	for m.last = m.first; m.last < len(rows) && rows[m.last] == uint32(row); m.last++ {
	}
}
