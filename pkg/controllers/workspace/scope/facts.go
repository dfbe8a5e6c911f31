// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/group"
	"github.com/modelberth/modelberth/pkg/revision"
	"github.com/modelberth/modelberth/pkg/takeover"
)

// Status computes the status after a pass, given its error, and the new events.
func (s *Scope) Status(err error, now metav1.Time) (v1beta1.WorkspaceStatus, []status.Event) {
	return status.Compute(factsOf(s), err, now)
}

// factsOf collects the inputs of the status.
func factsOf(s *Scope) *status.Facts {
	out := &status.Facts{
		Workspace: workspaceFacts(s),
		Stored:    &s.Workspace.Status,
		Plan:      status.Plan{IsForSpec: s.IsPlanned, Err: s.PlanErr},
		Attempts:  status.Attempts{All: s.Attempts, Verdict: s.Verdict, Err: s.CapacityErr},
		Machines:  status.Machines{Serving: s.PlannedMachines(), Count: len(s.Machines), Unheard: s.Unheard},
		Pods:      podFacts(s),
		Endpoint: status.Endpoint{
			HasService: s.HasService, IsReachable: s.HasEndpoint(), ServesSpec: servesSpec(s), Meanwhile: s.Meanwhile(),
			Engine: s.Engine, Speed: s.Speed,
		},
		Pass: status.Pass{
			FellBackFrom: s.FellBackFrom, Recreates: s.Recreates, Exposed: s.Exposed, ReplacesGroup: s.GroupStep.Do == group.Replace,
		},
	}
	if s.Revision != nil {
		out.Plan.Revision, out.Plan.Plan, out.Plan.Message = s.Revision.Name, &s.Revision.Plan, s.Revision.Summary()
		out.Nodes = nodeFacts(s)
		out.Endpoint.Revision, out.Endpoint.Models = s.Running().Name, s.servedNames()
		out.Endpoint.Adapters = s.Adapters
		if s.Running().LiveAdapters {
			out.Endpoint.AdapterSlots = int32(s.Running().Plan.AdapterSlots)
		}
	}
	if open := s.OpenAttempt(); open != nil {
		out.Attempts.Open = open.Number
	}
	for _, machine := range s.Machines.Standing() {
		if machine.NodeName != "" {
			out.Machines.NodeNames = append(out.Machines.NodeNames, machine.NodeName)
		}
	}
	for _, machine := range s.Created {
		out.Pass.Created = append(out.Pass.Created, machine.Name)
	}
	return out
}

func workspaceFacts(s *Scope) status.Workspace {
	ws := s.Workspace
	return status.Workspace{
		Namespace: ws.Namespace, Name: ws.Name, Generation: ws.Generation, CreationTime: ws.CreationTimestamp,
		IsDeleting: !ws.DeletionTimestamp.IsZero(), IsSuspended: ws.Suspend, IsTuning: ws.Tuning != nil,
		FetchesWeights: ws.Inference != nil && ws.Inference.Template == nil, IsKAITOs: s.KAITO.IsKept(),
		HasKAITOsPods: s.KAITO.IsReplaced(), Frozen: frozenOf(&s.KAITO),
	}
}

// frozenOf describes a Workspace that is frozen after a takeover from KAITO's controller; nil if it is not frozen.
func frozenOf(kaito *takeover.Holding) *status.Frozen {
	if !kaito.IsFrozen() {
		return nil
	}
	return &status.Frozen{Answers: kaito.Pods.Answer(), Message: kaito.Describe(), Nodes: kaito.Pods.Wanted}
}

func podFacts(s *Scope) status.Pods {
	out := status.Pods{
		HasSet:      s.StatefulSet != nil,
		ArePlaced:   slices.ContainsFunc(s.Pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }),
		AreCurrent:  s.IsCurrent(),
		Milestones:  diagnosis.MilestonesOf(s.Diagnosed()),
		Replacement: replacement(s),
	}
	if s.StatefulSet != nil {
		out.Diagnosis = diagnosis.Inference(s.Diagnosed())
	}
	if s.IsGroup() {
		out.RestartReason = s.Group.Failure
	}
	if s.Revision != nil {
		out.Rollback = wayBack(s)
	}
	return out
}

// nodeFacts describes the nodes of the plan, in the plan's order.
func nodeFacts(s *Scope) []status.Node {
	var out []status.Node
	for _, name := range s.Revision.Plan.NodeNames {
		fact, node := status.Node{Name: name}, s.Node(name)
		if node != nil {
			gpus := node.Status.Allocatable[corev1.ResourceName(s.Revision.Plan.GPUResource)]
			isReady, _ := nodehealth.Ready(node)
			fact.Exists, fact.IsReady, fact.GPUs = true, isReady, gpus.Value()
			fact.Shortage = nodehealth.Shortage(node, corev1.ResourceName(s.Revision.Plan.GPUResource))
		}
		out = append(out, fact)
	}
	return out
}

// replacement explains why all members of a group are replaced; empty if they are not.
func replacement(s *Scope) string {
	if !s.IsGroup() {
		return ""
	}
	return s.GroupStep.Describe(s.Running().Plan.Nodes)
}

// wayBack explains how to undo an edit after which the model fails; empty unless a revision with other inputs has
// answered.
func wayBack(s *Scope) string {
	served, current := s.Revisions.Object(s.Workspace.Status.LatestReadyRevision), s.Revisions.Object(s.Running().Name)
	if served == nil || current == nil || revision.HasSameInputs(served, current) {
		return ""
	}
	return fmt.Sprintf("; revision %d answered before the edit: to go back, run kubectl berth rollback %s -n %s --to-revision %d",
		served.Revision, s.Workspace.Name, s.Workspace.Namespace, served.Revision)
}
