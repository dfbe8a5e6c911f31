// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	humane "k8s.io/apimachinery/pkg/util/duration"

	"github.com/modelberth/modelberth/api/v1beta1"
	"github.com/modelberth/modelberth/pkg/agent/fetch"
)

// branch is a part of a tree: a name, a text, and branches below.
type branch struct {
	name, text, code string
	below            []branch
}

// narrowest is the smallest width to fold at.
const narrowest = 24

// draw returns the lines of a tree, at most width characters wide.
func (s style) draw(root branch, width int) []string {
	lines := s.lines(root, "", "", max(width, narrowest))
	return append(lines, s.drawBelow(root.below, "", max(width, narrowest))...)
}

func (s style) drawBelow(branches []branch, indent string, width int) []string {
	var out []string
	for i, b := range branches {
		first, next := "├─ ", "│  "
		if i == len(branches)-1 {
			first, next = "└─ ", "   "
		}
		after := next
		if len(b.below) > 0 {
			after += "│  "
		}
		out = append(out, s.lines(b, indent+first, indent+after, width)...)
		out = append(out, s.drawBelow(b.below, indent+next, width)...)
	}
	return out
}

// lines folds a branch's text. first precedes the first line, and next the others. Further lines are indented to the
// start of the text, or on a narrow terminal to the start of the name.
func (s style) lines(b branch, first, next string, width int) []string {
	pad := strings.Repeat(" ", max(length(first)+length(b.name)+1-length(next), 0))
	name, text := b.name+" ", b.text
	if width-length(next+pad) < narrowest/2 {
		pad, name, text = "", "", b.name+" "+b.text
	}
	var out []string
	for i, line := range chopped(text, max(width-length(next+pad), 1)) {
		before := next + pad
		if i == 0 {
			before = first + s.paint(bold, name)
		}
		if b.code != "" {
			line = s.paint(b.code, line)
		}
		out = append(out, strings.TrimRight(before+line, " "))
	}
	return out
}

func length(text string) int { return len([]rune(text)) }

// chopped folds a text. It also breaks words longer than a line.
func chopped(text string, width int) []string {
	var out []string
	for _, line := range folded(text, width) {
		for runes := []rune(line); ; runes = runes[width:] {
			if len(runes) <= width {
				out = append(out, string(runes))
				break
			}
			out = append(out, string(runes[:width]))
		}
	}
	return out
}

// tree returns the state of a Workspace as a tree. Ages are relative to now.
func (r *report) tree(now time.Time, wide bool) branch {
	root := branch{name: r.Namespace + "/" + r.Name, text: r.headline(), code: r.code()}
	add := func(branches ...branch) { root.below = append(root.below, branches...) }
	if r.Plan != nil {
		add(planBranch(r.Plan, wide))
	}
	add(r.attempts(now, wide)...)
	add(r.capacity.branches(now, wide)...)
	for i := range r.Pods {
		add(r.Pods[i].branch(now, wide))
	}
	if len(r.Startup) > 0 {
		add(branch{name: "start-up", text: startup(r.Startup, now)})
	}
	if r.Endpoint != nil {
		add(endpointBranch(r.Endpoint))
	}
	return root
}

func (c *capacity) branches(now time.Time, wide bool) []branch {
	var out []branch
	for i := range c.Machines {
		out = append(out, c.Machines[i].branch(now, wide))
	}
	switch {
	case c.Unseen != "":
		out = append(out, branch{name: "machines", text: c.Unseen, code: dim})
	case len(c.Nodes) > 0:
		out = append(out, branch{name: "nodes", text: strings.Join(c.Nodes, ", ")})
	}
	return out
}

// attempts returns branches for attempts without machines, ended or open. The other attempts show in the branches of
// their machines. Once the Workspace is ready, only their number is of interest.
func (r *report) attempts(now time.Time, wide bool) []branch {
	var out []branch
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.EndTime != nil || a.ReadyTime == nil {
			out = append(out, attemptBranch(a, now))
		}
	}
	if r.Ready && !wide && len(out) > 0 {
		return []branch{{name: "attempts", text: count(len(out), "attempt") + " ended earlier; -o wide shows them", code: dim}}
	}
	return out
}

