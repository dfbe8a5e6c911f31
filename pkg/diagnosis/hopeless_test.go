// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis_test

import (
	"testing"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/diagnosis"
)

// A transient fault must not cost a Workspace its machines.
func TestTransientIsNotHopeless(t *testing.T) {
	for _, reason := range []string{
		v1beta1.ReasonInferenceSuccess, v1beta1.ReasonInferencePending, v1beta1.ReasonContainerCrashLoop, v1beta1.ReasonImagePullError,
		v1beta1.ReasonStartupTimeout, v1beta1.ReasonMemberLost, v1beta1.ReasonPodEvicted, v1beta1.ReasonNodeDiskPressure,
		v1beta1.ReasonNodeMemoryPressure, v1beta1.ReasonVolumeNotMounted, v1beta1.ReasonPodSandboxFailed,
		v1beta1.ReasonWeightsHubUnreachable, v1beta1.ReasonWeightsFetchFailed, v1beta1.ReasonWeightsChecksum,
	} {
		if diagnosis.IsHopeless(reason) {
			t.Errorf("%s is hopeless", reason)
		}
	}
	for _, reason := range []string{v1beta1.ReasonPodRefused, v1beta1.ReasonEngineArgsRefused, v1beta1.ReasonGPUOutOfMemory} {
		if !diagnosis.IsHopeless(reason) {
			t.Errorf("%s is not hopeless", reason)
		}
	}
}
