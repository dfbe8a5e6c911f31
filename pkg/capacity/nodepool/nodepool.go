// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool gets machines from Karpenter through one NodePool per Workspace and attempt, for clusters with a
// managed Karpenter or without standalone NodeClaims.
//
// It decides the names and contents of pools, the pools and claims to keep and to release, and the claim of each
// machine. After a refusal, Karpenter creates a claim again and again. Only the first claim counts as the machine, so
// the caller sees the first refusal and releases the pool. The package must not depend on models or plans.
//
// A static pool has a fixed number of machines, its replicas, and needs Karpenter's feature gate StaticCapacity. A
// dynamic pool works with every Karpenter and creates machines for matching pods. The pods must exist first, and
// only the Workspace's pods select the label of its machines.
package nodepool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// nameLimit is the maximum length of a pool's name: Karpenter names a claim after its pool, with a dash and five
// characters, and Azure's machine mode hashes VM names longer than 34 characters.
const nameLimit = 34 - len("-abcde")

// Object returns an empty NodePool, to select caches by.
func Object() client.Object { return &karpv1.NodePool{} }

// Provisioner creates, reads and deletes NodePools.
type Provisioner struct {
	// claims is the back end for standalone claims. It reads the claims here.
	claims *nodeclaim.Provisioner
	// cached reads from watches, and live from the API server.
	cached client.Client
	live   client.Reader
	// isStatic is set if pools have replicas.
	isStatic bool
	// listens is set if the cache has events, indexed by events.Subject.
	listens bool
}

// New returns a Provisioner of dynamic pools. The live reader must not be backed by a cache; the cache must keep
// EventCache, and find events by events.Subject.
func New(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live, listens: true}
}

// NewRetired returns a Provisioner for pools from before the current back end was configured. It reads no events about
// them.
func NewRetired(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live}
}

// NewStatic returns a Provisioner of static pools. The live reader must not be backed by a cache.
func NewStatic(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live, isStatic: true}
}

// CanSurge reports whether machines launch without pods. Then the machines of a new plan can launch while the pods
// serve on the old machines.
func (p *Provisioner) CanSurge(capacity.Owner) bool { return p.isStatic }

// Replaces returns ReplacesAtOnce: Karpenter creates another claim as soon as one is gone.
func (*Provisioner) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesAtOnce }

// Class returns the state of a node class, from the API server.
func (p *Provisioner) Class(ctx context.Context, ref v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return p.claims.Class(ctx, ref)
}

// PinPods leaves pods as they are: they select nodes by the labels of the pool.
func (*Provisioner) PinPods(capacity.Request, *corev1.PodTemplateSpec) error { return nil }

// Kind returns the kind of object that represents a machine.
func (*Provisioner) Kind(capacity.Owner) string { return "nodeclaim" }

// Observe returns the machines of a Workspace, by name, from the cache.
func (p *Provisioner) Observe(
	ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string,
) ([]capacity.Machine, error) {
	held, err := hold(ctx, p.cached, owner)
	if err != nil {
		return nil, err
	}
	slots := held.slots(known)
	if err := p.listen(ctx, owner, slots); err != nil {
		return nil, err
	}
	machines := make([]capacity.Machine, 0, len(slots))
	for i := range slots {
		machine := slots[i].Machine
		if err := p.claims.ObserveNode(ctx, &machine, gpuResource); err != nil {
			return nil, err
		}
		machines = append(machines, machine)
	}
	return machines, nil
}

// Held returns the machines of a Workspace that are not being deleted, from the pools and NodeClaims in the API
// server. It does not read their nodes.
func (p *Provisioner) Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]capacity.Machine, error) {
	held, err := hold(ctx, p.live, owner)
	if err != nil {
		return nil, err
	}
	var machines []capacity.Machine
	for _, s := range held.slots(known) {
		if !s.Deleting {
			machines = append(machines, s.Machine)
		}
	}
	return machines, nil
}

// Ensure makes the machines match the request. It deletes other pools and claims, and creates no pool until they are
// gone: except for kept machines, a Workspace never holds more than it requested. The outcome is valid even with an
// error.
func (p *Provisioner) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	var outcome capacity.Outcome
	held, err := hold(ctx, p.cached, req.Owner)
	if err == nil && decide(held, req).settled() {
		return outcome, nil
	}
	// The cache may lag behind our own writes, or those of an earlier leader.
	if err == nil {
		held, err = hold(ctx, p.live, req.Owner)
	}
	if err != nil {
		return outcome, err
	}
	todo := decide(held, req)
	if !todo.acts() {
		return outcome, nil
	}
	if req.Confirm != nil {
		if err := req.Confirm(ctx); err != nil {
			return outcome, err
		}
	}
	outcome.Released, err = p.release(ctx, todo.release)
	if err != nil || todo.occupied {
		return outcome, err
	}
	req = req.In(todo.zone)
	if todo.pool == nil {
		err = p.create(ctx, req, todo.size)
	} else {
		err = p.grow(ctx, todo.pool, req, todo.size)
	}
	if err == nil { // the claims do not exist yet, but the names of their slots are known
		for _, name := range slotNames(Name(req.Owner, req.Attempt), todo.size)[todo.had:] {
			outcome.Created = append(outcome.Created, capacity.Created{Name: name})
		}
	}
	return outcome, err
}

