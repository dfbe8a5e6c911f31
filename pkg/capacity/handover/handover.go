// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover lets an administrator choose another back end while machines are held: none is lost sight
// of, and none is bought twice.
//
// It decides which back end a Workspace uses: a former one as long as it holds something for the Workspace, else
// the configured one. The objects of former back ends identify them, as the API server has them when this process
// begins to lead. One look is enough, because nobody creates more of them: only the leader requests machines, and a
// process leads once. Before it gives up its Lease, it has ended its passes; if it loses the Lease, it ends some
// seconds before another process gets it. It must not know how a back end gets machines.
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
	capacity.Biller
}

// Former is a back end other than the configured one.
type Former interface {
	BackEnd
	// Holders are the Workspaces with objects of this back end, as the API server has them.
	Holders(ctx context.Context) ([]capacity.Owner, error)
}

// BackEnds are the one that is set and the former ones, as one. It may be used from several goroutines.
type BackEnds struct {
	// BackEnd is the configured one.
	BackEnd
	former []Former
	clock  clock.PassiveClock
	reads  lookup.Reads

	mu       sync.Mutex
	isLoaded bool
	// holders are the Workspaces of former back ends, by UID.
	holders map[types.UID]holder
}

// holder is a Workspace of former back ends: of the first one until that holds nothing for it.
type holder struct {
	capacity.Owner
	with []Former
}

// New returns the configured back end combined with the former ones.
func New(clock clock.PassiveClock, set BackEnd, former ...Former) *BackEnds {
	return &BackEnds{BackEnd: set, former: former, clock: clock, holders: map[types.UID]holder{}}
}

// load finds the Workspaces of former back ends, once. Only the leader may call it: before, another process may
// still create machines with a former back end. It holds no lock during requests to the API server.
func (b *BackEnds) load(ctx context.Context) error {
	for {
		b.mu.Lock()
		isLoaded := b.isLoaded
		b.mu.Unlock()
		if isLoaded {
			return nil
		}
		_, err := b.reads.Do(ctx, "machines of former back ends", b.clock.Now(), b.loadHolders)
		if err != nil {
			return err
		}
	}
}

func (b *BackEnds) loadHolders(ctx context.Context) error {
	found := map[types.UID]holder{}
	for _, former := range b.former {
		owners, err := former.Holders(ctx)
		if err != nil {
			return fmt.Errorf("looking for machines of former back ends: %w", err)
		}
		for _, owner := range owners {
			found[owner.UID] = holder{Owner: owner, with: append(found[owner.UID].with, former)}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isLoaded {
		b.holders, b.isLoaded = found, true
	}
	return nil
}

// formerOf returns a Workspace's former back end, or nil.
func (b *BackEnds) formerOf(owner capacity.Owner) Former {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.holders[owner.UID]; len(known.with) > 0 {
		return known.with[0]
	}
	return nil
}

// of returns a Workspace's back end.
func (b *BackEnds) of(owner capacity.Owner) BackEnd {
	if former := b.formerOf(owner); former != nil {
		return former
	}
	return b.BackEnd
}

// leave records that a former back end holds nothing more for a Workspace. Another goroutine may have recorded it
// before; the Workspace's next back end must not be dropped for that.
func (b *BackEnds) leave(owner capacity.Owner, former Former) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.holders[owner.UID]
	if len(known.with) == 0 || known.with[0] != former {
		return
	}
	if known.with = known.with[1:]; len(known.with) == 0 {
		delete(b.holders, owner.UID)
		return
	}
	b.holders[owner.UID] = known
}

// Observe returns the machines of a Workspace's back end, and hands it over if there are none.
func (b *BackEnds) Observe(
	ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string,
) ([]capacity.Machine, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	for former := b.formerOf(owner); former != nil; former = b.formerOf(owner) {
		machines, err := former.Observe(ctx, owner, known, gpuResource)
		if err != nil {
			return nil, err
		}
		for i := range machines {
			machines[i].Former = true
		}
		if len(machines) > 0 {
			return machines, nil
		}
		left, err := former.Held(ctx, owner, known)
		if err != nil {
			return nil, err
		}
		if len(left) > 0 {
			return nil, fmt.Errorf("machines of workspace %s/%s are not in the cache yet: %s",
				owner.Namespace, owner.Name, strings.Join(capacity.MachineNames(left), ", "))
		}
		b.leave(owner, former)
	}
	return b.BackEnd.Observe(ctx, owner, known, gpuResource)
}

// Kind is the kind of object that represents a Workspace's machine.
func (b *BackEnds) Kind(owner capacity.Owner) string { return b.of(owner).Kind(owner) }

// Held returns the machines that are held for a Workspace and not being deleted, past the cache.
func (b *BackEnds) Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]capacity.Machine, error) {
	return b.of(owner).Held(ctx, owner, known)
}

