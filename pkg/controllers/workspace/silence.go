// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// machineNodes is what is known of the nodes of the Workspace's machines.
func (s *scope) machineNodes(grace time.Duration) acquire.Nodes {
	out := acquire.Nodes{Silence: s.silence, Grace: grace}
	if nodes := meta.FindStatusCondition(s.ws.Status.Conditions, v1beta1.ConditionNodesReady); nodes != nil && nodes.Status != "True" {
		out.MissingSince = nodes.LastTransitionTime.Time
	}
	if !s.isVacated() { // the pods of a broken machine run on while others are acquired
		out.Excused = s.keptNames()
	}
	return out
}

// listen finds out whether the silence of the Workspace's nodes is their own.
func (r *Reconciler) listen(ctx context.Context, s *scope) error {
	s.silence = nodehealth.Silence{}
	isSilent := func(node corev1.Node) bool {
		isReady, _ := nodehealth.Ready(&node)
		return !isReady
	}
	if !slices.ContainsFunc(s.nodes, isSilent) {
		return nil
	}
	var err error
	s.silence, err = silenceOf(ctx, r.Client)
	return err
}

// silenceOf is that of all nodes. The cache answers.
func silenceOf(ctx context.Context, from client.Reader) (nodehealth.Silence, error) {
	all := &corev1.NodeList{}
	if err := from.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return nodehealth.Silence{}, fmt.Errorf("listing nodes: %w", err)
	}
	return nodehealth.Listen(all.Items), nil
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
