package udf

// Route is where a row goes.
type Route uint8

// Main is the main output.
const Main Route = 0

// NthRoute is the output with the given place, counted from 0, among the names that Routes returned.
func NthRoute(place int) Route {
	if place < 0 || place >= RoutesMax {
		panic("udf: a module has at most 254 routes")
	}
	return Route(place + 1)
}

// Row is a row to be emitted. Nil for key or value is absent; an empty slice is empty.
type Row struct {
	Key         []byte
	Value       []byte
	EventTimeMs int64
	Attributes  []Attribute
	Route       Route
}

// Emitter takes what becomes of the message at hand.
type Emitter struct {
	input   *Batch
	message Message
	// Input rows that were forwarded and not copied yet: they follow all rows below, and if nothing else
	// ever happens, the input goes back as it is.
	runFirst, runLast int

	keys, values    builder
	eventTimes      []int64
	attributeRows   []uint32
	attributeNames  builder
	attributeValues builder
	origins         []uint32
	routes          []uint8 // empty as long as all rows are main
	rejectedRows    []uint32
	reasons         builder
}

// Emit emits a row with this value: nil makes it a tombstone. Key, event time and attributes are those of the message at hand.
func (e *Emitter) Emit(value []byte) {
	e.flush()
	e.values.push(value)
	e.keepRest()
}

// Append emits a row whose value is appended to the output's own buffer, as in
//
//	out.Append(func(buf []byte) []byte { return strconv.AppendInt(buf, n, 10) })
func (e *Emitter) Append(write func(buf []byte) []byte) {
	e.flush()
	e.values.bytes = write(e.values.bytes)
	e.values.end(true)
	e.keepRest()
}

// EmitRow emits a row that says everything itself.
func (e *Emitter) EmitRow(row Row) {
	e.flush()
	e.keys.push(row.Key)
	e.values.push(row.Value)
	for _, attribute := range row.Attributes {
		e.attributeRows = append(e.attributeRows, uint32(len(e.eventTimes)))
		e.attributeNames.bytes = append(e.attributeNames.bytes, attribute.Name...)
		e.attributeNames.end(true)
		e.attributeValues.push(attribute.Value)
	}
	e.end(row.EventTimeMs, row.Route)
}

// Forward passes the message at hand on, unchanged.
func (e *Emitter) Forward() {
	row := e.message.row
	if e.runLast != row || e.runFirst == e.runLast {
		e.flush()
		e.runFirst = row
	}
	e.runLast = row + 1
}

// ForwardTo passes the message at hand on, unchanged, to a route.
func (e *Emitter) ForwardTo(route Route) {
	if route == Main {
		e.Forward()
		return
	}
	row := e.message.Row()
	row.Route = route
	e.EmitRow(row)
}

// keepRest ends a row whose value is there: everything else is the message's.
func (e *Emitter) keepRest() {
	e.keys.push(e.message.Key())
	attributes := &e.input.Attributes
	for i := e.message.first; i < e.message.last; i++ {
		e.attributeRows = append(e.attributeRows, uint32(len(e.eventTimes)))
		e.attributeNames.push(attributes.Names.Get(i))
		e.attributeValues.push(attributes.Values.Get(i))
	}
	e.end(e.message.EventTimeMs(), Main)
}

func (e *Emitter) end(eventTimeMs int64, route Route) {
	if len(e.routes) != 0 || route != Main {
		e.padRoutes()
		e.routes = append(e.routes, uint8(route))
	}
	e.eventTimes = append(e.eventTimes, eventTimeMs)
	e.origins = append(e.origins, uint32(e.message.row))
}

func (e *Emitter) padRoutes() {
	for len(e.routes) < len(e.eventTimes) {
		e.routes = append(e.routes, uint8(Main))
	}
}

// flush copies the rows that were only counted.
func (e *Emitter) flush() {
	first, last := e.runFirst, e.runLast
	if first == last {
		return
	}
	e.runFirst, e.runLast = 0, 0
	offset := len(e.eventTimes) - first
	e.keys.extend(&e.input.Keys, first, last)
	e.values.extend(&e.input.Values, first, last)
	e.eventTimes = append(e.eventTimes, e.input.EventTimes[first:last]...)
	for row := first; row < last; row++ {
		e.origins = append(e.origins, uint32(row))
	}
	if len(e.routes) != 0 {
		e.padRoutes()
	}
	attributes := &e.input.Attributes
	for i, row := range attributes.Rows {
		if int(row) >= first && int(row) < last {
			e.attributeRows = append(e.attributeRows, uint32(int(row)+offset))
			e.attributeNames.push(attributes.Names.Get(i))
			e.attributeValues.push(attributes.Values.Get(i))
		}
	}
}

// reject refuses the message at hand: whatever it emitted is taken back.
func (e *Emitter) reject(reason string) {
	row := e.message.row
	if e.runFirst != e.runLast && e.runLast == row+1 {
		// Forwarded, perhaps after a run that has been copied meanwhile.
		e.runLast = row
		if e.runFirst == row {
			e.runFirst, e.runLast = 0, 0
		}
	}
	// A run counted before this message may have been copied by it: that stays.
	for rows := len(e.origins); rows > 0 && e.origins[rows-1] == uint32(row); rows-- {
		e.takeBack(rows - 1)
	}
	e.rejectedRows = append(e.rejectedRows, uint32(row))
	e.reasons.bytes = append(e.reasons.bytes, reason...)
	e.reasons.end(true)
}

// takeBack takes the last row back, whose place is given.
func (e *Emitter) takeBack(place int) {
	absent := func(b *builder, row int) int {
		if b.absent != 0 && b.present[row>>3]&(1<<(row&7)) == 0 {
			return b.absent - 1
		}
		return b.absent
	}
	e.keys.truncate(place, absent(&e.keys, place))
	e.values.truncate(place, absent(&e.values, place))
	e.eventTimes = e.eventTimes[:place]
	e.origins = e.origins[:place]
	if len(e.routes) > place {
		e.routes = e.routes[:place]
	}
	for last := len(e.attributeRows) - 1; last >= 0 && int(e.attributeRows[last]) == place; last-- {
		e.attributeRows = e.attributeRows[:last]
		e.attributeNames.truncate(last, 0)
		e.attributeValues.truncate(last, absent(&e.attributeValues, last))
	}
}

// start makes ready for a batch.
func (e *Emitter) start(input *Batch) {
	e.input, e.message = input, Message{batch: input}
	e.runFirst, e.runLast = 0, 0
	for _, b := range []*builder{&e.keys, &e.values, &e.attributeNames, &e.attributeValues, &e.reasons} {
		b.reset()
	}
	e.eventTimes, e.attributeRows, e.origins = e.eventTimes[:0], e.attributeRows[:0], e.origins[:0]
	e.routes, e.rejectedRows = e.routes[:0], e.rejectedRows[:0]
}

// output is what became of the batch. It shares the emitter's buffers.
func (e *Emitter) output() Output {
	if rows := e.input.Len(); rows > 0 && e.runFirst == 0 && e.runLast == rows && len(e.eventTimes) == 0 {
		return Output{Batch: *e.input}
	}
	e.flush()
	return Output{
		Batch: Batch{
			Keys: e.keys.column(), Values: e.values.column(), EventTimes: e.eventTimes,
			Attributes: Attributes{e.attributeRows, e.attributeNames.column(), e.attributeValues.column()},
		},
		Origins:  e.origins,
		Routes:   e.routes,
		Rejected: Rejected{e.rejectedRows, e.reasons.column()},
	}
}
