// Faults that Google documents and its fake does not show. Each is set by POST /fault?… on the second port:
//
//	method=Acknowledge&code=14&times=2          the next two calls fail, and nothing is done
//	method=Acknowledge&code=14&times=1&after=1  the next call is carried out, and its answer lost
//	method=StreamingPull&code=14&times=1        a stream is closed (https://cloud.google.com/pubsub/docs/pull#streamingpull_api:
//	                                            "StreamingPull streams are always terminated with a non-OK status")
//	stall=1                                     the streams that are open bring nothing any more; a new stream does
//	lease=2                                     leases that a stream asks for are this short, in seconds
//	invalid=1                                   an ack id is good for a message's newest delivery alone, and not twice; others
//	                                            fail as https://cloud.google.com/pubsub/docs/exactly-once-delivery says:
//	                                            ErrorInfo with PERMANENT_FAILURE_INVALID_ACK_ID for each, the others succeed
//	transient=1&times=N                         of the next N requests every second ack id fails with TRANSIENT_FAILURE_UNORDERED_ACK_ID
package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type fault struct {
	code  codes.Code
	times int
	after bool
}

type faults struct {
	mu        sync.Mutex
	calls     map[string]*fault
	opened    int // streams so far
	stalled   int // streams up to this one stand still
	seconds   int32
	invalid   bool
	transient int
	newest    map[string]string // message id: ack id of its newest delivery, "" once acknowledged
}

func newFaults() *faults {
	return &faults{calls: map[string]*fault{}, newest: map[string]string{}}
}

func (f *faults) set(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := func(name string) int { n, _ := strconv.Atoi(r.FormValue(name)); return n }
	method := r.FormValue("method")
	switch {
	case r.FormValue("lease") != "":
		f.seconds = int32(number("lease"))
	case r.FormValue("invalid") != "":
		f.invalid = number("invalid") == 1
	case r.FormValue("transient") != "":
		f.transient = number("times")
	case r.FormValue("stall") != "":
		f.stalled = f.opened
	case method != "":
		f.calls[method] = &fault{codes.Code(number("code")), number("times"), number("after") == 1}
	default:
		http.Error(w, "no such fault", http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, "ok")
}

// call says what a call comes to: an error before it is carried out, or one after.
func (f *faults) call(method string) (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.calls[method]
	if fault == nil || fault.times <= 0 {
		return nil, nil
	}
	fault.times--
	err := status.Error(fault.code, "a fault of the test")
	if fault.after {
		return nil, err
	}
	return err, nil
}

func (f *faults) stream() error {
	before, _ := f.call("StreamingPull")
	return before
}

func (f *faults) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return f.opened
}

func (f *faults) stands(stream int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return stream <= f.stalled
}

func (f *faults) lease(seconds int32) int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seconds > 0 {
		return f.seconds
	}
	return seconds
}

func messageOf(ackID string) string {
	return ackID[:strings.LastIndex(ackID, ":")]
}

func (f *faults) delivered(messages []*pb.ReceivedMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.invalid {
		for _, message := range messages {
			f.newest[message.Message.MessageId] = message.AckId
		}
	}
}

// acknowledged sorts ack ids into those that do and an error that names the others.
func (f *faults) acknowledged(ackIDs []string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.invalid && f.transient <= 0 {
		return ackIDs, nil
	}
	var good []string
	failed := map[string]string{}
	for i, id := range ackIDs {
		newest, known := f.newest[messageOf(id)]
		switch {
		case f.transient > 0 && i%2 == 1:
			failed[id] = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
		case f.invalid && known && newest != id:
			failed[id] = "PERMANENT_FAILURE_INVALID_ACK_ID"
		default:
			good = append(good, id)
			if known {
				f.newest[messageOf(id)] = ""
			}
		}
	}
	f.transient--
	if len(failed) == 0 {
		return good, nil
	}
	refused := status.New(codes.FailedPrecondition, "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired or the acknowledgement ids were malformed.")
	refused, _ = refused.WithDetails(&errdetails.ErrorInfo{Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: failed})
	return good, refused.Err()
}
