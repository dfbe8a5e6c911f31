// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/physics"
)

// errs are relative errors of predictions, with their signs.
type errs []float64

// sorted returns the errors' sizes in order.
func (e errs) sizes() errs {
	out := make(errs, len(e))
	for i, err := range e {
		out[i] = math.Abs(err)
	}
	return out
}

// quantile by nearest rank; NaN, which passes no bound, of nothing.
func (e errs) quantile(share float64) float64 {
	if len(e) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(e))
	return s[min(int(math.Ceil(share*float64(len(s))))-1, len(s)-1)]
}

func (e errs) String() string {
	return fmt.Sprintf("%5.1f %5.1f %+6.1f", 100*e.sizes().quantile(0.5), 100*e.sizes().quantile(0.9), 100*e.quantile(0.5))
}

// score is how well a group of rows is predicted.
type score struct{ tpot, ttft, tokens errs }

func (s *score) add(b *bench, p physics.Pace) {
	s.tpot = append(s.tpot, p.TPOT/b.tpot-1)
	s.ttft = append(s.ttft, p.TTFT/b.ttft-1)
	s.tokens = append(s.tokens, p.OutputTokensPerSecond/b.tokens-1)
}

// scoresBy groups the rows that do not wait.
func scoresBy(rows []*bench, group func(*bench) string) map[string]*score {
	out := map[string]*score{}
	for _, b := range rows {
		if b.waits() {
			continue
		}
		key := group(b)
		if out[key] == nil {
			out[key] = &score{}
		}
		out[key].add(b, b.pace())
	}
	return out
}

func logScores(t *testing.T, scores map[string]*score) {
	t.Helper()
	t.Logf("%-64s %4s  %-19s  %-19s  %-19s", "errors in %: median, 90th percentile, bias", "rows", "TPOT", "TTFT", "tokens/s")
	for _, key := range slices.Sorted(maps.Keys(scores)) {
		s := scores[key]
		t.Logf("%-64s %4d  %v  %v  %v", key, len(s.tpot), s.tpot, s.ttft, s.tokens)
	}
}

// The constants reach what they were fitted for; rows of other models, GPUs and engines, which nothing was
// fitted to, come close.
func TestSpeedCalibration(t *testing.T) {
	rows := benches(t)
	logScores(t, scoresBy(rows, func(b *bench) string {
		return fmt.Sprint(b.split, " ", b.engine, " ", b.run.model, " ", b.gpu, " ", b.precision)
	}))
	bySplit := scoresBy(rows, func(b *bench) string { return b.split + " " + b.engine })
	logScores(t, bySplit)
	for _, bound := range []struct {
		group, figure     string
		of                func(*score) errs
		quantile, percent float64
	}{
		{"calib vllm", "TPOT", func(s *score) errs { return s.tpot }, 0.5, 8},
		{"calib vllm", "TPOT", func(s *score) errs { return s.tpot }, 0.9, 25},
		{"calib vllm", "tokens/s", func(s *score) errs { return s.tokens }, 0.5, 10},
		{"calib vllm", "TTFT", func(s *score) errs { return s.ttft }, 0.5, 20},
		{"holdout vllm", "TPOT", func(s *score) errs { return s.tpot }, 0.5, 12},
		{"holdout vllm", "tokens/s", func(s *score) errs { return s.tokens }, 0.5, 20},
	} {
		s := bySplit[bound.group]
		if s == nil {
			t.Errorf("there are no rows %q", bound.group)
			continue
		}
		got := 100 * bound.of(s).sizes().quantile(bound.quantile)
		t.Logf("figure: %s of vLLM, %d %s rows: quantile %v of the errors %.1f %% (at most %v)", bound.figure, len(s.tpot),
			strings.Fields(bound.group)[0], bound.quantile, got, bound.percent)
		if !(got <= bound.percent) {
			t.Errorf("%s: quantile %v of the errors of %s is %.1f %%, want at most %v %%",
				bound.group, bound.quantile, bound.figure, got, bound.percent)
		}
	}
}

