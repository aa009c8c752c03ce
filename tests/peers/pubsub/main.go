// A Pub/Sub server for tests: Google's own fake (cloud.google.com/go/pubsub/v2/pstest), whose state and rules are kept, behind
// a fixed port. StreamingPull alone is ours, since the fake sends a hundred messages a second and knows no flow control; it pulls
// from the fake in batches, and keeps to the limits that the stream asked for.
//
// A second port tells what has become of messages (GET /stats) and what was published (GET /messages?topic=…), publishes many at once
// (POST /publish?topic=…&count=…&bytes=…&keys=…) and takes faults (faults.go).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	batch = 2000             // messages in an answer
	tick  = time.Millisecond // how often an idle stream looks again
)

// subscriber is the fake with our StreamingPull, and with faults in front of it.
type subscriber struct {
	*pstest.GServer
	faults *faults
	// turn is held while messages are drawn and while they are acknowledged: the service never takes an old ack id of a message
	// that it is about to deliver again.
	turn  sync.Mutex
	mu    sync.Mutex
	out   map[string]*stream // by ack id: the stream whose window it fills
	acked map[string]int     // confirmed acknowledgements by subscription
}

// stream is the window of one StreamingPull.
type stream struct {
	mu              sync.Mutex
	messages, bytes int64
	sizes           map[string]int64
}

func (s *stream) room(request *pb.StreamingPullRequest) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := int64(batch)
	if most := request.MaxOutstandingMessages; most > 0 {
		room = min(room, most-s.messages)
	}
	if most := request.MaxOutstandingBytes; most > 0 && s.bytes >= most {
		room = 0
	}
	return room
}

func (s *subscriber) fill(to *stream, messages []*pb.ReceivedMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	for _, message := range messages {
		size := int64(len(message.Message.Data))
		to.messages++
		to.bytes += size
		to.sizes[message.AckId] = size
		s.out[message.AckId] = to
	}
}

// drain takes messages out of their streams' windows.
func (s *subscriber) drain(ackIDs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ackIDs {
		of := s.out[id]
		if of == nil {
			continue
		}
		delete(s.out, id)
		of.mu.Lock()
		of.messages--
		of.bytes -= of.sizes[id]
		delete(of.sizes, id)
		of.mu.Unlock()
	}
}

func (s *subscriber) StreamingPull(server pb.Subscriber_StreamingPullServer) error {
	first, err := server.Recv()
	if err != nil {
		return err
	}
	subscription, err := s.GServer.GetSubscription(server.Context(), &pb.GetSubscriptionRequest{Subscription: first.Subscription})
	if err != nil {
		return err
	}
	window, number := &stream{sizes: map[string]int64{}}, s.faults.open()
	gone := make(chan error, 1)
	pings := make(chan struct{}, 1)
	go func() {
		for {
			if _, err := server.Recv(); err != nil {
				gone <- err
				return
			}
			pings <- struct{}{}
		}
	}()
	properties := &pb.StreamingPullResponse_SubscriptionProperties{
		ExactlyOnceDeliveryEnabled: subscription.EnableExactlyOnceDelivery,
		MessageOrderingEnabled:     subscription.EnableMessageOrdering,
	}
	beat := func() error { return server.Send(&pb.StreamingPullResponse{SubscriptionProperties: properties}) }
	if err := beat(); err != nil {
		return err
	}
	for {
		select {
		case <-server.Context().Done():
			return server.Context().Err()
		case <-gone:
			return nil
		case <-pings:
			if err := beat(); err != nil {
				return err
			}
		default:
		}
		if fault := s.faults.stream(); fault != nil {
			return fault
		}
		room := window.room(first)
		if room <= 0 || s.faults.stands(number) {
			time.Sleep(tick)
			continue
		}
		seconds := first.StreamAckDeadlineSeconds
		if seconds == subscription.AckDeadlineSeconds {
			seconds = 0
		}
		messages, err := s.draw(server.Context(), &pb.PullRequest{
			Subscription: first.Subscription, MaxMessages: int32(room), ReturnImmediately: true}, seconds)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			time.Sleep(tick)
			continue
		}
		s.fill(window, messages)
		if err := server.Send(&pb.StreamingPullResponse{ReceivedMessages: messages, SubscriptionProperties: properties}); err != nil {
			return err
		}
	}
}

// draw takes messages from the fake, for so many seconds where the stream asked for another lease than the subscription's.
func (s *subscriber) draw(ctx context.Context, request *pb.PullRequest, seconds int32) ([]*pb.ReceivedMessage, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	answer, err := s.GServer.Pull(ctx, request)
	if err != nil {
		return nil, err
	}
	messages := copied(answer.ReceivedMessages)
	if seconds > 0 && len(messages) > 0 {
		if err := s.lease(ctx, request.Subscription, ids(messages), s.faults.lease(seconds)); err != nil {
			return nil, err
		}
	}
	s.faults.delivered(messages)
	return messages, nil
}

// copied takes a copy of what the fake changes when a message goes out again.
func copied(messages []*pb.ReceivedMessage) []*pb.ReceivedMessage {
	out := make([]*pb.ReceivedMessage, len(messages))
	for i, message := range messages {
		out[i] = &pb.ReceivedMessage{AckId: message.AckId, Message: message.Message, DeliveryAttempt: message.DeliveryAttempt}
	}
	return out
}

func ids(messages []*pb.ReceivedMessage) []string {
	out := make([]string, len(messages))
	for i, message := range messages {
		out[i] = message.AckId
	}
	return out
}

