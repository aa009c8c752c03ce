// Package udftest runs transformers and aggregators natively, in ordinary tests: no WebAssembly is involved,
// so that debuggers and coverage work as ever.
package udftest

import (
	"testing"

	"weir/udf"
)

// Message is a message to be handed in. Nil for key or value is absent.
type Message struct {
	Key, Value  []byte
	EventTimeMs int64
	Attributes  []udf.Attribute
}

// Value is a message with this value only.
func Value(text string) Message { return Message{Value: []byte(text)} }

// Values are messages with these values only.
func Values(texts ...string) []Message {
	messages := make([]Message, len(texts))
	for i, text := range texts {
		messages[i] = Value(text)
	}
	return messages
}

// Row is a row that came out.
type Row struct {
	Key, Value  []byte
	EventTimeMs int64
	Attributes  []udf.Attribute
	// Origin is the message that it was made of, by its place; for an aggregator, the pane.
	Origin int
	// Route is the name of its route; empty: the main output.
	Route string
}

// Rejection is a message that was rejected, by its place.
type Rejection struct {
	Row    int
	Reason string
}

// Results are what came out.
type Results struct {
	Rows     []Row
	Rejected []Rejection
	// Filtered are messages of which nothing came out, by their place.
	Filtered []int
}

// Values are the values of all rows as text.
func (r Results) Values() []string {
	values := make([]string, len(r.Rows))
	for i, row := range r.Rows {
		values[i] = string(row.Value)
	}
	return values
}

// Reasons are the reasons of all rejections.
func (r Results) Reasons() []string {
	reasons := make([]string, len(r.Rejected))
	for i, rejection := range r.Rejected {
		reasons[i] = rejection.Reason
	}
	return reasons
}

// Transform runs a transformer, made with a configuration as JSON text, over messages as one batch. The test
// fails if the configuration is refused.
func Transform[C any](t testing.TB, build func(C) (udf.Transformer, error), config string, messages ...Message) Results {
	t.Helper()
	built, routes, err := udf.Configured(config, build)
	if err != nil {
		t.Fatalf("the configuration was refused: %v", err)
	}
	output, err := udf.Batches(built).TransformBatch(batch(messages))
	if err != nil {
		t.Fatalf("the batch was refused: %v", err)
	}
	return results(t, output, routes, len(messages))
}

// Refusal is the text with which a configuration is refused. The test fails if it is accepted.
func Refusal[C, T any](t testing.TB, build func(C) (T, error), config string) string {
	t.Helper()
	if _, _, err := udf.Configured(config, build); err != nil {
		return err.Error()
	}
	t.Fatalf("the configuration was accepted: %s", config)
	return ""
}

func batch(messages []Message) *udf.Batch {
	in := &udf.Batch{}
	var keys, values, names, attributeValues [][]byte
	for row, message := range messages {
		keys, values = append(keys, message.Key), append(values, message.Value)
		in.EventTimes = append(in.EventTimes, message.EventTimeMs)
		for _, attribute := range message.Attributes {
			in.Attributes.Rows = append(in.Attributes.Rows, uint32(row))
			names, attributeValues = append(names, []byte(attribute.Name)), append(attributeValues, attribute.Value)
		}
	}
	in.Keys, in.Values = column(keys), column(values)
	in.Attributes.Names, in.Attributes.Values = column(names), column(attributeValues)
	return in
}

func column(rows [][]byte) udf.Column {
	made := udf.Column{Present: make([]byte, (len(rows)+7)/8)}
	for i, row := range rows {
		made.Bytes = append(made.Bytes, row...)
		made.Ends = append(made.Ends, uint32(len(made.Bytes)))
		if row != nil {
			made.Present[i/8] |= 1 << (i % 8)
		}
	}
	return made
}

func results(t testing.TB, output udf.Output, routes []string, inputs int) Results {
	t.Helper()
	found := Results{}
	seen := make([]bool, inputs)
	next := 0
	for row, eventTimeMs := range output.Batch.EventTimes {
		made := Row{
			Key: output.Batch.Keys.Get(row), Value: output.Batch.Values.Get(row), EventTimeMs: eventTimeMs, Origin: row,
		}
		if len(output.Origins) != 0 {
			made.Origin = int(output.Origins[row])
		}
		if len(output.Routes) != 0 && output.Routes[row] != 0 {
			number := int(output.Routes[row])
			if number > len(routes) {
				t.Fatalf("a row went to route %d, but only %d were named", number, len(routes))
			}
			made.Route = routes[number-1]
		}
		attributes := &output.Batch.Attributes
		for ; next < len(attributes.Rows) && int(attributes.Rows[next]) == row; next++ {
			made.Attributes = append(made.Attributes, udf.Attribute{Name: string(attributes.Names.Get(next)), Value: attributes.Values.Get(next)})
		}
		seen[made.Origin] = true
		found.Rows = append(found.Rows, made)
	}
	for i, row := range output.Rejected.Rows {
		if seen[row] {
			t.Fatalf("message %d was both rejected and emitted", row)
		}
		seen[row] = true
		found.Rejected = append(found.Rejected, Rejection{int(row), string(output.Rejected.Reasons.Get(i))})
	}
	for row, seen := range seen {
		if !seen {
			found.Filtered = append(found.Filtered, row)
		}
	}
	return found
}
