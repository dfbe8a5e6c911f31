// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
)

func TestGate(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tc := range []struct {
		reason string
		hold   time.Duration
		// opens is the time when each address begins to listen.
		opens map[string]time.Duration
		// wantAfter is the time when the engine may start, or when the gate gives up.
		wantAfter time.Duration
		want      string
	}{
		{reason: "nothing to wait for"},
		{reason: "a moment that is past", hold: -time.Hour},
		{reason: "a moment to come", hold: 40 * time.Second, wantAfter: 40 * time.Second},
		{reason: "a clock that is wrong", hold: 24 * time.Hour, wantAfter: fetch.LongestHold},
		{reason: "members that listen", opens: map[string]time.Duration{"a:1": 0, "b:1": 0}},
		{
			reason: "members that begin to listen one after the other", opens: map[string]time.Duration{"a:1": 10 * time.Minute, "b:1": 20 * time.Minute},
			wantAfter: 20 * time.Minute,
		},
		{
			reason: "a member that never does", opens: map[string]time.Duration{"a:1": time.Minute, "b:1": time.Hour}, wantAfter: 16 * time.Minute,
			want: "the member at b:1 is still not listening after 15m0s (connection refused): check the state, the image and the node of the member's pod",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := Settings{}
				if tc.hold != 0 {
					s.Group.NotBefore = start.Add(tc.hold)
				}
				for _, address := range []string{"a:1", "b:1"} {
					if _, ok := tc.opens[address]; ok {
						s.Group.Await = append(s.Group.Await, address)
					}
				}
				g := newGate(s, slog.New(slog.DiscardHandler))
				g.dial = func(_ context.Context, address string) error {
					if time.Since(start) < tc.opens[address] {
						return refused
					}
					return nil
				}
				err := g.Run(t.Context())
				if took := time.Since(start); took < tc.wantAfter || took > tc.wantAfter+time.Second {
					t.Errorf("waited for %s, want %s", took, tc.wantAfter)
				}
				if p := g.Progress(); p.Ready != (tc.want == "") {
					t.Errorf("Progress() = %+v, and Run() = %v", p, err)
				}
				if tc.want == "" && err == nil {
					return
				}
				if got := explain(err); got != (Termination{ReasonMemberAbsent, tc.want}) {
					t.Errorf("Run() = %+v, want %q", got, tc.want)
				}
			})
		})
	}
}

// It is no failure if the program ends during the wait.
func TestGateEndsWithTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(Settings{Group: Group{NotBefore: time.Now().Add(time.Minute), Await: []string{"a:1"}}}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || g.Progress().Ready {
			t.Errorf("Run() = %v, want the end of its context", err)
		}
	})
}

// The program is not ready before the other member listens.
func TestAwait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	p := startPod(t, volumeDir(t), "--group", "1", "--await", address, "--not-before", "")
	where := p.address(t)
	waitUntil(t, "it has knocked in vain", func() bool { return strings.Contains(p.text(), "waiting for a member to listen") })
	if got := status(t, where+"/startupz"); got != http.StatusServiceUnavailable {
		t.Errorf("/startupz = %d before the other member listens, want 503", got)
	}
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	waitUntil(t, "it is ready", func() bool { return status(t, where+"/startupz") == http.StatusOK })
	end(t, p)
}
