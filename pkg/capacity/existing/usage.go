// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package existing

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// amount is an amount of resources: GPUs, thousandths of a CPU, bytes of memory and of disk, and MIG slices by
// profile. Slices of the profile "" count for every profile.
type amount struct {
	gpus, millis, memory, disk int64
	slices                     map[string]int64
}

// amountOf returns the amount in a list of resources.
func amountOf(list corev1.ResourceList) amount {
	gpus, cpu := list[gpuResource], list[corev1.ResourceCPU]
	memory, disk := list[corev1.ResourceMemory], list[corev1.ResourceEphemeralStorage]
	out := amount{gpus: gpus.Value(), millis: cpu.MilliValue(), memory: memory.Value(), disk: disk.Value()}
	for name, quantity := range list {
		profile, isSlice := strings.CutPrefix(string(name), sliceResource)
		if !isSlice || quantity.IsZero() {
			continue
		}
		if out.slices == nil {
			out.slices = map[string]int64{}
		}
		out.slices[profile] = quantity.Value()
	}
	return out
}

// freeSlices returns how many slices of a profile are left after use.
func (a amount) freeSlices(profile string, used amount) int {
	return int(max(a.slices[profile]-used.slices[profile]-used.slices[""], 0))
}

func (a amount) plus(b amount) amount {
	return amount{
		a.gpus + b.gpus, a.millis + b.millis, a.memory + b.memory, a.disk + b.disk,
		joined(a.slices, b.slices, func(x, y int64) int64 { return x + y }),
	}
}

// less returns the difference without slices, never below zero.
func (a amount) less(b amount) amount {
	return amount{
		gpus: max(a.gpus-b.gpus, 0), millis: max(a.millis-b.millis, 0), memory: max(a.memory-b.memory, 0), disk: max(a.disk-b.disk, 0),
	}
}

// most returns the larger of two amounts, for each resource.
func (a amount) most(b amount) amount {
	return amount{
		max(a.gpus, b.gpus), max(a.millis, b.millis), max(a.memory, b.memory), max(a.disk, b.disk),
		joined(a.slices, b.slices, func(x, y int64) int64 { return max(x, y) }),
	}
}

// joined combines numbers of slices by profile; nil if there are none.
func joined(a, b map[string]int64, by func(x, y int64) int64) map[string]int64 {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(b)
	for profile, number := range a {
		out[profile] = by(number, b[profile])
	}
	return out
}

// Use is one pod's share of a node.
type Use struct {
	// Node, Namespace and Workspace of the pod. Workspace is empty for other pods.
	Node, Namespace, Workspace string

	amount amount
}

// UseOf returns a pod's share of a node; false if it has none. A pod has its share until it has ended. A preempting
// pod already has its share of the nominated node.
func UseOf(pod *corev1.Pod) (Use, bool) {
	node := pod.Spec.NodeName
	if node == "" {
		node = pod.Status.NominatedNodeName
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if node == "" || ended {
		return Use{}, false
	}
	return Use{
		Node: node, Namespace: pod.Namespace, Workspace: pod.Labels[v1beta1.LabelWorkspace], amount: requested(&pod.Spec),
	}, true
}

// taken returns the share of others on each node. A Workspace that has a promise, but no pod there yet, counts with
// its promise.
func taken(uses []Use, ask Ask) map[string]amount {
	type place struct{ node, namespace, workspace string }
	arrived, out := map[place]bool{}, map[string]amount{}
	for _, use := range uses {
		arrived[place{use.Node, use.Namespace, use.Workspace}] = true
		if ask.Owner.Name == "" || use.Namespace != ask.Owner.Namespace || use.Workspace != ask.Owner.Name {
			out[use.Node] = out[use.Node].plus(use.amount)
		}
	}
	for i := range ask.Promised {
		promised := &ask.Promised[i]
		for _, node := range promised.Nodes {
			at := place{node, promised.Owner.Namespace, promised.Owner.Name}
			if promised.Owner.UID != ask.Owner.UID && !arrived[at] {
				arrived[at] = true // a Workspace with two promises for a node counts once
				out[node] = out[node].plus(promised.amount())
			}
		}
	}
	return out
}

// requested returns a pod's requests as the scheduler counts them. It takes the larger of two amounts: all containers
// with all sidecars, or an init container with the sidecars that started before it. Then it adds the pod's overhead.
// Requests of the pod as a whole replace the containers' CPU and memory.
func requested(pod *corev1.PodSpec) amount {
	var sidecars, peak, running amount
	for i := range pod.InitContainers {
		c := &pod.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.plus(of(&c.Resources))
			peak = peak.most(sidecars)
			continue
		}
		peak = peak.most(sidecars.plus(of(&c.Resources)))
	}
	running = sidecars
	for i := range pod.Containers {
		running = running.plus(of(&pod.Containers[i].Resources))
	}
	out := running.most(peak)
	if pod.Resources != nil {
		whole := of(pod.Resources)
		if whole.millis > 0 {
			out.millis = whole.millis
		}
		if whole.memory > 0 {
			out.memory = whole.memory
		}
	}
	return out.plus(amountOf(pod.Overhead))
}

// of returns a container's requests. A limit without a request counts as a request.
func of(r *corev1.ResourceRequirements) amount {
	all := corev1.ResourceList{}
	maps.Copy(all, r.Limits)
	maps.Copy(all, r.Requests)
	return amountOf(all)
}
