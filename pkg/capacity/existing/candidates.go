// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package existing finds the nodes of a cluster that a Workspace may use without a purchase: the matching nodes, their
// free room, and the reasons why some cannot be used.
//
// It decides from given objects, and must not read or write any. It must not depend on models or on how plans are
// computed: the planner chooses the nodes. A Book keeps its promises until the cluster shows them, so two Workspaces
// are not planned onto the same GPUs.
package existing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/sku"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// gpuResource is the resource of NVIDIA's device plugin.
const gpuResource corev1.ResourceName = "nvidia.com/gpu"

// sliceResource begins the names of the resources for MIG slices.
const sliceResource = "nvidia.com/mig-"

// labelGPUPresent is a label of every node on which GPU feature discovery found a GPU.
const labelGPUPresent = "nvidia.com/gpu.product"

// Ask describes the requested nodes and the Workspace.
type Ask struct {
	// Owner is the Workspace. The resources of its own pods count as free, because their successors replace them.
	Owner capacity.Owner
	// Selector of nodes; nil means all nodes with GPUs.
	Selector *metav1.LabelSelector
	// Preferred are the names of preferred nodes.
	Preferred []string
	// Pod has the pods' requirements for nodes: tolerations, node selector and affinity.
	Pod corev1.PodSpec
	// Left are the nodes to avoid now, with reasons.
	Left map[string]string
	// Promised are the promises of other Workspaces.
	Promised []Promise
	// Unseen is set if it is unknown which pods use the nodes.
	Unseen bool
}

// Catalogue describes a node's hardware.
type Catalogue interface {
	Identify(n sku.Node) (sku.Machine, error)
}

