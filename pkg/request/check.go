// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"math"
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/workload"
)

// RefusedError is a problem of a Workspace. The user must fix it before there can be a plan.
type RefusedError struct {
	// Reason is a reason of the API.
	Reason string
	// Message is a sentence with the field, the value and the remedy.
	Message string
}

// Error returns the reason and the message.
func (e *RefusedError) Error() string { return e.Reason + ": " + e.Message }

// Check refuses features that this version lacks. It also refuses the values that admission refuses, because an object
// may have bypassed admission. The error is a *RefusedError.
func Check(ws *v1beta1.Workspace) error {
	switch {
	case ws.Tuning != nil && ws.Inference != nil, ws.Tuning == nil && ws.Inference == nil:
		return invalid("exactly one of inference and tuning must be set")
	case ws.Tuning != nil:
		return &RefusedError{
			Reason: v1beta1.ReasonTuningNotAvailable,
			Message: "this version does not support tuning, so nothing is bought: " +
				"delete this Workspace, or keep it until you install a version with tuning",
		}
	case ws.Inference.TemplateError != "":
		return invalid("inference.template cannot be read: " + ws.Inference.TemplateError)
	case (ws.Inference.Preset == nil) == (ws.Inference.Template == nil):
		return invalid("exactly one of inference.preset and inference.template must be set")
	case ws.Inference.Template != nil && len(ws.Inference.Template.Spec.Containers) == 0:
		return invalid("inference.template.spec.containers is empty: name at least one container")
	}
	if problem := workload.NameProblem(ws.Name); problem != "" {
		return invalid(problem)
	}
	if err := checkAdapters(ws.Inference.Adapters); err != nil {
		return err
	}
	if err := checkWeights(ws.Inference); err != nil {
		return err
	}
	if objectives := ws.Inference.Objectives; objectives != nil {
		if err := checkRate(objectives.RequestsPerSecond); err != nil {
			return err
		}
	}
	return checkResource(&ws.Resource)
}

func checkResource(resource *v1beta1.ResourceSpec) error {
	switch {
	case resource.Partition != nil && resource.EffectiveNodeSource() != v1beta1.NodeSourceExisting:
		return &RefusedError{
			Reason: v1beta1.ReasonNotSupported,
			Message: "resource.partition takes some of the GPUs of existing nodes, but this Workspace may buy machines, so nothing " +
				"is bought for it: create it again without resource.partition, or with resource.placement.nodeSource Existing",
		}
	case resource.Placement == nil || resource.Placement.MaxHourlyPrice == "":
		return nil
	}
	return checkPrice(resource.Placement.MaxHourlyPrice)
}

// checkRate refuses an invalid rate of requests, if one is set.
func checkRate(text string) error {
	const most = 1e6
	if rate, err := strconv.ParseFloat(text, 64); text == "" || err == nil && rate > 0 && rate < most {
		return nil
	}
	return invalid(fmt.Sprintf("inference.objectives.requestsPerSecond is %q, which is not a rate: give a number above 0 and below %g, such as 2.5",
		shortened(text), most))
}

// checkPrice refuses an invalid limit. With 0, the controller would buy nothing. With Inf or NaN, which ParseFloat
// accepts, it would buy anything.
func checkPrice(text string) error {
	limit, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.IsNaN(limit) || math.IsInf(limit, 0):
		return invalid(fmt.Sprintf("resource.placement.maxHourlyPrice is %q, which is not a price: "+
			"give a number above 0 in USD per hour, such as 12.50", shortened(text)))
	case limit <= 0:
		return invalid(fmt.Sprintf("resource.placement.maxHourlyPrice is %q, which buys nothing: "+
			"give a price above 0 in USD per hour, or set suspend: true", shortened(text)))
	}
	return nil
}

// shortened cuts a text from a manifest to a readable length.
func shortened(text string) string {
	const most = 64
	return Shorten(text, most)
}

func invalid(message string) error {
	return &RefusedError{Reason: v1beta1.ReasonSpecInvalid, Message: message}
}
