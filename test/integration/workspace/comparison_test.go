// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/comparison"
	"github.com/modelberth/modelberth/pkg/controllers/inferenceset"
	"github.com/modelberth/modelberth/pkg/routerprobe"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// standInRouter reports the given counts for the set's new template, whichever that is.
type standInRouter struct {
	*httptest.Server
	pair  atomic.Pointer[comparison.Pair]
	reads atomic.Int64
	set   *v1beta1.InferenceSet
	read  client.Reader
}

func (r *standInRouter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.reads.Add(1)
	found := &v1beta1.InferenceSet{}
	report := comparison.Report{}
	if err := r.read.Get(req.Context(), client.ObjectKeyFromObject(r.set), found); err == nil && found.Status.Canary != nil {
		report.Sets = []comparison.Set{{
			Namespace: found.Namespace, Name: found.Name, Template: found.Status.Canary.TemplateHash, Pair: *r.pair.Load(),
		}}
	}
	_ = json.NewEncoder(w).Encode(report)
}

func (r *standInRouter) counts(served, failed int64) {
	r.pair.Store(&comparison.Pair{
		New: comparison.Counts{Served: served, Failed: failed}, Previous: comparison.Counts{Served: 1000},
	})
}

// newStandInRouter starts a router, with a running pod that has its address.
func (w *world) newStandInRouter(t *testing.T, set *v1beta1.InferenceSet) (*standInRouter, routerprobe.Settings) {
	t.Helper()
	router := &standInRouter{set: set.DeepCopy(), read: w.client}
	router.counts(0, 0)
	router.Server = httptest.NewServer(router)
	t.Cleanup(router.Close)
	address, ok := router.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the address %s has no port", router.Listener.Addr())
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace(t), Name: "router", Labels: map[string]string{"app": "router"}},
		Spec:       corev1.PodSpec{NodeName: "none", Containers: []corev1.Container{{Name: "router", Image: "router"}}},
	}
	if err := w.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", PodIPs: []corev1.PodIP{{IP: "127.0.0.1"}}}
	if err := w.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return router, routerprobe.Settings{
		Namespace: pod.Namespace, Labels: pod.Labels, Interval: 50 * time.Millisecond, IsPlain: true,
		Port: address.Port,
	}
}

// TestInferenceSetComparesTemplates: a template with more errors returns, also if the controller restarts in between. An
// equal one reaches all replicas. If the router is out of reach, the rollout goes on after its deadline.
func TestInferenceSetComparesTemplates(t *testing.T) {
	w := enter(t)
	set := setForm(w.namespace(t), "chat", 2)
	set.Spec.UpdateStrategy.RollingUpdate = &v1beta1.InferenceSetRollingUpdate{
		Rollback: &v1beta1.RollbackSpec{Comparison: &v1beta1.ComparisonSpec{}},
	}
	router, settings := w.newStandInRouter(t, set)
	begin := func() *life {
		return w.beginHooked(t, faults.NewRecorder(), w.options(), app.Hooks{Sets: func(config *inferenceset.Config) {
			config.Routers, config.CompareEvery = routerprobe.New(settings, config.Live, clock.RealClock{}), 100*time.Millisecond
		}})
	}
	life := begin()
	w.createSet(t, set)
	w.untilScaled(t, set, 2)
	good, template := set.Status.CurrentRevision, func(value string) {
		t.Helper()
		w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
			spec.Template.Inference.Engine = &v1beta1.EngineSpec{Env: []v1beta1.EngineEnv{{Name: "EDIT", Value: value}}}
		})
	}
	waits := func(says string) {
		t.Helper()
		eventually(t, "one of two replicas with the edit", func() (bool, string) {
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
				return false, err.Error()
			}
			return set.Status.ReadyReplicas == 2 && set.Status.UpdatedReplicas == 1 && set.Status.Canary != nil &&
				strings.Contains(setSaying(set), says), setSaying(set)
		})
	}
	settles := func() { // for ten looks
		t.Helper()
		reads, writes := router.reads.Load(), len(life.recorder.Writes())
		during(t, "neither reads nor writes", time.Second, func() (bool, string) {
			return router.reads.Load() == reads, "the router is read"
		})
		if again := life.recorder.Writes()[writes:]; len(again) > 0 {
			t.Errorf("a settled set was written: %q", again)
		}
	}
	settles()

	template("worse")
	waits("fewer than 100 requests to the new template")
	life.end(t)
	router.counts(60, 60)
	life = begin()
	w.untilSet(t, set, v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonRolledBack)
	failed := *set.Status.Rollout
	if want := "50.0% of 120 requests to the new template failed"; !strings.Contains(failed.Message, want) {
		t.Errorf("the rollout says %q, want %q", failed.Message, want)
	}
	life.end(t)
	router.counts(1000, 0)
	life = begin()
	eventually(t, "two ready replicas with the previous template", func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return false, err.Error()
		}
		return set.Status.ReadyReplicas == 2 && set.Status.UpdatedReplicas == 0 && set.Status.Canary == nil, setSaying(set)
	})
	if now := set.Status; now.CurrentRevision != good || !now.Rollout.FailedTime.Equal(failed.FailedTime) {
		t.Errorf("the status is %+v, want the revision %s and the failure %+v", now, good, failed)
	}
	settles()

	router.counts(0, 0)
	template("equal")
	waits("fewer than 100 requests to the new template")
	router.counts(1000, 0)
	w.untilScaled(t, set, 2)
	settles()

	router.Close()
	w.edit(t, set, func(spec *v1beta1.InferenceSetSpec) {
		spec.UpdateStrategy.RollingUpdate.Rollback.Comparison.Deadline = &metav1.Duration{Duration: 5 * time.Second}
	})
	template("unknown")
	waits("router router does not answer on port")
	w.untilScaled(t, set, 2)
	w.removeSet(t, set)
}
