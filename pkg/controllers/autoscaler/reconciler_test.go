// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/controllers/pruned/prunedtest"
	"github.com/modelberth/modelberth/pkg/crd"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// TestStory wakes a set, loads it, unloads it, and leaves it idle.
func TestStory(t *testing.T) {
	w := newWorld(t, set(0))
	w.live(t, time.Minute, 0)
	if diff := cmp.Diff([]string{"status"}, w.written()); diff != "" {
		t.Errorf("writes at zero (-want +got):\n%s", diff)
	}
	w.wake(t, w.clock.Now())
	w.live(t, time.Minute, 5)
	w.live(t, 5*time.Minute, 60)
	if got := w.condition(t); w.read(t).DesiredReplicas() != 4 || !strings.HasPrefix(got, "True AtMaximum: the demand exceeds the maximum") {
		t.Errorf("%d replicas in a steep rise, with condition %q", w.read(t).DesiredReplicas(), got)
	}
	w.live(t, 30*time.Minute, 30)
	want := "True FollowsDemand: the number of replicas follows the demand, between 0 and 4. Last change at 2026-11-25T12:"
	if got := w.condition(t); !strings.HasPrefix(got, want) ||
		!strings.HasSuffix(got, ": from 4 to 3 replicas, DemandFell: RequestsInFlight is 7.5 for each replica, with a target of 10.0: the demand is 3.0 replicas") {
		t.Errorf("%d replicas for 30 requests at 10 each, with condition %q", w.read(t).DesiredReplicas(), got)
	}
	w.written()
	w.live(t, 30*time.Minute, 30)
	if got := w.written(); len(got) > 0 {
		t.Errorf("writes of a settled set: %v", got)
	}
	w.restart(t)
	w.live(t, 30*time.Minute, 30)
	if got := w.written(); len(got) > 0 {
		t.Errorf("writes of the next process: %v", got)
	}
	w.live(t, 9*time.Minute, 0)
	if got := w.read(t).DesiredReplicas(); got < 1 {
		t.Errorf("%d replicas before idleAfter is over", got)
	}
	w.live(t, 2*time.Minute, 0)
	if got := w.condition(t); w.read(t).DesiredReplicas() != 0 || !strings.HasPrefix(got, "True AtZero: no replica runs until a request arrives") {
		t.Errorf("%d replicas after idleAfter, with condition %q", w.read(t).DesiredReplicas(), got)
	}
	w.written()
	w.live(t, time.Hour, 0)
	if got := w.written(); len(got) > 0 {
		t.Errorf("writes at zero: %v", got)
	}
}

// TestEvents: each change has one event with its reason.
func TestEvents(t *testing.T) {
	w := newWorld(t, set(1))
	w.live(t, 5*time.Minute, 20)
	close(w.events.Events)
	var got []string
	for event := range w.events.Events {
		got = append(got, event)
	}
	want := []string{"Normal ScaledUp from 1 to 2 replicas: DemandRose: RequestsInFlight is 20.0 for each replica, with a target of 10.0: the demand is 2.0 replicas"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWake checks which wake annotations start a replica.
func TestWake(t *testing.T) {
	for _, tc := range []struct {
		reason, at string
		want       int
	}{
		{"a request waits", "2026-11-25T11:59:50Z", 1},
		{"the clock of the router is ahead a little", "2026-11-25T12:00:30Z", 1},
		{"the clock of the router is far ahead", "2026-11-25T13:00:00Z", 0},
		{"a wake as old as idleAfter", "2026-11-25T11:50:00Z", 0},
		{"nonsense", "yes", 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(0, func(s *v1beta1.InferenceSet) { s.Annotations = map[string]string{v1beta1.AnnotationWake: tc.at} }))
			w.pass(t)
			if got := w.read(t).DesiredReplicas(); got != tc.want {
				t.Errorf("%d replicas, want %d", got, tc.want)
			}
		})
	}
}

