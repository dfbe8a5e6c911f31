// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/adapters"
	"github.com/modelberth/modelberth/pkg/router/openai"
	"github.com/modelberth/modelberth/pkg/router/usage"
)

// errNoReplica means that the request has tried every replica.
var errNoReplica = errors.New("no replica is left")

// forward passes the request to a replica and the answer back, piece by piece.
func (x *exchange) forward(w http.ResponseWriter, req *http.Request) *openai.Error {
	left := x.router.settings.Deadline - x.router.clock.Since(x.start) // the request may have waited
	ctx, cancel := context.WithTimeout(req.Context(), left)
	defer cancel()
	defer func() {
		if x.hold != nil {
			x.hold.Release()
		}
	}()
	var failed *openai.Error
	proxy := httputil.ReverseProxy{
		Rewrite: x.rewrite, Transport: x, FlushInterval: -1, ModifyResponse: x.observe, BufferPool: buffers,
		ErrorLog:     slog.NewLogLogger(x.router.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = x.failure(ctx, err) },
	}
	proxy.ServeHTTP(w, req.WithContext(ctx))
	return failed
}

// rewrite builds the request for a replica. It uses the route's path, and ignores the client's host and path. Unless
// the router is open, rewrite removes the client's key, which is for the router and not for the engine.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL = &url.URL{Scheme: "http", Host: "replica", Path: x.route.path}
	p.Out.Host = ""
	for _, name := range []string{
		"Expect", "Upgrade",
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Forwarded",
		"Idempotency-Key", "X-Idempotency-Key", // with these headers, Go's transport would repeat a request
	} {
		p.Out.Header.Del(name)
	}
	for _, name := range withheld(x.router.settings.IsOpen) {
		p.Out.Header.Del(name)
	}
	p.Out.ContentLength = int64(len(x.text))
	p.Out.TransferEncoding = nil
	p.Out.Trailer = nil
	p.Out.Body = io.NopCloser(bytes.NewReader(x.text))
}

// withheld returns the headers of clients that no engine gets. Without Accept-Encoding, the router can read the answers.
func withheld(isOpen bool) []string {
	out := []string{"Cookie", "Accept-Encoding", "X-Api-Key", HeaderSession}
	if !isOpen {
		out = append(out, "Authorization")
	}
	return out
}

// RoundTrip sends the request to a replica. If it cannot connect to that replica, it tries another one.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	x.outgoing = req
	left := slices.DeleteFunc(slices.Clone(x.owner.ReplicasOf(x.fields.Model)), func(name string) bool { return name == x.dead })
	last := errNoReplica
	for try := 0; try <= x.router.settings.Retries; try++ {
		hold := x.router.counters.Place(left, x.work)
		if hold == nil {
			break
		}
		x.hold, x.placed = hold, x.router.clock.Now()
		answer, err := x.send(req, hold.Replica)
		x.isSent, x.isRefused = x.isSent || !isDial(err), isDial(err)
		if err == nil {
			return answer, nil
		}
		hold.Release()
		last = err
		if req.Context().Err() != nil || !isDial(err) {
			break
		}
		x.router.metrics.retry(x.owner)
		x.refused(hold.Replica)
		left = slices.DeleteFunc(left, func(name string) bool { return name == hold.Replica })
	}
	return nil, last
}

// send sends the request to a replica. An engine may close an idle connection at any moment: llama.cpp does so after
// 100 requests. If a reused connection breaks, send repeats the request once, on a new connection. If the replica
// refuses that connection, RoundTrip continues with the next replica, on new connections only. If a new connection
// breaks, the request itself may have crashed the engine, so the request fails. Thus it reaches two engines at most. A
// request with keepsState uses only new connections, because the engine may have kept it even if the connection broke.
func (x *exchange) send(req *http.Request, replica string) (*http.Response, error) {
	if !x.isFresh {
		var isReused bool
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { isReused = info.Reused }}
		answer, err := x.sendOver(x.router.transport, req.Clone(httptrace.WithClientTrace(req.Context(), trace)), replica)
		if err == nil || !isReused || isDial(err) || req.Context().Err() != nil {
			return answer, err
		}
		x.isFresh = true
	}
	return x.sendOver(x.router.fresh, req.Clone(req.Context()), replica)
}

