// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "workspace"

// configIndex finds the Workspaces that use a ConfigMap.
const configIndex = "inference.config"

// SetupWithManager registers the Reconciler and its watches. machine is the object that stands for a
// machine, or nil where no provisioner is installed.
func (r *Reconciler) SetupWithManager(
	ctx context.Context, mgr manager.Manager, machine client.Object, options controller.Options,
) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1beta1.Workspace{}, configIndex, func(object client.Object) []string {
		ws, ok := object.(*v1beta1.Workspace)
		if !ok || ws.Inference == nil || ws.Inference.Config == "" {
			return nil
		}
		return []string{ws.Inference.Config}
	})
	if err != nil {
		return fmt.Errorf("indexing Workspaces by ConfigMap: %w", err)
	}
	// Status is ours alone: its changes are no news.
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
	)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.Workspace{}, builder.WithPredicates(changed)).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(byMachine), builder.WithPredicates(nodeChanged())).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.byConfigMap)).
		WatchesRawSource(source.Func(r.waiting.start))
	if machine != nil {
		b = b.Watches(machine, machineHandler{handler.EnqueueRequestsFromMapFunc(byMachine), r.waiting})
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// byMachine finds the Workspace of a machine or node by its labels.
func byMachine(_ context.Context, object client.Object) []reconcile.Request {
	labels := object.GetLabels()
	return requestFor(labels[v1beta1.LabelMachineWorkspaceNamespace], labels[v1beta1.LabelMachineWorkspaceName])
}

func byPod(_ context.Context, object client.Object) []reconcile.Request {
	return requestFor(object.GetNamespace(), object.GetLabels()[v1beta1.LabelWorkspace])
}

func requestFor(namespace, name string) []reconcile.Request {
	if namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

func (r *Reconciler) byConfigMap(ctx context.Context, object client.Object) []reconcile.Request {
	list := &v1beta1.WorkspaceList{}
	err := r.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{configIndex: object.GetName()})
	if err != nil {
		log.FromContext(ctx).Error(err, "listing the workspaces of a ConfigMap failed", "configMap", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestFor(list.Items[i].Namespace, list.Items[i].Name)...)
	}
	return requests
}

// nodeChanged lets pass what a Workspace's conditions depend on; kubelets write nodes all the time.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		after, okAfter := e.ObjectNew.(*corev1.Node)
		if !ok || !okAfter {
			return true
		}
		return !slices.Equal(nodeHealth(before), nodeHealth(after)) || nodehealth.Of(before) != nodehealth.Of(after) ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
	}}
}

// nodeHealth are the conditions of a node that a Workspace's conditions quote.
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
