// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Labels of KAITO's machines.
const (
	// LabelManagedBy is on the NodePools of KAITO's controller, with the value ManagedBy.
	LabelManagedBy = "karpenter.kaito.sh/managed-by"
	ManagedBy      = "kaito"
	// LabelNodePool is Karpenter's label. In gpu-provisioner mode, KAITO sets it to agentPool, although that NodePool does
	// not exist.
	LabelNodePool = "karpenter.sh/nodepool"
	agentPool     = "kaito"
)

// longestName is the longest name of a NodePool. Of a longer name, KAITO keeps keptName characters and appends a hash.
const (
	longestName = 63
	keptName    = longestName - 10
)

// isPoolName reports whether KAITO's controller gives this name to a Workspace's NodePool.
func isPoolName(name string, ws types.NamespacedName) bool {
	whole := ws.Namespace + "-" + ws.Name
	if len(whole) <= longestName {
		return name == whole
	}
	return len(name) <= longestName && len(name) > keptName && name[:keptName] == whole[:keptName] &&
		regexp.MustCompile(`^-[0-9a-f]{9}$`).MatchString(name[len(name)-10:])
}

// IsPool reports whether an object has the name and the labels of KAITO's NodePool for a Workspace. The name alone is
// not enough: for example, namespace "a" with Workspace "b-c" gives the same name as "a-b" with "c".
func IsPool(object metav1.Object, ws types.NamespacedName) bool {
	labels := object.GetLabels()
	return labels[LabelManagedBy] == ManagedBy && hasOwner(labels, ws) && isPoolName(object.GetName(), ws) && !isOurs(labels)
}

// IsPoolClaim reports whether an object has the form of a NodeClaim of a NodePool that KAITO's controller made for the
// Workspace. The NodePool may be deleted by now.
func IsPoolClaim(object metav1.Object, ws types.NamespacedName) bool {
	labels := object.GetLabels()
	pool := labels[LabelNodePool]
	hasPool := slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.Kind == "NodePool" && o.Name == pool
	})
	return hasOwner(labels, ws) && isPoolName(pool, ws) && (hasPool || len(object.GetOwnerReferences()) == 0) && !isOurs(labels)
}

// IsAgentClaim reports whether an object has the form of KAITO's NodeClaim for a Workspace in gpu-provisioner mode.
func IsAgentClaim(object metav1.Object, ws types.NamespacedName) bool {
	labels := object.GetLabels()
	return labels[v1beta1.LabelWorkspace] == ws.Name && labels[v1beta1.LabelWorkspaceNamespace] == ws.Namespace &&
		labels[LabelNodePool] == agentPool && !isOurs(labels)
}

// IsNode reports whether the labels of a node name a Workspace as KAITO's labels do. The node is deleted with its
// machine.
func IsNode(object metav1.Object, ws types.NamespacedName) bool {
	labels := object.GetLabels()
	isAgent := labels[v1beta1.LabelWorkspace] == ws.Name && labels[v1beta1.LabelWorkspaceNamespace] == ws.Namespace
	return (hasOwner(labels, ws) || isAgent) && !isOurs(labels)
}

// hasOwner reports whether labels of karpenter mode name this Workspace.
func hasOwner(labels map[string]string, ws types.NamespacedName) bool {
	return labels[v1beta1.LabelMachineWorkspaceName] == ws.Name && labels[v1beta1.LabelMachineWorkspaceNamespace] == ws.Namespace
}

// isOurs reports whether labels are those of this controller's machines. Such machines also have KAITO's labels.
func isOurs(labels map[string]string) bool {
	_, hasUID := labels[v1beta1.LabelWorkspaceUID]
	return hasUID || labels[v1beta1.LabelManagedBy] == v1beta1.ManagedBy
}
