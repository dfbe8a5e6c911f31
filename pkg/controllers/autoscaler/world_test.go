// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engineprobe"
)

var noon = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// world is a cluster in memory with one set, whose engines report the figures of the test.
type world struct {
	client.WithWatch
	clock      *testclock.FakePassiveClock
	events     *record.FakeRecorder
	reconciler *Reconciler
	hasKEDA    bool

	mu sync.Mutex
	// load holds the signals of each engine by address; an engine without an entry does not answer. asked counts the
	// reads.
	load  map[string]engineprobe.Signals
	fails error
	asked int
	// running is the number of existing replicas.
	running int
	// writes lists the writes of the scale and of the status.
	writes []string
	// refuse is the error of the next write of the scale.
	refuse error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	keda := ScaledObjectKind()
	scheme.AddKnownTypeWithName(keda, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(keda.GroupVersion().WithKind("ScaledObjectList"), &unstructured.UnstructuredList{})
	w := &world{clock: testclock.NewFakePassiveClock(noon), events: record.NewFakeRecorder(1000), load: map[string]engineprobe.Signals{}}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1beta1.InferenceSet{}, &v1beta1.Workspace{}, &corev1.Pod{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: w.patch}).Build()
	w.restart(t)
	return w
}

// patch implements the subresource scale, which the client in memory supports only for Kubernetes' own kinds.
func (w *world) patch(
	ctx context.Context, inner client.Client, subresource string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
) error {
	if subresource != "scale" {
		w.writes = append(w.writes, subresource)
		return inner.SubResource(subresource).Patch(ctx, object, patch, options...)
	}
	if err := w.refuse; err != nil {
		w.refuse = nil
		return err
	}
	data, err := patch.Data(object)
	if err != nil {
		return err
	}
	var scale struct {
		Metadata struct{ ResourceVersion string }
		Spec     struct{ Replicas int32 }
	}
	if err := json.Unmarshal(data, &scale); err != nil {
		return err
	}
	set := &v1beta1.InferenceSet{}
	if err := inner.Get(ctx, client.ObjectKeyFromObject(object), set); err != nil {
		return err
	}
	if set.ResourceVersion != scale.Metadata.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "inferencesets"}, set.Name, errors.New("changed"))
	}
	w.writes = append(w.writes, fmt.Sprintf("scale %d", scale.Spec.Replicas))
	set.Spec.Replicas = &scale.Spec.Replicas
	set.Generation++
	return inner.Update(ctx, set)
}

// restart starts another process.
func (w *world) restart(t *testing.T) {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.reconciler = New(Config{
		Client: w, Live: w, Others: w, HasKEDA: w.hasKEDA, Engines: w, Events: w.events, Clock: w.clock, Metrics: metrics,
	})
}

// Signals implements Engines.
func (w *world) Signals(_ context.Context, _ string, at engineprobe.Endpoint) (engineprobe.Signals, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.fails != nil {
		return engineprobe.Signals{}, w.fails
	}
	found, ok := w.load[at.Address]
	if !ok {
		return engineprobe.Signals{}, context.DeadlineExceeded
	}
	return found, nil
}

// set returns a set with a policy.
func set(replicas int32, change ...func(*v1beta1.InferenceSet)) *v1beta1.InferenceSet {
	out := &v1beta1.InferenceSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "chat", UID: "uid-chat", Generation: 1},
		Spec: v1beta1.InferenceSetSpec{
			Replicas: &replicas,
			Autoscaling: &v1beta1.AutoscalingSpec{
				MinReplicas: new(int32(0)), MaxReplicas: new(int32(4)),
				Targets: []v1beta1.AutoscalingTarget{{Metric: "RequestsInFlight", Value: "10"}},
			},
		},
	}
	for _, c := range change {
		c(out)
	}
	return out
}

func (w *world) read(t *testing.T) *v1beta1.InferenceSet {
	t.Helper()
	out := &v1beta1.InferenceSet{}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(set(0)), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// address returns the address of the i-th engine.
func address(i int) string { return fmt.Sprintf("10.0.0.%d:5000", i+1) }

// run keeps this many replicas of the set. Each answers after a start-up of five minutes.
func (w *world) run(t *testing.T, replicas int) {
	t.Helper()
	if w.running == replicas {
		return
	}
	w.running = replicas
	for i := range 5 {
		name := fmt.Sprintf("chat-%d", i)
		ws := &v1beta1.Workspace{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), Labels: map[string]string{v1beta1.LabelInferenceSet: "chat"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set(0), v1beta1.GroupVersion().WithKind(v1beta1.InferenceSetKind))},
		}}
		ws.Inference = &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "m"}}
		ws.Status.Plan = &v1beta1.PlanStatus{Engine: "vllm", HourlyPrice: "2"}
		end := metav1.NewTime(noon)
		ws.Status.Startup = []v1beta1.StartupStage{{Stage: v1beta1.StageReady, StartTime: metav1.NewTime(noon.Add(-5 * time.Minute)), EndTime: &end}}
		ws.Status.Conditions = []metav1.Condition{{
			Type: v1beta1.ConditionInferenceReady, Status: metav1.ConditionTrue, Reason: "R", LastTransitionTime: metav1.NewTime(noon),
		}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name + "-0", Labels: map[string]string{v1beta1.LabelWorkspace: name},
		}, Status: corev1.PodStatus{PodIP: strings.TrimSuffix(address(i), ":5000")}}
		for _, object := range []client.Object{ws, pod} {
			if i >= replicas {
				if err := client.IgnoreNotFound(w.Delete(t.Context(), object)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := w.Create(t.Context(), object); apierrors.IsAlreadyExists(err) {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			if err := w.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// requests spreads this many running requests evenly over the first engines.
func (w *world) requests(engines int, running float64) {
	w.load = map[string]engineprobe.Signals{}
	for i := range engines {
		s := unread()
		s.Running, s.Waiting, s.KVCacheUse = running/float64(engines), 0, 0
		w.load[address(i)] = s
	}
}

// pass reconciles once, and again for the event of its own write.
func (w *world) pass(t *testing.T) {
	t.Helper()
	for range 2 {
		result, err := w.reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(set(0))})
		if err != nil || result.RequeueAfter > UsualInterval {
			t.Fatalf("%+v, %v", result, err)
		}
	}
}

// live reconciles every 15 seconds for some time. The replicas follow the set at once.
func (w *world) live(t *testing.T, length time.Duration, running float64) {
	t.Helper()
	for end := w.clock.Now().Add(length); w.clock.Now().Before(end); {
		replicas := w.read(t).DesiredReplicas()
		w.run(t, replicas)
		w.requests(replicas, running)
		w.pass(t)
		w.clock.SetTime(w.clock.Now().Add(UsualInterval))
	}
}

func (w *world) written() []string {
	out := w.writes
	w.writes = nil
	return out
}

// condition returns the condition Autoscaling in one line.
func (w *world) condition(t *testing.T) string {
	t.Helper()
	found := meta.FindStatusCondition(w.read(t).Status.Conditions, v1beta1.ConditionAutoscaling)
	if found == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", found.Status, found.Reason, found.Message)
}

func (w *world) wake(t *testing.T, at time.Time) {
	t.Helper()
	s := w.read(t)
	s.Annotations = map[string]string{v1beta1.AnnotationWake: at.Format(time.RFC3339)}
	if err := w.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
