// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaim gets machines from Karpenter: one NodeClaim per machine, without a NodePool. If the provider needs
// a pool in the claim, the claim names a pool that buys nothing.
//
// It decides the claims' names and contents, which claims still serve the request, and which are released. It must not
// depend on models or plans. The claims with the Workspace's UID are the source of truth about its machines. A live
// read lists them before a claim is created, so a stale cache, a lost status or a second replica never leads to a
// second purchase.
//
// Package nodepool builds on it. Only these two packages import Karpenter's API types, because the import registers
// them with client-go's global scheme.
package nodeclaim

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/workload"
)

// terminationGracePeriod bounds the drain of a machine: pods with do-not-disrupt or a disruption
// budget cannot keep an expensive node forever.
const terminationGracePeriod = time.Hour

// AddToScheme registers Karpenter's NodeClaim and NodePool with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &karpv1.NodeClaim{}, &karpv1.NodeClaimList{}, &karpv1.NodePool{}, &karpv1.NodePoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// GroupVersion returns the API group and version of NodeClaims.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
}

// Object returns an empty NodeClaim, to watch and to select caches by.
func Object() client.Object { return &karpv1.NodeClaim{} }

// Provisioner creates, reads and deletes NodeClaims.
type Provisioner struct {
	// cached reads from watches, and live from the API server.
	cached client.Client
	live   client.Reader
	// nodeClass is for requests without their own.
	nodeClass v1beta1.NodeClassReference
	profile   profile
	// parked are the names of the NodePools known to exist.
	parked sync.Map
}

// New returns a Provisioner. The live reader must not be backed by a cache. The node class determines the form of
// claims, so the node classes of requests must have the same provider.
func New(cached client.Client, live client.Reader, nodeClass v1beta1.NodeClassReference) *Provisioner {
	return &Provisioner{cached: cached, live: live, nodeClass: nodeClass, profile: profileOf(nodeClass)}
}

// Kind returns the kind of object that represents a machine.
func (*Provisioner) Kind(capacity.Owner) string { return "nodeclaim" }

// Observe returns a Workspace's machines, by ordinal and name, from the cache. Their names are fixed, so known only
// identifies the claim behind a name.
func (p *Provisioner) Observe(
	ctx context.Context, owner capacity.Owner, known []capacity.Created, gpuResource string,
) ([]capacity.Machine, error) {
	claims, err := List(ctx, p.cached, owner)
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	machines := make([]capacity.Machine, 0, len(claims))
	for i := range claims {
		if err := p.renew(ctx, &claims[i], known); err != nil {
			return nil, err
		}
		machine := MachineOf(&claims[i])
		if err := p.ObserveNode(ctx, &machine, gpuResource); err != nil {
			return nil, err
		}
		machines = append(machines, machine)
	}
	slices.SortFunc(machines, func(a, b capacity.Machine) int {
		if a.Ordinal != b.Ordinal {
			return a.Ordinal - b.Ordinal
		}
		return strings.Compare(a.Name, b.Name)
	})
	return machines, nil
}

// renew reads a claim from the API server if the status has another claim of its name. The cache may still have the
// earlier claim, and the refusal or end of that one must not count for its successor.
func (p *Provisioner) renew(ctx context.Context, claim *karpv1.NodeClaim, known []capacity.Created) error {
	isAnother := func(other capacity.Created) bool {
		return other.Name == claim.Name && other.UID != "" && other.UID != claim.UID && other.LostAt.IsZero()
	}
	if !slices.ContainsFunc(known, isAnother) {
		return nil
	}
	newest := &karpv1.NodeClaim{}
	if err := client.IgnoreNotFound(p.live.Get(ctx, client.ObjectKeyFromObject(claim), newest)); err != nil {
		return fmt.Errorf("reading NodeClaim %q: %w", claim.Name, err)
	}
	if newest.Labels[v1beta1.LabelWorkspaceUID] == claim.Labels[v1beta1.LabelWorkspaceUID] {
		*claim = *newest
	}
	return nil
}

// Held returns the machines of a Workspace that are not being deleted, by name, from the NodeClaims in the API server.
// It does not read their nodes.
func (p *Provisioner) Held(ctx context.Context, owner capacity.Owner, _ []capacity.Created) ([]capacity.Machine, error) {
	claims, err := List(ctx, p.live, owner)
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	var held []capacity.Machine
	for i := range claims {
		if claims[i].DeletionTimestamp.IsZero() {
			held = append(held, MachineOf(&claims[i]))
		}
	}
	slices.SortFunc(held, func(a, b capacity.Machine) int { return strings.Compare(a.Name, b.Name) })
	return held, nil
}

