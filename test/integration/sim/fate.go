// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	cloudscript "github.com/modelberth/modelberth/test/script"
)

const resourceGPU = corev1.ResourceName("nvidia.com/gpu")

// zones returns the zones of a claim that names none.
func zones() []string { return []string{"eastus-1", "eastus-2", "eastus-3"} }

// offersOf returns a claim's allowed offers, in the order of asking.
func offersOf(claim *karpv1.NodeClaim) []cloudscript.Offer {
	allowed := func(key string, otherwise ...string) []string {
		values := slices.Clone(otherwise)
		for _, requirement := range claim.Spec.Requirements {
			if requirement.Key == key && requirement.Operator == corev1.NodeSelectorOpIn {
				values = slices.Clone(requirement.Values)
			}
		}
		for _, requirement := range claim.Spec.Requirements {
			if requirement.Key == key && requirement.Operator == corev1.NodeSelectorOpNotIn {
				values = slices.DeleteFunc(values, func(value string) bool { return slices.Contains(requirement.Values, value) })
			}
		}
		return values
	}
	var offers []cloudscript.Offer
	for _, sku := range allowed(corev1.LabelInstanceTypeStable) {
		for _, capacityType := range allowed(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand) {
			for _, zone := range allowed(corev1.LabelTopologyZone, zones()...) {
				offers = append(offers, cloudscript.Offer{SKU: sku, Zone: zone, CapacityType: capacityType})
			}
		}
	}
	return offers
}

// fulfil brings a sold machine a stage further, or lets it meet its fate, and returns the wait until the next step.
func (k *Karpenter) fulfil(ctx context.Context, st *story, claim *karpv1.NodeClaim, now time.Time) (time.Duration, error) {
	if st.fate == nil || !claim.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	var due time.Duration
	if after := st.fate.After.Duration; after > 0 {
		due = st.sold.Add(after).Sub(now)
		if due <= 0 && st.canMeet(claim) {
			return k.meetFate(ctx, st, claim, now)
		}
	}
	wait, err := k.progress(ctx, st, claim, now)
	if due > 0 && (wait == 0 || due < wait) {
		wait = due
	}
	return wait, err
}

// canMeet reports whether the claim is ready for its fate.
func (st *story) canMeet(claim *karpv1.NodeClaim) bool {
	switch st.fate.Outcome {
	case cloudscript.NotReady:
		return claim.Status.NodeName != ""
	case cloudscript.GPUFault, cloudscript.GPUsLost:
		return claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
	default:
		return true
	}
}

// progress takes one stage per pass, so the controller under test sees each of them.
func (k *Karpenter) progress(ctx context.Context, st *story, claim *karpv1.NodeClaim, now time.Time) (time.Duration, error) {
	conditions := claim.StatusConditions()
	switch {
	case claim.Labels[corev1.LabelTopologyZone] != st.offer.Zone:
		return 0, k.describe(ctx, st, claim)
	case !conditions.Get(karpv1.ConditionTypeLaunched).IsTrue():
		claim.Status.ProviderID = "sim://" + claim.Name
		conditions.SetTrue(karpv1.ConditionTypeLaunched)
	case !conditions.Get(karpv1.ConditionTypeRegistered).IsTrue():
		wait := time.Duration(0)
		if st.fate.Outcome == cloudscript.Slow {
			wait = st.sold.Add(st.fate.Delay.Duration).Sub(now)
		}
		if wait > 0 || st.fate.Outcome == cloudscript.NeverRegisters {
			return max(wait, 0), k.stay(ctx, claim, karpv1.ConditionTypeRegistered, "NodeNotFound", "Node not registered with cluster")
		}
		if err := k.register(ctx, claim); err != nil {
			return 0, err
		}
		claim.Status.NodeName = nodeName(claim)
		conditions.SetTrue(karpv1.ConditionTypeRegistered)
	case conditions.Get(karpv1.ConditionTypeInitialized).IsTrue():
		return 0, nil
	default:
		if err := k.changeNode(ctx, claim, func(node *corev1.Node) bool { return st.start(node, claim) }); err != nil {
			return 0, err
		}
		if st.fate.Outcome == cloudscript.NoGPUs && st.fate.GPUs == 0 {
			return 0, k.stay(ctx, claim, karpv1.ConditionTypeInitialized, "ResourceNotRegistered", `Resource "nvidia.com/gpu" was requested but not registered`)
		}
		conditions.SetTrue(karpv1.ConditionTypeInitialized)
	}
	return 0, k.client.Status().Update(ctx, claim)
}

// describe gives the claim a provider's labels for the sold machine.
func (k *Karpenter) describe(ctx context.Context, st *story, claim *karpv1.NodeClaim) error {
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	claim.Labels[corev1.LabelInstanceTypeStable] = st.offer.SKU
	claim.Labels[corev1.LabelTopologyZone] = st.offer.Zone
	claim.Labels[karpv1.CapacityTypeLabelKey] = st.offer.CapacityType
	return k.client.Update(ctx, claim)
}

