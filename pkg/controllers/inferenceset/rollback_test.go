// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
	"github.com/modelberth/modelberth/pkg/replicas"
)

// stage is a cluster with a clock, in which a Workspace answers if its template is good.
type stage struct {
	*cluster
	clock *clocktesting.FakeClock
	// broken is the state of a Workspace with the config "broken".
	broken []metav1.Condition
	// writes counts the controller's, and the one with the number of failing fails.
	writes, failing int
	events          chan string
	// reject is the API server's answer to a Workspace; nil if it accepts the Workspace.
	reject func(*v1beta1.Workspace) error
}

var errLost = errors.New("the connection is lost")

// newStage makes a set of two replicas with a rollback policy.
func newStage(t *testing.T, change ...func(*v1beta1.InferenceSet)) *stage {
	t.Helper()
	s := &stage{clock: clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)), failing: -1}
	policy := func(set *v1beta1.InferenceSet) {
		set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{
			Rollback: &v1beta1.RollbackSpec{ProgressDeadline: &metav1.Duration{Duration: 30 * time.Minute}},
		}
	}
	s.cluster = newCluster(t, set(append([]func(*v1beta1.InferenceSet){policy}, change...)...))
	s.restart()
	return s
}

// restart makes another controller.
func (s *stage) restart() {
	loses := func() error {
		s.writes++
		if s.writes-1 == s.failing {
			return errLost
		}
		return nil
	}
	c := interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return errors.Join(loses(), c.Create(ctx, object, options...)) // the answer is lost, not the request
		},
		Apply: func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
			if err := s.rejects(object); err != nil {
				return err
			}
			return errors.Join(loses(), c.Apply(ctx, object, options...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return errors.Join(loses(), c.Delete(ctx, object, options...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return errors.Join(loses(), c.Patch(ctx, object, patch, options...))
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			if err := loses(); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
	events := record.NewFakeRecorder(1000)
	if s.events == nil {
		s.events = events.Events
	}
	events.Events = s.events
	s.reconciler = New(Config{Client: c, Live: c, Applier: apply.New(c, c, s.clock), Events: events, Clock: s.clock})
}

// rejects returns the API server's answer to an applied object.
func (s *stage) rejects(object runtime.ApplyConfiguration) error {
	data, err := json.Marshal(object)
	ws := &v1beta1.Workspace{}
	if err == nil {
		err = json.Unmarshal(data, ws)
	}
	if err != nil || ws.Kind != v1beta1.WorkspaceKind || s.reject == nil {
		return err
	}
	return s.reject(ws)
}

// goOn lets the controller and the Workspaces act until nothing is written any more.
func (s *stage) goOn(t *testing.T) ctrl.Result {
	t.Helper()
	var result ctrl.Result
	for range 60 {
		before := s.writes
		var err error
		result, err = s.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set())})
		if err != nil {
			if !errors.Is(err, errLost) {
				t.Fatal(err)
			}
			s.restart()
			continue
		}
		if isChanged := s.observe(t); !isChanged && s.writes == before {
			return result
		}
	}
	t.Fatal("the set is never settled")
	return result
}

// fail goes on until a failure has lasted long enough to blame the template.
func (s *stage) fail(t *testing.T) {
	t.Helper()
	if result := s.goOn(t); result.RequeueAfter != usualSettling {
		t.Errorf("the next pass is in %s, want %s", result.RequeueAfter, usualSettling)
	}
	s.clock.Step(usualSettling)
	s.goOn(t)
}

// observe sets the conditions of all Workspaces, as their controller does.
func (s *stage) observe(t *testing.T) (isChanged bool) {
	t.Helper()
	for _, ws := range s.workspaces(t) {
		before := ws.DeepCopy()
		conditions := answering()
		if ws.Inference.Config == "broken" {
			conditions = s.broken
		}
		ws.Status.TargetNodeCount = 1
		meta.RemoveStatusCondition(&ws.Status.Conditions, v1beta1.ConditionStalled)
		meta.RemoveStatusCondition(&ws.Status.Conditions, v1beta1.ConditionPlanned)
		for _, c := range conditions {
			c.ObservedGeneration, c.LastTransitionTime = ws.Generation, metav1.NewTime(s.clock.Now())
			meta.SetStatusCondition(&ws.Status.Conditions, c)
		}
		if cmp.Equal(before.Status, ws.Status) {
			continue
		}
		isChanged = true
		if err := s.Status().Update(t.Context(), &ws); err != nil {
			t.Fatal(err)
		}
	}
	return isChanged
}

