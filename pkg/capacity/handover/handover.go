// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package handover lets an administrator choose another back end while machines are held: none is lost sight
// of, and none is bought twice.
//
// It decides which back end a Workspace is with: a former one as long as that holds anything for it, else the
// one that is set. Former ones are told apart by what they made, as the API server has it when this process
// begins to lead. To look once is enough, for nobody makes more of it: only who leads asks for machines, a process
// whose Lease somebody else gets has ended its passes before it let the Lease go, or has ended itself for want of it
// some seconds earlier, and one process leads once. It must not know how any of them gets machines.
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

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/lookup"
)

// BackEnd gets machines, lets them go, and keeps the books of what they cost.
type BackEnd interface {
	Kind(owner capacity.Owner) string
	Observe(ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string) ([]capacity.Machine, error)
	Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]string, error)
	Names(owner capacity.Owner, attempt int32, count int) ([]string, error)
	Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error)
	Class(ctx context.Context, class v1beta1.NodeClassReference) (refusal.ClassState, string, error)
	Aim(request capacity.Request, pods *corev1.PodTemplateSpec) error
	Ensure(ctx context.Context, request capacity.Request) (capacity.Outcome, error)
	Release(ctx context.Context, owner capacity.Owner) ([]string, error)
	Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error)
	Bills(ctx context.Context) ([]capacity.Bill, error)
	LiveBills(ctx context.Context) ([]capacity.Bill, error)
}

// Former is a back end that is not the one that is set.
type Former interface {
	BackEnd
	// Holders are those for whom it holds what it made itself, as the API server has them.
	Holders(ctx context.Context) ([]capacity.Owner, error)
}

// surger is a back end that may tell the machines of two attempts apart.
type surger interface {
	CanSurge(owner capacity.Owner) bool
	Replaces(owner capacity.Owner) capacity.Replacing
	ReleaseBut(ctx context.Context, owner capacity.Owner, keep []string) ([]string, error)
}

// BackEnds are the one that is set and the former ones, as one. It may be used from several goroutines.
type BackEnds struct {
	// BackEnd is the one that is set.
	BackEnd
	former []Former
	clock  clock.PassiveClock
	reads  lookup.Reads

	mu       sync.Mutex
	isLoaded bool
	// holders are the Workspaces that are not with the back end that is set, by UID.
	holders map[types.UID]holder
}

// holder is a Workspace that is with former back ends: with the first of them until it holds nothing there.
type holder struct {
	capacity.Owner
	with []Former
}

// New returns the back end that is set, with the former ones beside it.
func New(clock clock.PassiveClock, set BackEnd, former ...Former) *BackEnds {
	return &BackEnds{BackEnd: set, former: former, clock: clock, holders: map[types.UID]holder{}}
}

// load finds out once who holds what former back ends made. Only who leads may ask: until then another process may still
// make machines with a former back end. No lock is held while the API server answers.
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

// formerOf returns the former back end that a Workspace is with, or nil.
func (b *BackEnds) formerOf(owner capacity.Owner) Former {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.holders[owner.UID]; len(known.with) > 0 {
		return known.with[0]
	}
	return nil
}

// of returns the back end that a Workspace is with.
func (b *BackEnds) of(owner capacity.Owner) BackEnd {
	if former := b.formerOf(owner); former != nil {
		return former
	}
	return b.BackEnd
}

// leave notes that a Workspace holds nothing any more with a former back end, which somebody else may have found
// out before: what it holds with the next one is not to be forgotten for that.
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

// Observe returns the machines of the back end that a Workspace is with, and hands it over where that has none.
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
			return nil, fmt.Errorf("machines of workspace %s/%s do not show in the cache yet: %s",
				owner.Namespace, owner.Name, strings.Join(left, ", "))
		}
		b.leave(owner, former)
	}
	return b.BackEnd.Observe(ctx, owner, known, gpuResource)
}

// Kind is what stands for the machines of a Workspace.
func (b *BackEnds) Kind(owner capacity.Owner) string { return b.of(owner).Kind(owner) }

// Held returns the names of the machines that are held for a Workspace and not on their way out.
func (b *BackEnds) Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]string, error) {
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

// Ensure brings what is held in line with a request.
func (b *BackEnds) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	return b.of(req.Owner).Ensure(ctx, req)
}

// CanSurge says whether the machines of two attempts of a Workspace are told apart.
func (b *BackEnds) CanSurge(owner capacity.Owner) bool {
	with, ok := b.of(owner).(surger)
	return ok && with.CanSurge(owner)
}

// Replaces says how one machine of an attempt of a Workspace is replaced without the others.
func (b *BackEnds) Replaces(owner capacity.Owner) capacity.Replacing {
	if with, ok := b.of(owner).(surger); ok {
		return with.Replaces(owner)
	}
	return capacity.ReplacesNone
}

// ReleaseBut lets go of all machines of a Workspace but those of these names, and returns what is left.
func (b *BackEnds) ReleaseBut(ctx context.Context, owner capacity.Owner, keep []string) ([]string, error) {
	with, ok := b.of(owner).(surger)
	if !ok {
		return nil, fmt.Errorf("workspace %s/%s: its back end does not tell the machines of two attempts apart", owner.Namespace, owner.Name)
	}
	return with.ReleaseBut(ctx, owner, keep)
}

// Release lets go of everything that is held for a Workspace, by one back end after the other, and returns what
// is left.
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

// Owners returns everybody of that name for whom something is held.
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

// Events returns what was published about machines of one Workspace, as the first back end tells that knows of any:
// several may read the same.
func (b *BackEnds) Events(ctx context.Context, machines []types.UID) ([]refusal.Event, error) {
	for _, end := range append([]BackEnd{b.BackEnd}, b.inUse()...) {
		if events, err := end.Events(ctx, machines); err != nil || len(events) > 0 {
			return events, err
		}
	}
	return nil, nil
}

// Bills returns what every machine costs, from the cache.
func (b *BackEnds) Bills(ctx context.Context) ([]capacity.Bill, error) {
	return b.bills(ctx, BackEnd.Bills)
}

// LiveBills returns the same as the API server has it.
func (b *BackEnds) LiveBills(ctx context.Context) ([]capacity.Bill, error) {
	return b.bills(ctx, BackEnd.LiveBills)
}

// bills are those of everybody from all back ends that they are or will be with. Several may see the same machine,
// and call it something else: it is paid for once, as the first one tells that a Workspace is with.
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

// isWith says whether a Workspace holds something with a former back end.
func (b *BackEnds) isWith(owner capacity.Owner, former BackEnd) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.holders[owner.UID].with, func(with Former) bool { return with == former })
}

// inUse are the former back ends that somebody is with.
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
