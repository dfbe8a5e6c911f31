// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/controllers/autoscaler"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// fast is a clock at twenty times the speed of the wall clock.
type fast struct {
	clock.PassiveClock
	start time.Time
}

func (f fast) Now() time.Time                   { return f.start.Add(20 * f.PassiveClock.Since(f.start)) }
func (f fast) Since(at time.Time) time.Duration { return f.Now().Sub(at) }

// engines stand in for the engines of a set: each reports an equal share of the running requests, with llama.cpp's port
// and metric names, on an address of the loopback network.
type engines struct {
	world *world
	set   *v1beta1.InferenceSet

	mu        sync.Mutex
	running   int
	addresses []string
	isBroken  bool
}

// mostEngines of a story.
const mostEngines = 4

// startEngines listens, and gives the pods of the set addresses as they come.
func startEngines(t *testing.T, w *world, set *v1beta1.InferenceSet) *engines {
	t.Helper()
	e := &engines{world: w, set: set}
	for third := 1; len(e.addresses) < mostEngines && third < 250; third++ { // other stories may have some of them
		address := fmt.Sprintf("127.77.%d.1", third)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address+":5000")
		if err != nil {
			continue
		}
		e.addresses = append(e.addresses, address)
		server := &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: patience}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	if len(e.addresses) < mostEngines {
		t.Fatal("too few addresses of the loopback network have a free port 5000")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			e.address(ctx)
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

func (e *engines) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.isBroken:
		http.Error(w, "loading", http.StatusServiceUnavailable)
	case r.URL.Path == "/metrics":
		replicas := max(1, len(e.taken(r.Context())))
		fmt.Fprintf(w, "llamacpp:requests_processing %g\nllamacpp:requests_deferred 0\n", float64(e.running)/float64(replicas))
	case r.URL.Path == "/props":
		fmt.Fprint(w, `{"total_slots":100}`)
	default:
		http.NotFound(w, r)
	}
}

// pods of the set that run.
func (e *engines) pods(ctx context.Context) []corev1.Pod {
	list := &corev1.PodList{}
	err := e.world.client.List(ctx, list, client.InNamespace(e.set.Namespace), client.MatchingLabels{v1beta1.LabelInferenceSet: e.set.Name})
	if err != nil {
		return nil
	}
	return list.Items
}

// taken are the addresses of pods.
func (e *engines) taken(ctx context.Context) map[string]bool {
	out := map[string]bool{}
	for _, pod := range e.pods(ctx) {
		if pod.Status.PodIP != "" {
			out[pod.Status.PodIP] = true
		}
	}
	return out
}

// address gives each running pod an address.
func (e *engines) address(ctx context.Context) {
	taken := e.taken(ctx)
	for _, pod := range e.pods(ctx) {
		if pod.Status.PodIP != "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, address := range e.addresses {
			if taken[address] {
				continue
			}
			patch := fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address)
			if e.world.client.Status().Patch(ctx, &pod, client.RawPatch(types.MergePatchType, patch)) == nil {
				taken[address] = true
			}
			break
		}
	}
}

func (e *engines) load(running int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = running
}

func (e *engines) breakDown(isBroken bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isBroken = isBroken
}

// beginScaling starts a controller with an autoscaler at twenty times the speed.
func (w *world) beginScaling(t *testing.T, recorder *faults.Recorder, now fast) *life {
	t.Helper()
	return w.beginHooked(t, recorder, w.options(), app.Hooks{Autoscaler: func(config *autoscaler.Config) {
		config.Clock, config.Interval = now, 200*time.Millisecond
	}})
}

func (w *world) replicas(t *testing.T, set *v1beta1.InferenceSet) int {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	return set.DesiredReplicas()
}

// untilReplicas waits for a number of ready replicas.
func (w *world) untilReplicas(t *testing.T, set *v1beta1.InferenceSet, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d replicas", want), func() (bool, string) {
		got := w.replicas(t, set)
		return got == want && int(set.Status.ReadyReplicas) == want && int(set.Status.Replicas) == want, fmt.Sprint(got) + "; " + setSaying(set)
	})
}

func (w *world) wakeSet(t *testing.T, set *v1beta1.InferenceSet, at time.Time) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.AnnotationWake, at.UTC().Format(time.RFC3339))
	if err := w.client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// scalingForm is a set at zero that may have three replicas with ten requests each.
func scalingForm(namespace string) *v1beta1.InferenceSet {
	set := setForm(namespace, "chat", 0)
	set.Spec.Autoscaling = &v1beta1.AutoscalingSpec{
		MinReplicas: new(int32(0)), MaxReplicas: new(int32(3)), IdleAfter: &metav1.Duration{Duration: 2 * time.Minute},
		Targets:   []v1beta1.AutoscalingTarget{{Metric: "RequestsInFlight", Value: "10"}},
		ScaleDown: &v1beta1.AutoscalingPace{Window: &metav1.Duration{Duration: 3 * time.Minute}},
	}
	return set
}

