// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Cluster is the input of a survey.
type Cluster struct {
	Workspaces   []v1beta1.Workspace
	StatefulSets []appsv1.StatefulSet
	Deployments  []appsv1.Deployment
	Services     []corev1.Service
	// NodePools and NodeClaims are objects of Karpenter. Webhooks are ValidatingWebhookConfigurations, and Definitions are
	// CustomResourceDefinitions.
	NodePools, NodeClaims, Webhooks, Definitions []unstructured.Unstructured
}

// Price returns the price of a machine type in USD per hour, and whether it is known.
type Price func(instanceType, region string, isSpot bool) (float64, bool)

// Mode is how KAITO gets machines.
type Mode string

// The modes.
const (
	Karpenter      Mode = "karpenter"
	GPUProvisioner Mode = "gpu-provisioner"
	OwnNodes       Mode = "own nodes"
)

// Machine is a machine of KAITO's controller.
type Machine struct {
	Name         string `json:"name"`
	Node         string `json:"node,omitempty"`
	InstanceType string `json:"instanceType,omitempty"`
	CapacityType string `json:"capacityType,omitempty"`
	// HourlyPrice is the price in the catalogue, in USD per hour; absent if it is unknown.
	HourlyPrice *float64 `json:"hourlyPrice,omitempty"`
}

// Entry is a Workspace of KAITO's controller.
type Entry struct {
	Namespace    string `json:"namespace"`
	Name         string `json:"name"`
	InferenceSet string `json:"inferenceSet,omitempty"`
	// State is Frozen, Edited or Replaced after a takeover; otherwise it is empty.
	State State `json:"state,omitempty"`
	Mode  Mode  `json:"mode"`
	// Workload is the kind and name of the StatefulSet or Deployment, and Pods the number of its pods.
	Workload  string    `json:"workload,omitempty"`
	Pods      int       `json:"pods,omitempty"`
	Services  []string  `json:"services,omitempty"`
	NodePools []string  `json:"nodePools,omitempty"`
	Machines  []Machine `json:"machines,omitempty"`
	// HourlyPrice is the price of all machines with a known price, in USD per hour.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Replaced and Changed are the objects that the first edit replaces or changes. Deleted are the objects that are
	// deleted once the edit is complete. Until the first edit, all objects and labels stay as they are.
	Replaced []string `json:"replacedByFirstEdit,omitempty"`
	Changed  []string `json:"changedByFirstEdit,omitempty"`
	Deleted  []string `json:"deletedAfterFirstEdit,omitempty"`
}

// Report is the result of a survey.
type Report struct {
	Workspaces []Entry    `json:"workspaces"`
	Obstacles  []Obstacle `json:"obstacles"`
	// HourlyPrice is the price of all machines with a known price, in USD per hour.
	HourlyPrice float64 `json:"hourlyPrice"`
	// Uninstall are the steps to remove KAITO's controller without its serving objects.
	Uninstall []Step `json:"uninstall"`
}

