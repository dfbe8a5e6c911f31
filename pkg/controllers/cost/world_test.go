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
	costs  []capacity.MachineCost
	tokens map[string]engineprobe.Tokens
	keeper *Keeper
	// versions are the versions of applied objects, which the client in memory lacks.
	versions map[types.NamespacedName]string
	// writes lists the applied objects, and fail is the error of the next writes.
	writes []string
	fail   error
	// refuses is a namespace in which writes are forbidden.
	refuses string
	// broken is a namespace in which writes fail for a while. attempts counts the writes to both namespaces.
	broken   string
	attempts int
	// away is the error of reads of machines.
	away error
	// refuseReads makes all reads of single objects fail, and refuseCopies the reads of copies.
	refuseReads, refuseCopies bool
	// refuseRead makes the reads of one object fail, and forbidCopies forbids the reads of copies.
	refuseRead   types.NamespacedName
	forbidCopies bool
	// onWrite runs during each write.
	onWrite func()
	// losesAnswers makes all writes succeed without an answer.
	losesAnswers bool
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
				applied, ok := object.(*applycorev1.ConfigMapApplyConfiguration)
				if !ok {
					return fmt.Errorf("%T is applied", object)
				}
				key, version := types.NamespacedName{Namespace: *applied.Namespace, Name: *applied.Name}, applied.ResourceVersion
				applied.ResourceVersion = nil
				err := w.write(key, version, func() error { return inner.Apply(ctx, object, options...) })
				if err == nil {
					applied.WithResourceVersion(w.versions[key])
				}
				return err
			},
			Create: func(ctx context.Context, inner client.WithWatch, object client.Object, options ...client.CreateOption) error {
				key := client.ObjectKeyFromObject(object)
				err := w.write(key, nil, func() error { return inner.Create(ctx, object, options...) })
				object.SetResourceVersion(w.versions[key])
				return err
			},
			Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if w.refuseReads || w.refuseCopies && key.Name == v1beta1.CostConfigMap || key == w.refuseRead {
					return errors.New("the API server is away")
				}
				if w.forbidCopies && key.Name == v1beta1.CostConfigMap {
					return apierrors.NewForbidden(corev1.Resource("configmaps"), key.Name, errors.New("no rights"))
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

// write writes an object, or fails as the test demands. version is what the client knows; nil if it names none.
func (w *world) write(key types.NamespacedName, version *string, write func() error) error {
	if w.onWrite != nil {
		w.onWrite()
	}
	if w.fail != nil {
		return w.fail
	}
	if key.Namespace == w.broken {
		w.attempts++
		return apierrors.NewInternalError(errors.New("a webhook does not answer"))
	}
	if key.Namespace == w.refuses {
		w.attempts++
		return apierrors.NewForbidden(corev1.Resource("configmaps"), key.Name, errors.New("exceeded quota"))
	}
	if version != nil && *version != w.versions[key] {
		return apierrors.NewConflict(corev1.Resource("configmaps"), key.Name, errors.New("another version"))
	}
	if err := write(); err != nil {
		return err
	}
	w.writes = append(w.writes, key.String())
	w.versions[key] = fmt.Sprint(w.clock.Now().UnixNano())
	if w.losesAnswers {
		return errors.New("the connection was lost")
	}
	return nil
}

// restart starts a new process.
func (w *world) restart() {
	w.keeper = New(Config{
		Client: w, Live: w, MachineCosts: w, Engines: w, Clock: w.clock, Namespace: "modelberth", Name: "berth-cost", Interval: 5 * time.Minute,
		Labels: []string{"team"}, Publish: true, PriceSource: "NodeClaim",
	})
}

func (w *world) MachineCosts(context.Context) ([]capacity.MachineCost, error) { return w.costs, w.away }

func (w *world) Tokens(_ context.Context, _ string, at engineprobe.Endpoint) (engineprobe.Tokens, error) {
	if out, ok := w.tokens[at.Address]; ok {
		return out, nil
	}
	return engineprobe.Tokens{}, errors.New("no answer")
}

// pass lets some time pass, and then looks at the machines.
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

// stored returns the sums of the ConfigMaps in a namespace, in seconds and tokens.
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

func machineOf(ws *v1beta1.Workspace, at time.Time) capacity.MachineCost {
	return capacity.MachineCost{
		Owner: capacity.Owner{Namespace: ws.Namespace, Name: ws.Name, UID: ws.UID}, Machine: ws.Name + "-0",
		UID: types.UID("machine-" + ws.Name), InstanceType: "A100", HourlyPrice: 3.6, Launched: true, LaunchedAt: at,
		CapacityType: v1beta1.CapacityOnDemand,
	}
}

// answers sets whether the model answers from now on.
func (w *world) answers(t *testing.T, ws *v1beta1.Workspace, status metav1.ConditionStatus) {
	t.Helper()
	ws.Status.Conditions = []metav1.Condition{{
		Type: v1beta1.ConditionInferenceReady, Status: status, LastTransitionTime: metav1.NewTime(w.clock.Now()), Reason: "R",
	}}
	if err := w.Update(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
}

// gathered returns the metrics of a Keeper.
func gathered(t *testing.T, k *Keeper, byWorkspace bool) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for range 2 { // a second one replaces the first
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
