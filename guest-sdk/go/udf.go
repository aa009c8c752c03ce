// Package udf is what user-defined functions of Weir are written with in Go.
//
// A transform is a type with one method over a message; package transformer makes a module of it:
//
//	type greet struct{ Greeting string }
//
//	func (g *greet) Transform(m udf.Message, out *udf.Emitter) error {
//		if m.Value() == nil {
//			return errors.New("a tombstone cannot be greeted")
//		}
//		out.Append(func(buf []byte) []byte { return append(append(buf, g.Greeting...), m.Value()...) })
//		return nil
//	}
//
//	func init() { transformer.Export(func(g greet) (udf.Transformer, error) { return &g, nil }) }
//	func main() {}
//
// What the method does with a message says what becomes of it: emit any number of rows, forward it
// unchanged, return an error to reject it (it goes to the dead letters with the reason), or do nothing to
// drop it. An aggregator is a type with four methods, see [Aggregator]. Package udftest runs both natively.
//
// An instance may be thrown away at any time between two batches, several run side by side, and after a
// failure parts of a batch are handled again: what comes out must depend on the configuration and the
// message only. Buffers and caches are fine. A panic costs the instance and sends the message to the dead
// letters; its text is in the log if the step has `grants: [log]`.
package udf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Version of the contract that this package speaks.
const Version = "1.1.0"

// RoutesMax is how many routes a module can have besides the main output.
const RoutesMax = 254

// Transformer turns messages into messages, one at a time.
type Transformer interface {
	// Transform handles one message. An error rejects it with a reason; whatever it emitted is undone.
	Transform(m Message, out *Emitter) error
}

// BatchTransformer turns whole batches into others, in the contract's own flat lists. For those who want
// the last bit of speed.
type BatchTransformer interface {
	// TransformBatch handles a batch. An error says that the batch as a whole could not be handled.
	TransformBatch(in *Batch) (Output, error)
}

// Router is what a transformer or aggregator implements that has outputs besides the main one.
type Router interface {
	// Routes are the names of the outputs, at most [RoutesMax]. Sinks name them in `from`.
	Routes() []string
}

// Configured makes a transformer or aggregator from a step's config, as JSON, and asks it for its routes.
// A step without config has an empty one; unknown settings are refused.
func Configured[C, T any](config string, build func(C) (T, error)) (T, []string, error) {
	var none T
	var settings C
	text := bytes.TrimSpace([]byte(config))
	if len(text) != 0 && !bytes.Equal(text, []byte("null")) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&settings); err != nil {
			return none, nil, fmt.Errorf("config: %w", err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			return none, nil, errors.New("config: something follows the JSON value")
		}
	}
	built, err := build(settings)
	if err != nil {
		return none, nil, err
	}
	var routes []string
	if router, ok := any(built).(Router); ok {
		routes = router.Routes()
	}
	if len(routes) > RoutesMax {
		return none, nil, fmt.Errorf("the module names %d routes: at most %d are possible", len(routes), RoutesMax)
	}
	return built, routes, nil
}

// Batches makes a batch transformer of a transformer. The output is valid until the next batch.
func Batches(t Transformer) BatchTransformer { return &batches{transformer: t} }

type batches struct {
	transformer Transformer
	emitter     Emitter
}

func (b *batches) TransformBatch(in *Batch) (Output, error) {
	e := &b.emitter
	e.start(in)
	for row := range in.EventTimes {
		e.message.next(row)
		if err := b.transformer.Transform(e.message, e); err != nil {
			e.reject(err.Error())
		}
	}
	return e.output(), nil
}
