// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"slices"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/pkg/capacity"
)

// decision is the next action on a Workspace's objects.
type decision struct {
	// release are the objects to delete, because they do not match the request.
	release holding
	// occupied reports that an object is being deleted, or is about to be.
	occupied bool
	// pool matches the request; nil if none does.
	pool *karpv1.NodePool
	// size is the new size of the pool, and had the present one. zone is the zone of its machines; empty for any
	// requested zone.
	size, had int
	zone      string
}

func (d decision) settled() bool { return d.release.isEmpty() && d.size <= d.had }

// acts reports whether anything can be done now.
func (d decision) acts() bool {
	return !d.release.isEmpty() || !d.occupied && d.size > d.had
}

func decide(held holding, req capacity.Request) decision {
	var d decision
	held = held.without(req.Keep)
	for i := range held.pools {
		pool := &held.pools[i]
		switch {
		case !pool.DeletionTimestamp.IsZero():
			d.occupied = true
		case serves(pool, req):
			d.pool, d.had = pool, sizeOf(pool)
		default:
			d.release.pools = append(d.release.pools, *pool)
		}
	}
	for i := range held.claims {
		claim := &held.claims[i]
		isOfPool := d.pool != nil && poolOf(claim) == d.pool.Name
		switch {
		case !claim.DeletionTimestamp.IsZero():
			d.occupied = d.occupied || !isOfPool
		case !isOfPool || slices.Contains(req.Replaced, claim.UID): // Karpenter replaces a lost claim of the pool on its own
			d.release.claims = append(d.release.claims, *claim)
		}
	}
	d.occupied = d.occupied || !d.release.isEmpty()
	d.size, d.zone = wanted(held, d.pool, req)
	return d
}

// serves reports whether a pool matches the request: the attempt, by the pool's name, and the kind of machine. A node
// class counts only if the request names one: a new default of the installation replaces no machine.
func serves(pool *karpv1.NodePool, req capacity.Request) bool {
	if pool.Name != Name(req.Owner, req.Attempt) {
		return false
	}
	machine := awaited(pool, pool.Name, time.Time{})
	zone := zoneOf(pool)
	return machine.InstanceType == req.InstanceType && machine.CapacityType == req.CapacityType &&
		(len(req.Zones) == 0 || zone == "" || slices.Contains(req.Zones, zone)) &&
		(req.NodeClass == nil || classOf(pool) == *req.NodeClass)
}

// wanted returns how many machines the pool should have now, and their zone. If all machines must be in one zone, the
// first one determines it.
func wanted(held holding, pool *karpv1.NodePool, req capacity.Request) (size int, zone string) {
	switch {
	case pool == nil && len(req.Existed) > 0:
		return 0, "" // the pool existed once: the verdict on its machines ends the attempt
	case !req.OneZone || req.Count < 2:
		return req.Count, ""
	case len(req.Zones) == 1:
		return req.Count, req.Zones[0]
	case pool == nil:
		return 1, ""
	}
	for _, s := range held.slots(nil) {
		if s.claim != nil && poolOf(s.claim) == pool.Name && s.Launched && !s.Deleting {
			return req.Count, s.Zone
		}
	}
	return max(1, sizeOf(pool)), zoneOf(pool)
}