// stay keeps a condition unknown, for a reason.
func (k *Karpenter) stay(ctx context.Context, claim *karpv1.NodeClaim, condition, reason, message string) error {
	if claim.StatusConditions().Get(condition).Reason == reason {
		return nil
	}
	claim.StatusConditions().SetUnknownWithReason(condition, reason, message)
	return k.client.Status().Update(ctx, claim)
}

// start has the node report itself and its visible GPUs.
func (st *story) start(node *corev1.Node, claim *karpv1.NodeClaim) bool {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Status.Capacity = capacityOf(claim)
	if st.fate.Outcome == cloudscript.NoGPUs {
		delete(node.Status.Capacity, resourceGPU)
		if st.fate.GPUs > 0 {
			node.Status.Capacity[resourceGPU] = *resource.NewQuantity(int64(st.fate.GPUs), resource.DecimalSI)
		}
	}
	node.Status.Allocatable = node.Status.Capacity
	return true
}

// meetFate brings the fate about once its time comes.
func (k *Karpenter) meetFate(ctx context.Context, st *story, claim *karpv1.NodeClaim, now time.Time) (time.Duration, error) {
	first := !st.met
	st.met = true
	ended := now.Sub(st.sold.Add(st.fate.After.Duration + st.fate.Notice.Duration))
	switch st.fate.Outcome {
	case cloudscript.GPUFault:
		return 0, k.condition(ctx, claim, st.fate.FaultCondition(), now)
	case cloudscript.GPUsLost:
		return 0, k.changeNode(ctx, claim, st.loseGPUs)
	case cloudscript.NotReady:
		return 0, k.condition(ctx, claim, silence(), now)
	case cloudscript.Evicted:
		if announced := st.fate.EvictionCondition(); announced != nil && ended < 0 {
			return -ended, k.condition(ctx, claim, *announced, now)
		} else if announced == nil {
			return 0, k.interrupt(ctx, claim, first, now)
		}
	case cloudscript.Dies:
	default:
		return 0, nil
	}
	// The machine is gone. Karpenter misses it, or its node, and gives the claim up.
	if !st.fate.RemoveNode && ended < attemptPause {
		return attemptPause - ended, k.condition(ctx, claim, silence(), now)
	}
	return 0, client.IgnoreNotFound(k.client.Delete(ctx, claim))
}

// loseGPUs lets the node allocate only some of its GPUs.
func (st *story) loseGPUs(node *corev1.Node) bool {
	left := *resource.NewQuantity(int64(st.fate.GPUs), resource.DecimalSI)
	if node.Status.Allocatable[resourceGPU] == left {
		return false
	}
	node.Status.Allocatable = node.Status.Allocatable.DeepCopy()
	node.Status.Allocatable[resourceGPU] = left
	return true
}

// silence returns a cluster's condition for a silent node.
func silence() cloudscript.Condition {
	return cloudscript.Condition{
		Type: string(corev1.NodeReady), Status: metav1.ConditionUnknown,
		Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
	}
}

// interrupt gives the claim up before its machine goes.
func (k *Karpenter) interrupt(ctx context.Context, claim *karpv1.NodeClaim, first bool, now time.Time) error {
	if first {
		if err := k.record(ctx, claim, "SpotInterrupted", "Spot interruption warning was triggered", now); err != nil {
			return err
		}
	}
	return client.IgnoreNotFound(k.client.Delete(ctx, claim))
}

// endStory ends the machine of a deleted claim, when its fate lets it.
func (k *Karpenter) endStory(ctx context.Context, st *story, claim *karpv1.NodeClaim, now time.Time) (ctrl.Result, error) {
	if st.fate != nil && st.fate.Outcome == cloudscript.Stuck {
		if st.deleted.IsZero() {
			st.deleted = now
		}
		if st.fate.Delay.Duration == 0 {
			return ctrl.Result{}, nil
		}
		if wait := st.deleted.Add(st.fate.Delay.Duration).Sub(now); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	return againAfterRace(k.terminate(ctx, claim))
}

// condition sets a condition of the claim's node, if there is one.
func (k *Karpenter) condition(ctx context.Context, claim *karpv1.NodeClaim, condition cloudscript.Condition, now time.Time) error {
	if claim.Status.NodeName == "" {
		return nil
	}
	return k.changeNode(ctx, claim, func(node *corev1.Node) bool { return condition.Apply(node, metav1.NewTime(now)) })
}

func (k *Karpenter) changeNode(ctx context.Context, claim *karpv1.NodeClaim, change func(*corev1.Node) bool) error {
	node := &corev1.Node{}
	if err := k.client.Get(ctx, types.NamespacedName{Name: nodeName(claim)}, node); err != nil {
		return err
	}
	if !change(node) {
		return nil
	}
	return k.client.Status().Update(ctx, node)
}
