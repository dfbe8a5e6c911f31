// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/model"
	"github.com/modelberth/modelberth/pkg/planner"
	"github.com/modelberth/modelberth/pkg/usd"
	"github.com/modelberth/modelberth/pkg/workload"
)

// describe prints a plan for people.
func (p *planCommand) describe(out page, a *answer) error {
	plan := &a.plan
	out.line("%s", out.paint(bold, fmt.Sprintf("%s: %s, %s", heading(a), plan.Summary(), hourly(plan.HourlyPrice))))
	if plan.Premium != "" {
		out.line("%s", plan.Premium)
	}
	out.line("")
	if a.model == nil {
		out.fact("pods", fmt.Sprintf("your own template, one pod on each machine; each pod requests %s",
			count(plan.GPUsPerNode, "GPU")))
	} else {
		p.describeModel(out, a)
	}
	out.fact("paid", p.paid(plan))
	p.describeMemory(out, plan)
	for _, part := range []struct {
		name, mark, code string
		texts            []string
	}{{"Warnings", "!", yellow, plan.Warnings}, {"Advice", "→", green, plan.Advice}} {
		if len(part.texts) == 0 {
			continue
		}
		out.heading(part.name)
		for _, text := range part.texts {
			out.point(out.paint(part.code, part.mark), p.worded(text))
		}
	}
	if err := p.alternatives(out, plan); err != nil {
		return err
	}
	p.rest(out, plan)
	p.compared(out, a.workspace)
	return nil
}

// worded replaces the names of fields by the names of their flags if the request came from flags.
func (p *planCommand) worded(text string) string {
	if p.file != "" {
		return text
	}
	return flagged(text)
}

func heading(a *answer) string {
	if a.model == nil {
		return key(a.workspace)
	}
	return title(a.workspace, a.model.HubID)
}

// hourly formats a price per hour for a sentence.
func hourly(price float64) string {
	if price < 0 {
		return "no price known"
	}
	return usd.PerHour(price)
}

func (p *planCommand) describeModel(out page, a *answer) {
	plan := &a.plan
	data, _ := p.catalog.Engine(plan.Engine)
	out.fact("weights", weights(plan.Artifact, workload.WeightsPlace(a.workspace)))
	out.fact("engine", engineLine(plan, &data))
	out.fact("layout", layout(plan))
	out.fact("holds", holds(plan, &data))
	if performance := plan.Performance; performance != nil {
		out.fact("speed", speed(performance))
		if performance.LongestTTFTMillis > 0 {
			out.fact("longest", fmt.Sprintf("first token of a prompt of %d tokens after %s, if nothing else is served (%s)",
				plan.MaxModelLen-1, millis(performance.LongestTTFTMillis), v1beta1.BasisEstimated))
		}
	}
	out.fact("disk", disk(plan, a.workspace.Inference.Weights))
	if a.model.Gated && a.workspace.Inference.Weights == nil {
		out.fact("access", fmt.Sprintf("gated: accept the licence of %s on the hub, and name a Secret with a token in "+
			"inference.preset.presetOptions.modelAccessSecret", a.model.HubID))
	}
	if a.model.License != "" {
		out.fact("licence", a.model.License)
	}
}

// disk describes the required disk space of each machine, and its use.
func disk(plan *planner.Plan, from *v1beta1.WeightsSource) string {
	switch {
	case from == nil || from.OCI != nil:
		return fmt.Sprintf("%d GiB for weights and image on each machine", plan.DiskGiB)
	case from.Image != nil:
		return fmt.Sprintf("%d GiB for the images on each machine, including the image of the weights, packed and unpacked", plan.DiskGiB)
	default:
		return fmt.Sprintf("%d GiB for the image on each machine; the weights are on a volume", plan.DiskGiB)
	}
}

func weights(a *model.Artifact, place string) string {
	basis := ""
	if !a.BytesExact() {
		basis = " (estimated)"
	}
	text := fmt.Sprintf("%s, %s GiB%s, of %s", a.Quantization, digits(float64(a.Bytes())/gib), basis, a.Repo)
	if a.Revision != "" && a.Revision != "main" {
		text += " at " + a.Revision[:min(len(a.Revision), 12)]
	}
	if place != "" {
		text = fmt.Sprintf("%s, %s GiB%s, the files of %s from %s", a.Quantization, digits(float64(a.Bytes())/gib), basis, a.Repo, place)
	}
	if !a.Native {
		text += ", which you allowed: the publisher released another precision"
	}
	return text
}

