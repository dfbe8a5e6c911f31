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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/workload"
)

// asked is the request of a pod. The pod's annotation has it, so the pods in the cluster suffice to list all machines.
type asked struct {
	Attempt      int32                `json:"attempt"`
	InstanceType string               `json:"instanceType"`
	CapacityType v1beta1.CapacityType `json:"capacityType,omitempty"`
	// HourlyPrice of the machine in USD; absent if unknown. It is for people. The controller never reads it, because
	// anybody with write access to the pod can change it. It stays, because its removal would change the template and
	// replace running pods.
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
}

// askedOf returns the request in a pod's annotations; false if the pod requests no machine.
func askedOf(annotations map[string]string) (asked, bool) {
	var out asked
	text := annotations[v1beta1.AnnotationMachine]
	if text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return asked{}, false
	}
	return out, true
}

// slot is one machine: an ordinal of a requesting StatefulSet, with its pod if there is one.
type slot struct {
	owner   capacity.Owner
	ordinal int
	asked   asked
	// setUID identifies the StatefulSet even after it is gone. Then set is nil.
	setUID types.UID
	set    *appsv1.StatefulSet
	pod    *corev1.Pod
	// isLeaving is set if no other pod will take the pod's place.
	isLeaving bool
}

func (s *slot) name() string { return nameOf(s.owner, s.asked.Attempt, s.ordinal) }

// uid returns an identifier that stays the same if one pod replaces another.
func (s *slot) uid() types.UID { return s.setUID + types.UID("-"+strconv.Itoa(s.ordinal)) }

// mostMachines is the largest resource.count of the API. A StatefulSet with more replicas is not a Workspace's.
const mostMachines = 1000

// isPod reports whether a pod is the StatefulSet's pod for its slot.
func (s *slot) isPod(pod *corev1.Pod) bool {
	return pod.Namespace == s.set.Namespace && pod.Name == s.set.Name+"-"+strconv.Itoa(s.ordinal)
}

// slotsIn returns the slots by ordinal. Within an ordinal, leaving slots come last. If the Workspace of a StatefulSet
// is not live, the set has one slot, whatever its size: enough to find the owner.
func slotsIn(sets []appsv1.StatefulSet, pods []corev1.Pod, isLive func(capacity.Owner) bool) []slot {
	var out []slot
	for i := range sets {
		out = append(out, slotsOfSet(&sets[i], isLive)...)
	}
	at := make(map[types.UID]int, len(out))
	for i := range out {
		at[out[i].uid()] = i
	}
	for i := range pods {
		alone, isAsking := slotOfPod(&pods[i])
		if !isAsking {
			continue
		}
		if known, ok := at[alone.uid()]; ok {
			if out[known].isPod(alone.pod) {
				out[known].pod = alone.pod
			}
			continue // another pod only claims to be of that set
		}
		out = append(out, alone)
	}
	slices.SortStableFunc(out, func(a, b slot) int {
		return cmp.Or(cmp.Compare(a.ordinal, b.ordinal), cmp.Compare(rank(a), rank(b)), strings.Compare(a.name(), b.name()))
	})
	return out
}

// slotsOfSet returns the machines that a StatefulSet requests.
func slotsOfSet(set *appsv1.StatefulSet, isLive func(capacity.Owner) bool) []slot {
	what, isAsking := askedOf(set.Spec.Template.Annotations)
	owner, isOwned := ownerOf(set)
	if !isAsking || !isOwned || set.Spec.Replicas == nil {
		return nil
	}
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	end := min(first+int(*set.Spec.Replicas), mostMachines)
	if !isLive(owner) {
		end = min(end, first+1)
	}
	var out []slot
	for ordinal := first; ordinal < end; ordinal++ {
		out = append(out, slot{
			owner: owner, ordinal: ordinal, asked: what, setUID: set.UID, set: set, isLeaving: !set.DeletionTimestamp.IsZero(),
		})
	}
	return out
}

// ownerOf returns the Workspace that owns a StatefulSet; false if this controller did not create the set.
func ownerOf(set *appsv1.StatefulSet) (capacity.Owner, bool) {
	controller := metav1.GetControllerOf(set)
	if controller == nil || controller.Kind != "Workspace" || !workload.IsSetOf(controller.Name, set.Name) {
		return capacity.Owner{}, false
	}
	group, err := schema.ParseGroupVersion(controller.APIVersion)
	if err != nil || group.Group != v1beta1.GroupVersion().Group {
		return capacity.Owner{}, false
	}
	return capacity.Owner{Namespace: set.Namespace, Name: controller.Name, UID: controller.UID}, true
}

func rank(s slot) int {
	if s.isLeaving {
		return 1
	}
	return 0
}

// slotOfPod returns the slot of a pod without its set. It returns false if the pod requests no machine, or if its name
// does not belong to a StatefulSet of its Workspace.
func slotOfPod(pod *corev1.Pod) (slot, bool) {
	what, isAsking := askedOf(pod.Annotations)
	set, ordinal, hasOrdinal := ordinalOf(pod)
	owner := capacity.Owner{
		Namespace: pod.Namespace, Name: pod.Labels[v1beta1.LabelWorkspace], UID: types.UID(pod.Labels[v1beta1.LabelWorkspaceUID]),
	}
	if !isAsking || !hasOrdinal || owner.UID == "" || !workload.IsSetOf(owner.Name, set) {
		return slot{}, false
	}
	out := slot{owner: owner, ordinal: ordinal, asked: what, setUID: pod.UID, pod: pod, isLeaving: !pod.DeletionTimestamp.IsZero()}
	if controller := metav1.GetControllerOf(pod); controller != nil {
		out.setUID, out.isLeaving = controller.UID, true
	}
	return out, true
}

// ordinalOf returns the name of the StatefulSet and the ordinal in a pod's name.
func ordinalOf(pod *corev1.Pod) (set string, ordinal int, ok bool) {
	at := strings.LastIndex(pod.Name, "-")
	if at < 0 {
		return "", 0, false
	}
	ordinal, err := strconv.Atoi(pod.Name[at+1:])
	return pod.Name[:at], ordinal, err == nil && ordinal >= 0 && ordinal < mostMachines
}
