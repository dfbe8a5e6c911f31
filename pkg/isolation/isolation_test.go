// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelberth/modelberth/pkg/isolation"
)

const (
	openPort, peerPort = 8091, 8090
	path               = "/member"
)

// network answers on a pod's ports, with a handler or with an error of the dialer.
type network map[string]any

func (n network) dial(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, address string) (net.Conn, error) {
		switch listens := n[address].(type) {
		case error:
			return nil, listens
		case http.HandlerFunc:
			here, there := net.Pipe()
			server := &http.Server{Handler: listens}
			t.Cleanup(func() { _ = server.Close() })
			go func() { _ = server.Serve(&once{conn: there}) }()
			return here, nil
		default:
			return nil, errors.New("connection refused")
		}
	}
}

// once is a listener that accepts one connection.
type once struct {
	conn net.Conn
	used atomic.Bool
}

func (o *once) Accept() (net.Conn, error) {
	if o.used.Swap(true) {
		return nil, net.ErrClosed
	}
	return o.conn, nil
}
func (o *once) Close() error   { return nil }
func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

func pod(id string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			_, _ = fmt.Fprintf(w, `{"id":%q,"group":1}`, id)
		}
	}
}

// proxy answers in place of the server behind it.
func proxy() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
}

// onlyOnce answers the first request only.
func onlyOnce(handler http.HandlerFunc) http.HandlerFunc {
	var asked atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			handler(w, r)
		}
	}
}

// TestSilenceIsNoProof: a silent port counts as closed only if the same pod answers on another port at the same time.
func TestSilenceIsNoProof(t *testing.T) {
	dropped := errors.New("i/o timeout")
	members := []isolation.Member{{Name: "chat-0", ID: "a", IP: "10.0.0.1"}, {Name: "chat-worker-1", ID: "b", IP: "10.0.0.2"}}
	for _, tc := range []struct {
		reason string
		world  network
		want   isolation.Outcome
		says   string
	}{
		{"policies are enforced", network{
			"10.0.0.1:8091": pod("a"), "10.0.0.1:8090": dropped, "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": errors.New("connection refused"),
		}, isolation.Isolated, ""},
		{"policies are not enforced", network{
			"10.0.0.1:8091": pod("a"), "10.0.0.1:8090": pod("a"), "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": pod("b"),
		}, isolation.Exposed, "reached port 8090 of pod chat-0"},
		{"one of two nodes does not enforce them", network{
			"10.0.0.1:8091": pod("a"), "10.0.0.1:8090": dropped, "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": pod("b"),
		}, isolation.Exposed, "reached port 8090 of pod chat-worker-1"},
		{"nothing is reached at all", network{}, isolation.Unknown, "pod chat-0 cannot be probed"},
		{"a pod that has not started yet", network{
			"10.0.0.1:8091": pod("a"), "10.0.0.1:8090": dropped,
		}, isolation.Unknown, "pod chat-worker-1 cannot be probed"},
		{"another pod has the address by now", network{
			"10.0.0.1:8091": pod("z"), "10.0.0.1:8090": dropped, "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": dropped,
		}, isolation.Unknown, "belongs to z"},
		{"a pod that ends meanwhile", network{
			"10.0.0.1:8091": onlyOnce(pod("a")), "10.0.0.1:8090": dropped, "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": dropped,
		}, isolation.Unknown, "stopped answering"},
		{"something between accepts connections for all ports", network{
			"10.0.0.1:8091": pod("a"), "10.0.0.1:8090": proxy(), "10.0.0.2:8091": pod("b"), "10.0.0.2:8090": dropped,
		}, isolation.Unknown, "does not answer as expected"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			prober := isolation.Prober{Dial: tc.world.dial(t), OpenPort: openPort, PeerPort: peerPort, Path: path}
			got := prober.Probe(t.Context(), members)
			if got.Outcome != tc.want || !strings.Contains(got.Message, tc.says) || (tc.says == "") != (got.Message == "") {
				t.Errorf("Probe = %+v, want %s that says %q", got, tc.want, tc.says)
			}
		})
	}
	t.Run("a pass that is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		prober := isolation.Prober{Dial: network{}.dial(t), OpenPort: openPort, PeerPort: peerPort, Path: path}
		if got := prober.Probe(ctx, members); got.Outcome != isolation.Unknown {
			t.Errorf("Probe = %+v, want Unknown", got)
		}
	})
}