func (s *stage) set(t *testing.T) *v1beta1.InferenceSet {
	t.Helper()
	found := &v1beta1.InferenceSet{}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(set()), found); err != nil {
		t.Fatal(err)
	}
	return found
}

func (s *stage) edit(t *testing.T, change func(*v1beta1.InferenceSetSpec)) {
	t.Helper()
	found := s.set(t)
	change(&found.Spec)
	if err := s.Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

func breaks(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "broken" }

// fixed breaks the template with a field that no Workspace changes.
func fixed(spec *v1beta1.InferenceSetSpec) {
	breaks(spec)
	spec.Template.Inference.Preset.Name = "other"
}

func (s *stage) revisions(t *testing.T) []string {
	t.Helper()
	list := &appsv1.ControllerRevisionList{}
	if err := s.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, item := range list.Items {
		out = append(out, item.Name)
	}
	return out
}

// expect checks the reason of Ready, and the configs of the replicas.
func (s *stage) expect(t *testing.T, reason string, configs ...string) {
	t.Helper()
	found := s.set(t)
	ready := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Reason != reason {
		t.Errorf("Ready is %+v, want the reason %s", ready, reason)
	}
	var got []string
	for _, ws := range s.workspaces(t) {
		got = append(got, ws.Inference.Config)
	}
	slices.Sort(got)
	if diff := cmp.Diff(configs, got); diff != "" {
		t.Errorf("configs of the replicas (-want +got):\n%s", diff)
	}
	if names := s.revisions(t); len(names) > 2 || !slices.Contains(names, found.Status.CurrentRevision) {
		t.Errorf("revisions %v, want the current one, %q, and at most one more", names, found.Status.CurrentRevision)
	}
}

var (
	stalledState = []metav1.Condition{
		no(v1beta1.ConditionReady, "ConfigNotFound", "no such ConfigMap"), yes(v1beta1.ConditionStalled, "ConfigNotFound", "no such ConfigMap"),
		no(v1beta1.ConditionPlanned, "ConfigNotFound", "no such ConfigMap"),
	}
	startingState = []metav1.Condition{no(v1beta1.ConditionReady, "Progressing", "starting"), yes(v1beta1.ConditionResourceReady, "Ready", "")}
	waitingState  = []metav1.Condition{
		no(v1beta1.ConditionReady, "NoCapacity", "sold out"), no(v1beta1.ConditionResourceReady, "NoCapacity", "sold out"),
	}
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

// answering is the state of a Workspace with a template that works.
func answering() []metav1.Condition {
	return []metav1.Condition{yes(v1beta1.ConditionReady, v1beta1.ReasonServing, ""), yes(v1beta1.ConditionResourceReady, "Ready", "")}
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

// denied is a webhook's answer.
func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "rules.team" denied the request: no such config`,
	}}
}

// TestRejectedTemplateIsRolledBack: the API server rejects each Workspace with the template, and none is changed.
func TestRejectedTemplateIsRolledBack(t *testing.T) {
	for _, edit := range []struct {
		reason string
		change func(*v1beta1.InferenceSetSpec)
	}{{"in place", breaks}, {"by a surplus replica", fixed}} {
		t.Run(edit.reason, func(t *testing.T) {
			s := newStage(t)
			s.goOn(t)
			s.reject = func(ws *v1beta1.Workspace) error {
				if ws.Inference.Config == "broken" {
					return denied(400)
				}
				return nil
			}
			s.edit(t, edit.change)
			for range 2 {
				if result := s.goOn(t); result.RequeueAfter != refused {
					t.Errorf("the next try is in %s, want %s", result.RequeueAfter, refused)
				}
				s.expect(t, v1beta1.ReasonReplicaRefused, "", "")
				s.clock.Step(refused)
			}
			s.goOn(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "")
			rollout := s.set(t).Status.Rollout
			if !strings.Contains(rollout.Message, "no such config") || rollout.UpdateTime != nil || rollout.RefusedTime != nil {
				t.Errorf("the failed rollout has %+v", rollout)
			}
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(int32(3)) })
			s.goOn(t)
			s.expect(t, v1beta1.ReasonRolledBack, "", "", "") // a new replica has the template that the API server accepts
		})
	}
}

// TestRefusalThatIsNotTheTemplates: a rollout goes on when the refusal ends.
func TestRefusalThatIsNotTheTemplates(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), "chat", errors.New(why))
	}
	tests := []struct {
		reason  string
		refusal error
		lasts   time.Duration
	}{
		{"a quota is used up", forbidden("exceeded quota: workspaces, requested: 1, used: 2, limited: 2"), 24 * time.Hour},
		{"the controller has no right", forbidden(`User "system:serviceaccount:berth:controller" cannot patch resource "workspaces"`), 24 * time.Hour},
		{"a webhook changes its mind", denied(403), refused},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			s := newStage(t)
			s.broken = answering()
			s.goOn(t)
			s.reject = func(*v1beta1.Workspace) error { return test.refusal }
			s.edit(t, fixed)
			s.goOn(t)
			s.clock.Step(test.lasts)
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicaRefused, "", "")
			s.reject = nil
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "broken", "broken")
		})
	}
}

// TestRefusalIsForgotten: a refusal counts from the last time when it began.
func TestRefusalIsForgotten(t *testing.T) {
	began := metav1.NewTime(time.Unix(1_800_000_000, 0))
	p := newPass(set())
	p.rollout = &v1beta1.RolloutStatus{RefusedTime: &began}
	now := metav1.NewTime(began.Add(usualSettling))
	if err := p.decideRefusal(nil, now, usualSettling); err != nil || p.rollout.RefusedTime != nil {
		t.Errorf("error %v and rollout %+v after a pass without a refusal", err, p.rollout)
	}
	if err := p.decideRefusal(asWait(denied(400)), now, usualSettling); err == nil || !now.Equal(p.rollout.RefusedTime) {
		t.Errorf("error %v and rollout %+v after the next refusal", err, p.rollout)
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

// TestLostRevision: a set whose previous template somebody deleted or replaced only scales down, and a person has to act.
func TestLostRevision(t *testing.T) {
	for _, isReplaced := range []bool{false, true} {
		t.Run(fmt.Sprintf("replaced %t", isReplaced), func(t *testing.T) {
			s := newStage(t)
			s.broken = stalledState
			s.goOn(t)
			s.edit(t, breaks)
			s.fail(t)
			lost := &appsv1.ControllerRevision{}
			if err := s.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: s.set(t).Status.CurrentRevision}, lost); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(t.Context(), lost); err != nil {
				t.Fatal(err)
			}
			if isReplaced {
				forged := lost.DeepCopy()
				forged.ResourceVersion, forged.Data.Raw = "", []byte(`{"inference":{"preset":{"name":"another"}}}`)
				if err := s.Create(t.Context(), forged); err != nil {
					t.Fatal(err)
				}
			}
			before := s.workspaces(t)
			s.goOn(t)
			if diff := cmp.Diff(before, s.workspaces(t)); diff != "" {
				t.Errorf("Workspaces (-before +after):\n%s", diff)
			}
			found := s.set(t)
			ready := meta.FindStatusCondition(found.Status.Conditions, v1beta1.ConditionReady)
			if ready.Reason != v1beta1.ReasonRolledBack || found.Status.ReadyReplicas != 2 {
				t.Errorf("%d ready replicas, and Ready is %+v", found.Status.ReadyReplicas, ready)
			}

			scale := func(replicas, want int32) {
				t.Helper()
				s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Replicas = new(replicas) })
				s.goOn(t)
				ready := meta.FindStatusCondition(s.set(t).Status.Conditions, v1beta1.ConditionReady)
				start := fmt.Sprintf("%d/%d replicas are ready. the template in spec.template failed", want, replicas)
				end := "edit spec.template. Until then, the set creates and updates no replica"
				if ready.Reason != v1beta1.ReasonRolledBack || !strings.HasPrefix(ready.Message, start) || !strings.HasSuffix(ready.Message, end) {
					t.Errorf("Ready is %+v, want %s: %s … %s", ready, v1beta1.ReasonRolledBack, start, end)
				}
				if left := s.workspaces(t); len(left) != int(want) {
					t.Errorf("%d replicas, want %d", len(left), want)
				}
			}
			scale(1, 1)
			scale(3, 1)
			scale(0, 0)
			s.edit(t, func(spec *v1beta1.InferenceSetSpec) {
				spec.Replicas, spec.Template.Inference.Config = new(int32(2)), "better"
			})
			s.goOn(t)
			s.expect(t, v1beta1.ReasonReplicasReady, "better", "better")
		})
	}
}

// recode gives the stored templates the form and the names of another version of Modelberth.
func (s *stage) recode(t *testing.T) {
	t.Helper()
	names := map[string]string{}
	for _, name := range s.revisions(t) {
		object := &appsv1.ControllerRevision{}
		if err := s.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, object); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		object.ResourceVersion, object.Data.Raw = "", []byte(strings.Replace(string(object.Data.Raw), "{", `{"former":null,`, 1))
		object.Name = revisionName(set(), object.Data.Raw)
		names[name] = object.Name
		if err := s.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	found := s.set(t)
	found.Status.CurrentRevision = names[found.Status.CurrentRevision]
	if found.Status.Rollout != nil {
		found.Status.Rollout.Revision = names[found.Status.Rollout.Revision]
	}
	if err := s.Status().Update(t.Context(), found); err != nil {
		t.Fatal(err)
	}
}

// TestUpgradeKeepsTheFailure: a new version that encodes templates differently does not try a failed one again.
func TestUpgradeKeepsTheFailure(t *testing.T) {
	s := newStage(t)
	s.broken = stalledState
	s.goOn(t)
	s.edit(t, breaks)
	s.fail(t)
	failed := s.set(t).Status.Rollout
	s.published()
	s.recode(t)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonRolledBack, "", "")
	if diff := cmp.Diff(failed, s.set(t).Status.Rollout); diff != "" {
		t.Errorf("rollout (-before the upgrade +after it):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{}, s.published()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	s.edit(t, func(spec *v1beta1.InferenceSetSpec) { spec.Template.Inference.Config = "better" })
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasReady, "better", "better")
}

// TestUpgradeStartsNoRollout: nor is a template that works a new one, though a replica does not answer.
func TestUpgradeStartsNoRollout(t *testing.T) {
	s := newStage(t, func(set *v1beta1.InferenceSet) { breaks(&set.Spec) })
	s.broken = answering()
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	s.recode(t)
	s.broken = startingState
	s.observe(t)
	s.goOn(t)
	s.clock.Step(24 * time.Hour)
	s.goOn(t)
	s.expect(t, v1beta1.ReasonReplicasNotReady, "broken", "broken")
	if found := s.set(t); found.Status.CurrentRevision != good || found.Status.Rollout != nil {
		t.Errorf("status %+v, want the revision %s and no rollout", found.Status, good)
	}
}

// TestFailedTemplateIsDeletedFirst: of two ready replicas, the one with the template that failed is dispensable.
func TestFailedTemplateIsDeletedFirst(t *testing.T) {
	failed, former := ready("a"), ready("b")
	failed.isUpdated = true
	p := pass{set: set(func(s *v1beta1.InferenceSet) { s.Spec.Replicas = new(int32(1)) }), views: []view{failed, former}}
	if diff := cmp.Diff(replicas.Decision{Delete: []string{"a"}}, p.shrink()); diff != "" {
		t.Errorf("decision (-want +got):\n%s", diff)
	}
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

// TestBothRevisionsStay: until the status names the new one, the set may have to return to the former one.
func TestBothRevisionsStay(t *testing.T) {
	s := newStage(t)
	s.goOn(t)
	good := s.set(t).Status.CurrentRevision
	p := &pass{set: s.set(t), spec: &revision{name: "chat-2", data: []byte("{}")}, current: "chat-2"}
	if err := s.reconciler.ensureRevision(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"chat-2", good}, s.revisions(t)); diff != "" {
		t.Errorf("revisions (-want +got):\n%s", diff)
	}
	p = &pass{set: s.set(t), spec: &revision{name: "chat-3", data: []byte("{}")}, current: "chat-3"}
	p.set.Status.CurrentRevision = "chat-2"
	if err := s.reconciler.ensureRevision(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"chat-2", "chat-3"}, s.revisions(t)); diff != "" {
		t.Errorf("revisions after the next template (-want +got):\n%s", diff)
	}
}
