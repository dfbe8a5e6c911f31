// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/takeover"
	"github.com/modelberth/modelberth/pkg/workload"
)

// RetryRelease is the interval for looking again at machines under deletion.
const RetryRelease = time.Minute

// Observation is the observed state. The first step writes it. Later steps add the machines that they request and the
// StatefulSets that they write.
type Observation struct {
	Revisions   revision.History
	StatefulSet *appsv1.StatefulSet
	Workers     *appsv1.StatefulSet
	// Group is the stored state of the serving group.
	Group workload.Group
	// KAITO holds the objects of KAITO's controller for the Workspace.
	KAITO    takeover.Holding
	Machines acquire.Machines
	// MachineKind is the name of the machines' kind in kubectl.
	MachineKind string
	Pods        []corev1.Pod
	// Endpoints are the pods that get the requests to the Service. They are not read while the Workspace is Ready.
	Endpoints []types.UID
	Nodes     []corev1.Node
	// Silence decides whether nodes that are not Ready count as lost.
	Silence nodehealth.Silence
	// Namespace has the labels and annotations of the Workspace's namespace.
	Namespace metav1.ObjectMeta
	// Warnings are the events about delayed objects whose own status gives no reason.
	Warnings []diagnosis.Warning
	// Signatures are the engines' error messages.
	Signatures diagnosis.Signatures
}

// Node returns the node of that name, or nil.
func (o *Observation) Node(name string) *corev1.Node {
	for i := range o.Nodes {
		if o.Nodes[i].Name == name {
			return &o.Nodes[i]
		}
	}
	return nil
}

// Sets returns the existing StatefulSets.
func (o *Observation) Sets() []*appsv1.StatefulSet {
	var sets []*appsv1.StatefulSet
	for _, set := range []*appsv1.StatefulSet{o.StatefulSet, o.Workers} {
		if set != nil {
			sets = append(sets, set)
		}
	}
	return sets
}

// ReplacedSets returns the existing StatefulSets, and KAITO's StatefulSet if it makes room for them.
func (o *Observation) ReplacedSets() []*appsv1.StatefulSet {
	sets := o.Sets()
	if o.KAITO.IsReplaced() {
		sets = append(sets, o.KAITO.Set)
	}
	return sets
}

// ReplacedPods returns the pods of ReplacedSets.
func (o *Observation) ReplacedPods() []corev1.Pod {
	if !o.KAITO.IsReplaced() {
		return o.Pods
	}
	return slices.Concat(o.Pods, o.KAITO.Members)
}

// IsRolledOut reports whether all pods match the observed StatefulSets.
func (o *Observation) IsRolledOut() bool {
	for _, set := range o.Sets() {
		if set.Status.ObservedGeneration != set.Generation {
			return false
		}
	}
	return !slices.ContainsFunc(o.Pods, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(o.Sets(), func(set *appsv1.StatefulSet) bool {
			return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision
		})
	})
}

// LacksPods reports whether a StatefulSet has not yet created all its pods.
func (o *Observation) LacksPods() bool {
	for _, set := range o.Sets() {
		if set.Status.ObservedGeneration == set.Generation && set.Spec.Replicas != nil && set.Status.Replicas < *set.Spec.Replicas {
			return true
		}
	}
	return false
}

// CurrentPods returns the pods that are not being deleted.
func (o *Observation) CurrentPods() []*corev1.Pod {
	var current []*corev1.Pod
	for i := range o.Pods {
		if pod := &o.Pods[i]; pod.DeletionTimestamp.IsZero() {
			current = append(current, pod)
		}
	}
	return current
}

// RevisionOf returns the revision of a StatefulSet, or nil.
func (o *Observation) RevisionOf(set *appsv1.StatefulSet) *revision.Revision {
	if set == nil {
		return nil
	}
	return o.Revisions.Named(set.Annotations[v1beta1.AnnotationRevision])
}

// WaitForRelease returns a wait that ends after a while even if the event of a machine's end is missed.
func (o *Observation) WaitForRelease(names []string) error {
	return &progress.WaitingError{
		Message: fmt.Sprintf("waiting for machines to be deleted: %s; if one is stuck, kubectl describe %s shows why",
			strings.Join(names, ", "), o.MachineKind),
		After: RetryRelease,
	}
}
