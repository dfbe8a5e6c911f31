// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/test/script"
)

// Karpenter's own patience with a claim, counted from its creation.
const (
	launchTimeout   = 5 * time.Minute
	registerTimeout = 15 * time.Minute
	// hangs is the duration of a request without an answer from the cloud.
	hangs = 12 * time.Minute
)

const terminationFinalizer = "karpenter.sh/termination"

// karpenter stands in for Karpenter and its machines.
type karpenter struct {
	world *world
	cloud *cloud
}

// life is the history of one claim.
type life struct {
	claim *karpv1.NodeClaim
	sale  sale
	asked int
	// waits reports whether the cloud has not answered.
	waits bool
	// isTroubled reports whether it was refused, is late, or has met its fate.
	isTroubled bool
}

// noticed is Karpenter's reaction to a write of a claim.
func (k *karpenter) noticed(made *change) {
	before, _ := made.before.(*karpv1.NodeClaim)
	after, _ := made.after.(*karpv1.NodeClaim)
	switch {
	case before == nil:
		st := &life{claim: after}
		k.world.lives[after.UID] = st
		k.world.after(k.cloud.between(time.Second/2, 2*time.Second), func() { k.begin(st) })
		k.world.after(launchTimeout, func() { k.expire(st, karpv1.ConditionTypeLaunched) })
		k.world.after(registerTimeout, func() { k.expire(st, karpv1.ConditionTypeRegistered) })
	case after != nil && before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero():
		st := k.world.lives[after.UID]
		wait := k.cloud.between(2*time.Second, 40*time.Second)
		if st.sale.rule.Outcome == script.Stuck {
			wait += st.sale.rule.Delay.Duration
		}
		k.world.after(wait, func() { k.end(st) })
	}
}

// expire ends a late claim.
func (k *karpenter) expire(st *life, stage string) {
	if claim := k.standing(st); claim != nil && !isTrue(claim, stage) && !st.waits {
		k.world.tell("Karpenter gives %s up, not %s", claim.Name, stage)
		_ = k.world.server.delete(claim, &claim.UID)
	}
}

// standing is the current claim; nil if it is gone or being deleted.
func (k *karpenter) standing(st *life) *karpv1.NodeClaim {
	claim, ok := k.world.server.objects[claims][nameOf(st.claim.Name)].(*karpv1.NodeClaim)
	if !ok || claim.UID != st.claim.UID || !claim.DeletionTimestamp.IsZero() {
		return nil
	}
	return claim
}

// begin takes the claim on, and asks the cloud.
func (k *karpenter) begin(st *life) {
	claim := k.standing(st)
	if claim == nil {
		return
	}
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) { c.Finalizers = append(c.Finalizers, terminationFinalizer) })
	k.ask(st)
}

func (k *karpenter) ask(st *life) {
	claim := k.standing(st)
	if claim == nil {
		return
	}
	st.asked++
	got := k.cloud.ask(offersOf(claim), st.asked > 1)
	k.world.tell("%s asks the cloud for %s, which will say %s %v", claim.Name, instanceType(claim), describe(got.rule), got.refusal)
	st.waits = true
	wait := got.after
	if got.refusal == nil && got.rule.Outcome == script.Hang {
		wait = hangs
	}
	k.world.after(wait, func() { k.answered(st, got) })
}

// answered is the cloud's answer. A claim deleted meanwhile ends now.
func (k *karpenter) answered(st *life, got sale) {
	st.waits = false
	st.isTroubled = st.isTroubled || got.refusal != nil || got.rule.Outcome != script.Accept && got.rule.After.Duration == 0
	claim := k.standing(st)
	switch {
	case claim == nil:
		k.end(st)
	case got.refusal != nil:
		k.refuse(st, claim, got.refusal)
	case got.rule.Outcome == script.Hang:
		_ = k.world.server.delete(claim, &claim.UID)
	default:
		st.sale = got
		k.launch(st, claim)
	}
}

