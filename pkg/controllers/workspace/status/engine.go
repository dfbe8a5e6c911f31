// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/request"
)

// engineMessageLimit is the limit in the API schema.
const engineMessageLimit = 512

// figures returns the engine's figures after a pass, given the stored ones. Figures of a new probe replace all stored
// ones, including the speed of a former revision.
func (e *Endpoint) figures(stored *v1beta1.EngineStatus) *v1beta1.EngineStatus {
	switch {
	case e.Engine != nil:
		return e.Engine.status()
	case e.Speed != nil && stored != nil:
		out := *stored
		out.Speed = e.Speed
		return &out
	default:
		return stored
	}
}

// status compares the figures of an engine with the estimates of its plan.
func (e *Engine) status() *v1beta1.EngineStatus {
	out := &v1beta1.EngineStatus{Revision: e.Revision}
	if e.KVCacheTokens > 0 {
		out.KVCacheTokens = compare(float64(e.Plan.KVCacheTokens), float64(e.KVCacheTokens), 0)
	}
	if e.WeightBytes > 0 {
		planned := 0.0
		if e.Plan.Artifact != nil {
			planned = gibibytes(e.Plan.Artifact.LoadedBytes())
		}
		out.Weights = compare(planned, gibibytes(e.WeightBytes), 2)
	}
	if e.Err != nil {
		out.Message = request.Shorten(e.Err.Error(), engineMessageLimit)
	}
	return out
}

func gibibytes(bytes int64) float64 { return float64(bytes) / (1 << 30) }

// compare formats a figure with this many digits, and compares it with the plan. A planned value of 0 means no
// estimate.
func compare(planned, actual float64, digits int) *v1beta1.EngineFigure {
	text := func(number float64) string { return strconv.FormatFloat(number, 'f', digits, 64) }
	out := &v1beta1.EngineFigure{Actual: text(actual)}
	if planned > 0 {
		out.Planned, out.Difference = text(planned), fmt.Sprintf("%+.1f%%", (actual-planned)/planned*100)
	}
	return out
}