// TestWokenReplicaWaitsForItsRequest covers a first replica that is ready long after the wake, but before the request.
func TestWokenReplicaWaitsForItsRequest(t *testing.T) {
	w := newWorld(t, set(0, func(s *v1beta1.InferenceSet) { s.Spec.Autoscaling.IdleAfter = &metav1.Duration{Duration: time.Second} }))
	w.wake(t, noon)
	for range 4 * 5 { // five minutes of start-up, while the router is away
		w.pass(t)
		w.clock.SetTime(w.clock.Now().Add(UsualInterval))
	}
	w.run(t, 1)
	w.requests(1, 0)
	w.pass(t)
	if got := w.read(t).DesiredReplicas(); got != 1 {
		t.Errorf("%d replicas in the moment of the first answer", got)
	}
	w.live(t, 2*time.Minute, 0)
	if got := w.read(t).DesiredReplicas(); got != 0 {
		t.Errorf("%d replicas, and no request came", got)
	}
}

// TestMissingSignals: the condition explains missing signals, and no replica is removed meanwhile.
func TestMissingSignals(t *testing.T) {
	for _, tc := range []struct {
		reason string
		fails  error
		want   string
	}{
		{"unreachable", context.DeadlineExceeded, "does not answer on port 5000"},
		{"another page", fmt.Errorf("reading: %w", engineprobe.ErrMalformed), "has metrics without the expected figures"},
		{"a key is missing", &engineprobe.StatusError{Path: "/metrics", Code: 401}, "answers /metrics with status 401"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(2))
			w.fails = tc.fails
			w.live(t, 2*time.Hour, 0)
			if got := w.read(t).DesiredReplicas(); got != 2 {
				t.Errorf("%d replicas without signals", got)
			}
			want := "False SignalsMissing: Workspace chat-0 " + tc.want + ": its load is unknown, so it counts as busy, and low demand deletes no replica"
			if diff := cmp.Diff(want, w.condition(t)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff([]string{"status"}, w.written()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestShortSilenceIsNotReported: an engine that misses one look causes no write of the status.
func TestShortSilenceIsNotReported(t *testing.T) {
	w := newWorld(t, set(1))
	w.live(t, 10*time.Minute, 5)
	w.written()
	for i := range 40 {
		w.fails = nil
		if i%4 == 0 {
			w.fails = context.DeadlineExceeded
		}
		w.live(t, UsualInterval, 5)
	}
	if got := w.written(); len(got) > 0 {
		t.Errorf("writes: %v", got)
	}
}

// TestRestartLetsNothingGo: a new process removes no replica before it has watched for a window and idleAfter.
func TestRestartLetsNothingGo(t *testing.T) {
	w := newWorld(t, set(3))
	w.live(t, 9*time.Minute, 30)
	w.live(t, 4*time.Minute, 0)
	for range 20 {
		w.restart(t)
		w.live(t, 4*time.Minute, 0)
	}
	if got := w.read(t).DesiredReplicas(); got != 3 {
		t.Errorf("%d replicas, and no process watched for a window", got)
	}
	w.live(t, 15*time.Minute, 0)
	if got := w.read(t).DesiredReplicas(); got != 0 {
		t.Errorf("%d replicas after a window", got)
	}
}

// TestGapBeginsAnew: time without looks does not count as watched.
func TestGapBeginsAnew(t *testing.T) {
	w := newWorld(t, set(2))
	w.live(t, time.Minute, 20)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.live(t, 4*time.Minute, 0)
	if got := w.read(t).DesiredReplicas(); got != 2 {
		t.Errorf("%d replicas after an hour without a look", got)
	}
}

func hpa(kind, name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "theirs"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
			APIVersion: "kaito.sh/v1alpha1", Kind: kind, Name: name,
		}},
	}
}

func scaledObject(name string) *unstructured.Unstructured {
	out := ScaledObject()
	out.SetNamespace("team")
	out.SetName("kedas")
	out.Object["spec"] = map[string]any{"scaleTargetRef": map[string]any{"apiVersion": "kaito.sh/v1beta1", "kind": "InferenceSet", "name": name}}
	return out
}

// TestStandsBack: the controller yields to another autoscaler of the set, and acts again once that is gone.
func TestStandsBack(t *testing.T) {
	for _, tc := range []struct {
		reason string
		rival  client.Object
		want   string
	}{
		{"a HorizontalPodAutoscaler", hpa("InferenceSet", "chat"), "HorizontalPodAutoscaler theirs targets this InferenceSet, so spec.autoscaling has no effect: delete that object, or remove spec.autoscaling"},
		{"a ScaledObject", scaledObject("chat"), "ScaledObject kedas targets this InferenceSet, so spec.autoscaling has no effect: delete that object, or remove spec.autoscaling"},
		{"one of another set", hpa("InferenceSet", "draw"), ""},
		{"one of another kind", hpa("Deployment", "chat"), ""},
		{"a ScaledObject of another set", scaledObject("draw"), ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(1), tc.rival)
			w.hasKEDA = true
			w.restart(t)
			w.run(t, 1)
			w.requests(1, 100)
			w.pass(t)
			if tc.want == "" {
				if got := w.read(t).DesiredReplicas(); got != 4 {
					t.Errorf("%d replicas, want 4", got)
				}
				return
			}
			if got := w.read(t).DesiredReplicas(); got != 1 || w.asked > 0 {
				t.Errorf("%d replicas, and the engines were asked %d times", got, w.asked)
			}
			if diff := cmp.Diff("False AnotherAutoscaler: "+tc.want, w.condition(t)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if err := w.Delete(t.Context(), tc.rival); err != nil {
				t.Fatal(err)
			}
			w.pass(t)
			if got := w.condition(t); w.read(t).DesiredReplicas() != 4 || !strings.HasPrefix(got, "True AtMaximum") {
				t.Errorf("%d replicas and condition %q", w.read(t).DesiredReplicas(), got)
			}
		})
	}
}

