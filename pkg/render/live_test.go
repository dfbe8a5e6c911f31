// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

func liveWorkspace(names ...string) func(*v1beta1.Workspace) {
	return func(ws *v1beta1.Workspace) {
		ws.Inference.AdapterUpdates = v1beta1.AdapterUpdatesLive
		for _, name := range names {
			ws.Inference.Adapters = append(ws.Inference.Adapters, v1beta1.AdapterSpec{Source: &v1beta1.DataSource{Name: name, Repository: "org/" + name}})
		}
	}
}

// TestLivePods: the pods are the same whatever the adapters are, so that a change of them replaces no pod.
func TestLivePods(t *testing.T) {
	var former render.Rendered
	for i, names := range [][]string{nil, {"a"}, {"b", "c"}} {
		in := planned(t, liveWorkspace(names...))
		in.Plan.AdapterSlots, in.Plan.AdapterRank = 2, 16
		got, warnings, err := render.Preset(in)
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if diff := cmp.Diff(former, got); diff != "" && i > 0 {
			t.Errorf("adapters %v change the pods (-former +got):\n%s", names, diff)
		}
		former = got
	}
	if !former.LiveAdapters || former.Template.Annotations[v1beta1.AnnotationAdapters] != "pending" {
		t.Errorf("live %v, annotations %v", former.LiveAdapters, former.Template.Annotations)
	}
}

// TestLiveObstacles: where adapters cannot change while the engine runs, the pods have them from the start, and a warning
// says why.
func TestLiveObstacles(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*render.Input)
		want   string
	}{
		{"another image", func(in *render.Input) { in.Workspace.Inference.Engine = &v1beta1.EngineSpec{Image: "r.example/i:1"} }, "inference.engine.image may be"},
		{"several replicas in a pod", func(in *render.Input) { in.Plan.DataParallel = 2 }, "the pod runs 2 replicas of the model"},
		{"an engine that cannot", func(in *render.Input) { in.Data.RuntimeAdapters = false }, "engine vllm loads adapters only when it starts"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := planned(t, liveWorkspace("a"))
			in.Plan.AdapterSlots, in.Plan.AdapterRank = 2, 16
			tc.change(&in)
			got, warnings, err := render.Preset(in)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(warnings, "; ")
			if !strings.Contains(text, "inference.adapterUpdates: a change of adapters replaces the pods, because "+tc.want) {
				t.Errorf("warnings %q", text)
			}
			args := strings.Join(got.Template.Spec.Containers[0].Args, " ")
			if got.LiveAdapters || got.Template.Annotations[v1beta1.AnnotationAdapters] != "" || !strings.Contains(args, "--lora-modules a=") || !strings.Contains(args, "--host 0.0.0.0") {
				t.Errorf("live %v, arguments %s", got.LiveAdapters, args)
			}
		})
	}
}
