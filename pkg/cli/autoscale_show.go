// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelberth/modelberth/pkg/autoscale"
	"github.com/modelberth/modelberth/pkg/autoscale/simulation"
)

// clairvoyantRule is the name of the schedule made with knowledge of all future requests.
const clairvoyantRule = "clairvoyant"

// scenario is a policy with the requests and engines of its simulation.
type scenario struct {
	set, source string
	deployed    *deployed
	policy      *autoscale.Policy
	goal        simulation.Goal
	startUp     time.Duration
	requests    []simulation.Request
	// shape is the shape of generated requests; nil for a file.
	shape *simulation.Shape
}

// replay has the results of all rules.
type replay struct {
	*scenario

	rules []ruleResult
	best  *simulation.Result
	bound float64
}

// ruleResult is one row; its JSON is stable.
type ruleResult struct {
	Rule    string  `json:"rule"`
	Dollars float64 `json:"dollars"`
	// OfClairvoyant is Dollars divided by the cost of the clairvoyant schedule; 0 without such a schedule.
	OfClairvoyant float64 `json:"ofClairvoyant,omitempty"`
	// Attained is the share of the requests that reached the goal.
	Attained  float64 `json:"attained"`
	IsReached bool    `json:"goalReached"`
	TTFTp50   float64 `json:"ttftP50Seconds"`
	TTFTp95   float64 `json:"ttftP95Seconds"`
	TTFTp99   float64 `json:"ttftP99Seconds"`
	StartUps  int     `json:"startUps"`
	Withdrawn int     `json:"withdrawn"`
	Most      int     `json:"mostReplicas"`

	result *simulation.Result
}

func (r *replay) add(name string, result *simulation.Result) {
	attained := r.goal.Attained(result)
	p := simulation.Percentiles(result.TTFT, 0.5, 0.95, 0.99)
	r.rules = append(r.rules, ruleResult{
		Rule: name, Dollars: hundredths(result.Dollars), Attained: attained, IsReached: attained >= r.goal.Share,
		TTFTp50: thousandths(p[0]), TTFTp95: thousandths(p[1]), TTFTp99: thousandths(p[2]),
		StartUps: result.StartUps, Withdrawn: result.Wasted, Most: result.Most, result: result,
	})
}

// addClairvoyant adds the cheapest schedule that a search finds, if it finds any.
func (r *replay) addClairvoyant(setting simulation.Setting, trace []simulation.Request) {
	if best, ok := simulation.Clairvoyant(setting, trace, r.goal, setting.Speed.Each(r.policy), r.policy.Max); ok {
		r.add(clairvoyantRule, best)
		r.best = best
	}
}

// rule returns the result of a rule.
func (r *replay) rule(name string) *ruleResult {
	i := slices.IndexFunc(r.rules, func(rule ruleResult) bool { return rule.Rule == name })
	return &r.rules[i]
}

func (s *simulateCommand) show(w World, r *replay) error {
	if s.svg != "" {
		if err := os.WriteFile(s.svg, []byte(r.drawing()), 0o600); err != nil {
			return usageError("--svg: %w", plainly(s.svg, err))
		}
	}
	r.compare()
	if s.forPrograms() {
		return s.data(w.Out, struct {
			Goal      string       `json:"goal"`
			WorkBound float64      `json:"workBoundDollars,omitempty"`
			Rules     []ruleResult `json:"rules"`
		}{goalWords(r.goal), hundredths(r.bound), r.rules})
	}
	out := page{w.Out, newStyle(w)}
	r.title(out)
	out.fact("targets", r.targets())
	r.facts(out)
	out.heading("Replicas with this policy")
	r.plot(out)
	out.heading("Rules")
	if err := table(w.Out, "  ", r.rows()); err != nil {
		return err
	}
	r.remarks(out)
	return nil
}

func (s *scenario) title(out page) {
	out.line("%s", out.paint(bold, fmt.Sprintf("%s: %d to %d replicas", s.set, s.policy.Min, s.policy.Max)))
	out.line("")
}

func (s *scenario) facts(out page) {
	out.fact("replica", s.deployed.words()+" (predicted)")
	out.fact("start-up", fmt.Sprintf("%s (assumed: --start-up)", s.startUp))
	out.fact("trace", s.source)
	out.fact("goal", goalWords(s.goal))
}

// compare divides the cost of each rule by that of the clairvoyant schedule, if there is one.
func (r *replay) compare() {
	if r.best == nil || r.best.Dollars <= 0 {
		return
	}
	for i := range r.rules {
		r.rules[i].OfClairvoyant = thousandths(r.rules[i].result.Dollars / r.best.Dollars)
	}
}

func goalWords(goal simulation.Goal) string {
	return fmt.Sprintf("%s%% of the first tokens within %s", digits(goal.Share*100), goal.TTFT)
}

func (r *replay) targets() string {
	var texts []string
	for _, target := range r.policy.Targets {
		texts = append(texts, string(target.Metric)+" "+target.Metric.Format(target.Value))
	}
	return strings.Join(texts, ", ")
}

func (r *replay) rows() [][]string {
	rows := [][]string{{"RULE", "USD", "OF CLAIRVOYANT", "IN TIME", "GOAL", "TTFT P50", "P95", "P99", "STARTS", "WITHDRAWN", "MOST"}}
	for i := range r.rules {
		rule := &r.rules[i]
		rows = append(rows, append(rule.verdict(),
			seconds(rule.TTFTp50), seconds(rule.TTFTp95), seconds(rule.TTFTp99),
			fmt.Sprint(rule.StartUps), fmt.Sprint(rule.Withdrawn), fmt.Sprint(rule.Most),
		))
	}
	return rows
}

