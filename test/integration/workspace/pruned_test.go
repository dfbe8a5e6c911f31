// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// TestPrunedAPIBuysNothing replaces the CustomResourceDefinition by one with KAITO's fields only, while the controller
// runs and before it starts: nothing is bought, serving pods continue, and nothing is lost.
func TestPrunedAPIBuysNothing(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	serving, suspended := kaitoForm(w.namespace(t), "serving"), kaitoForm(w.namespace(t), "suspended")
	suspended.Suspend = true
	suspended.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "20"}
	w.create(t, serving)
	w.create(t, suspended)
	w.untilCondition(t, serving, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	w.untilCondition(t, suspended, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	w.passes(t, life, serving, 1)

	restore := w.pruneAPI(t, "workspaces.kaito.sh", []string{"suspend", "resource.placement", "status.plan", "status.attempts"}, func() bool {
		w.read(t, serving)
		return serving.Status.Plan == nil
	})
	eventually(t, "the event", func() (bool, string) { return w.reportsOf(t, suspended) > 0, "none" })
	begun := kaitoForm(w.namespace(t), "begun")
	w.create(t, begun)
	w.untilCondition(t, begun, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonAPIPruned)
	life.end(t)
	life = w.begin(t, faults.NewRecorder())
	eventually(t, "a pass", func() (bool, string) { return life.recorder.Passes(client.ObjectKeyFromObject(suspended)) > 0, "none" })
	during(t, "nothing is bought", time.Second, func() (bool, string) {
		return w.karpenter.ClaimsEver(suspended.UID)+w.karpenter.ClaimsEver(begun.UID) == 0, "a NodeClaim"
	})
	w.untilCondition(t, serving, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	if got := w.karpenter.ClaimsEver(serving.UID); got != 1 {
		t.Errorf("NodeClaims ever made: %d, want 1", got)
	}
	if writes := life.recorder.Writes(); len(writes) > 0 {
		t.Errorf("the controller wrote: %v", writes)
	}

	restore()
	life.untilEnded(t)
	w.begin(t, faults.NewRecorder())
	w.untilCondition(t, begun, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)
	w.read(t, suspended)
	if !suspended.Suspend || suspended.Resource.Placement == nil || suspended.Status.Plan == nil || w.karpenter.ClaimsEver(suspended.UID) != 0 {
		t.Errorf("suspend and limits were lost: %v, %v, %s", suspended.Suspend, suspended.Resource.Placement, saying(suspended))
	}
	w.read(t, serving)
	if len(serving.Status.Attempts) != 1 || w.karpenter.ClaimsEver(serving.UID) != 1 {
		t.Errorf("attempts were lost, or a machine was bought again: %s", saying(serving))
	}
}

// TestPrunedAPIWritesNoReplica replaces the CustomResourceDefinition of Workspaces, or that of InferenceSets, while the
// controller runs and before it starts: sets create and change no Workspace, and continue once it is restored.
func TestPrunedAPIWritesNoReplica(t *testing.T) {
	tests := []struct {
		reason     string
		definition string
		fields     []string
		// isPruned reports whether the API server prunes a set and its Workspace.
		isPruned func(*v1beta1.InferenceSet, *v1beta1.Workspace) bool
	}{
		{
			"replicas would lose their suspension and their attempts", "workspaces.kaito.sh",
			[]string{"suspend", "resource.placement", "status.plan", "status.attempts"},
			func(_ *v1beta1.InferenceSet, ws *v1beta1.Workspace) bool { return ws.Status.Plan == nil },
		},
		{
			"replicas would lose the limits of the template", "inferencesets.kaito.sh",
			[]string{"spec.autoscaling", "spec.template.resource.placement"},
			func(set *v1beta1.InferenceSet, _ *v1beta1.Workspace) bool {
				return set.Spec.Template.Resource.Placement == nil
			},
		},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			w := enter(t)
			now := fast{clock.RealClock{}, time.Now()}
			life := w.beginScaling(t, faults.NewRecorder(), now)
			namespace := w.namespace(t)
			serving, asleep := setForm(namespace, "serving", 1), scalingForm(namespace)
			for _, set := range []*v1beta1.InferenceSet{serving, asleep} {
				set.Spec.Template.Resource.Placement = &v1beta1.PlacementSpec{MaxHourlyPrice: "20"}
				w.createSet(t, set)
			}
			w.untilScaled(t, serving, 1)
			w.untilSet(t, asleep, v1beta1.ConditionAutoscaling, metav1.ConditionTrue, v1beta1.ReasonAtZero)
			child := w.children(t, serving)[0]
			w.untilCondition(t, &child, v1beta1.ConditionReady, metav1.ConditionTrue, "")
			restore := w.pruneAPI(t, test.definition, test.fields, func() bool {
				w.read(t, &child)
				w.replicas(t, serving)
				return test.isPruned(serving, &child)
			})
			eventually(t, "the event", func() (bool, string) { return w.reportsOf(t, serving) > 0, setSaying(serving) })
			begun := setForm(namespace, "begun", 1)
			w.createSet(t, begun)
			w.untilSet(t, begun, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonAPIPruned)
			if whole := test.definition == "workspaces.kaito.sh"; whole { // these writes lose nothing of a set
				w.scale(t, serving, 2)
				w.wakeSet(t, asleep, now.Now())
			}
			life.end(t)
			reported := w.reportsOf(t, serving)
			life = w.beginScaling(t, faults.NewRecorder(), now)
			eventually(t, "the event of the next controller", func() (bool, string) {
				return w.reportsOf(t, serving) > reported, setSaying(serving)
			})
			during(t, "no set changes its Workspaces", time.Second, func() (bool, string) {
				names := w.childNames(t, serving)
				return len(names) == 1 && len(w.childNames(t, begun))+len(w.childNames(t, asleep)) == 0, fmt.Sprint(names)
			})
			if writes := life.recorder.Writes(); len(writes) > 0 {
				t.Errorf("the controller wrote: %v", writes)
			}
			w.untilCondition(t, &child, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonServing)

			restore()
			life.untilEnded(t)
			w.beginScaling(t, faults.NewRecorder(), now)
			w.untilScaled(t, begun, 1)
			w.untilScaled(t, serving, w.replicas(t, serving))
			w.read(t, &child)
			if len(child.Status.Attempts) != 1 || w.karpenter.ClaimsEver(child.UID) != 1 || child.Resource.Placement == nil {
				t.Errorf("a replica lost its limits or attempts, or a machine was bought again: %s", saying(&child))
			}
			w.replicas(t, asleep)
			if asleep.Spec.Autoscaling == nil || asleep.Spec.Template.Resource.Placement == nil {
				t.Errorf("the policy or the limits were lost: %+v", asleep.Spec)
			}
		})
	}
}