// Ensure makes the machines match the request. It deletes claims that do not match, and creates none until those are
// gone: apart from the machines in req.Keep, a Workspace never holds more than it requested. The outcome is valid even
// with an error.
func (p *Provisioner) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	var outcome capacity.Outcome
	req = p.profile.readable(req)
	claims, err := List(ctx, p.cached, req.Owner)
	if err == nil && p.profile.decide(claims, req).settled() {
		return outcome, nil
	}
	// The cache may lag behind our own writes, or those of an earlier leader.
	if err == nil {
		claims, err = List(ctx, p.live, req.Owner)
	}
	if err != nil {
		return outcome, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", req.Owner.Namespace, req.Owner.Name, err)
	}
	todo := p.profile.decide(claims, req)
	if !todo.acts() {
		return outcome, nil
	}
	if req.Confirm != nil {
		if err := req.Confirm(ctx); err != nil {
			return outcome, err
		}
	}
	for i := range todo.release {
		if err := p.Delete(ctx, &todo.release[i]); err != nil {
			return outcome, err
		}
		outcome.Released = append(outcome.Released, todo.release[i].Name)
	}
	if todo.occupied {
		return outcome, nil
	}
	outcome.Created, err = p.createAll(ctx, req.In(todo.zone), todo.missing)
	return outcome, err
}

// createAll creates the claims of these ordinals. It returns the created ones even with an error.
func (p *Provisioner) createAll(ctx context.Context, req capacity.Request, ordinals []int) ([]capacity.Created, error) {
	if err := p.ensureParked(ctx, p.classOf(req)); err != nil {
		return nil, err
	}
	var out []capacity.Created
	for _, ordinal := range ordinals {
		created, err := p.create(ctx, req, ordinal)
		if err != nil {
			return out, err
		}
		out = append(out, created)
	}
	return out, nil
}

// Release deletes all machines of a Workspace and returns the remaining names. An empty result is confirmed by the API
// server.
func (p *Provisioner) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	return p.ReleaseBut(ctx, owner, nil)
}

// CanSurge returns true: claims distinguish the machines of two attempts.
func (*Provisioner) CanSurge(capacity.Owner) bool { return true }

// Replaces returns ReplacesLater: each claim is created and deleted on its own.
func (*Provisioner) Replaces(capacity.Owner) capacity.Replacing { return capacity.ReplacesLater }

// ReleaseBut is Release, except for the machines with these names.
func (p *Provisioner) ReleaseBut(ctx context.Context, owner capacity.Owner, keep []string) ([]string, error) {
	claims, err := List(ctx, p.cached, owner)
	if claims = without(claims, keep); err == nil && len(claims) == 0 {
		claims, err = List(ctx, p.live, owner)
		claims = without(claims, keep)
	}
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	var left []string
	for i := range claims {
		left = append(left, claims[i].Name)
		if err := p.Delete(ctx, &claims[i]); err != nil {
			return left, err
		}
	}
	slices.Sort(left)
	return left, nil
}

// Owners returns the owners of machines among all Workspaces of a name: several if a Workspace was deleted and created
// again.
func (p *Provisioner) Owners(ctx context.Context, namespace, name string) ([]capacity.Owner, error) {
	claims := &karpv1.NodeClaimList{}
	err := p.cached.List(ctx, claims, client.MatchingLabels{
		v1beta1.LabelManagedBy:                 v1beta1.ManagedBy,
		v1beta1.LabelMachineWorkspaceNamespace: namespace,
		v1beta1.LabelMachineWorkspaceName:      name,
	})
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims by workspace %s/%s: %w", namespace, name, err)
	}
	var owners []capacity.Owner
	for i := range claims.Items {
		owners = append(owners, OwnerOf(claims.Items[i].Labels))
	}
	return capacity.Distinct(owners), nil
}

// Holders returns all Workspaces with standalone claims of this back end, from the API server. It skips claims for
// another provisioner.
func (p *Provisioner) Holders(ctx context.Context) ([]capacity.Owner, error) {
	isRead := "!" + v1beta1.LabelWorkspace
	if p.profile == gpuProvisioner {
		isRead = v1beta1.LabelWorkspace
	}
	claims, err := Made(ctx, p.live, v1beta1.LabelMachineOrdinal, isRead)
	if err != nil {
		return nil, err
	}
	owners := make([]capacity.Owner, 0, len(claims))
	for i := range claims {
		owners = append(owners, OwnerOf(claims[i].Labels))
	}
	return capacity.Distinct(owners), nil
}

