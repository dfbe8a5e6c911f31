// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaler answers KEDA, in its protocol for external scalers: how many requests of an InferenceSet are in flight,
// and whether the set needs a replica.
//
// It decides which set a ScaledObject may query, and when an answer is incomplete. It must not know how requests are
// served. The numbers are sums over all routers: each router queries the others.
//
// The protocol: https://keda.sh/docs/2.17/concepts/external-scalers/
package scaler

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/models"
)

// Demands has the requests of this router, by the ID of the set.
type Demands interface{ Demand(id string) router.Demand }

// Others has the requests of the other routers.
type Others interface {
	// Ask asks each other router. Its error means that an answer is missing.
	Ask(ctx context.Context, method string, in proto.Message, out func() proto.Message) ([]proto.Message, error)
}

// Server answers KEDA.
type Server struct {
	wire      *wire
	demands   Demands
	directory router.Directory
	others    Others
	log       *slog.Logger
	clock     clock.WithTicker
	isReady   func() bool
	end       chan struct{}
	ending    sync.Once
	// streams is the number of open streams.
	streams atomic.Int64
}

// mostStreams bounds the memory for streams: each takes some 30 kB.
const mostStreams = 4096

// Parts are the parts of a Server.
type Parts struct {
	Demands   Demands
	Directory router.Directory
	Others    Others
	Log       *slog.Logger
	Clock     clock.WithTicker
	// IsReady reports whether the directory is complete.
	IsReady func() bool
}

// New returns a Server.
func New(parts Parts) (*Server, error) {
	messages, err := newWire()
	if err != nil {
		return nil, err
	}
	return &Server{
		wire: messages, demands: parts.Demands, directory: parts.Directory, others: parts.Others, log: parts.Log,
		clock: parts.Clock, isReady: parts.IsReady, end: make(chan struct{}),
	}, nil
}

// Methods of the protocol.
const (
	methodActive  = "IsActive"
	methodStream  = "StreamIsActive"
	methodSpec    = "GetMetricSpec"
	methodMetrics = "GetMetrics"
)

// Register adds the service to a gRPC server. StreamMetricSpec, which KEDA treats as optional, stays unimplemented: the
// targets of a ScaledObject are in its own metadata.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	to.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			s.method(methodActive, messageRef, s.isActive),
			s.method(methodSpec, messageRef, s.spec),
			s.method(methodMetrics, messageRequest, s.metrics),
		},
		Streams: []grpc.StreamDesc{{StreamName: methodStream, Handler: s.stream, ServerStreams: true}},
	}, s)
}

// End ends all streams. KEDA opens them again, on another connection.
func (s *Server) End() { s.ending.Do(func() { close(s.end) }) }

// method returns a method with one answer.
func (s *Server) method(
	name string, input protoreflect.Name, answer func(context.Context, protoreflect.Message) (proto.Message, error),
) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(
		_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
	) (out any, failed error) {
		defer func() {
			if problem := recover(); problem != nil {
				failed = s.panicked(problem)
			}
		}()
		in := s.wire.empty(input)
		if err := decode(in); err != nil {
			return nil, err
		}
		return answer(ctx, in)
	}}
}