// TestPolicies covers policies that are absent, invalid, or in KAITO's annotations.
func TestPolicies(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*v1beta1.InferenceSet)
		want   string
		scales bool
	}{
		{"no policy", func(s *v1beta1.InferenceSet) { s.Spec.Autoscaling = nil }, "", false},
		{
			"a maximum below the minimum", func(s *v1beta1.InferenceSet) { s.Spec.Autoscaling.MinReplicas = new(int32(5)) },
			"False PolicyInvalid: spec.autoscaling.maxReplicas is 4, below minReplicas 5: raise maxReplicas. Until you correct the policy, spec.replicas keeps its value", false,
		},
		{
			"an unknown metric", func(s *v1beta1.InferenceSet) { s.Spec.Autoscaling.Targets[0].Metric = "Mood" },
			"False PolicyInvalid: spec.autoscaling.targets: \"Mood\" is not a metric: use RequestsInFlight, WaitingRequests, WaitingTokens, " +
				"KVCacheUse, TimeToFirstToken or TimePerOutputToken. Until you correct the policy, spec.replicas keeps its value", false,
		},
		{"KAITO's annotations", func(s *v1beta1.InferenceSet) {
			s.Spec.Autoscaling = nil
			s.Annotations = map[string]string{
				"scaledobject.kaito.sh/auto-provision": "true", "scaledobject.kaito.sh/metricName": "vllm:num_requests_running",
				"scaledobject.kaito.sh/threshold": "10", "scaledobject.kaito.sh/max-replicas": "2",
			}
		}, "True FollowsDemand: the number of replicas follows the demand, between 1 and 2. Last change", true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			w := newWorld(t, set(1, tc.change))
			w.live(t, 3*time.Minute, 20)
			if got := w.read(t).DesiredReplicas(); (got != 1) != tc.scales {
				t.Errorf("%d replicas, scales: want %t", got, tc.scales)
			}
			if got := w.condition(t); got != tc.want && (tc.want == "" || !tc.scales || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("condition %q, want %q", got, tc.want)
			}
		})
	}
}

