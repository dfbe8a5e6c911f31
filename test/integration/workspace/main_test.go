// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workspace_test runs the stories of a Workspace against a real API server, with the production controller and
// stand-ins for Karpenter and the kubelets.
//
// A test begins with enter: it gives the test an API server of its own and runs it beside others. main_test.go has the
// common waits, worlds_test.go the worlds.
package workspace_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/app"
	"github.com/modelberth/modelberth/pkg/capacity/preflight"
	"github.com/modelberth/modelberth/pkg/isolation"
	"github.com/modelberth/modelberth/pkg/options"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// patience is how long a story may take to reach its next point.
const patience = 30 * time.Second

// life is one run of the controller's process.
type life struct {
	world    *world
	recorder *faults.Recorder
	cancel   context.CancelFunc
	// done is closed when the controller has stopped; err says why.
	done chan struct{}
	err  error
	// requests are the requests to the API server, without watches.
	requests, watches *requests
	// cached reads from the controller's cache.
	cached client.Reader
}

// requests records the requests to the API server.
type requests struct {
	mu   sync.Mutex
	sent []string
}

func (r *requests) add(request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, request.Method+" "+request.URL.String())
}

// Load returns how many there were.
func (r *requests) Load() int { return len(r.about("")) }

// about returns the requests with a text in their address.
func (r *requests) about(what string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.sent), func(sent string) bool { return !strings.Contains(sent, what) })
}

// counted notes requests on their way.
type counted struct {
	next              http.RoundTripper
	requests, watches *requests
}

// RoundTrip implements http.RoundTripper.
func (r counted) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		r.requests.add(request)
	} else {
		r.watches.add(request)
	}
	return r.next.RoundTrip(request)
}

// begin starts the controller with its writes going through a recorder.
func (w *world) begin(t *testing.T, recorder *faults.Recorder) *life {
	t.Helper()
	return w.beginAt(t, recorder, clock.RealClock{})
}

// options are the settings of the stories' controllers.
func (w *world) options() options.Controller {
	return options.Controller{
		MultiNode: isolation.Allow, // nothing here has a network to probe
		Metrics:   options.Metrics{Address: "0"}, HealthAddress: "0", Workers: 4, QPS: 200, Burst: 400, CatalogOverlay: w.overlay,
		AgentImage: "registry.example/agent:test", HubEndpoint: "http://hub.example",
		Dedication: preflight.Auto,
		NodeClasses: []v1beta1.NodeClassReference{
			{Group: "karpenter.azure.com", Kind: "AKSNodeClass", Name: "default"},
		},
		LaunchDeadline: 10 * time.Minute, RegistrationDeadline: 20 * time.Minute, InitializationDeadline: 30 * time.Minute,
		NodeGrace: 10 * time.Minute,
	}
}

// beginAt starts the controller with a clock of the test's own.
func (w *world) beginAt(t *testing.T, recorder *faults.Recorder, now clock.PassiveClock) *life {
	t.Helper()
	return w.beginWith(t, recorder, now, w.options())
}

// beginWith starts a controller with settings of the test's own.
func (w *world) beginWith(t *testing.T, recorder *faults.Recorder, now clock.PassiveClock, o options.Controller) *life {
	t.Helper()
	return w.beginHooked(t, recorder, o, app.Hooks{Clock: now})
}

// beginHooked starts a controller with hooks of the test's own.
func (w *world) beginHooked(t *testing.T, recorder *faults.Recorder, o options.Controller, hooks app.Hooks) *life {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{world: w, recorder: recorder, done: make(chan struct{}), requests: &requests{}, watches: &requests{}}
	config := rest.CopyConfig(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, l.requests, l.watches} })
	registering.Lock()
	hooks.SkipNameValidation = true
	hooks.WrapClient = func(inner client.Client) client.Client { return recorder.Client(inner, &v1beta1.Workspace{}) }
	mgr, err := app.NewManager(ctx, config, o, hooks)
	registering.Unlock()
	if err != nil {
		cancel()
		t.Fatalf("making the controller: %v", err)
	}
	l.cancel, l.cached = cancel, mgr.GetCache()
	go func() {
		defer close(l.done)
		l.err = mgr.Start(ctx)
	}()
	t.Cleanup(func() { l.end(t) })
	return l
}

// accepted returns the controller's writes without the conflicts.
func (l *life) accepted() []string {
	return slices.DeleteFunc(l.recorder.Writes(), func(write string) bool { return strings.HasSuffix(write, "(conflict)") })
}

