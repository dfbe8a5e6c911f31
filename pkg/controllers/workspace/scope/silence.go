// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/progress"
)

// RetrySilence is the interval for judging nodes again that are not Ready.
const RetrySilence = time.Minute

// MachineNodes returns the state of the nodes of the Workspace's machines.
func (s *Scope) MachineNodes(grace time.Duration) acquire.Nodes {
	out := acquire.Nodes{Silence: s.Silence, Grace: grace}
	nodes := meta.FindStatusCondition(s.Workspace.Status.Conditions, v1beta1.ConditionNodesReady)
	if nodes != nil && nodes.Status != "True" {
		out.MissingSince = nodes.LastTransitionTime.Time
	}
	return out
}

// countsSince returns the time from which a node counts as not Ready. It returns zero while the node does not count;
// then the conditions explain that, and the pass repeats, because no event reports that other nodes are Ready again.
func countsSince(s *Scope, since time.Time) time.Time {
	counted, whyNot := s.Silence.Counts(since)
	if whyNot != "" {
		s.Unheard = whyNot
		s.LookAgain(RetrySilence)
	}
	return counted
}

// Unfit explains why a node's machine is broken, or has not been Ready for too long; empty while it may recover. Broken
// GPUs that the plan does not need do not count.
func (s *Scope) Unfit(node *corev1.Node, now time.Time, grace time.Duration) string {
	if fault := s.faultOf(node); fault.Message != "" {
		left := fault.Expires().Sub(now)
		if left <= 0 {
			return fault.Message
		}
		s.LookAgain(left)
	}
	isReady, since := nodehealth.Ready(node)
	if isReady || grace <= 0 {
		return ""
	}
	counted := countsSince(s, since)
	if counted.IsZero() {
		return ""
	}
	if left := counted.Add(grace).Sub(now); left > 0 {
		s.LookAgain(left)
		return ""
	}
	return fmt.Sprintf("node %s has not been Ready since %s", node.Name, progress.Clock(since))
}

func (s *Scope) faultOf(node *corev1.Node) nodehealth.Fault {
	accepted := s.Accepted()
	if accepted == nil {
		return nodehealth.Of(node)
	}
	return nodehealth.Concerns(node, corev1.ResourceName(accepted.Plan.GPUResource), accepted.Plan.GPUsPerNode)
}
