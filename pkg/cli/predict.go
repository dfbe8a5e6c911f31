// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"math"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
)

// predict predicts memory and speed.
func (s *subject) predict() estimate {
	budget := s.budget()
	pace := s.physics.Speed(&physics.Deployment{
		GPU: &s.gpu, Layout: s.layout, Serving: &s.serving, Budget: &budget, Engine: &s.engine,
	}, s.load)
	if s.load.Rate > 0 {
		s.underRate(&pace)
	}
	return estimate{
		WeightsGiBPerGPU: thousandths(budget.Weights), KVCacheGiBPerGPU: thousandths(budget.KVCache),
		KVCacheTokens: budget.KVTokens, MaxConcurrency: hundredths(budget.MaxConcurrency),
		ActivationGiB: thousandths(budget.Activation), NonTorchGiB: thousandths(budget.NonTorch), CUDAGraphGiB: thousandths(budget.Graphs),
		TTFTMillis: hundredths(pace.TTFT), TPOTMillis: hundredths(pace.TPOT),
		OutputTokensPerSecond: hundredths(pace.OutputTokensPerSecond),
		Fits:                  !s.refused && budget.KVCache > 0 && budget.MaxConcurrency >= 1, Queues: pace.Queues,
		MemoryBasis: budget.Basis, SpeedBasis: pace.Basis, Assumed: s.assumed, Notes: s.notes,
	}
}

// underRate records the number of requests in flight at a rate, or notes an overload.
func (s *subject) underRate(pace *physics.Pace) {
	if math.IsInf(pace.InFlight, 0) {
		s.assumed.Concurrency = 0
		s.notes = append(s.notes, fmt.Sprintf("the engine does not keep up with %s requests per second: it serves %s per second, and its queue grows",
			digits(s.load.Rate), digits(pace.OutputTokensPerSecond/float64(s.load.Output))))
		return
	}
	s.assumed.Concurrency = int(math.Ceil(pace.InFlight))
}

// budget returns the memory budget of the fullest GPU.
func (s *subject) budget() physics.Budget {
	if s.engine.Split != catalog.SplitLayers {
		return physics.Memory(s.physics, &s.gpu, s.layout, &s.serving, &s.engine)
	}
	return s.physics.LayerSplit(s.gpu.MemoryGiB, s.layout.TP*s.layout.PP, s.serving.MaxModelLen, s.serving.MaxNumSeqs, &s.engine.Memory)
}

// remark adds notes about the settings.
func (s *subject) remark(gpus int) {
	note := func(format string, args ...any) { s.notes = append(s.notes, fmt.Sprintf(format, args...)) }
	used := s.layout.TP * s.layout.PP * s.layout.DP
	if gpus > used {
		note("%d of the %d GPUs are idle: tp × pp × dp is %d", gpus-used, gpus, used)
	}
	if longest := s.load.Input + s.load.Output; longest > s.serving.MaxModelLen {
		note("%d + %d tokens exceed max-model-len, %d: the engine rejects such requests", s.load.Input, s.load.Output, s.serving.MaxModelLen)
	}
}

// refuse notes the reasons, other than memory, why the engine would not start. kvType is the KV cache type that the
// weights require; it counts if the user set none.
func (s *subject) refuse(shape *model.Shape, format *model.Quantization, kvType string) {
	split := ""
	if s.engine.Split == catalog.SplitTensor {
		split = planner.CannotSplit(shape, format, s.layout.TP, s.layout.EP)
		if split != "" && shape.MoE != nil && planner.CannotSplit(shape, format, s.layout.TP, true) == "" {
			split += "; --ep keeps each expert whole"
		}
	}
	for _, reason := range []string{
		planner.CannotRun(&s.engine, shape, format.Name, cmp.Or(s.serving.KVType, kvType), &s.gpu), split,
	} {
		if reason != "" {
			s.refused = true
			s.notes = append(s.notes, fmt.Sprintf("%s refuses to start: %s", s.engine.Name, reason))
		}
	}
}

