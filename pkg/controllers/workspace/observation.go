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

// observation is what is there. The step that observes writes it; the machines that a pass asks for and the StatefulSets
// that it writes are added.
type observation struct {
	revisions   revisions.History
	statefulSet *appsv1.StatefulSet
	workers     *appsv1.StatefulSet
	// group is what is remembered of the group that serves.
	group workload.Group
	// kaitoSet is the StatefulSet that KAITO's controller made, and kaito names all by which the Workspace is KAITO's.
	kaitoSet *appsv1.StatefulSet
	kaito    []string
	machines acquire.Machines
	// machineKind is what stands for a machine, as kubectl calls it.
	machineKind string
	pods        []corev1.Pod
	nodes       []corev1.Node
	// silence is what it means that nodes are not Ready.
	silence nodehealth.Silence
	// namespace is the metadata of the Workspace's namespace, as far as it decides something.
	namespace metav1.ObjectMeta
	// warnings are what was published about what says nothing of itself.
	warnings []diagnosis.Warning
	// words are how engines say what is wrong.
	words diagnosis.Words
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

// sets are the StatefulSets that are there.
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

// currentPods are those that are not on their way out.
func (o *observation) currentPods() []*corev1.Pod {
	var current []*corev1.Pod
	for i := range o.pods {
		if pod := &o.pods[i]; pod.DeletionTimestamp.IsZero() {
			current = append(current, pod)
		}
	}
	return current
}

// revisionOf returns the revision that a set was made from, or nil.
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
