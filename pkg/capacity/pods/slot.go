// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
)

// asked is what a pod asks for. It is written on the pod, so that what is held can be told from the cluster
// alone.
type asked struct {
	Attempt      int32                `json:"attempt"`
	InstanceType string               `json:"instanceType"`
	CapacityType v1beta1.CapacityType `json:"capacityType,omitempty"`
	// HourlyPrice of the machine in USD; absent where it is not known.
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
}

// askedOf reads it; false where a pod asks for no machine.
func askedOf(annotations map[string]string) (asked, bool) {
	var out asked
	text := annotations[v1beta1.AnnotationMachine]
	if text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return asked{}, false
	}
	return out, true
}

// slot is one machine: an ordinal of a StatefulSet that asks, and its pod where there is one.
type slot struct {
	owner   capacity.Owner
	ordinal int
	asked   asked
	// setUID tells the set, also after it is gone; set is nil then.
	setUID types.UID
	set    *appsv1.StatefulSet
	pod    *corev1.Pod
	// isLeaving says that the pod has no successor.
	isLeaving bool
}

func (s *slot) name() string { return nameOf(s.owner, s.asked.Attempt, s.ordinal) }

// uid stays what it is when a pod takes the place of another one.
func (s *slot) uid() types.UID { return s.setUID + types.UID("-"+strconv.Itoa(s.ordinal)) }

// slotsIn returns what is held, by ordinal, what leaves last.
func slotsIn(sets []appsv1.StatefulSet, pods []corev1.Pod) []slot {
	var out []slot
	for i := range sets {
		set := &sets[i]
		what, isAsking := askedOf(set.Spec.Template.Annotations)
		owner := metav1.GetControllerOf(set)
		if !isAsking || owner == nil || set.Spec.Replicas == nil {
			continue
		}
		first := 0
		if set.Spec.Ordinals != nil {
			first = int(set.Spec.Ordinals.Start)
		}
		for ordinal := first; ordinal < first+int(*set.Spec.Replicas); ordinal++ {
			out = append(out, slot{
				owner:   capacity.Owner{Namespace: set.Namespace, Name: owner.Name, UID: owner.UID},
				ordinal: ordinal, asked: what, setUID: set.UID, set: set, isLeaving: !set.DeletionTimestamp.IsZero(),
			})
		}
	}
	for i := range pods {
		out = place(out, &pods[i])
	}
	slices.SortStableFunc(out, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(rank(a), rank(b)), strings.Compare(a.name(), b.name()))
	})
	return out
}

func rank(s slot) int {
	if s.isLeaving {
		return 1
	}
	return 0
}

// place puts a pod into its slot, or into one of its own where its set is gone.
func place(slots []slot, pod *corev1.Pod) []slot {
	what, isAsking := askedOf(pod.Annotations)
	ordinal, hasOrdinal := ordinalOf(pod)
	uid := types.UID(pod.Labels[v1beta1.LabelWorkspaceUID])
	if !isAsking || !hasOrdinal || uid == "" {
		return slots
	}
	alone := slot{
		owner:   capacity.Owner{Namespace: pod.Namespace, Name: pod.Labels[v1beta1.LabelWorkspace], UID: uid},
		ordinal: ordinal, asked: what, setUID: pod.UID, pod: pod, isLeaving: !pod.DeletionTimestamp.IsZero(),
	}
	if controller := metav1.GetControllerOf(pod); controller != nil {
		for i := range slots {
			if slots[i].setUID == controller.UID && slots[i].ordinal == ordinal {
				slots[i].pod = pod
				return slots
			}
		}
		alone.setUID, alone.isLeaving = controller.UID, true
	}
	return append(slots, alone)
}

// ordinalOf is the number that a StatefulSet gives its pod, with which its name ends.
func ordinalOf(pod *corev1.Pod) (int, bool) {
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndex(pod.Name, "-")+1:])
	return ordinal, err == nil
}
