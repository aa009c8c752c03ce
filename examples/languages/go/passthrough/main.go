// Passthrough: what a message costs without any work.
package main

import (
	"weir/udf"
	"weir/udf/transformer"
)

type passthrough struct{}

func (passthrough) Transform(_ udf.Message, out *udf.Emitter) error {
	out.Forward()
	return nil
}

func init() {
	transformer.Export(func(struct{}) (udf.Transformer, error) { return passthrough{}, nil })
}

func main() {}
