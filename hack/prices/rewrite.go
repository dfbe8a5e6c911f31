// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lineWidth is the width of lists of prices, in columns.
const lineWidth = 100

// rewrite writes a table's prices and date into a file of machine types, and returns the changes. It relies on the
// file's layout. An entry begins with "- name:" at the start of a line, and its fields with two spaces. Maps of prices
// are in braces, possibly over several lines.
func rewrite(content string, t table) (string, []string, error) {
	lines := strings.SplitAfter(content, "\n")
	start := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "- name: ") })
	if start < 0 {
		return "", nil, errors.New(`it has no entry that begins with "- name: "`)
	}
	head, changes, err := setDate(lines[:start], t.date)
	if err != nil {
		return "", nil, err
	}
	var out strings.Builder
	out.WriteString(head)
	for start < len(lines) {
		end := start + 1
		for end < len(lines) && !strings.HasPrefix(lines[end], "- ") {
			end++
		}
		entry, changed, err := rewriteEntry(lines[start:end], t)
		if err != nil {
			return "", nil, err
		}
		out.WriteString(entry)
		changes = append(changes, changed...)
		start = end
	}
	return out.String(), changes, nil
}

// setDate replaces the date in the lines before the entries.
func setDate(head []string, date string) (string, []string, error) {
	for i, line := range head {
		before, ok := strings.CutPrefix(line, "date: ")
		if !ok {
			continue
		}
		out := slices.Clone(head)
		out[i] = fmt.Sprintf("date: %q\n", date)
		if out[i] == line {
			return strings.Join(out, ""), nil, nil
		}
		return strings.Join(out, ""), []string{"date " + strings.TrimSpace(before) + " becomes " + strconv.Quote(date)}, nil
	}
	return "", nil, errors.New(`it has no line that begins with "date: "`)
}

// rewriteEntry writes the prices into one machine type's lines.
func rewriteEntry(lines []string, t table) (string, []string, error) {
	name := strings.TrimSpace(strings.TrimPrefix(lines[0], "- name: "))
	var changes []string
	for _, field := range []struct {
		name    string
		prices  map[string]float64
		sourced bool
	}{
		{"prices", t.onDemand[name], true},
		{"spotPrices", t.spot[name], t.hasSpot},
	} {
		if !field.sourced {
			continue
		}
		var change string
		var err error
		if lines, change, err = setPrices(lines, field.name, field.prices); err != nil {
			return "", nil, fmt.Errorf("%s: %w", name, err)
		}
		if change != "" {
			changes = append(changes, name+": "+change)
		}
	}
	return strings.Join(lines, ""), changes, nil
}

// setPrices replaces, adds or removes one map of prices.
func setPrices(lines []string, field string, regions map[string]float64) ([]string, string, error) {
	from, to, err := span(lines, field)
	if err != nil {
		return nil, "", err
	}
	wanted := render(field, regions)
	if strings.Join(lines[from:to], "") == wanted {
		return lines, "", nil
	}
	had, err := parse(strings.Join(lines[from:to], ""))
	if err != nil {
		return nil, "", err
	}
	var replacement []string
	if wanted != "" {
		replacement = []string{wanted}
	}
	return slices.Concat(lines[:from], replacement, lines[to:]), describe(field, had, rounded(regions)), nil
}

// span returns the lines of a field's map. If the entry has none, it returns the field's proper place: before unusable,
// and before comments and blank lines at the entry's end.
func span(lines []string, field string) (from, to int, err error) {
	from = slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  "+field+":") })
	if from >= 0 {
		for to = from; to < len(lines); to++ {
			if strings.Contains(lines[to], "}") {
				return from, to + 1, nil
			}
		}
		return 0, 0, fmt.Errorf("%s: is not a map in braces", field)
	}
	from = slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "  unusable:") })
	if from >= 0 {
		return from, from, nil
	}
	from = len(lines)
	for from > 1 && !strings.HasPrefix(lines[from-1], "  ") {
		from--
	}
	return from, from, nil
}

// parse parses a map of prices in this program's form.
func parse(text string) (map[string]float64, error) {
	had := map[string]float64{}
	for _, pair := range regexp.MustCompile(`([a-z0-9-]+):\s*([^\s,{}]+)\s*[,}]`).FindAllStringSubmatch(text, -1) {
		price, err := strconv.ParseFloat(pair[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no price", pair[1], pair[2])
		}
		had[pair[1]] = price
	}
	return had, nil
}

// render formats a map of prices in braces, over as many lines as needed; empty for an empty map.
func render(field string, regions map[string]float64) string {
	if len(regions) == 0 {
		return ""
	}
	line := "  " + field + ": {"
	var out strings.Builder
	for i, region := range sorted(regions) {
		pair := region + ": " + number(regions[region])
		if i > 0 {
			line += ","
			if len(line)+len(pair)+2 > lineWidth {
				out.WriteString(line + "\n")
				line = "   "
			}
			line += " "
		}
		line += pair
	}
	return out.String() + line + "}\n"
}

// number formats a price with at most six decimals, more than any price list has.
func number(price float64) string {
	return strconv.FormatFloat(round(price), 'f', -1, 64)
}

func round(price float64) float64 {
	return math.Round(price*1e6) / 1e6
}

// rounded returns the prices, rounded as in the file.
func rounded(regions map[string]float64) map[string]float64 {
	out := maps.Clone(regions)
	for region := range out {
		out[region] = round(out[region])
	}
	return out
}

// describe lists the changes between two maps of prices.
func describe(field string, had, has map[string]float64) string {
	var parts []string
	for _, region := range sorted(has) {
		before, known := had[region]
		switch {
		case !known:
			parts = append(parts, fmt.Sprintf("%s %s is new", region, number(has[region])))
		case before != has[region]:
			parts = append(parts, fmt.Sprintf("%s %s becomes %s", region, number(before), number(has[region])))
		}
	}
	for _, region := range sorted(had) {
		if _, still := has[region]; !still {
			parts = append(parts, fmt.Sprintf("%s %s is gone", region, number(had[region])))
		}
	}
	if len(parts) == 0 {
		return field + ": new layout"
	}
	const most = 4
	if len(parts) > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more", len(parts)-most))
	}
	return field + ": " + strings.Join(parts, ", ")
}
