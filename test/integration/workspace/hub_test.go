// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/test/integration/faults"
)

// commit is the head of the main branch of the hub's model.
const commit = "0123456789abcdef0123456789abcdef01234567"

// hubForm is a Workspace with a model outside the catalogue.
func hubForm(namespace, name string) *v1beta1.Workspace {
	ws := plannerForm(namespace, name)
	ws.Inference.Preset.Name = "org/Known-8B"
	ws.Resource.Placement = &v1beta1.PlacementSpec{InstanceTypes: []string{dear}}
	return ws
}

// TestModelsOfTheHub plans a model known only to the hub, at its commit.
func TestModelsOfTheHub(t *testing.T) {
	w := enter(t)
	config, err := os.ReadFile("../../../pkg/cli/testdata/manifests/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	hub := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		out.Header().Set("X-Repo-Commit", commit)
		if !strings.Contains(r.URL.Path, "org/Known-8B") || !strings.HasSuffix(r.URL.Path, "/config.json") {
			http.NotFound(out, r)
			return
		}
		_, _ = out.Write(config)
	}))
	t.Cleanup(hub.Close)
	o := w.options()
	o.HubEndpoint, o.DescribeModels = hub.URL, true
	life := w.beginWith(t, faults.NewRecorder(), clock.RealClock{}, o)
	ws := hubForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilServing(t, ws)
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ws), set); err != nil {
		t.Fatal(err)
	}
	if fetched := strings.Join(set.Spec.Template.Spec.InitContainers[0].Args, " "); !strings.Contains(fetched, commit) {
		t.Errorf("the agent fetches with %s, want it to name commit %s", fetched, commit)
	}
	before := asked.Load()
	w.passes(t, life, ws, 3)
	if more := asked.Load() - before; more > 0 {
		t.Errorf("further passes over a settled Workspace asked the hub %d times", more)
	}
	unknown := hubForm(ws.Namespace, "unknown")
	unknown.Inference.Preset.Name = "org/Unknown"
	w.create(t, unknown)
	w.untilCondition(t, unknown, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonModelNotDescribed)
	w.checkNothingBought(t, unknown)
	w.remove(t, ws)
}

// TestNoHubUnlessAllowed: the controller contacts no hub on its own.
func TestNoHubUnlessAllowed(t *testing.T) {
	w := enter(t)
	w.begin(t, faults.NewRecorder())
	ws := hubForm(w.namespace(t), "chat")
	w.create(t, ws)
	w.untilCondition(t, ws, v1beta1.ConditionPlanned, metav1.ConditionFalse, v1beta1.ReasonUnknownPreset)
	for _, want := range []string{"chart value catalog", "hub.describe"} {
		if message := condition(ws, v1beta1.ConditionPlanned).Message; !strings.Contains(message, want) {
			t.Errorf("message %q does not name %s", message, want)
		}
	}
	w.checkNothingBought(t, ws)
}