// Made returns the claims created by us or for us that match all given parts of a label selector.
func Made(ctx context.Context, from client.Reader, so ...string) ([]karpv1.NodeClaim, error) {
	selector, err := labels.Parse(strings.Join(append(so, v1beta1.LabelManagedBy+"="+v1beta1.ManagedBy), ","))
	if err != nil {
		return nil, fmt.Errorf("selecting NodeClaims: %w", err)
	}
	claims := &karpv1.NodeClaimList{}
	if err := from.List(ctx, claims, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return claims.Items, nil
}

// decision is the next action on a Workspace's claims.
type decision struct {
	// release are the claims to delete, because they do not match the request.
	release []karpv1.NodeClaim
	// missing are the ordinals without a claim.
	missing []int
	// occupied reports that claims are being deleted, or are about to be.
	occupied bool
	// zone of the missing machines; empty for any requested zone.
	zone string
}

func (d decision) settled() bool {
	return len(d.release) == 0 && len(d.missing) == 0
}

// acts reports whether anything can be done now.
func (d decision) acts() bool {
	return len(d.release) > 0 || !d.occupied && len(d.missing) > 0
}

func (f profile) decide(claims []karpv1.NodeClaim, req capacity.Request) decision {
	claims = without(claims, req.Keep)
	d := decision{zone: f.sharedZone(claims, req)}
	held, isFirstLaunched := make([]bool, req.Count), false
	for i := range claims {
		claim := &claims[i]
		machine := MachineOf(claim)
		switch {
		case machine.Deleting:
			d.occupied = true
		case !f.serves(claim, &machine, req), d.zone != "" && machine.Zone != "" && machine.Zone != d.zone:
			d.release = append(d.release, *claim)
			d.occupied = true
		default:
			held[machine.Ordinal], isFirstLaunched = true, isFirstLaunched || machine.Launched
		}
	}
	for ordinal, ok := range held {
		if !ok && !slices.Contains(req.Existed, f.name(req.Owner, req.Attempt, ordinal)) {
			d.missing = append(d.missing, ordinal)
		}
	}
	if req.OneZone && d.zone == "" && !isFirstLaunched && len(d.missing) > 0 {
		d.missing = d.missing[:first(d.missing, req.Count)]
	}
	return d
}

// first returns how many of a group's missing machines may be requested before its zone is known. The first machine
// determines the zone, and the others wait until it launches. If it is gone, it was refused and the attempt is about
// to end, so no machine replaces it.
func first(missing []int, count int) int {
	if len(missing) < count {
		return 0
	}
	return 1
}

// without returns the claims except those with these names.
func without(claims []karpv1.NodeClaim, names []string) []karpv1.NodeClaim {
	if len(names) == 0 {
		return claims
	}
	return slices.DeleteFunc(slices.Clone(claims), func(claim karpv1.NodeClaim) bool { return slices.Contains(names, claim.Name) })
}

// sharedZone returns the zone for all machines of a request in one zone: the only allowed zone, or the zone of the
// first launched machine. It is empty if the zone is undecided or irrelevant.
func (f profile) sharedZone(claims []karpv1.NodeClaim, req capacity.Request) string {
	if !req.OneZone || req.Count < 2 {
		return ""
	}
	if len(req.Zones) == 1 {
		return req.Zones[0]
	}
	zone, lowest := "", req.Count
	for i := range claims {
		machine := MachineOf(&claims[i])
		isOurs := !machine.Deleting && f.serves(&claims[i], &machine, req)
		if isOurs && machine.Zone != "" && machine.Ordinal < lowest {
			zone, lowest = machine.Zone, machine.Ordinal
		}
	}
	return zone
}

// serves reports whether a claim matches the request: the attempt, by the claim's name, and the kind of machine. A
// node class counts only if the request names one: a new default of the installation replaces no machine.
func (f profile) serves(claim *karpv1.NodeClaim, machine *capacity.Machine, req capacity.Request) bool {
	if slices.Contains(req.Replaced, claim.UID) {
		return false
	}
	if machine.Ordinal < 0 || machine.Ordinal >= req.Count || claim.Name != f.name(req.Owner, req.Attempt, machine.Ordinal) {
		return false
	}
	if machine.InstanceType != req.InstanceType || machine.CapacityType != req.CapacityType {
		return false
	}
	if len(req.Zones) > 0 && machine.Zone != "" && !slices.Contains(req.Zones, machine.Zone) {
		return false
	}
	return req.NodeClass == nil || machine.NodeClass == *req.NodeClass
}

func (p *Provisioner) create(ctx context.Context, req capacity.Request, ordinal int) (capacity.Created, error) {
	claim := p.claim(req, ordinal)
	err := p.cached.Create(ctx, claim)
	if err == nil {
		return capacity.Created{Name: claim.Name, UID: claim.UID}, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return capacity.Created{}, fmt.Errorf("creating NodeClaim %q: %w", claim.Name, err)
	}
	// Names are deterministic: either we have created the claim already, or another owner has the name.
	existing := &karpv1.NodeClaim{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(claim), existing); err != nil {
		return capacity.Created{}, fmt.Errorf("reading NodeClaim %q: %w", claim.Name, err)
	}
	if existing.Labels[v1beta1.LabelWorkspaceUID] != string(req.Owner.UID) {
		return capacity.Created{}, &capacity.TakenError{Kind: "NodeClaim", Name: claim.Name}
	}
	return capacity.Created{Name: existing.Name, UID: existing.UID}, nil
}

// Delete deletes a claim unless it is already being deleted.
func (p *Provisioner) Delete(ctx context.Context, claim *karpv1.NodeClaim) error {
	if !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	err := p.cached.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one has taken its name since
	}
	if err != nil {
		return fmt.Errorf("deleting NodeClaim %q: %w", claim.Name, err)
	}
	return nil
}

