// Package log writes lines to the host's log. A module that uses it imports the host's log, and the step that
// runs it must say `grants: [log]`. Natively, lines go to standard error.
//
// Without this package, what a module prints (also a panic's text) still reaches the log of a step with that
// grant, and is dropped in one without it. Lines past the step's `limits.log` of one call are dropped: don't
// log for each message.
package log

import "fmt"

// Debugf is for whoever looks into a fault.
func Debugf(format string, arguments ...any) { write(1, fmt.Sprintf(format, arguments...)) }

// Infof is worth knowing in normal operation.
func Infof(format string, arguments ...any) { write(2, fmt.Sprintf(format, arguments...)) }

// Warnf says that something looks wrong, though work goes on.
func Warnf(format string, arguments ...any) { write(3, fmt.Sprintf(format, arguments...)) }

// Errorf says that something failed.
func Errorf(format string, arguments ...any) { write(4, fmt.Sprintf(format, arguments...)) }
