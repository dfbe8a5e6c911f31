// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modelberth/modelberth/api/v1beta1"
)

func samples() []sample {
	out := []sample{{err: errors.New("the model's server rejects the request: too long")}}
	for i := range 10 { // 100, 200 … 1000 ms to the first token, then 10, 20 … 100 ms for each of 10 more
		step := time.Duration(i+1) * 100 * time.Millisecond
		out = append(out, sample{ttft: step, whole: 2 * step, input: 100, output: 11})
	}
	return out
}

func TestSummed(t *testing.T) {
	l := load{Requests: 11, Concurrency: 4, InputTokens: 100, OutputTokens: 11}
	got, err := l.summed(samples(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := &benchResult{
		load: l, DurationSeconds: 10, Failed: 1, FirstFailure: "the model's server rejects the request: too long", MeanInputTokens: 100, MeanOutputTokens: 11,
		TTFTMillis: percentiles{500, 900}, TPOTMillis: percentiles{50, 90}, RequestTokensPerSecond: percentiles{11 / 1.0, 11 / 1.8},
		OutputTokensPerSecond: 11, TokensPerMinute: 6660, meanTTFT: 550, meanTPOT: 55,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(benchResult{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSummedOne checks that a single answer has percentiles, but a single token no time per output token.
func TestSummedOne(t *testing.T) {
	l := load{Requests: 1, Concurrency: 1, InputTokens: 8, OutputTokens: 1}
	got, err := l.summed([]sample{{ttft: time.Second, whole: time.Second, input: 8, output: 1}}, time.Second)
	if err != nil || got.TTFTMillis != (percentiles{1000, 1000}) || got.TPOTMillis != (percentiles{}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := l.summed([]sample{{err: errors.New("away")}}, time.Second); err == nil || err.Error() != "no request succeeded: away" || codeOf(err) != codeCluster {
		t.Errorf("error %v", err)
	}
}

func TestFilled(t *testing.T) {
	plan := &v1beta1.PlanStatus{Performance: &v1beta1.PlanPerformance{InputTokens: 512, OutputTokens: 64, Concurrency: 8}}
	for _, test := range []struct {
		reason string
		asked  load
		plan   *v1beta1.PlanStatus
		want   load
	}{
		{"nothing is said: the plan's", load{}, plan, load{32, 8, 512, 64}},
		{"flags beat the plan", load{5, 2, 10, 20}, plan, load{5, 2, 10, 20}},
		{"never more open than there are", load{Requests: 3}, plan, load{3, 3, 512, 64}},
		{"no plan: the API's", load{}, nil, load{16, 4, 1024, 256}},
		{"a plan without a prediction", load{}, &v1beta1.PlanStatus{}, load{16, 4, 1024, 256}},
	} {
		if got := test.asked.filled(test.plan); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.reason, got, test.want)
		}
	}
}

// TestBenchShows pins the output for people.
func TestBenchShows(t *testing.T) {
	result, err := load{Requests: 11, Concurrency: 4, InputTokens: 100, OutputTokens: 11}.summed(samples(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	result.Predicted = &v1beta1.PlanPerformance{
		InputTokens: 1024, OutputTokens: 256, Concurrency: 4, TimeToFirstToken: "412.345ms", TimePerOutputToken: "28.1234ms",
		OutputTokensPerSecond: "131.4159", Basis: v1beta1.BasisEstimated,
	}
	var out bytes.Buffer
	b := &benchCommand{output: output{format: formatTable}}
	if err := b.show(World{Out: &out, Getenv: func(string) string { return "" }}, result); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/golden/bench.txt"
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
