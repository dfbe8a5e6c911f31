// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity"
	"github.com/modelberth/modelberth/pkg/cost"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// world is a cluster in memory with machines and engines.
type world struct {
	client.WithWatch
	clock  *testclock.FakePassiveClock
	bills  []capacity.Bill
	tokens map[string]engineprobe.Tokens
	keeper *Keeper
	// versions of applied objects, which the client in memory does not have.
	versions map[types.NamespacedName]string
	// writes are the applied objects, and fail is what the next ones end with.
	writes []string
	fail   error
	// refuses is a namespace that allows no ConfigMaps.
	refuses string
	// broken is a namespace whose writes fail for a while, and attempts are those in both.
	broken   string
	attempts int
	// refuseReads makes all reads of single objects fail.
	refuseReads bool
	// onWrite runs during each write.
	onWrite func()
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{clock: testclock.NewFakePassiveClock(noon), tokens: map[string]engineprobe.Tokens{}, versions: map[types.NamespacedName]string{}}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, inner client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				if w.onWrite != nil {
					w.onWrite()
				}
				if w.fail != nil {
					return w.fail
				}
				applied, ok := object.(*applycorev1.ConfigMapApplyConfiguration)
				if !ok {
					return fmt.Errorf("%T is applied", object)
				}
				key := types.NamespacedName{Namespace: *applied.Namespace, Name: *applied.Name}
				if key.Namespace == w.broken {
					w.attempts++
					return apierrors.NewInternalError(errors.New("a webhook does not answer"))
				}
				if key.Namespace == w.refuses {
					w.attempts++
					return apierrors.NewForbidden(corev1.Resource("configmaps"), key.Name, errors.New("exceeded quota"))
				}
				if applied.ResourceVersion != nil && *applied.ResourceVersion != w.versions[key] {
					return apierrors.NewConflict(corev1.Resource("configmaps"), key.Name, errors.New("another version"))
				}
				w.writes = append(w.writes, key.String())
				applied.ResourceVersion = nil
				err := inner.Apply(ctx, object, options...)
				w.versions[key] = fmt.Sprint(w.clock.Now().UnixNano())
				applied.WithResourceVersion(w.versions[key])
				return err
			},
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if w.refuseReads {
					return errors.New("the API server is away")
				}
				err := inner.Get(ctx, key, object, options...)
				if version := w.versions[key]; version != "" {
					object.SetResourceVersion(version)
				}
				return err
			},
		}).Build()
	w.restart()
	return w
}

// restart begins a new process.
func (w *world) restart() {
	w.keeper = New(Config{
		Client: w, Live: w, Bills: w, Engines: w, Clock: w.clock, Namespace: "modelberth", Name: "berth-cost", Interval: 5 * time.Minute,
		Labels: []string{"team"}, Publish: true, PriceSource: "NodeClaim",
	})
}

func (w *world) Bills(context.Context) ([]capacity.Bill, error) { return w.bills, nil }

func (w *world) Tokens(_ context.Context, _ string, at engineprobe.Endpoint) (engineprobe.Tokens, error) {
	if out, ok := w.tokens[at.Address]; ok {
		return out, nil
	}
	return engineprobe.Tokens{}, errors.New("no answer")
}

// pass lets some time pass, and looks.
func (w *world) pass(t *testing.T, after time.Duration) time.Duration {
	t.Helper()
	w.clock.SetTime(w.clock.Now().Add(after))
	result, err := w.keeper.Reconcile(t.Context(), named(machines))
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

// written returns the writes since the last call.
func (w *world) written() []string {
	out := w.writes
	w.writes = nil
	return out
}

// stored adds up what is in ConfigMaps of a namespace, in seconds and in tokens.
func (w *world) stored(t *testing.T, namespace string) map[string]float64 {
	t.Helper()
	list := &corev1.ConfigMapList{}
	if err := w.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{v1beta1.LabelCost}); err != nil {
		t.Fatal(err)
	}
	var sum cost.Cells
	for i := range list.Items {
		ledger, err := cost.Decode([]byte(list.Items[i].Data[v1beta1.CostLedgerKey]))
		if err != nil {
			t.Fatal(err)
		}
		for _, charge := range ledger.Charges(time.Time{}) {
			sum.Add(&charge.Cells)
		}
	}
	out := map[string]float64{}
	for _, state := range cost.States() {
		if millis := sum.Of(state).Millis; millis > 0 {
			out[state.String()] = float64(millis) / 1000
		}
	}
	if sum.Output > 0 {
		out["output"] = float64(sum.Output)
	}
	return out
}

