// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/engine"
	"github.com/modelberth/modelberth/pkg/workload"
)

func TestAdapters(t *testing.T) {
	ws := preset()
	ws.Inference.Adapters = []v1beta1.AdapterSpec{
		{Source: &v1beta1.DataSource{Name: "plain", Image: "registry.example/a:1"}},
		{Source: &v1beta1.DataSource{Name: "half.as-strong", Repository: "org/a"}, Path: "a.gguf", Strength: new("0.5")},
		{Source: &v1beta1.DataSource{Name: "as-trained", Repository: "org/a"}, Strength: new("1.0")},
	}
	want := []engine.Adapter{
		{Name: "plain", Dir: "/mnt/adapter/plain", Strength: 1},
		{Name: "half.as-strong", Dir: "/mnt/adapter/half.as-strong", Path: "a.gguf", Strength: 0.5},
		{Name: "as-trained", Dir: "/mnt/adapter/as-trained", Strength: 1},
	}
	if diff := cmp.Diff(want, workload.Adapters(ws)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// If an engine's path is a file, the agent fetches that file.
func TestAdapterFile(t *testing.T) {
	in := input(preset(), 1)
	in.Workspace.Inference.Adapters = []v1beta1.AdapterSpec{
		{Source: &v1beta1.DataSource{Name: "a", Repository: "org/a"}, Path: "sub/a-f16.gguf"},
	}
	containers := podTemplate(in).Spec.InitContainers
	args := containers[len(containers)-1].Args
	want := []string{"fetch", "--repo", "org/a", "--file", "sub/a-f16.gguf", "--dest", "/mnt/adapter/a", "--for", "a"}
	if at := len(args) - len(want); at < 0 || !slices.Equal(args[at:], want) {
		t.Errorf("the agent's arguments are %q, which do not end in %q", args, want)
	}
}

// Users' volumes are never written to. No mount of the engine is inside another one, because the runtime could not
// create its mount point in a read-only outer mount.
func TestAdapterMounts(t *testing.T) {
	template := podTemplate(withAdapters(input(preset(), 1)))
	mounts := template.Spec.Containers[0].VolumeMounts
	seen := 0
	for _, mount := range mounts {
		if strings.HasPrefix(mount.MountPath, workload.AdapterDir) {
			seen++
			if !mount.ReadOnly {
				t.Errorf("the engine may write to %s", mount.MountPath)
			}
		}
		if slices.ContainsFunc(mounts, func(other corev1.VolumeMount) bool {
			return strings.HasPrefix(mount.MountPath, other.MountPath+"/") && strings.HasPrefix(other.MountPath, workload.AdapterDir)
		}) {
			t.Errorf("%s lies in another mount", mount.MountPath)
		}
	}
	if seen != len(withAdapters(input(preset(), 1)).Workspace.Inference.Adapters) {
		t.Errorf("%d adapters are mounted", seen)
	}
}
