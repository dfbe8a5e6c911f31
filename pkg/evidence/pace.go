// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/evidence/speed"
	"github.com/modelberth/modelberth/pkg/planner"
)

// addSpeed adds the speed of an engine to its measurement: the load of each replica, and its time per output token. It
// adds nothing if the speed is missing or not credible.
func addSpeed(to *catalog.Measurement, found *v1beta1.EngineSpeed, plan *planner.Plan) {
	if found == nil {
		return
	}
	millis, ok := speed.Millis(found)
	if !ok {
		return
	}
	replicas := max(plan.DataParallel, 1)
	to.Concurrency = (int(found.Concurrency) + replicas - 1) / replicas
	to.InputTokens, to.OutputTokens, to.TPOTMillis = int(found.InputTokens), int(found.OutputTokens), millis
}
