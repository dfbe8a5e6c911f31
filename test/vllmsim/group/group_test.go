// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package group

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// soon is the time to watch for a forbidden event, long the limit for a necessary one.
const (
	soon = 200 * time.Millisecond
	long = 20 * time.Second
)

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

type member struct {
	steps  atomic.Int64
	cancel context.CancelFunc
	ended  chan error
}

func join(ctx context.Context, address string, rank int, shape map[string]string) *member {
	ctx, cancel := context.WithCancel(ctx)
	m := &member{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		joined, err := Join(ctx, address, rank, shape)
		if err == nil {
			err = joined.Loaded(ctx)
		}
		if err == nil {
			err = joined.Work(ctx, func() { m.steps.Add(1) })
		}
		m.ended <- err
	}()
	return m
}

func TestGroup(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	address, shape := freeAddress(t), map[string]string{"tensor-parallel-size": "3"}
	// The members are there before their leader.
	members := []*member{join(ctx, address, 2, shape), join(ctx, address, 1, shape)}
	leader, err := Lead(ctx, address, 3, shape)
	if err != nil {
		t.Fatal(err)
	}
	if err := leader.Loaded(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := leader.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range members {
		if n := m.steps.Load(); n != 2 {
			t.Errorf("member %d did %d steps, want 2", i, n)
		}
	}

	// A lost member goes unnoticed, and no step ends any more.
	members[0].cancel()
	if err := <-members[0].ended; err == nil {
		t.Error("a member that is cancelled ends without an error")
	}
	for range 2 {
		short, cancel := context.WithTimeout(ctx, soon)
		if err := leader.Step(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a step without rank 2 ends with %v, want it to wait", err)
		}
		cancel()
	}
	// Nor does it help that it comes again.
	short, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if _, err := Join(short, address, 2, shape); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("joining a group that runs ends with %v, want it to wait", err)
	}
}

func TestGroupIsIncomplete(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	address := freeAddress(t)
	m := join(ctx, address, 1, nil)
	_, err := Lead(ctx, address, 3, nil)
	if err == nil || !strings.Contains(err.Error(), "timed out: 2 of 3 ranks joined") {
		t.Errorf("a group without rank 2 ends with %v", err)
	}
	if err := <-m.ended; err == nil {
		t.Error("a member of a group that was never complete works")
	}
}

func TestGroupRefuses(t *testing.T) {
	for _, tc := range []struct {
		reason string
		rank   int
		shape  map[string]string
		want   string
	}{
		{"another value", 1, map[string]string{"dtype": "half"}, `dtype is "auto" on rank 0 and "half" here`},
		{"a flag more", 1, map[string]string{"dtype": "auto", "seed": "1"}, `seed is not given on rank 0 and "1" here`},
		{"a rank that is too high", 2, map[string]string{"dtype": "auto"}, "rank 2 is not in a group of 2"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			address := freeAddress(t)
			m := join(ctx, address, tc.rank, tc.shape)
			if _, err := Lead(ctx, address, 2, map[string]string{"dtype": "auto"}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("leader: %v, want %s", err, tc.want)
			}
			if err := <-m.ended; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("member: %v, want %s", err, tc.want)
			}
		})
	}
}