func (h *health) headline() string {
	text := string(h.State)
	if text == "" {
		text = string(v1beta1.StatePending)
	}
	if h.Stalled {
		text += ", stalled"
	}
	if h.Message != "" {
		text += ": " + h.Message
	}
	return text
}

func (h *health) code() string {
	switch {
	case h.Stalled:
		return red
	case h.Ready:
		return green
	default:
		return yellow
	}
}

func planBranch(p *v1beta1.PlanStatus, wide bool) branch {
	text := p.Summary
	if p.HourlyPrice != "" {
		text += ", " + pricePerHour(p.HourlyPrice)
	}
	if p.CapacityType != "" {
		text += " " + paid(p.CapacityType)
	}
	out := branch{name: "plan", text: text}
	var parts []string
	if p.Engine != "" {
		parts = append(parts, p.Engine)
	}
	for _, split := range []struct {
		name string
		n    int32
	}{{"tensor parallel", p.TensorParallel}, {"pipeline stages", p.PipelineParallel}, {"replicas", p.DataParallel}} {
		if split.n > 1 {
			parts = append(parts, fmt.Sprintf("%s %d", split.name, split.n))
		}
	}
	if p.ExpertParallel {
		parts = append(parts, "experts shared")
	}
	if p.MaxModelLen > 0 {
		parts = append(parts, fmt.Sprintf("%s of %d tokens", count(int(p.Concurrency), "sequence"), p.MaxModelLen))
	}
	if len(parts) > 0 {
		out.below = append(out.below, branch{name: "layout", text: strings.Join(parts, ", ")})
	}
	if p.Performance != nil {
		out.below = append(out.below, branch{name: "speed", text: predictedSpeed(p.Performance)})
	}
	if p.Memory != nil && wide {
		m := p.Memory
		out.below = append(out.below, branch{name: "memory", text: fmt.Sprintf(
			"of %s GiB on each GPU: weights %s, KV cache %s, overhead %s, free %s (%s)", m.Total, m.Weights, m.KVCache, m.Overhead, m.Free, m.Basis)})
	}
	for _, warning := range p.Warnings {
		out.below = append(out.below, branch{name: "!", text: warning, code: yellow})
	}
	return out
}

func predictedSpeed(p *v1beta1.PlanPerformance) string {
	return fmt.Sprintf("first token after %s, then %s per token%s; %s tokens/s in total, under %s at once (%s)",
		shortDuration(p.TimeToFirstToken), shortDuration(p.TimePerOutputToken), asLearned(p.Slowdown),
		shortNumber(p.OutputTokensPerSecond), count(int(p.Concurrency), "request"), p.Basis)
}

// asLearned describes the correction of a predicted time per output token by the measured speed of the namespace's
// engines.
func asLearned(slowdown string) string {
	if slowdown == "" {
		return ""
	}
	return fmt.Sprintf(" (%s × the prediction, as measured on engines of this namespace)", slowdown)
}

func attemptBranch(a *v1beta1.Attempt, now time.Time) branch {
	out := branch{name: fmt.Sprintf("attempt %d", a.Number), text: a.InstanceType}
	for _, part := range []string{string(a.CapacityType), a.Zone} {
		if part != "" {
			out.text += ", " + part
		}
	}
	if a.EndTime == nil {
		out.text += fmt.Sprintf(", requested %s ago", age(a.StartTime, now))
		return out
	}
	out.text += fmt.Sprintf(": %s, %s ago", text(a.Reason), age(*a.EndTime, now))
	out.code = red
	if a.Message != "" {
		out.below = append(out.below, branch{name: "message", text: a.Message})
	}
	if a.Fix != "" {
		out.below = append(out.below, branch{name: "next", text: a.Fix})
	}
	return out
}

func (m *machineReport) branch(now time.Time, wide bool) branch {
	out := branch{name: "machine", text: fmt.Sprintf("%s %s, %s", m.Name, strings.ToLower(m.Stage), age(m.Created, now))}
	if m.Stage == machineReady {
		out.code = green
	}
	if m.Node != "" {
		out.text += ", node " + m.Node
	}
	if m.Until > 0 {
		out.text += fmt.Sprintf(", serves until attempt %d is ready", m.Until)
	}
	if wide {
		for _, part := range []string{m.InstanceType, m.CapacityType, m.Zone} {
			if part != "" {
				out.text += ", " + part
			}
		}
	}
	if m.Message != "" && m.Stage != machineReady {
		out.below = append(out.below, branch{name: "waits", text: m.Message, code: dim})
	}
	return out
}

