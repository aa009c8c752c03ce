//go:build wasip1

package transformer

import (
	"errors"
	"unsafe"

	"weir/udf/internal/abi"
)

//go:wasmexport configure
func exportConfigure(at unsafe.Pointer, length uint32) unsafe.Pointer {
	config := abi.String(at, length)
	abi.Taken()
	if configure == nil {
		return abi.Names(nil, errors.New("the module exports no transformer: call transformer.Export in an init function"))
	}
	return abi.Names(configure(config))
}

//go:wasmexport transform
func exportTransform(arguments unsafe.Pointer) unsafe.Pointer {
	in := abi.Read(arguments).Batch()
	abi.Taken()
	output, err := transform.TransformBatch(in)
	return abi.Result(8, err, func(w *abi.Writer) { w.Output(output) })
}
