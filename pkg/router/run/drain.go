// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/router"
)

// quietTime is how long no request is in flight before a draining router closes the connections of its clients. A client
// that sends its requests one after the other sends the next within this time, and its answer ends the connection.
const quietTime = time.Second

// traffic counts the requests in flight and announces the end of connections.
//
// If the router closed an idle connection, it could lose a request that the client sends at that moment and may not
// repeat. So while the router drains, the headers of each answer have Connection: close, and the client closes the
// connection. Headers sent before cannot announce it: such a connection stays open for one more request.
type traffic struct {
	clock clock.WithTicker
	// start is the zero of lastEnd. Differences to it do not jump with the wall clock.
	start      time.Time
	isDraining atomic.Bool
	inFlight   atomic.Int64
	// lastEnd is the time from start to the end of the last request.
	lastEnd atomic.Int64
}

func newTraffic(c clock.WithTicker) *traffic { return &traffic{clock: c, start: c.Now()} }

// count returns the handler with the count, and with the announcement while the router drains.
func (t *traffic) count(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		t.inFlight.Add(1)
		announced := &announcing{ResponseWriter: w, isDraining: &t.isDraining}
		defer func() {
			announced.announce() // for an answer without a body
			t.lastEnd.Store(int64(t.clock.Since(t.start)))
			t.inFlight.Add(-1)
		}()
		handler.ServeHTTP(announced, req)
	})
}

// waitQuiet returns once no request has been in flight for quietTime, or when the context ends.
func (t *traffic) waitQuiet(ctx context.Context) {
	const often = quietTime / 20 // http.Server.Shutdown polls its connections, too
	ticker := t.clock.NewTicker(often)
	defer ticker.Stop()
	for {
		// In this order: a request that ends in between has stored its end.
		if t.inFlight.Load() == 0 && t.clock.Since(t.start)-time.Duration(t.lastEnd.Load()) >= quietTime {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// announcing adds Connection: close to the headers of an answer if the router drains when they are sent.
type announcing struct {
	http.ResponseWriter
	isDraining *atomic.Bool
}

// announce has no effect after the headers.
func (w *announcing) announce() {
	if w.isDraining.Load() {
		w.Header().Set("Connection", "close")
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *announcing) WriteHeader(code int) {
	w.announce()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter. The first call may send the headers.
func (w *announcing) Write(data []byte) (int, error) {
	w.announce()
	return w.ResponseWriter.Write(data)
}

// FlushError is for http.ResponseController. The first call may send the headers.
func (w *announcing) FlushError() error {
	w.announce()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *announcing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// servers has all servers for clients.
type servers struct {
	traffic *traffic
	// door is the listener of api.
	door     net.Listener
	api      *http.Server
	gateways *gateways
	scalers  *scalers
}

// openDoor opens the port of the API for a number of connections, and makes its server.
func openDoor(ctx context.Context, address string, connections int, front http.Handler) (*servers, error) {
	door, err := bind(ctx, address, connections)
	if err != nil {
		return nil, err
	}
	s := &servers{traffic: newTraffic(clock.RealClock{}), door: door}
	s.api = router.Server(s.traffic.count(front))
	return s, nil
}

// drain waits for clients and gateways to leave, and for the last answers. New connections are accepted for the delay,
// because load balancers do not notice at once that the router is no longer ready. After that, an open connection can
// bring one more request. The deadline is the longest time of an answer: whatever began before the door closed ends.
func (s *servers) drain(ctx context.Context, delay, deadline time.Duration) error {
	s.traffic.isDraining.Store(true)
	s.gateways.setReady(false)
	wait(ctx, delay)
	ending, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	var others errgroup.Group
	others.Go(func() error { return s.gateways.shutdown(ending) }) // at once: their connections bring new requests until then
	closed := s.door.Close()
	s.traffic.waitQuiet(ending)
	err := errors.Join(closed, s.api.Shutdown(ending), others.Wait())
	s.scalers.shutdown(ctx) // now that no request is left to count
	return err
}