func (k *karpenter) refuse(st *life, claim *karpv1.NodeClaim, refused *script.Refusal) {
	if refused.Ending == script.Delete {
		message := fmt.Sprintf("NodeClaim %s event: insufficient capacity, %s", claim.Name, refused.Message)
		k.publish(claim, "InsufficientCapacityError", message)
		_ = k.world.server.delete(claim, &claim.UID)
		return
	}
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) {
		set(c, karpv1.ConditionTypeLaunched, metav1.ConditionUnknown, cmp.Or(refused.Reason, "LaunchFailed"), refused.Message, k.world.now())
	})
	k.world.after(k.cloud.between(5*time.Second, time.Minute), func() { k.ask(st) })
}

// publish tells why, unless the news is lost.
func (k *karpenter) publish(claim *karpv1.NodeClaim, reason, message string) {
	if k.world.draw(k.world.faults.events) {
		return
	}
	at := metav1.NewTime(k.world.now())
	_ = k.world.server.create(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%d", claim.Name, k.world.server.made)},
		InvolvedObject: corev1.ObjectReference{Kind: "NodeClaim", Name: claim.Name, UID: claim.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message, FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
}

func (k *karpenter) launch(st *life, claim *karpv1.NodeClaim) {
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) {
		c.Labels = maps.Clone(c.Labels)
		c.Labels[corev1.LabelInstanceTypeStable] = st.sale.offer.SKU
		c.Labels[corev1.LabelTopologyZone] = st.sale.offer.Zone
		c.Labels[karpv1.CapacityTypeLabelKey] = st.sale.offer.CapacityType
		c.Status.ProviderID = "sim://" + string(c.UID)
		set(c, karpv1.ConditionTypeLaunched, metav1.ConditionTrue, "Launched", "", k.world.now())
	})
	join := k.cloud.between(30*time.Second, 3*time.Minute)
	switch st.sale.rule.Outcome {
	case script.NeverRegisters:
		return
	case script.Slow:
		join += st.sale.rule.Delay.Duration
	}
	k.world.after(join, func() { k.join(st) })
}

func (k *karpenter) join(st *life) {
	claim := k.standing(st)
	if claim == nil {
		return
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(claim), Labels: maps.Clone(claim.Labels)},
		Spec:       corev1.NodeSpec{ProviderID: claim.Status.ProviderID, Taints: claim.Spec.Taints},
	}
	_ = k.world.server.create(node)
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) {
		c.Status.NodeName = node.Name
		set(c, karpv1.ConditionTypeRegistered, metav1.ConditionTrue, "Registered", "", k.world.now())
	})
	k.world.after(k.cloud.between(10*time.Second, 2*time.Minute), func() { k.show(st) })
}

// show has the node report itself and its GPUs.
func (k *karpenter) show(st *life) {
	claim := k.standing(st)
	if claim == nil {
		return
	}
	isBlind := st.sale.rule.Outcome == script.NoGPUs
	k.onNode(st, func(node *corev1.Node) {
		ready := script.Condition{Type: string(corev1.NodeReady), Status: metav1.ConditionTrue, Reason: "KubeletReady"}
		ready.Apply(node, metav1.NewTime(k.world.now()).Rfc3339Copy())
		node.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi")}
		maps.Copy(node.Status.Capacity, claim.Spec.Resources.Requests)
		if isBlind {
			delete(node.Status.Capacity, "nvidia.com/gpu")
		}
		node.Status.Allocatable = node.Status.Capacity
	})
	if isBlind {
		return
	}
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) {
		set(c, karpv1.ConditionTypeInitialized, metav1.ConditionTrue, "Initialized", "", k.world.now())
	})
	if after := st.sale.rule.After.Duration; after > 0 {
		k.world.after(after, func() { k.fail(st) })
	}
}

