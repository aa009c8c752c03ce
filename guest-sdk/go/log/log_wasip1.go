package log

import (
	"strings"
	"unsafe"
)

//go:wasmimport weir:udf/log@1.1.0 log
func hostLog(level uint32, text unsafe.Pointer, length uint32)

func write(level uint32, line string) {
	// The host takes UTF-8 only.
	line = strings.ToValidUTF8(line, "\uFFFD")
	hostLog(level, unsafe.Pointer(unsafe.StringData(line)), uint32(len(line)))
}
