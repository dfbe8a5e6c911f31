// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclaim gets machines from Karpenter: one standalone NodeClaim per machine.
//
// It decides the claims' names and contents, which claims still serve the request, and which are
// let go. It must not know models or plans. The claims that carry the Workspace's UID are the truth
// about what is held; before anything is created they are listed live, so a stale cache, a lost
// status or a second replica never buys twice.
//
// This is the one package that imports Karpenter's API types: importing them registers types with
// client-go's global scheme.
package nodeclaim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// terminationGracePeriod bounds the drain of a machine: pods with do-not-disrupt or a disruption
// budget cannot keep an expensive node for ever.
const terminationGracePeriod = time.Hour

// nameLimit keeps names usable as VM names: Azure's machine mode hashes longer ones.
const nameLimit = 34

// hashLength is the length of the hash in a claim's name: 40 bits, per Workspace and ordinal.
const hashLength = 10

// AddToScheme registers Karpenter's NodeClaim with a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// GroupVersion of the NodeClaims.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
}

// Object returns an empty NodeClaim, to watch and to select caches by.
func Object() client.Object { return &karpv1.NodeClaim{} }

// Provisioner creates, reads and deletes NodeClaims.
type Provisioner struct {
	// cached reads see what the watches saw; live reads ask the API server.
	cached client.Client
	live   client.Reader
	// nodeClass to buy with where the request names none.
	nodeClass v1beta1.NodeClassReference
}

// New returns a Provisioner. The live reader must not be backed by a cache.
func New(cached client.Client, live client.Reader, nodeClass v1beta1.NodeClassReference) *Provisioner {
	return &Provisioner{cached: cached, live: live, nodeClass: nodeClass}
}

// Kind is what stands for a machine.
func (*Provisioner) Kind() string { return "nodeclaim" }