// TestPolicyTakenAway: the condition disappears with the policy.
func TestPolicyTakenAway(t *testing.T) {
	w := newWorld(t, set(1))
	w.live(t, time.Minute, 5)
	s := w.read(t)
	s.Spec.Autoscaling = nil
	if err := w.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.pass(t)
	if got := w.condition(t); got != "" || len(w.reconciler.memories.bySet) > 0 {
		t.Errorf("condition %q and %d memories are left", got, len(w.reconciler.memories.bySet))
	}
}

// TestConflict covers a simultaneous write by somebody else. The change is decided again, and the memory does not count
// it.
func TestConflict(t *testing.T) {
	w := newWorld(t, set(1))
	w.run(t, 1)
	w.requests(1, 20)
	w.refuse = apierrors.NewConflict(schema.GroupResource{Resource: "inferencesets"}, "chat", errors.New("changed"))
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set(0))}
	result, err := w.reconciler.Reconcile(t.Context(), request)
	if err != nil || result.RequeueAfter != conflicted {
		t.Fatalf("%+v, %v", result, err)
	}
	if got := w.reconciler.memories.of(w.read(t)).state; len(got.Changes) > 0 {
		t.Errorf("a change that was not written is remembered: %+v", got.Changes)
	}
	w.pass(t)
	if got := w.read(t).DesiredReplicas(); got != 2 {
		t.Errorf("%d replicas after the conflict", got)
	}
}

// TestBounds: the number of replicas stays within the bounds and the price, whatever the engines report.
func TestBounds(t *testing.T) {
	w := newWorld(t, set(1, func(s *v1beta1.InferenceSet) {
		s.Spec.Autoscaling.MinReplicas, s.Spec.Autoscaling.MaxHourlyPrice = new(int32(1)), "6"
	}))
	w.live(t, 3*time.Minute, 1000)
	if got := w.read(t).DesiredReplicas(); got != 3 {
		t.Errorf("%d replicas of $2/h for $6/h", got)
	}
	if got := w.condition(t); !strings.HasPrefix(got, "True AtPriceCap: more than 3 replicas would cost more than maxHourlyPrice: raise maxHourlyPrice, or accept a queue") {
		t.Errorf("condition %q", got)
	}
}

// TestRandomLife lets engines report anything or nothing, and processes end at any time. The number of replicas stays
// within its bounds, and no replica is removed while an engine is silent, or shortly after a restart.
func TestRandomLife(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		least := r.IntN(3)
		w := newWorld(t, set(int32(least+r.IntN(2)), func(s *v1beta1.InferenceSet) {
			s.Spec.Autoscaling.MinReplicas = new(int32(least))
			s.Spec.Autoscaling.ScaleDown = &v1beta1.AutoscalingPace{Window: &metav1.Duration{Duration: 2 * time.Minute}}
			s.Spec.Autoscaling.IdleAfter = &metav1.Duration{Duration: 2 * time.Minute}
		}))
		calm := w.clock.Now() // the time of the last restart
		for range 150 {
			before := w.read(t).DesiredReplicas()
			w.fails = nil
			switch r.IntN(20) {
			case 0:
				w.fails = context.DeadlineExceeded
			case 1:
				w.restart(t)
				calm = w.clock.Now()
			case 2:
				w.wake(t, w.clock.Now())
			}
			w.live(t, UsualInterval, float64(r.IntN(2)*r.IntN(80)))
			after := w.read(t).DesiredReplicas()
			if after < least || after > 4 {
				t.Fatalf("seed %d: %d replicas, the bounds are %d and 4", seed, after, least)
			}
			if after < before && (w.fails != nil || w.clock.Now().Sub(calm) < 2*time.Minute) {
				t.Fatalf("seed %d: from %d to %d replicas: silence %v, %s after a restart", seed, before, after, w.fails, w.clock.Now().Sub(calm))
			}
		}
	}
}

