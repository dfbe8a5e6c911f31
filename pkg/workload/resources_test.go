// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Without a limit, an engine would also use the memory of other pods on a shared node.
func TestSharedNodeHasMemoryLimit(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*workload.Input)
		want   string
	}{
		{"the machine is the model's own", func(*workload.Input) {}, "0"},
		{"a node that exists: request, burst and shared memory", func(in *workload.Input) {
			in.Plan.NodeNames = []string{"node-a"}
		}, "13Gi"},
		{"nodes that cluster autoscaler brings", func(in *workload.Input) { in.Settings.SharedNodes = true }, "13Gi"},
		{"the limit follows the user's request", func(in *workload.Input) {
			in.Plan.NodeNames = []string{"node-a"}
			in.Workspace.Inference.Pod = &v1beta1.PodSpec{Memory: new(resource.MustParse("48Gi"))}
		}, "59Gi"},
		{"shared memory as the engine says", func(in *workload.Input) {
			in.Plan.NodeNames, in.Engine.SharedMemoryGiB = []string{"node-a"}, 10
		}, "22Gi"},
		{"no GPU", func(in *workload.Input) {
			in.Plan.NodeNames, in.Plan.GPUsPerNode = []string{"node-a"}, 0
		}, "13Gi"},
		{"an earlier plan that requests nothing", func(in *workload.Input) {
			in.Plan.NodeNames, in.Plan.MemoryGiB = []string{"node-a"}, 0
		}, "0"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(preset(), 1)
			in.MemoryBurstGiB = 10
			tc.change(&in)
			got := workload.PodTemplate(in).Spec.Containers[0].Resources
			if limit := got.Limits.Memory(); limit.String() != tc.want {
				t.Errorf("limit %s, want %s", limit, tc.want)
			}
			if gpus, asked := got.Requests["nvidia.com/gpu"]; asked && gpus.Cmp(got.Limits["nvidia.com/gpu"]) != 0 {
				t.Errorf("GPUs: requests %v, limits %v", got.Requests, got.Limits)
			}
		})
	}
}

// Content from a registry or a hub must not fill the node's disk.
func TestFetchedWeightsHaveDiskLimit(t *testing.T) {
	for _, tc := range []struct {
		reason string
		change func(*workload.Input)
		want   string
	}{
		{"weights from the hub take what was planned", func(*workload.Input) {}, "40Gi"},
		{"an archive lies beside what is unpacked from it", func(in *workload.Input) {
			in.Plan.Artifact = &model.Artifact{Repo: "Org/M", WeightBytes: 5 << 30}
			*in = fromSource(*in, v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "registry.example/m:1"}})
		}, "45Gi"},
		{"weights of a volume are not fetched", func(in *workload.Input) {
			*in = fromSource(*in, v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "models"}})
		}, "0"},
		{"a member that reads no weights", func(in *workload.Input) { in.Engine.NoWeights = true }, "0"},
		{"a plan that does not know its disk", func(in *workload.Input) { in.Plan.DiskGiB = 0 }, "0"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			in := input(preset(), 1)
			tc.change(&in)
			containers := workload.PodTemplate(in).Spec.InitContainers
			got := containers[len(containers)-1].Resources
			if limit := got.Limits[corev1.ResourceEphemeralStorage]; limit.String() != tc.want {
				t.Errorf("limit %s, want %s", limit.String(), tc.want)
			}
			want := *resource.NewQuantity(int64(in.Plan.DiskGiB)<<30, resource.BinarySI)
			if diff := cmp.Diff(want.String(), got.Requests.StorageEphemeral().String()); diff != "" {
				t.Errorf("the scheduler asks nodes for more than was planned (-want +got):\n%s", diff)
			}
		})
	}
}
