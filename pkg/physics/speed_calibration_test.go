// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// errs are relative errors of predictions, with sign.
type errs []float64

// sizes returns the absolute errors, sorted.
func (e errs) sizes() errs {
	out := make(errs, len(e))
	for i, err := range e {
		out[i] = math.Abs(err)
	}
	return out
}

// quantile returns a quantile by nearest rank. Without errors it is NaN, which no check accepts.
func (e errs) quantile(share float64) float64 {
	if len(e) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(e))
	return s[min(int(math.Ceil(share*float64(len(s))))-1, len(s)-1)]
}

func (e errs) String() string {
	if len(e) == 0 {
		return "                  -"
	}
	return fmt.Sprintf("%5.1f %5.1f %+6.1f", 100*e.sizes().quantile(0.5), 100*e.sizes().quantile(0.9), 100*e.quantile(0.5))
}

// score has the errors of the predictions for a group of rows.
type score struct{ tpot, ttft, tokens errs }

// add compares a row's figures with a prediction. For a burst only the rate counts, because the rest depends on the
// length of the queue.
func (s *score) add(b *bench, p physics.Pace) {
	compare := func(errors *errs, predicted, measured float64) {
		if !math.IsNaN(measured) {
			*errors = append(*errors, predicted/measured-1)
		}
	}
	compare(&s.tokens, p.OutputTokensPerSecond, b.tokens)
	if !b.burst {
		compare(&s.tpot, p.TPOT, b.tpot)
	}
	if !b.burst && b.noTTFT == "" {
		compare(&s.ttft, p.TTFT, b.ttft)
	}
}

// scoresBy returns the scores of the rows without a queue, by group.
func scoresBy(rows []*bench, group func(*bench) string) map[string]*score {
	out := map[string]*score{}
	for _, b := range rows {
		key := group(b)
		if b.waits() || key == "" {
			continue
		}
		if out[key] == nil {
			out[key] = &score{}
		}
		out[key].add(b, b.pace())
	}
	return out
}

func logScores(t *testing.T, title string, scores map[string]*score) {
	t.Helper()
	t.Logf("%-72s %4s  %-19s  %-19s  %-19s", title+": median, 90th percentile, bias in %", "rows", "TPOT", "TTFT", "tokens/s")
	for _, key := range slices.Sorted(maps.Keys(scores)) {
		s := scores[key]
		t.Logf("%-72s %4d  %v  %v  %v", key, len(s.tokens), s.tpot, s.ttft, s.tokens)
	}
}

// The constants fit their rows. The predictions for groups left out of the fit are close.
func TestSpeedCalibration(t *testing.T) {
	rows := benches(t)
	fitted, kept := splitRows(rows)
	fit, out := scoresBy(fitted, (*bench).group), scoresBy(kept, (*bench).group)
	logScores(t, "fitted", fit)
	logScores(t, "kept out", out)
	logScores(t, "labs, all rows", scoresBy(measured(rows), (*bench).lab))
	logScores(t, "not to be fitted", scoresBy(rows, func(b *bench) string {
		switch {
		case b.run.engine != "vllm":
			return "engine " + b.run.engine
		case b.mixed():
			return "bursts of mixed lengths"
		case b.untuned():
			return "untuned"
		default:
			return ""
		}
	}))
	t.Logf("kept out: %d of %d groups, %d of %d rows", len(out), len(fit)+len(out), len(kept), len(fitted)+len(kept))
	all := func(*bench) string { return "all" }
	for _, tc := range []struct {
		name               string
		score              *score
		tpot, ttft, tokens float64
	}{
		{"fitted", scoresBy(fitted, all)["all"], 4, 12, 4},
		{"kept out", scoresBy(kept, all)["all"], 8, 18, 9},
	} {
		for _, bound := range []struct {
			figure  string
			of      errs
			percent float64
		}{{"TPOT", tc.score.tpot, tc.tpot}, {"TTFT", tc.score.ttft, tc.ttft}, {"tokens/s", tc.score.tokens, tc.tokens}} {
			got := 100 * bound.of.sizes().quantile(0.5)
			t.Logf("figure: %s of vLLM, %d rows %s: median error %.1f %% (at most %v), 90th percentile %.1f %%", bound.figure,
				len(bound.of), tc.name, got, bound.percent, 100*bound.of.sizes().quantile(0.9))
			if !(got <= bound.percent) {
				t.Errorf("the median error of %s, rows %s, is %.1f %%, want at most %v %%", bound.figure, tc.name, got, bound.percent)
			}
		}
	}
}

