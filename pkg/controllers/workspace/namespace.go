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

// observeNamespace reads the labels and annotations of a namespace.
func observeNamespace(ctx context.Context, from client.Reader, name string) (metav1.ObjectMeta, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := client.IgnoreNotFound(from.Get(ctx, client.ObjectKey{Name: name}, object)); err != nil {
		return metav1.ObjectMeta{}, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	return object.ObjectMeta, nil
}