func (s *subscriber) lease(ctx context.Context, subscription string, ackIDs []string, seconds int32) error {
	_, err := s.GServer.ModifyAckDeadline(ctx, &pb.ModifyAckDeadlineRequest{
		Subscription: subscription, AckIds: ackIDs, AckDeadlineSeconds: seconds})
	return err
}

// GetSubscription is where a test has the account refused.
func (s *subscriber) GetSubscription(ctx context.Context, request *pb.GetSubscriptionRequest) (*pb.Subscription, error) {
	if before, _ := s.faults.call("GetSubscription"); before != nil {
		return nil, before
	}
	return s.GServer.GetSubscription(ctx, request)
}

func (s *subscriber) Pull(ctx context.Context, request *pb.PullRequest) (*pb.PullResponse, error) {
	messages, err := s.draw(ctx, request, 0)
	if err != nil {
		return nil, err
	}
	return &pb.PullResponse{ReceivedMessages: messages}, nil
}

func (s *subscriber) Acknowledge(ctx context.Context, request *pb.AcknowledgeRequest) (*emptypb.Empty, error) {
	before, after := s.faults.call("Acknowledge")
	if before != nil {
		return nil, before
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	good, refused := s.faults.acknowledged(request.AckIds)
	s.drain(request.AckIds)
	kept := proto.Clone(request).(*pb.AcknowledgeRequest)
	kept.AckIds = good
	answer, err := s.GServer.Acknowledge(ctx, kept)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.acked[request.Subscription] += len(good)
	s.mu.Unlock()
	if after != nil {
		return nil, after
	}
	if refused != nil {
		return nil, refused
	}
	return answer, nil
}

func (s *subscriber) ModifyAckDeadline(ctx context.Context, request *pb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	before, after := s.faults.call("ModifyAckDeadline")
	if before != nil {
		return nil, before
	}
	if request.AckDeadlineSeconds == 0 {
		s.drain(request.AckIds)
	}
	answer, err := s.GServer.ModifyAckDeadline(ctx, request)
	if after != nil {
		return nil, after
	}
	return answer, err
}

// publisher is the fake with faults in front of it.
type publisher struct {
	*pstest.GServer
	faults *faults
}

func (p *publisher) Publish(ctx context.Context, request *pb.PublishRequest) (*pb.PublishResponse, error) {
	before, after := p.faults.call("Publish")
	if before != nil {
		return nil, before
	}
	// What the service refuses and the fake does not: https://cloud.google.com/pubsub/quotas#resource_limits, and for keys
	// PubsubMessage.ordering_key in google/pubsub/v1/pubsub.proto.
	if len(request.Messages) > 1000 || proto.Size(request) > 10_000_000 {
		return nil, status.Error(codes.InvalidArgument, "the request is too large")
	}
	for _, message := range request.Messages {
		if message.OrderingKey != request.Messages[0].OrderingKey {
			return nil, status.Error(codes.InvalidArgument, "messages of a request have one ordering key")
		}
	}
	answer, err := p.GServer.Publish(ctx, request)
	if after != nil {
		return nil, after
	}
	return answer, err
}

func main() {
	address := flag.String("addr", "127.0.0.1:8085", "where the service listens")
	control := flag.String("control", "", "where the second port listens")
	flag.Parse()
	pstest.SetMinAckDeadline(time.Second)
	fake := pstest.NewServer()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	faults := newFaults()
	subscriber := &subscriber{GServer: &fake.GServer, faults: faults, out: map[string]*stream{}, acked: map[string]int{}}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(20<<20), grpc.InitialWindowSize(4<<20), grpc.InitialConnWindowSize(8<<20))
	pb.RegisterPublisherServer(server, &publisher{GServer: &fake.GServer, faults: faults})
	pb.RegisterSubscriberServer(server, subscriber)
	pb.RegisterSchemaServiceServer(server, &fake.GServer)
	if *control != "" {
		http.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
			subscriber.mu.Lock()
			defer subscriber.mu.Unlock()
			acked := 0
			deliveries, most := 0, 0
			for _, message := range fake.Messages() {
				if message.Acks > 0 {
					acked++
				}
				deliveries += message.Deliveries
				most = max(most, message.Deliveries)
			}
			json.NewEncoder(w).Encode(map[string]int{"messages": len(fake.Messages()), "acked": acked, "deliveries": deliveries, "most": most})
		})
		http.HandleFunc("POST /fault", faults.set)
		http.HandleFunc("GET /messages", func(w http.ResponseWriter, r *http.Request) {
			type message struct {
				Data, Key  string
				Attributes map[string]string
			}
			all := []message{}
			for _, m := range fake.Messages() {
				if m.Topic == r.FormValue("topic") {
					all = append(all, message{string(m.Data), m.OrderingKey, m.Attributes})
				}
			}
			json.NewEncoder(w).Encode(all)
		})
		http.HandleFunc("POST /publish", func(w http.ResponseWriter, r *http.Request) {
			number := func(name string) int { n, _ := strconv.Atoi(r.FormValue(name)); return n }
			padding := strings.Repeat("x", number("bytes"))
			for n := number("from"); n < number("from")+number("count"); n++ {
				data := fmt.Sprintf(`{"id":"%d","logStreamId":"%d","message":"%s"}`, n, 1000001+n, padding)
				attributes := map[string]string{"number": strconv.Itoa(n)}
				if keys := number("keys"); keys > 0 {
					fake.PublishOrdered(r.FormValue("topic"), []byte(data), attributes, fmt.Sprintf("key-%d", n%keys))
				} else {
					fake.Publish(r.FormValue("topic"), []byte(data), attributes)
				}
			}
			fmt.Fprintln(w, "ok")
		})
		go func() { log.Fatal(http.ListenAndServe(*control, nil)) }()
	}
	go func() {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
		<-signals
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
