// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/replicas"
)

func TestFailedTemplateIsRolledBack(t *testing.T) {
	for _, edit := range []struct {
		reason string
		change func(*v1beta1.InferenceSetSpec)
	}{{"in place", breaks}, {"by a surplus replica", fixed}} {
		t.Run(edit.reason, func(t *testing.T) {
			s := newStage(t)
			s.broken = stalledState
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "", "")
			good := s.set(t).Status.CurrentRevision

			s.edit(t, edit.change)
			s.fail(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "")
			found := s.set(t)
			if found.Status.CurrentRevision != good || found.Status.UpdatedReplicas != 0 || found.Status.ReadyReplicas != 2 {
				t.Errorf("status %+v, want the revision %s", found.Status, good)
			}
			stalled := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionStalled)
			if stalled == nil || stalled.Reason != v1beta1.ReasonRolledBack {
				t.Errorf("Stalled is %+v", stalled)
			}

			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(3)) })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "", "") // a new replica has the template that works

			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "better" })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better", "better")
			if found := s.set(t); found.Status.Rollout != nil || found.Status.CurrentRevision == good {
				t.Errorf("status %+v after a template that works", found.Status)
			}
		})
	}
}

func TestRollbackAfterTheDeadline(t *testing.T) {
	s := newStage(t)
	s.broken = startingState
	s.goOn(t)
	s.edit(t, breaks)
	if result := s.goOn(t); result.RequeueAfter != 30*time.Minute {
		t.Errorf("the next look is in %s, want 30m", result.RequeueAfter)
	}
	s.expect(t, v1beta1.ReasonRollingOut, "", "broken")
	s.clock.Step(30 * time.Minute)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "")
	if text := s.set(t).Status.Rollout.Message; text != "Workspace "+s.late(t)+" has had its machines for 30m0s and does not answer: starting" {
		t.Errorf("the rollout says %q", text)
	}
}

// TestFlappingTemplateIsRolledBack: an engine that crashes 20 seconds after each start is never ready for a minute.
func TestFlappingTemplateIsRolledBack(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = 60 })
	s.goOn(t)
	s.clock.Step(time.Minute)
	s.goOn(t)
	s.edit(t, breaks)
	for range 15 { // starts in two minutes
		s.broken = startingState
		s.goOn(t)
		s.clock.Step(100 * time.Second)
		s.broken = answering()
		s.goOn(t)
		s.expect(t, v1beta1.ReasonRollingOut, "", "broken")
		s.clock.Step(20 * time.Second)
	}
	s.broken = startingState
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "")
	rollout := s.set(t).Status.Rollout
	if want := "Workspace " + s.late(t) + " has had its machines for 30m0s and did not stay ready for 1m0s: starting"; rollout.Message != want {
		t.Errorf("the rollout says %q, want %q", rollout.Message, want)
	}
	if rollout.AvailableReplicas != 0 || rollout.ProgressTime != nil {
		t.Errorf("the failed rollout has %+v", rollout)
	}
}

// TestLostCanaryHasTheWholeDeadline: a replica that was available for a day may take its time to come back.
func TestLostCanaryHasTheWholeDeadline(t *testing.T) {
	for _, seconds := range []int32{0, 60} {
		t.Run(fmt.Sprintf("ready for %d s", seconds), func(t *testing.T) {
			s := newStage(t, func(set *v1beta1.InferenceSet) {
				set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = seconds
				set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1))
			})
			goOn := func(after time.Duration) ctrl.Result {
				s.clock.Step(after)
				return s.goOn(t)
			}
			goOn(0)
			goOn(time.Minute)
			s.broken = answering()
			s.edit(t, breaks)
			goOn(0)
			goOn(time.Minute)
			if rollout := s.set(t).Status.Rollout; rollout == nil || rollout.AvailableReplicas != 1 {
				t.Errorf("the rollout is %+v, want one available replica", rollout)
			}
			s.broken = startingState
			if result := goOn(24 * time.Hour); result.RequeueAfter != 30*time.Minute {
				t.Errorf("the next pass is in %s, want 30m", result.RequeueAfter)
			}
			goOn(30*time.Minute - time.Second)
			s.expect(t, v1beta1.ReasonReplicasNotReady, "", "broken")
			goOn(time.Second)
			s.expect(t, v1beta1.ReasonRolledBack, "", "")
		})
	}
}

