// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package physics_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/modelberth/modelberth/pkg/catalog"
	"github.com/modelberth/modelberth/pkg/physics"
)

// fitMemoryRounds is the number of rounds of a fit. Each tries another value of one constant.
const fitMemoryRounds = 12000

// counted is a row of kvcache.csv that the law covers.
type counted struct {
	start  start
	model  *physics.Model
	source string
	// unnamed: the log names no release.
	unnamed bool
	// The logged sizes in GiB; 0 if the log has none.
	cache, activation, libraries float64
}

func countedRows(t *testing.T, s shelf) []counted {
	t.Helper()
	var out []counted
	for _, row := range readStarts(t) {
		p, known := s.find(row["hf_repo"])
		if excluded(t, row, p, known) != "" {
			continue
		}
		source, _, _ := strings.Cut(row["source"], " @")
		out = append(out, counted{
			start: startOf(t, row), model: s.model(t, p), source: source, unnamed: row.release() == "",
			cache:      row.number(t, "kv_gib_per_gpu"),
			activation: row.number(t, "activation_gib"), libraries: row.number(t, "non_torch_gib"),
		})
	}
	return out
}

// constantsOf returns the constants of a memory law that are fitted.
func constantsOf(p *catalog.MemoryProfile) map[string]*float64 {
	out := map[string]*float64{"samplerCopies": &p.SamplerCopies, "batchCopies": &p.BatchCopies, "fixedGiB": &p.FixedGiB}
	libraries := func(name string, n *catalog.NonTorch) {
		out[name+" single"], out[name+" pcie"], out[name+" pair"], out[name+" group"] = &n.Single, &n.PCIe, &n.Pair, &n.Group
	}
	libraries("libraries", &p.NonTorchGiB)
	for i := range p.Former {
		former := &p.Former[i]
		if former.SamplerCopies > 0 {
			out["samplerCopies until "+former.Until] = &former.SamplerCopies
		}
		if former.NonTorchGiB != nil {
			libraries("libraries until "+former.Until, former.NonTorchGiB)
		}
	}
	return out
}

// guess returns a law before any fit, with values from the engine's source code.
func guess(e *catalog.Engine) *catalog.Engine {
	out := e.Clone()
	p := &out.Profile
	p.BatchCopies, p.FixedGiB = 1, 0.15
	for name, constant := range constantsOf(p) {
		switch {
		case strings.HasPrefix(name, "samplerCopies"):
			*constant = 9
		case strings.HasSuffix(name, "single"), strings.HasSuffix(name, "pcie"):
			*constant = 0.2
		case strings.HasSuffix(name, "pair"), strings.HasSuffix(name, "group"):
			*constant = 1
		}
	}
	return &out
}

// fit moves the constants of an engine's law towards the rows. An excess of predicted KV cache counts three times,
// because the law must not promise too much.
func fit(e *catalog.Engine, rows []counted) {
	loss := func() float64 {
		sum := 0.0
		for i := range rows {
			sum += rows[i].loss(e)
		}
		return sum
	}
	constants := constantsOf(&e.Profile)
	names := slices.Sorted(maps.Keys(constants))
	random := rand.New(rand.NewPCG(1, 2))
	best := loss()
	for i := range fitMemoryRounds {
		constant, width := constants[names[random.IntN(len(names))]], 0.5*math.Pow(0.01, float64(i)/fitMemoryRounds)
		was := *constant
		*constant = was * math.Exp(random.NormFloat64()*width)
		if now := loss(); now < best {
			best = now
			continue
		}
		*constant = was
	}
}

// loss returns the distance of a row from the law: of its KV cache, and of the other logged parts.
func (c *counted) loss(e *catalog.Engine) float64 {
	b := c.start.budget(c.model, e)
	by := b.KVCache - c.cache
	sum := max(-by, 3*by)
	if c.activation > 0 {
		sum += math.Abs(b.Activation - c.activation)
	}
	if c.libraries > 0 {
		sum += math.Abs(b.NonTorch - c.libraries)
	}
	return sum
}

