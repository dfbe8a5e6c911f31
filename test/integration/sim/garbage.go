// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// garbage is a stand-in for the garbage collector: a Workspace's objects go once no Workspace with its UID is left.
type garbage struct {
	client client.Client
	live   client.Reader
}

// SetupGarbage registers the stand-in with a manager.
func SetupGarbage(mgr manager.Manager) error {
	skip := true
	gone := builder.WithPredicates(predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	})
	return ctrl.NewControllerManagedBy(mgr).Named("sim-garbage").
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		For(&v1beta1.Workspace{}, gone).Complete(&garbage{client: mgr.GetClient(), live: mgr.GetAPIReader()})
}

// Reconcile collects the remains of the Workspaces of one name.
func (g *garbage) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	for _, list := range []client.ObjectList{
		&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}, &policyv1.PodDisruptionBudgetList{},
		&appsv1.ControllerRevisionList{},
	} {
		if err := g.collect(ctx, request.NamespacedName, list); err != nil {
			return ctrl.Result{}, fmt.Errorf("simulated garbage collector: %w", err)
		}
	}
	return ctrl.Result{}, nil
}

func (g *garbage) collect(ctx context.Context, key types.NamespacedName, list client.ObjectList) error {
	if err := g.live.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return err
	}
	objects, err := objectsOf(list)
	if err != nil {
		return err
	}
	// In this order: an existing object has a Workspace, now or earlier.
	ws := &v1beta1.Workspace{}
	if err := client.IgnoreNotFound(g.live.Get(ctx, key, ws)); err != nil {
		return err
	}
	for _, object := range objects {
		owner := metav1.GetControllerOf(object)
		if owner == nil || owner.Kind != v1beta1.WorkspaceKind || owner.Name != key.Name || owner.UID == ws.UID {
			continue
		}
		uid := object.GetUID()
		err := g.client.Delete(ctx, object, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

func objectsOf(list client.ObjectList) ([]client.Object, error) {
	var out []client.Object
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("%T is not an object with metadata", item)
		}
		out = append(out, object)
		return nil
	})
	return out, err
}
