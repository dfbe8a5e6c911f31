// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/render"
)

// withCache adds a cache for the Workspace's namespace.
func withCache(in render.Input) render.Input {
	in.Settings.Workload.Weights.Caches = map[string]string{"team-a": "model-cache"}
	return in
}

// kept returns the cache directory for the engine's compiled code; empty if the code is lost with the pod.
func kept(t *testing.T, in render.Input) string {
	t.Helper()
	out, _, err := render.Preset(in)
	if err != nil {
		t.Fatal(err)
	}
	served := out.Template.Spec.Containers[0]
	root := ""
	for _, variable := range served.Env {
		if variable.Name == "VLLM_CACHE_ROOT" {
			root = variable.Value
		}
	}
	for _, mount := range served.VolumeMounts {
		if mount.Name != "weights-cache" || mount.SubPath == "" {
			continue
		}
		if mount.ReadOnly || !strings.HasPrefix(root, mount.MountPath+"/") {
			t.Errorf("the engine is to write to %s, and %+v is mounted", root, mount)
		}
		agent := out.Template.Spec.InitContainers[len(out.Template.Spec.InitContainers)-1]
		if at := slices.Index(agent.Args, "--cache-directory"); at < 0 || agent.Args[at+1] != mount.SubPath {
			t.Errorf("the agent's arguments are %q, which do not make %s", agent.Args, mount.SubPath)
		}
		return mount.SubPath
	}
	if !strings.HasPrefix(root, "/tmp/") {
		t.Errorf("the engine is to write to %s, where nothing is mounted", root)
	}
	return ""
}

func TestCompiledCodeIsKept(t *testing.T) {
	if got := kept(t, planned(t)); got != "" {
		t.Errorf("without a cache it is kept in %s", got)
	}
	got := kept(t, withCache(planned(t)))
	if !regexp.MustCompile(`^compiled/vllm-0[0-9.]+-[0-9a-f]{8}/microsoft-phi-4-bf16/[a-z0-9-]+$`).MatchString(got) {
		t.Errorf("it is kept in %q", got)
	}
}

// An engine does not find code that was compiled by another build, for another model or for another GPU.
func TestCompiledCodeKeys(t *testing.T) {
	seen := map[string]string{kept(t, withCache(planned(t))): "as it is"}
	for reason, change := range map[string]func(*render.Input){
		"another version": func(in *render.Input) { in.Data.Version = "0.99.0" },
		"another build": func(in *render.Input) {
			in.Settings.EngineImages = map[string]string{"vllm": "registry.example/vllm:2"}
		},
		"another model":     func(in *render.Input) { in.Plan.Artifact.Repo = "org/other" },
		"another precision": func(in *render.Input) { in.Plan.Artifact.Quantization = "fp8" },
		"another GPU":       func(in *render.Input) { in.Plan.Accelerator = "L4" },
	} {
		in := withCache(planned(t))
		artifact := in.Plan.Artifact.Clone()
		in.Plan.Artifact = &artifact
		change(&in)
		got := kept(t, in)
		if former, is := seen[got]; is || got == "" {
			t.Errorf("%s is kept in %q, as is %s", reason, got, former)
		}
		seen[got] = reason
	}
}

// Two Workspaces with the same engine and model share compiled code, and no third namespace sees it.
func TestCompiledCodeIsPerNamespace(t *testing.T) {
	in := withCache(planned(t, func(ws *v1beta1.Workspace) { ws.Name = "another" }))
	if diff := cmp.Diff(kept(t, withCache(planned(t))), kept(t, in)); diff != "" {
		t.Errorf("-one +another:\n%s", diff)
	}
	if got := kept(t, withCache(planned(t, func(ws *v1beta1.Workspace) { ws.Namespace = "team-b" }))); got != "" {
		t.Errorf("a namespace without a cache keeps it in %s", got)
	}
	out, _, err := render.Preset(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range out.Template.Spec.Containers[0].VolumeMounts {
		if mount.Name == "weights-cache" && mount.SubPath == "" && !mount.ReadOnly {
			t.Errorf("the engine may write to all of the cache: %+v", mount)
		}
	}
}
