// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// startup returns the stages of the first start, with their times. An ended stage stays as it is, and no stage is added
// after the first answer.
func (p pass) startup(out *v1beta1.WorkspaceStatus, now metav1.Time) []v1beta1.StartupStage {
	if p.Workspace.IsDeleting || p.Workspace.IsSuspended || p.Workspace.IsTuning || hasEndedStage(out.Startup, v1beta1.StageReady) {
		return out.Startup
	}
	var stages []v1beta1.StartupStage
	start := p.Workspace.CreationTime
	for _, end := range p.stageEnds(out.Conditions) {
		stage := v1beta1.StartupStage{Stage: end.stage, StartTime: start}
		if i := slices.IndexFunc(out.Startup, func(known v1beta1.StartupStage) bool { return known.Stage == end.stage }); i >= 0 {
			stage = out.Startup[i]
		}
		if stage.EndTime == nil && end.Reached {
			at := metav1.NewTime(within(end.At, stage.StartTime.Time, now.Time)).Rfc3339Copy()
			stage.EndTime = &at
		}
		stages = append(stages, stage)
		if stage.EndTime == nil {
			break
		}
		start = *stage.EndTime
	}
	return stages
}

// stageEnd is the end of a stage.
type stageEnd struct {
	stage string
	diagnosis.Milestone
}

// stageEnds returns the ends in the order of the stages. A stage without a recorded time ends when this pass sees its
// end.
func (p pass) stageEnds(conditions []metav1.Condition) []stageEnd {
	seen := func(isReached bool) diagnosis.Milestone { return diagnosis.Milestone{Reached: isReached} }
	out := []stageEnd{
		{v1beta1.StagePlanned, seen(p.Plan.Plan != nil)},
		{v1beta1.StageMachine, diagnosis.Milestone{
			Reached: meta.IsStatusConditionTrue(conditions, v1beta1.ConditionNodesReady), At: usableSince(p.Machines.Serving),
		}},
	}
	pods := p.Pods.Milestones
	if p.Workspace.FetchesWeights {
		out = append(out, stageEnd{v1beta1.StageWeights, pods.Fetched})
	}
	pods.Ready.Reached = meta.IsStatusConditionTrue(conditions, v1beta1.ConditionInferenceReady)
	return append(out,
		stageEnd{v1beta1.StageImage, pods.Pulled},
		stageEnd{v1beta1.StageEngine, pods.Ready},
		stageEnd{v1beta1.StageReady, seen(meta.IsStatusConditionTrue(conditions, v1beta1.ConditionReady))})
}

// usableSince returns when the last machine became usable, as reported by the provisioner; zero unless the provisioner
// reports that for all machines.
func usableSince(machines []capacity.Machine) time.Time {
	var since time.Time
	for i := range machines {
		initialized := machines[i].Words.Initialized.Since
		if initialized.IsZero() {
			return time.Time{}
		}
		if initialized.After(since) {
			since = initialized
		}
	}
	return since
}

// within limits a time of another clock to the range between two times of ours. A zero time becomes now.
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
