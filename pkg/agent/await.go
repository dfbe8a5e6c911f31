// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/agent/fetch"
	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	knockEvery   = 500 * time.Millisecond
	knockTimeout = 2 * time.Second
)

// AwaitError is returned if a member of the group does not listen.
type AwaitError struct {
	Address string
	Err     error
}

func (e *AwaitError) Error() string { return fmt.Sprintf("waiting for %s: %v", e.Address, e.Err) }
func (e *AwaitError) Unwrap() error { return e.Err }

// errNotIsolated is the obstacle until the controller has checked the isolation. The engine's ports execute any input,
// so the engine must not start before.
var errNotIsolated = errors.New("the controller has not yet verified that other pods cannot reach this pod")

// gate delays the engine after its files are complete: until a given time, until the controller has verified the
// group's isolation, and until the members that the engine needs at its start listen.
type gate struct {
	notBefore time.Time
	// The engine waits while holdFile is empty or contains holdValue. Without a holdFile, it does not wait.
	holdFile, holdValue string

	addresses []string
	clock     clock.WithTicker
	log       *slog.Logger
	dial      func(ctx context.Context, address string) error
	stall     *stallDetector
	isHeld    atomic.Bool
	isOpen    atomic.Bool
}

func newGate(s Settings, log *slog.Logger) *gate {
	c := clock.RealClock{}
	stall := newStallDetector(c, fetch.AwaitMember)
	stall.pause = func() backoff.BackOff { return backoff.NewConstantBackOff(knockEvery) }
	return &gate{
		notBefore: s.Group.NotBefore, holdFile: s.Group.HoldFile, holdValue: s.Group.HoldValue,
		addresses: s.Group.Await, clock: c, log: log, dial: knock, stall: stall,
	}
}

// knock opens a connection and closes it again.
func knock(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: knockTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Run returns once the engine may start, or with a permanent error.
func (g *gate) Run(ctx context.Context) error {
	if err := g.hold(ctx); err != nil {
		return err
	}
	if err := g.awaitIsolation(ctx); err != nil {
		return err
	}
	if err := g.stall.guard(ctx, g.awaitMembers); err != nil {
		return err
	}
	g.isOpen.Store(true)
	return nil
}

// awaitMembers returns once every member has accepted a connection.
func (g *gate) awaitMembers(ctx context.Context) error {
	for _, address := range g.addresses {
		g.log.Info("waiting for a member to listen", "address", address)
		_, err := persist(ctx, g.stall, func() (struct{}, error) {
			if err := g.dial(ctx, address); err != nil {
				return struct{}{}, &hub.UnreachableError{Endpoint: address, Err: err}
			}
			return struct{}{}, nil
		})
		if err != nil {
			return &AwaitError{Address: address, Err: err}
		}
		g.stall.moved()
	}
	return nil
}

func (g *gate) hold(ctx context.Context) error {
	left := min(g.notBefore.Sub(g.clock.Now()), fetch.LongestHold)
	if g.notBefore.IsZero() || left <= 0 {
		return nil
	}
	g.log.Info("delaying the engine after a failure", "for", left.String())
	timer := g.clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// awaitIsolation waits without a limit, because only a change of the cluster can end the wait.
func (g *gate) awaitIsolation(ctx context.Context) error {
	if g.isIsolated() {
		return nil
	}
	g.log.Info("delaying the engine until the controller has verified that other pods cannot reach the group")
	g.isHeld.Store(true)
	defer g.isHeld.Store(false)
	ticker := g.clock.NewTicker(knockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
			if g.isIsolated() {
				return nil
			}
		}
	}
}

// isIsolated reads the controller's result. It is false if the file is unreadable.
func (g *gate) isIsolated() bool {
	if g.holdFile == "" {
		return true
	}
	text, err := os.ReadFile(g.holdFile)
	found := strings.TrimSpace(string(text))
	return err == nil && found != "" && found != g.holdValue
}

// Settle does nothing, because a gate writes no files.
func (g *gate) Settle(context.Context) error { return nil }

// Progress has no files. It reports whether the engine may start, or the reason for the delay.
func (g *gate) Progress() fetch.Progress {
	if g.isOpen.Load() {
		return fetch.Progress{Ready: true, Stage: fetch.StageReady, Files: []fetch.FileProgress{}}
	}
	p := fetch.Progress{Stage: fetch.StageWaiting, Files: []fetch.FileProgress{}}
	if g.isHeld.Load() {
		p.LastError = errNotIsolated.Error()
	} else if err := g.stall.lastError(); err != nil {
		p.LastError = err.Error()
	}
	return p
}
