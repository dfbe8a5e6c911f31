// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclaim

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
)

// Class reads the state of a node class from the API server. If the class may not be read, or if its kind is not
// served, the state is ClassNotSeen, which excludes nothing.
func (p *Provisioner) Class(ctx context.Context, ref v1beta1.NodeClassReference) (refusal.ClassState, string, error) {
	if profileOf(ref) == gpuProvisioner {
		return refusal.ClassNotSeen, "", nil // gpu-provisioner uses only its kind, and the object need not exist
	}
	mapping, err := p.cached.RESTMapper().RESTMapping(schema.GroupKind{Group: ref.Group, Kind: ref.Kind})
	if meta.IsNoMatchError(err) {
		return refusal.ClassNotSeen, "", nil
	}
	if err != nil {
		return refusal.ClassNotSeen, "", fmt.Errorf("finding the resource of node class %s: %w", ref.Name, err)
	}
	class := &unstructured.Unstructured{}
	class.SetGroupVersionKind(mapping.GroupVersionKind)
	err = p.live.Get(ctx, client.ObjectKey{Name: ref.Name}, class)
	switch {
	case apierrors.IsNotFound(err):
		return refusal.ClassMissing, fmt.Sprintf("%s %q does not exist", ref.Kind, ref.Name), nil
	case apierrors.IsForbidden(err):
		return refusal.ClassNotSeen, "", nil
	case err != nil:
		return refusal.ClassNotSeen, "", fmt.Errorf("reading %s %q: %w", ref.Kind, ref.Name, err)
	}
	state, message := readiness(class)
	return state, message, nil
}

// readiness reads the condition Ready; without one, the state is unknown.
func readiness(class *unstructured.Unstructured) (refusal.ClassState, string) {
	conditions, _, err := unstructured.NestedSlice(class.Object, "status", "conditions")
	if err != nil {
		return refusal.ClassNotSeen, ""
	}
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if !ok || condition["type"] != "Ready" {
			continue
		}
		if condition["status"] == "True" {
			return refusal.ClassReady, ""
		}
		return refusal.ClassNotReady, fmt.Sprintf("%s %q: %v", class.GetKind(), class.GetName(), condition["message"])
	}
	return refusal.ClassNotSeen, ""
}
