// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of entry, in words for messages.
type Kind string

// The kinds of names in a manifest.
const (
	KindPreset       Kind = "preset"
	KindInstanceType Kind = "instance type"
)

// UnknownError reports a name that is not in the catalogue.
type UnknownError struct {
	Kind Kind
	Name string
	// Suggestions are similar names, the closest first.
	Suggestions []string
}

// Error returns one sentence with the remedy.
func (e *UnknownError) Error() string {
	if len(e.Suggestions) > 0 {
		return fmt.Sprintf("%s %q is not in the catalogue%s", e.Kind, e.Name, suggestion(e.Suggestions))
	}
	return fmt.Sprintf("%s %q is not in the catalogue: check its spelling, or ask the administrator to add it", e.Kind, e.Name)
}

// suggestion formats similar names as the end of a sentence.
func suggestion(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(": did you mean %s?", names[0])
	default:
		last := len(names) - 1
		return fmt.Sprintf(": did you mean %s or %s?", strings.Join(names[:last], ", "), names[last])
	}
}

// closest returns up to three names with a similar spelling, the closest first.
func closest(name string, among []string) []string {
	const most = 3
	type candidate struct {
		name     string
		distance int
	}
	name = strings.ToLower(name)
	if name == "" || len(name) > 128 { // too long for a typo, and the work grows with the length
		return nil
	}
	like := func(spelt func(string) string) (out []candidate) {
		for _, other := range among {
			if distance, like := likeness(spelt(name), spelt(strings.ToLower(other))); like {
				out = append(out, candidate{other, distance})
			}
		}
		return out
	}
	candidates := like(func(name string) string { return name })
	if len(candidates) == 0 {
		candidates = like(joined)
	}
	size := sizeIn(name)
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(apart(size, a.name), apart(size, b.name)),
			cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, c := range candidates {
		if len(names) < most && !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// likeness returns the distance between two names, and whether one is a plausible guess for the other. A name that
// lacks its start or end, or has a small addition, is as plausible as a typo.
func likeness(name, other string) (int, bool) {
	distance := editDistance(name, other)
	cut := len(name) >= 3 && strings.Contains(other, name)
	padded := len(other) >= 3 && 2*len(other) >= len(name) && strings.Contains(name, other)
	if cut || padded {
		distance = min(distance, 1)
	}
	return distance, distance <= max(1, min(len(name), len(other))/4)
}

// joined returns a name without the separators between its words, because gemma3-27b means gemma-3-27b.
func joined(name string) string { return strings.NewReplacer("-", "", "_", "", " ", "").Replace(name) }

// apart returns the distance between a size and the size in a name. If the first size is unknown, smaller names are
// closer.
func apart(size float64, name string) float64 {
	other := sizeIn(strings.ToLower(name))
	if size == 0 || other == 0 {
		return other
	}
	return math.Abs(math.Log(other / size))
}

// sizeIn returns the number of parameters in a model's lower-case name, in 10^9: 7 for qwen2.5-7b-instruct. It is 0 if
// the name has none.
func sizeIn(name string) float64 {
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_/", r) }) {
		if number, isSize := strings.CutSuffix(word, "b"); isSize {
			if size, err := strconv.ParseFloat(number, 64); err == nil && size > 0 && !math.IsInf(size, 0) {
				return size
			}
		}
	}
	return 0
}

// editDistance returns the number of edits that turn one text into the other. An edit inserts, deletes or replaces a
// character, or swaps two neighbours.
func editDistance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}