// TestAutoscaling wakes a set, loads it, restarts the controller, and leaves the set alone until it is at zero again.
func TestAutoscaling(t *testing.T) {
	w := enter(t)
	now := fast{clock.RealClock{}, time.Now()}
	life := w.beginScaling(t, faults.NewRecorder(), now)
	set := scalingForm(w.namespace(t))
	w.createSet(t, set)
	loaded := startEngines(t, w, set)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonAtZero)

	loaded.load(8)
	w.wakeSet(t, set, now.Now())
	w.untilReplicas(t, set, 1)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonFollowsDemand)
	loaded.load(28)
	w.untilReplicas(t, set, 3)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonFollowsDemand)
	w.checkOwner(t, set)

	before := len(life.recorder.Writes())
	time.Sleep(3 * time.Second) // a minute of its clock
	if writes := about(life.recorder.Writes()[before:], "InferenceSet"); len(writes) > 0 {
		t.Errorf("a settled set was written: %q", writes)
	}
	loaded.breakDown(true)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionFalse, v1beta1.ReasonSignalsMissing)
	if found := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionAutoscaling); !strings.Contains(found.Message, "answers /metrics with status 503") {
		t.Errorf("the condition says %q", found.Message)
	}
	loaded.breakDown(false)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonFollowsDemand)

	life.end(t)
	next := w.beginScaling(t, faults.NewRecorder(), now)
	eventually(t, "the next controller watches the sets", func() (bool, string) {
		return len(next.watches.about("/inferencesets"))+len(next.requests.about("/inferencesets")) > 0, "it does not"
	})
	time.Sleep(4 * time.Second) // longer than another verdict would have to hold
	if writes := about(next.recorder.Writes(), "InferenceSet"); len(writes) > 0 {
		t.Errorf("the next controller wrote %q", writes)
	}
	loaded.load(0)
	w.untilReplicas(t, set, 0)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonAtZero)
	eventually(t, "no machine", func() (bool, string) { n := w.claimsOf(t, set.Namespace); return n == 0, fmt.Sprint(n) })
	w.removeSet(t, set)
}

func about(writes []string, kind string) []string {
	var out []string
	for _, write := range writes {
		if strings.Contains(write, kind) && !strings.HasSuffix(write, faults.Conflict) {
			out = append(out, write)
		}
	}
	return out
}

// checkOwner checks the field manager of the number of replicas. A manifest with another number, applied by the server,
// is refused.
func (w *world) checkOwner(t *testing.T, set *v1beta1.InferenceSet) {
	t.Helper()
	var owners []string
	for _, entry := range set.ManagedFields {
		if entry.FieldsV1 != nil && strings.Contains(string(entry.FieldsV1.Raw), `"f:replicas"`) && entry.Subresource != "status" {
			owners = append(owners, entry.Manager)
		}
	}
	if len(owners) != 1 || owners[0] != autoscaler.FieldOwner {
		t.Errorf("spec.replicas belongs to %v, want %s alone", owners, autoscaler.FieldOwner)
	}
}

// TestAutoscalingStandsBack: another autoscaler has the set, until it is deleted. The second world has KEDA's definitions.
func TestAutoscalingStandsBack(t *testing.T) {
	t.Run("a HorizontalPodAutoscaler", func(t *testing.T) {
		standsBack(t, enter(t), &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "theirs"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				MaxReplicas: 3,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{
					APIVersion: v1beta1.GroupVersion().String(), Kind: v1beta1.InferenceSetKind, Name: "chat",
				},
			},
		})
	})
	t.Run("a ScaledObject", func(t *testing.T) {
		w, err := newWorld(func(environment *envtest.Environment) { environment.CRDs = append(environment.CRDs, kedaCRD()) })
		if err != nil {
			t.Fatalf("making a world: %v", err)
		}
		t.Cleanup(func() {
			if err := w.stop(); err != nil {
				t.Errorf("ending a world: %v", err)
			}
		})
		theirs := autoscaler.ScaledObject()
		theirs.SetName("theirs")
		theirs.Object["spec"] = map[string]any{"scaleTargetRef": map[string]any{
			"apiVersion": v1beta1.GroupVersion().String(), "kind": v1beta1.InferenceSetKind, "name": "chat",
		}}
		standsBack(t, w, theirs)
	})
}

// kedaCRD is the definition of ScaledObjects, without a schema.
func kedaCRD() *apiextensionsv1.CustomResourceDefinition {
	kind, anything := autoscaler.ScaledObjectKind(), true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "scaledobjects." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "scaledobjects", Singular: "scaledobject", Kind: kind.Kind, ListKind: kind.Kind + "List",
			},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		},
	}
}

func standsBack(t *testing.T, w *world, rival client.Object) {
	t.Helper()
	now := fast{clock.RealClock{}, time.Now()}
	w.beginScaling(t, faults.NewRecorder(), now)
	set := scalingForm(w.namespace(t))
	w.createSet(t, set)
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonAtZero)
	rival.SetNamespace(set.Namespace)
	if err := w.client.Create(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
	w.untilSet(t, set, v1beta1.ConditionAutoscaling, metav1.ConditionFalse, v1beta1.ReasonAnotherAutoscaler)
	w.wakeSet(t, set, now.Now())
	time.Sleep(time.Second)
	if got := w.replicas(t, set); got != 0 {
		t.Errorf("%d replicas, and another autoscaler has the set", got)
	}
	w.wakeSet(t, set, now.Now())
	if err := w.client.Delete(t.Context(), rival); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a replica", func() (bool, string) { return w.replicas(t, set) == 1, setSaying(set) })
	w.removeSet(t, set)
}
