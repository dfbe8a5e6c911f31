// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package settings_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/pkg/settings"
)

// world is an API server with the ConfigMap, and the Keeper that reads it.
type world struct {
	kube     client.WithWatch
	keeper   settings.Keeper
	events   *record.FakeRecorder
	registry *prometheus.Registry
	used     []*options.Live
	// down makes reads fail. isBusy makes Changed return false.
	down    error
	isBusy  bool
	changed int
	leads   bool
}

func newWorld(t *testing.T, data map[string]string) *world {
	t.Helper()
	w := &world{events: record.NewFakeRecorder(9), registry: prometheus.NewRegistry(), leads: true}
	name := types.NamespacedName{Namespace: "modelberth-system", Name: "modelberth-settings"}
	w.kube = fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Data: data,
	}).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if w.down != nil {
				return w.down
			}
			return c.Get(ctx, key, object)
		},
	}).Build()
	counts, err := settings.NewMetrics(w.registry)
	if err != nil {
		t.Fatal(err)
	}
	w.keeper = settings.Keeper{
		Name: name, Reader: w.kube, Use: func(next *options.Live) { w.used = append(w.used, next) }, Events: w.events, Metrics: counts,
		Changed: func(context.Context) bool { w.changed++; return !w.isBusy }, Leads: func() bool { return w.leads },
	}
	return w
}

// set replaces the data of the ConfigMap, and looks at it.
func (w *world) set(t *testing.T, data map[string]string) {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := w.kube.Get(t.Context(), w.keeper.Name, object); err != nil {
		t.Fatal(err)
	}
	object.Data = data
	if err := w.kube.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	w.look(t)
}

func (w *world) look(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := w.keeper.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.keeper.Name})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// state is what administrators can see.
type state struct {
	Cluster, Refused float64
	Uses, Changes    int
	Events           []string
}

// expect compares the state, and forgets the events.
func (w *world) expect(t *testing.T, reason string, want state) {
	t.Helper()
	got := state{Cluster: w.keeper.Current().Spending.Cluster, Uses: len(w.used), Changes: w.changed}
	for len(w.events.Events) > 0 {
		got.Events = append(got.Events, <-w.events.Events)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got.Refused = families[0].GetMetric()[0].GetGauge().GetValue()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func TestChanges(t *testing.T) {
	w := newWorld(t, map[string]string{"spending-cluster": "5"})
	if err := w.keeper.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "the first settings", state{Cluster: 5, Uses: 1})
	w.look(t)
	w.expect(t, "nothing changed", state{Cluster: 5, Uses: 1})
	w.set(t, map[string]string{"spending-cluster": "7", "zap-log-level": "debug"})
	w.expect(t, "a change", state{Cluster: 7, Uses: 2, Changes: 1, Events: []string{
		`Normal SettingsChanged the controller uses the new settings: spending-cluster from "5" to "7", zap-log-level from "" to "debug"`,
	}})

	// One problem keeps all previous settings, and is reported once.
	w.set(t, map[string]string{"spending-cluster": "9", "spending-per-workspace": "-3"})
	w.look(t)
	w.expect(t, "a mistake", state{Cluster: 7, Refused: 1, Uses: 2, Changes: 1, Events: []string{
		"Warning SettingsRefused the controller keeps its previous settings, but a restarted pod cannot start: ConfigMap " +
			"modelberth-system/modelberth-settings: --spending-per-workspace is -3: it must be a price above 0 in USD per hour; " +
			"--spending-unlimited lifts all ceilings",
	}})
	w.set(t, map[string]string{"spending-cluster": "7", "zap-log-level": "debug"})
	w.expect(t, "back to what is in use", state{Cluster: 7, Uses: 2, Changes: 1})

	if err := w.kube.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.keeper.Name.Namespace, Name: w.keeper.Name.Name}}); err != nil {
		t.Fatal(err)
	}
	w.look(t)
	w.expect(t, "the ConfigMap is deleted", state{Cluster: 7, Refused: 1, Uses: 2, Changes: 1})
}

// TestNextLeader: a replica that does not lead uses new settings too, but publishes nothing. One that is about to lead
// applies them once its caches are full.
func TestNextLeader(t *testing.T) {
	w := newWorld(t, map[string]string{"spending-cluster": "5"})
	if err := w.keeper.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.leads, w.isBusy = false, true
	w.set(t, map[string]string{"spending-cluster": "7"})
	w.expect(t, "a change on standby", state{Cluster: 7, Uses: 2, Changes: 1})
	w.isBusy = false
	if result := w.look(t); result.RequeueAfter != 0 {
		t.Errorf("it looks again after %s, though the settings are applied", result.RequeueAfter)
	}
	w.expect(t, "the caches are full", state{Cluster: 7, Uses: 2, Changes: 2})
	w.isBusy = true
	if result := w.look(t); result.RequeueAfter != 0 || w.changed != 2 {
		t.Errorf("settings are applied again without a change: %d times", w.changed)
	}
}

// TestStart: without valid settings, the controller does not start, because the defaults are not the administrator's
// limits.
func TestStart(t *testing.T) {
	tests := []struct {
		reason string
		change func(*world)
		want   string
	}{
		{"a mistake", func(*world) {}, "spending-cluster is \"much\": it must be a number in USD per hour"},
		{"no ConfigMap", func(w *world) { w.keeper.Name.Name = "other" }, "ConfigMap modelberth-system/other does not exist: create it again, for example with helm upgrade"},
		{"no answer", func(w *world) { w.down = errors.New("the server is down") }, "the server is down"},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			w := newWorld(t, map[string]string{"spending-cluster": "much"})
			test.change(w)
			if err := w.keeper.Load(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if w.keeper.Current() != nil || len(w.used) > 0 {
				t.Error("settings are in use")
			}
		})
	}
}

// TestOutage: an API server that does not answer changes nothing.
func TestOutage(t *testing.T) {
	w := newWorld(t, map[string]string{"spending-cluster": "5"})
	if err := w.keeper.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.down = errors.New("the server is down")
	if _, err := w.keeper.Reconcile(t.Context(), ctrl.Request{}); !errors.Is(err, w.down) {
		t.Errorf("got %v, want the error of the read, to try again", err)
	}
	w.expect(t, "an outage", state{Cluster: 5, Uses: 1})
}

// TestLongProblem: an event has a limited length.
func TestLongProblem(t *testing.T) {
	w := newWorld(t, nil)
	if err := w.keeper.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.set(t, map[string]string{"spending-cluster": strings.Repeat("é", 2000)})
	if event := <-w.events.Events; len(event) > 1024+len("Warning SettingsRefused ") || !strings.HasSuffix(event, "…") {
		t.Errorf("the event has %d bytes", len(event))
	}
}
