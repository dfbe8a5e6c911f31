// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// FailsForGood reports whether the pods of the open attempt fail permanently, and how. Between two restarts the pods
// only seem to start, so a recorded failure holds until a pod answers or the pods' spec changes. exposure explains how
// other pods can reach the pods of a group; empty if nothing shows that they can.
func (s *Scope) FailsForGood(open *v1beta1.Attempt, exposure string) (string, bool) {
	if s.IsRolling || s.StatefulSet == nil || s.HasReadyPod() {
		return "", false
	}
	if exposure != "" && s.IsHeldBack() {
		return exposure, true
	}
	if found := diagnosis.Inference(s.Diagnosed()); diagnosis.IsHopeless(found.Reason) {
		return found.Message, true
	}
	if open.FailingTime == nil || !s.LacksPods() && (!s.IsGroup() || s.Group.Failures == 0) {
		return "", false
	}
	was := meta.FindStatusCondition(s.Before.Conditions, v1beta1.ConditionInferenceReady)
	if was != nil && diagnosis.IsHopeless(was.Reason) {
		return was.Message, true
	}
	return "see the condition InferenceReady", true
}