// Candidates returns the matching nodes, by name: their hardware, their free room, and the reason against their use.
// uses are the shares of all pods on these nodes. The nodes are not changed.
func Candidates(nodes []corev1.Node, uses []Use, known Catalogue, ask Ask) ([]planner.Node, error) {
	matches, err := selector(ask.Selector)
	if err != nil {
		return nil, err
	}
	used := taken(uses, ask)
	var out []planner.Node
	for i := range nodes {
		if node := &nodes[i]; isMeant(node, matches) {
			out = append(out, candidates(node, used[node.Name], known, ask)...)
		}
	}
	slices.SortStableFunc(out, func(a, b planner.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Matches reports whether a selector matches a node; nil matches all nodes with GPUs.
func Matches(node *corev1.Node, of *metav1.LabelSelector) bool {
	matches, err := selector(of)
	return err == nil && isMeant(node, matches)
}

func isMeant(node *corev1.Node, matches labels.Selector) bool {
	return matches.Matches(labels.Set(node.Labels)) && (!matches.Empty() || hasGPU(node))
}

// selector returns a user's selector without the labels for the owner of a machine, because only the controller sets
// those.
func selector(of *metav1.LabelSelector) (labels.Selector, error) {
	if of == nil {
		return labels.Everything(), nil
	}
	reserved, plain := v1beta1.ReservedSelectorKeys(), metav1.LabelSelector{MatchLabels: map[string]string{}}
	for key, value := range of.MatchLabels {
		if !slices.Contains(reserved, key) {
			plain.MatchLabels[key] = value
		}
	}
	for _, expression := range of.MatchExpressions {
		if !slices.Contains(reserved, expression.Key) {
			plain.MatchExpressions = append(plain.MatchExpressions, expression)
		}
	}
	out, err := metav1.LabelSelectorAsSelector(&plain)
	if err != nil {
		return nil, fmt.Errorf("resource.labelSelector: %w", err)
	}
	return out, nil
}

// hasGPU reports whether a node has GPUs, advertised or not.
func hasGPU(node *corev1.Node) bool {
	_, labelled := node.Labels[labelGPUPresent]
	all := amountOf(node.Status.Allocatable)
	return labelled || all.gpus > 0 || len(all.slices) > 0
}

// offer is how much of one resource a node advertises, and how much of it is free.
type offer struct {
	gpus   int
	slices map[string]int
	free   int
}

// offers returns the offers of a node by name: its whole GPUs, and its MIG slices of each profile. A node without GPUs
// has one empty offer.
func offers(all, used amount) map[string]offer {
	out := map[string]offer{}
	if all.gpus > 0 || len(all.slices) == 0 {
		out["whole GPUs"] = offer{gpus: int(all.gpus), free: int(all.less(used).gpus)}
	}
	for profile, announced := range all.slices {
		out["slices of "+profile] = offer{
			slices: map[string]int{profile: int(announced)}, free: all.freeSlices(profile, used),
		}
	}
	return out
}

// candidates returns one node, once for each of its offers.
func candidates(node *corev1.Node, used amount, known Catalogue, ask Ask) []planner.Node {
	all := amountOf(node.Status.Allocatable)
	free, sizes := all.less(used), offers(all, used)
	out := make([]planner.Node, 0, len(sizes))
	for _, part := range slices.Sorted(maps.Keys(sizes)) {
		size := sizes[part]
		machine, err := known.Identify(sku.Node{
			Labels: node.Labels, Annotations: node.Annotations,
			GPUs: size.gpus, Slices: size.slices, VCPUs: int(all.millis / 1000), MemoryGiB: gib(all.memory),
		})
		n := planner.Node{
			Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], Machine: machine, CapacityType: capacityType(node),
			FreeGPUs: size.free, FreeVCPUs: int(free.millis / 1000), FreeMemoryGiB: gib(free.memory), FreeDiskGiB: -1,
			Preferred: slices.Contains(ask.Preferred, node.Name), Unusable: unusable(node, ask),
		}
		if len(sizes) > 1 {
			n.Part = part
		}
		if !isOwn(node, ask.Owner) {
			_, n.Foreign = otherOwner(node, ask.Owner)
		}
		if all.disk > 0 {
			n.FreeDiskGiB = gib(free.disk)
		}
		if err != nil && n.Unusable == "" {
			n.Unusable = err.Error()
		}
		out = append(out, n)
	}
	return out
}

func gib(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// unusable returns why a node is not used, whatever its GPUs.
func unusable(node *corev1.Node, ask Ask) string {
	switch owner, _ := otherOwner(node, ask.Owner); {
	case isOwn(node, ask.Owner):
		return "was bought for this Workspace and is deleted with its NodeClaim"
	case takeover.IsNode(node, types.NamespacedName{Namespace: ask.Owner.Namespace, Name: ask.Owner.Name}):
		return "KAITO's controller bought it for this Workspace; it is deleted after the takeover"
	case owner != "":
		return "belongs to " + owner
	case node.DeletionTimestamp != nil:
		return "is being deleted"
	case node.Spec.Unschedulable:
		return "is cordoned"
	case ask.Left[node.Name] != "":
		return ask.Left[node.Name]
	}
	if problem := notReady(node); problem != "" {
		return problem
	}
	if fault := nodehealth.Of(node); fault.Message != "" {
		return strings.TrimPrefix(fault.Message, "node "+node.Name+" ")
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(taint, ask.Pod.Tolerations) {
			return fmt.Sprintf("has the taint %s, and the pods do not tolerate it", taint.ToString())
		}
	}
	// Invalid terms match nothing, as for the scheduler.
	if fits, _ := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: ask.Pod}).Match(node); !fits {
		return "does not match the node selector or the node affinity of the pods"
	}
	if ask.Unseen {
		return "cannot be used, because this installation cannot see pods of other namespaces on it: " +
			"have the administrator set the chart's watchPodsOfNodes"
	}
	return ""
}

// isOwn reports whether a node was bought for the Workspace.
func isOwn(node *corev1.Node, owner capacity.Owner) bool {
	return node.Labels[v1beta1.LabelWorkspaceUID] == string(owner.UID) && owner.UID != ""
}

// otherOwner names the other Workspace that a node was bought for. It does not name a Workspace of another namespace,
// because the user of this one may have no right to see it.
func otherOwner(node *corev1.Node, owner capacity.Owner) (text string, foreign bool) {
	name, namespace := labelledOwner(node)
	switch {
	case node.Labels[v1beta1.LabelWorkspaceUID] == "" && (name == "" || name == owner.Name && namespace == owner.Namespace):
		return "", false
	case name == "" || namespace != owner.Namespace:
		return "another Workspace", true
	case name == owner.Name:
		return "a deleted Workspace " + name, false
	default:
		return "Workspace " + name, false
	}
}

// labelledOwner returns the Workspace in a node's labels, in this project's form or KAITO's.
func labelledOwner(node *corev1.Node) (name, namespace string) {
	if name := node.Labels[v1beta1.LabelMachineWorkspaceName]; name != "" {
		return name, node.Labels[v1beta1.LabelMachineWorkspaceNamespace]
	}
	return node.Labels[v1beta1.LabelWorkspace], node.Labels[v1beta1.LabelWorkspaceNamespace]
}

// notReady returns why a node is not Ready; empty if it is. A node without a Ready condition is not Ready.
func notReady(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			return ""
		case condition.Reason != "":
			return "is not ready: " + condition.Reason
		}
	}
	return "is not ready"
}

// tolerated reports whether the scheduler may place pods on a node despite a taint.
func tolerated(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == taint.Value
	})
}

// capacityType returns how a machine is paid for, from its provisioner's label; empty without such a label.
func capacityType(node *corev1.Node) v1beta1.CapacityType {
	for _, label := range capacity.SpotLabels() {
		if node.Labels[label.Key] == label.Value {
			return v1beta1.CapacitySpot
		}
	}
	return v1beta1.CapacityType(node.Labels["karpenter.sh/capacity-type"])
}