// panicked turns a panic into an error: a question does not end the requests of clients.
func (s *Server) panicked(problem any) error {
	s.log.Error("a request from KEDA failed unexpectedly", "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
	return status.Error(codes.Internal, "the router failed")
}

// ask reads a question about a set. KEDA's questions need one that exists.
func (s *Server) ask(in protoreflect.Message) (*question, *models.Owner, error) {
	from := readRef(in)
	q, err := parse(&from)
	if err != nil {
		return nil, nil, err
	}
	owner := s.directory.Models().Set(q.id)
	if q.isPart { // this router's own count, which it has without the objects of the cluster
		return q, owner, nil
	}
	if !s.isReady() {
		return nil, nil, status.Error(codes.Unavailable, "the router is starting")
	}
	if owner == nil {
		return nil, nil, status.Errorf(codes.NotFound, "there is no InferenceSet %q in namespace %s", from.metadata[keySet], from.namespace)
	}
	return q, owner, nil
}

const (
	// recently is how long a set counts as active after its last request. Between two polls of KEDA, by default 30 s apart,
	// short requests may come and go.
	recently = 2 * time.Minute
	// wakeFor is how long a wake counts. Routers repeat it every 30 s while requests wait.
	wakeFor = time.Minute
	// repeat is the time between two messages of a stream while a set is called. KEDA may fail to scale it.
	repeat = 10 * time.Second
)

// isCalled reports whether a request waits for the set's first replica, at any router: routers write the time to the set,
// and all of them watch it.
func (s *Server) isCalled(id string, owner *models.Owner) bool {
	if s.demands.Demand(id).Held > 0 {
		return true
	}
	if owner == nil || owner.Woken.IsZero() {
		return false
	}
	since := s.clock.Now().Sub(owner.Woken)
	return since < wakeFor && since > -wakeFor // clocks differ, and anybody can write a time
}

// isActive answers whether the set needs a replica.
func (s *Server) isActive(ctx context.Context, in protoreflect.Message) (proto.Message, error) {
	q, owner, err := s.ask(in)
	if err != nil {
		return nil, err
	}
	own := s.demands.Demand(q.id)
	isRecent := !own.Last.IsZero() && s.clock.Now().Sub(own.Last) < recently
	if isActive := own.Requests+own.Loading > 0 || isRecent || s.isCalled(q.id, owner); isActive || q.isPart {
		return s.wire.active(isActive), nil
	}
	answers, err := s.others.Ask(ctx, methodActive, s.refOf(q), func() proto.Message { return s.wire.empty(messageActive) })
	for _, each := range answers {
		if get(each.ProtoReflect(), "result").Bool() {
			return s.wire.active(true), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return s.wire.active(false), nil
}

// refOf returns the question for another router.
func (s *Server) refOf(q *question) proto.Message {
	out := s.wire.empty(messageRef)
	writeRef(out, q.part())
	return out
}

// spec answers the name and the target of the metric.
func (s *Server) spec(_ context.Context, in protoreflect.Message) (proto.Message, error) {
	q, _, err := s.ask(in)
	if err != nil {
		return nil, err
	}
	out := s.wire.empty(messageSpecs)
	spec := appended(out, "metricSpecs")
	set(spec, "metricName", protoreflect.ValueOfString(q.metric))
	set(spec, "targetSize", protoreflect.ValueOfInt64(ceil(q.target)))
	set(spec, "targetSizeFloat", protoreflect.ValueOfFloat64(q.target))
	return out, nil
}

// metrics answers the value of the metric. Without the answer of another router, it fails: KEDA then keeps the number of
// replicas.
func (s *Server) metrics(ctx context.Context, in protoreflect.Message) (proto.Message, error) {
	q, _, err := s.ask(get(in, "scaledObjectRef").Message())
	if err != nil {
		return nil, err
	}
	if name := get(in, "metricName").String(); name != q.metric {
		return nil, status.Errorf(codes.InvalidArgument, "metricName is %.100q: the metric of this ScaledObject is %s", name, q.metric)
	}
	total := q.value(s.demands.Demand(q.id))
	if !q.isPart {
		request := s.wire.empty(messageRequest)
		set(request, "scaledObjectRef", protoreflect.ValueOfMessage(s.refOf(q).ProtoReflect()))
		set(request, "metricName", protoreflect.ValueOfString(q.metric))
		answers, err := s.others.Ask(ctx, methodMetrics, request, func() proto.Message { return s.wire.empty(messageValues) })
		if err != nil {
			return nil, err
		}
		for _, each := range answers {
			total += valueIn(each.ProtoReflect())
		}
	}
	out := s.wire.empty(messageValues)
	value := appended(out, "metricValues")
	set(value, "metricName", protoreflect.ValueOfString(q.metric))
	set(value, "metricValue", protoreflect.ValueOfInt64(ceil(total)))
	set(value, "metricValueFloat", protoreflect.ValueOfFloat64(total))
	return out, nil
}

// mostValue is more than a router ever has in flight.
const mostValue = 1e12

// valueIn returns the value in the answer of another router.
func valueIn(m protoreflect.Message) float64 {
	total, all := 0.0, get(m, "metricValues").List()
	for i := range all.Len() {
		if value := get(all.Get(i).Message(), "metricValueFloat").Float(); value > 0 && value < mostValue {
			total += value
		}
	}
	return total
}

// stream reports at once that a request waits for the set's first replica. It never reports the opposite: KEDA asks all
// triggers of a ScaledObject before it removes the last replica, and a message here would speak for one only.
func (s *Server) stream(_ any, stream grpc.ServerStream) (failed error) {
	if s.streams.Add(1) > mostStreams {
		s.streams.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "the router already has %d streams, the maximum", mostStreams)
	}
	defer s.streams.Add(-1)
	defer func() {
		if problem := recover(); problem != nil {
			failed = s.panicked(problem)
		}
	}()
	in := s.wire.empty(messageRef)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	q, _, err := s.ask(in)
	if err != nil {
		return err
	}
	ticker := s.clock.NewTicker(repeat)
	defer ticker.Stop()
	var sent time.Time
	for {
		table, next := s.directory.Next()
		owner := table.Set(q.id)
		switch now := s.clock.Now(); {
		case owner == nil:
			return status.Errorf(codes.NotFound, "InferenceSet %s is deleted", q.id)
		case !s.isCalled(q.id, owner):
			sent = time.Time{}
		case now.Sub(sent) >= repeat:
			if err := stream.SendMsg(s.wire.active(true)); err != nil {
				return err
			}
			sent = now
		}
		select {
		case <-next:
		case <-ticker.C():
		case <-s.end:
			return nil // after a clean end, KEDA opens the stream again within 2 s; after an error, later each time
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}
