// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	"github.com/klauspost/compress/s2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// packedTemplate is the annotation of a packed pod template: the template itself, compressed. No object in the cluster
// has it.
const packedTemplate = "modelberth.dev/packed-template"

// Pack is the transform of a cache of StatefulSets. It compresses their pod templates, which are large and seldom read, to
// a fifth of the memory. It changes only objects with a template, so repeating it changes nothing.
func Pack(object any) (any, error) {
	set, ok := object.(*appsv1.StatefulSet)
	if !ok || len(set.Spec.Template.Spec.Containers) == 0 {
		return object, nil
	}
	encoded, err := set.Spec.Template.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encoding the pod template of StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	set.Spec.Template = corev1.PodTemplateSpec{}
	// The string is a copy without spare capacity.
	set.Spec.Template.Annotations = map[string]string{packedTemplate: string(s2.EncodeBetter(nil, encoded))}
	return set, nil
}

// Unpack restores the pod template of a packed StatefulSet. It replaces the template, and changes nothing that another
// copy of the StatefulSet may share.
func Unpack(set *appsv1.StatefulSet) error {
	packed, isPacked := set.Spec.Template.Annotations[packedTemplate]
	// The API server accepts no template without containers, so no user can pass bytes for the decoder.
	if !isPacked || len(set.Spec.Template.Spec.Containers) > 0 {
		return nil
	}
	encoded, err := s2.Decode(nil, []byte(packed))
	if err == nil {
		set.Spec.Template = corev1.PodTemplateSpec{}
		err = set.Spec.Template.Unmarshal(encoded)
	}
	if err != nil {
		return fmt.Errorf("decoding the pod template of StatefulSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}
