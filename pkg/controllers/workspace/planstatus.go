// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package workspace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
)

// Bounds of what the status says about a plan; the whole plan is in the ControllerRevision.
const (
	alternativeLimit = 8
	reasonLimit      = 256
	warningLimit     = 16
	warningLength    = 512
)

// planStatus is the accepted plan as users read it.
func planStatus(accepted *revision) *v1beta1.PlanStatus {
	plan := &accepted.Plan
	out := &v1beta1.PlanStatus{
		Revision:            accepted.Name,
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
		MaxModelLen:         int32(plan.MaxModelLen),
		Concurrency:         int32(plan.Concurrency),
		HourlyPrice:         price(plan.HourlyPrice),
	}
	if memory := plan.Memory; memory != nil {
		out.Memory = &v1beta1.PlanMemory{
			Total: gib(memory.Total), Weights: gib(memory.Weights), KVCache: gib(memory.KVCache),
			Overhead: gib(memory.Overhead), Free: gib(memory.Free()), Basis: memory.Basis,
		}
	}
	for i, verdict := range plan.Alternatives {
		if i == alternativeLimit {
			break
		}
		out.Alternatives = append(out.Alternatives, v1beta1.PlanAlternative{
			InstanceType: verdict.InstanceType,
			Nodes:        int32(verdict.Nodes),
			HourlyPrice:  price(verdict.HourlyPrice),
			Reason:       cut(verdict.Reason, reasonLimit),
		})
	}
	out.Rejected = int32(len(plan.Rejected) + len(plan.Alternatives) - len(out.Alternatives))
	for i, warning := range plan.Warnings {
		if i == warningLimit {
			break
		}
		out.Warnings = append(out.Warnings, cut(warning, warningLength))
	}
	return out
}

// planMessage is the plan in one line, with its price where one is known.
func planMessage(accepted *revision) string {
	message := accepted.Plan.Summary()
	if usd := price(accepted.Plan.HourlyPrice); usd != "" {
		message += fmt.Sprintf(", %s USD/h", usd)
	}
	return strings.Join(append([]string{message}, accepted.Plan.Warnings...), "; warning: ")
}

// price in USD with at most four decimals; empty where none is known.
func price(usd float64) string {
	if usd < 0 {
		return ""
	}
	return strconv.FormatFloat(float64(int64(usd*10000+0.5))/10000, 'f', -1, 64)
}

func gib(value float64) string { return strconv.FormatFloat(value, 'f', 2, 64) }

// cut shortens a text to at most limit bytes, at a rune's border.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len("…")
	for end > 0 && text[end]&0xC0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