// off returns by how many GiB the predicted KV cache exceeds the logged one.
func (c *counted) off(e *catalog.Engine) float64 {
	return c.start.budget(c.model, e).KVCache - c.cache
}

// terms identifies the constants that decide on a row: those of its release, for its connection of the GPUs. Without a
// release, the constants are unknown.
func (c *counted) terms(e *catalog.Engine) string {
	if c.unnamed {
		return "unnamed release, " + c.source
	}
	law := physics.LawOf(e, c.start.serving.Version)
	return fmt.Sprint(law.SamplerCopies, law.NonTorchGiB, c.connection())
}

// connection names the constant of the libraries that applies to a row.
func (c *counted) connection() string {
	switch l := &c.start.layout; {
	case l.TP == 1:
		return "single"
	case l.LinkedGPUs < l.TP:
		return "pcie"
	case l.TP == 2:
		return "pair"
	default:
		return "group"
	}
}

// TestFitMemory prints the constants with the best fit to all rows, starting from a guess:
//
//	go test -run TestFitMemory -v ./pkg/physics
func TestFitMemory(t *testing.T) {
	s := newShelf(t)
	e := guess(s.vllm(t))
	fit(e, countedRows(t, s))
	constants := constantsOf(&e.Profile)
	for _, name := range slices.Sorted(maps.Keys(constants)) {
		t.Logf("%-28s %.4g", name, *constants[name])
	}
}

// A law fitted to all other sources predicts each source. This shows what the law is worth for unseen starts. Rows with
// a constant that no other source supports count separately: it keeps its guess, as after a change in the engine, before
// anybody measures it. Plans have a margin for these, because their budgets are estimates.
func TestKVCacheCalibrationOfUnseenSources(t *testing.T) {
	s := newShelf(t)
	e := s.vllm(t)
	rows := countedRows(t, s)
	sources, terms := map[string]bool{}, map[string]map[string]bool{}
	for i := range rows {
		source, term := rows[i].source, rows[i].terms(e)
		sources[source] = true
		if terms[term] == nil {
			terms[term] = map[string]bool{}
		}
		terms[term][source] = true
	}
	var known, unknown []float64
	for _, source := range slices.Sorted(maps.Keys(sources)) {
		left := guess(e)
		fit(left, slices.DeleteFunc(slices.Clone(rows), func(c counted) bool { return c.source == source }))
		for i := range rows {
			switch c := &rows[i]; {
			case c.source != source:
			case len(terms[c.terms(e)]) > 1:
				known = append(known, c.off(left))
			default:
				unknown = append(unknown, c.off(left))
			}
		}
	}
	margin := e.Profile.MarginGiB.Estimated
	t.Logf("figure: KV cache, %d rows, unfitted (their source was left out of the fit): %s (at most %+.2f)", len(known), spreadOf(known), overMost)
	t.Logf("figure: KV cache, %d rows with a constant that no other source has, unfitted: %s (at most %+.2f, the margin of plans)",
		len(unknown), spreadOf(unknown), margin)
	failed := 0
	for _, by := range slices.Concat(known, unknown) {
		if by > margin {
			failed++
		}
	}
	t.Logf("figure: starts that would fail with a plan's margin, unfitted: %d of %d (none)", failed, len(rows))
	if over := slices.Max(known); over > overMost {
		t.Errorf("%.2f GiB more KV cache than logged, with constants of other sources", over)
	}
	if failed > 0 {
		t.Errorf("%d starts would fail: the law promises more than the margin of %.2f GiB", failed, margin)
	}
}

// spreadOf describes errors.
func spreadOf(errors []float64) string {
	sizes := make([]float64, len(errors))
	for i, by := range errors {
		sizes[i] = math.Abs(by)
	}
	slices.Sort(sizes)
	return fmt.Sprintf("median error %.2f GiB, from %+.2f to %+.2f", sizes[len(sizes)/2], slices.Min(errors), slices.Max(errors))
}
