// Orders in Go: checks orders, masks e-mail addresses, and tells large orders from small ones.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"weir/udf"
	"weir/udf/transformer"
)

type config struct {
	// LargeFrom is the amount in cents from which an order is large.
	LargeFrom *int64 `json:"large_from"`
}

// order is what is read of a message. Pointers tell a missing field from a zero.
type order struct {
	ID      *int64 `json:"id"`
	Deleted bool   `json:"deleted"`
	Email   string `json:"email"`
	Amount  *int64 `json:"amount"`
	Ts      *int64 `json:"ts"`
	Note    string `json:"note"`
}

// checked is what is made of it.
type checked struct {
	ID     int64  `json:"id"`
	Email  string `json:"email"`
	Amount int64  `json:"amount"`
	Size   string `json:"size"`
	Note   string `json:"note"`
}

type orders struct {
	largeFrom int64
	buffer    bytes.Buffer
	encoder   *json.Encoder
}

var large = udf.NthRoute(0)

// What is wrong with a field of the wrong type.
var expected = map[string]string{
	"id":      "id: expected a whole number",
	"deleted": "deleted: expected true or false",
	"email":   "email: expected an address",
	"amount":  "amount: expected a whole number of cents",
	"ts":      "ts: expected milliseconds",
	"note":    "note: expected a text",
}

func build(c config) (udf.Transformer, error) {
	largeFrom := int64(10_000)
	if c.LargeFrom != nil {
		largeFrom = *c.LargeFrom
	}
	if largeFrom < 1 {
		return nil, errors.New("config: large_from: expected a whole number of at least 1")
	}
	o := &orders{largeFrom: largeFrom}
	o.encoder = json.NewEncoder(&o.buffer)
	o.encoder.SetEscapeHTML(false)
	return o, nil
}

func (o *orders) Routes() []string { return []string{"large"} }

func (o *orders) Transform(m udf.Message, out *udf.Emitter) error {
	if m.Value() == nil {
		out.Forward()
		return nil
	}
	var in order
	if err := json.Unmarshal(m.Value(), &in); err != nil {
		var field *json.UnmarshalTypeError
		if errors.As(err, &field) && field.Field != "" {
			return errors.New(expected[field.Field])
		}
		return errors.New("not a JSON object")
	}
	if in.ID == nil {
		return errors.New(expected["id"])
	}
	key := strconv.AppendInt(nil, *in.ID, 10)
	if in.Deleted {
		// Without a value: a tombstone.
		out.EmitRow(udf.Row{Key: key, EventTimeMs: m.EventTimeMs(), Attributes: m.Attributes()})
		return nil
	}
	return o.emit(m, in, key, out)
}

func (o *orders) emit(m udf.Message, in order, key []byte, out *udf.Emitter) error {
	at := strings.IndexByte(in.Email, '@')
	if at < 1 {
		return errors.New(expected["email"])
	}
	if in.Amount == nil || *in.Amount < 0 {
		return errors.New(expected["amount"])
	}
	size, route := "small", udf.Main
	if *in.Amount >= o.largeFrom {
		size, route = "large", large
	}
	eventTimeMs := m.EventTimeMs()
	if in.Ts != nil {
		eventTimeMs = *in.Ts
	}
	_, first := utf8.DecodeRuneInString(in.Email)
	o.buffer.Reset()
	if err := o.encoder.Encode(checked{*in.ID, in.Email[:first] + "***" + in.Email[at:], *in.Amount, size, in.Note}); err != nil {
		return err
	}
	out.EmitRow(udf.Row{
		Key: key, Value: bytes.TrimSuffix(o.buffer.Bytes(), []byte("\n")), EventTimeMs: eventTimeMs, Route: route,
		Attributes: append(m.Attributes(), udf.Attribute{Name: "size", Value: []byte(size)}),
	})
	return nil
}

func init() { transformer.Export(build) }
func main() {}