func (x *exchange) sendOver(transport http.RoundTripper, out *http.Request, replica string) (*http.Response, error) {
	x.sent = len(x.text)
	out.URL.Host, out.ContentLength = replica, int64(len(x.text))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(x.text)), nil }
	out.Body = io.NopCloser(bytes.NewReader(x.text))
	answer, err := transport.RoundTrip(out)
	if err == nil && answer.StatusCode == http.StatusBadGateway && answer.Header.Get(adapters.RefusedHeader) != "" {
		_ = answer.Body.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errRefused}
	}
	return answer, err
}

// errRefused is the error if an agent answers in place of its engine, which has refused the connection.
var errRefused = errors.New("the engine has refused the connection")

// isDial reports whether the connection failed before anything was sent.
func isDial(err error) bool {
	opErr, ok := errors.AsType[*net.OpError](err)
	return ok && opErr.Op == "dial"
}

// passed has the headers of an engine's answer that reach the client. All models share one address, so no engine may
// set cookies or policies for it.
var passed = map[string]bool{ //nolint:gochecknoglobals // a constant table
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Length": true,
	"Content-Type": true, "Retry-After": true, "X-Request-Id": true, "X-Kaito-Error-Source": true,
}

const eventStream = "text/event-stream"

// observe filters the headers of an answer, and reads its usage while it passes.
func (x *exchange) observe(answer *http.Response) error {
	maps.DeleteFunc(answer.Header, func(name string, _ []string) bool { return !passed[name] })
	isStream := isEventStream(answer)
	if x.writer.hasBegun && (!isStream || answer.StatusCode != http.StatusOK) {
		return engineError(answer)
	}
	strips := x.strips && isStream && answer.StatusCode == http.StatusOK
	if (strips || x.plan != nil) && isStream && answer.ContentLength >= 0 { // the length changes
		answer.Header.Del("Content-Length")
		answer.ContentLength = -1
	}
	if isStream {
		answer.Header.Set("X-Accel-Buffering", "no")
	}
	body := answer.Body
	if isStream {
		body = x.continuing(answer)
	}
	x.answer = usage.NewReader(body, isStream, strips)
	answer.Body = x.answer
	return nil
}

// isEventStream reports whether an answer is a stream of events.
func isEventStream(answer *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return kind == eventStream
}

// engineText is the most bytes of an engine's error that reach a client.
const engineText = 4 << 10

// statusOf describes an answer of an engine by its status and the beginning of its text.
func statusOf(answer *http.Response) string {
	text, err := io.ReadAll(io.LimitReader(answer.Body, engineText))
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Sprintf("answered with status %d: %s", answer.StatusCode, strings.TrimSpace(strings.ToValidUTF8(string(text), "")))
}

// engineError returns an engine's answer as an error. The router cannot pass the answer itself, because the client's
// stream has already begun.
func engineError(answer *http.Response) *openai.Error {
	status := answer.StatusCode
	if status < http.StatusBadRequest {
		status = http.StatusBadGateway
	}
	return openai.Errorf(status, openai.CodeEngine, "the engine %s", statusOf(answer))
}

// retryFailed is the Retry-After after a failure. By then another replica may be ready, or the failed one may have
// restarted.
const retryFailed = 2 * time.Second

// failure returns the error for a request that failed before the first byte of its answer.
func (x *exchange) failure(ctx context.Context, err error) *openai.Error {
	if answered, ok := errors.AsType[*openai.Error](err); ok {
		return answered
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return openai.Errorf(http.StatusGatewayTimeout, openai.CodeDeadline,
			"model %q did not answer within %s", x.fields.Model, x.router.settings.Deadline)
	}
	x.router.log.Warn("no replica answered", "model", x.owner.ID(), "error", err.Error())
	return openai.Errorf(http.StatusServiceUnavailable, openai.CodeModelUnavailable,
		"the replicas of model %q could not be reached: try again", x.fields.Model).After(retryFailed)
}