// verdict returns the cells of a row that compare the rule with others and with the goal.
func (r *ruleResult) verdict() []string {
	of, goal := none, "missed"
	if r.OfClairvoyant > 0 {
		of = fmt.Sprintf("%.2f ×", r.OfClairvoyant)
	}
	if r.IsReached {
		goal = "reached"
	}
	return []string{r.Rule, fmt.Sprintf("%.2f", r.Dollars), of, inTime(r.Attained), goal}
}

// inTime formats a share of requests. It rounds down, so that a missed goal does not look reached.
func inTime(share float64) string { return fmt.Sprintf("%.1f%%", math.Floor(share*1000)/10) }

func seconds(value float64) string {
	if value <= 0 { // some requests have no answer
		return none
	}
	return millis(value * 1e3)
}

func (r *replay) remarks(out page) {
	if len(r.rules) == 1 {
		return
	}
	out.line("")
	if r.best == nil {
		out.point(out.paint(yellow, "!"), fmt.Sprintf("No schedule reaches the goal, not even one with %d replicas at all times: raise maxReplicas or --ttft.", r.policy.Max))
	}
	if !r.rules[0].IsReached {
		out.point(out.paint(yellow, "!"), "This policy misses the goal, so its price is not comparable: lower its targets, or raise minReplicas.")
	}
	out.line("clairvoyant is the cheapest schedule that a search found. No schedule can cost less than $%s, the price of the same work on fully used replicas.", dollars(r.bound))
}

// Size of the plot in characters.
const (
	plotWidth  = 80
	plotHeight = 12
)

// plot draws the ready and the desired replicas over time.
func (r *replay) plot(out page) {
	result := r.rules[0].result
	ready, desired := buckets(result, plotWidth)
	most := 1.0
	for i := range ready {
		most = max(most, ready[i], desired[i])
	}
	step := math.Max(1, math.Ceil(most/plotHeight))
	for level := math.Ceil(most/step) * step; level > 0; level -= step {
		var line strings.Builder
		for i := range ready {
			switch {
			case ready[i] > level-step:
				line.WriteString("█")
			case desired[i] > level-step:
				line.WriteString("░")
			default:
				line.WriteString(" ")
			}
		}
		out.line("  %4.0f │%s", level, line.String())
	}
	out.line("       └%s", strings.Repeat("─", plotWidth))
	end := fmt.Sprintf("%s h", digits(result.Duration/3600))
	out.line("        0%s%s", strings.Repeat(" ", plotWidth-1-len(end)), end)
	out.line("        █ ready   ░ requested")
}

// buckets divides the time into equal parts, and returns the largest numbers of replicas in each part.
func buckets(result *simulation.Result, parts int) (ready, desired []float64) {
	ready, desired = make([]float64, parts), make([]float64, parts)
	width := math.Max(result.Duration, 1) / float64(parts)
	for i, step := range result.Steps {
		end := result.Duration
		if i+1 < len(result.Steps) {
			end = result.Steps[i+1].At
		}
		for b := int(step.At / width); b < parts && float64(b)*width <= end; b++ {
			ready[b], desired[b] = max(ready[b], float64(step.Ready)), max(desired[b], float64(step.Desired))
		}
	}
	return ready, desired
}

// drawing returns an SVG of the replicas under this policy and under the clairvoyant schedule.
func (r *replay) drawing() string {
	const width, height, left, bottom = 960.0, 320.0, 48.0, 36.0
	end, most := 1.0, 1
	for i := range r.rules {
		if rule := r.rules[i].result; i == 0 || rule == r.best {
			end, most = math.Max(end, rule.Duration), max(most, rule.Most)
		}
	}
	x := func(at float64) float64 { return left + at/end*(width-left-8) }
	y := func(n int) float64 { return height - bottom - float64(n)/float64(most)*(height-bottom-28) }
	path := func(result *simulation.Result, of func(simulation.Step) int) string {
		var d strings.Builder
		for i, step := range result.Steps {
			if i == 0 {
				fmt.Fprintf(&d, "M%.1f %.1f", x(step.At), y(of(step)))
				continue
			}
			fmt.Fprintf(&d, "H%.1fV%.1f", x(step.At), y(of(step)))
		}
		fmt.Fprintf(&d, "H%.1f", x(result.Duration))
		return d.String()
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n",
		width, height)
	fmt.Fprintf(&out, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, height)
	for n := 0; n <= most; n += max(1, most/6) {
		fmt.Fprintf(&out, `<path d="M%.0f %.1fH%.0f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%d</text>`+"\n",
			left, y(n), width-8, left-6, y(n)+4, n)
	}
	line := func(name, colour string, row int, d string) {
		fmt.Fprintf(&out, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/><text x="%.0f" y="16" fill="%s">%s</text>`+"\n",
			d, colour, left+float64(row)*170, colour, name)
	}
	ours := r.rules[0].result
	line("requested", "#e69f00", 0, path(ours, func(s simulation.Step) int { return s.Desired }))
	line("ready", "#0072b2", 1, path(ours, func(s simulation.Step) int { return s.Ready }))
	if r.best != nil {
		line(clairvoyantRule, "#009e73", 2, path(r.best, func(s simulation.Step) int { return s.Ready }))
	}
	fmt.Fprintf(&out, `<text x="%.0f" y="%.0f">0</text><text x="%.0f" y="%.0f" text-anchor="end">%s h</text>`+"\n</svg>\n",
		left, height-12, width-8, height-12, digits(end/3600))
	return out.String()
}