func (p *podReport) branch(now time.Time, wide bool) branch {
	out := branch{name: "pod", text: fmt.Sprintf("%s %s, %s", p.Name, p.Stage, age(p.Created, now))}
	if p.Member > 0 {
		out.text += fmt.Sprintf(", member %d", p.Member)
	}
	if p.Restarts > 0 {
		out.text += ", " + count(int(p.Restarts), "restart")
	}
	if wide && p.Node != "" {
		out.text += ", node " + p.Node
	}
	switch {
	case p.Ready:
		out.code = green
	case p.Message != "":
		out.code = red
		out.below = append(out.below, branch{name: "message", text: p.Message})
	}
	if p.Weights != nil {
		out.below = append(out.below, branch{name: "weights", text: weightsBar(p.Weights) + " " + weightsText(p.Weights)})
		if p.Weights.LastError != "" {
			out.below = append(out.below, branch{name: "last error", text: p.Weights.LastError, code: yellow})
		}
	}
	return out
}

// progressWidth is the number of characters in the progress bar of the weights.
const progressWidth = 20

func fetched(p *fetch.Progress) float64 {
	if p.TotalBytes <= 0 {
		return 0
	}
	return min(float64(p.Bytes)/float64(p.TotalBytes), 1)
}

func weightsBar(p *fetch.Progress) string {
	full := int(math.Floor(fetched(p) * progressWidth))
	return strings.Repeat("█", full) + strings.Repeat("░", progressWidth-full)
}

func weightsText(p *fetch.Progress) string {
	if p.TotalBytes <= 0 {
		return "requesting the list of files"
	}
	unit, name := float64(gib), "GiB"
	if p.TotalBytes < gib {
		unit, name = 1<<20, "MiB"
	}
	out := fmt.Sprintf("%.0f%%, %s of %s %s",
		math.Floor(fetched(p)*100), digits(float64(p.Bytes)/unit), digits(float64(p.TotalBytes)/unit), name)
	if p.BytesPerSecond > 0 {
		out += fmt.Sprintf(", %s MiB/s", digits(float64(p.BytesPerSecond)/(1<<20)))
	}
	if p.ETASeconds > 0 {
		out += fmt.Sprintf(", %s left", humane.HumanDuration(time.Duration(p.ETASeconds)*time.Second))
	}
	if p.Stage == fetch.StageVerifying {
		out += ", verifying"
	}
	return out
}

// startup formats the duration of each stage of a start.
func startup(stages []v1beta1.StartupStage, now time.Time) string {
	var parts []string
	for _, stage := range stages {
		parts = append(parts, stageText(&stage, now))
	}
	return strings.Join(parts, ", ")
}

func stageText(stage *v1beta1.StartupStage, now time.Time) string {
	if stage.EndTime == nil {
		return fmt.Sprintf("%s since %s", strings.ToLower(stage.Stage), humane.HumanDuration(now.Sub(stage.StartTime.Time)))
	}
	return fmt.Sprintf("%s %s", strings.ToLower(stage.Stage), humane.HumanDuration(stage.EndTime.Sub(stage.StartTime.Time)))
}

func endpointBranch(e *v1beta1.Endpoint) branch {
	out := branch{name: "endpoint", text: e.URL, code: green}
	if len(e.Models) > 0 {
		out.below = append(out.below, branch{name: "models", text: strings.Join(slices.Clone(e.Models), ", ")})
	}
	return out
}

// age formats the time since an event.
func age(then metav1.Time, now time.Time) string {
	if then.IsZero() {
		return none
	}
	return humane.HumanDuration(now.Sub(then.Time))
}

// shortDuration formats a duration of the API with three digits. shortNumber does so for a number.
func shortDuration(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return millis(float64(d) / float64(time.Millisecond))
}

func shortNumber(text string) string {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return text
	}
	return digits(value)
}

// priced formats a price of the API for a table.
func priced(text string) string {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return none
	}
	return dollars(value)
}

// pricePerHour formats a price of the API for a line.
func pricePerHour(text string) string {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "no price known"
	}
	return hourly(value)
}