// untilSeen waits until the controller's watches have shown it this version of an object. Watches of different kinds do
// not keep order, so a Workspace that is created after a change may be seen before it.
func (l *life) untilSeen(t *testing.T, object client.Object) {
	t.Helper()
	seen, isClient := object.DeepCopyObject().(client.Object)
	if !isClient {
		t.Fatalf("%T is no object", object)
	}
	if _, isNamespace := object.(*corev1.Namespace); isNamespace { // the controller watches only the metadata of these
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		seen = metadata
	}
	eventually(t, "the controller sees "+object.GetName(), func() (bool, string) {
		err := l.cached.Get(t.Context(), client.ObjectKeyFromObject(object), seen)
		return err == nil && seen.GetResourceVersion() == object.GetResourceVersion(), fmt.Sprintf("version %s, %v", seen.GetResourceVersion(), err)
	})
}

// end stops the controller and waits until it has stopped. If it stopped on its own, its error explains a stuck story.
func (l *life) end(t *testing.T) {
	t.Helper()
	l.cancel()
	select {
	case <-l.done:
		if l.err != nil {
			t.Errorf("the controller stopped: %v", l.err)
		}
	case <-time.After(patience):
		t.Error("the controller does not stop")
	}
}

// namespace makes a namespace for one story.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "story-"}}
	if err := w.client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return namespace.Name
}

// create creates a Workspace, and deletes it with all its objects at the end of the story.
func (w *world) create(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := w.client.Create(t.Context(), ws); err != nil {
		t.Fatalf("creating Workspace %s: %v", ws.Name, err)
	}
	key, uid := client.ObjectKeyFromObject(ws), ws.UID
	t.Cleanup(func() {
		if t.Failed() {
			w.tell(t, key)
		}
		w.clear(t, key, uid)
	})
}

// clear deletes the remains of a story. The controller may have stopped already.
func (w *world) clear(t *testing.T, key client.ObjectKey, uid types.UID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws := &v1beta1.Workspace{}
	err := w.client.Get(ctx, key, ws)
	if err == nil && ws.UID == uid {
		if err = w.client.Delete(ctx, ws); err == nil {
			err = w.client.Patch(ctx, ws, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		}
	}
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("taking away Workspace %s: %v", key, err)
	}
	err = w.client.DeleteAllOf(ctx, &karpv1.NodeClaim{}, client.MatchingLabels{v1beta1.LabelWorkspaceUID: string(uid)})
	if err != nil {
		t.Errorf("taking away the NodeClaims of Workspace %s: %v", key, err)
	}
}

// eventually waits until done is true, and reports the last state otherwise.
func eventually(t *testing.T, what string, done func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	seen := ""
	for time.Now().Before(deadline) {
		var ok bool
		if ok, seen = done(); ok {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s: not within %s; last seen: %s", what, patience, seen)
}

// during checks that something holds the whole time.
func during(t *testing.T, what string, period time.Duration, holds func() (bool, string)) {
	t.Helper()
	for deadline := time.Now().Add(period); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok, seen := holds(); !ok {
			t.Fatalf("%s: not any more; seen: %s", what, seen)
		}
	}
}

// read gets a Workspace again.
func (w *world) read(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
		t.Fatal(err)
	}
}

// untilCondition waits for a condition of a Workspace, which it reads again into ws.
func (w *world) untilCondition(t *testing.T, ws *v1beta1.Workspace, kind string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s=%s(%s)", kind, status, reason), func() (bool, string) {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws); err != nil {
			return false, err.Error()
		}
		for _, condition := range ws.Status.Conditions {
			if condition.Type == kind && condition.Status == status && (reason == "" || condition.Reason == reason) {
				return true, ""
			}
		}
		return false, saying(ws)
	})
}

// untilGone waits until a Workspace is gone.
func (w *world) untilGone(t *testing.T, ws *v1beta1.Workspace) {
	t.Helper()
	eventually(t, "gone", func() (bool, string) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), ws)
		return client.IgnoreNotFound(err) == nil && err != nil, saying(ws)
	})
}

// kaitoForm is a Workspace as KAITO's users write it.
func kaitoForm(namespace, name string) *v1beta1.Workspace {
	return &v1beta1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Resource: v1beta1.ResourceSpec{
			InstanceType:  "Standard_NC24ads_A100_v4",
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"apps": "chat"}},
		},
		Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{Name: "tiny-chat"}},
	}
}

// plannerForm is a Workspace that leaves the machine to the planner.
func plannerForm(namespace, name string) *v1beta1.Workspace {
	ws := kaitoForm(namespace, name)
	ws.Resource = v1beta1.ResourceSpec{}
	return ws
}
