// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/existing"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// isWaitingForNodes is the only value of waitingIndex.
const isWaitingForNodes = "true"

// usedNodes returns the nodes of a Workspace's pods.
func usedNodes(object client.Object) []string {
	ws, ok := object.(*v1beta1.Workspace)
	if !ok {
		return nil
	}
	return ws.Status.WorkerNodes
}

// waitsForNodes returns isWaitingForNodes if a new or repaired node may help a Workspace: it may use existing nodes,
// and it neither has nor acquires machines.
func waitsForNodes(object client.Object) []string {
	ws, ok := object.(*v1beta1.Workspace)
	if !ok || ws.Inference == nil || ws.Suspend || ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceProvisioned {
		return nil
	}
	planned := meta.FindStatusCondition(ws.Status.Conditions, v1beta1.ConditionPlanned)
	if planned != nil && planned.Reason == v1beta1.ReasonFrozen {
		return nil // it keeps the machines that KAITO's controller left
	}
	isAcquiring := slices.ContainsFunc(ws.Status.Attempts, func(a v1beta1.Attempt) bool { return a.Reason == "" })
	if isAcquiring || meta.IsStatusConditionTrue(ws.Status.Conditions, v1beta1.ConditionResourceReady) {
		return nil
	}
	return []string{isWaitingForNodes}
}

// byNode finds the Workspace that bought a node. For other nodes, it finds the Workspaces on the node, and the
// Workspaces waiting for such a node.
func (w *Watches) byNode(ctx context.Context, object client.Object) []reconcile.Request {
	node, ok := object.(*corev1.Node)
	if !ok || node.Labels[v1beta1.LabelWorkspaceUID] != "" {
		return byMachine(ctx, object)
	}
	requests := w.indexed(ctx, nodeIndex, node.Name, func(*v1beta1.Workspace) bool { return true })
	return append(requests, w.indexed(ctx, waitingIndex, isWaitingForNodes, func(ws *v1beta1.Workspace) bool {
		return existing.Matches(node, ws.Resource.LabelSelector)
	})...)
}

// indexed finds Workspaces by an index in the cache. isMeant must not change them.
func (w *Watches) indexed(ctx context.Context, index, value string, isMeant func(*v1beta1.Workspace) bool) []reconcile.Request {
	list := &v1beta1.WorkspaceList{}
	if err := w.Client.List(ctx, list, client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the workspaces of a node failed", "index", index)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if isMeant(&list.Items[i]) {
			requests = append(requests, requestFor(list.Items[i].Namespace, list.Items[i].Name)...)
		}
	}
	return requests
}

// nodeChanged passes changes that affect a Workspace's plan or conditions, because kubelets write nodes all the time.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, okAfter := e.ObjectNew.(*corev1.Node)
		if !ok || !okAfter {
			return true
		}
		return !slices.Equal(nodeHealth(before), nodeHealth(after)) || hasOtherFault(before, after) ||
			before.Spec.Unschedulable != after.Spec.Unschedulable ||
			before.Annotations[v1beta1.AnnotationGPU] != after.Annotations[v1beta1.AnnotationGPU] ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) ||
			!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity)
	}}
}

// hasOtherFault reports whether a fault has begun, ended or changed. A fault of the whole node and a fault of a GPU may
// exist at the same time, and the GPU's fault may not matter.
func hasOtherFault(before, after *corev1.Node) bool {
	whole, ofGPUs := nodehealth.Split(before)
	wholeNow, ofGPUsNow := nodehealth.Split(after)
	return whole != wholeNow || ofGPUs != ofGPUsNow
}

// nodeHealth returns the conditions of a node that appear in a Workspace's conditions.
func nodeHealth(node *corev1.Node) []corev1.ConditionStatus {
	health := make([]corev1.ConditionStatus, 3)
	for _, condition := range node.Status.Conditions {
		switch condition.Type {
		case corev1.NodeReady:
			health[0] = condition.Status
		case corev1.NodeDiskPressure:
			health[1] = condition.Status
		case corev1.NodeMemoryPressure:
			health[2] = condition.Status
		}
	}
	return health
}