// classOf returns the node class of a request.
func (p *Provisioner) classOf(req capacity.Request) v1beta1.NodeClassReference {
	if req.NodeClass != nil {
		return *req.NodeClass
	}
	return p.nodeClass
}

func (p *Provisioner) claim(req capacity.Request, ordinal int) *karpv1.NodeClaim {
	labels, class := p.profile.labels(req), p.classOf(req)
	labels[v1beta1.LabelMachineOrdinal] = strconv.Itoa(ordinal)
	if pool := parkedName(class); pool != "" {
		labels[karpv1.NodePoolLabelKey] = pool
	}
	if p.profile == karpenter && len(validation.IsValidLabelValue(class.Name)) == 0 {
		// Karpenter's own claims have this label. If it is missing, one of Karpenter's controllers adds it while
		// another one adds the finalizer to an older version of the claim, and that fails (v1.12.1,
		// pkg/controllers/nodeclaim/hydration).
		labels[karpv1.NodeClassLabelKey(schema.GroupKind{Group: class.Group, Kind: class.Kind})] = class.Name
	}
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.profile.name(req.Owner, req.Attempt, ordinal), Labels: labels, Annotations: Annotations(req),
		},
		Spec: p.Spec(req),
	}
}

// Spec returns the spec of a requested machine's claim.
func (p *Provisioner) Spec(req capacity.Request) karpv1.NodeClaimSpec {
	class := p.classOf(req)
	taints := []corev1.Taint{{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue, Effect: corev1.TaintEffectNoSchedule}}
	if req.Dedicated {
		taints = append(taints, workload.DedicatedTaint(req.Owner.UID))
	}
	return karpv1.NodeClaimSpec{
		Requirements:           p.profile.requirements(req),
		Resources:              karpv1.ResourceRequirements{Requests: p.profile.requests(req)},
		Taints:                 taints,
		NodeClassRef:           &karpv1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name},
		TerminationGracePeriod: &metav1.Duration{Duration: terminationGracePeriod},
		// An expired machine is deleted with its loaded model, and Karpenter does not replace a standalone claim.
		ExpireAfter: karpv1.MustParseNillableDuration(karpv1.Never),
	}
}

// Labels returns the labels of a requested machine. Its node gets them, too.
func Labels(req capacity.Request) map[string]string { return karpenter.labels(req) }

// Names returns the names of the machines of one attempt, by ordinal.
func (p *Provisioner) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	names := make([]string, 0, count)
	for ordinal := range count {
		names = append(names, p.profile.name(owner, attempt, ordinal))
	}
	return names, nil
}

// PinPods leaves pods as they are: they select nodes by the labels of the claims.
func (*Provisioner) PinPods(capacity.Request, *corev1.PodTemplateSpec) error { return nil }

// Name returns the name of the claim for one machine of one attempt, in the form for Karpenter.
func Name(owner capacity.Owner, attempt int32, ordinal int) string {
	return karpenter.name(owner, attempt, ordinal)
}

// List returns the claims of a Workspace.
func List(ctx context.Context, from client.Reader, owner capacity.Owner) ([]karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	err := from.List(ctx, claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(owner.UID)})
	return claims.Items, err
}
