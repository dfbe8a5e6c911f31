// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/sku"
)

// estimateCommand is kubectl berth estimate.
type estimateCommand struct {
	catalogFlags
	modelResolver
	output

	name, gpu, dtype, kvType, engine string

	gpus, nodes, tp, pp, dp int
	ep                      bool

	serving physics.Serving
	load    physics.Load
}

func newEstimate(w World) *cobra.Command {
	e := &estimateCommand{}
	cmd := &cobra.Command{
		Use:   "estimate (--model MODEL | --config FILE) --gpu GPU",
		Short: "Predict memory and speed for the given engine settings",
		Long: `Predict memory and speed for the given engine settings.

Unlike plan, this command chooses nothing. Unset settings use the engine's own defaults, so you can compare the
figures with its log. A model that does not fit is a result, not an error.`,
		Example: `  kubectl berth estimate --model meta-llama/Llama-3.1-8B-Instruct --gpu H100-80-SXM
  kubectl berth estimate --model openai/gpt-oss-120b --gpu H100-80-SXM --max-num-seqs 256 --max-model-len 16384
  kubectl berth estimate --config config.json --gpu L40S --gpus 4 --tp 4 --dtype fp8 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context(), cmd, w) },
	}
	e.bindFlags(cmd)
	e.catalogFlags.bind(cmd, w)
	e.modelResolver.bind(cmd, w)
	e.output.bind(cmd, false)
	return cmd
}

func (e *estimateCommand) bindFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&e.name, "model", "", "model: a preset, an alias, or a Hugging Face id")
	f.StringVar(&e.gpu, "gpu", "", "GPU, such as H100-80-SXM, L40S, 'RTX PRO 6000-96' or the MIG slice 'H100 3g.40gb'; see gpus (required)")
	f.IntVar(&e.gpus, "gpus", 0, "number of GPUs (default: tp × pp × dp)")
	f.IntVar(&e.nodes, "nodes", 1, "number of machines over which the GPUs are spread")
	f.IntVar(&e.tp, "tp", 0, "tensor parallel size: GPUs for each layer (default: from --gpus)")
	f.IntVar(&e.pp, "pp", 1, "pipeline parallel size: number of stages that the layers are split into")
	f.IntVar(&e.dp, "dp", 1, "data parallel size: number of replicas; replicas of a mixture-of-experts model share its experts, as with --ep")
	f.BoolVar(&e.ep, "ep", false, "expert parallel: keep each expert whole, and spread the experts over the GPUs of all replicas")
	f.StringVar(&e.engine, "engine", "vllm", "engine")
	f.StringVar(&e.serving.Version, "engine-version", "", "release of the engine (default: the catalogue's)")
	f.StringVar(&e.dtype, "dtype", "", "format of the weights, such as bf16, fp8, fp4, int4, mxfp4, awq (default: as released)")
	f.StringVar(&e.kvType, "kv-dtype", "auto", "type of the KV cache, such as fp8")
	f.Float64Var(&e.serving.Utilization, "gpu-memory-utilization", 0, "share of each GPU's memory that the engine uses (default: the engine's own)")
	f.IntVar(&e.serving.MaxNumSeqs, "max-num-seqs", 0, "maximum number of sequences in progress on each replica (default: the engine's for the GPU)")
	f.IntVar(&e.serving.MaxBatchedTokens, "max-num-batched-tokens", 0, "maximum number of tokens computed in one step (default: the engine's for the GPU)")
	f.IntVar(&e.serving.MaxModelLen, "max-model-len", 0, "maximum tokens of a sequence (default: the model's context)")
	f.BoolVar(&e.serving.Eager, "enforce-eager", false, "run without CUDA graphs")
	f.IntVar(&e.load.Input, "input-len", 1024, "tokens of a prompt")
	f.IntVar(&e.load.Output, "output-len", 256, "tokens of an answer")
	f.IntVar(&e.load.Concurrency, "concurrency", 1, "concurrent requests")
	f.Float64Var(&e.load.Rate, "rate", 0, "requests per second with random arrivals; replaces the concurrency")
}

// estimate is a prediction; its JSON is stable.
type estimate struct {
	WeightsGiBPerGPU      float64 `json:"weightsGiBPerGPU"`
	KVCacheGiBPerGPU      float64 `json:"kvCacheGiBPerGPU"`
	KVCacheTokens         int     `json:"kvCacheTokens"`
	MaxConcurrency        float64 `json:"maxConcurrency"`
	ActivationGiB         float64 `json:"activationGiB"`
	NonTorchGiB           float64 `json:"nonTorchGiB"`
	CUDAGraphGiB          float64 `json:"cudaGraphGiB"`
	TTFTMillis            float64 `json:"ttftMs"`
	TPOTMillis            float64 `json:"tpotMs"`
	OutputTokensPerSecond float64 `json:"outputTokensPerSecond"`
	// Fits reports whether the engine starts and holds one sequence of the maximum length.
	Fits bool `json:"fits"`
	// Queues reports whether part of the load waits, because it does not fit at once.
	Queues bool `json:"queues"`
	// MemoryBasis and SpeedBasis are the origins of the figures.
	MemoryBasis v1beta1.Basis `json:"memoryBasis"`
	SpeedBasis  v1beta1.Basis `json:"speedBasis"`
	// Assumed are the settings behind the figures.
	Assumed assumed  `json:"assumed"`
	Notes   []string `json:"notes,omitempty"`
}

// assumed are the settings of an estimate, with the defaults of unset ones.
type assumed struct {
	Model                string  `json:"model"`
	Quantization         string  `json:"quantization"`
	GPU                  string  `json:"gpu"`
	GPUs                 int     `json:"gpus"`
	TotalGiBPerGPU       float64 `json:"totalGiBPerGPU"`
	TensorParallel       int     `json:"tensorParallel"`
	PipelineParallel     int     `json:"pipelineParallel"`
	DataParallel         int     `json:"dataParallel"`
	ExpertParallel       bool    `json:"expertParallel,omitempty"`
	Engine               string  `json:"engine"`
	EngineVersion        string  `json:"engineVersion"`
	KVCacheType          string  `json:"kvCacheType"`
	GPUMemoryUtilization float64 `json:"gpuMemoryUtilization,omitempty"`
	MaxNumSeqs           int     `json:"maxNumSeqs,omitempty"`
	MaxBatchedTokens     int     `json:"maxNumBatchedTokens,omitempty"`
	MaxModelLen          int     `json:"maxModelLen"`
	Input                int     `json:"inputLen"`
	Output               int     `json:"outputLen"`
	Concurrency          int     `json:"concurrency"`
	RequestsPerSecond    float64 `json:"requestsPerSecond,omitempty"`
}

func (e *estimateCommand) run(ctx context.Context, cmd *cobra.Command, w World) error {
	if err := e.check(cmd); err != nil {
		return err
	}
	known, err := e.catalogFlags.load()
	if err != nil {
		return err
	}
	e.modelResolver.catalog = known
	s, err := e.subject(ctx, known)
	if err != nil {
		return err
	}
	got := s.predict()
	if e.forPrograms() {
		return e.data(w.Out, got)
	}
	describeEstimate(page{w.Out, newStyle(w)}, &got)
	return nil
}

// check refuses contradictory flags.
func (e *estimateCommand) check(cmd *cobra.Command) error {
	switch {
	case e.name == "" && e.config == "":
		return usageError("no model: name one with --model, or its config.json with --config; see %s --help", cmd.CommandPath())
	case e.gpu == "":
		return usageError("no GPU: name one with --gpu; `kubectl berth gpus` lists the names")
	case e.serving.Utilization < 0 || e.serving.Utilization > 1:
		return usageError("--gpu-memory-utilization is %v: it must be above 0 and at most 1", e.serving.Utilization)
	}
	if version := e.serving.Version; version != "" && !physics.IsRelease(version) {
		return usageError("--engine-version: %q is not a release: give a number such as 0.11", version)
	}
	if err := e.checkRate(cmd); err != nil {
		return err
	}
	for _, flag := range []struct {
		name               string
		value, least, most int
	}{
		{"gpus", e.gpus, 0, mostGPUs},
		{"nodes", e.nodes, 1, mostGPUs},
		{"tp", e.tp, 0, mostGPUs},
		{"pp", e.pp, 1, mostGPUs},
		{"dp", e.dp, 1, mostGPUs},
		{"max-num-seqs", e.serving.MaxNumSeqs, 0, mostTokens},
		{"max-num-batched-tokens", e.serving.MaxBatchedTokens, 0, mostTokens},
		{"max-model-len", e.serving.MaxModelLen, 0, mostTokens},
		{"input-len", e.load.Input, 1, mostTokens},
		{"output-len", e.load.Output, 1, mostTokens},
		{"concurrency", e.load.Concurrency, 1, mostTokens},
	} {
		given := cmd.Flags().Changed(flag.name)
		if flag.value < max(flag.least, 1) && (given || flag.value != 0) || flag.value > flag.most {
			return usageError("--%s is %d: it must be from 1 to %d", flag.name, flag.value, flag.most)
		}
	}
	return nil
}

// checkRate refuses an invalid rate, and a rate together with another load.
func (e *estimateCommand) checkRate(cmd *cobra.Command) error {
	switch rate := e.load.Rate; {
	case !cmd.Flags().Changed("rate"):
		return nil
	case math.IsNaN(rate) || rate <= 0 || rate >= mostRate:
		return usageError("--rate is %v: it must be above 0 and below %d", rate, mostRate)
	case cmd.Flags().Changed("concurrency"):
		return usageError("--rate and --concurrency cannot be combined: keep one")
	}
	return nil
}

// Bounds of sensible values. They keep products within the range of integers.
const (
	mostGPUs   = 4096
	mostTokens = 100_000_000
	mostRate   = 1_000_000
)

// subject is a model on GPUs under an engine.
type subject struct {
	physics *physics.Model
	gpu     sku.GPU
	engine  catalog.Engine
	layout  physics.Layout
	serving physics.Serving
	load    physics.Load
	assumed assumed
	notes   []string
	// refused reports whether the engine refuses to start on the GPU or with the settings.
	refused bool
}

// subject collects the input of a prediction.
func (e *estimateCommand) subject(ctx context.Context, known *catalog.Catalog) (*subject, error) {
	s := &subject{serving: e.serving, load: e.load}
	var ok bool
	if s.gpu, ok = known.GPU(strings.Join(strings.Fields(e.gpu), "-")); !ok {
		return nil, unknownGPU(known, e.gpu)
	}
	if s.engine, ok = known.Engine(e.engine); !ok {
		return nil, usageError("--engine: %q is not an engine of the catalogue: use %s", e.engine, orList(engineNames(known)))
	}
	m, notes, err := e.modelResolver.model(ctx, e.name)
	if err != nil {
		return nil, err
	}
	if m.Shape.IsZero() {
		return nil, usageError("--model: the catalogue does not have the shape of %s: pass its config.json with --config FILE", m.HubID)
	}
	w, err := weightsFor(known, &m, &s.engine, e.dtype)
	if err != nil {
		return nil, err
	}
	s.notes = slices.Concat(notes, w.notes)
	if s.layout, err = e.layout(known, &s.gpu, m.Shape.Layers); err != nil {
		return nil, err
	}
	// Without the flag, the engine splits experts over the GPUs of all replicas, with the same share on each.
	s.layout.EP = m.Shape.MoE != nil && s.engine.Split == catalog.SplitTensor && (e.ep || s.layout.DP > 1)
	if err := s.serveAs(e.kvType, m.Context); err != nil {
		return nil, err
	}
	w.weights.Version = s.serving.Version
	s.physics = physics.NewModel(m.Shape, w.weights)
	s.assume(m.HubID, w.weights.Format.Name, cmp.Or(e.gpus, s.layout.TP*s.layout.PP*s.layout.DP))
	s.remark(e.gpus)
	s.refuse(&m.Shape, &w.weights.Format, w.kvType)
	return s, nil
}

func unknownGPU(known *catalog.Catalog, name string) error {
	hint := "`kubectl berth gpus` lists the names"
	if similar := known.SimilarGPUs(name); len(similar) > 0 {
		hint = "did you mean " + orList(similar) + "?"
	}
	return usageError("--gpu: %q is not in the catalogue: %s", name, hint)
}

func engineNames(known *catalog.Catalog) []string {
	var names []string
	for _, engine := range known.Engines() {
		names = append(names, engine.Name)
	}
	return names
}

// layout returns the layout of the model on the GPUs, from the flags.
func (e *estimateCommand) layout(known *catalog.Catalog, gpu *sku.GPU, layers int) (physics.Layout, error) {
	l := physics.Layout{TP: e.tp, PP: e.pp, DP: e.dp, Nodes: e.nodes}
	if l.TP == 0 {
		l.TP = max(e.gpus/(l.PP*l.DP), 1)
	}
	each := l.TP * l.PP * l.DP
	switch {
	case e.gpus != 0 && e.gpus%each != 0:
		return l, usageError("--gpus is %d, which is not a multiple of tp × pp × dp = %d × %d × %d = %d", e.gpus, l.TP, l.PP, l.DP, each)
	case gpu.Whole != "" && each > 1:
		return l, usageError("--gpu: %s is a slice of a GPU, but a model cannot spread over slices: leave out --gpus, --tp, --pp and --dp", gpu.Name)
	case l.PP > layers:
		return l, usageError("--pp is %d, but the model has only %s: each stage needs at least one layer", l.PP, count(layers, "layer"))
	case cmp.Or(e.gpus, each)%l.Nodes != 0:
		return l, usageError("--nodes is %d, which does not divide %s", l.Nodes, count(cmp.Or(e.gpus, each), "GPU"))
	}
	l.LinkedGPUs, l.NetworkGBs = joined(known, gpu, cmp.Or(e.gpus, each)/l.Nodes)
	return l, nil
}

// joined returns the number of GPUs on one link in a machine, and the network's speed between machines in GB/s. They
// come from the catalogue's machine types with at least that many of the GPUs, or else from the GPU's own link.
func joined(known *catalog.Catalog, gpu *sku.GPU, gpus int) (linked int, networkGBs float64) {
	found := false
	for _, s := range known.SKUs() {
		if s.GPU == gpu.Name && s.GPUs >= gpus {
			found = true
			linked, networkGBs = max(linked, s.LinkedGPUs), max(networkGBs, s.NetworkGBs)
		}
	}
	if !found && strings.HasPrefix(gpu.Link, "nvlink") {
		linked = gpus
	}
	return linked, networkGBs
}

// serveAs fills in the engine's defaults.
func (s *subject) serveAs(kvType string, context int) error {
	s.serving.KVType = ""
	switch kvType {
	case "", "auto", "bf16", "fp16", "bfloat16", "float16":
	default:
		if types := s.engine.KVTypes(); !slices.Contains(types, kvType) {
			return usageError("--kv-dtype: no prediction for engine %s with a KV cache of type %q: use %s",
				s.engine.Name, kvType, orList(append([]string{"auto"}, types...)))
		}
		s.serving.KVType = kvType
	}
	if s.serving.MaxModelLen == 0 {
		s.serving.MaxModelLen = context
	}
	if s.engine.Split == catalog.SplitLayers {
		s.serving.MaxNumSeqs = cmp.Or(s.serving.MaxNumSeqs, s.load.Concurrency)
		s.serving.MaxBatchedTokens = s.engine.Memory.BatchTokens
		return nil
	}
	s.serving = s.serving.Settled(&s.gpu, &s.engine)
	return nil
}

func (s *subject) assume(model, quantization string, gpus int) {
	s.assumed = assumed{
		Model: model, Quantization: quantization, GPU: s.gpu.Name, GPUs: gpus, TotalGiBPerGPU: s.gpu.MemoryGiB,
		TensorParallel: s.layout.TP, PipelineParallel: s.layout.PP, DataParallel: s.layout.DP,
		ExpertParallel: s.layout.EP, Engine: s.engine.Name,
		EngineVersion: cmp.Or(s.serving.Version, s.engine.Version), KVCacheType: cmp.Or(s.serving.KVType, "auto"),
		GPUMemoryUtilization: s.serving.Utilization, MaxNumSeqs: s.serving.MaxNumSeqs, MaxBatchedTokens: s.serving.MaxBatchedTokens,
		MaxModelLen: s.serving.MaxModelLen, Input: s.load.Input, Output: s.load.Output, Concurrency: s.load.Concurrency,
		RequestsPerSecond: s.load.Rate,
	}
}