// TestPrunedAPIRestoredDuringStart restores the CustomResourceDefinition while a controller's new cache still has the
// pruned objects. The API server does not send them again, so the controller has to notice the repair and end.
func TestPrunedAPIRestoredDuringStart(t *testing.T) {
	w := enter(t)
	life := w.begin(t, faults.NewRecorder())
	suspended := kaitoForm(w.namespace(t), "suspended")
	suspended.Suspend = true
	w.create(t, suspended)
	w.untilCondition(t, suspended, v1beta1.ConditionPlanned, metav1.ConditionTrue, "")
	w.passes(t, life, suspended, 1)
	life.end(t)
	restore := w.pruneAPI(t, "workspaces.kaito.sh", []string{"suspend", "status.plan"}, func() bool {
		w.read(t, suspended)
		return suspended.Status.Plan == nil
	})

	hold := &firstList{path: "/apis/kaito.sh/v1beta1/workspaces", listed: make(chan struct{}), release: make(chan struct{})}
	slow := *w
	slow.config = rest.CopyConfig(w.config)
	slow.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		hold.next = next
		return hold
	})
	life = slow.begin(t, faults.NewRecorder())
	release := sync.OnceFunc(func() { close(hold.release) })
	t.Cleanup(release)
	select {
	case <-hold.listed:
	case <-time.After(patience):
		t.Fatal("the controller lists no Workspaces")
	}
	if !hold.isPruned {
		t.Fatal("the API server sent all fields")
	}
	restore()
	release()
	life.untilEnded(t)
	if writes := life.recorder.Writes(); len(writes) > 0 {
		t.Errorf("the controller wrote: %v", writes)
	}
	w.begin(t, faults.NewRecorder())
	during(t, "the Workspace stays suspended", time.Second, func() (bool, string) {
		w.read(t, suspended)
		return suspended.Suspend && suspended.Status.Plan != nil && w.karpenter.ClaimsEver(suspended.UID) == 0, saying(suspended)
	})
}