// late returns the name in the message of a failed rollout.
func (s *stage) late(t *testing.T) string {
	t.Helper()
	var name string
	if _, err := fmt.Sscanf(s.set(t).Status.Rollout.Message, "Workspace %s", &name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWithoutMachinesNothingIsRolledBack(t *testing.T) {
	s := newStage(t)
	s.broken = waitingState
	s.goOn(t)
	s.edit(t, breaks)
	s.goOn(t)
	s.clock.Step(24 * time.Hour)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicaBlocked, "", "broken")
}

func TestNothingIsRolledBack(t *testing.T) {
	tests := []struct {
		reason string
		change func(*v1beta1.InferenceSet)
	}{
		{"without a policy", func(s *v1beta1.InferenceSet) { s.Spec.UpdateStrategy.RollingUpdate = nil }},
		{"if no template has ever worked", func(s *v1beta1.InferenceSet) { breaks(&s.Spec) }},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newStage(t, test.change)
			s.broken = stalledState
			s.goOn(t)
			s.edit(t, breaks)
			s.goOn(t)
			found := s.set(t)
			if found.Status.Rollout != nil || found.Status.CurrentRevision != "" || len(s.revisions(t)) > 0 {
				t.Errorf("status %+v and revisions %v", found.Status, s.revisions(t))
			}
		})
	}
}

// TestPolicyIsRemoved: the template of the spec is tried again, and the status names no revision.
func TestPolicyIsRemoved(t *testing.T) {
	s := newStage(t)
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.fail(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.UpdateStrategy.RollingUpdate = nil })
	s.goOn(t)
	found := s.set(t)
	if ready := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionReady); ready.Reason != v1beta1.ReasonRolloutStopped {
		t.Errorf("Ready is %+v", ready)
	}
	if found.Status.Rollout != nil || found.Status.CurrentRevision != "" || len(s.revisions(t)) > 1 {
		t.Errorf("status %+v and revisions %v", found.Status, s.revisions(t))
	}
}

// TestRollbackSurvivesCrashes: the answer to each write is lost once, and another controller goes on.
func TestRollbackSurvivesCrashes(t *testing.T) {
	for _, change := range []func(*v1beta1.InferenceSetSpec){breaks, fixed} {
		for n := 0; ; n++ {
			s := newStage(t)
			s.broken, s.failing = stalledState, n
			s.goOn(t)
			s.edit(t, change)
			s.fail(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "")
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "better" })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better")
			s.edit(t, breaks)
			s.fail(t)
			s.expect(t, v1beta1.ReasonRolledBack, "better", "better")
			if t.Failed() {
				t.Fatalf("after the loss of write %d", n)
			}
			if n >= s.writes {
				break
			}
		}
	}
}

// TestMinReadySeconds: the first replica with a new template has to stay ready for a minute.
func TestMinReadySeconds(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { set.Spec.UpdateStrategy.RollingUpdate.MinReadySeconds = 60 })
	if result := s.goOn(t); result.RequeueAfter != time.Minute || s.set(t).Status.CurrentRevision != "" {
		t.Errorf("the next look at new replicas is in %s, and the revision is %q", result.RequeueAfter, s.set(t).Status.CurrentRevision)
	}
	s.clock.Step(time.Minute)
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Preset.Name = "other" })
	s.goOn(t)
	s.clock.Step(59 * time.Second)
	if result := s.goOn(t); result.RequeueAfter != time.Second {
		t.Errorf("the next look is in %s, want 1s", result.RequeueAfter)
	}
	s.expect(t, v1beta1.ReasonRollingOut, "", "", "")
	s.clock.Step(time.Second)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRollingOut, "", "", "")
	if found := s.set(t); found.Status.CurrentRevision != good || found.Status.UpdatedReplicas != 2 {
		t.Errorf("status %+v: the last replica has to prove itself, too", found.Status)
	}
	s.clock.Step(time.Minute)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "", "")
	if found := s.set(t); found.Status.CurrentRevision == good || found.Status.Rollout != nil {
		t.Errorf("status %+v after the rollout", found.Status)
	}
}

