// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"slices"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// IsHopeless reports whether a finding with that reason stays until a person changes something. Restarts of the pod do
// not help. Unknown reasons are not hopeless: a hub, a registry or a node may recover, and an engine's unknown message
// may be about anything.
func IsHopeless(reason string) bool {
	return slices.Contains([]string{
		v1beta1.ReasonPodRefused, v1beta1.ReasonUnschedulable, v1beta1.ReasonWrongArchitecture, v1beta1.ReasonContainerStartError,
		v1beta1.ReasonGPUOutOfMemory, v1beta1.ReasonKVCacheTooSmall, v1beta1.ReasonGPUUnusable, v1beta1.ReasonEngineArgsRefused,
		v1beta1.ReasonModelRefused, v1beta1.ReasonContainerOOMKilled, v1beta1.ReasonWeightsUnauthorized,
		v1beta1.ReasonWeightsNotFound, v1beta1.ReasonWeightsDiskFull,
	}, reason)
}
