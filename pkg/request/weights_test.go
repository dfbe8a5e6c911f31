// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/request"
)

func TestCheckWeights(t *testing.T) {
	oci := &v1beta1.OCIWeights{Reference: "registry.example/model:1", PullSecret: "pull"}
	const one = "SpecInvalid: inference.weights must have exactly one of oci, image, persistentVolumeClaim and hostPath"
	for _, tc := range []struct {
		reason  string
		weights v1beta1.WeightsSource
		change  func(*v1beta1.Workspace)
		want    string
	}{
		{"an artifact", v1beta1.WeightsSource{OCI: oci}, nil, ""},
		{"an image", v1beta1.WeightsSource{Image: &v1beta1.ImageWeights{Reference: "registry.example/model:1"}}, nil, ""},
		{"a claim with several models", v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "c"}, Path: "a/b-1.0"}, nil, ""},
		{"a directory of the node", v1beta1.WeightsSource{HostPath: &v1beta1.HostPathWeights{Path: "/models"}}, nil, ""},
		{"nothing", v1beta1.WeightsSource{}, nil, one},
		{"two", v1beta1.WeightsSource{OCI: oci, HostPath: &v1beta1.HostPathWeights{Path: "/models"}}, nil, one},
		{
			"a path that leads out",
			v1beta1.WeightsSource{OCI: oci, Path: "../b"},
			nil,
			`SpecInvalid: inference.weights.path is "../b": it must be a path below the source, of letters, digits, dots, dashes and underscores, such as checkpoint-300 or adapter.gguf`,
		},
		{"one Secret for both registries", v1beta1.WeightsSource{OCI: oci}, withPulled("pull"), ""},
		{
			"two Secrets",
			v1beta1.WeightsSource{OCI: oci},
			withPulled("other"),
			`SpecInvalid: inference.adapters[0].source.imagePullSecrets names Secret "other", but inference.weights.oci.pullSecret names "pull": put the credentials of all registries into one Secret`,
		},
		{"a pod of the user's own", v1beta1.WeightsSource{OCI: oci}, func(ws *v1beta1.Workspace) {
			ws.Inference.Preset = nil
			ws.Inference.Template = &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
		}, "SpecInvalid: inference.weights has no effect on inference.template: mount the files in the template"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := preset("some-model")
			ws.Inference.Weights = &tc.weights
			if tc.change != nil {
				tc.change(ws)
			}
			got := ""
			if err := request.Check(ws); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// withPulled adds an adapter with credentials.
func withPulled(secret string) func(*v1beta1.Workspace) {
	return func(ws *v1beta1.Workspace) {
		ws.Inference.Adapters = []v1beta1.AdapterSpec{
			adapter("a", func(a *v1beta1.AdapterSpec) { a.Source.ImagePullSecrets = []string{secret} }),
		}
	}
}

func TestDiskOfWeights(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		weights *v1beta1.WeightsSource
		want    planner.WeightsDisk
	}{
		{"the hub", nil, planner.WeightsOnce},
		{"an artifact is fetched like a repository", &v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{}}, planner.WeightsOnce},
		{"an image is kept packed and unpacked", &v1beta1.WeightsSource{Image: &v1beta1.ImageWeights{}}, planner.WeightsTwice},
		{"a claim is another disk", &v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{}}, planner.WeightsElsewhere},
		{"what a node has, it has", &v1beta1.WeightsSource{HostPath: &v1beta1.HostPathWeights{}}, planner.WeightsElsewhere},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			ws := preset("some-model")
			ws.Inference.Weights = tc.weights
			asked, err := request.ForModel(ws, someModel("vllm"), nil, known(t))
			if err != nil || asked.Weights != tc.want {
				t.Errorf("%v, %v; want %v", asked.Weights, err, tc.want)
			}
		})
	}
}
