// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "workspace"

// configIndex finds the Workspaces that use a ConfigMap.
const configIndex = "inference.config"

// Indexes of Workspaces by the nodes of others that they use, and of those that wait for nodes.
const (
	nodeIndex    = "status.workerNodes"
	waitingIndex = "waitsForNodes"
)

// News is a kind of object whose changes are news of machines.
type News struct {
	Object client.Object
	// WorkspacesOf names whose machines they are, or may be; nil reads the labels of machines.
	WorkspacesOf func(ctx context.Context, object client.Object) []types.NamespacedName
	// Frees says whether deleting an object ends what a machine costs, which others may wait for; nil says that the
	// objects are no machines.
	Frees func(ctx context.Context, deleted client.Object) bool
	// From is the cache that has the objects; nil means the manager's.
	From cache.Cache
}

// Index asks for the indexes that a Reconciler finds Workspaces by.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	for name, value := range map[string]client.IndexerFunc{
		configIndex: usedConfig, nodeIndex: usedNodes, waitingIndex: waitsForNodes,
	} {
		if err := indexer.IndexField(ctx, &v1beta1.Workspace{}, name, value); err != nil {
			return fmt.Errorf("indexing Workspaces by %s: %w", name, err)
		}
	}
	return nil
}

// usedConfig is the ConfigMap that a Workspace uses.
func usedConfig(object client.Object) []string {
	ws, ok := object.(*v1beta1.Workspace)
	if !ok || ws.Inference == nil || ws.Inference.Config == "" {
		return nil
	}
	return []string{ws.Inference.Config}
}

// SetupWithManager registers the Reconciler and its watches, of which news are those of its Provisioner. The indexes have
// to be there.
func (r *Reconciler) SetupWithManager(mgr manager.Manager, news []News, options controller.Options) error {
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
		r.statusChanged(),
	)
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.Workspace{}, builder.WithPredicates(changed)).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byPod)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.byNode), builder.WithPredicates(nodeChanged())).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.byConfigMap)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.byNamespace), builder.WithPredicates(namespaceChanged())).
		WatchesRawSource(source.Func(r.waiting.start))
	if r.Preflight.Admission != nil {
		refused := handler.EnqueueRequestsFromMapFunc(r.byRules)
		b = b.Watches(&corev1.ResourceQuota{}, refused, builder.WithPredicates(quotaLoosened())).
			Watches(&corev1.LimitRange{}, refused)
	}
	for _, n := range news {
		requests := handler.EnqueueRequestsFromMapFunc(n.requests)
		if n.From != nil {
			b = b.WatchesRawSource(source.Kind(n.From, n.Object, requests))
			continue
		}
		b = b.Watches(n.Object, machineHandler{requests, n.Frees, r.waiting})
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// statusChanged lets pass what others write into a status: somebody who restores a backup, or a controller that led
// before and was heard of late. What is written here is no news.
func (r *Reconciler) statusChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.Workspace)
		after, okAfter := e.ObjectNew.(*v1beta1.Workspace)
		return ok && okAfter && !r.past.isOurs(before) && !equality.Semantic.DeepEqual(before.Status, after.Status)
	}}
}

func (n News) requests(ctx context.Context, object client.Object) []reconcile.Request {
	if n.WorkspacesOf == nil {
		return byMachine(ctx, object)
	}
	var requests []reconcile.Request
	for _, key := range n.WorkspacesOf(ctx, object) {
		requests = append(requests, requestFor(key.Namespace, key.Name)...)
	}
	return requests
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
