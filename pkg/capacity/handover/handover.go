// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover lets an administrator change the back end while Workspaces have machines: no machine is forgotten
// or bought twice.
//
// It decides the back end of a Workspace: a retired back end as long as that has machines of the Workspace, otherwise
// the configured one. The objects in the API server at the start of the leader show which Workspaces have a retired
// back end. One read is enough, because no process creates more such objects: only the leader requests machines, and a
// process leads once. A process releases its Lease only after it has ended its passes. If it loses the Lease, it exits
// some seconds before another process gets it. The package must not depend on how a back end gets machines.
package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// BackEnd gets machines, deletes them, and reports what they cost.
type BackEnd interface {
	capacity.Observer
	capacity.Actor
	capacity.CostSource
}

// Retired is a back end other than the configured one.
type Retired interface {
	BackEnd
	// Holders returns the Workspaces with objects of this back end, from the API server.
	Holders(ctx context.Context) ([]capacity.Owner, error)
}

// BackEnds combines the configured back end and the retired ones. It may be used from several goroutines.
type BackEnds struct {
	// BackEnd is the configured back end.
	BackEnd
	retired []Retired
	clock   clock.PassiveClock
	reads   lookup.Reads

	mu       sync.Mutex
	isLoaded bool
	// holders are the Workspaces of retired back ends, by UID.
	holders map[types.UID]holder
}

// holder is a Workspace of retired back ends. The first of them is its back end until that has no more machines of it.
type holder struct {
	capacity.Owner
	with []Retired
}

// New returns the configured back end combined with the retired ones.
func New(clock clock.PassiveClock, set BackEnd, retired ...Retired) *BackEnds {
	return &BackEnds{BackEnd: set, retired: retired, clock: clock, holders: map[types.UID]holder{}}
}

// load finds the Workspaces of retired back ends, once. Only the leader may call it: otherwise another process may
// still create machines with a retired back end. It holds no lock during requests to the API server.
func (b *BackEnds) load(ctx context.Context) error {
	for {
		b.mu.Lock()
		isLoaded := b.isLoaded
		b.mu.Unlock()
		if isLoaded {
			return nil
		}
		_, err := b.reads.Do(ctx, "machines of previous back ends", b.clock.Now(), b.loadHolders)
		if err != nil {
			return err
		}
	}
}

func (b *BackEnds) loadHolders(ctx context.Context) error {
	found := map[types.UID]holder{}
	for _, retired := range b.retired {
		owners, err := retired.Holders(ctx)
		if err != nil {
			return fmt.Errorf("listing machines of previous back ends: %w", err)
		}
		for _, owner := range owners {
			found[owner.UID] = holder{Owner: owner, with: append(found[owner.UID].with, retired)}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isLoaded {
		b.holders, b.isLoaded = found, true
	}
	return nil
}

// retiredOf returns a Workspace's retired back end, or nil.
func (b *BackEnds) retiredOf(owner capacity.Owner) Retired {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.holders[owner.UID]; len(known.with) > 0 {
		return known.with[0]
	}
	return nil
}

// of returns a Workspace's back end.
func (b *BackEnds) of(owner capacity.Owner) BackEnd {
	if retired := b.retiredOf(owner); retired != nil {
		return retired
	}
	return b.BackEnd
}

// leave records that a retired back end has no more machines of a Workspace. If another goroutine has already recorded
// that, the Workspace's next back end must stay.
func (b *BackEnds) leave(owner capacity.Owner, retired Retired) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.holders[owner.UID]
	if len(known.with) == 0 || known.with[0] != retired {
		return
	}
	if known.with = known.with[1:]; len(known.with) == 0 {
		delete(b.holders, owner.UID)
		return
	}
	b.holders[owner.UID] = known
}

// Observe returns the machines of a Workspace from its back end. If there are none, it switches the Workspace to the
// next back end, and finally to the configured one.
func (b *BackEnds) Observe(
	ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string,
) ([]capacity.Machine, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	for retired := b.retiredOf(owner); retired != nil; retired = b.retiredOf(owner) {
		machines, err := retired.Observe(ctx, owner, known, gpuResource)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			machines[i].Retired = true
		}
		if len(machines) > 0 {
			return machines, nil
		}
		left, err := retired.Held(ctx, owner, known)
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			return nil, fmt.Errorf("machines of workspace %s/%s are not in the cache yet: %s",
				owner.Namespace, owner.Name, strings.Join(capacity.MachineNames(left), ", "))
		}
		b.leave(owner, retired)
	}
	return b.BackEnd.Observe(ctx, owner, known, gpuResource)
}

// Kind returns the kind of object that represents a Workspace's machine.
func (b *BackEnds) Kind(owner capacity.Owner) string { return b.of(owner).Kind(owner) }

