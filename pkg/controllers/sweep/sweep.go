// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sweep periodically releases machines of deleted Workspaces that no event reports, because the Workspace lost
// its finalizer or was deleted while the controller was down.
//
// It decides which machines have no owner. A Workspace counts as deleted only if the API server has no Workspace of
// that name, or another one of that name. The package must not depend on how machines are released.
package sweep

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// period is the time between two sweeps, and deadline bounds the duration of a sweep.
const (
	period   = 5 * time.Minute
	deadline = time.Minute
)

// Machines lists and releases the machines of this controller.
type Machines interface {
	// MachineCosts returns the machines that this controller created, from the cache.
	MachineCosts(ctx context.Context) ([]capacity.MachineCost, error)
	// Release releases all machines of an owner.
	Release(ctx context.Context, owner capacity.Owner) ([]string, error)
}

// Strays lists and deletes machines of another controller.
type Strays interface {
	// Strays returns the machines that may be swept, with the names of their owners. The owners' UIDs are unknown.
	Strays(ctx context.Context) ([]capacity.MachineCost, error)
	// Delete deletes one machine.
	Delete(ctx context.Context, name string) error
}

// Sweeper sweeps while its process leads.
type Sweeper struct {
	// Cached reads from caches; Live reads past the caches.
	Cached, Live client.Reader
	Machines     Machines
	// Strays are also swept; nil sweeps none.
	Strays Strays
	Clock  clock.WithTicker
}

// NeedLeaderElection returns true: only the leader sweeps.
func (s *Sweeper) NeedLeaderElection() bool { return true }

// Start sweeps until the context ends.
func (s *Sweeper) Start(ctx context.Context) error {
	ticker := s.Clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		if err := s.Sweep(ctx); err != nil {
			log.FromContext(ctx).Error(err, "cannot list the machines without a workspace")
		}
	}
}

// Sweep releases the machines of deleted Workspaces once. If the cache has all owners, it makes no request.
func (s *Sweeper) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	held, err := s.Machines.MachineCosts(ctx)
	if err != nil {
		return err
	}
	for _, owner := range owners(held) {
		isGone, err := s.isGone(ctx, owner)
		if err != nil {
			return err
		}
		if !isGone {
			continue
		}
		names, err := s.Machines.Release(ctx, owner)
		if err != nil {
			return err
		}
		if areLeaving(held, owner) {
			continue // already logged when they were released
		}
		log.FromContext(ctx).Info("released machines of a deleted workspace",
			"namespace", owner.Namespace, "workspace", owner.Name, "uid", owner.UID, "nodeClaims", names)
	}
	return s.sweepStrays(ctx)
}

func (s *Sweeper) sweepStrays(ctx context.Context) error {
	if s.Strays == nil {
		return nil
	}
	strays, err := s.Strays.Strays(ctx)
	if err != nil {
		return err
	}
	for _, stray := range strays {
		isGone, err := s.isGone(ctx, stray.Owner)
		if err != nil {
			return err
		}
		if !isGone {
			continue
		}
		if err := s.Strays.Delete(ctx, stray.Machine); err != nil {
			return err
		}
		log.FromContext(ctx).Info("released a KAITO machine of a deleted workspace",
			"namespace", stray.Owner.Namespace, "workspace", stray.Owner.Name, "nodeClaim", stray.Machine)
	}
	return nil
}

// owners returns the owners that have a namespace, a name and a UID, each once.
func owners(held []capacity.MachineCost) []capacity.Owner {
	var out []capacity.Owner
	for _, bill := range held {
		isNamed := bill.Owner.Namespace != "" && bill.Owner.Name != "" && bill.Owner.UID != ""
		if isNamed && !slices.Contains(out, bill.Owner) {
			out = append(out, bill.Owner)
		}
	}
	slices.SortFunc(out, func(a, b capacity.Owner) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return out
}

// areLeaving reports whether all machines of an owner are being deleted.
func areLeaving(held []capacity.MachineCost, owner capacity.Owner) bool {
	return !slices.ContainsFunc(held, func(bill capacity.MachineCost) bool { return bill.Owner == owner && !bill.Leaving })
}

// isGone reports whether an owner is gone. If its UID is unknown, any Workspace of that name counts as the owner.
func (s *Sweeper) isGone(ctx context.Context, owner capacity.Owner) (bool, error) {
	for _, from := range []client.Reader{s.Cached, s.Live} {
		ws := &v1beta1.Workspace{}
		err := from.Get(ctx, types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}, ws)
		if err == nil && (owner.UID == "" || ws.UID == owner.UID) {
			return false, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("reading workspace %s/%s: %w", owner.Namespace, owner.Name, err)
		}
	}
	return true, nil
}
