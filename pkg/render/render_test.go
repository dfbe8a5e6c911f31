// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/render"
	"github.com/modelberth/modelberth/presets"
)

// loaded reads the catalogue once. The tests can share it, because it is immutable.
var loaded = sync.OnceValues(func() (*catalog.Catalog, error) { return catalog.Load(presets.FS()) })

// planned returns the input for a Workspace of a shipped preset, with its plan from the shipped catalogue.
func planned(t *testing.T, change ...func(*v1beta1.Workspace)) render.Input {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	ws := &v1beta1.Workspace{Inference: &v1beta1.InferenceSpec{Preset: &v1beta1.PresetSpec{}}}
	ws.Namespace, ws.Name, ws.UID = "team-a", "chat", "uid-1"
	for _, c := range change {
		c(ws)
	}
	m, err := all.ResolveModel("phi-4")
	if err != nil {
		t.Fatal(err)
	}
	settings := planner.Settings{Clouds: []string{"azure"}, Engines: render.Engines(), SingleNode: true, Provisioner: "karpenter"}
	plan, err := planner.New(all, settings).Plan(planner.Request{Model: &m})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := all.Engine(plan.Engine)
	return render.Input{Workspace: ws, Model: m, Plan: plan, Data: data}
}

func TestImage(t *testing.T) {
	users := func(ws *v1beta1.Workspace) {
		ws.Inference.Engine = &v1beta1.EngineSpec{Image: "registry.example/mine:1"}
	}
	administrators := render.Settings{EngineImages: map[string]string{"vllm": "registry.example/vllm:2"}}
	catalogues := planned(t).Data.ImageFor(1)
	for _, tc := range []struct {
		reason   string
		change   []func(*v1beta1.Workspace)
		settings render.Settings
		want     string
	}{
		{"nobody has another idea than the catalogue", nil, render.Settings{}, catalogues},
		{"the administrator's replaces the catalogue's", nil, administrators, "registry.example/vllm:2"},
		{
			"a mirror has the catalogue's", nil,
			render.Settings{EngineRegistry: "registry.example/mirror/"},
			"registry.example/mirror/" + catalogues,
		},
		{
			"the administrator's image is none of the mirror's", nil,
			render.Settings{EngineImages: administrators.EngineImages, EngineRegistry: "mirror.example"},
			"registry.example/vllm:2",
		},
		{"the user's replaces both", []func(*v1beta1.Workspace){users}, administrators, "registry.example/mine:1"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := planned(t, tc.change...)
			in.Settings = tc.settings
			out, _, err := render.Preset(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Template.Spec.Containers[0].Image; got != tc.want {
				t.Errorf("image %s, want %s", got, tc.want)
			}
		})
	}
}

func TestUnknownEngine(t *testing.T) {
	in := planned(t)
	in.Data.Name = "someengine"
	_, _, err := render.Preset(in)
	if err == nil || err.Error() != `this version cannot run engine "someengine"` {
		t.Errorf("error %v", err)
	}
}

// A controller of another version, and the command line, have only the ControllerRevision of a plan.
func TestRevisionSurvivesStorage(t *testing.T) {
	in := planned(t)
	rendered, _, err := render.Preset(in)
	if err != nil {
		t.Fatal(err)
	}
	want := render.Revision{
		Plan: in.Plan, Rendered: rendered, Inputs: &render.Inputs{Inference: in.Workspace.Inference, Config: "vllm: {}"},
		NodeClass: &v1beta1.NodeClassReference{Group: "g", Kind: "k", Name: "n"}, NodeLabels: map[string]string{"team": "a"},
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	stored := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: raw}}
	for _, how := range []string{"as it was written", "packed", "packed again"} {
		if how != "as it was written" {
			if _, err := render.Pack(stored); err != nil {
				t.Fatal(err)
			}
			if len(stored.Data.Raw) > len(raw)/2 {
				t.Errorf("%s: %d of %d bytes are kept", how, len(stored.Data.Raw), len(raw))
			}
		}
		got, err := render.Decode(stored)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), string(again)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
}

// TestPackKeepsUnknownObjects checks that Pack leaves short JSON and other objects unchanged. Packed short JSON could
// look like JSON.
func TestPackKeepsUnknownObjects(t *testing.T) {
	short := `{"plan":{"instanceType":"` + strings.Repeat("x", 90) + `"}}`
	object := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(short)}}
	if _, err := render.Pack(object); err != nil || string(object.Data.Raw) != short {
		t.Errorf("became %q (%v)", object.Data.Raw, err)
	}
	if other, err := render.Pack("tombstone"); other != "tombstone" || err != nil {
		t.Errorf("another object became %v (%v)", other, err)
	}
}

func TestDecodeNamesTheRevision(t *testing.T) {
	object := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(`{"plan":3}`)}}
	object.Namespace, object.Name = "team-a", "chat-1"
	if _, err := render.Decode(object); err == nil || !strings.HasPrefix(err.Error(), "decoding ControllerRevision team-a/chat-1: ") {
		t.Errorf("error %v", err)
	}
}