// TestEngineOf computes rates from two readings.
func TestEngineOf(t *testing.T) {
	sum := func(seconds, count float64) engineprobe.Sum { return engineprobe.Sum{Seconds: seconds, Count: count} }
	before := reading{at: noon, signals: engineprobe.Signals{
		Speed:    engineprobe.Speed{Running: 2, Waiting: 1, TokenTime: sum(10, 1000)},
		Finished: 10, FirstToken: sum(5, 10), EndToEnd: sum(100, 10), Queued: sum(4, 10),
	}}
	after := reading{at: noon.Add(10 * time.Second), signals: engineprobe.Signals{
		Speed:      engineprobe.Speed{Running: 4, Waiting: 2, TokenTime: sum(20, 1200)},
		KVCacheUse: 0.5, Finished: 15, FirstToken: sum(10, 15), EndToEnd: sum(150, 15), Queued: sum(9, 15),
	}}
	type rates struct{ Arrivals, Service, First, Token string }
	of := func(before, after reading) rates {
		if before.since == (autoscale.Engine{}) {
			before.since = autoscale.Unknown()
		}
		e := before.next(after.at, after.signals).engine(after.signals)
		text := func(v float64) string { return fmt.Sprintf("%.3g", v) }
		return rates{text(e.Arrivals), text(e.ServiceTime), text(e.TimeToFirstToken), text(e.TimePerOutputToken)}
	}
	unknown := rates{"NaN", "NaN", "NaN", "NaN"}
	for _, tc := range []struct {
		reason        string
		before, after reading
		want          rates
	}{
		{"five ended and three more are here, in ten seconds", before, after, rates{"0.8", "9", "1", "0.05"}},
		{"nothing happened", after, reading{at: after.at.Add(10 * time.Second), signals: after.signals}, rates{"0", "NaN", "NaN", "NaN"}},
		{"a moment", before, reading{at: before.at.Add(time.Second), signals: after.signals}, unknown},
		{"another process", after, reading{at: after.at.Add(10 * time.Second), signals: before.signals}, unknown},
		{"the first look", reading{signals: unread()}, after, unknown},
	} {
		if diff := cmp.Diff(tc.want, of(tc.before, tc.after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestPrunedSetIsNotScaled: nothing is written while fields are pruned, because the policy itself may be pruned.
func TestPrunedSetIsNotScaled(t *testing.T) {
	tests := []struct {
		reason string
		schema prunedtest.Schema
		edit   func(*v1beta1.InferenceSet)
		want   int
	}{
		{"both definitions are whole", prunedtest.Schema{}, func(*v1beta1.InferenceSet) {}, 2},
		{"replicas would be written", prunedtest.Schema{crd.Workspaces: "b"}, func(*v1beta1.InferenceSet) {}, 1},
		{"the policy is pruned", prunedtest.Schema{crd.InferenceSets: "a"}, func(s *v1beta1.InferenceSet) { s.Spec.Autoscaling = nil }, 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			w := newWorld(t, set(1))
			w.run(t, 1)
			w.pass(t)
			s := w.read(t)
			test.edit(s)
			if err := w.Update(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			before := w.condition(t)
			w.requests(1, 20)
			w.reconciler.Schema = test.schema
			w.live(t, time.Minute, 20)
			if got := w.read(t).DesiredReplicas(); got != test.want {
				t.Errorf("%d replicas, want %d", got, test.want)
			}
			if got := w.condition(t); before == "" || len(test.schema) > 0 && got != before {
				t.Errorf("condition %q, before %q", got, before)
			}
			if got := len(w.reconciler.memories.bySet); len(test.schema) > 0 && got > 0 {
				t.Errorf("%d memories are left: their signals are outdated after the repair", got)
			}
		})
	}
}
