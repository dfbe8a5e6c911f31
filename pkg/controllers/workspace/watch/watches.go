// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watch decides which events lead to passes over which Workspaces: the events of a Workspace's own objects and
// machines, and the events that end a wait. It must not depend on the steps of a pass.
package watch

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	"github.com/modelberth/modelberth/pkg/workload"
)

// ControllerName is the name of the controller in logs and metrics.
const ControllerName = "workspace"

// configIndex indexes Workspaces by their ConfigMap.
const configIndex = "inference.config"

// Indexes of Workspaces: nodeIndex by the nodes of their pods, and waitingIndex for those that wait for nodes.
const (
	nodeIndex    = "status.workerNodes"
	waitingIndex = "waitsForNodes"
)

// Source is a kind of objects that describe the machines of Workspaces.
type Source struct {
	Object client.Object
	// WorkspacesOf returns the Workspaces of an object; if nil, the labels of the object name its Workspace.
	WorkspacesOf func(ctx context.Context, object client.Object) []types.NamespacedName
	// Frees reports whether a deletion ends a machine's cost, so that waiting Workspaces may have its money; nil for
	// objects that are not machines.
	Frees func(ctx context.Context, deleted client.Object) bool
	// From is the cache with the objects; nil means the manager's.
	From cache.Cache
}

// Watches configures the watches of Workspaces.
type Watches struct {
	// Client reads from caches.
	Client client.Reader
	// Waiting holds the Workspaces that wait for others.
	Waiting *Waiting
	// IsOurs reports whether this process has overwritten a version of a Workspace.
	IsOurs func(before client.Object) bool
	// Refused returns the Workspaces whose pods a namespace would refuse; nil if the controller does not check that.
	Refused func(namespace string) []types.NamespacedName
}

// Index registers the indexes for a Reconciler.
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

// usedConfig returns the ConfigMap of a Workspace.
func usedConfig(object client.Object) []string {
	ws, ok := object.(*v1beta1.Workspace)
	if !ok || ws.Inference == nil || ws.Inference.Config == "" {
		return nil
	}
	return []string{ws.Inference.Config}
}

// Setup registers a Reconciler of Workspaces with its watches. sources are the objects that describe its machines. The
// indexes must already exist.
func (w *Watches) Setup(mgr manager.Manager, r reconcile.Reconciler, sources []Source, options controller.Options) error {
	changed := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{},
		w.StatusChanged(),
	)
	if options.NewQueue == nil {
		options.NewQueue = observer{mgr.GetCache()}.newQueue
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named(ControllerName).
		WithOptions(options).
		For(&v1beta1.Workspace{}, builder.WithPredicates(changed)).
		Owns(&appsv1.StatefulSet{}).
		Owns(&corev1.Service{}).
		Owns(&networkingv1.NetworkPolicy{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(byPod)).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(byEndpoints), builder.WithPredicates(endpointsChanged())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(w.byNode), builder.WithPredicates(nodeChanged())).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(w.byConfigMap)).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.byNamespace), builder.WithPredicates(namespaceChanged())).
		WatchesRawSource(source.Func(w.Waiting.Start))
	if w.Refused != nil {
		refused := handler.EnqueueRequestsFromMapFunc(w.byRules)
		b = b.Watches(&corev1.ResourceQuota{}, refused, builder.WithPredicates(quotaLoosened())).
			Watches(&corev1.LimitRange{}, refused)
	}
	for _, s := range sources {
		requests := handler.EnqueueRequestsFromMapFunc(s.requests)
		if s.From != nil {
			b = b.WatchesRawSource(source.Kind(s.From, s.Object, requests))
			continue
		}
		b = b.Watches(s.Object, machineHandler{requests, s.Frees, w.Waiting})
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the %s controller: %w", ControllerName, err)
	}
	return nil
}

// StatusChanged passes status writes by others: a restored backup, or a late write of an earlier leader. It ignores the
// writes of this process.
func (w *Watches) StatusChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e ctrlevent.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1beta1.Workspace)
		after, okAfter := e.ObjectNew.(*v1beta1.Workspace)
		return ok && okAfter && !w.IsOurs(before) && !equality.Semantic.DeepEqual(before.Status, after.Status)
	}}
}

func (s Source) requests(ctx context.Context, object client.Object) []reconcile.Request {
	if s.WorkspacesOf == nil {
		return byMachine(ctx, object)
	}
	var requests []reconcile.Request
	for _, key := range s.WorkspacesOf(ctx, object) {
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

// byEndpoints finds the Workspace whose Service has an EndpointSlice.
func byEndpoints(_ context.Context, object client.Object) []reconcile.Request {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	return requestFor(slice.Namespace, workload.EndpointOf(slice))
}

func requestFor(namespace, name string) []reconcile.Request {
	if namespace == "" || name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

func (w *Watches) byConfigMap(ctx context.Context, object client.Object) []reconcile.Request {
	list := &v1beta1.WorkspaceList{}
	err := w.Client.List(ctx, list, client.InNamespace(object.GetNamespace()), client.MatchingFields{configIndex: object.GetName()})
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

// byNamespace finds the Workspaces of a namespace.
func (w *Watches) byNamespace(ctx context.Context, object client.Object) []reconcile.Request {
	list := &v1beta1.WorkspaceList{}
	if err := w.Client.List(ctx, list, client.InNamespace(object.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing the workspaces of a namespace failed", "namespace", object.GetName())
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, requestFor(list.Items[i].Namespace, list.Items[i].Name)...)
	}
	return requests
}

// byRules finds the Workspaces whose pods were refused in the namespace of a ResourceQuota or a LimitRange.
func (w *Watches) byRules(_ context.Context, object client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, key := range w.Refused(object.GetNamespace()) {
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}
