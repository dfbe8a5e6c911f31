// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/acquire"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/isolation"
)

// A paid machine serves nobody if the cluster refuses its pods, if its engine fails permanently, or if its group
// must not start because other pods can reach it. The attempt records when that began, and ends after a deadline.
// Then the controller buys nothing until a person has acted. If no pod is ever ready for another reason, package
// acquire ends the attempt after a longer deadline.

// noteFailing records when the pods of the open attempt began to fail permanently.
func (r *Reconciler) noteFailing(_ context.Context, s *scope.Scope) error {
	open := s.OpenAttempt()
	if open == nil || open.ReadyTime == nil || s.IsOnNodes() { // its pods have left the machines
		return nil
	}
	_, isFailing := s.FailsForGood(open, r.Isolation.Exposure(isolation.Group(client.ObjectKeyFromObject(s.Workspace))))
	isNoted := open.FailingTime != nil && s.IsHeldBack() // a new controller has yet to probe the group
	switch {
	case !isFailing && !isNoted || s.Surge.Serving > 0:
		open.FailingTime = nil
		return nil
	case open.FailingTime == nil:
		open.FailingTime = new(acquire.Seconds(r.Clock.Now()))
	}
	if deadline := r.Acquisition.FailureDeadline; deadline > 0 {
		s.LookAgain(open.FailingTime.Add(deadline).Sub(r.Clock.Now()))
	}
	return nil
}

// observeWarnings reads the events about delayed pods and StatefulSets whose own status gives no reason.
func (r *Reconciler) observeWarnings(ctx context.Context, s *scope.Scope) error {
	was := meta.FindStatusCondition(s.Before.Conditions, v1beta1.ConditionInferenceReady)
	isQuoted := was != nil && slices.Contains(diagnosis.PublishedReasons(), was.Reason)
	found, again, err := r.warnings.Read(ctx, s.Workspace, diagnosis.Silent(s.Pods, s.Sets()), isQuoted)
	s.Warnings = append(s.Warnings, found...)
	if again > 0 {
		s.LookAgain(again)
	}
	return err
}
