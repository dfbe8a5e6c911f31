// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// observeNamespace reads the labels and annotations of the Workspace's namespace from the cache.
func (r *Reconciler) observeNamespace(ctx context.Context, s *scope) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := client.IgnoreNotFound(r.Client.Get(ctx, client.ObjectKey{Name: s.ws.Namespace}, object)); err != nil {
		return fmt.Errorf("reading namespace %s: %w", s.ws.Namespace, err)
	}
	s.namespace = object.ObjectMeta
	return nil
}
