// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build fit

package physics_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// fitRounds is the number of rounds of a fit. Each tries another value of one constant.
const fitRounds = 12000

// A constant is drawn to its start: a change by a factor f costs as much as an error of drawn × ln²(f) in one row. The
// fit without a lab has hardly more rows than constants, so its constants are drawn more. Drawn as in the fit to all
// labs, the share of dense matrices of 8 bits fell to a fifth without InferenceX, to mend two bursts by a few percent.
const drawn, drawnWithoutLab = 0.02, 0.1

// TestFitSpeed fits constants of presets/engines/vllm.yaml to the rows of the fit, starting from their
// values, and prints them and the errors. It is repeatable: the same rows give the same constants.
//
//	go test -tags fit -run TestFitSpeed -v ./pkg/physics
//
// MODELBERTH_FIT names the prefix of the constants to fit, instead of all.
func TestFitSpeed(t *testing.T) {
	rows := benches(t)
	speed := &rows[0].deployment.Engine.Speed
	fitted, kept := splitRows(rows)
	constants := slices.DeleteFunc(fittedConstants(), func(c constant) bool {
		prefix := os.Getenv("MODELBERTH_FIT")
		return len(c.name) < len(prefix) || c.name[:len(prefix)] != prefix
	})
	logTotals(t, "before", fitted, kept)
	fitSpeed(t, speed, fitted, constants, drawn)
	for _, c := range constants {
		t.Logf("%-28s %.3g", c.name, c.get(speed))
	}
	logScores(t, "fitted", scoresBy(fitted, (*bench).group))
	logScores(t, "kept out", scoresBy(kept, (*bench).group))
	logTotals(t, "after", fitted, kept)
}

// TestLeaveOneLabOut fits to the rows of all labs except one, and prints the errors for that lab. It starts at the
// current constants, so a constant that only the omitted lab supports stays as it is.
//
// InferenceX is omitted a second time with the operator tables' sums over NVLink, because only its rows changed these.
func TestLeaveOneLabOut(t *testing.T) {
	for _, tc := range []struct {
		lab, how string
		prepare  func(*catalog.Speed)
	}{
		{lab: "GPUStack"},
		{lab: "InferenceX"},
		{lab: "InferenceX", how: ", sums of the operator tables", prepare: tabulatedSums},
		{lab: "NVIDIA"},
		{lab: "Vultr"},
		{lab: "others"},
		{lab: "vLLM"},
	} {
		rows, lab := benches(t), tc.lab
		speed := &rows[0].deployment.Engine.Speed
		was := speed.Clone()
		if tc.prepare != nil {
			tc.prepare(speed)
		}
		fitted, _ := splitRows(rows)
		of := slices.DeleteFunc(measured(rows), func(b *bench) bool { return b.lab() != lab })
		others := slices.DeleteFunc(fitted, func(b *bench) bool { return b.lab() == lab })
		fitSpeed(t, speed, others, fittedConstants(), drawnWithoutLab)
		s := scoresBy(of, (*bench).lab)[lab]
		t.Logf("figure: fitted without %s%s, %d of its rows: %d TPOT %v, %d TTFT %v, tokens/s %v", lab, tc.how, len(of), len(s.tpot), s.tpot,
			len(s.ttft), s.ttft, s.tokens)
		*speed = was
	}
}

// tabulatedSums sets the times of sums over NVLink 4 and 5 to those of the communication tables of
// ai-dynamo/aiconfigurator, in microseconds.
func tabulatedSums(speed *catalog.Speed) {
	tables := map[string]map[int][]float64{
		"nvlink4": {2: {4.4, 5.2, 12, 81, 469}, 4: {4.9, 7.2, 19, 99, 619}, 8: {5.6, 10.8, 19, 92, 577}},
		"nvlink5": {2: {7.0, 7.7, 25, 57, 280}, 4: {7.4, 8.6, 24, 68, 353}, 8: {8.2, 26, 21, 63, 442}},
	}
	for i := range speed.AllReduce {
		table := &speed.AllReduce[i]
		if micros := tables[table.Links[0]][table.GPUs]; micros != nil {
			copy(table.Micros, micros)
		}
	}
}

func logTotals(t *testing.T, title string, fitted, kept []*bench) {
	t.Helper()
	totals := scoresBy(fitted, func(*bench) string { return "fitted" })
	totals["kept out"] = scoresBy(kept, func(*bench) string { return "all" })["all"]
	logScores(t, title, totals)
}

