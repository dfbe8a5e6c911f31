// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strconv"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/redact"
	"github.com/modelberth/modelberth/pkg/wording"
)

// Bounds of a plan in the status, from the schema.
const (
	alternativeLimit = 8
	reasonLimit      = 256
	warningLimit     = 16
	warningLength    = 512
	adviceLimit      = 8
)

// Status returns a plan in the form of the status. revision names the ControllerRevision with the whole plan.
func Status(plan *planner.Plan, revision string) *v1beta1.PlanStatus {
	out := &v1beta1.PlanStatus{
		Revision:            revision,
		Summary:             plan.Summary(),
		InstanceType:        plan.InstanceType,
		Nodes:               int32(plan.Nodes),
		Accelerator:         plan.Accelerator,
		AcceleratorsPerNode: int32(plan.GPUsPerNode),
		CapacityType:        plan.CapacityType,
		Engine:              plan.Engine,
		TensorParallel:      int32(plan.TensorParallel),
		PipelineParallel:    int32(plan.PipelineParallel),
		DataParallel:        int32(plan.DataParallel),
		ExpertParallel:      plan.ExpertParallel,
		MaxModelLen:         int32(plan.MaxModelLen),
		Concurrency:         int32(plan.Concurrency),
		MaxNumSeqs:          int32(plan.MaxNumSeqs),
		KVCacheType:         plan.KVCacheType,
		HourlyPrice:         Price(plan.HourlyPrice),
	}
	if plan.GPUMemoryUtilization > 0 {
		out.GPUMemoryUtilization = gib(plan.GPUMemoryUtilization)
	}
	if memory := plan.Memory; memory != nil {
		out.Memory = &v1beta1.PlanMemory{
			Total: gib(memory.Total), Weights: gib(memory.Weights), KVCache: gib(memory.KVCache),
			Overhead: gib(memory.Overhead), Free: gib(memory.Free()), Basis: memory.Basis,
		}
	}
	out.Performance = performance(plan.Performance)
	for i, verdict := range plan.Alternatives {
		if i == alternativeLimit {
			break
		}
		out.Alternatives = append(out.Alternatives, alternative(&verdict))
	}
	out.Rejected = int32(plan.TurnedDown + len(plan.Rejected) + len(plan.Alternatives) - len(out.Alternatives))
	out.Warnings = sentences(plan.Warnings, warningLimit)
	out.Advice = sentences(plan.Advice, adviceLimit)
	return out
}

// alternative returns an option that was not chosen, with its layout and speed if it works.
func alternative(v *planner.Verdict) v1beta1.PlanAlternative {
	out := v1beta1.PlanAlternative{
		InstanceType:     v.InstanceType,
		Nodes:            int32(v.Nodes),
		HourlyPrice:      Price(v.HourlyPrice),
		TensorParallel:   int32(v.TensorParallel),
		PipelineParallel: int32(v.PipelineParallel),
		DataParallel:     int32(v.DataParallel),
		Reason:           Shorten(v.Reason, reasonLimit),
	}
	if p := performance(v.Performance); p != nil {
		out.TimeToFirstToken, out.TimePerOutputToken = p.TimeToFirstToken, p.TimePerOutputToken
		out.OutputTokensPerSecond, out.PricePerMillionOutputTokens = p.OutputTokensPerSecond, p.PricePerMillionOutputTokens
	}
	return out
}

// performance returns the predicted performance of a plan; nil if unknown.
func performance(p *planner.Performance) *v1beta1.PlanPerformance {
	if p == nil {
		return nil
	}
	return &v1beta1.PlanPerformance{
		InputTokens: int32(p.InputTokens), OutputTokens: int32(p.OutputTokens), Concurrency: int32(p.Concurrency),
		RequestsPerSecond: known(p.RequestsPerSecond, ""), LongestTimeToFirstToken: known(p.LongestTTFTMillis, "ms"),
		TimeToFirstToken: millis(p.TTFTMillis), TimePerOutputToken: millis(p.TPOTMillis),
		OutputTokensPerSecond:       strconv.FormatFloat(p.OutputTokensPerSecond, 'f', -1, 64),
		PricePerMillionOutputTokens: Price(p.PricePerMillion), Basis: p.Basis, Slowdown: known(p.Slowdown, ""),
	}
}

// known formats a number with its unit; empty if it is not above 0.
func known(value float64, unit string) string {
	if value <= 0 {
		return ""
	}
	return strconv.FormatFloat(value, 'f', -1, 64) + unit
}

// millis formats a time in milliseconds as a duration of Go and of the API.
func millis(value float64) string {
	return strconv.FormatFloat(value, 'f', -1, 64) + "ms"
}

// sentences returns the first texts, shortened to the status's limit.
func sentences(texts []string, most int) []string {
	var out []string
	for _, text := range texts[:min(len(texts), most)] {
		out = append(out, Shorten(text, warningLength))
	}
	return out
}

// Price formats a price in USD with at most four decimals; empty if unknown.
func Price(usd float64) string {
	if usd < 0 {
		return ""
	}
	return strconv.FormatFloat(float64(int64(usd*10000+0.5))/10000, 'f', -1, 64)
}

func gib(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

// Shorten makes a text fit for the API. It removes secrets from URLs, and cuts the text between runes to at most limit
// bytes.
func Shorten(text string, limit int) string {
	return wording.ClipBytes(redact.Text(text), limit)
}