// Held returns the machines of a Workspace that are not being deleted, from the API server.
func (b *BackEnds) Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]capacity.Machine, error) {
	return b.of(owner).Held(ctx, owner, known)
}

// Names returns the names of the machines of one attempt.
func (b *BackEnds) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	return b.of(owner).Names(owner, attempt, count)
}

// PinPods makes pods run on the machines of a request.
func (b *BackEnds) PinPods(req capacity.Request, pods *corev1.PodTemplateSpec) error {
	return b.of(req.Owner).PinPods(req, pods)
}

// Ensure makes the machines match a request.
func (b *BackEnds) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	return b.of(req.Owner).Ensure(ctx, req)
}

// CanSurge reports whether the machines of two attempts of a Workspace can be distinguished.
func (b *BackEnds) CanSurge(owner capacity.Owner) bool {
	with, ok := b.of(owner).(capacity.Surger)
	return ok && with.CanSurge(owner)
}

// Replaces returns how one machine of an attempt of a Workspace is replaced without the others.
func (b *BackEnds) Replaces(owner capacity.Owner) capacity.Replacing {
	if with, ok := b.of(owner).(capacity.Surger); ok {
		return with.Replaces(owner)
	}
	return capacity.ReplacesNone
}

// ReleaseBut releases all machines of a Workspace except these, and returns the remaining ones.
func (b *BackEnds) ReleaseBut(ctx context.Context, owner capacity.Owner, keep []string) ([]string, error) {
	with, ok := b.of(owner).(capacity.Surger)
	if !ok {
		return nil, fmt.Errorf("workspace %s/%s: its back end cannot distinguish the machines of two attempts", owner.Namespace, owner.Name)
	}
	return with.ReleaseBut(ctx, owner, keep)
}

// Release releases all machines of a Workspace, one back end after the other, and returns the remaining names.
func (b *BackEnds) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	for retired := b.retiredOf(owner); retired != nil; retired = b.retiredOf(owner) {
		if left, err := retired.Release(ctx, owner); err != nil || len(left) > 0 {
			return left, err
		}
		b.leave(owner, retired)
	}
	return b.BackEnd.Release(ctx, owner)
}

// Owners returns the owners of objects among all Workspaces of a name.
func (b *BackEnds) Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	owners, err := b.BackEnd.Owners(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, known := range b.holders {
		if known.Namespace == namespace && known.Name == name {
			owners = append(owners, known.Owner)
		}
	}
	return capacity.Distinct(owners), nil
}

// Events returns the events about machines of one Workspace, from the first back end that has any. Several back ends
// may read the same events.
func (b *BackEnds) Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error) {
	for _, end := range append([]BackEnd{b.BackEnd}, b.inUse()...) {
		if events, err := end.Events(ctx, machines); err != nil || len(events) > 0 {
			return events, err
		}
	}
	return nil, nil
}

// MachineCosts returns the cost of every machine, from the cache.
func (b *BackEnds) MachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return b.costs(ctx, BackEnd.MachineCosts)
}

// LiveMachineCosts returns the same, from the API server.
func (b *BackEnds) LiveMachineCosts(ctx context.Context) ([]capacity.MachineCost, error) {
	return b.costs(ctx, BackEnd.LiveMachineCosts)
}

// costs returns the costs of all Workspaces from their current and later back ends. Several back ends may report the
// same machine under different names. It counts once, as its Workspace's first back end reports it.
func (b *BackEnds) costs(
	ctx context.Context, of func(BackEnd, context.Context) ([]capacity.MachineCost, error),
) ([]capacity.MachineCost, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	var out []capacity.MachineCost
	paid := map[types.UID]bool{}
	for _, end := range append(b.inUse(), b.BackEnd) {
		all, err := of(end, ctx)
		if err != nil {
			return nil, err
		}
		for _, bill := range all {
			if end != b.BackEnd && !b.isWith(bill.Owner, end) || bill.UID != "" && paid[bill.UID] {
				continue
			}
			paid[bill.UID] = true
			out = append(out, bill)
		}
	}
	return out, nil
}

// isWith reports whether a retired back end has machines of a Workspace.
func (b *BackEnds) isWith(owner capacity.Owner, retired BackEnd) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.holders[owner.UID].with, func(with Retired) bool { return with == retired })
}

// inUse returns the retired back ends that still have machines of Workspaces.
func (b *BackEnds) inUse() []BackEnd {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []BackEnd
	for _, retired := range b.retired {
		for _, known := range b.holders {
			if slices.Contains(known.with, retired) {
				out = append(out, retired)
				break
			}
		}
	}
	return out
}
