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
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
)

// failing says what is wrong with the node of a machine, and when it has lasted for too long; nothing where
// nothing is.
func (r *Reconciler) failing(s *scope, machine *capacity.Machine, now time.Time) (string, time.Time) {
	if trouble := machine.Trouble; trouble.Message != "" && !s.isExcused(machine.Name) {
		return trouble.Message, trouble.Since.Add(trouble.Grace)
	}
	if machine.NodeReady || !machine.Initialized || r.Answers.NodeGrace <= 0 {
		return "", time.Time{}
	}
	var counted time.Time
	since := machine.NodeSince
	if since.IsZero() { // there is no node to ask
		since = s.missingSince(machine, now)
		counted = since
	} else if counted = s.countsSince(since); counted.IsZero() {
		return "", time.Time{}
	}
	why := fmt.Sprintf("node %s has not been Ready since %s", machine.NodeName, since.UTC().Format(time.TimeOnly+" MST"))
	return why, counted.Add(r.Answers.NodeGrace)
}

// missingSince is when a machine was found to have no node any more.
func (s *scope) missingSince(machine *capacity.Machine, now time.Time) time.Time {
	since := now
	if nodes := meta.FindStatusCondition(s.ws.Status.Conditions, v1beta1.ConditionNodesReady); nodes != nil && nodes.Status != "True" {
		since = nodes.LastTransitionTime.Time
	}
	if joined := machine.Words.Initialized.Since; joined.After(since) { // the condition may be about a former machine
		since = joined
	}
	return since
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
	s.silence, err = r.silence(ctx)
	return err
}

// silence is that of all nodes. The cache answers.
func (r *Reconciler) silence(ctx context.Context) (nodehealth.Silence, error) {
	all := &corev1.NodeList{}
	if err := r.Client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
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
