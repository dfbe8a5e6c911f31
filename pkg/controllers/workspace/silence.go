// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/capacity/purchase"
)

// machineNodes returns the state of the nodes of the Workspace's machines.
func (s *scope) machineNodes(grace time.Duration) acquire.Nodes {
	out := acquire.Nodes{Silence: s.silence, Grace: grace}
	if nodes := meta.FindStatusCondition(s.ws.Status.Conditions, v1beta1.ConditionNodesReady); nodes != nil && nodes.Status != "True" {
		out.MissingSince = nodes.LastTransitionTime.Time
	}
	return out
}

// countsSince is since when the silence of a node counts that has been silent since a time; zero while it does not,
// which the conditions say. No event tells this Workspace that other nodes are heard again.
func (s *scope) countsSince(since time.Time) time.Time {
	counted, whyNot := s.silence.Counts(since)
	if whyNot != "" {
		s.unheard = whyNot
		s.lookAgain(retrySilence)
	}
	return counted
}

// unfit explains why a node's machine is broken or not Ready for too long; empty while it may come back.
func (r *Reconciler) unfit(s *scope, node *corev1.Node) string {
	if trouble := nodehealth.Of(node); trouble.Message != "" {
		left := trouble.Since.Add(trouble.Grace).Sub(r.Clock.Now())
		if left <= 0 {
			return trouble.Message
		}
		s.lookAgain(left)
	}
	isReady, since := nodehealth.Ready(node)
	if isReady || r.Answers.NodeGrace <= 0 {
		return ""
	}
	counted := s.countsSince(since)
	if counted.IsZero() {
		return ""
	}
	if left := counted.Add(r.Answers.NodeGrace).Sub(r.Clock.Now()); left > 0 {
		s.lookAgain(left)
		return ""
	}
	return fmt.Sprintf("node %s has not been Ready since %s", node.Name, purchase.Clock(since))
}

// isGone asks the API server itself: moving away from a node may buy a machine.
func isGone(ctx context.Context, live client.Reader, name string) (bool, error) {
	nodes := &corev1.NodeList{}
	if err := live.List(ctx, nodes, client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1)); err != nil {
		return false, fmt.Errorf("looking for node %q: %w", name, err)
	}
	return len(nodes.Items) == 0, nil
}
