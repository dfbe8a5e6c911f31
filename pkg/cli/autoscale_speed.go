// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"

	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
	"github.com/modelberth/modelberth/pkg/planner"
)

// deployed is one replica as planned, with its speed.
type deployed struct {
	plan    *planner.Plan
	subject subject
	speed   simulation.Speed
	price   float64
	seats   int
}

// deployed returns the replica of a plan.
func (o *planOptions) deployed(a *answer) (*deployed, error) {
	plan := &a.plan
	if a.model == nil || plan.Artifact == nil {
		return nil, usageError("the speed of a model in inference.template is unknown: simulate an InferenceSet with inference.preset")
	}
	if plan.HourlyPrice < 0 {
		return nil, usageError("the price of %s is unknown: name another machine type, or a region with a price", plan.InstanceType)
	}
	machine, ok := o.catalog.SKU(plan.InstanceType)
	if !ok {
		return nil, usageError("machine type %q is not in the catalogue", plan.InstanceType)
	}
	gpu, ok := o.catalog.GPU(machine.GPU)
	if !ok {
		return nil, usageError("GPU %q is not in the catalogue", machine.GPU)
	}
	engine, ok := o.catalog.Engine(plan.Engine)
	if !ok {
		return nil, usageError("engine %q is not in the catalogue", plan.Engine)
	}
	weights := asPublished(o.catalog, plan.Artifact, plan.Artifact.Quantization)
	out := &deployed{plan: plan, price: plan.HourlyPrice}
	out.subject = subject{
		physics: physics.NewModel(a.model.Shape, weights.weights), gpu: gpu, engine: engine,
		layout: physics.Layout{
			TP: max(plan.TensorParallel, 1), PP: max(plan.PipelineParallel, 1), DP: max(plan.DataParallel, 1),
			EP: plan.ExpertParallel, CP: plan.ContextParallel, Nodes: max(plan.Nodes, 1),
			LinkedGPUs: machine.LinkedGPUs, NetworkGBs: machine.NetworkGBs,
		},
		serving: physics.Serving{
			MaxModelLen: plan.MaxModelLen, MaxNumSeqs: plan.MaxNumSeqs, MaxBatchedTokens: plan.MaxBatchedTokens,
			Utilization: plan.GPUMemoryUtilization, KVType: plan.KVCacheType,
		},
	}
	out.seats = max(plan.MaxNumSeqs*max(plan.DataParallel, 1), plan.Concurrency, 1)
	if engine.Split == catalog.SplitLayers {
		out.seats = max(plan.Concurrency, 1)
		out.subject.serving.MaxNumSeqs, out.subject.serving.MaxBatchedTokens = out.seats, engine.Memory.BatchTokens
	}
	return out, nil
}

// measure predicts the speed for requests of a mean length.
func (d *deployed) measure(mean simulation.Request) error {
	budget := d.subject.budget()
	at := func(load physics.Load) physics.Pace {
		return d.subject.physics.Speed(&physics.Deployment{
			GPU: &d.subject.gpu, Layout: d.subject.layout, Serving: &d.subject.serving, Budget: &budget, Engine: &d.subject.engine,
		}, load)
	}
	longest := max(d.plan.MaxModelLen, 2)
	output := min(max(mean.Output, 1), longest/2)
	input := min(max(mean.Input, 1), longest-output)
	d.speed = simulation.Speed{
		Seats: d.seats, CacheTokens: float64(max(d.plan.KVCacheTokens, longest) * max(d.plan.DataParallel, 1)),
	}
	for n := 1; ; n *= 2 {
		n = min(n, d.seats)
		pace := at(physics.Load{Input: input, Output: output, Concurrency: n, Open: true})
		if pace.TPOT <= 0 || pace.Queues {
			break
		}
		// The prediction can dip at some batch sizes. More sequences are never faster, so the curve must not fall.
		seconds := pace.TPOT / 1e3
		if last := len(d.speed.Points) - 1; last >= 0 {
			seconds = math.Max(seconds, d.speed.Points[last].Seconds)
		}
		d.speed.Points = append(d.speed.Points, simulation.Point{Sequences: float64(n), Seconds: seconds})
		if n == d.seats {
			break
		}
	}
	if len(d.speed.Points) == 0 {
		return usageError("the speed of %s with %s on %s is unknown", d.plan.Artifact.Repo, d.plan.Engine, d.subject.gpu.Name)
	}
	short, long := max(input/4, 1), input
	first := at(physics.Load{Input: short, Output: output, Concurrency: 1, Open: true}).TTFT / 1e3
	last := at(physics.Load{Input: long, Output: output, Concurrency: 1, Open: true}).TTFT / 1e3
	if long > short {
		d.speed.PromptSecondsPerToken = math.Max(0, (last-first)/float64(long-short))
	}
	d.speed.PromptSeconds = math.Max(0, last-d.speed.PromptSecondsPerToken*float64(long))
	return nil
}

// words describes a replica.
func (d *deployed) words() string {
	points := d.speed.Points
	last := points[len(points)-1]
	return fmt.Sprintf("%d × %s, $%s/h; one request alone takes %s per token, %.0f requests at once take %s; the first token of a prompt of 1000 tokens takes %s",
		d.plan.Nodes, d.plan.InstanceType, dollars(d.price), millis(points[0].Seconds*1e3), last.Sequences, millis(last.Seconds*1e3),
		millis((d.speed.PromptSeconds+1000*d.speed.PromptSecondsPerToken)*1e3))
}
