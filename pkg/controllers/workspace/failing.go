// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// A machine costs money for nothing where the cluster refuses its pods, where its engine fails in a way that no retry mends,
// and where its group may not start because strangers reach it. The attempt keeps the time since when that is so, and ends
// after a deadline. Nothing is bought for it again before somebody has acted.

// noteFailing keeps since when the pods of the open attempt fail for good.
func (r *Reconciler) noteFailing(_ context.Context, s *scope) error {
	open := s.openAttempt()
	if open == nil || open.ReadyTime == nil {
		return nil
	}
	_, isFailing := r.failingForGood(s, open)
	isNoted := open.FailingTime != nil && s.isHeldBack() // a new controller has yet to probe the group
	switch {
	case !isFailing && !isNoted || s.surge.Serving > 0:
		open.FailingTime = nil
		return nil
	case open.FailingTime == nil:
		open.FailingTime = new(seconds(r.Clock.Now()))
	}
	if deadline := r.Answers.FailureDeadline; deadline > 0 {
		s.lookAgain(open.FailingTime.Add(deadline).Sub(r.Clock.Now()))
	}
	return nil
}

// failingForGood reports whether the pods of the open attempt fail permanently, and how. Between two tries they only
// seem to start: a recorded failure stays until a pod answers or its spec changes.
func (r *Reconciler) failingForGood(s *scope, open *v1beta1.Attempt) (string, bool) {
	if s.rolling || s.statefulSet == nil || s.answers() {
		return "", false
	}
	if exposure := r.Isolation.Exposure(); exposure != "" && s.isHeldBack() {
		return exposure, true
	}
	if found := diagnosis.Inference(s.diagnosed()); diagnosis.IsHopeless(found.Reason) {
		return found.Message, true
	}
	if open.FailingTime == nil || !s.lacksPods() && (!s.isGroup() || s.group.Failures == 0) {
		return "", false
	}
	was := meta.FindStatusCondition(s.before.Conditions, v1beta1.ConditionInferenceReady)
	if was != nil && diagnosis.IsHopeless(was.Reason) {
		return was.Message, true
	}
	return "see the condition InferenceReady", true
}