// fitSpeed changes constants to make the rows' errors small. If the rows have little information on a constant,
// fitSpeed keeps it near its start.
func fitSpeed(t *testing.T, speed *catalog.Speed, rows []*bench, constants []constant, drawn float64) {
	t.Helper()
	groups := map[string]float64{}
	for _, b := range rows {
		groups[b.group()]++
	}
	begin := make([]float64, len(constants))
	for i, c := range constants {
		begin[i] = c.get(speed)
	}
	loss := func() float64 {
		sum := 0.0
		for _, b := range rows {
			sum += b.distance() / math.Sqrt(groups[b.group()])
		}
		for i, c := range constants {
			factor := math.Log(c.get(speed) / begin[i])
			sum += drawn * factor * factor
		}
		return sum
	}
	if len(constants) == 0 {
		return
	}
	random := rand.New(rand.NewPCG(1, 2))
	best := loss()
	for i := range fitRounds {
		c, width := constants[random.IntN(len(constants))], 0.15*math.Pow(0.03, float64(i)/fitRounds)
		was := c.get(speed)
		value := was * math.Exp(random.NormFloat64()*width)
		if c.most > 0 && value > c.most {
			continue
		}
		c.set(speed, value)
		if now := loss(); now < best {
			best = now
			continue
		}
		c.set(speed, was)
	}
}

// distance returns the distance of a row's prediction from the measurement: roughly the sum of its relative errors.
func (b *bench) distance() float64 {
	p, sum := b.pace(), 0.0
	add := func(weight, predicted, measured float64) {
		if !math.IsNaN(measured) {
			sum += weight * math.Hypot(math.Log(max(predicted, 1e-9)/measured), 0.03)
		}
	}
	if b.burst || math.IsNaN(b.tpot) {
		add(1, p.OutputTokensPerSecond, b.tokens)
	}
	if !b.burst {
		add(1, p.TPOT, b.tpot)
	}
	if !b.burst && b.noTTFT == "" {
		add(0.4, p.TTFT, b.ttft)
	}
	return sum
}

// constant is a constant of the law to fit.
type constant struct {
	name string
	get  func(*catalog.Speed) float64
	set  func(*catalog.Speed, float64)
	// most is the upper limit; 0 means none.
	most float64
}

// mostOfPeak is the largest share of the peak that kernels reach.
const mostOfPeak = 0.95

