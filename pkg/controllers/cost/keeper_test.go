// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

// TestNothingIsWritten: nothing is written before a purchase, and after everything is booked.
func TestNothingIsWritten(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	for range 20 {
		if next := w.pass(t, time.Hour); next != 0 {
			t.Errorf("looks again after %s, and nothing is bought", next)
		}
	}
	pending := machineOf(ws, time.Time{})
	pending.Launched = false
	w.costs = []capacity.MachineCost{pending}
	w.pass(t, time.Hour)
	if got := w.written(); len(got) > 0 {
		t.Errorf("nothing is bought, and written %v", got)
	}
	w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
	w.pass(t, time.Minute)
	w.costs = nil
	w.pass(t, time.Minute)
	w.pass(t, time.Minute)
	w.written()
	w.restart()
	for range 20 {
		w.pass(t, time.Hour)
	}
	if got := w.written(); len(got) > 0 {
		t.Errorf("everything is booked, and written %v", got)
	}
}

// TestStory buys a machine, serves for an hour, and counts the writes.
func TestStory(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now())}
	w.pass(t, 2*time.Minute)
	w.answers(t, ws, metav1.ConditionTrue)
	for range 60 {
		w.pass(t, time.Minute)
	}
	if got := len(w.written()); got < 20 || got > 26 { // one shard and one copy every five minutes
		t.Errorf("%d writes in an hour", got)
	}
	w.answers(t, ws, metav1.ConditionFalse)
	w.pass(t, time.Minute)
	w.costs = nil
	if next := w.pass(t, time.Minute); next > urgency {
		t.Errorf("the end of a machine waits %s", next)
	}
	w.pass(t, urgency)
	want := map[string]float64{"starting": 120, "serving": 3600, "idle": 120}
	for _, namespace := range []string{"modelberth", "team-a"} {
		if diff := cmp.Diff(want, w.stored(t, namespace)); diff != "" {
			t.Errorf("in %s: %s", namespace, diff)
		}
	}
	stored := &corev1.ConfigMap{}
	if err := w.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: v1beta1.CostConfigMap}, stored); err != nil {
		t.Fatal(err)
	}
	ledger, err := cost.Decode([]byte(stored.Data[v1beta1.CostLedgerKey]))
	if err != nil {
		t.Fatal(err)
	}
	wantKey := cost.Key{
		Namespace: "team-a", Workspace: "chat", Labels: "team=search", InstanceType: "A100", CapacityType: "on-demand", Price: 3_600_000, Source: "NodeClaim",
	}
	if diff := cmp.Diff(wantKey, ledger.Charges(time.Time{})[0].Key); diff != "" {
		t.Error(diff)
	}
}

