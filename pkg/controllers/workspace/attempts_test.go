// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/capacity/cooldown"
	"github.com/modelberth/modelberth/pkg/capacity/refusal"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/meter/metertest"
	"github.com/modelberth/modelberth/pkg/controllers/workspace/scope"
	"github.com/modelberth/modelberth/pkg/planning"
	"github.com/modelberth/modelberth/pkg/sku"
)

// noCatalog is a catalogue that resolves no machine type.
type noCatalog struct{ planning.Catalog }

func (noCatalog) ResolveSKU(string) (sku.SKU, error) { return sku.SKU{}, errors.New("unknown") }

// noAttempts returns no attempts.
func noAttempts() ([]refusal.Attempt, error) { return nil, nil }

// told holds the published events and metrics of refusals.
type told struct {
	Events  []string
	Metrics []string
}

// teller returns a Reconciler for writing attempts, and a function that returns its events and metrics. A status
// patch fails with the error of fault.
func teller(t *testing.T, ws *v1beta1.Workspace, fault func() error) (r *Reconciler, heard func() told) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(ws).WithStatusSubresource(ws).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, inner client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			if err := fault(); err != nil {
				return err
			}
			return inner.SubResource(name).Patch(ctx, object, patch, options...)
		}}).Build()
	clock, memory, registry := testclock.NewFakePassiveClock(now.Time), &cooldown.Memory{}, prometheus.NewRegistry()
	metrics, err := meter.New(registry, memory, clock)
	if err != nil {
		t.Fatal(err)
	}
	recorder := record.NewFakeRecorder(10)
	r = New(Config{Client: kube, Catalog: noCatalog{}, Memory: memory, Metrics: metrics, Clock: clock, Events: recorder})
	return r, func() told {
		out := told{Metrics: metertest.Lines(t, registry, "modelberth_capacity_", "modelberth_spending_")}
		for len(recorder.Events) > 0 {
			out.Events = append(out.Events, <-recorder.Events)
		}
		return out
	}
}

// TestRefusalIsToldOnceItIsWritten checks when others learn of a refusal if one of the two writes of a pass fails.
func TestRefusalIsToldOnceItIsWritten(t *testing.T) {
	nothing := told{Metrics: []string{
		"modelberth_capacity_cooldowns_active 0", "modelberth_capacity_seconds 0 0s",
		"modelberth_spending_wasted_usd_total 0",
	}}
	all := told{
		Events: []string{"Warning Quota attempt 1, Standard_NC24ads_A100_v4: the words of the cloud; mend it"},
		Metrics: []string{
			"modelberth_capacity_attempts_total Standard_NC24ads_A100_v4 Quota 1",
			"modelberth_capacity_cooldowns_active 1", "modelberth_capacity_seconds 0 0s", "modelberth_spending_wasted_usd_total 3",
		},
	}
	again := told{Metrics: all.Metrics}
	unsure := told{Metrics: []string{
		"modelberth_capacity_cooldowns_active 1", "modelberth_capacity_seconds 0 0s",
		"modelberth_spending_wasted_usd_total 0",
	}}
	refusedWrite := apierrors.NewConflict(v1beta1.GroupVersion().WithResource("workspaces").GroupResource(), "chat", errors.New("newer"))
	ws := workspaceObject()
	var fault error
	r, heard := teller(t, ws, func() error { return fault })
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
		t.Fatal(err)
	}
	s := scope.New(ws)
	s.Revision = accepted(1)
	begin(s, s.Revision, 1, []string{"chat-aaaa"}, now.Time)
	s.EndAttempt(refused(refusal.Quota), now.Time)
	s.Wasted = 3
	steps := []struct {
		reason string
		fault  error
		write  func() error
		want   told
	}{
		{"it is not written down", refusedWrite, func() error { return r.records.Persist(t.Context(), s) }, nothing},
		{"nor reported", refusedWrite, func() error { return r.report(t.Context(), s, nil) }, nothing},
		{
			"it may be written down, and the next pass would have no news", errors.New("away"),
			func() error { return r.records.Persist(t.Context(), s) }, unsure,
		},
		{"it may be reported", errors.New("away"), func() error { return r.report(t.Context(), s, nil) }, unsure},
		{"it is written down", nil, func() error { return r.records.Persist(t.Context(), s) }, all},
		{"the report of that pass is lost", errors.New("away"), func() error { return r.report(t.Context(), s, nil) }, again},
		{"a later one is not", nil, func() error { return r.report(t.Context(), scope.New(s.Workspace), nil) }, again},
	}
	for _, step := range steps {
		fault = step.fault
		status := s.Workspace.Status.DeepCopy()
		if err := step.write(); (err != nil) != (step.fault != nil) {
			t.Fatalf("%s: error %v, want one: %t", step.reason, err, step.fault != nil)
		}
		if step.fault != nil {
			s.Workspace.Status = *status // so would another pass read it
		}
		if diff := cmp.Diff(step.want, heard()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.reason, diff)
		}
	}
}
