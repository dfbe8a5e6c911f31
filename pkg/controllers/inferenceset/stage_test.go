// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package inferenceset

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/apply"
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
	// routers are the routers; nil if there is none.
	routers Routers
	// shape sets the status of a Workspace, and returns its conditions; nil if all with a good template answer.
	shape func(*v1beta1.Workspace) []metav1.Condition
	// protects is its answer to the deletion of any object; nil if it deletes the object.
	protects error
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
			if s.protects != nil {
				return s.protects
			}
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
	s.reconciler = New(Config{Client: c, Live: c, Applier: apply.New(c, c, nil, s.clock), Events: events, Clock: s.clock, Routers: s.routers})
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
		if s.shape != nil {
			conditions = s.shape(&ws)
		}
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

// answering is the state of a Workspace with a template that works.
func answering() []metav1.Condition {
	return []metav1.Condition{yes(v1beta1.ConditionReady, v1beta1.ReasonServing, ""), yes(v1beta1.ConditionResourceReady, "Ready", "")}
}