// fail lets the machine meet its fate.
func (k *karpenter) fail(st *life) {
	claim := k.standing(st)
	if claim == nil {
		return
	}
	rule := st.sale.rule
	st.isTroubled = true
	k.world.tell("%s meets its fate: %s", claim.Name, describe(rule))
	switch rule.Outcome {
	case script.GPUFault:
		k.report(st, rule.FaultCondition())
	case script.NotReady:
		k.report(st, silence())
	case script.Evicted:
		k.report(st, *rule.EvictionCondition())
		k.world.after(rule.Notice.Duration, func() { k.miss(st) })
	case script.Dies:
		if rule.RemoveNode {
			k.miss(st)
			return
		}
		k.report(st, silence())
		k.world.after(k.cloud.between(time.Minute, 10*time.Minute), func() { k.miss(st) })
	}
}

// miss has Karpenter find a machine gone.
func (k *karpenter) miss(st *life) {
	if claim := k.standing(st); claim != nil {
		_ = k.world.server.delete(claim, &claim.UID)
	}
}

// silence is the cluster's report of a node without contact.
func silence() script.Condition {
	return script.Condition{
		Type: string(corev1.NodeReady), Status: metav1.ConditionUnknown,
		Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.",
	}
}

func (k *karpenter) report(st *life, condition script.Condition) {
	k.onNode(st, func(node *corev1.Node) { condition.Apply(node, metav1.NewTime(k.world.now()).Rfc3339Copy()) })
}

func (k *karpenter) onNode(st *life, change func(*corev1.Node)) {
	if node, ok := k.world.server.objects[nodes][nameOf(nodeName(st.claim))].(*corev1.Node); ok {
		edit(k.world.server, node, change)
	}
}

// end deletes the node and then the claim. A claim with an open request has to wait.
func (k *karpenter) end(st *life) {
	claim, ok := k.world.server.objects[claims][nameOf(st.claim.Name)].(*karpv1.NodeClaim)
	if !ok || claim.UID != st.claim.UID || st.waits {
		return
	}
	if node := k.world.server.objects[nodes][nameOf(nodeName(claim))]; node != nil {
		k.world.server.remove(node)
	}
	edit(k.world.server, claim, func(c *karpv1.NodeClaim) { c.Finalizers = nil })
}

func nodeName(claim *karpv1.NodeClaim) string { return "node-" + string(claim.UID) }

func instanceType(claim *karpv1.NodeClaim) string {
	return requirement(claim, corev1.LabelInstanceTypeStable)[0]
}

func requirement(claim *karpv1.NodeClaim, key string) []string {
	for _, known := range claim.Spec.Requirements {
		if known.Key == key {
			return known.Values
		}
	}
	return nil
}

// offersOf are the offers of a claim, in the order of the requests.
func offersOf(claim *karpv1.NodeClaim) []script.Offer {
	places := requirement(claim, corev1.LabelTopologyZone)
	if len(places) == 0 {
		places = zones()
	}
	var out []script.Offer
	for _, zone := range places {
		out = append(out, script.Offer{
			SKU: instanceType(claim), Zone: zone, CapacityType: requirement(claim, karpv1.CapacityTypeLabelKey)[0],
		})
	}
	return out
}

func isTrue(claim *karpv1.NodeClaim, stage string) bool {
	for i := range claim.Status.Conditions {
		if claim.Status.Conditions[i].Type == stage {
			return claim.Status.Conditions[i].Status == metav1.ConditionTrue
		}
	}
	return false
}

// set sets a condition of a claim; its time moves with its status only.
func set(claim *karpv1.NodeClaim, stage string, to metav1.ConditionStatus, reason, message string, now time.Time) {
	next := status.Condition{
		Type: stage, Status: to, Reason: cmp.Or(reason, stage), Message: message, ObservedGeneration: claim.Generation,
		LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	}
	for i := range claim.Status.Conditions {
		known := &claim.Status.Conditions[i]
		if known.Type == stage {
			if known.Status == to {
				next.LastTransitionTime = known.LastTransitionTime
			}
			*known = next
			return
		}
	}
	claim.Status.Conditions = append(claim.Status.Conditions, next)
}
