// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// milestone is an event in the life of a Workspace. Each key is printed once.
type milestone struct{ key, text string }

// progressPrinter prints a line for each new milestone.
func (s *statusCommand) progressPrinter(w World) func(*snapshot) {
	printed := map[string]bool{}
	return func(seen *snapshot) {
		now := w.Clock.Now()
		for _, m := range seen.milestones(now) {
			if !printed[m.key] {
				printed[m.key] = true
				fmt.Fprintf(w.Out, "%s %s\n", now.UTC().Format(time.TimeOnly), m.text)
			}
		}
	}
}

// milestones returns the events of a Workspace to print, in the order of their occurrence. A key changes only with an
// event.
func (r *report) milestones(now time.Time) []milestone {
	var out []milestone
	add := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		out = append(out, milestone{text, text})
	}
	if r.Plan != nil {
		add("plan %s", planBranch(r.Plan, false).text)
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		add("attempt %d requests %s", a.Number, a.InstanceType)
		if a.EndTime != nil {
			add("attempt %d ended: %s: %s", a.Number, text(a.Reason), strings.Trim(a.Message+"; "+a.Fix, "; "))
		}
	}
	for i := range r.Machines {
		m := &r.Machines[i]
		add("machine %s %s", m.Name, strings.ToLower(m.Stage))
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		said := fmt.Sprintf("pod %s %s", p.Name, strings.TrimSuffix(p.Stage+": "+p.Message, ": "))
		life := fmt.Sprintf("%s %d", p.Created, p.Restarts) // so that events after a restart are printed again
		out = append(out, milestone{key: life + said, text: said})
		if p.Weights != nil && p.Weights.TotalBytes > 0 {
			tenths := int(math.Floor(fetched(p.Weights) * 10))
			out = append(out, milestone{
				key:  fmt.Sprintf("weights %s %s %d", p.Name, life, tenths),
				text: fmt.Sprintf("pod %s weights %s", p.Name, weightsText(p.Weights)),
			})
		}
	}
	for i := range r.Startup {
		if stage := &r.Startup[i]; stage.EndTime != nil {
			add("stage %s", stageText(stage, now))
		}
	}
	if r.Ready && r.Endpoint != nil {
		add("ready at %s as %s", r.Endpoint.URL, strings.Join(r.Endpoint.Models, ", "))
	}
	return out
}