func workspace(namespace, name string) *v1beta1.Workspace {
	return &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"team": "search", "other": "x"},
	}}
}

func machineOf(ws *v1beta1.Workspace, at time.Time) capacity.Bill {
	return capacity.Bill{
		Owner: capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID}, Machine: ws.Name + "-0",
		UID: types.UID("machine-" + ws.Name), InstanceType: "A100", HourlyPrice: 3.6, Launched: true, LaunchedAt: at,
		CapacityType: v1beta1.CapacityOnDemand,
	}
}

// answers sets whether a model answers, since now.
func (w *world) answers(t *testing.T, ws *v1beta1.Workspace, status metav1.ConditionStatus) {
	t.Helper()
	ws.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionInferenceReady, Status: status, LastTransitionTime: metav1.NewTime(w.clock.Now()), Reason: "R",
	}}
	if err := w.Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsWritten while nothing is bought, and once everything is booked.
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
	w.bills = []capacity.Bill{pending}
	w.pass(t, time.Hour)
	if got := w.written(); len(got) > 0 {
		t.Errorf("nothing is bought, and written %v", got)
	}
	w.bills = []capacity.Bill{machineOf(ws, w.clock.Now())}
	w.pass(t, time.Minute)
	w.bills = nil
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

// TestStory buys a machine that serves for an hour, and counts the writes.
func TestStory(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.bills = []capacity.Bill{machineOf(ws, w.clock.Now())}
	w.pass(t, 2*time.Minute)
	w.answers(t, ws, metav1.ConditionTrue)
	for range 60 {
		w.pass(t, time.Minute)
	}
	if got := len(w.written()); got < 20 || got > 26 { // every five minutes one of the books and one copy
		t.Errorf("%d writes in an hour", got)
	}
	w.answers(t, ws, metav1.ConditionFalse)
	w.pass(t, time.Minute)
	w.bills = nil
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

// TestKilledAtAnyMoment kills the process again and again: a machine that stays is charged for all of its time, once.
func TestKilledAtAnyMoment(t *testing.T) {
	for every := 1; every < 30; every++ {
		ws := workspace("team-a", "chat")
		w := newWorld(t, ws)
		w.pass(t, 0)
		w.bills = []capacity.Bill{machineOf(ws, w.clock.Now())}
		w.pass(t, time.Minute)
		w.answers(t, ws, metav1.ConditionTrue)
		for n := range 60 {
			if n%every == 0 {
				w.restart()
			}
			w.pass(t, 37*time.Second)
		}
		w.bills = nil
		w.pass(t, 0)
		w.pass(t, urgency)
		if diff := cmp.Diff(map[string]float64{"starting": 60, "serving": 60 * 37}, w.stored(t, "modelberth")); diff != "" {
			t.Errorf("killed each %d passes: %s", every, diff)
		}
	}
}

// TestNoTimeIsLostBetweenLooks whose distance is no whole number of milliseconds.
func TestNoTimeIsLostBetweenLooks(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
	w.pass(t, 0)
	for range 1000 {
		w.pass(t, 2*time.Second+999_999*time.Nanosecond)
	}
	w.bills = nil
	w.pass(t, time.Microsecond)
	w.pass(t, urgency)
	if diff := cmp.Diff(map[string]float64{"wasted": 2001}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestFormerLeader writes after another one has begun: it does not overwrite the books, and goes on from those.
func TestFormerLeader(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 5*time.Minute)
	former := w.keeper
	w.restart()
	w.pass(t, 5*time.Minute)
	w.keeper = former
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("a former leader overwrites the books")
	}
	if diff := cmp.Diff(map[string]float64{"starting": 11 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Errorf("the copy without the books of the new leader: %s", diff)
	}
	w.pass(t, 5*time.Minute)
	for _, namespace := range []string{"modelberth", "team-a"} {
		if diff := cmp.Diff(map[string]float64{"starting": 21 * 60}, w.stored(t, namespace)); diff != "" {
			t.Errorf("in %s: %s", namespace, diff)
		}
	}
}

// TestFormerLeaderEnds after it found that somebody else wrote the books, and cannot read them again.
func TestFormerLeaderEnds(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 5*time.Minute)
	former := w.keeper
	w.restart()
	w.pass(t, 5*time.Minute)
	w.keeper = former
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	if _, err := w.keeper.Reconcile(t.Context(), named(machines)); err == nil {
		t.Error("a former leader overwrites the books")
	}
	w.refuseReads = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.keeper.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"starting": 11 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Error(diff)
	}
}

