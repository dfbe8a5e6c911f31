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

// quietTime is how long no request arrives before a draining router closes the connections of its clients. A client
// that sends its requests one after the other sends the next within this time, and its answer ends the connection.
const quietTime = time.Second

// traffic counts the requests in flight and announces the end of connections.
//
// If the router closed an idle connection, it could lose a request that the client sends at that moment and may not
// repeat. So while the router drains, each answer has Connection: close, and the client closes the connection. An answer
// whose headers were sent before cannot announce it: its connection stays open for one more request.
type traffic struct {
	clock      clock.WithTicker
	isDraining atomic.Bool
	inFlight   atomic.Int64
	// lastEnd is the end of the last request, in nanoseconds since 1970.
	lastEnd atomic.Int64
}

// count returns the handler with the count, and with the announcement while the router drains.
func (t *traffic) count(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		t.inFlight.Add(1)
		defer func() {
			t.lastEnd.Store(t.clock.Now().UnixNano())
			t.inFlight.Add(-1)
		}()
		if t.isDraining.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, req)
	})
}

// waitQuiet returns after quietTime without a request, or when the context ends.
func (t *traffic) waitQuiet(ctx context.Context) {
	const often = quietTime / 20 // http.Server.Shutdown polls its connections, too
	ticker := t.clock.NewTicker(often)
	defer ticker.Stop()
	for began := t.clock.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		last := time.Unix(0, t.lastEnd.Load())
		if t.inFlight.Load() == 0 && t.clock.Since(last) >= quietTime && t.clock.Since(began) >= quietTime {
			return
		}
	}
}

// servers has all servers for clients.
type servers struct {
	traffic traffic
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
	s := &servers{traffic: traffic{clock: clock.RealClock{}}, door: door}
	s.api = router.Server(s.traffic.count(front))
	return s, nil
}

// drain waits for clients and gateways to leave, and for the last answers. New connections are accepted for the delay,
// because load balancers do not notice at once that the router is no longer ready. No answer takes longer than the
// deadline.
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