// busy maps the UIDs of Workspaces to their requests.
type busy map[types.UID]float64

// Of implements Loads.
func (b busy) Of(_ types.NamespacedName, uid types.UID, _ time.Time) (float64, bool) {
	requests, ok := b[uid]
	return requests, ok
}

// TestScaleDownSparesBusyReplicas: the load comes from the autoscaler.
func TestScaleDownSparesBusyReplicas(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { set.Spec.Replicas = new(int32(3)) })
	s.goOn(t)
	loads := busy{}
	s.reconciler.Loads = loads
	before := s.workspaces(t)
	for i := range before {
		before[i].UID = types.UID(before[i].Name)
		if err := s.Update(t.Context(), &before[i]); err != nil {
			t.Fatal(err)
		}
		loads[before[i].UID] = []float64{7, 0, 3}[i]
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(2)) })
	s.goOn(t)
	var left []string
	for _, ws := range s.workspaces(t) {
		left = append(left, ws.Name)
	}
	if diff := cmp.Diff([]string{before[0].Name, before[2].Name}, left); diff != "" {
		t.Errorf("remaining replicas (-want +got):\n%s", diff)
	}
}

// TestServiceFollowsTheRollback: after a rollback, the spec has the port of the failed template, and the pods have another.
func TestServiceFollowsTheRollback(t *testing.T) {
	pods := func(port int32) *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "own", Ports: []corev1.ContainerPort{{ContainerPort: port}},
		}}}}
	}
	s := newStage(t, func(set *v1beta1.InferenceSet) {
		set.Spec.Template.Inference = &v1beta1.InferenceSpec{Template: pods(8000)}
	})
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
		spec.Template.Inference.Template = pods(9000)
		breaks(spec)
	})
	s.fail(t)
	service := &corev1.Service{}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(set()), service); err != nil {
		t.Fatal(err)
	}
	if port := service.Spec.Ports[0].TargetPort.IntValue(); port != 8000 {
		t.Errorf("the Service leads to port %d of the pods, want 8000", port)
	}
}

// TestLateConfigIsNoFailure: a ConfigMap that comes a minute after the template ends the doubt about it.
func TestLateConfigIsNoFailure(t *testing.T) {
	s := newStage(t)
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.goOn(t)
	s.clock.Step(usualSettling - time.Second)
	s.goOn(t)
	s.broken = answering()
	s.observe(t)
	s.clock.Step(time.Hour)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "broken", "broken")
}

// TestFailureEndsTheRollout: in the pass that finds the failure, the template reaches no further replica. A replica that
// gets it in this pass has time.
func TestFailureEndsTheRollout(t *testing.T) {
	now := metav1.Now()
	look := func(decision replicas.Decision) *pass {
		failing := view{Replica: replicas.Replica{Name: "a", IsCurrent: true, IsFailing: true}, isUpdated: true}
		p := &pass{
			set: newStage(t).set(t), views: []view{failing, old(ready("b"))}, spec: &revision{name: "chat-2"}, current: "chat-1",
			decision: decision,
			rollout:  &v1beta1.RolloutStatus{Revision: "chat-2", StartTime: metav1.NewTime(now.Add(-time.Hour))},
		}
		p.decideRollout(now, usualSettling)
		return p
	}
	if p := look(replicas.Decision{Delete: []string{"b"}, IsRolling: true}); !p.decision.IsIdle() || !p.fails() {
		t.Errorf("decision %+v and rollout %+v", p.decision, p.rollout)
	}
	p := look(replicas.Decision{Update: []string{"a"}, IsRolling: true})
	if p.fails() || !p.rollout.UpdateTime.Equal(&now) || !p.next.Equal(now.Add(usualSettling)) {
		t.Errorf("rollout %+v, and the next pass at %s", p.rollout, p.next)
	}
}

// TestRollbackIgnoresAPartition: the canary returns, too.
func TestRollbackIgnoresAPartition(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { set.Spec.UpdateStrategy.RollingUpdate.Partition = new(int32(1)) })
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicaBlocked, "", "broken")
	s.clock.Step(usualSettling)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "")
}
