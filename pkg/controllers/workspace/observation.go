// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/progress"
	revisions "github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/workload"
)

// observation is the observed state. One step writes it; later steps add the machines they request and the
// StatefulSets they write.
type observation struct {
	revisions   revisions.History
	statefulSet *appsv1.StatefulSet
	workers     *appsv1.StatefulSet
	// group is the stored state of the serving group.
	group workload.Group
	// kaitoSet is the StatefulSet of KAITO's controller, and kaito names all objects that make the Workspace KAITO's.
	kaitoSet *appsv1.StatefulSet
	kaito    []string
	machines acquire.Machines
	// machineKind is kubectl's name for the machines' objects.
	machineKind string
	pods        []corev1.Pod
	nodes       []corev1.Node
	// silence is the meaning of nodes that are not Ready.
	silence nodehealth.Silence
	// namespace is the metadata of the Workspace's namespace, as far as it decides something.
	namespace metav1.ObjectMeta
	// warnings are events about silent objects.
	warnings []diagnosis.Warning
	// words are the engines' error messages.
	words diagnosis.Signatures
}

// node returns the node of that name, or nil.
func (o *observation) node(name string) *corev1.Node {
	for i := range o.nodes {
		if o.nodes[i].Name == name {
			return &o.nodes[i]
		}
	}
	return nil
}

// sets returns the existing StatefulSets.
func (o *observation) sets() []*appsv1.StatefulSet {
	var sets []*appsv1.StatefulSet
	for _, set := range []*appsv1.StatefulSet{o.statefulSet, o.workers} {
		if set != nil {
			sets = append(sets, set)
		}
	}
	return sets
}

// isRolledOut says whether the pods are those of the sets as they were read.
func (o *observation) isRolledOut() bool {
	for _, set := range o.sets() {
		if set.Status.ObservedGeneration != set.Generation {
			return false
		}
	}
	return !slices.ContainsFunc(o.pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(o.sets(), func(set *appsv1.StatefulSet) bool {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
		})
	})
}

// lacksPods reports whether pods of a set have not been created.
func (o *observation) lacksPods() bool {
	for _, set := range o.sets() {
		if set.Status.ObservedGeneration == set.Generation && set.Spec.Replicas != nil && set.Status.Replicas < *set.Spec.Replicas {
			return true
		}
	}
	return false
}

// currentPods returns the pods that are not being deleted.
func (o *observation) currentPods() []*corev1.Pod {
	var current []*corev1.Pod
	for i := range o.pods {
		if pod := &o.pods[i]; pod.DeletionTimestamp.IsZero() {
			current = append(current, pod)
		}
	}
	return current
}

// revisionOf returns the revision of a set, or nil.
func (o *observation) revisionOf(set *appsv1.StatefulSet) *revision {
	if set == nil {
		return nil
	}
	return o.revisions.Named(set.Annotations[v1beta1.AnnotationRevision])
}

// waitForRelease looks again after a while, should the event of a machine's end be missed.
func (o *observation) waitForRelease(names []string) error {
	return &progress.WaitingError{
		Message: fmt.Sprintf("waiting for machines to be deleted: %s; if one is stuck, kubectl describe %s shows why",
			strings.Join(names, ", "), o.machineKind),
		After: retryRelease,
	}
}