// The times to the first token that are not compared, with their errors and the reasons.
func TestTimesNotCompared(t *testing.T) {
	used, far := map[string]bool{}, errs{}
	for _, b := range measured(benches(t)) {
		if b.noTTFT == "" || b.burst || math.IsNaN(b.ttft) {
			continue
		}
		p := b.pace()
		used[b.noTTFT] = true
		t.Logf("%-14s %s on %s, %d/%d x %d: TTFT %.0f ms, predicted %.0f (%+.0f %%): %s", b.id, b.run.model, b.gpu, b.input, b.output,
			b.concurrency, b.ttft, p.TTFT, 100*(p.TTFT/b.ttft-1), b.noTTFT)
		if b.input > longestFitted {
			far = append(far, p.TTFT/b.ttft-1)
		}
	}
	for _, of := range readNotCompared(t) {
		if !used[of.Reason] {
			t.Errorf("%s has no row: remove it from throughput-ttft.yaml", of.Source)
		}
	}
	t.Logf("figure: TTFT of prompts longer than any fitted one, %d rows: from %+.0f to %+.0f %%", len(far), 100*slices.Min(far), 100*slices.Max(far))
	if slices.Min(far) < 0 {
		t.Errorf("the law promises an earlier first token than measured: %+.0f %%", 100*slices.Min(far))
	}
}

// Rows in which sequences waited are predicted to queue, and few others are.
func TestQueuedRowsArePredicted(t *testing.T) {
	waiting, alarms, rows := 0, 0, 0
	for _, b := range benches(t) {
		if b.burst || b.doubt() != "" && !b.untuned() {
			continue
		}
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

// dollars returns the price per GPU-hour on demand, in USD: of Standard_ND96amsr_A100_v4, Standard_ND96isr_H100_v5 and
// Standard_ND96isr_H200_v5 in eastus, and of p6-b200.48xlarge and p6-b300.48xlarge in us-east-1.
func dollars(gpu string) float64 {
	return map[string]float64{
		"A100-80-SXM": 4.10, "H100-80-SXM": 12.29, "H200-141-SXM": 10.60, "B200-180-SXM": 14.24, "B300-SXM": 17.80,
	}[gpu]
}

// The option that the predictions rank first costs hardly more per token than the best measured one.
func TestDecisionRegret(t *testing.T) {
	regrets := regretsOf(t, slices.DeleteFunc(benches(t), func(b *bench) bool {
		return b.doubt() != "" && !b.untuned() || b.mixed() || math.IsNaN(b.tokens) || dollars(b.gpu) == 0
	}))
	if got := regrets.quantile(0.9); !(got <= 0.05) {
		t.Errorf("nine of ten groups regret at most %.1f %%, want 5 %%", 100*got)
	}
}

// The release explains the rows that their collector considers untuned. No constant is fitted to them.
func TestReleaseExplainsUntunedRows(t *testing.T) {
	rows := slices.DeleteFunc(benches(t), func(b *bench) bool { return !b.untuned() })
	with := scoresBy(rows, (*bench).group)
	for _, b := range rows {
		b.deployment.Engine.Speed.FormerBlocks = catalog.FormerBlocks{}
	}
	without := scoresBy(rows, (*bench).group)
	logScores(t, "with whole blocks", with)
	logScores(t, "without", without)
	if len(with) != 1 {
		t.Fatalf("%d groups, want one", len(with))
	}
	for group, s := range with {
		got, before := 100*s.tpot.sizes().quantile(0.5), 100*without[group].tpot.sizes().quantile(0.5)
		t.Logf("figure: TPOT of %d rows of Qwen3-235B under vLLM 0.12, which no fit uses: median error %.1f %% (at most 25), "+
			"%.1f %% without whole blocks", len(rows), got, before)
		if !(got <= 25) || before < 2*got {
			t.Errorf("the median error is %.1f %%, and %.1f %% without whole blocks", got, before)
		}
	}
}

// regretsOf compares the prices per token within groups of rows of one engine, model and lengths. It returns by how
// much the option that is cheapest by prediction exceeds the cheapest by measurement.
func regretsOf(t *testing.T, rows []*bench) errs {
	t.Helper()
	groups := map[string][]*bench{}
	for _, b := range rows {
		key := fmt.Sprintf("%s %s %d/%d", b.engine, b.run.model, b.input, b.output)
		groups[key] = append(groups[key], b)
	}
	measured := func(b *bench) float64 { return dollars(b.gpu) * float64(b.tp*b.pp) / b.tokens }
	predicted := func(b *bench) float64 { return dollars(b.gpu) * float64(b.tp*b.pp) / b.pace().OutputTokensPerSecond }
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
	t.Logf("figure: regret of at most 5 %%, with all rows: %d of %d groups (9 of 10)", good, len(regrets))
	return regrets
}
