//go:build wasip1

// Package abi reads the arguments and writes the results of a module's exports, as the component model's
// canonical ABI lays them out in memory.
package abi

import (
	"unsafe"

	"weir/udf"
)

// Arguments that the host is laying out for the next call. Go's collector doesn't move them.
var pending [][]uint64

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	if size == 0 {
		return unsafe.Pointer(uintptr(align))
	}
	block := make([]uint64, (size+7)/8) // aligned for everything the contract has
	if old != nil {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&block[0])), size), unsafe.Slice((*byte)(old), oldSize))
	}
	pending = append(pending, block)
	return unsafe.Pointer(&block[0])
}

// Taken says that all arguments are read: from here on what refers to them keeps them.
func Taken() {
	clear(pending)
	pending = pending[:0]
}

// Slice is a list by address and length.
func Slice[T any](at unsafe.Pointer, length uint32) []T {
	if length == 0 {
		return nil
	}
	return unsafe.Slice((*T)(at), length)
}

// String is a text by address and length.
func String(at unsafe.Pointer, length uint32) string {
	return string(Slice[byte](at, length))
}

// Reader reads arguments laid out as a record.
type Reader struct{ at unsafe.Pointer }

// Read begins at an address.
func Read(at unsafe.Pointer) *Reader { return &Reader{at} }

func next[T any](r *Reader) T {
	value := *(*T)(r.at)
	r.at = unsafe.Add(r.at, unsafe.Sizeof(value))
	return value
}

// List reads a list.
func List[T any](r *Reader) []T {
	at, length := next[uint32](r), next[uint32](r)
	return Slice[T](unsafe.Pointer(uintptr(at)), length)
}

// Int64 reads a number. It must lie at a multiple of 8.
func (r *Reader) Int64() int64 { return next[int64](r) }

// Column reads a column.
func (r *Reader) Column() udf.Column {
	return udf.Column{Bytes: List[byte](r), Ends: List[uint32](r), Present: List[byte](r)}
}

// Batch reads a batch.
func (r *Reader) Batch() *udf.Batch {
	return &udf.Batch{
		Keys: r.Column(), Values: r.Column(), EventTimes: List[int64](r),
		Attributes: udf.Attributes{Rows: List[uint32](r), Names: r.Column(), Values: r.Column()},
		ReceivedMs: r.Int64(),
	}
}

// What the host reads after a call returned, and what keeps it alive until the next one.
var (
	area [32]uint64
	kept [64]any
)

// Writer writes a result: ok with a record, or an error's text.
type Writer struct {
	offset uintptr
	lists  int
}

func put[T any](w *Writer, value T) {
	*(*T)(unsafe.Add(unsafe.Pointer(&area), w.offset)) = value
	w.offset += unsafe.Sizeof(value)
}

// PutList writes a list.
func PutList[T any](w *Writer, list []T) {
	kept[w.lists] = list
	w.lists++
	put(w, uint32(uintptr(unsafe.Pointer(unsafe.SliceData(list)))))
	put(w, uint32(len(list)))
}

// Column writes a column.
func (w *Writer) Column(column udf.Column) {
	PutList(w, column.Bytes)
	PutList(w, column.Ends)
	PutList(w, column.Present)
}

// Rejected writes rejected rows.
func (w *Writer) Rejected(rejected udf.Rejected) {
	PutList(w, rejected.Rows)
	w.Column(rejected.Reasons)
}

// Output writes an output.
func (w *Writer) Output(output udf.Output) {
	w.Column(output.Batch.Keys)
	w.Column(output.Batch.Values)
	PutList(w, output.Batch.EventTimes)
	PutList(w, output.Batch.Attributes.Rows)
	w.Column(output.Batch.Attributes.Names)
	w.Column(output.Batch.Attributes.Values)
	put(w, output.Batch.ReceivedMs)
	PutList(w, output.Origins)
	PutList(w, output.Routes)
	w.Rejected(output.Rejected)
}

// Result writes the outcome of a call; align is that of the record: 8 where it holds times, else 4.
func Result(align uintptr, err error, ok func(w *Writer)) unsafe.Pointer {
	w := &Writer{offset: align}
	*(*uint8)(unsafe.Pointer(&area)) = 0
	if err != nil {
		*(*uint8)(unsafe.Pointer(&area)) = 1
		PutList(w, []byte(err.Error()))
	} else {
		ok(w)
	}
	return unsafe.Pointer(&area)
}

// Names writes the outcome of `configure`.
func Names(names []string, err error) unsafe.Pointer {
	return Result(4, err, func(w *Writer) {
		// Each a text: its address and its length.
		list := make([][2]uint32, len(names))
		for i, name := range names {
			list[i] = [2]uint32{uint32(uintptr(unsafe.Pointer(unsafe.StringData(name)))), uint32(len(name))}
		}
		kept[len(kept)-1] = names
		PutList(w, list)
	})
}
