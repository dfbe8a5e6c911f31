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
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/hub"
)

const (
	knockEvery   = 500 * time.Millisecond
	knockTimeout = 2 * time.Second
	// awaitPort is how long the next port may take to open: another member's image may still be pulled.
	awaitPort = 15 * time.Minute
	// longestHold bounds what a clock that is wrong, here or at the controller's, can cost.
	longestHold = 5 * time.Minute
)

// AwaitError says that a member of the group does not listen.
type AwaitError struct {
	Address string
	Err     error
}

func (e *AwaitError) Error() string { return fmt.Sprintf("waiting for %s: %v", e.Address, e.Err) }
func (e *AwaitError) Unwrap() error { return e.Err }

// errNotIsolated is what the engine waits for before anything else listens that executes what it is sent.
var errNotIsolated = errors.New("the controller has not found yet that the network keeps strangers from this pod")

// gate holds the engine back once its files are there: until a moment, until the controller has found the group
// isolated, and until other members listen, where the engine would end because they do not.
type gate struct {
	notBefore time.Time
	// The engine waits while holdFile is empty or says holdValue; an empty name is no waiting.
	holdFile, holdValue string

	addresses []string
	clock     clock.WithTicker
	log       *slog.Logger
	dial      func(ctx context.Context, address string) error
	patience  *patience
	isHeld    atomic.Bool
	isOpen    atomic.Bool
}

func newGate(s Settings, log *slog.Logger) *gate {
	c := clock.RealClock{}
	p := newPatience(c, awaitPort)
	p.pause = func() backoff.BackOff { return backoff.NewConstantBackOff(knockEvery) }
	return &gate{
		notBefore: s.Group.NotBefore, holdFile: s.Group.HoldFile, holdValue: s.Group.HoldValue,
		addresses: s.Group.Await, clock: c, log: log, dial: knock, patience: p,
	}
}

// knock makes a connection and leaves again.
func knock(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{Timeout: knockTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Run returns once the engine may start, or with the error that makes waiting for it pointless.
func (g *gate) Run(ctx context.Context) error {
	if err := g.hold(ctx); err != nil {
		return err
	}
	if err := g.awaitIsolation(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	g.patience.moved() // the wait begins now
	watch.Go(func() { g.patience.watch(ctx, cancel) })
	defer watch.Wait()
	defer cancel(nil)
	for _, address := range g.addresses {
		g.log.Info("waiting until a member listens", "address", address)
		_, err := persist(ctx, g.patience, func() (struct{}, error) {
			if err := g.dial(ctx, address); err != nil {
				return struct{}{}, &hub.UnreachableError{Endpoint: address, Err: err}
			}
			return struct{}{}, nil
		})
		if err != nil {
			return &AwaitError{Address: address, Err: err}
		}
		g.patience.moved()
	}
	g.isOpen.Store(true)
	return nil
}

func (g *gate) hold(ctx context.Context) error {
	left := min(g.notBefore.Sub(g.clock.Now()), longestHold)
	if g.notBefore.IsZero() || left <= 0 {
		return nil
	}
	g.log.Info("holding the engine back after a failure", "for", left.String())
	timer := g.clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C():
		return nil
	}
}

// awaitIsolation waits as long as it takes: only somebody who changes the cluster can end it.
func (g *gate) awaitIsolation(ctx context.Context) error {
	if g.isIsolated() {
		return nil
	}
	g.log.Info("holding the engine back until the group is found isolated")
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

// isIsolated reads the controller's finding. What cannot be read proves nothing.
func (g *gate) isIsolated() bool {
	if g.holdFile == "" {
		return true
	}
	text, err := os.ReadFile(g.holdFile)
	found := strings.TrimSpace(string(text))
	return err == nil && found != "" && found != g.holdValue
}

// Settle has nothing to write.
func (g *gate) Settle(context.Context) error { return nil }

// Progress is that of no files: it says whether the engine may start, and what it waits for.
func (g *gate) Progress() Progress {
	if g.isOpen.Load() {
		return Progress{Ready: true, Stage: StageReady, Files: []FileProgress{}}
	}
	p := Progress{Stage: StageWaiting, Files: []FileProgress{}}
	if g.isHeld.Load() {
		p.LastError = errNotIsolated.Error()
	} else if err := g.patience.lastError(); err != nil {
		p.LastError = err.Error()
	}
	return p
}
