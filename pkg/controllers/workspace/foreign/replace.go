// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
)

// Cede turns KAITO's Service into the desired Service of the same name, and keeps its address. Server-side apply alone
// would keep KAITO's ports and the traffic to pods that are not ready. For objects other than Services, server-side
// apply suffices.
func (g *Guard) Cede(ctx context.Context, writer client.Writer, desired client.Object) error {
	want, isService := desired.(*corev1.Service)
	if !isService {
		return nil
	}
	found := &corev1.Service{}
	err := g.Live.Get(ctx, client.ObjectKeyFromObject(want), found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Service %s: %w", want.Name, err)
	}
	owner, wanted := metav1.GetControllerOf(found), metav1.GetControllerOf(want)
	isTheirs := found.Labels[v1beta1.LabelManagedBy] != v1beta1.ManagedBy
	if !isTheirs || owner == nil || wanted == nil || owner.UID != wanted.UID {
		return nil
	}
	after := found.DeepCopy()
	if after.Labels == nil {
		after.Labels = map[string]string{}
	}
	maps.Copy(after.Labels, want.Labels)
	after.Spec.Ports, after.Spec.Selector = want.Spec.Ports, want.Spec.Selector
	after.Spec.PublishNotReadyAddresses = want.Spec.PublishNotReadyAddresses
	patch := client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})
	err = client.IgnoreNotFound(writer.Patch(ctx, after, patch, client.FieldOwner(apply.FieldOwner)))
	if err != nil {
		return fmt.Errorf("changing Service %s: %w", want.Name, err)
	}
	return nil
}

// DeleteSet deletes KAITO's StatefulSet with its pods. This controller may delete only labeled objects, and the set has
// no label, so DeleteSet adds the label first.
func (g *Guard) DeleteSet(ctx context.Context, writer client.Writer, set *appsv1.StatefulSet) error {
	if !set.DeletionTimestamp.IsZero() {
		return nil
	}
	text := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, set.UID, v1beta1.LabelWorkspace, set.Name)
	marked := set.DeepCopy()
	err := writer.Patch(ctx, marked, client.RawPatch(types.MergePatchType, []byte(text)), client.FieldOwner(apply.FieldOwner))
	if err == nil {
		err = writer.Delete(ctx, set, client.Preconditions{UID: &set.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting KAITO's StatefulSet %s: %w", set.Name, err)
	}
	return nil
}

// ReleaseMachines deletes KAITO's machines for a Workspace, and returns the names of the remaining ones. It reads past
// the cache.
func (g *Guard) ReleaseMachines(ctx context.Context, ws *v1beta1.Workspace) ([]string, error) {
	if g.Machines == nil {
		return nil, nil
	}
	return g.Machines.Release(ctx, client.ObjectKeyFromObject(ws))
}
