// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// view has the state of some slots in addition to their pods.
type view struct {
	prices Prices
	// nodes has, by pod name, the pod's node, or the node that probably joined for it.
	nodes map[string]*corev1.Node
	// answers are cluster autoscaler's reactions to waiting pods, by pod name.
	answers map[string]refusal.Condition
}

// look reads the view of slots from the cache.
func (p *Provisioner) look(ctx context.Context, slots []slot) (view, error) {
	out := view{prices: p.prices, nodes: map[string]*corev1.Node{}, answers: map[string]refusal.Condition{}}
	list := &corev1.NodeList{}
	if err := p.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing nodes: %w", err)
	}
	groups, err := p.events(ctx, aboutGroups)
	if err != nil {
		return out, err
	}
	var waiting []*corev1.Pod
	for i := range slots {
		pod := slots[i].pod
		switch {
		case pod == nil:
			continue
		case pod.Spec.NodeName != "":
			at := slices.IndexFunc(list.Items, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName })
			if at >= 0 {
				out.nodes[pod.Name] = &list.Items[at]
			}
			continue
		}
		own, err := p.events(ctx, string(pod.UID))
		if err != nil {
			return out, err
		}
		out.answers[pod.Name] = answerOf(own, groups)
		waiting = append(waiting, pod)
	}
	arrive(out.nodes, waiting, list.Items)
	return out, nil
}

// arrive finds for each waiting pod a suitable node that has joined since, but does not advertise its GPUs. The
// scheduler reports only that such a node has too few GPUs.
func arrive(found map[string]*corev1.Node, waiting []*corev1.Pod, nodes []corev1.Node) {
	var fresh []*corev1.Node
	for i := range nodes {
		if isAnybodys(&nodes[i]) {
			fresh = append(fresh, &nodes[i])
		}
	}
	slices.SortFunc(fresh, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, pod := range waiting {
		at := slices.IndexFunc(fresh, func(node *corev1.Node) bool { return isBlindFor(node, pod) })
		if at >= 0 {
			found[pod.Name] = fresh[at]
			fresh = slices.Delete(fresh, at, at+1)
		}
	}
}

// isAnybodys reports whether a node may have joined for any pod: it is not being deleted, and was not bought for a
// Workspace.
func isAnybodys(node *corev1.Node) bool {
	return node.DeletionTimestamp.IsZero() && node.Labels[v1beta1.LabelWorkspaceUID] == ""
}

// isBlindFor reports whether a node joined after a pod was created, and is suitable except for its missing GPUs.
// Invalid terms match nothing, as in the scheduler. Both times are in whole seconds.
func isBlindFor(node *corev1.Node, pod *corev1.Pod) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && fits && !node.CreationTimestamp.Before(&pod.CreationTimestamp) && lacksGPUs(node, pod)
}

// Awaiting returns the Workspaces for which a node may have joined without advertised GPUs. No other event reports
// that: the scheduler's messages about the pods may be older than the node.
func (p *Provisioner) Awaiting(ctx context.Context, object client.Object) []types.NamespacedName {
	node, isNode := object.(*corev1.Node)
	if !isNode || !isAnybodys(node) {
		return nil
	}
	waiting := &corev1.PodList{}
	managed := client.MatchingLabels{v1beta1.LabelManagedBy: v1beta1.ManagedBy}
	if err := p.cached.List(ctx, waiting, managed, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "looking for pods that wait for a node failed", "node", node.Name)
		return nil
	}
	var out []types.NamespacedName
	for i := range waiting.Items {
		pod := &waiting.Items[i]
		key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1beta1.LabelWorkspace]}
		if pod.Spec.NodeName == "" && isBlindFor(node, pod) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out
}

// lacksGPUs reports whether a node advertises fewer GPUs than a pod requests.
func lacksGPUs(node *corev1.Node, pod *corev1.Pod) bool {
	for i := range pod.Spec.Containers {
		for name, want := range pod.Spec.Containers[i].Resources.Limits {
			has := node.Status.Allocatable[name]
			if strings.HasSuffix(string(name), "/gpu") && has.Cmp(want) < 0 {
				return true
			}
		}
	}
	return false
}

// machine returns the state of a slot.
func (v view) machine(s *slot, gpuResource corev1.ResourceName) capacity.Machine {
	out := capacity.Machine{
		Name: s.name(), UID: s.uid(), Ordinal: s.ordinal, Deleting: s.isLeaving,
		InstanceType: s.asked.InstanceType, CapacityType: s.asked.CapacityType,
		HourlyPrice: v.prices(s.asked.InstanceType, s.asked.CapacityType),
	}
	if s.set != nil {
		out.CreatedAt = s.set.CreationTimestamp.Time
	}
	if s.pod == nil {
		out.Message = "the StatefulSet has not created the pod yet: kubectl describe statefulset shows why"
		return out
	}
	if s.isLeaving && s.pod.DeletionTimestamp != nil {
		out.DeletingSince = s.pod.DeletionTimestamp.Time
	}
	node := v.nodes[s.pod.Name]
	if s.pod.Spec.NodeName != "" {
		since := scheduled(s.pod).LastTransitionTime.Time
		out.NodeName = s.pod.Spec.NodeName
		out.Words = capacity.Words{Launched: done(since), Registered: done(since), Initialized: done(since)}
	} else {
		v.wait(&out, s.pod, node)
	}
	out.Launched, out.Registered, out.Initialized = isDone(out.Words.Launched), isDone(out.Words.Registered), isDone(out.Words.Initialized)
	if node != nil {
		describe(&out, node, gpuResource)
	}
	return out
}

// wait adds the state of a waiting pod's machine. The request counts from the pod's creation, because the pod that it
// replaced may have been old.
func (v view) wait(out *capacity.Machine, pod *corev1.Pod, node *corev1.Node) {
	out.CreatedAt = pod.CreationTimestamp.Time
	out.Words.Launched = v.answers[pod.Name]
	out.Reason, out.Message = out.Words.Launched.Reason, out.Words.Launched.Message
	if out.Reason == "" {
		out.Reason, out.Message = scheduled(pod).Reason, scheduled(pod).Message
	}
	if node == nil {
		return
	}
	since := node.CreationTimestamp.Time
	out.NodeName = node.Name
	out.Words = capacity.Words{Launched: done(since), Registered: done(since)}
	out.Reason, out.Message = "", fmt.Sprintf("node %s advertises fewer GPUs than the pod requests: check its device plugin", node.Name)
}

// describe adds the node's state.
func describe(out *capacity.Machine, node *corev1.Node, gpuResource corev1.ResourceName) {
	out.ProviderID, out.Zone = node.Spec.ProviderID, node.Labels[corev1.LabelTopologyZone]
	out.NodeReady, out.NodeSince = nodehealth.Ready(node)
	gpus := node.Status.Allocatable[gpuResource]
	out.GPUs = int(gpus.Value())
	out.Fault, out.GPUFault = nodehealth.Split(node)
}

func done(since time.Time) refusal.Condition {
	return refusal.Condition{Status: refusal.StatusTrue, Since: since}
}

func isDone(c refusal.Condition) bool { return c.Status == refusal.StatusTrue }

// scheduled returns the PodScheduled condition of a pod.
func scheduled(pod *corev1.Pod) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			return condition
		}
	}
	return corev1.PodCondition{}
}
