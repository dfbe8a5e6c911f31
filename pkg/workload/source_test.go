// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"slices"
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/workload"
)

// Nothing may write to a source with existing weights: no container, and not the kubelet, which changes the group of
// the files in a writable volume.
func TestSourcesAreReadOnly(t *testing.T) {
	for _, tc := range []struct {
		reason string
		from   v1beta1.WeightsSource
		writes bool
	}{
		{"fetched", v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "r"}}, true},
		{"an image", v1beta1.WeightsSource{Image: &v1beta1.ImageWeights{Reference: "r"}}, false},
		{"a claim", v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "c"}}, false},
		{"a directory of the node", v1beta1.WeightsSource{HostPath: &v1beta1.HostPathWeights{Path: "/models"}}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			pod := podTemplate(fromSource(wholeRepository(input(preset(), 1)), tc.from)).Spec
			for _, container := range append(pod.InitContainers, pod.Containers...) {
				for _, mount := range container.VolumeMounts {
					writes := tc.writes && (container.Name == "weights" || container.Name == "commit")
					if mount.MountPath == workload.ModelDir && mount.ReadOnly == writes {
						t.Errorf("container %s: read-only is %t", container.Name, mount.ReadOnly)
					}
				}
			}
			for _, volume := range pod.Volumes {
				if claim := volume.PersistentVolumeClaim; claim != nil && !claim.ReadOnly {
					t.Errorf("the kubelet may write to %s", claim.ClaimName)
				}
			}
		})
	}
}

// A member that reads no files needs no volume with them. That volume may not even exist on its node.
func TestMembersWithoutFilesMountNoSource(t *testing.T) {
	in := fromSource(groupOverRPC(input(preset(), 1)), v1beta1.WeightsSource{Image: &v1beta1.ImageWeights{Reference: "r", PullSecret: "s"}})
	pod := workload.WorkerTemplate(in).Spec
	for _, volume := range pod.Volumes {
		if volume.Image != nil {
			t.Errorf("volume %s is the image", volume.Name)
		}
	}
	if len(pod.ImagePullSecrets) > 0 {
		t.Errorf("imagePullSecrets are %v", pod.ImagePullSecrets)
	}
}

func TestModelPath(t *testing.T) {
	ws := preset()
	if got := workload.ModelPath(ws); got != "/models" {
		t.Errorf("%s without a source", got)
	}
	ws.Inference.Weights = &v1beta1.WeightsSource{PersistentVolumeClaim: &v1beta1.ClaimWeights{ClaimName: "c"}, Path: "a/b"}
	if got := workload.ModelPath(ws); got != "/models/a/b" {
		t.Errorf("%s with a path", got)
	}
}

// TestPodsFetchVerifiedDigest: pods fetch the verified digest, because the tag may refer to something else by then.
func TestPodsFetchVerifiedDigest(t *testing.T) {
	const signed = "a.example/model@sha256:0000000000000000000000000000000000000000000000000000000000000001"
	in := fromSource(wholeRepository(input(preset(), 1)), v1beta1.WeightsSource{OCI: &v1beta1.OCIWeights{Reference: "a.example/model:v1"}})
	in.Plan.Weights = &planner.VerifiedWeights{Reference: signed}
	for _, container := range podTemplate(in).Spec.InitContainers {
		if container.Name == "commit" {
			t.Error("a container settles what the tag names")
		}
		if at := slices.Index(container.Args, "--image"); container.Name == "weights" && (at < 0 || container.Args[at+1] != signed) {
			t.Errorf("the agent is started with %v, want it to fetch %s", container.Args, signed)
		}
		if slices.Contains(container.Args, "a.example/model:v1") {
			t.Errorf("container %s is told of the tag: %v", container.Name, container.Args)
		}
	}
}