// Rows whose sequences waited are said to queue, and few others.
func TestRowsThatQueueAreSaidTo(t *testing.T) {
	waiting, alarms, rows := 0, 0, 0
	for _, b := range benches(t) {
		rows++
		p := b.pace()
		name := fmt.Sprintf("%s %s %s %s tp%d %d/%d x %d: TTFT %.0f ms, predicted %.0f, room for %d tokens of %d", b.engine, b.run.model,
			b.gpu, b.precision, b.tp, b.input, b.output, b.concurrency, b.ttft, p.TTFT, b.budget.KVTokens,
			b.concurrency*(b.load.Input+b.load.Output))
		switch {
		case b.waits():
			t.Logf("waits: %s", name)
			waiting++
			if !b.queues() {
				t.Errorf("should be said to queue: %s", name)
			}
		case b.queues():
			alarms++
			t.Logf("said to queue: %s", name)
		}
	}
	t.Logf("figure: rows that queue and are said to: all %d; others that are said to: %d of %d", waiting, alarms, rows-waiting)
	if waiting == 0 {
		t.Error("no row waits")
	}
}

// dollars per GPU-hour on demand: Standard_ND96isr_H100_v5 and Standard_ND96isr_H200_v5 in eastus,
// p6-b200.48xlarge and p6-b300.48xlarge in us-east-1.
func dollars(gpu string) float64 {
	return map[string]float64{"H100-80-SXM": 12.29, "H200-141-SXM": 10.60, "B200-180-SXM": 14.24, "B300-SXM": 17.80}[gpu]
}

// What is ranked first costs hardly more per token than the best that was measured.
func TestDecisionRegret(t *testing.T) {
	all := benches(t)
	doubtful := 0
	for _, b := range all {
		if b.untuned() {
			doubtful++
		}
	}
	regretsOf(t, all, "with all rows")
	regrets := regretsOf(t, slices.DeleteFunc(all, func(b *bench) bool { return b.untuned() }),
		fmt.Sprintf("without %d rows of Qwen3-235B under vLLM 0.12, whose source calls them untuned", doubtful))
	if got := regrets.quantile(0.9); !(got <= 0.05) {
		t.Errorf("nine of ten groups regret at most %.1f %%, want 5 %%", 100*got)
	}
}

// regretsOf are how much dearer, in groups of rows of one engine, model and lengths, the cheapest prediction
// is than the cheapest measurement.
func regretsOf(t *testing.T, rows []*bench, title string) errs {
	t.Helper()
	groups := map[string][]*bench{}
	for _, b := range rows {
		key := fmt.Sprintf("%s %s %d/%d", b.engine, b.run.model, b.input, b.output)
		groups[key] = append(groups[key], b)
	}
	measured := func(b *bench) float64 { return dollars(b.gpu) * float64(b.tp) / b.tokens }
	predicted := func(b *bench) float64 { return dollars(b.gpu) * float64(b.tp) / b.pace().OutputTokensPerSecond }
	cheapest := func(by func(*bench) float64, options []*bench) *bench {
		return slices.MinFunc(options, func(a, b *bench) int { return cmp.Compare(by(a), by(b)) })
	}
	name := func(b *bench) string { return fmt.Sprintf("%s %s tp%d x %d", b.gpu, b.precision, b.tp, b.concurrency) }
	var regrets errs
	good := 0
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		options := groups[key]
		if len(options) < 2 {
			continue
		}
		chosen, best := cheapest(predicted, options), cheapest(measured, options)
		regret := measured(chosen)/measured(best) - 1
		regrets = append(regrets, regret)
		if regret <= 0.05 {
			good++
		}
		t.Logf("%-58s %2d options, regret %4.1f %%: %s, best %s", key, len(options), 100*regret, name(chosen), name(best))
	}
	t.Logf("figure: regret of at most 5 %%, %s: %d of %d groups (9 of 10)", title, good, len(regrets))
	return regrets
}
