// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/modelberth/modelberth/pkg/planner"
)

// theme is a group of reasons for rejections, with its key words.
type theme struct {
	title string
	words []string
}

// themes returns the themes in order of their use to a reader: suitable options, near misses, impossible options.
func themes() []theme {
	return []theme{
		{"Above your limits", []string{"above the limit", "at most", "(resource.count)"}},
		{"Suitable, but cost more or rank lower", []string{
			"costs more", "same price", "slower:", "no price known", "must cost at least", "is not known",
		}},
		{"Hold the model, but are too slow", []string{"too slow"}},
		{"Too little memory", []string{"does not fit", "GiB of disk"}},
		{"Cannot run it", []string{
			"compute capability", "cannot be split", "has no GPU", "no valid", "NVIDIA GPU", "requested", "requests", "engine ",
			"needs ",
		}},
		{"Not allowed by the request", []string{"not among", "not known to be sold as spot"}},
		{notBought, nil},
	}
}

// Themes without key words: machine types excluded by the catalogue, and all other reasons.
const (
	notBought = "Cannot be bought"
	other     = "Other reasons"

	notBoughtPrefix = "cannot be bought: "
)

// themeOf returns the title of a reason's theme: the first theme with a matching key word.
func themeOf(reason string) string {
	if strings.HasPrefix(reason, notBoughtPrefix) {
		return notBought
	}
	for _, t := range themes() {
		if slices.ContainsFunc(t.words, func(word string) bool { return strings.Contains(reason, word) }) {
			return t.title
		}
	}
	return other
}

// explain lists every rejected option, grouped by reason.
func explain(out page, verdicts []planner.Verdict) {
	byTheme := map[string][]planner.Verdict{}
	for _, v := range verdicts {
		theme := themeOf(v.Reason)
		byTheme[theme] = append(byTheme[theme], v)
	}
	out.heading(wasWere(len(verdicts), "option") + " rejected")
	for _, t := range append(themes(), theme{title: other}) {
		if found := byTheme[t.title]; len(found) > 0 {
			out.line("")
			out.line("  %s (%d)", out.paint(bold, t.title), len(found))
			explainTheme(out, found)
		}
	}
}

// explainTheme lists options by price. It prints a common reason once.
func explainTheme(out page, verdicts []planner.Verdict) {
	verdicts = slices.Clone(verdicts)
	slices.SortStableFunc(verdicts, func(a, b planner.Verdict) int {
		return cmp.Or(
			cmp.Compare(boolOrder(a.HourlyPrice >= 0), boolOrder(b.HourlyPrice >= 0)),
			cmp.Compare(a.HourlyPrice, b.HourlyPrice))
	})
	var reasons []string
	byReason := map[string][]planner.Verdict{}
	for _, v := range verdicts {
		reason := strings.TrimPrefix(v.Reason, notBoughtPrefix)
		if _, seen := byReason[reason]; !seen {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], v)
	}
	var rows [][]string
	for _, reason := range reasons {
		if same := byReason[reason]; len(same) == 1 {
			rows = append(rows, []string{machines(&same[0]), hourly(same[0].HourlyPrice), reason})
		}
	}
	// If writing to the page fails here, the next line fails, too.
	_ = table(out.w, "    ", rows)
	for _, reason := range reasons {
		if same := byReason[reason]; len(same) > 1 {
			explainReason(out, reason, same)
		}
	}
}

// explainReason lists the options with one common reason.
func explainReason(out page, reason string, same []planner.Verdict) {
	names := make([]string, 0, len(same))
	for i := range same {
		names = append(names, machines(&same[i]))
	}
	for _, line := range folded(reason+":", pageWidth-4) {
		out.line("    %s", line)
	}
	for _, line := range folded(strings.Join(names, ", "), pageWidth-6) {
		out.line("      %s", line)
	}
}

func boolOrder(first bool) int {
	if first {
		return 0
	}
	return 1
}

// machines describes the machines of an option.
func machines(v *planner.Verdict) string {
	switch {
	case len(v.NodeNames) > 0:
		return strings.Join(v.NodeNames, ", ")
	case v.Nodes <= 1:
		return v.InstanceType
	}
	return fmt.Sprintf("%d × %s", v.Nodes, v.InstanceType)
}