// fittedConstants returns the constants for which the rows have evidence.
func fittedConstants() []constant {
	plain := func(name string, of func(*catalog.Speed) *float64) constant {
		return constant{
			name: name, get: func(s *catalog.Speed) float64 { return *of(s) },
			set: func(s *catalog.Speed, to float64) { *of(s) = to },
		}
	}
	bounded := func(c constant) constant {
		c.most = mostOfPeak
		return c
	}
	kernel := func(name string, kernels func(*catalog.Speed) map[string]catalog.Kernel, most float64,
		of func(*catalog.Kernel) *float64, formats ...string,
	) constant {
		return constant{
			name: name, most: most,
			get: func(s *catalog.Speed) float64 { k := kernels(s)[formats[0]]; return *of(&k) },
			set: func(s *catalog.Speed, to float64) {
				for _, format := range formats {
					k := kernels(s)[format]
					*of(&k) = to
					kernels(s)[format] = k
				}
			},
		}
	}
	dense := func(s *catalog.Speed) map[string]catalog.Kernel { return s.Dense }
	experts := func(s *catalog.Speed) map[string]catalog.Kernel { return s.Experts }
	bandwidth := func(k *catalog.Kernel) *float64 { return &k.Bandwidth }
	compute := func(k *catalog.Kernel) *float64 { return &k.Compute }
	layer := func(k *catalog.Kernel) *float64 { return &k.LayerMicros }
	out := []constant{
		kernel("dense bf16 bandwidth", dense, mostOfPeak, bandwidth, "default"),
		kernel("dense bf16 compute", dense, mostOfPeak, compute, "default"),
		kernel("dense fp8 bandwidth", dense, mostOfPeak, bandwidth, "fp8", "fp8-channel"),
		kernel("dense fp8 compute", dense, mostOfPeak, compute, "fp8", "fp8-channel"),
		kernel("dense nvfp4 bandwidth", dense, mostOfPeak, bandwidth, "nvfp4"),
		kernel("dense nvfp4 compute", dense, mostOfPeak, compute, "nvfp4"),
	}
	variant := func(format, what string, of func(*catalog.Variant) *float64, capabilities ...string) constant {
		return constant{
			name: "experts " + format + " " + what + " on " + capabilities[0],
			get:  func(s *catalog.Speed) float64 { v := s.Experts[format].Generations[capabilities[0]]; return *of(&v) },
			set: func(s *catalog.Speed, to float64) {
				for _, capability := range capabilities {
					v := s.Experts[format].Generations[capability]
					*of(&v) = to
					s.Experts[format].Generations[capability] = v
				}
			},
		}
	}
	generation := func(what, capability string, of func(*catalog.Generation) *float64) constant {
		return constant{
			name: "generation " + capability + " " + what,
			get:  func(s *catalog.Speed) float64 { g := s.Generations[capability]; return *of(&g) },
			set: func(s *catalog.Speed, to float64) {
				g := s.Generations[capability]
				*of(&g) = to
				s.Generations[capability] = g
			},
		}
	}
	// large is the time of a sum of the largest size, in microseconds. Its ratio over 2, 4 and 8 GPUs stays.
	large := func(link string) constant {
		tables := func(s *catalog.Speed) (out []*float64) {
			for _, table := range s.AllReduce {
				if table.Links[0] == link {
					out = append(out, &table.Micros[len(table.Micros)-1])
				}
			}
			return out
		}
		return constant{
			name: "largest sum over " + link,
			get:  func(s *catalog.Speed) float64 { return *tables(s)[0] },
			set: func(s *catalog.Speed, to float64) {
				all := tables(s)
				factor := to / *all[0]
				for _, micros := range all {
					*micros *= factor
				}
			},
		}
	}
	// small is the time of a sum of a medium size, between its neighbours.
	small := func(link string, gpus, at int) constant {
		table := func(s *catalog.Speed) []float64 {
			i := slices.IndexFunc(s.AllReduce, func(a catalog.AllReduce) bool { return a.Links[0] == link && a.GPUs == gpus })
			return s.AllReduce[i].Micros
		}
		return constant{
			name: fmt.Sprintf("sum %d over %d with %s", at, gpus, link),
			get:  func(s *catalog.Speed) float64 { return table(s)[at] },
			set: func(s *catalog.Speed, to float64) {
				micros := table(s)
				micros[at] = min(max(to, micros[at-1]), micros[at+1])
			},
		}
	}
	variantBandwidth := func(v *catalog.Variant) *float64 { return &v.Bandwidth }
	variantCompute := func(v *catalog.Variant) *float64 { return &v.Compute }
	variantLayer := func(v *catalog.Variant) *float64 { return &v.LayerMicros }
	out = append(out,
		variant("mxfp4", "micros", variantLayer, "10.0", "10.3"),
		variant("mxfp4", "compute", variantCompute, "8.0"),
		variant("mxfp4", "compute", variantCompute, "10.0", "10.3"),
		large("nvlink4"),
		bounded(variant("mxfp4", "bandwidth", variantBandwidth, "10.0", "10.3")),
		bounded(variant("int4-experts", "bandwidth", variantBandwidth, "10.0", "10.3")),
		variant("int4-experts", "compute", variantCompute, "10.0", "10.3"),
		generation("compute", "8.0", func(g *catalog.Generation) *float64 { return &g.Compute }),
		generation("sinks", "8.0", func(g *catalog.Generation) *float64 { return &g.Sinks }),
	)
	for _, gpus := range []int{2, 4, 8} {
		out = append(out, small("nvlink5", gpus, 1), small("nvlink5", gpus, 2))
	}
	for _, formats := range [][]string{{"default"}, {"fp8", "fp8-channel"}, {"nvfp4"}, {"mxfp4"}, {"int4-experts"}} {
		out = append(out,
			kernel("experts "+formats[0]+" bandwidth", experts, mostOfPeak, bandwidth, formats...),
			kernel("experts "+formats[0]+" compute", experts, mostOfPeak, compute, formats...),
			kernel("experts "+formats[0]+" micros", experts, 0, layer, formats...))
	}
	return append(out,
		plain("skew", func(s *catalog.Speed) *float64 { return &s.Skew }),
		plain("prompt", func(s *catalog.Speed) *float64 { return &s.PromptMicros }),
		plain("step", func(s *catalog.Speed) *float64 { return &s.StepMicros }),
		plain("former step", func(s *catalog.Speed) *float64 { return &s.Former.StepMicros }),
		plain("layer", func(s *catalog.Speed) *float64 { return &s.LayerMicros }),
		plain("parallel", func(s *catalog.Speed) *float64 { return &s.ParallelMicros }),
		plain("sequence", func(s *catalog.Speed) *float64 { return &s.SequenceMicros }),
		bounded(plain("kv", func(s *catalog.Speed) *float64 { return &s.KVBandwidth })),
		plain("attention", func(s *catalog.Speed) *float64 { return &s.Attention }),
		plain("first", func(s *catalog.Speed) *float64 { return &s.FirstMicros }),
		plain("steps", func(s *catalog.Speed) *float64 { return &s.FirstSteps }),
	)
}
