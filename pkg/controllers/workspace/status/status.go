// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package status computes the status of a Workspace, and the events of its changes, from the facts of one pass.
//
// It decides the conditions with their reasons and messages, the stages of the startup and the events. It reads and
// writes nothing: no client, no clock.
package status

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/progress"
	"github.com/modelberth/modelberth/pkg/request"
)

// messageLimit is the longest message of a condition in bytes. It bounds the text of a cloud or an engine.
const messageLimit = 1024

// pass is the computation of the status for one pass. err is the pass's error, or nil.
type pass struct {
	*Facts
	err     error
	stalled *progress.StalledError
}

// Compute returns the status after a pass that ended with err, or with nil, and the events of the changes in order. The
// same facts give the same result.
func Compute(facts *Facts, err error, now metav1.Time) (v1beta1.WorkspaceStatus, []Event) {
	p := pass{Facts: facts, err: err, stalled: stalled(facts, err)}
	out := *facts.Stored.DeepCopy()
	if frozen := facts.Workspace.Frozen; frozen != nil && !facts.Workspace.IsDeleting {
		return frozen.status(facts.Stored, facts.Workspace.Generation, now)
	}
	if facts.Workspace.IsKAITOs && p.stalled != nil {
		return Kept(facts.Stored, facts.Workspace.Generation, p.stalled, now)
	}
	if facts.Plan.IsForSpec || facts.Workspace.IsDeleting {
		out.ObservedGeneration = facts.Workspace.Generation
	}
	out.Attempts = (&v1beta1.WorkspaceStatus{Attempts: facts.Attempts.All}).DeepCopy().Attempts
	out.WorkerNodes = p.workerNodes()
	if facts.Plan.Plan != nil && facts.Plan.IsForSpec { // otherwise the plan may be for a former spec
		out.Plan = request.Status(facts.Plan.Plan, facts.Plan.Revision)
		out.TargetNodeCount = int32(facts.Plan.Plan.Nodes)
	}
	out.Engine = facts.Endpoint.figures(out.Engine)
	switch {
	case facts.Endpoint.AdapterSlots == 0:
		out.Adapters = nil
	case facts.Endpoint.Adapters != nil:
		out.Adapters = slices.Clone(facts.Endpoint.Adapters)
	}
	setConditions(&out, p.conditions(), now)
	if meta.IsStatusConditionTrue(out.Conditions, v1beta1.ConditionInferenceReady) || p.isNameTaken() {
		out.Endpoint = p.endpoint()
	}
	isReady := meta.IsStatusConditionTrue(out.Conditions, v1beta1.ConditionReady)
	if facts.Plan.Plan != nil && isReady {
		out.LatestReadyRevision = facts.Endpoint.Revision
	}
	out.State = nextState(facts.Stored.State, isReady)
	out.Startup = p.startup(&out, now)
	events := slices.Concat(changes(facts.Stored, &out), p.happened())
	return out, events
}

// Kept returns the status for a generation of a Workspace that this controller leaves alone, and the events of the
// changes. Our own conditions give the reason, and everything else stays as stored.
func Kept(
	stored *v1beta1.WorkspaceStatus, generation int64, why *progress.StalledError, now metav1.Time,
) (v1beta1.WorkspaceStatus, []Event) {
	out := *stored.DeepCopy()
	out.ObservedGeneration = generation
	setConditions(&out, []metav1.Condition{
		no(v1beta1.ConditionPlanned, why.Reason, why.Message),
		unknown(v1beta1.ConditionReady, why.Reason, why.Message),
		yes(v1beta1.ConditionStalled, why.Reason, why.Message),
	}, now)
	events := changes(stored, &out)
	return out, events
}

// endpoint returns the address of the model once it has first answered; nil if another object has the name.
func (p pass) endpoint() *v1beta1.Endpoint {
	switch {
	case p.isNameTaken():
		return nil
	case !p.Endpoint.HasService || p.Plan.Plan == nil:
		return p.Stored.Endpoint
	}
	return &v1beta1.Endpoint{
		AdapterSlots: p.Endpoint.AdapterSlots,
		URL:          fmt.Sprintf("http://%s.%s.svc", p.Workspace.Name, p.Workspace.Namespace),
		Models:       slices.Clone(p.Endpoint.Models), // the response to the patch is decoded into the status
	}
}

// nextState returns Pending until the first answer, and then Ready or NotReady.
func nextState(previous v1beta1.WorkspaceState, isReady bool) v1beta1.WorkspaceState {
	switch {
	case isReady:
		return v1beta1.StateReady
	case previous == v1beta1.StateReady || previous == v1beta1.StateNotReady:
		return v1beta1.StateNotReady
	default:
		return v1beta1.StatePending
	}
}

// setConditions writes conditions into a status. It removes the conditions that have no status.
func setConditions(out *v1beta1.WorkspaceStatus, conditions []metav1.Condition, now metav1.Time) {
	for _, condition := range conditions {
		if condition.Status == "" {
			meta.RemoveStatusCondition(&out.Conditions, condition.Type)
			continue
		}
		condition.Message = request.Shorten(condition.Message, messageLimit)
		condition.ObservedGeneration = max(out.ObservedGeneration, 0) // a new status has -1, and a condition may not
		if old := meta.FindStatusCondition(out.Conditions, condition.Type); old == nil || old.Status != condition.Status {
			condition.LastTransitionTime = now
		}
		meta.SetStatusCondition(&out.Conditions, condition)
	}
}