// engineLine describes the engine and the plan's settings for it.
func engineLine(plan *planner.Plan, data *catalog.Engine) string {
	parts := []string{strings.TrimSpace(plan.Engine + " " + data.Version)}
	for _, setting := range []struct{ name, value string }{
		{"max-num-seqs", number(plan.MaxNumSeqs)},
		{"max-num-batched-tokens", number(plan.MaxBatchedTokens)},
		{"gpu-memory-utilization", share2(plan.GPUMemoryUtilization)},
		{"kv-cache-dtype", text(plan.KVCacheType)},
	} {
		if setting.value != none {
			parts = append(parts, setting.name+" "+setting.value)
		}
	}
	return strings.Join(parts, ", ")
}

func share2(value float64) string {
	if value == 0 {
		return none
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}

// layout describes how the model spreads over the GPUs.
func layout(plan *planner.Plan) string {
	var parts []string
	add := func(n int, one, many string) {
		if n > 1 {
			parts = append(parts, fmt.Sprintf(many, n))
		} else if one != "" {
			parts = append(parts, one)
		}
	}
	add(plan.DataParallel, "", "%d replicas that share the requests")
	if plan.ExpertParallel {
		parts = append(parts, fmt.Sprintf("experts spread over %d GPUs (expert parallel)", plan.TensorParallel*plan.DataParallel))
	}
	add(plan.TensorParallel, "", "each layer over %d GPUs (tensor parallel)")
	add(plan.PipelineParallel, "", "the layers in %d stages (pipeline parallel)")
	switch {
	case len(parts) > 0:
	case plan.GPUsPerNode == 0:
		return "the whole model in main memory, without a GPU"
	default:
		return "the whole model on one GPU"
	}
	return strings.Join(parts, "; ")
}

// holds describes the number of sequences that fit, and the tokens in the KV cache.
func holds(plan *planner.Plan, data *catalog.Engine) string {
	text := fmt.Sprintf("%s of %d tokens each at once", count(plan.Concurrency, "sequence"), plan.MaxModelLen)
	// If some layers keep fewer tokens (a sliding window), the cache's size holds only for long sequences. So the text
	// omits it.
	cached := plan.KVCacheTokens * max(plan.DataParallel, 1)
	if data.Split == catalog.SplitTensor && cached >= plan.Concurrency*plan.MaxModelLen {
		text += fmt.Sprintf("; the KV cache has %d tokens, so more sequences fit if they are shorter", cached)
	}
	return text
}

func speed(s *planner.Performance) string {
	load := count(s.Concurrency, "request") + " at once"
	if s.RequestsPerSecond > 0 {
		load = fmt.Sprintf("%s requests per second, %d at once on average", digits(s.RequestsPerSecond), s.Concurrency)
	}
	learned := ""
	if s.Slowdown > 0 {
		learned = asLearned(digits(s.Slowdown))
	}
	return fmt.Sprintf("first token after %s, then %s per token%s; %s tokens/s in total, under %s, each %d tokens in and %d out (%s)",
		millis(s.TTFTMillis), millis(s.TPOTMillis), learned, digits(s.OutputTokensPerSecond), load, s.InputTokens, s.OutputTokens, s.Basis)
}

// paid returns the capacity type (on-demand or spot) and the region of the price; the heading has the amount.
func (p *planCommand) paid(plan *planner.Plan) string {
	if len(plan.NodeNames) > 0 {
		return "nothing: " + strings.Join(plan.NodeNames, ", ") + " exist" + verbEnding(len(plan.NodeNames)) + " already"
	}
	s, _ := p.catalog.SKU(plan.InstanceType)
	region := p.region
	if region == "" {
		region = p.catalog.ReferenceRegion(s.Cloud)
	}
	if plan.HourlyPrice < 0 {
		return fmt.Sprintf("not known in %s (%s)", text(region), s.Cloud)
	}
	how, shown := paid(plan.CapacityType), ""
	if _, known := s.SpotPrices[region]; plan.CapacityType == v1beta1.CapacitySpot && !known {
		shown = ", shown at the on-demand price, because the spot price is not known"
	}
	out := fmt.Sprintf("%s in %s (%s)%s", how, text(region), s.Cloud, shown)
	if performance := plan.Performance; performance != nil && performance.PricePerMillion >= 0 {
		out += fmt.Sprintf("; %s per million output tokens at that load", usd.Significant(performance.PricePerMillion))
	}
	return out
}

// verbEnding returns the ending of a verb for a number of subjects.
func verbEnding(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

func paid(t v1beta1.CapacityType) string {
	switch t {
	case v1beta1.CapacityReserved:
		return "from a reservation"
	case v1beta1.CapacitySpot:
		return "as spot"
	default:
		return "on demand"
	}
}

func (p *planCommand) describeMemory(out page, plan *planner.Plan) {
	memory := plan.Memory
	if memory == nil || memory.Total <= 0 {
		return
	}
	whose := "Memory of the GPU"
	if gpus := plan.Nodes * plan.GPUsPerNode; gpus > 1 {
		whose = fmt.Sprintf("Memory of each of the %d GPUs", gpus)
	}
	out.heading(fmt.Sprintf("%s: %.2f GiB (%s)", whose, memory.Total, memory.Basis))
	out.bar(memory.Total, []share{
		{"weights", memory.Weights, "█", blue},
		{"KV cache", memory.KVCache, "▓", green},
		{"overhead", memory.Overhead, "▒", magenta},
		{"free", memory.Free(), "░", dim},
	})
}

// alternatives prints the next best options.
func (p *planCommand) alternatives(out page, plan *planner.Plan) error {
	if len(plan.Alternatives) == 0 {
		return nil
	}
	out.heading("Alternatives, best first")
	rows := [][]string{{"", "MACHINES", "GPUS", "$/H", "$/M TOKENS", "TTFT", "TPOT"}}
	if p.wide() {
		rows[0] = append(rows[0], "TOKENS/S", "BASIS")
	}
	rows[0] = append(rows[0], "WHY NOT")
	for i := range plan.Alternatives {
		v := &plan.Alternatives[i]
		row := []string{strconv.Itoa(i + 1), alternative(v), p.gpusOf(v), dollars(v.HourlyPrice)}
		row = append(row, paceOf(v.Performance, p.wide())...)
		rows = append(rows, append(row, v.Reason))
	}
	return table(out.w, "  ", rows)
}

// alternative describes the machines of a next best option.
func alternative(v *planner.Verdict) string {
	if len(v.NodeNames) > 0 {
		return machines(v)
	}
	return fmt.Sprintf("%d × %s", v.Nodes, v.InstanceType)
}

// gpusOf describes the GPUs of an alternative, on all machines.
func (p *planCommand) gpusOf(v *planner.Verdict) string {
	s, _ := p.catalog.SKU(v.InstanceType)
	gpu, known := p.catalog.GPU(s.GPU)
	if !known {
		return none
	}
	return fmt.Sprintf("%d × %s", v.GPUsPerNode*v.Nodes, gpu.Class)
}

// paceOf returns the columns for the speed of an alternative.
func paceOf(s *planner.Performance, wide bool) []string {
	out := []string{none, none, none, none, none}
	if s != nil {
		out = []string{
			digits(s.PricePerMillion), millis(s.TTFTMillis), millis(s.TPOTMillis), digits(s.OutputTokensPerSecond), string(s.Basis),
		}
	}
	if !wide {
		out = out[:3]
	}
	return out
}

// rest counts the rejected options.
func (p *planCommand) rest(out page, plan *planner.Plan) {
	switch {
	case len(plan.Rejected) == 0:
	case p.explain:
		explain(out, plan.Rejected)
	default:
		out.line("")
		out.line("%s rejected; --explain lists them with the reasons.", wasWere(len(plan.Rejected), "further option"))
	}
}

// compared prints whose prices were compared, if neither cloud nor region was set.
func (p *planCommand) compared(out page, ws *v1beta1.Workspace) {
	onlyThere := p.there != nil && ws.Resource.EffectiveNodeSource() == v1beta1.NodeSourceExisting
	if onlyThere || len(p.clouds) > 0 || p.region != "" || ws.Resource.InstanceType != "" {
		return
	}
	var places []string
	for _, cloud := range clouds(p.catalog) {
		places = append(places, fmt.Sprintf("%s (%s)", cloud, p.catalog.ReferenceRegion(cloud)))
	}
	out.line("")
	out.line("Prices are those of %s; --cloud and --region choose others.", strings.Join(places, ", "))
}

func wasWere(n int, thing string) string {
	if n == 1 {
		return count(n, thing) + " was"
	}
	return count(n, thing) + " were"
}
