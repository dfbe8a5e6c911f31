// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// request has one request of the traffic in flight for a time.
func request(t *testing.T, of *traffic, takes time.Duration) {
	t.Helper()
	handler := of.count(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-time.After(takes):
		case <-req.Context().Done():
		}
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
}

func TestWaitQuiet(t *testing.T) {
	type flight struct{ begins, takes time.Duration }
	cases := []struct {
		reason string
		// flights are relative to the beginning of the wait, which begins after ten seconds without a request.
		flights  []flight
		deadline time.Duration
		want     time.Duration
	}{
		{"no request for long", nil, time.Minute, 0},
		{"a request in flight", []flight{{-time.Second, 3 * time.Second}}, time.Minute, 3 * time.Second},
		{"a request has just ended", []flight{{-time.Second, 900 * time.Millisecond}}, time.Minute, 900 * time.Millisecond},
		{"the next request of a client", []flight{{-time.Second, 1500 * time.Millisecond}, {time.Second, 2 * time.Second}}, time.Minute, 4 * time.Second},
		{"a request beyond the deadline", []flight{{-time.Second, time.Hour}}, time.Minute, time.Minute},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const before = 10 * time.Second
				of := newTraffic(clock.RealClock{})
				for _, f := range c.flights {
					go func() {
						<-time.After(before + f.begins)
						request(t, of, f.takes)
					}()
				}
				<-time.After(before)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				began := time.Now()
				of.waitQuiet(ctx)
				if took := time.Since(began); took < c.want || took > c.want+100*time.Millisecond {
					t.Errorf("waited %s, want %s", took, c.want)
				}
			})
		})
	}
}

// TestAnnouncesTheEnd: each request begins before the router drains.
func TestAnnouncesTheEnd(t *testing.T) {
	cases := []struct {
		reason        string
		before, after func(http.ResponseWriter)
		want          bool
	}{
		{"headers before", func(w http.ResponseWriter) { w.WriteHeader(http.StatusOK) }, nil, false},
		{"no body", nil, nil, true},
		{"a body", nil, func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) }, true},
		{"a status", nil, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, true},
		{"a stream", nil, func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, true},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			of := newTraffic(clock.RealClock{})
			server := httptest.NewServer(of.count(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.before != nil {
					c.before(w)
				}
				of.isDraining.Store(true)
				if c.after != nil {
					c.after(w)
				}
			})))
			defer server.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.Close != c.want {
				t.Errorf("Connection: close is %t, want %t", answer.Close, c.want)
			}
		})
	}
}
