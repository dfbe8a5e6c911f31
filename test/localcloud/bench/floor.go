// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeClaims and statefulSets are the controller's objects for a Workspace without which its pods would not run.
func nodeClaims() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaimList"}
}

func statefulSets() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSetList")
}

// standIns returns the objects without which the pods of each Workspace would not run.
func standIns(replays map[string]*replay) [][]*unstructured.Unstructured {
	var out [][]*unstructured.Unstructured
	for _, of := range replays {
		out = append(out, slices.Concat(of.claims, of.sets))
	}
	return out
}

func (b *Bench) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := b.kube.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
	}
	return list.Items, nil
}

// standIn returns the object without an owner and without the additions of the server and others, under other names.
func standIn(object *unstructured.Unstructured, swap map[string]string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	for _, field := range []string{"spec", "data", "revision"} { // the latter two are a ControllerRevision's
		if value, found := object.Object[field]; found {
			out.Object[field] = renamed(value, swap)
		}
	}
	for _, assigned := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(out.Object, "spec", assigned)
	}
	out.SetGroupVersionKind(object.GroupVersionKind())
	metadata := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldCopy(object.Object, "metadata", field); found {
			metadata[field] = renamed(value, swap)
		}
	}
	out.Object["metadata"] = metadata
	return out
}

// renamed is a copy of the value with other strings in place of some.
func renamed(value any, swap map[string]string) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, element := range value {
			out[key] = renamed(element, swap)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, element := range value {
			out[i] = renamed(element, swap)
		}
		return out
	case string:
		if other, ok := swap[value]; ok {
			return other
		}
	}
	return value
}

// floor measures the cluster's times for the stand-ins while no controller runs.
func (b *Bench) floor(ctx context.Context, standIns [][]*unstructured.Unstructured) error {
	b.settings.Say("the same NodeClaims and StatefulSets without the controller")
	if err := b.stopController(ctx); err != nil {
		return err
	}
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: floorNamespace}}); err != nil {
		return fmt.Errorf("making namespace %s: %w", floorNamespace, err)
	}
	if err := b.liftReservation(ctx, standIns); err != nil {
		return err
	}
	course := b.course(floorNamespace)
	b.figures.Floor = course
	return b.stage(ctx, &b.figures.FloorWork, func() error {
		err := inParallel(len(standIns), func(i int) error { return b.createAll(ctx, standIns[i]) })
		if err != nil {
			return err
		}
		return b.await(ctx, "pods ready", course.Serving, len(standIns))
	})
}

// liftReservation lets others than the controller write its objects: policies reserve the tolerations of machines and the
// record of attempts in a status. The API server takes a moment to forget a policy.
func (b *Bench) liftReservation(ctx context.Context, standIns [][]*unstructured.Unstructured) error {
	for _, policy := range []string{"attempts", "reserved"} {
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: release + "-" + policy}}
		if err := client.IgnoreNotFound(b.kube.Delete(ctx, binding)); err != nil {
			return fmt.Errorf("deleting %s: %w", binding.Name, err)
		}
	}
	return b.until(ctx, asking, func(ctx context.Context) (missing string, err error) {
		for _, object := range slices.Concat(standIns[:min(1, len(standIns))]...) {
			err := b.kube.Create(ctx, object.DeepCopy(), client.DryRunAll)
			if apierrors.IsForbidden(err) {
				return "permission to create " + object.GetKind() + " " + object.GetName(), nil
			}
			if err != nil {
				return "", fmt.Errorf("trying %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
		return "", nil
	})
}

func (b *Bench) stopController(ctx context.Context) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: release, Namespace: systemNamespace}}
	key := client.ObjectKeyFromObject(deployment)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := b.kube.Get(ctx, key, deployment); err != nil {
			return err
		}
		deployment.Spec.Replicas = new(int32)
		return b.kube.Update(ctx, deployment)
	})
	if err != nil {
		return fmt.Errorf("stopping the controller: %w", err)
	}
	return b.until(ctx, asking, func(ctx context.Context) (missing string, err error) {
		pods := &corev1.PodList{}
		if err := b.kube.List(ctx, pods, client.InNamespace(systemNamespace)); err != nil {
			return "", fmt.Errorf("listing the controller's pods: %w", err)
		}
		if len(pods.Items) > 0 {
			missing = "the controller still runs"
		}
		return missing, nil
	})
}
