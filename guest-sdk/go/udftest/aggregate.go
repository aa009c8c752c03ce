package udftest

import (
	"bytes"
	"testing"

	"weir/udf"
)

// Window is the window that Aggregate's messages are taken to fall into.
const (
	WindowStartMs = 0
	WindowEndMs   = 60_000
)

// Aggregate runs an aggregator over messages of one key and window and fires it. On the way it checks the laws
// of merging on these very messages: a fragment merged alone means the same, and grouping does not matter. The
// test fails if the configuration is refused or a law is broken.
func Aggregate[C, A any](t testing.TB, build func(C) (udf.Aggregator[A], error), config string, messages ...Message) Results {
	t.Helper()
	built, routes, err := udf.Configured(config, build)
	if err != nil {
		t.Fatalf("the configuration was refused: %v", err)
	}
	aggregator := udf.Aggregates(built)
	accumulate := func(first, last int) ([]byte, []Rejection) {
		groups := udf.Groups{Ends: []uint32{uint32(last - first)}}
		for row := 0; row < last-first; row++ {
			groups.Rows = append(groups.Rows, uint32(row))
		}
		made, err := aggregator.Accumulate(batch(messages[first:last]), groups)
		if err != nil {
			t.Fatalf("the batch was refused: %v", err)
		}
		var rejected []Rejection
		for i, row := range made.Rejected.Rows {
			rejected = append(rejected, Rejection{first + int(row), string(made.Rejected.Reasons.Get(i))})
		}
		return bytes.Clone(made.Fragments.Get(0)), rejected
	}
	merge := func(fragments ...[]byte) []byte {
		var list [][]byte
		for _, fragment := range fragments {
			if fragment != nil {
				list = append(list, fragment)
			}
		}
		if len(list) == 0 {
			return nil
		}
		fragment := column(list)
		merged, err := aggregator.Merge(udf.Lists{Fragments: udf.Column{Bytes: fragment.Bytes, Ends: fragment.Ends}, Ends: []uint32{uint32(len(list))}})
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(merged.Get(0))
	}
	emit := func(accumulator []byte) Results {
		accumulators := column([][]byte{accumulator})
		output, err := aggregator.Emit(udf.Panes{
			Keys: column([][]byte{[]byte("key")}), Starts: []int64{WindowStartMs}, Ends: []int64{WindowEndMs},
			Accumulators: accumulators, Firings: []uint32{0}, Timings: []uint8{uint8(udf.OnTime)},
		})
		if err != nil {
			t.Fatalf("the pane was refused: %v", err)
		}
		return results(t, output, routes, 1)
	}
	if len(messages) == 0 {
		return Results{}
	}
	whole, rejected := accumulate(0, len(messages))
	if whole == nil {
		return Results{Rejected: rejected}
	}
	found := emit(whole)
	same := func(law string, accumulator []byte) {
		t.Helper()
		other := emit(accumulator)
		if len(other.Rows) != len(found.Rows) {
			t.Fatalf("%s: %d rows instead of %d", law, len(other.Rows), len(found.Rows))
		}
		for i := range other.Rows {
			if !bytes.Equal(other.Rows[i].Value, found.Rows[i].Value) {
				t.Fatalf("%s: %s instead of %s", law, other.Rows[i].Value, found.Rows[i].Value)
			}
		}
	}
	same("a fragment merged alone", merge(whole))
	var left []byte
	fragments := make([][]byte, len(messages))
	for i := range messages {
		fragments[i], _ = accumulate(i, i+1)
		left = merge(left, fragments[i])
	}
	same("merged one by one", left)
	same("merged all at once", merge(fragments...))
	var right []byte
	for i := len(fragments) - 1; i >= 0; i-- {
		right = merge(fragments[i], right)
	}
	same("merged from the right", right)
	found.Rejected = append(rejected, found.Rejected...)
	return found
}
