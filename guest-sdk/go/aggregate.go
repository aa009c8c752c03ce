package udf

import (
	"fmt"
	"slices"
)

// Aggregator sums up the messages of a key and window in an accumulator of type A, whose zero value means:
// no message yet. Between calls the host keeps accumulators as the bytes that Encode wrote, and nothing else
// is kept.
//
// Merging must be associative: the host merges what it has when it sees fit, in any grouping, and never what
// is alone. Within a source partition the order of messages is kept; between partitions there is none.
// Package udftest checks that on your own messages.
type Aggregator[A any] interface {
	// Add takes a message in. An error rejects it with a reason; the accumulator must then be as before.
	Add(accumulator *A, m Message) error
	// Encode appends what is to be known of an accumulator.
	Encode(accumulator *A, buf []byte) []byte
	// Merge takes in what Encode wrote of another accumulator, whose messages came later. Into an empty one, it
	// reads it back. An error says that the bytes cannot be read, and stops the pipeline.
	Merge(accumulator *A, encoded []byte) error
	// Emit makes rows of a window that fires. A row has the pane's key, and the window's last millisecond as its
	// event time, unless it is given others. An error sends the pane to the dead letters with the reason.
	Emit(pane Pane, accumulator *A, out *Emitter) error
}

// Migrator is what an aggregator implements whose encoding has changed.
type Migrator interface {
	// StateVersion is the version of what Encode writes: raise it with every change. Without it, it is 1.
	StateVersion() uint32
	// Migrate appends anew what an older version of Encode wrote. An error refuses the version: the pipeline does
	// not start, and a swap is not made.
	Migrate(version uint32, encoded []byte, buf []byte) ([]byte, error)
}

// Timing is why a window fires.
type Timing uint8

const (
	// Early: before the watermark passed the window's end.
	Early Timing = iota
	// OnTime: when it did.
	OnTime
	// Late: after that, for late messages.
	Late
)

// Pane is a window of a key that fires.
type Pane struct {
	// Key is the text of the key field as JSON, or the bytes of the message's key or attribute, as the step says;
	// nil where the messages had none.
	Key []byte
	// StartMs is where the window begins, EndMs the first millisecond that is not in it.
	StartMs, EndMs int64
	// Firings is how often the window has fired before.
	Firings uint32
	Timing  Timing
	// ReceivedMs is when the host decided to fire: the only clock there is.
	ReceivedMs int64
}

// Groups are rows of a batch by the group that they belong to: group i is Rows[Ends[i-1]:Ends[i]].
type Groups struct{ Rows, Ends []uint32 }

// Lists are lists of fragments: list i is fragments Ends[i-1] to Ends[i].
type Lists struct {
	Fragments Column
	Ends      []uint32
}

// Panes are windows that fire.
type Panes struct {
	Keys         Column
	Starts, Ends []int64
	Accumulators Column
	Firings      []uint32
	Timings      []uint8
	ReceivedMs   int64
}

// Accumulated is what a batch added to its groups.
type Accumulated struct {
	Fragments Column
	Rejected  Rejected
}

// BatchAggregator is an aggregator in the contract's own flat lists.
type BatchAggregator interface {
	Accumulate(in *Batch, groups Groups) (Accumulated, error)
	Merge(lists Lists) (Column, error)
	Emit(panes Panes) (Output, error)
	StateVersion() uint32
	Migrate(version uint32, accumulators Column) (Column, error)
}

// Aggregates makes a batch aggregator of an aggregator. What it returns is valid until the next call.
func Aggregates[A any](a Aggregator[A]) BatchAggregator {
	return &aggregates[A]{aggregator: a}
}

type aggregates[A any] struct {
	aggregator Aggregator[A]
	// In a field, so that handing out its address doesn't allocate for each group.
	accumulator A
	fragments   builder
	refused     []string
	rejected    []uint32
	reasons     builder
	emitter     Emitter
}

