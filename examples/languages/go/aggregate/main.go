// Totals in Go: how many messages of a key and window there are, and the sum of one of their fields.
package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"weir/udf"
	"weir/udf/aggregator"
)

type config struct {
	// Field is the field to sum up: whole numbers.
	Field string `json:"field"`
}

type total struct{ count, sum int64 }

type totals struct{ field string }

func build(c config) (udf.Aggregator[total], error) {
	if c.Field == "" {
		return nil, errors.New("config: field: name the field to sum up")
	}
	return &totals{c.Field}, nil
}

func (t *totals) Add(a *total, m udf.Message) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(m.Value(), &fields); err != nil || fields == nil {
		return errors.New("not a JSON object")
	}
	var number *int64
	if err := json.Unmarshal(fields[t.field], &number); err != nil || number == nil {
		return fmt.Errorf("%s: expected a whole number", t.field)
	}
	a.count++
	a.sum += *number
	return nil
}

func (t *totals) Encode(a *total, buf []byte) []byte {
	return binary.AppendVarint(binary.AppendVarint(buf, a.count), a.sum)
}

func (t *totals) Merge(a *total, encoded []byte) error {
	count, length := binary.Varint(encoded)
	if length <= 0 {
		return errors.New("no count")
	}
	sum, length := binary.Varint(encoded[length:])
	if length <= 0 {
		return errors.New("no sum")
	}
	a.count += count
	a.sum += sum
	return nil
}

func (t *totals) Emit(_ udf.Pane, a *total, out *udf.Emitter) error {
	out.Append(func(buf []byte) []byte { return fmt.Appendf(buf, `{"count":%d,"sum":%d}`, a.count, a.sum) })
	return nil
}

func init() { aggregator.Export(build) }
func main() {}