// Release deletes all objects of a Workspace and returns the remaining names. An empty result is confirmed by the API
// server.
func (p *Provisioner) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	return p.ReleaseBut(ctx, owner, nil)
}

// ReleaseBut is Release, except for pools that have a machine with one of these names.
func (p *Provisioner) ReleaseBut(ctx context.Context, owner capacity.Owner, keep []string) ([]string, error) {
	held, err := hold(ctx, p.cached, owner)
	if held = held.without(keep); err == nil && held.isEmpty() {
		held, err = hold(ctx, p.live, owner)
		held = held.without(keep)
	}
	if err != nil {
		return nil, err
	}
	return p.release(ctx, held)
}

// release deletes pools, and then claims, because Karpenter does not replace a claim without its pool. The claims need
// not wait for the garbage collector. It returns the names of all these objects.
func (p *Provisioner) release(ctx context.Context, held holding) ([]string, error) {
	var names []string
	for i := range held.pools {
		pool := &held.pools[i]
		names = append(names, pool.Name)
		if !pool.DeletionTimestamp.IsZero() {
			continue
		}
		err := p.cached.Delete(ctx, pool, client.Preconditions{UID: &pool.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return names, fmt.Errorf("deleting NodePool %q: %w", pool.Name, err)
		}
	}
	for i := range held.claims {
		names = append(names, held.claims[i].Name)
		if err := p.claims.Delete(ctx, &held.claims[i]); err != nil {
			return names, err
		}
	}
	slices.Sort(names)
	return names, nil
}

// create creates the pool after the pods that need its machines. A pool without pods would wait for them unnoticed.
func (p *Provisioner) create(ctx context.Context, req capacity.Request, size int) error {
	if !p.isStatic && req.MakePods != nil {
		if err := req.MakePods(ctx); err != nil {
			return err
		}
	}
	pool := p.pool(req, size)
	var options []client.CreateOption
	if p.isStatic { // an API server without the field would drop it, and the pool would be dynamic
		options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	}
	err := p.cached.Create(ctx, pool, options...)
	if err == nil {
		return nil
	}
	if p.isStatic && apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "spec.replicas") {
		return &capacity.NotInstalledError{
			Why: "NodePools in this cluster do not support spec.replicas", Fix: "install Karpenter 1.8 or later, or remove --static-node-pools",
		}
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating NodePool %q: %w", pool.Name, err)
	}
	// Names are deterministic: either we have created the pool already, or another owner has the name.
	existing := &karpv1.NodePool{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(pool), existing); err != nil {
		return fmt.Errorf("reading NodePool %q: %w", pool.Name, err)
	}
	if existing.Labels[v1beta1.LabelWorkspaceUID] != string(req.Owner.UID) {
		return &capacity.TakenError{Kind: "NodePool", Name: pool.Name}
	}
	return nil
}

// grow raises the size of a pool, in the zone of the first machine.
func (p *Provisioner) grow(ctx context.Context, pool *karpv1.NodePool, req capacity.Request, size int) error {
	grown, wanted := pool.DeepCopy(), p.pool(req, size)
	grown.Spec.Replicas, grown.Spec.Limits = wanted.Spec.Replicas, wanted.Spec.Limits
	grown.Spec.Template.Spec.Requirements = wanted.Spec.Template.Spec.Requirements
	patch := client.MergeFromWithOptions(pool, client.MergeFromWithOptimisticLock{})
	if err := p.cached.Patch(ctx, grown, patch); err != nil {
		return fmt.Errorf("patching NodePool %q: %w", pool.Name, err)
	}
	return nil
}

// Names returns the names of the machines of one attempt, by ordinal.
func (p *Provisioner) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	return slotNames(Name(owner, attempt), count), nil
}

// Name returns the name of the pool for one attempt: deterministic, and short enough for the names of its
// claims.
func Name(owner capacity.Owner, attempt int32) string {
	return nodeclaim.HashedName(owner.Name, fmt.Sprintf("%s/%d", owner.UID, attempt), nameLimit)
}

// without returns the objects except the pools that have a machine with one of these names, and their claims.
func (h holding) without(names []string) holding {
	isKept := func(pool string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return ordinalOf(name, pool) >= 0 })
	}
	return holding{
		pools:  slices.DeleteFunc(slices.Clone(h.pools), func(pool karpv1.NodePool) bool { return isKept(pool.Name) }),
		claims: slices.DeleteFunc(slices.Clone(h.claims), func(claim karpv1.NodeClaim) bool { return isKept(poolOf(&claim)) }),
	}
}

func (h holding) isEmpty() bool { return len(h.pools)+len(h.claims) == 0 }

// hold reads a Workspace's objects.
func hold(ctx context.Context, from client.Reader, owner capacity.Owner) (holding, error) {
	pools := &karpv1.NodePoolList{}
	err := from.List(ctx, pools, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(owner.UID)})
	if err != nil {
		return holding{}, fmt.Errorf("listing NodePools of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	claims, err := nodeclaim.List(ctx, from, owner)
	if err != nil {
		return holding{}, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	return holding{pools: pools.Items, claims: claims}, nil
}