// Observe returns the machines held for a Workspace, by ordinal and name, from the cache.
func (p *Provisioner) Observe(ctx context.Context, owner capacity.Owner, gpuResource string) ([]capacity.Machine, error) {
	claims, err := list(ctx, p.cached, owner)
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	machines := make([]capacity.Machine, 0, len(claims))
	for i := range claims {
		machine := machineOf(&claims[i])
		if err := p.observeNode(ctx, &machine, gpuResource); err != nil {
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

// Held returns the names of the machines that are held for a Workspace and not on their way out, as
// the API server has them, sorted.
func (p *Provisioner) Held(ctx context.Context, owner capacity.Owner) ([]string, error) {
	claims, err := list(ctx, p.live, owner)
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	var names []string
	for i := range claims {
		if claims[i].DeletionTimestamp.IsZero() {
			names = append(names, claims[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Ensure brings what is held in line with the request. Claims that do not serve it are deleted, and
// nothing is created until they are gone: a Workspace never holds more machines than it asked for.
// The outcome holds with an error, too.
func (p *Provisioner) Ensure(ctx context.Context, req capacity.Request) (capacity.Outcome, error) {
	var outcome capacity.Outcome
	claims, err := list(ctx, p.cached, req.Owner)
	if err == nil && decide(claims, req).settled() {
		return outcome, nil
	}
	// The cache may lag behind our own writes, or those of a replica that led before us.
	if err == nil {
		claims, err = list(ctx, p.live, req.Owner)
	}
	if err != nil {
		return outcome, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", req.Owner.Namespace, req.Owner.Name, err)
	}
	todo := decide(claims, req)
	if !todo.acts() {
		return outcome, nil
	}
	if req.Confirm != nil {
		if err := req.Confirm(ctx); err != nil {
			return outcome, err
		}
	}
	for i := range todo.release {
		if err := p.delete(ctx, &todo.release[i]); err != nil {
			return outcome, err
		}
		outcome.Released = append(outcome.Released, todo.release[i].Name)
	}
	if todo.occupied {
		return outcome, nil
	}
	if todo.zone != "" {
		req.Zones = []string{todo.zone}
	}
	for _, ordinal := range todo.missing {
		created, err := p.create(ctx, req, ordinal)
		if err != nil {
			return outcome, err
		}
		outcome.Created = append(outcome.Created, created)
	}
	return outcome, nil
}

// Release deletes everything that is held for a Workspace and returns the names of what is left.
// Nothing means that the API server itself said so.
func (p *Provisioner) Release(ctx context.Context, owner capacity.Owner) ([]string, error) {
	claims, err := list(ctx, p.cached, owner)
	if err == nil && len(claims) == 0 {
		claims, err = list(ctx, p.live, owner)
	}
	if err != nil {
		return nil, fmt.Errorf("listing NodeClaims of workspace %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	var left []string
	for i := range claims {
		left = append(left, claims[i].Name)
		if err := p.delete(ctx, &claims[i]); err != nil {
			return left, err
		}
	}
	slices.Sort(left)
	return left, nil
}

// Owners returns everybody of that name for whom something that we created is held: more than one
// where a Workspace was deleted and made again.
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
		owner := capacity.Owner{
			Namespace: namespace, Name: name, UID: types.UID(claims.Items[i].Labels[v1beta1.LabelWorkspaceUID]),
		}
		if owner.UID != "" && !slices.Contains(owners, owner) {
			owners = append(owners, owner)
		}
	}
	slices.SortFunc(owners, func(a, b capacity.Owner) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return owners, nil
}

// decision is what to do about the claims that a Workspace holds.
type decision struct {
	// release are the claims that do not serve the request and are not on their way out yet.
	release []karpv1.NodeClaim
	// missing are the ordinals without a claim.
	missing []int
	// occupied says that claims are on their way out, or about to be.
	occupied bool
	// zone is where the missing ones must be; empty where any zone will do that was asked for.
	zone string
}

func (d decision) settled() bool {
	return len(d.release) == 0 && len(d.missing) == 0
}

// acts says whether anything can be done now.
func (d decision) acts() bool {
	return len(d.release) > 0 || !d.occupied && len(d.missing) > 0
}

func decide(claims []karpv1.NodeClaim, req capacity.Request) decision {
	d := decision{zone: sharedZone(claims, req)}
	held, isFirstLaunched := make([]bool, req.Count), false
	for i := range claims {
		claim := &claims[i]
		machine := machineOf(claim)
		switch {
		case machine.Deleting:
			d.occupied = true
		case !serves(claim, &machine, req), d.zone != "" && machine.Zone != "" && machine.Zone != d.zone:
			d.release = append(d.release, *claim)
			d.occupied = true
		default:
			held[machine.Ordinal], isFirstLaunched = true, isFirstLaunched || machine.Launched
		}
	}
	for ordinal, ok := range held {
		if !ok && !slices.Contains(req.Existed, Name(req.Owner, req.Attempt, ordinal)) {
			d.missing = append(d.missing, ordinal)
		}
	}
	if req.OneZone && d.zone == "" && !isFirstLaunched && len(d.missing) > 0 {
		// One goes first and decides the zone, where the cloud has any; with it on its way, nothing is missing.
		first := 1
		if slices.Contains(held, true) {
			first = 0
		}
		d.missing = d.missing[:first]
	}
	return d
}

// sharedZone is where the machines of a request for one zone must be: the only zone that it allows, or that
// of the first of them that is launched; empty where that is not decided, or need not be.
func sharedZone(claims []karpv1.NodeClaim, req capacity.Request) string {
	if !req.OneZone || req.Count < 2 {
		return ""
	}
	if len(req.Zones) == 1 {
		return req.Zones[0]
	}
	zone, lowest := "", req.Count
	for i := range claims {
		machine := machineOf(&claims[i])
		isOurs := !machine.Deleting && serves(&claims[i], &machine, req)
		if isOurs && machine.Zone != "" && machine.Ordinal < lowest {
			zone, lowest = machine.Zone, machine.Ordinal
		}
	}
	return zone
}

// serves says whether a claim is one that the request asks for: of its attempt, which its name tells,
// and of its kind. A NodeClass counts only where the request names one: another default of the
// installation replaces nothing.
func serves(claim *karpv1.NodeClaim, machine *capacity.Machine, req capacity.Request) bool {
	if machine.Ordinal < 0 || machine.Ordinal >= req.Count || claim.Name != Name(req.Owner, req.Attempt, machine.Ordinal) {
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
	// Names are deterministic: either it is ours and creating it twice was creating it once, or
	// somebody else has the name.
	existing := &karpv1.NodeClaim{}
	if err := p.live.Get(ctx, client.ObjectKeyFromObject(claim), existing); err != nil {
		return capacity.Created{}, fmt.Errorf("reading NodeClaim %q: %w", claim.Name, err)
	}
	if existing.Labels[v1beta1.LabelWorkspaceUID] != string(req.Owner.UID) {
		return capacity.Created{}, &capacity.TakenError{Name: claim.Name}
	}
	return capacity.Created{Name: existing.Name, UID: existing.UID}, nil
}

func (p *Provisioner) delete(ctx context.Context, claim *karpv1.NodeClaim) error {
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

func (p *Provisioner) claim(req capacity.Request, ordinal int) *karpv1.NodeClaim {
	class := p.nodeClass
	if req.NodeClass != nil {
		class = *req.NodeClass
	}
	labels := map[string]string{}
	maps.Copy(labels, req.Labels)
	labels[v1beta1.LabelWorkspaceUID] = string(req.Owner.UID)
	labels[v1beta1.LabelMachineWorkspaceName] = req.Owner.Name
	labels[v1beta1.LabelMachineWorkspaceNamespace] = req.Owner.Namespace
	labels[v1beta1.LabelMachineOrdinal] = strconv.Itoa(ordinal)
	labels[v1beta1.LabelManagedBy] = v1beta1.ManagedBy
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:        Name(req.Owner, req.Attempt, ordinal),
			Labels:      labels,
			Annotations: annotations(req),
		},
		Spec: karpv1.NodeClaimSpec{
			Requirements: requirements(req),
			Resources:    karpv1.ResourceRequirements{Requests: requests(req)},
			Taints: []corev1.Taint{
				{Key: v1beta1.TaintKey, Value: v1beta1.TaintValue, Effect: corev1.TaintEffectNoSchedule},
			},
			NodeClassRef:           &karpv1.NodeClassReference{Group: class.Group, Kind: class.Kind, Name: class.Name},
			TerminationGracePeriod: &metav1.Duration{Duration: terminationGracePeriod},
			// Nobody replaces a standalone claim that expires.
			ExpireAfter: karpv1.MustParseNillableDuration(karpv1.Never),
		},
	}
}

func requirements(req capacity.Request) []karpv1.NodeSelectorRequirementWithMinValues {
	in := func(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	out := []karpv1.NodeSelectorRequirementWithMinValues{
		in(corev1.LabelInstanceTypeStable, req.InstanceType),
		in(corev1.LabelOSStable, string(corev1.Linux)),
		in(karpv1.CapacityTypeLabelKey, string(req.CapacityType)),
	}
	if len(req.Zones) > 0 {
		out = append(out, in(corev1.LabelTopologyZone, slices.Sorted(slices.Values(req.Zones))...))
	}
	return out
}

func requests(req capacity.Request) corev1.ResourceList {
	out := corev1.ResourceList{}
	if req.GPUs > 0 {
		// Karpenter calls the machine initialised only once it shows what was requested.
		out[corev1.ResourceName(req.GPUResource)] = *resource.NewQuantity(int64(req.GPUs), resource.DecimalSI)
	}
	if req.DiskGiB > 0 {
		out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(req.DiskGiB)<<30, resource.BinarySI)
	}
	return out
}

// Names returns the names of the machines of one attempt, by ordinal.
func (p *Provisioner) Names(owner capacity.Owner, attempt int32, count int) ([]string, error) {
	names := make([]string, 0, count)
	for ordinal := range count {
		names = append(names, Name(owner, attempt, ordinal))
	}
	return names, nil
}

// Aim leaves pods as they are: nodes carry the labels of their claims, by which pods know them.
func (*Provisioner) Aim(capacity.Request, *corev1.PodTemplateSpec) error { return nil }

// Name returns the name of the claim for one machine of one attempt: deterministic, at most 34
// characters, with a dash.
func Name(owner capacity.Owner, attempt int32, ordinal int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d", owner.UID, attempt, ordinal))
	prefix := owner.Name
	if limit := nameLimit - hashLength - 1; len(prefix) > limit {
		prefix = strings.TrimRight(prefix[:limit], "-.")
	}
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

func list(ctx context.Context, from client.Reader, owner capacity.Owner) ([]karpv1.NodeClaim, error) {
	claims := &karpv1.NodeClaimList{}
	err := from.List(ctx, claims, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(owner.UID)})
	return claims.Items, err
}