// Names returns the names of the machines of one attempt.
func (b *BackEnds) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	return b.of(owner).Names(owner, attempt, count)
}

// Aim has pods run on the machines of a request.
func (b *BackEnds) Aim(req capacity.Request, pods *corev1.PodTemplateSpec) error {
	return b.of(req.Owner).Aim(req, pods)
}

// Ensure makes the machines match a request.
func (b *BackEnds) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	return b.of(req.Owner).Ensure(ctx, req)
}

// CanSurge reports whether the machines of two attempts of a Workspace are told apart.
func (b *BackEnds) CanSurge(owner capacity.Owner) bool {
	with, ok := b.of(owner).(capacity.Surger)
	return ok && with.CanSurge(owner)
}

// Replaces reports how one machine of an attempt of a Workspace is replaced without the others.
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

// Release releases everything of a Workspace, one back end after the other, and returns the remaining names.
func (b *BackEnds) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	for former := b.formerOf(owner); former != nil; former = b.formerOf(owner) {
		if left, err := former.Release(ctx, owner); err != nil || len(left) > 0 {
			return left, err
		}
		b.leave(owner, former)
	}
	return b.BackEnd.Release(ctx, owner)
}

// Owners returns all Workspaces of that name with objects.
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

// Events returns the events about machines of one Workspace, from the first back end that has any: several may read
// the same.
func (b *BackEnds) Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error) {
	for _, end := range append([]BackEnd{b.BackEnd}, b.inUse()...) {
		if events, err := end.Events(ctx, machines); err != nil || len(events) > 0 {
			return events, err
		}
	}
	return nil, nil
}

// Bills returns the cost of every machine, from the cache.
func (b *BackEnds) Bills(ctx context.Context) ([]capacity.Bill, error) {
	return b.bills(ctx, BackEnd.Bills)
}

// LiveBills returns the same as the API server has it.
func (b *BackEnds) LiveBills(ctx context.Context) ([]capacity.Bill, error) {
	return b.bills(ctx, BackEnd.LiveBills)
}

// bills are those of all Workspaces from their present and future back ends. Several may see the same machine under
// different names. It counts once, as its Workspace's first back end reports it.
func (b *BackEnds) bills(ctx context.Context, of func(BackEnd, context.Context) ([]capacity.Bill, error)) ([]capacity.Bill, error) {
	if err := b.load(ctx); err != nil {
		return nil, err
	}
	var out []capacity.Bill
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

// isWith reports whether a Workspace holds something with a former back end.
func (b *BackEnds) isWith(owner capacity.Owner, former BackEnd) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.holders[owner.UID].with, func(with Former) bool { return with == former })
}

// inUse are the former back ends with Workspaces.
func (b *BackEnds) inUse() []BackEnd {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []BackEnd
	for _, former := range b.former {
		for _, known := range b.holders {
			if slices.Contains(known.with, former) {
				out = append(out, former)
				break
			}
		}
	}
	return out
}
