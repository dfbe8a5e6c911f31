// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package nodehealth

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// From mostSilent percent of nodes that are not Ready, the control plane is suspected. Up to fewSilent such nodes are
// never suspicious. With the same bounds, Kubernetes considers a zone disrupted, and evicts no pods in small zones
// (pkg/controller/nodelifecycle, 1.34: ComputeZoneState, --unhealthy-zone-threshold).
const (
	mostSilent = 55
	fewSilent  = 2
)

// Silence decides whether nodes that are not Ready count as lost. If hardly any of the cluster's own nodes is Ready,
// the control plane has probably lost contact with them. Bought machines do not show this, because they may have failed
// together. For the zero Silence, every node counts.
type Silence struct {
	// heard is the number of Ready nodes, and silent of all others. They count the cluster's own nodes, or all nodes
	// if it has only bought machines.
	heard, silent int
	// isBought is set if the cluster has only bought machines.
	isBought bool
	// since is when the first of the Ready nodes became Ready.
	since time.Time
}

// Listen returns the Silence of a cluster with these nodes.
func Listen(nodes []corev1.Node) Silence {
	own, bought := Silence{}, Silence{isBought: true}
	for i := range nodes {
		if node := &nodes[i]; node.Labels[v1beta1.LabelWorkspaceUID] == "" {
			own.count(node)
		} else {
			bought.count(node)
		}
	}
	if own.heard+own.silent == 0 {
		return bought
	}
	return own
}

func (s *Silence) count(node *corev1.Node) {
	isReady, since := Ready(node)
	if !isReady {
		s.silent++
		return
	}
	if s.heard == 0 || since.Before(s.since) {
		s.since = since
	}
	s.heard++
}

// Unheard reports whether the cluster has its own nodes but none of them is Ready, with their number.
func (s Silence) Unheard() (count int, isSo bool) {
	return s.silent, !s.isBought && s.heard == 0 && s.silent > 0
}

// Counts returns from when a node that has not been Ready since a time counts as silent, or why it does not count. If
// the first Ready node became Ready later, the silence counts only from then, because other nodes may be about to
// follow.
func (s Silence) Counts(since time.Time) (from time.Time, whyNot string) {
	const tail = " Ready: the control plane has lost contact with their kubelets, so no machine is replaced"
	_, isUnheard := s.Unheard()
	isMost := s.silent > fewSilent && 100*s.silent >= mostSilent*(s.silent+s.heard)
	switch {
	case isUnheard:
		return time.Time{}, "none of the cluster's own nodes is" + tail
	case s.isBought && s.heard == 0 && s.silent > 1:
		return time.Time{}, "none of the cluster's nodes is" + tail
	case !s.isBought && isMost:
		return time.Time{}, "most of the cluster's own nodes are not" + tail
	case s.since.After(since):
		return s.since, ""
	default:
		return since, ""
	}
}

// Ready returns whether a node is Ready, and since when. Without the condition, it has not been Ready since its
// creation.
func Ready(node *corev1.Node) (isReady bool, since time.Time) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue, condition.LastTransitionTime.Time
		}
	}
	return false, node.CreationTimestamp.Time
}