// firstList holds back the first objects of one path.
type firstList struct {
	next            http.RoundTripper
	path            string
	once            sync.Once
	listed, release chan struct{}
	isPruned        bool
}

// RoundTrip implements http.RoundTripper.
func (l *firstList) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil || request.URL.Path != l.path {
		return response, err
	}
	l.once.Do(func() {
		var first []byte
		if first, err = initialObjects(request, response); err != nil {
			return
		}
		l.isPruned = !bytes.Contains(first, []byte(`"suspend":true`))
		close(l.listed)
		<-l.release
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(first), response.Body), response.Body}
	})
	return response, err
}

// initialObjects reads a list, or the initial objects of a watch.
func initialObjects(request *http.Request, response *http.Response) ([]byte, error) {
	if request.URL.Query().Get("watch") == "" {
		return io.ReadAll(response.Body)
	}
	var out []byte
	for part := make([]byte, 4096); !bytes.Contains(out, []byte(metav1.InitialEventsAnnotationKey)); {
		read, err := response.Body.Read(part)
		out = append(out, part[:read]...)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// untilEnded waits until the controller has ended on its own.
func (l *life) untilEnded(t *testing.T) {
	t.Helper()
	select {
	case <-l.done:
		l.err = nil
	case <-time.After(patience):
		t.Fatal("the controller does not end")
	}
}

// pruneAPI installs a schema without our fields, like KAITO's, and waits until the API server prunes them.
func (w *world) pruneAPI(t *testing.T, definition string, fields []string, isPruned func() bool) (restore func()) {
	t.Helper()
	former := w.changeAPI(t.Context(), t, definition, func(changed *apiextensionsv1.CustomResourceDefinition) {
		for _, version := range changed.Spec.Versions {
			for _, field := range fields {
				dropProperty(version.Schema.OpenAPIV3Schema, strings.Split(field, "."))
			}
		}
	})
	put := func(changed *apiextensionsv1.CustomResourceDefinition) { changed.Spec = former.Spec }
	t.Cleanup(func() { w.changeAPI(context.Background(), t, definition, put) })
	eventually(t, "the pruning schema", func() (bool, string) { return isPruned(), "all fields" })
	return func() {
		w.changeAPI(t.Context(), t, definition, put)
		eventually(t, "the whole schema", func() (bool, string) { return !isPruned(), "pruned fields" })
	}
}

// dropProperty removes a field and the rules of its parents, which may name it.
func dropProperty(schema *apiextensionsv1.JSONSchemaProps, path []string) {
	schema.XValidations = nil
	if len(path) == 1 {
		delete(schema.Properties, path[0])
		return
	}
	next := schema.Properties[path[0]]
	dropProperty(&next, path[1:])
	schema.Properties[path[0]] = next
}

// changeAPI changes a CustomResourceDefinition, and returns the former one.
func (w *world) changeAPI(
	ctx context.Context, t *testing.T, name string, change func(*apiextensionsv1.CustomResourceDefinition),
) (former *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	direct, err := client.New(w.config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := direct.Get(ctx, client.ObjectKey{Name: name}, definition); err != nil {
		t.Fatal(err)
	}
	former = definition.DeepCopy()
	change(definition)
	if err := direct.Update(ctx, definition); err != nil {
		t.Fatalf("changing the CustomResourceDefinition %s: %v", name, err)
	}
	return former
}

// reportsOf returns how many events report the pruned fields of an object.
func (w *world) reportsOf(t *testing.T, object client.Object) int {
	t.Helper()
	list := &corev1.EventList{}
	if err := w.client.List(t.Context(), list, client.InNamespace(object.GetNamespace())); err != nil {
		t.Fatal(err)
	}
	var out int
	for _, event := range list.Items {
		if event.InvolvedObject.UID == object.GetUID() && event.Reason == v1beta1.ReasonAPIPruned {
			out += int(event.Count)
		}
	}
	return out
}
