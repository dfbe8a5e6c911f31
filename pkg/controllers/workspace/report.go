// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/nodehealth"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/lessons"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/status"
	"github.com/modelberth/modelberth/pkg/diagnosis"
	"github.com/modelberth/modelberth/pkg/group"
	revisions "github.com/modelberth/modelberth/pkg/revision"
)

// report writes the results of the pass as one status patch, if anything changed, and publishes the events of that
// status.
func (r *Reconciler) report(ctx context.Context, s *scope, err error) error {
	before, now := s.ws.Status, r.Clock.Now()
	after, events := s.status(err, metav1.NewTime(now))
	if !equality.Semantic.DeepEqual(before, after) {
		mayWait := err == nil && s.capacityErr == nil && len(events) == 0 && status.IsProgress(&before, &after)
		if mayWait {
			if wait := r.coalescer.wait(s.ws.UID); wait > 0 {
				s.lookAgain(wait)
				return nil
			}
		}
		former := s.ws.DeepCopy()
		s.ws.Status = after
		if err := r.patchStatus(ctx, former, s.ws); err != nil {
			r.lessons.Unanswered(err, lessons.Asker(s.ws), before.Attempts, after.Attempts)
			return fmt.Errorf("patching status of workspace %s/%s: %w", s.ws.Namespace, s.ws.Name, err)
		}
	}
	r.awaitProbe(s)
	emit(r.Events, s.ws, events)
	r.lessons.Note(lessons.Asker(s.ws), before.Attempts, after.Attempts)
	r.Metrics.Started(before.Startup, s.ws.Status.Startup)
	r.Metrics.Waste(s.wasted)
	s.wasted = 0
	return nil
}

// patchStatus writes the status over the one that was read, from which it was computed. It does not overwrite a newer
// one.
func (r *Reconciler) patchStatus(ctx context.Context, read, ws *v1beta1.Workspace) error {
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	err := r.expectations.Write(ws, func() error { return r.Client.Status().Patch(ctx, ws, patch) })
	if err == nil {
		r.coalescer.wrote(ws.UID)
	}
	return err
}

// status computes the status after a pass, given its error, and the new events.
func (s *scope) status(err error, now metav1.Time) (v1beta1.WorkspaceStatus, []status.Event) {
	return status.Compute(s.facts(), err, now)
}

// facts gathers the inputs of the status.
func (s *scope) facts() *status.Facts {
	out := &status.Facts{
		Workspace: s.workspaceFacts(),
		Stored:    &s.ws.Status,
		Plan:      status.Plan{IsForSpec: s.planned, Err: s.planErr},
		Attempts:  status.Attempts{All: s.attempts, Verdict: s.verdict, Err: s.capacityErr},
		Machines:  status.Machines{Serving: s.servingMachines(), Count: len(s.machines), Unheard: s.unheard},
		Pods:      s.podFacts(),
		Endpoint:  status.Endpoint{HasService: s.named, ServesSpec: s.servesSpec(), Meanwhile: s.meanwhile(), Engine: s.engine},
		Pass: status.Pass{
			FellBackFrom: s.fellBack, Recreates: s.recreates, Exposed: s.exposed, ReplacesGroup: s.groupStep.Do == group.Replace,
		},
	}
	if s.revision != nil {
		out.Plan.Revision, out.Plan.Plan, out.Plan.Message = s.revision.Name, &s.revision.Plan, s.revision.Summary()
		out.Nodes = s.nodeFacts()
		out.Endpoint.Revision, out.Endpoint.Models = s.running().Name, s.running().ServedNames
	}
	if open := s.openAttempt(); open != nil {
		out.Attempts.Open = open.Number
	}
	for _, machine := range s.machines.Standing() {
		if machine.NodeName != "" {
			out.Machines.NodeNames = append(out.Machines.NodeNames, machine.NodeName)
		}
	}
	for _, machine := range s.created {
		out.Pass.Created = append(out.Pass.Created, machine.Name)
	}
	return out
}

func (s *scope) workspaceFacts() status.Workspace {
	return status.Workspace{
		Namespace: s.ws.Namespace, Name: s.ws.Name, Generation: s.ws.Generation, CreationTime: s.ws.CreationTimestamp,
		IsDeleting: s.isDeleting(), IsSuspended: s.ws.Suspend, IsTuning: s.ws.Tuning != nil,
		FetchesWeights: s.ws.Inference != nil && s.ws.Inference.Template == nil, IsKAITOs: len(s.kaito) > 0,
	}
}

func (s *scope) podFacts() status.Pods {
	out := status.Pods{
		HasSet:      s.statefulSet != nil,
		ArePlaced:   slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }),
		AreCurrent:  s.isCurrent(),
		Milestones:  diagnosis.MilestonesOf(s.diagnosed()),
		Replacement: s.replacement(),
	}
	if s.statefulSet != nil {
		out.Diagnosis = diagnosis.Inference(s.diagnosed())
	}
	if s.isGroup() {
		out.RestartReason = s.group.Failure
	}
	if s.revision != nil {
		out.Rollback = s.wayBack()
	}
	return out
}

// emit publishes events after the write of their status.
func emit(to record.EventRecorder, ws *v1beta1.Workspace, events []status.Event) {
	for _, event := range events {
		kind := corev1.EventTypeNormal
		if event.IsWarning {
			kind = corev1.EventTypeWarning
		}
		to.Event(ws, kind, event.Reason, event.Message)
	}
}

// nodeFacts are how the nodes of the plan are, in its order.
func (s *scope) nodeFacts() []status.Node {
	var out []status.Node
	for _, name := range s.revision.Plan.NodeNames {
		fact, node := status.Node{Name: name}, s.node(name)
		if node != nil {
			gpus := node.Status.Allocatable[corev1.ResourceName(s.revision.Plan.GPUResource)]
			isReady, _ := nodehealth.Ready(node)
			fact.Exists, fact.IsReady, fact.GPUs = true, isReady, gpus.Value()
		}
		out = append(out, fact)
	}
	return out
}

// replacement explains why all members of a group are replaced; empty if they are not.
func (s *scope) replacement() string {
	if !s.isGroup() {
		return ""
	}
	return s.groupStep.Describe(s.running().Plan.Nodes)
}

// wayBack explains how to undo an edit after which the model fails; empty if no other inputs have answered.
func (s *scope) wayBack() string {
	served, current := s.revisions.Object(s.ws.Status.LatestReadyRevision), s.revisions.Object(s.running().Name)
	if served == nil || current == nil || revisions.HasSameInputs(served, current) {
		return ""
	}
	return fmt.Sprintf("; revision %d answered before the edit: to go back, run kubectl berth rollback %s --to-revision %d",
		served.Revision, s.ws.Name, served.Revision)
}
