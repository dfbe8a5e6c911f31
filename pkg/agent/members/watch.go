// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Watch detects a silent member within lostAfter plus askEvery: under five seconds.
const (
	askEvery   = 750 * time.Millisecond
	askTimeout = 700 * time.Millisecond
)

// Config has the inputs of a Watch.
type Config struct {
	Self Identity
	// Peers are all members as HOST:PORT. This pod may be among them: Watch recognises it by its ID.
	Peers []string
	// Ask returns a peer's identity.
	Ask func(ctx context.Context, peer string) (Identity, error)
	Log *slog.Logger
	// IsEnding reports whether this pod is about to end anyway. If so, Watch reports no loss.
	IsEnding func() bool
}

// Watch returns the first LossError, or nil once ctx ends.
func Watch(ctx context.Context, c Config) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, peer := range c.Peers {
		g.Go(func() error { return c.watch(ctx, peer) })
	}
	return g.Wait()
}

func (c Config) watch(ctx context.Context, peer string) error {
	ticker := time.NewTicker(askEvery)
	defer ticker.Stop()
	var known member
	for {
		now, loss := c.look(ctx, peer, known)
		if ctx.Err() != nil {
			return nil
		}
		if now.id != known.id {
			c.Log.Info("reached a member of the group", "member", peer, "id", now.id, "group", c.Self.Group)
		}
		if known = now; loss != nil && !c.IsEnding() {
			loss.Name = peer
			return loss
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look sends one request. The answer counts from the time of the request, because it may take long to arrive.
func (c Config) look(ctx context.Context, peer string, known member) (member, *LossError) {
	asked := time.Now()
	answer, err := c.Ask(ctx, peer)
	if err != nil {
		return known.unheard(err, time.Now())
	}
	return known.hears(c.Self, answer, asked)
}
