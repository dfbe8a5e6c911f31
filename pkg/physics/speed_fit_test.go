// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build fit

package physics_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
)

// fitRounds of trying another value of one constant.
const fitRounds = 12000

// TestFitSpeed fits constants of presets/engines/vllm.yaml to the calibration rows, starting from what they
// are, and prints them:
//
//	go test -tags fit -run TestFitSpeed -v ./pkg/physics
func TestFitSpeed(t *testing.T) {
	var rows []*bench
	for _, b := range benches(t) {
		if b.split == "calib" && b.engine == "vllm" && !b.waits() {
			rows = append(rows, b)
		}
	}
	speed := &rows[0].deployment.Engine.Speed
	loss := func(constants map[string]float64) float64 {
		set(speed, constants)
		sum := 0.0
		for _, b := range rows {
			p := b.pace()
			sum += distance(p.TPOT, b.tpot) + 0.4*distance(p.TTFT, b.ttft)
		}
		return sum
	}
	constants := get(speed)
	names := slices.Sorted(maps.Keys(constants))
	random := rand.New(rand.NewPCG(1, 2))
	best := loss(constants)
	t.Logf("starts at %.3f", best)
	for i := range fitRounds {
		name, width := names[random.IntN(len(names))], 0.15*math.Pow(0.03, float64(i)/fitRounds)
		was := constants[name]
		constants[name] = was * math.Exp(random.NormFloat64()*width)
		if now := loss(constants); now < best {
			best = now
			continue
		}
		constants[name] = was
	}
	for _, name := range names {
		t.Logf("%-28s %.4g", name, constants[name])
	}
	set(speed, constants)
	t.Logf("ends at %.3f", best)
	logScores(t, scoresBy(rows, func(b *bench) string { return fmt.Sprint(b.run.model, " ", b.gpu, " ", b.precision) }))
	logScores(t, scoresBy(rows, func(*bench) string { return "calib vllm" }))
}

// distance of a prediction, nearly the size of its relative error.
func distance(predicted, measured float64) float64 {
	return math.Hypot(math.Log(predicted/measured), 0.03)
}

// get returns the constants that are fitted.
func get(s *catalog.Speed) map[string]float64 {
	dense, experts := s.Dense, s.Experts
	return map[string]float64{
		"dense fp8 compute": dense["fp8"].Compute, "dense nvfp4 bandwidth": dense["nvfp4"].Bandwidth,
		"dense nvfp4 compute": dense["nvfp4"].Compute,
		"fp8 bandwidth":       experts["fp8"].Bandwidth, "fp8 compute": experts["fp8"].Compute, "fp8 micros": experts["fp8"].LayerMicros,
		"nvfp4 compute": experts["nvfp4"].Compute, "nvfp4 micros": experts["nvfp4"].LayerMicros,
		"mxfp4 bandwidth": experts["mxfp4"].Bandwidth, "mxfp4 compute": experts["mxfp4"].Compute,
		"mxfp4 micros": experts["mxfp4"].LayerMicros, "mxfp4 native micros": experts["mxfp4"].Native.LayerMicros,
		"int4 bandwidth": experts["int4-experts"].Bandwidth, "int4 compute": experts["int4-experts"].Compute,
		"int4 micros": experts["int4-experts"].LayerMicros,
		"prompt":      s.PromptMicros, "sequence": s.SequenceMicros, "first": s.FirstMicros, "steps": s.FirstSteps, "burst": s.Burst,
	}
}

// set changes the constants, the same for formats that differ in scales only.
func set(s *catalog.Speed, to map[string]float64) {
	k := s.Dense["fp8"]
	k.Compute = to["dense fp8 compute"]
	s.Dense["fp8"], s.Dense["fp8-channel"] = k, k
	k = s.Dense["nvfp4"]
	k.Bandwidth, k.Compute = to["dense nvfp4 bandwidth"], to["dense nvfp4 compute"]
	s.Dense["nvfp4"] = k
	for _, name := range []string{"fp8", "nvfp4", "mxfp4", "int4"} {
		format := map[string]string{"int4": "int4-experts"}[name]
		if format == "" {
			format = name
		}
		k = s.Experts[format]
		k.Compute, k.LayerMicros = to[name+" compute"], to[name+" micros"]
		if bandwidth, fitted := to[name+" bandwidth"]; fitted {
			k.Bandwidth = bandwidth
		}
		if name == "mxfp4" {
			k.Native.LayerMicros = to["mxfp4 native micros"]
		}
		s.Experts[format] = k
	}
	s.PromptMicros, s.SequenceMicros = to["prompt"], to["sequence"]
	s.FirstMicros, s.FirstSteps, s.Burst = to["first"], to["steps"], to["burst"]
}