// describeEstimate prints an estimate for people.
func describeEstimate(out page, e *estimate) {
	a := &e.Assumed
	out.line("%s", out.paint(bold, fmt.Sprintf("%s in %s on %d × %s", a.Model, a.Quantization, a.GPUs, a.GPU)))
	out.line("")
	experts := ""
	if a.ExpertParallel {
		experts = fmt.Sprintf(", experts spread over %d GPUs", a.TensorParallel*a.DataParallel)
	}
	out.fact("engine", fmt.Sprintf("%s %s, tensor parallel %d, pipeline parallel %d, data parallel %d%s",
		a.Engine, a.EngineVersion, a.TensorParallel, a.PipelineParallel, a.DataParallel, experts))
	settings := fmt.Sprintf("max-model-len %d, max-num-seqs %d, max-num-batched-tokens %d", a.MaxModelLen, a.MaxNumSeqs, a.MaxBatchedTokens)
	if a.GPUMemoryUtilization > 0 {
		settings += fmt.Sprintf(", gpu-memory-utilization %v, kv-cache-dtype %s", a.GPUMemoryUtilization, a.KVCacheType)
	}
	out.fact("settings", settings)
	out.fact("holds", fmt.Sprintf("%d tokens of KV cache, %.2f sequences of %d tokens, on each replica",
		e.KVCacheTokens, e.MaxConcurrency, a.MaxModelLen))
	if e.OutputTokensPerSecond > 0 {
		out.fact("speed", e.speed())
	}
	out.fact("fits", verdict(e))
	overhead := e.ActivationGiB + e.NonTorchGiB + e.CUDAGraphGiB
	out.heading(fmt.Sprintf("Memory of each GPU: %.2f GiB (%s)", a.TotalGiBPerGPU, e.MemoryBasis))
	out.bar(max(a.TotalGiBPerGPU, e.WeightsGiBPerGPU+overhead), []share{
		{"weights", e.WeightsGiBPerGPU, "█", blue},
		{"KV cache", max(e.KVCacheGiBPerGPU, 0), "▓", green},
		{"activations", e.ActivationGiB, "▒", magenta},
		{"libraries", e.NonTorchGiB, "▒", magenta},
		{"CUDA graphs", e.CUDAGraphGiB, "▒", magenta},
		{"not used", max(a.TotalGiBPerGPU-e.WeightsGiBPerGPU-overhead-max(e.KVCacheGiBPerGPU, 0), 0), "░", dim},
	})
	if len(e.Notes) > 0 {
		out.heading("Notes")
	}
	for _, text := range e.Notes {
		out.point(out.paint(yellow, "!"), text)
	}
}

// speed describes the predicted speed.
func (e *estimate) speed() string {
	out := speed(&planner.Performance{
		InputTokens: e.Assumed.Input, OutputTokens: e.Assumed.Output, Concurrency: e.Assumed.Concurrency,
		RequestsPerSecond: e.Assumed.RequestsPerSecond,
		TTFTMillis:        e.TTFTMillis, TPOTMillis: e.TPOTMillis, OutputTokensPerSecond: e.OutputTokensPerSecond, Basis: e.SpeedBasis,
	})
	if e.Queues {
		out += "; some requests queue"
	}
	return out
}

// verdict reports whether the engine starts, or the resource that is too small.
func verdict(e *estimate) string {
	switch {
	case e.Fits:
		return "yes"
	case e.KVCacheGiBPerGPU > 0 && e.MaxConcurrency >= 1:
		return "no: the engine refuses to start, see the notes"
	case e.KVCacheGiBPerGPU <= 0:
		return fmt.Sprintf("no: %.2f GiB per GPU are missing even without a KV cache", -e.KVCacheGiBPerGPU)
	default:
		return fmt.Sprintf("no: the KV cache holds only %.2f of a sequence of %d tokens; lower --max-model-len",
			e.MaxConcurrency, e.Assumed.MaxModelLen)
	}
}

func thousandths(value float64) float64 { return rounded(value, 1000) }
func hundredths(value float64) float64  { return rounded(value, 100) }

// rounded rounds a figure for JSON. NaN and infinity become 0.
func rounded(value, parts float64) float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0
	}
	return math.Round(value*parts) / parts
}
