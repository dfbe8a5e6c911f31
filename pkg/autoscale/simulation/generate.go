// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	_ "embed"
	"fmt"
	"math"
	"math/rand/v2"

	"sigs.k8s.io/yaml"
)

//go:embed traces.yaml
var shapes []byte

// Shape describes a generated trace; traces.yaml explains the fields.
type Shape struct {
	Name      string  `json:"name"`
	Source    string  `json:"source"`
	Chosen    string  `json:"chosen"`
	Hours     float64 `json:"hours"`
	Swing     float64 `json:"swing"`
	ArrivalCV float64 `json:"arrivalCV"`
	Bursts    Bursts  `json:"bursts"`
	Input     Lengths `json:"input"`
	Output    Lengths `json:"output"`
}

// Bursts are episodes with a higher rate of requests.
type Bursts struct {
	PerHour     float64 `json:"perHour"`
	Factor      float64 `json:"factor"`
	Minutes     float64 `json:"minutes"`
	RiseMinutes float64 `json:"riseMinutes"`
}

// Lengths are a distribution of lengths in tokens.
type Lengths struct {
	Median    float64 `json:"median"`
	Sigma     float64 `json:"sigma"`
	Mean      float64 `json:"mean"`
	Most      float64 `json:"most"`
	TailShare float64 `json:"tailShare"`
	TailFrom  float64 `json:"tailFrom"`
	TailAlpha float64 `json:"tailAlpha"`
}

// Shapes returns the shapes of the shipped traces.
func Shapes() ([]Shape, error) {
	var file struct {
		Traces []Shape `json:"traces"`
	}
	if err := yaml.UnmarshalStrict(shapes, &file); err != nil {
		return nil, fmt.Errorf("reading traces.yaml: %w", err)
	}
	return file.Traces, nil
}

// MeanRequest returns a request with the mean lengths of the shape.
func (s *Shape) MeanRequest() Request {
	const samples = 20_000
	random := rand.New(rand.NewPCG(1, 1))
	var input, output int
	for range samples {
		input += s.Input.sample(random)
		output += s.Output.sample(random)
	}
	return Request{Input: input / samples, Output: output / samples}
}

// Generate returns a trace of the shape with a mean rate in requests per second. The trace ends early at 5,000,000
// requests; isWhole is then false. The same seed gives the same trace.
func (s *Shape) Generate(rate float64, seed uint64) (trace []Request, isWhole bool) {
	random := rand.New(rand.NewPCG(seed, 0x6265727468))
	level := s.levels(random)
	end := s.Hours * 3600
	// The times between requests are Gamma-distributed, and scaled by the rate at that time.
	shape := 1 / (s.ArrivalCV * s.ArrivalCV)
	for at := 0.0; at < end; {
		at += gamma(random, shape) / shape / (rate * level(at))
		if at >= end {
			break
		}
		if len(trace) == mostRequests {
			return trace, false
		}
		trace = append(trace, Request{At: at, Input: s.Input.sample(random), Output: s.Output.sample(random)})
	}
	return trace, true
}

// levels returns a function of time: the rate, divided by the mean rate.
func (s *Shape) levels(random *rand.Rand) func(float64) float64 {
	end := s.Hours * 3600
	var starts []float64
	if s.Bursts.PerHour > 0 {
		for at := random.ExpFloat64() / s.Bursts.PerHour * 3600; at < end; at += random.ExpFloat64() / s.Bursts.PerHour * 3600 {
			starts = append(starts, at)
		}
	}
	amplitude := (s.Swing - 1) / (s.Swing + 1)
	raw := func(at float64) float64 {
		out := 1 - amplitude*math.Cos(2*math.Pi*at/86400)
		for _, start := range starts {
			out *= s.Bursts.at(at - start)
		}
		return out
	}
	mean, steps := 0.0, 2000
	for i := range steps {
		mean += raw(end*(float64(i)+0.5)/float64(steps)) / float64(steps)
	}
	return func(at float64) float64 { return raw(at) / mean }
}

// at returns the factor of the rate this many seconds after the start of a burst.
func (b *Bursts) at(since float64) float64 {
	length, rise := b.Minutes*60, math.Max(b.RiseMinutes*60, 1)
	if since <= 0 || since >= length {
		return 1
	}
	return 1 + (b.Factor-1)*math.Min(1, math.Min(since, length-since)/rise)
}

func (l *Lengths) sample(random *rand.Rand) int {
	var out float64
	switch {
	case l.Mean > 0:
		out = random.ExpFloat64() * l.Mean
	case l.TailShare > 0 && random.Float64() < l.TailShare:
		out = l.TailFrom / math.Pow(1-random.Float64(), 1/l.TailAlpha)
	default:
		out = l.Median * math.Exp(l.Sigma*random.NormFloat64())
	}
	return int(math.Min(math.Max(out, 1), l.Most))
}

// gamma returns a Gamma-distributed number with a scale of 1 (Marsaglia and Tsang, 2000).
func gamma(random *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(random, shape+1) * math.Pow(1-random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-random.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