// TestNoTimeIsLostBetweenLooks covers intervals with fractions of a millisecond.
func TestNoTimeIsLostBetweenLooks(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, 0)
	for range 1000 {
		w.pass(t, 2*time.Second+999_999*time.Nanosecond)
	}
	w.costs = nil
	w.pass(t, time.Microsecond)
	w.pass(t, urgency)
	if diff := cmp.Diff(map[string]float64{"wasted": 2001}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestStates checks the state of a machine, given its Workspace. Machines without a Workspace are leaked, unless they
// are being deleted.
func TestStates(t *testing.T) {
	ws := workspace("team-a", "chat")
	for _, tc := range []struct {
		reason string
		change func(*capacity.MachineCost, *v1beta1.Workspace)
		want   string
	}{
		{"the model answers", func(*capacity.MachineCost, *v1beta1.Workspace) {}, "serving"},
		{"the Workspace is gone", func(b *capacity.MachineCost, _ *v1beta1.Workspace) { b.Owner.UID = "former" }, "leaked"},
		{"a machine of a Workspace that is gone is being deleted", func(b *capacity.MachineCost, _ *v1beta1.Workspace) {
			b.Owner.UID, b.Leaving = "former", true
		}, "starting"},
		{"the machine belongs to a plan that does not serve yet", func(b *capacity.MachineCost, ws *v1beta1.Workspace) {
			ws.Status.Attempts = []v1beta1.Attempt{{Number: 1, NodeClaims: []string{b.Machine}}}
		}, "starting"},
		{"its attempt is complete", func(b *capacity.MachineCost, ws *v1beta1.Workspace) {
			ready := metav1.NewTime(noon)
			ws.Status.Attempts = []v1beta1.Attempt{{Number: 1, NodeClaims: []string{b.Machine}, ReadyTime: &ready}}
		}, "serving"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			mine := ws.DeepCopy()
			bill := machineOf(mine, noon)
			tc.change(&bill, mine)
			w := newWorld(t, mine)
			w.answers(t, mine, metav1.ConditionTrue)
			w.costs = []capacity.MachineCost{bill}
			w.pass(t, time.Minute)
			w.pass(t, 5*time.Minute)
			got := w.stored(t, "modelberth")
			if diff := cmp.Diff(map[string]float64{tc.want: 360}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTokens: tokens of serving machines are counted, each once.
func TestTokens(t *testing.T) {
	ws := workspace("team-a", "chat")
	ws.Status.Plan = &v1beta1.PlanStatus{Engine: "vllm", Performance: &v1beta1.PlanPerformance{PricePerMillionOutputTokens: "1.25"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-0", UID: "pod", Labels: map[string]string{v1beta1.LabelWorkspace: "chat"}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1"},
	}
	w := newWorld(t, ws, pod)
	w.answers(t, ws, metav1.ConditionTrue)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	count := func(output int64, ok bool) {
		t.Helper()
		delete(w.tokens, "10.0.0.1:5000")
		if ok {
			w.tokens["10.0.0.1:5000"] = engineprobe.Tokens{Prompt: 2 * output, Output: output, Started: "1"}
		}
		if _, err := w.keeper.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: tokens}}); err != nil {
			t.Fatal(err)
		}
	}
	count(100, true)
	count(0, false)
	count(150, true)
	w.pass(t, 5*time.Minute)
	w.restart()
	count(170, true)
	w.pass(t, 5*time.Minute)
	if got := w.stored(t, "team-a")["output"]; got != 170 {
		t.Errorf("%v tokens, want 170", got)
	}
	metrics := gathered(t, w.keeper, true)
	for name, want := range map[string]float64{
		`modelberth_cost_month_tokens{kind="output",namespace="team-a",workspace="chat"}`: 170,
		`modelberth_cost_month_tokens{kind="prompt",namespace="team-a",workspace="chat"}`: 340,
		`modelberth_cost_month_usd{namespace="team-a",state="serving",workspace="chat"}`:  0.66,
	} {
		if got := metrics[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name := range gathered(t, w.keeper, false) {
		if strings.Contains(name, "chat") {
			t.Errorf("%s names a Workspace", name)
		}
	}
	w.restart()
	if got := gathered(t, w.keeper, true); len(got) > 0 {
		t.Errorf("a replica that does not lead reports %v", got)
	}
}

// TestProcess: only a restart of the engine's container makes another process.
func TestProcess(t *testing.T) {
	for _, tc := range []struct {
		reason   string
		names    []string
		statuses []corev1.ContainerStatus
		want     string
	}{
		{"no container has started yet", []string{"chat"}, nil, "pod/0"},
		{"a sidecar restarted", []string{"proxy", "chat"}, []corev1.ContainerStatus{{Name: "chat", RestartCount: 1}, {Name: "proxy", RestartCount: 7}}, "pod/1"},
		{"a user's own pod", []string{"server", "proxy"}, []corev1.ContainerStatus{{Name: "proxy", RestartCount: 7}, {Name: "server", RestartCount: 2}}, "pod/2"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "pod", Labels: map[string]string{v1beta1.LabelWorkspace: "chat"}}}
			for _, name := range tc.names {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
			}
			pod.Status.ContainerStatuses = tc.statuses
			if got := processOf(pod); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// TestScrapeDuringWrite: a scrape does not wait for a write to the API server.
func TestScrapeDuringWrite(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.costs = []capacity.MachineCost{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	var during map[string]float64
	w.onWrite = func() {
		scraped := make(chan map[string]float64, 1)
		go func() { scraped <- gathered(t, w.keeper, false) }()
		select {
		case during = <-scraped:
		case <-time.After(10 * time.Second):
		}
	}
	w.pass(t, 5*time.Minute)
	const seconds = `modelberth_cost_month_machine_seconds{namespace="team-a",state="starting",workspace=""}`
	if got := during[seconds]; got != 360 {
		t.Errorf("during a write, %s is %v, want 360", seconds, got)
	}
	if got := gathered(t, w.keeper, false)["modelberth_cost_unstored_seconds"]; got != 0 {
		t.Errorf("unstored for %v s after the write", got)
	}
	w.clock.SetTime(noon.AddDate(0, 1, 0))
	if _, ok := gathered(t, w.keeper, false)[seconds]; ok {
		t.Error("the costs of the former month are shown in the next one, in which nobody looked yet")
	}
}

// TestIdleBeforeTheLedger: the ledger begins when a model has stopped answering. Its machine is released, and was not
// wasted, although an earlier version did not record the answer. A machine that came later never served.
func TestIdleBeforeTheLedger(t *testing.T) {
	for _, test := range []struct {
		reason   string
		launched time.Duration
		attempts int32
		want     map[string]float64
	}{
		{"the model answered on it for an hour", -2 * time.Hour, 1, map[string]float64{"serving": 3600, "idle": 3660}},
		{"it replaces one that is lost", -30 * time.Minute, 1, map[string]float64{"wasted": 1860}},
		{"it is of a later attempt, on which the model never answered", -2 * time.Hour, 2, map[string]float64{"wasted": 7260}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			ws := workspace("team-a", "chat")
			w := newWorld(t, ws)
			ago := func(before time.Duration) *metav1.Time { return new(metav1.NewTime(w.clock.Now().Add(before))) }
			w.answers(t, ws, metav1.ConditionFalse)
			ws.Status.Conditions[0].LastTransitionTime = *ago(-time.Hour)
			for number := range test.attempts {
				ws.Status.Attempts = append(ws.Status.Attempts, v1beta1.Attempt{
					Number: number + 1, NodeClaims: []string{"chat-0"}, ReadyTime: ago(-2 * time.Hour),
				})
			}
			if err := w.Update(t.Context(), ws); err != nil {
				t.Fatal(err)
			}
			w.costs = []capacity.MachineCost{machineOf(ws, w.clock.Now().Add(test.launched))}
			w.pass(t, 0)
			w.costs = nil
			w.pass(t, time.Minute)
			w.pass(t, urgency)
			if diff := cmp.Diff(test.want, w.stored(t, "modelberth")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