func (a *aggregates[A]) Accumulate(in *Batch, groups Groups) (Accumulated, error) {
	a.fragments.reset()
	a.reasons.reset()
	a.rejected, a.refused = a.rejected[:0], nil
	first := 0
	for _, end := range groups.Ends {
		var zero A
		a.accumulator = zero
		taken := 0
		for _, row := range groups.Rows[first:end] {
			if err := a.aggregator.Add(&a.accumulator, at(in, int(row))); err != nil {
				a.refuse(in.Len(), row, err)
				continue
			}
			taken++
		}
		first = int(end)
		if taken > 0 {
			a.fragments.bytes = a.aggregator.Encode(&a.accumulator, a.fragments.bytes)
		}
		a.fragments.end(taken > 0)
	}
	// Groups come in any order, rejected rows go back in theirs.
	for row, reason := range a.refused {
		if reason != "" {
			a.rejected = append(a.rejected, uint32(row))
			a.reasons.push([]byte(reason))
		}
	}
	return Accumulated{a.fragments.column(), Rejected{a.rejected, a.reasons.column()}}, nil
}

func (a *aggregates[A]) refuse(rows int, row uint32, err error) {
	if a.refused == nil {
		a.refused = make([]string, rows)
	}
	if a.refused[row] = err.Error(); a.refused[row] == "" {
		a.refused[row] = "no reason given"
	}
}

func (a *aggregates[A]) Merge(lists Lists) (Column, error) {
	a.fragments.reset()
	first := 0
	for _, end := range lists.Ends {
		var zero A
		a.accumulator = zero
		for i := first; i < int(end); i++ {
			if err := a.aggregator.Merge(&a.accumulator, lists.Fragments.Get(i)); err != nil {
				return Column{}, fmt.Errorf("cannot merge an accumulator: %w", err)
			}
		}
		first = int(end)
		a.fragments.bytes = a.aggregator.Encode(&a.accumulator, a.fragments.bytes)
		a.fragments.end(true)
	}
	return a.fragments.column(), nil
}

func (a *aggregates[A]) Emit(panes Panes) (Output, error) {
	times := make([]int64, len(panes.Ends))
	for i, end := range panes.Ends {
		times[i] = end - 1
	}
	in := &Batch{Keys: panes.Keys, EventTimes: times, ReceivedMs: panes.ReceivedMs}
	e := &a.emitter
	e.start(in)
	for row := range times {
		e.message.next(row)
		var zero A
		a.accumulator = zero
		err := a.aggregator.Merge(&a.accumulator, panes.Accumulators.Get(row))
		if err == nil {
			err = a.aggregator.Emit(panes.pane(row), &a.accumulator, e)
		}
		if err != nil {
			e.reject(err.Error())
		}
	}
	return e.output(), nil
}

func (p *Panes) pane(row int) Pane {
	return Pane{
		Key: p.Keys.Get(row), StartMs: p.Starts[row], EndMs: p.Ends[row], Firings: p.Firings[row],
		Timing: Timing(p.Timings[row]), ReceivedMs: p.ReceivedMs,
	}
}

func (a *aggregates[A]) StateVersion() uint32 {
	if migrator, ok := a.aggregator.(Migrator); ok {
		return migrator.StateVersion()
	}
	return 1
}

func (a *aggregates[A]) Migrate(version uint32, accumulators Column) (Column, error) {
	migrator, ok := a.aggregator.(Migrator)
	if !ok {
		return Column{}, fmt.Errorf("accumulators of version %d cannot be read: the module writes version 1", version)
	}
	a.fragments.reset()
	for row := range accumulators.Ends {
		bytes, err := migrator.Migrate(version, accumulators.Get(row), a.fragments.bytes)
		if err != nil {
			return Column{}, err
		}
		a.fragments.bytes = bytes
		a.fragments.end(true)
	}
	return a.fragments.column(), nil
}

// at is a message anywhere in a batch.
func at(in *Batch, row int) Message {
	m := Message{batch: in, row: row}
	if rows := in.Attributes.Rows; len(rows) != 0 {
		m.first, _ = slices.BinarySearch(rows, uint32(row))
		m.last, _ = slices.BinarySearch(rows, uint32(row)+1)
	}
	return m
}
