// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func config(peers ...string) Config {
	return Config{
		Self: Identity{ID: "me", Group: 1}, Peers: peers, Ask: NewClient().Ask,
		Log: slog.New(slog.DiscardHandler), IsEnding: func() bool { return false },
	}
}

// serve starts a member on loopback that counts its queries.
func serve(t *testing.T, id *atomic.Pointer[string]) (s *httptest.Server, peer string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	handler := Handler(func() Identity { asked.Add(1); return Identity{ID: *id.Load(), Group: 1} })
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, handler)
	s = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String(), asked
}

func named(id string) *atomic.Pointer[string] {
	v := new(atomic.Pointer[string])
	v.Store(&id)
	return v
}

// Uses real connections and real time: one member stays, another dies.
func TestWatchSeesAMemberGo(t *testing.T) {
	_, stays, _ := serve(t, named("stays"))
	dies, gone, asked := serve(t, named("dies"))
	_, self, _ := serve(t, named("me"))
	result := make(chan error, 1)
	go func() { result <- Watch(t.Context(), config(stays, gone, self)) }()
	waitUntil(t, "it was met", func() bool { return asked.Load() > 0 })
	died := time.Now()
	dies.Close()
	var loss *LossError
	if err := <-result; !errors.As(err, &loss) || loss.Name != gone || loss.Was != "dies" || loss.IsReplacement() {
		t.Fatalf("Watch() = %v, want the loss of %s", err, gone)
	}
	t.Logf("noticed after %s", time.Since(died).Round(time.Millisecond))
}

func TestWatchSeesAMemberReplaced(t *testing.T) {
	id := named("first")
	_, peer, asked := serve(t, id)
	result := make(chan error, 1)
	go func() { result <- Watch(t.Context(), config(peer)) }()
	waitUntil(t, "it was met", func() bool { return asked.Load() > 0 })
	id.Store(new("second"))
	var loss *LossError
	if err := <-result; !errors.As(err, &loss) || loss.Was != "first" || loss.Is != "second" {
		t.Fatalf("Watch() = %v, want a replacement", err)
	}
}

// A hanging member counts as lost after its time, not before, and never while this pod is ending.
func TestWatchKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ending atomic.Bool
		ending.Store(true)
		c := config("a:1")
		c.IsEnding = ending.Load
		isMet := false
		c.Ask = func(context.Context, string) (Identity, error) {
			if !isMet {
				isMet = true
				return Identity{ID: "a", Group: 1}, nil
			}
			return Identity{}, errRefused
		}
		result := make(chan error, 1)
		begun := time.Now()
		go func() { result <- Watch(t.Context(), c) }()
		time.Sleep(20*askEvery + askEvery/2)
		select {
		case err := <-result:
			t.Fatalf("Watch() = %v of a pod that is ending", err)
		default:
		}
		ending.Store(false)
		var loss *LossError
		if err := <-result; !errors.As(err, &loss) || loss.Silent != 21*askEvery {
			t.Errorf("Watch() = %v, want a loss of %s", err, 21*askEvery)
		}
		if took := time.Since(begun); took != 21*askEvery {
			t.Errorf("told after %s, want it with the next question", took)
		}
	})
}

func TestWatchEndsQuietly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Watch(ctx, config("127.0.0.1:1")); err != nil {
		t.Errorf("Watch() = %v after its end, want nil", err)
	}
	if err := Watch(t.Context(), config()); err != nil {
		t.Errorf("Watch() = %v of nobody, want nil", err)
	}
}

func TestAsk(t *testing.T) {
	for _, tc := range []struct {
		reason string
		answer http.HandlerFunc
		want   Identity
		fails  bool
	}{
		{"an answer", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"id":"a","group":3,"draining":true}`))
		}, Identity{"a", 3, true}, false},
		{"an answer of a later version", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"id":"a","group":3,"mood":"fine"}`))
		}, Identity{ID: "a", Group: 3}, false},
		{"somebody else", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) }, Identity{}, true},
		{"nobody", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) }, Identity{}, true},
		{"an error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, Identity{}, true},
		{"silence", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, Identity{}, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := httptest.NewServer(tc.answer)
			defer s.Close()
			got, err := NewClient().Ask(t.Context(), s.Listener.Addr().String())
			if got != tc.want || (err != nil) != tc.fails {
				t.Errorf("Ask() = %+v, %v, want %+v and failure %t", got, err, tc.want, tc.fails)
			}
		})
	}
}

// A member's name may resolve to another address later. An outage of DNS does not remove a member.
func TestAskFollowsNames(t *testing.T) {
	_, one, _ := serve(t, named("one"))
	_, two, _ := serve(t, named("two"))
	places := map[string]string{"10.0.0.1": one, "10.0.0.2": two}
	var address string
	c := NewClient()
	c.lookUp = func(context.Context, string) ([]string, error) {
		if address == "" {
			return nil, errLookup
		}
		return []string{address}, nil
	}
	c.dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(to)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, places[host])
	}
	for _, step := range []struct{ reason, address, want string }{
		{"not known yet", "", ""},
		{"known", "10.0.0.1", "one"},
		{"the name server is down", "", "one"},
		{"the name leads elsewhere", "10.0.0.2", "two"},
		{"and is not known again", "", "two"},
	} {
		address = step.address
		got, err := c.Ask(t.Context(), "peer:8090")
		if got.ID != step.want || (err == nil) != (step.want != "") {
			t.Errorf("%s: Ask() = %+v, %v, want %q", step.reason, got, err, step.want)
		}
	}
}
