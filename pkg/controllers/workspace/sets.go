// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/modelberth/modelberth/pkg/group"
)

func deleteSet(ctx context.Context, from client.Writer, set *appsv1.StatefulSet) error {
	if !set.DeletionTimestamp.IsZero() {
		return nil
	}
	err := from.Delete(ctx, set, client.Preconditions{UID: &set.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting StatefulSet %s: %w", set.Name, err)
	}
	return nil
}

func deleteSets(ctx context.Context, from client.Writer, sets []*appsv1.StatefulSet) error {
	for _, set := range sets {
		if err := deleteSet(ctx, from, set); err != nil {
			return err
		}
	}
	return nil
}

// deletePods deletes pods by their UIDs: the cache may lag behind their successors.
func deletePods(ctx context.Context, from client.Writer, namespace string, pods []group.Leaving, why string) error {
	for _, leaving := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaving.Name}}
		err := from.Delete(ctx, pod, &client.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &leaving.UID}, GracePeriodSeconds: leaving.GraceSeconds,
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s: %w", leaving.Name, err)
		}
		log.FromContext(ctx).Info("deleted a pod", "pod", leaving.Name, "reason", why)
	}
	return nil
}
