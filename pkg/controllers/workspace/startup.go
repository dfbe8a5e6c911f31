// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// startup keeps the stages of the first start, with their times. A stage that has ended stays as it is,
// and once the model has answered nothing is added.
func startup(s *scope, status *v1beta1.WorkspaceStatus, now metav1.Time) []v1beta1.StartupStage {
	if s.isDeleting() || s.ws.Suspend || s.ws.Tuning != nil || hasEndedStage(status.Startup, v1beta1.StageReady) {
		return status.Startup
	}
	var stages []v1beta1.StartupStage
	start := s.ws.CreationTimestamp
	for _, point := range s.points(status) {
		stage := v1beta1.StartupStage{Stage: point.stage, StartTime: start}
		if i := slices.IndexFunc(status.Startup, point.isOf); i >= 0 {
			stage = status.Startup[i]
		}
		if stage.EndTime == nil && point.Reached {
			end := seconds(within(point.At, stage.StartTime.Time, now.Time))
			stage.EndTime = &end
		}
		stages = append(stages, stage)
		if stage.EndTime == nil {
			break
		}
		start = *stage.EndTime
	}
	return stages
}

// point is where a stage ends.
type point struct {
	stage string
	diagnosis.Milestone
}

func (p point) isOf(stage v1beta1.StartupStage) bool { return stage.Stage == p.stage }

// points are where the stages end, in order. Whose time nobody noted ends when it is seen.
func (s *scope) points(status *v1beta1.WorkspaceStatus) []point {
	seen := func(isReached bool) diagnosis.Milestone { return diagnosis.Milestone{Reached: isReached} }
	out := []point{
		{v1beta1.StagePlanned, diagnosis.Milestone{Reached: s.revision != nil, At: s.plannedBy()}},
		{v1beta1.StageMachine, diagnosis.Milestone{
			Reached: isTrue(status.Conditions, v1beta1.ConditionNodesReady), At: s.usableSince(),
		}},
	}
	pods := diagnosis.MilestonesOf(s.diagnosed())
	if s.ws.Inference != nil && s.ws.Inference.Template == nil {
		out = append(out, point{v1beta1.StageWeights, pods.Fetched})
	}
	pods.Ready.Reached = isTrue(status.Conditions, v1beta1.ConditionInferenceReady)
	return append(out,
		point{v1beta1.StageImage, pods.Pulled},
		point{v1beta1.StageEngine, pods.Ready},
		point{v1beta1.StageReady, seen(isTrue(status.Conditions, v1beta1.ConditionReady))})
}

// plannedBy is when the first machines were asked for, if that is told by a later pass; zero otherwise.
func (s *scope) plannedBy() time.Time {
	if !s.isUntold {
		return time.Time{}
	}
	return s.attempts[0].StartTime.Time
}

// usableSince is when the last machine became usable by the provisioner's own word; zero where one has
// none.
func (s *scope) usableSince() time.Time {
	var since time.Time
	for _, machine := range s.servingMachines() {
		initialized := machine.Words.Initialized.Since
		if initialized.IsZero() {
			return time.Time{}
		}
		if initialized.After(since) {
			since = initialized
		}
	}
	return since
}

// within is a time that somebody else noted, between two of ours: clocks differ. Without one it is now.
func within(at, earliest, now time.Time) time.Time {
	if at.IsZero() || at.After(now) {
		at = now
	}
	if at.Before(earliest) {
		return earliest
	}
	return at
}

func hasEndedStage(stages []v1beta1.StartupStage, name string) bool {
	return slices.ContainsFunc(stages, func(stage v1beta1.StartupStage) bool { return stage.Stage == name && stage.EndTime != nil })
}
