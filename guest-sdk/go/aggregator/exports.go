//go:build wasip1

package aggregator

import (
	"errors"
	"unsafe"

	"weir/udf"
	"weir/udf/internal/abi"
)

//go:wasmexport configure
func exportConfigure(at unsafe.Pointer, length uint32) unsafe.Pointer {
	config := abi.String(at, length)
	abi.Taken()
	if configure == nil {
		return abi.Names(nil, errors.New("the module exports no aggregator: call aggregator.Export in an init function"))
	}
	return abi.Names(configure(config))
}

//go:wasmexport accumulate
func exportAccumulate(arguments unsafe.Pointer) unsafe.Pointer {
	r := abi.Read(arguments)
	in := r.Batch()
	groups := udf.Groups{Rows: abi.List[uint32](r), Ends: abi.List[uint32](r)}
	abi.Taken()
	accumulated, err := aggregate.Accumulate(in, groups)
	return abi.Result(4, err, func(w *abi.Writer) {
		w.Column(accumulated.Fragments)
		w.Rejected(accumulated.Rejected)
	})
}

//go:wasmexport merge
func exportMerge(bytes unsafe.Pointer, length uint32, ends unsafe.Pointer, endsLength uint32, present unsafe.Pointer, presentLength uint32, lists unsafe.Pointer, listsLength uint32) unsafe.Pointer {
	in := udf.Lists{Fragments: column(bytes, length, ends, endsLength, present, presentLength), Ends: abi.Slice[uint32](lists, listsLength)}
	abi.Taken()
	merged, err := aggregate.Merge(in)
	return abi.Result(4, err, func(w *abi.Writer) { w.Column(merged) })
}

//go:wasmexport emit
func exportEmit(arguments unsafe.Pointer) unsafe.Pointer {
	r := abi.Read(arguments)
	panes := udf.Panes{
		Keys: r.Column(), Starts: abi.List[int64](r), Ends: abi.List[int64](r), Accumulators: r.Column(),
		Firings: abi.List[uint32](r), Timings: abi.List[uint8](r), ReceivedMs: r.Int64(),
	}
	abi.Taken()
	output, err := aggregate.Emit(panes)
	return abi.Result(8, err, func(w *abi.Writer) { w.Output(output) })
}

//go:wasmexport state-version
func exportStateVersion() uint32 { return aggregate.StateVersion() }

//go:wasmexport migrate
func exportMigrate(version uint32, bytes unsafe.Pointer, length uint32, ends unsafe.Pointer, endsLength uint32, present unsafe.Pointer, presentLength uint32) unsafe.Pointer {
	in := column(bytes, length, ends, endsLength, present, presentLength)
	abi.Taken()
	migrated, err := aggregate.Migrate(version, in)
	return abi.Result(4, err, func(w *abi.Writer) { w.Column(migrated) })
}

func column(bytes unsafe.Pointer, length uint32, ends unsafe.Pointer, endsLength uint32, present unsafe.Pointer, presentLength uint32) udf.Column {
	return udf.Column{Bytes: abi.Slice[byte](bytes, length), Ends: abi.Slice[uint32](ends, endsLength), Present: abi.Slice[byte](present, presentLength)}
}
