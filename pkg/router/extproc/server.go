// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package extproc is the endpoint picker of InferencePools: a gateway asks it, in Envoy's protocol ext_proc, which replica
// gets a request. The router performs the same steps as for a request to its own address.
//
// It decides the order of the messages of a stream. It must not know how a replica is chosen.
//
// The protocol is that of the Gateway API inference extension (proposal 004, version 1.0.0):
// https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/main/docs/proposals/004-endpoint-picker-protocol
package extproc

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
	"github.com/modelberth/modelberth/pkg/router/openai"
)

// Settings limit the streams.
type Settings struct {
	// MaxStreams is how many requests may be open at once.
	MaxStreams int
	// BodyTimeout is how long a gateway may take to send a body.
	BodyTimeout time.Duration
	// Deadline is the longest time from the start of a request to the end of its answer.
	Deadline time.Duration
}

// Picker performs the steps of a request up to the choice of its replica.
type Picker interface {
	Pick(req *http.Request, pool *router.Pool) *router.Picked
}

// Server answers gateways.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	settings Settings
	picker   Picker
	log      *slog.Logger
	clock    clock.WithTicker
	streams  atomic.Int64
	health   *health.Server
	// firstTimeout is how long a gateway may take to send the first message of a stream.
	firstTimeout time.Duration
	// refusedLog limits the log entries about gateways that cannot be served.
	refusedLog rate.Sometimes
}

// New returns a server. It is not ready until SetReady.
func New(settings Settings, picker Picker, log *slog.Logger, clock clock.WithTicker) *Server {
	out := &Server{
		settings: settings, picker: picker, log: log, clock: clock, health: health.NewServer(),
		firstTimeout: 10 * time.Second, refusedLog: rate.Sometimes{Interval: time.Minute},
	}
	out.health.SetServingStatus(serviceLiveness, healthv1.HealthCheckResponse_SERVING)
	out.SetReady(false)
	return out
}

// The services of the protocol's health checks.
const (
	serviceLiveness  = "liveness"
	serviceReadiness = "readiness"
)

// SetReady sets the answer of the health checks.
func (s *Server) SetReady(isReady bool) {
	state := healthv1.HealthCheckResponse_NOT_SERVING
	if isReady {
		state = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", serviceReadiness, extprocv3.ExternalProcessor_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(service, state)
	}
}

// Register adds the services to a gRPC server.
func (s *Server) Register(to *grpc.Server) {
	extprocv3.RegisterExternalProcessorServer(to, s)
	healthv1.RegisterHealthServer(to, s.health)
}

// Process serves one stream, which is one request of a client with its answer.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) (failed error) {
	defer func() {
		if problem := recover(); problem != nil { // as net/http does: one request must not end all others
			s.log.Error("a request failed unexpectedly", "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
			failed = status.Error(codes.Internal, "the router failed")
		}
	}()
	defer s.streams.Add(-1)
	open := s.streams.Add(1)
	if open > 2*int64(s.settings.MaxStreams) { // even refusals of their requests would be too many
		return status.Error(codes.ResourceExhausted, "the router has too many requests")
	}
	ctx, cancel := context.WithTimeout(stream.Context(), s.settings.Deadline)
	defer cancel()
	x := &session{server: s, stream: stream, inbox: newInbox(ctx, cancel, stream)}
	first, err := x.first()
	if err != nil || first == nil {
		return err
	}
	headers := first.GetRequestHeaders()
	switch {
	case isOfAnswer(first):
		x.modes, _ = modesOf(first)
		return x.readAnswer(unread{}, first)
	case headers == nil:
		return status.Errorf(codes.InvalidArgument, "a stream must begin with the headers of a request, but this one begins with %T", first.GetRequest())
	}
	if open > int64(s.settings.MaxStreams) {
		return x.refuse(openai.Errorf(http.StatusServiceUnavailable, openai.CodeOverloaded,
			"the router has too many requests: try again").After(time.Second))
	}
	if problem := x.agree(first); problem != nil {
		return x.refuse(problem)
	}
	return x.serve(headers)
}

// first returns the first message, or nil at the end of the stream.
func (x *session) first() (*extprocv3.ProcessingRequest, error) {
	timer := x.server.clock.NewTimer(x.server.firstTimeout)
	defer timer.Stop()
	select {
	case message := <-x.inbox.requests:
		return message, nil
	case message := <-x.inbox.answers:
		return message, nil
	case <-timer.C():
		return nil, status.Error(codes.DeadlineExceeded, "the gateway sent no request")
	case <-x.inbox.ctx.Done():
		return nil, x.inbox.ended()
	}
}

// agree reads the settings of the gateway. It returns an error if this server cannot serve it.
func (x *session) agree(first *extprocv3.ProcessingRequest) *openai.Error {
	authority := authorityOf(x.stream.Context())
	pool, ok := poolOf(authority)
	problem := ""
	x.modes, problem = modesOf(first)
	if problem == "" && !ok {
		problem = "the gateway does not name the Service of an InferencePool in the authority of its requests"
	}
	if problem == "" {
		pool.Subset = subsetOf(first)
		x.pool = pool
		return nil
	}
	x.server.refusedLog.Do(func() {
		x.server.log.Warn("a gateway cannot be served", "problem", problem, "authority", authority)
	})
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeUnknownPool,
		"%s: ask the administrator to read the page on gateways of Modelberth's documentation", problem)
}

// authorityOf returns the pseudo-header :authority of a stream.
func authorityOf(ctx context.Context) string {
	in, _ := metadata.FromIncomingContext(ctx)
	if all := in.Get(":authority"); len(all) == 1 {
		return all[0]
	}
	return ""
}