// Survey lists the Workspaces of KAITO's controller, sorted by namespace and name.
func Survey(c *Cluster, price Price) *Report {
	out := &Report{Workspaces: []Entry{}, Obstacles: []Obstacle{}, Uninstall: []Step{}}
	for i := range c.Workspaces {
		ws := &c.Workspaces[i]
		entry, isKAITOs := c.entry(ws, price)
		if !isKAITOs {
			continue
		}
		out.Workspaces = append(out.Workspaces, entry)
		out.HourlyPrice += entry.HourlyPrice
		out.Obstacles = append(out.Obstacles, ofWorkspace(ws, &entry)...)
	}
	slices.SortFunc(out.Workspaces, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(out.Obstacles, func(a, b Obstacle) int { return cmp.Compare(a.Object, b.Object) })
	out.Obstacles = append(c.obstacles(), out.Obstacles...)
	out.Uninstall = c.uninstall()
	return out
}

// entry describes one Workspace. It returns false if KAITO's controller made nothing for the Workspace.
func (c *Cluster) entry(ws *v1beta1.Workspace, price Price) (Entry, bool) {
	key := types.NamespacedName{Namespace: ws.Namespace, Name: ws.Name}
	out := Entry{
		Namespace: ws.Namespace, Name: ws.Name, InferenceSet: ws.Labels[v1beta1.LabelInferenceSet], Mode: OwnNodes,
	}
	for i := range c.StatefulSets {
		if isTheirs(&c.StatefulSets[i], ws) && c.StatefulSets[i].Name == ws.Name {
			out.Workload, out.Pods = "StatefulSet "+ws.Name, replicas(c.StatefulSets[i].Spec.Replicas)
		}
	}
	for i := range c.Deployments {
		if isTheirs(&c.Deployments[i], ws) {
			out.Workload, out.Pods = "Deployment "+c.Deployments[i].Name, replicas(c.Deployments[i].Spec.Replicas)
		}
	}
	for i := range c.Services {
		if isTheirs(&c.Services[i], ws) {
			out.Services = append(out.Services, c.Services[i].Name)
		}
	}
	for i := range c.NodePools {
		if IsPool(&c.NodePools[i], key) {
			out.NodePools, out.Mode = append(out.NodePools, c.NodePools[i].GetName()), Karpenter
		}
	}
	for i := range c.NodeClaims {
		claim := &c.NodeClaims[i]
		switch {
		case IsPoolClaim(claim, key):
			out.Mode = Karpenter
		case IsAgentClaim(claim, key):
			out.Mode = GPUProvisioner
		default:
			continue
		}
		out.add(machineOf(claim, price))
	}
	out.State = c.stateOf(ws, &out)
	out.finish()
	return out, out.Workload != "" || len(out.NodePools)+len(out.Machines) > 0
}

// stateOf returns a Workspace's state. It is Replaced if KAITO's workload is gone and this controller has pods for the
// Workspace, or a plan for them, because KAITO's pods are removed just before.
func (c *Cluster) stateOf(ws *v1beta1.Workspace, entry *Entry) State {
	state := StateOf(ws)
	if state == Unadopted || entry.Workload != "" {
		return state
	}
	hasOurs := slices.ContainsFunc(c.StatefulSets, func(set appsv1.StatefulSet) bool {
		return set.Namespace == ws.Namespace && metav1.IsControlledBy(&set, ws) && set.Labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy
	})
	if hasOurs || ws.Status.Plan != nil {
		return Replaced
	}
	return state
}

// replicas returns the number of replicas, which is 1 by default.
func replicas(number *int32) int {
	if number == nil {
		return 1
	}
	return int(*number)
}

func (e *Entry) add(machine Machine) {
	e.Machines = append(e.Machines, machine)
	if machine.HourlyPrice != nil {
		e.HourlyPrice += *machine.HourlyPrice
	}
}

// finish sorts the lists, and lists the effects of an edit.
func (e *Entry) finish() {
	slices.Sort(e.Services)
	slices.Sort(e.NodePools)
	slices.SortFunc(e.Machines, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	if e.Workload != "" {
		e.Replaced = append(e.Replaced, e.Workload)
	}
	for _, name := range e.Services {
		e.Changed = append(e.Changed, "Service "+name)
	}
	for _, name := range e.NodePools {
		e.Deleted = append(e.Deleted, "NodePool "+name)
	}
	for i := range e.Machines {
		e.Deleted = append(e.Deleted, "NodeClaim "+e.Machines[i].Name)
	}
}

// isTheirs reports whether KAITO's controller made an object for a Workspace.
func isTheirs(object metav1.Object, ws *v1beta1.Workspace) bool {
	return object.GetNamespace() == ws.Namespace && metav1.IsControlledBy(object, ws) &&
		object.GetLabels()[v1beta1.LabelManagedBy] != v1beta1.ManagedBy
}

// machineOf describes a NodeClaim. Before it has a machine, it has no labels for the machine type; then its
// requirements name the type.
func machineOf(claim *unstructured.Unstructured, price Price) Machine {
	labels := claim.GetLabels()
	node, _, _ := unstructured.NestedString(claim.Object, "status", "nodeName")
	out := Machine{
		Name: claim.GetName(), Node: node, CapacityType: labels["karpenter.sh/capacity-type"],
		InstanceType: cmp.Or(labels[corev1.LabelInstanceTypeStable], requiredType(claim)),
	}
	if known, isKnown := price(out.InstanceType, labels[corev1.LabelTopologyRegion], out.CapacityType == "spot"); isKnown {
		out.HourlyPrice = &known
	}
	return out
}

func requiredType(claim *unstructured.Unstructured) string {
	requirements, _, _ := unstructured.NestedSlice(claim.Object, "spec", "requirements")
	for _, each := range requirements {
		requirement, isMap := each.(map[string]any)
		values, _, _ := unstructured.NestedStringSlice(requirement, "values")
		if isMap && requirement["key"] == corev1.LabelInstanceTypeStable && len(values) == 1 {
			return values[0]
		}
	}
	return ""
}
