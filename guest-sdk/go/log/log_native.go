//go:build !wasip1

package log

import (
	"fmt"
	"os"
)

func write(level uint32, line string) {
	fmt.Fprintln(os.Stderr, []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR"}[level]+": "+line)
}
