// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodeclaim"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// slot is one machine that a pool requests, or a surplus machine.
type slot struct {
	capacity.Machine
	// claim is the claim of the machine; nil while there is none.
	claim *karpv1.NodeClaim
	// pool is the pool of an awaited claim; nil if there is a claim.
	pool *karpv1.NodePool
	// labels of the claim, or of the pool.
	labels map[string]string
	// isLost is set if another machine takes over its name.
	isLost bool
}

// holding has the NodePools and NodeClaims of one or all Workspaces, from the API server or a cache.
type holding struct {
	pools  []karpv1.NodePool
	claims []karpv1.NodeClaim
}

// slots returns the machines by name. Karpenter chooses the names of a pool's claims, so the machines have the names
// of the pool's slots instead. The attempt records the claim in each slot. An unknown claim takes the first free slot,
// and the slot of a lost machine is free. If no slot is free, the claim is a replacement that nobody requested.
func (h holding) slots(known []capacity.Created) []slot {
	var out []slot
	for i := range h.pools {
		out = append(out, slotsOf(&h.pools[i], h.claimsOf(h.pools[i].Name), known)...)
	}
	for i := range h.claims {
		claim := &h.claims[i]
		if !slices.ContainsFunc(h.pools, func(pool karpv1.NodePool) bool { return pool.Name == poolOf(claim) }) {
			out = append(out, left(claim, known))
		}
	}
	// Until a lost machine is gone, it has the same name as its successor, and comes after it.
	slices.SortFunc(out, func(a, b slot) int { return cmp.Or(strings.Compare(a.Name, b.Name), lastIfLost(a)-lastIfLost(b)) })
	return out
}

func lastIfLost(s slot) int {
	if s.isLost {
		return 1
	}
	return 0
}

// claimsOf returns the claims of a pool, oldest first.
func (h holding) claimsOf(pool string) []*karpv1.NodeClaim {
	var out []*karpv1.NodeClaim
	for i := range h.claims {
		if poolOf(&h.claims[i]) == pool {
			out = append(out, &h.claims[i])
		}
	}
	slices.SortFunc(out, func(a, b *karpv1.NodeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return out
}

func slotsOf(pool *karpv1.NodePool, claims []*karpv1.NodeClaim, known []capacity.Created) []slot {
	taken := map[string]bool{} // also by machines that are gone
	lost := map[string]time.Time{}
	for _, machine := range known {
		if machine.LostAt.IsZero() {
			taken[machine.Name] = true
		} else {
			lost[machine.Name] = machine.LostAt
		}
	}
	free := slices.DeleteFunc(slotNames(pool.Name, sizeOf(pool)), func(name string) bool { return taken[name] })
	var out []slot
	for _, claim := range claims {
		s := slot{Machine: nodeclaim.MachineOf(claim), claim: claim, labels: claim.Labels}
		switch machine := machineIn(known, claim.UID); {
		case machine.Name != "":
			s.Name, s.isLost = machine.Name, !machine.LostAt.IsZero()
		case len(free) > 0:
			s.Name, free = free[0], free[1:]
		default:
			s.Replacement = true
		}
		s.Ordinal = ordinalOf(s.Name, pool.Name)
		out = append(out, s)
	}
	for _, name := range free {
		out = append(out, slot{Machine: awaited(pool, name, lost[name]), pool: pool, labels: pool.Labels})
	}
	return out
}

// left returns the slot of a claim without a pool.
func left(claim *karpv1.NodeClaim, known []capacity.Created) slot {
	s := slot{Machine: nodeclaim.MachineOf(claim), claim: claim, labels: claim.Labels}
	if machine := machineIn(known, claim.UID); machine.Name != "" {
		s.Name, s.Ordinal, s.isLost = machine.Name, ordinalOf(machine.Name, poolOf(claim)), !machine.LostAt.IsZero()
	}
	return s
}

// awaited returns a machine without a claim yet. Its time counts from the creation of the pool, or from the loss of
// its predecessor.
func awaited(pool *karpv1.NodePool, name string, lostAt time.Time) capacity.Machine {
	since := pool.CreationTimestamp
	if lostAt.After(since.Time) {
		since = metav1.NewTime(lostAt)
	}
	asked := &karpv1.NodeClaim{Spec: pool.Spec.Template.ToNodeClaim().Spec}
	asked.Name, asked.CreationTimestamp, asked.DeletionTimestamp = name, since, pool.DeletionTimestamp
	asked.Annotations = pool.Spec.Template.Annotations
	machine := nodeclaim.MachineOf(asked)
	machine.Ordinal = ordinalOf(name, pool.Name)
	said := refusal.Condition{Status: refusal.StatusUnknown, Since: since.Time}
	said.Reason, said.Message = whyAwaited(pool)
	machine.Words = capacity.Words{Launched: said}
	machine.Reason, machine.Message = "", said.Message
	if !refusal.IsNeutral(said.Reason) {
		machine.Reason = said.Reason
	}
	return machine
}

// whyAwaited returns why there is no claim, from the conditions of the pool.
func whyAwaited(pool *karpv1.NodePool) (reason, message string) {
	ready := pool.StatusConditions().Root()
	for _, condition := range pool.Status.Conditions {
		if condition.Type != ready.Type && condition.IsFalse() {
			return refusal.ReasonNodePoolNotReady, fmt.Sprintf("NodePool %s is not ready: %s: %s",
				pool.Name, condition.Type, cmp.Or(condition.Message, condition.Reason))
		}
	}
	message = fmt.Sprintf("Karpenter has not created a NodeClaim for NodePool %s yet", pool.Name)
	switch {
	case !ready.IsTrue():
		message += "; the NodePool is not ready"
	case pool.Spec.Replicas != nil:
		message += "; if this lasts, turn on Karpenter's feature gate StaticCapacity"
	}
	return refusal.ReasonNoNodeClaim, message
}

// sizeOf returns how many machines a pool may have.
func sizeOf(pool *karpv1.NodePool) int {
	limit := pool.Spec.Limits[nodesResource]
	return int(limit.Value())
}

func poolOf(claim *karpv1.NodeClaim) string { return claim.Labels[karpv1.NodePoolLabelKey] }

// slotNames returns the names of the machines of a pool.
func slotNames(pool string, count int) []string {
	names := make([]string, 0, count)
	for ordinal := range count {
		names = append(names, fmt.Sprintf("%s-%d", pool, ordinal))
	}
	return names
}

// ordinalOf returns the ordinal in the name of a pool's slot; -1 if there is none.
func ordinalOf(name, pool string) int {
	number, isOfPool := strings.CutPrefix(name, pool+"-")
	ordinal, err := strconv.Atoi(number)
	if err != nil || !isOfPool {
		return -1
	}
	return ordinal
}

// machineIn returns the known machine with this UID; zero if there is none.
func machineIn(known []capacity.Created, uid types.UID) capacity.Created {
	for _, machine := range known {
		if machine.UID == uid {
			return machine
		}
	}
	return capacity.Created{}
}

// zoneOf returns the zone of a pool's machines; empty if it is undecided.
func zoneOf(pool *karpv1.NodePool) string {
	for _, requirement := range pool.Spec.Template.Spec.Requirements {
		if requirement.Key == corev1.LabelTopologyZone && len(requirement.Values) == 1 {
			return requirement.Values[0]
		}
	}
	return ""
}

func classOf(pool *karpv1.NodePool) v1beta1.NodeClassReference {
	ref := pool.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return v1beta1.NodeClassReference{}
	}
	return v1beta1.NodeClassReference{Group: ref.Group, Kind: ref.Kind, Name: ref.Name}
}
