// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// TestAMaximumOfZero covers a schedule with a maximum of 0: the condition must not promise that a request starts a
// replica.
func TestAMaximumOfZero(t *testing.T) {
	for _, tc := range []struct {
		reason string
		from   int32
	}{{"the set has replicas", 2}, {"the set is at zero", 0}} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(tc.from, func(s *v1beta1.InferenceSet) {
				s.Spec.Autoscaling.Schedules = []v1beta1.AutoscalingSchedule{{
					Name: "night", Cron: "* * * * *", Duration: metav1.Duration{Duration: time.Hour}, MaxReplicas: new(int32(0)),
				}}
			}))
			w.live(t, 3*time.Minute, 5)
			want := "True AtMaximum: no replica runs, because the maximum is 0 at present: raise the maximum, or wait for the end of the schedule that sets it"
			got, _, _ := strings.Cut(w.condition(t), lastChange)
			if diff := cmp.Diff(want, got); diff != "" || w.read(t).DesiredReplicas() != 0 {
				t.Errorf("%d replicas, condition (-want +got):\n%s", w.read(t).DesiredReplicas(), diff)
			}
		})
	}
}

// TestRefusedScale covers an admission policy or a missing permission. The condition reports it, looks continue, and
// the memory does not count the refused change.
func TestRefusedScale(t *testing.T) {
	resource := schema.GroupResource{Group: "kaito.sh", Resource: "inferencesets"}
	for _, tc := range []struct {
		reason, want string
		err          error
	}{
		{
			"forbidden", `inferencesets.kaito.sh "chat" is forbidden: no more than one replica`,
			apierrors.NewForbidden(resource, "chat", errors.New("no more than one replica")),
		},
		{
			"invalid", ` "chat" is invalid`,
			apierrors.NewInvalid(v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind).GroupKind(), "chat", nil),
		},
		{
			"a webhook with the default code of its framework", `denied the request: not on weekends`,
			apierrors.NewBadRequest(`admission webhook "v.example" denied the request: not on weekends`),
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(1))
			for range 8 {
				w.refuse = tc.err
				w.live(t, UsualInterval, 20)
			}
			got := w.condition(t)
			if !strings.HasPrefix(got, "False ScaleRefused: the API server rejects the new number of replicas: ") ||
				!strings.Contains(got, tc.want) {
				t.Errorf("condition %q", got)
			}
			if w.asked != 8 {
				t.Errorf("%d reads of the engine in 8 intervals", w.asked)
			}
			if changes := w.reconciler.memories.of(w.read(t)).state.Changes; len(changes) > 0 {
				t.Errorf("changes that were not written are remembered: %+v", changes)
			}
			if diff := cmp.Diff([]string{"status"}, w.written()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			w.refuse = nil
			w.live(t, 3*time.Minute, 20)
			if got := w.condition(t); w.read(t).DesiredReplicas() != 2 || !strings.HasPrefix(got, "True FollowsDemand: ") {
				t.Errorf("%d replicas once the write is accepted, condition %q", w.read(t).DesiredReplicas(), got)
			}
		})
	}
}

// TestConflictsReadNoEngines: retries on a lagging cache do not read the engines again.
func TestConflictsReadNoEngines(t *testing.T) {
	w := newWorld(t, set(1))
	w.run(t, 1)
	w.requests(1, 20)
	for range 5 {
		w.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "inferencesets"}, "chat", errors.New("changed"))
		result, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set(0))})
		if err != nil || result.RequeueAfter != conflicted {
			t.Fatalf("%+v, %v", result, err)
		}
		w.clock.SetTime(w.clock.Now().Add(conflicted))
	}
	if w.asked != 1 {
		t.Errorf("%d reads of the engine within a second", w.asked)
	}
	if got := w.reconciler.memories.of(w.read(t)).state.Samples; len(got) > 0 {
		t.Errorf("%d samples of one look are remembered", len(got))
	}
}

// TestTwoLooksInAMoment covers a look right after another one, for example after a wake. It keeps the rates of the
// first.
func TestTwoLooksInAMoment(t *testing.T) {
	loaded := func(at time.Time, finished float64) *asked {
		s := unread()
		s.Running, s.Waiting, s.Finished = 4, 50, finished
		s.EndToEnd, s.Queued = engineprobe.Sum{Seconds: finished * 3, Count: finished}, engineprobe.Sum{Seconds: finished, Count: finished}
		return &asked{ws: &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "chat-0", UID: "chat-0"}}, signals: s, at: at}
	}
	silent := loaded(noon, 0)
	silent.problem = "does not answer"
	m := &memory{readings: map[types.UID]reading{}}
	look := func(each *asked) (arrivals, service float64) {
		out := &observed{}
		m.digest([]*asked{each}, out)
		return out.signals.Engines[0].Arrivals, out.signals.Engines[0].ServiceTime
	}
	look(loaded(noon, 100))
	for _, tc := range []struct {
		reason string
		of     *asked
		want   []float64
	}{
		{"a whole interval", loaded(noon.Add(15*time.Second), 130), []float64{2, 2}},
		{"a second later", loaded(noon.Add(16*time.Second), 131), []float64{2, 2}},
		{"the time since the last whole look", loaded(noon.Add(25*time.Second), 140), []float64{1, 2}},
		{"no answer", silent, []float64{math.NaN(), math.NaN()}},
		{"the answer after it covers both", loaded(noon.Add(35*time.Second), 170), []float64{3, 2}},
	} {
		arrivals, service := look(tc.of)
		if got := []float64{arrivals, service}; !cmp.Equal(tc.want, got, equateNaN()) {
			t.Errorf("%s: arrivals and service time %v, want %v", tc.reason, got, tc.want)
		}
	}
}

func equateNaN() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) })
}

// TestPriceBeforeTheFirstPlan: maxHourlyPrice applies although the price of a replica is not yet known.
func TestPriceBeforeTheFirstPlan(t *testing.T) {
	w := newWorld(t, set(0, func(s *v1beta1.InferenceSet) {
		s.Spec.Autoscaling.MinReplicas, s.Spec.Autoscaling.MaxHourlyPrice = new(int32(3)), "4"
	}))
	w.pass(t)
	if got := w.read(t).DesiredReplicas(); got != 1 {
		t.Errorf("%d replicas before the first plan, want 1", got)
	}
	w.live(t, time.Minute, 5)
	if got := w.read(t).DesiredReplicas(); got != 2 {
		t.Errorf("%d replicas of $2/h for $4/h", got)
	}
}

// TestTemplateForgetsThePrice: another template starts a replica again after the former one was too expensive.
func TestTemplateForgetsThePrice(t *testing.T) {
	w := newWorld(t, set(1, func(s *v1beta1.InferenceSet) {
		s.Spec.Autoscaling.MinReplicas, s.Spec.Autoscaling.MaxHourlyPrice = new(int32(1)), "1"
	}))
	w.run(t, 1)
	w.pass(t)
	if got := w.read(t).DesiredReplicas(); got != 0 {
		t.Fatalf("%d replicas of $2/h for $1/h", got)
	}
	w.run(t, 0)
	w.live(t, time.Minute, 0)
	if got := w.read(t).DesiredReplicas(); got != 0 {
		t.Fatalf("%d replicas of the same template", got)
	}
	cheaper := w.read(t)
	cheaper.Spec.Template.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "smaller"}}
	if err := w.Update(t.Context(), cheaper); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(UsualInterval))
	w.pass(t)
	if got := w.read(t).DesiredReplicas(); got != 1 {
		t.Errorf("%d replicas of a template whose price is unknown, want 1", got)
	}
}
