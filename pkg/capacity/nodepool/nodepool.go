// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodepool gets machines from Karpenter through one NodePool per Workspace and attempt, for where
// Karpenter is managed by the cloud or standalone NodeClaims are not wanted.
//
// It decides the pools' names and contents, which pools and claims still serve the request, which are let go,
// and which claim stands for which machine. Karpenter makes a claim again and again while it is refused; a
// claim is the machine only that it was made for first, so that whoever watches hears of the first refusal and
// has the pool let go. It must not know models or plans.
//
// A static pool has as many machines as its replicas say, which needs Karpenter's feature gate StaticCapacity.
// A dynamic one, which every Karpenter has, makes machines for pods that fit it: the pods must be there first,
// and none but the Workspace's select the label that its machines carry.
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

// nameLimit of pools: Karpenter names a claim after its pool, with a dash and five characters, and Azure's
// machine mode hashes names of VMs that are longer than 34.
const nameLimit = 34 - len("-abcde")

// Object returns an empty NodePool, to select caches by.
func Object() client.Object { return &karpv1.NodePool{} }

// Provisioner creates, reads and deletes NodePools.
type Provisioner struct {
	// claims is the other back end, which knows what a claim says of itself.
	claims *nodeclaim.Provisioner
	// cached reads see what the watches saw; live reads ask the API server.
	cached client.Client
	live   client.Reader
	// isStatic says that pools have replicas.
	isStatic bool
	// listens says that the cache keeps events, by events.Subject.
	listens bool
}

// New returns a Provisioner of dynamic pools. The live reader must not be backed by a cache; the cache must keep
// EventCache, and find events by events.Subject.
func New(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live, listens: true}
}

// NewFormer returns a Provisioner that looks after pools that were made before another back end was set. What is
// said about them it does not hear.
func NewFormer(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live}
}

// NewStatic returns a Provisioner of static pools. The live reader must not be backed by a cache.
func NewStatic(cached client.Client, live client.Reader, claims *nodeclaim.Provisioner) *Provisioner {
	return &Provisioner{claims: claims, cached: cached, live: live, isStatic: true}
}

// CanSurge says whether machines come without pods, so that those of a new plan can be got while the pods serve
// on those of the old one.
func (p *Provisioner) CanSurge(capacity.Owner) bool { return p.isStatic }

// Replaces says that a pool makes another claim as soon as one is gone.
func (*Provisioner) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesAtOnce }

// Class returns what a node class says about itself, as the API server has it.
func (p *Provisioner) Class(ctx context.Context, ref v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	return p.claims.Class(ctx, ref)
}

// Aim leaves pods as they are: nodes carry the labels of their pool, by which pods know them.
func (*Provisioner) Aim(capacity.Request, *corev1.PodTemplateSpec) error { return nil }

// Kind is what stands for a machine.
func (*Provisioner) Kind(capacity.Owner) string { return "nodeclaim" }

// Observe returns the machines held for a Workspace, by name, from the cache.
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

// Held returns the names of the machines that are held for a Workspace and not on their way out, as the
// API server has them, sorted.
func (p *Provisioner) Held(ctx context.Context, owner capacity.Owner, known []capacity.Created) ([]string, error) {
	held, err := hold(ctx, p.live, owner)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range held.slots(known) {
		if !s.Deleting {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// Ensure brings what is held in line with the request. Pools and claims that do not serve it are deleted,
// and no pool is made until they are gone: a Workspace never holds more machines than it asked for, but for
// those that it keeps. The outcome holds with an error, too.
func (p *Provisioner) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	var outcome capacity.Outcome
	held, err := hold(ctx, p.cached, req.Owner)
	if err == nil && decide(held, req).settled() {
		return outcome, nil
	}
	// The cache may lag behind our own writes, or those of a replica that led before us.
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
	if err == nil { // who they are is seen once Karpenter has made them
		for _, name := range slotNames(Name(req.Owner, req.Attempt), todo.size)[todo.had:] {
			outcome.Created = append(outcome.Created, capacity.Created{Name: name})
		}
	}
	return outcome, err
}

// Release deletes everything that is held for a Workspace and returns the names of what is left. Nothing
// means that the API server itself said so.
func (p *Provisioner) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	return p.ReleaseBut(ctx, owner, nil)
}

// ReleaseBut is Release of all but the pools that have a machine of these names.
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

// release deletes pools, and then claims: Karpenter makes no other for a pool that is gone. The claims
// need not wait for the garbage collector. It returns the names of what was there.
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

// create makes the pool, after the pods for which it is to make machines: a pool without pods would wait for
// them, and nobody would look.
func (p *Provisioner) create(ctx context.Context, req capacity.Request, size int) error {
	if !p.isStatic && req.MakePods != nil {
		if err := req.MakePods(ctx); err != nil {
			return err
		}
	}
	pool := p.pool(req, size)
	var options []client.CreateOption
	if p.isStatic { // who does not know the replicas would drop them, and with them the kind of the pool
		options = append(options, client.FieldValidation(metav1.FieldValidationStrict))
	}
	err := p.cached.Create(ctx, pool, options...)
	if err == nil {
		return nil
	}
	if p.isStatic && apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "spec.replicas") {
		return &capacity.NotInstalledError{
			Why: "the NodePools of this cluster have no replicas", Fix: "install Karpenter 1.8 or later, or do not set --static-node-pools",
		}
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating NodePool %q: %w", pool.Name, err)
	}
	// Names are deterministic: either it is ours and creating it twice was creating it once, or somebody
	// else has the name.
	existing := &karpv1.NodePool{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(pool), existing); err != nil {
		return fmt.Errorf("reading NodePool %q: %w", pool.Name, err)
	}
	if existing.Labels[v1beta1.LabelWorkspaceUID] != string(req.Owner.UID) {
		return &capacity.TakenError{Kind: "NodePool", Name: pool.Name}
	}
	return nil
}

// grow lets a pool have more machines, in the zone of the first one.
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

// without leaves out the pools that have a machine of one of these names, with their claims.
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

// hold reads what is held for a Workspace.
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