// TestAPIServerFails at writes: nothing is lost, and the metric says so.
func TestAPIServerFails(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.pass(t, 0)
	w.bills = []capacity.Bill{machineOf(ws, w.clock.Now())}
	w.pass(t, time.Minute)
	w.fail = errors.New("the API server is away")
	for range 10 {
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
		_, err := w.keeper.Reconcile(t.Context(), named(machines))
		if err != nil && !strings.Contains(err.Error(), "storing the cost ledger in ConfigMap modelberth/berth-cost-") {
			t.Errorf("error %v", err)
		}
	}
	if got := gathered(t, w.keeper, true)["modelberth_cost_unstored_seconds"]; got != 600 {
		t.Errorf("unstored for %v s, want 600", got)
	}
	w.fail = nil
	w.pass(t, time.Minute)
	if diff := cmp.Diff(map[string]float64{"starting": 12 * 60}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestNamespaceRefusesCopy: its books go on, and so do the copies of others.
func TestNamespaceRefusesCopy(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	w := newWorld(t, a, b)
	w.refuses = "team-a"
	w.bills = []capacity.Bill{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	for namespace, want := range map[string]map[string]float64{
		"modelberth": {"starting": 22 * 60}, "team-a": {}, "team-b": {"starting": 11 * 60},
	} {
		if diff := cmp.Diff(want, w.stored(t, namespace)); diff != "" {
			t.Errorf("in %s: %s", namespace, diff)
		}
	}
	w.refuses = ""
	w.pass(t, 5*time.Minute)
	if diff := cmp.Diff(map[string]float64{"starting": 16 * 60}, w.stored(t, "team-a")); diff != "" {
		t.Error(diff)
	}
}

// TestCopyIsTriedAgain after a failure, also by the next process, and written once.
func TestCopyIsTriedAgain(t *testing.T) {
	ended := func(t *testing.T) *world {
		ws := workspace("team-a", "chat")
		w := newWorld(t, ws)
		w.broken = "team-a"
		w.bills = []capacity.Bill{machineOf(ws, noon)}
		w.pass(t, time.Minute)
		w.bills = nil
		if next := w.pass(t, time.Minute); next == 0 || next > time.Minute {
			t.Errorf("a copy that failed waits %s", next)
		}
		if got := len(w.written()); got != 1 || w.attempts != 1 {
			t.Fatalf("%d writes and %d attempts, want 1 of each", got, w.attempts)
		}
		w.broken = ""
		return w
	}
	for _, tc := range []struct {
		reason  string
		restart bool
	}{{"by the same process", false}, {"by the next process", true}} {
		t.Run(tc.reason, func(t *testing.T) {
			w := ended(t)
			if tc.restart {
				w.restart()
			}
			if next := w.pass(t, time.Minute); next != 0 {
				t.Errorf("looks again after %s, and everything is written", next)
			}
			if diff := cmp.Diff([]string{"team-a/modelberth-cost"}, w.written()); diff != "" {
				t.Error(diff)
			}
			for range 3 {
				w.restart()
				w.pass(t, time.Minute)
			}
			if got := w.written(); len(got) > 0 {
				t.Errorf("the copy is right, and written %v", got)
			}
		})
	}
}

// TestPublishedIsBounded: what a namespace refuses is not tried again before it changes, and gone namespaces are dropped.
func TestPublishedIsBounded(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.refuses = "team-a"
	w.bills = []capacity.Bill{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	w.bills = nil
	w.pass(t, time.Minute)
	if next := w.pass(t, urgency); next != 0 {
		t.Errorf("a copy that was refused is tried again after %s", next)
	}
	w.keeper.published["gone"] = digest{}
	for range 3 {
		w.keeper.stale["team-a"] = true
		w.pass(t, time.Minute)
	}
	if w.attempts != 1 {
		t.Errorf("%d attempts, want 1", w.attempts)
	}
	if _, ok := w.keeper.published["gone"]; ok || len(w.keeper.published) != 1 {
		t.Errorf("published: %v", w.keeper.published)
	}
}

// TestDamagedBooks are left alone, and the others go on. No copy is written without them.
func TestDamagedBooks(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	damaged := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "modelberth", Name: fmt.Sprint("berth-cost-", shardOf("team-a", "chat"))},
		Data:       map[string]string{v1beta1.CostLedgerKey: "{"},
	}
	if shardOf("team-a", "chat") == shardOf("team-b", "draw") {
		t.Fatal("the names share a shard")
	}
	w := newWorld(t, a, b, damaged)
	w.bills = []capacity.Bill{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	if got := w.written(); !cmp.Equal(got, []string{fmt.Sprint("modelberth/berth-cost-", shardOf("team-b", "draw"))}) {
		t.Errorf("written %v", got)
	}
}

// TestCopiesKeepTenantsApart: none has anything of another namespace.
func TestCopiesKeepTenantsApart(t *testing.T) {
	a, b := workspace("team-a", "chat"), workspace("team-b", "draw")
	w := newWorld(t, a, b)
	w.bills = []capacity.Bill{machineOf(a, noon), machineOf(b, noon)}
	w.pass(t, time.Minute)
	w.pass(t, 10*time.Minute)
	for namespace, other := range map[string]string{"team-a": "team-b", "team-b": "team-a"} {
		stored := &corev1.ConfigMap{}
		if err := w.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: v1beta1.CostConfigMap}, stored); err != nil {
			t.Fatal(err)
		}
		if text := stored.Data[v1beta1.CostLedgerKey]; strings.Contains(text, other) || !strings.Contains(text, namespace) {
			t.Errorf("in %s: %s", namespace, text)
		}
	}
}

// TestEndOfLeader stores what is not stored yet.
func TestEndOfLeader(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
	w.pass(t, time.Minute)
	if got := w.written(); len(got) > 0 {
		t.Fatalf("written already: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.keeper.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{"starting": 60}, w.stored(t, "modelberth")); diff != "" {
		t.Error(diff)
	}
}

// TestStates follow from the Workspace. Machines of nobody are leaked, unless they are being deleted.
func TestStates(t *testing.T) {
	ws := workspace("team-a", "chat")
	for _, tc := range []struct {
		reason string
		change func(*capacity.Bill, *v1beta1.Workspace)
		want   string
	}{
		{"the model answers", func(*capacity.Bill, *v1beta1.Workspace) {}, "serving"},
		{"the Workspace is gone", func(b *capacity.Bill, _ *v1beta1.Workspace) { b.Owner.UID = "former" }, "leaked"},
		{"a machine of a Workspace that is gone is being deleted", func(b *capacity.Bill, _ *v1beta1.Workspace) {
			b.Owner.UID, b.Leaving = "former", true
		}, "starting"},
		{"the machine belongs to a plan that does not serve yet", func(b *capacity.Bill, ws *v1beta1.Workspace) {
			ws.Status.Attempts = []v1beta1.Attempt{{Number: 1, NodeClaims: []string{b.Machine}}}
		}, "starting"},
		{"its attempt is complete", func(b *capacity.Bill, ws *v1beta1.Workspace) {
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
			w.bills = []capacity.Bill{bill}
			w.pass(t, time.Minute)
			w.pass(t, 5*time.Minute)
			got := w.stored(t, "modelberth")
			if diff := cmp.Diff(map[string]float64{tc.want: 360}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTokens are counted for the machines that serve, and each once.
func TestTokens(t *testing.T) {
	ws := workspace("team-a", "chat")
	ws.Status.Plan = &v1beta1.PlanStatus{Engine: "vllm", Performance: &v1beta1.PlanPerformance{PricePerMillionOutputTokens: "1.25"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "chat-0", UID: "pod", Labels: map[string]string{v1beta1.LabelWorkspace: "chat"}},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1"},
	}
	w := newWorld(t, ws, pod)
	w.answers(t, ws, metav1.ConditionTrue)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
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

// TestProcess is another one after a restart of the engine, and of nothing else.
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

// TestScrapeDuringWrite does not wait for the API server.
func TestScrapeDuringWrite(t *testing.T) {
	ws := workspace("team-a", "chat")
	w := newWorld(t, ws)
	w.bills = []capacity.Bill{machineOf(ws, noon)}
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

// gathered are the metrics of a Keeper.
func gathered(t *testing.T, k *Keeper, byWorkspace bool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for range 2 { // a second one takes the place of the first
		if err := Register(registry, k, byWorkspace); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			out[name] = metric.GetGauge().GetValue()
		}
	}
	return out
}
